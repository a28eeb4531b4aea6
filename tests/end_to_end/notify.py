#!/usr/bin/env python3
"""The end of a run is told once: to a real HTTP server, by a command, on the screen.

  notify.py GPUCTL FAKE_JOB [TEST...]
"""
import contextlib
import http.server
import json
import os
import shutil
import signal
import threading
import time

import json_check
from runs import DEADLINE_S, Patience, held_job, open_gate, run_tests
from sync import write

LOSSES = "for s in 1 2 3; do echo \"step $s/3 loss 0.$((5 - s))\"; done"


class Hook:
    """A webhook's server on a port of the kernel's choice."""

    def __init__(self, *codes):
        hook = self
        self.codes = list(codes)  # answers in turn, then 200
        self.got, self.hold = [], threading.Event()
        self.hold.set()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.got.append((self.path, json.loads(body)))
                hook.hold.wait(DEADLINE_S)
                with contextlib.suppress(OSError):
                    self.send_response(hook.codes.pop(0) if hook.codes else 200)
                    self.send_header("content-length", "0")
                    self.end_headers()

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d/services/canary-91" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.hold.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def fresh(l):
    shutil.rmtree(os.path.join(l.dir, ".config"), ignore_errors=True)
    shutil.rmtree(l.work)
    os.mkdir(l.work)


def later(minutes):
    """Returns the environment of a gpuctl that starts so much later."""
    return {"GPUCTL_TEST_CLOCK": "1@%d@%d" % (
        (time.time() + minutes * 60) * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)}


def keep(l, **env):
    return [deed for deed in json.loads(l.run("keep", "--json", code=None, **env).stdout)["deeds"]
            if deed["verb"] == "notify"]


def eventually(check):
    patience = Patience()
    while not check():
        assert patience.lasts()
        time.sleep(0.02)


def test_a_webhook_gets_it_once(l):
    fresh(l)
    with Hook() as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        done = l.run("launch", "--name", "told", "--", "bash", "-c", LOSSES + "; exit 3", code=3)
        assert len(hook.got) == 1, (hook.got, done)
        path, message = hook.got[0]
        assert path == "/services/canary-91"
        assert message["text"].startswith("told-1 failed: exited with code 3"), message
        assert message["text"].endswith("best loss 0.2 at step 3"), message
        fields = {f["title"]: f["value"] for f in message["attachments"][0]["fields"]}
        assert fields["Outcome"] == "exited with code 3" and fields["Machine"] == "local", fields
        l.run("attach", "told", code=3)
        l.run("wait", "told", code=3)
        assert keep(l) == [] and keep(l, **later(60)) == []
        assert len(hook.got) == 1
        # The address is in the user's own file, and nowhere else.
        for folder, _, files in os.walk(l.env["GPUCTL_STATE_DIR"]):
            for name in files:
                with open(os.path.join(folder, name), "rb") as file:
                    assert b"canary-91" not in file.read(), name
        assert b"canary-91" not in done.stdout + done.stderr


def test_of_many_that_wait_one_tells(l):
    fresh(l)
    with Hook() as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        gate = held_job(l, "crowd")
        waiting = [l.start("wait", "crowd") for _ in range(6)] + [l.start("attach", "crowd")]
        time.sleep(0.5)
        hook.hold.clear()
        open_gate(gate)
        eventually(lambda: hook.got)
        # The one that tells is held up; the others go home.
        eventually(lambda: sum(p.poll() is not None for p in waiting) == len(waiting) - 1)
        assert keep(l, **later(60)) == []
        hook.hold.set()
        assert [p.wait(DEADLINE_S) for p in waiting] == 7 * [0]
        for process in waiting:
            process.stdout.close()
            process.stderr.close()
        assert len(hook.got) == 1, hook.got


def test_what_fails_is_tried_again(l):
    fresh(l)
    with Hook(500, 503) as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        marker = l.work + "/marker"
        l.run("config", "set", "notify.command", "echo x >> " + marker)
        done = l.run("launch", "--name", "again", "--no-workdir", "--", "true")
        assert b"tell of the end of again-1: webhook: it answered 500" in done.stderr, done
        assert keep(l) == []  # not yet
        assert keep(l, **later(2)) == [] and len(hook.got) == 2
        assert keep(l, **later(10)) == [{"verb": "notify", "subject": "again-1",
                                         "result": "webhook"}] and len(hook.got) == 3
        assert keep(l, **later(60)) == [] and len(hook.got) == 3
        with open(marker, encoding="utf-8") as file:
            assert file.read() == "x\n"
    # Nobody listens there any more; at last it is given up.
    l.run("launch", "--name", "gone", "--no-workdir", "--", "true")
    for hours in range(1, 12):
        keep(l, **later(hours * 60))
    failures = json.loads(l.run("keep", "--json", code=0, **later(1000)).stdout)["failures"]
    assert failures == [], failures


def test_what_is_refused_is_not_tried_again(l):
    fresh(l)
    with Hook(404) as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        done = l.run("launch", "--name", "refused", "--no-workdir", "--", "true")
        assert b"webhook: it answered 404" in done.stderr
        assert keep(l, **later(60)) == [] and len(hook.got) == 1


def test_a_killed_teller_is_replaced(l):
    fresh(l)
    with Hook() as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        gate = held_job(l, "killed")
        waiting = l.start("wait", "killed")
        hook.hold.clear()
        open_gate(gate)
        eventually(lambda: hook.got)
        waiting.send_signal(signal.SIGKILL)
        waiting.wait(DEADLINE_S)
        waiting.stdout.close()
        waiting.stderr.close()
        hook.hold.set()
        assert keep(l) == []
        assert len(keep(l, **later(5))) == 1


def test_keep_tells_what_nobody_saw(l):
    fresh(l)
    with Hook() as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        gate = held_job(l, "unseen")
        assert keep(l) == []
        open_gate(gate)
        eventually(lambda: keep(l))
        assert len(hook.got) == 1
        with open(l.env["GPUCTL_STATE_DIR"] + "/keep.log", encoding="utf-8") as file:
            log = file.read()
        assert "notify" in log and "canary-91" not in log, log


def test_a_command_gets_the_facts(l):
    fresh(l)
    out = l.dir + "/facts"
    write(l.work + "/run.yaml", ("""name: facts
run: |
  %s
notify: {command: 'cat > %s.json; env | grep ^GPUCTL_ > %s.env'}
""" % (LOSSES, out, out)).encode())
    l.run("config", "set", "notify.command", "touch %s.wrong" % out)
    plan = l.run("launch", "run.yaml", "--dry-run").stdout.decode()
    assert "notify    at the end: the command \"cat" in plan, plan
    done = l.run("launch", "run.yaml")
    assert b"at the run's end this computer runs: cat" in done.stderr, done
    with open(out + ".json", encoding="utf-8") as file:
        facts = json_check.read_strictly(file.read().encode())
    json_check.check_document("notify", facts)
    assert (facts["outcome"], facts["exit_code"], facts["cost_usd"]) == ("succeeded", 0, None), facts
    assert facts["best"] == {"metric": "loss", "value": 0.2, "step": 3}, facts
    with open(out + ".env", encoding="utf-8") as file:
        env = dict(line.rstrip("\n").split("=", 1) for line in file)
    assert env["GPUCTL_RUN"] == facts["name"] and env["GPUCTL_OUTCOME"] == "succeeded", env
    assert env["GPUCTL_BEST_VALUE"] == "0.2" and env["GPUCTL_COST_USD"] == "", env
    assert not os.path.exists(out + ".wrong")
    # A command that hangs or fails holds nobody up for ever, and its end is told.
    write(l.work + "/run.yaml", b"run: 'true'\nnotify: {command: exit 4}\n")
    done = l.run("launch", "run.yaml")
    assert b"command: ended with code 4" in done.stderr, done


def test_a_run_can_keep_quiet(l):
    fresh(l)
    with Hook() as hook:
        l.run("config", "set", "notify.webhook", hook.url)
        write(l.work + "/run.yaml", b"run: 'true'\nnotify: {desktop: false}\n")
        l.run("launch", "run.yaml")
        assert hook.got == [] and keep(l, **later(60)) == []
        # Nothing started, and the user has read that.
        l.run("launch", "--gpu", "H100", "--", "true", code=None)
        assert hook.got == []


def test_an_address_in_a_run_file_is_the_name_of_a_secret(l):
    fresh(l)
    write(l.work + "/run.yaml", b"run: 'true'\nnotify: {webhook: 'https://x.example/canary-92'}\n")
    done = l.run("launch", "run.yaml", code=2)
    assert b"gpuctl login --secret" in done.stderr, done
    write(l.work + "/run.yaml", b"run: 'true'\nnotify: {webhook: MY_HOOK}\n")
    with Hook() as hook:
        l.run("launch", "run.yaml", MY_HOOK=hook.url)
        assert len(hook.got) == 1
        done = l.run("launch", "run.yaml")
        assert b"the secret MY_HOOK has no value here" in done.stderr, done
        done = l.run("launch", "run.yaml", MY_HOOK="nonsense")
        assert b"the secret MY_HOOK is no address" in done.stderr, done


def test_the_desktop(l):
    fresh(l)
    l.run("config", "set", "notify.desktop", "true")
    tool = l.dir + "/tools/notify-send"
    write(tool, b"#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/shown\"\n")
    os.chmod(tool, 0o755)
    path = os.path.dirname(tool) + ":" + l.env["PATH"]
    l.run("launch", "--name", "screen", "--", "bash", "-c", "exit 2", code=2, PATH=path)
    with open(l.dir + "/shown", encoding="utf-8") as file:
        shown = file.read().splitlines()
    assert shown[:3] == ["--app-name=gpuctl", "--", "screen-1 failed"], shown
    assert shown[3].startswith("exited with code 2"), shown


if __name__ == "__main__":
    run_tests(globals())

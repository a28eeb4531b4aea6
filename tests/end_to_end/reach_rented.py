#!/usr/bin/env python3
"""ssh, forward, and the user's own ssh, on a rented machine: also when it has moved, and when it is
gone.

  reach_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import urllib.request

from rent_world import DEADLINE_S, eventually, run_tests, write


# Sockets that do not listen, and keep their ports from being anybody else's.
WRONG = []


def move(w):
    """Makes the address that the ledger has a wrong one, as if the machine had moved since."""
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    WRONG.append(closed)
    port = closed.getsockname()[1]
    path = os.path.join(w.env["GPUCTL_STATE_DIR"], "ledger.db")
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute("UPDATE leases SET port = ?", (port,))
        ledger.commit()
    return port


def own_ssh(w, flags, *words, code=0, **env):
    done = subprocess.run(["ssh", *flags, *words], env={**w.env, **env}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S,
                          check=False)
    assert done.returncode == code, done
    return done


def holds_lock(pid):
    """Whether the process has begun to tell: then it knows whose presence it is."""
    for name in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(OSError):
            if "contact" in os.path.basename(os.readlink("/proc/%d/fd/%s" % (pid, name))):
                return True
    return False


def contacts(w):
    """Returns the processes on the machines that tell them of somebody's presence."""
    found = []
    for pid in w.processes():
        with contextlib.suppress(OSError):
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            if words[0].endswith(b"/gpuctl-agent") and words[1:2] == [b"contact"]:
                if holds_lock(pid):
                    found.append(pid)
    return found


def check_presence(w, *words):
    """A machine with limits knows that somebody is there, and that he is gone."""
    eventually(lambda: not contacts(w), "what was there before has gone")
    child = w.start(*words)
    child.stdout.readline()
    eventually(lambda: contacts(w), "the machine knows")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=DEADLINE_S)
    eventually(lambda: not contacts(w), "the machine knows the end")


def check(w, service):
    name = "reach-%s-1" % service
    w.rent("-d", "--provider", service, "--name", name, "--", "sh", "-c",
           "exec python3 -u -m http.server --bind 127.0.0.1 0 > http.log 2>&1")
    config = os.path.join(w.dir, ".ssh/config")
    write(config, "Host *\n  ForwardAgent yes\n")
    w.run("ssh", "--setup", "-y")
    flags, host = ["-F", config], "gpuctl-" + name
    where = own_ssh(w, flags, host, "pwd").stdout
    # Its own key alone is offered, and the agent stays at home.
    shown = own_ssh(w, flags, "-G", host).stdout.decode()
    assert "identitiesonly yes" in shown and "forwardagent no" in shown, shown
    assert re.findall("^identityfile (.*)", shown, re.M) == [
        os.path.join(w.env["GPUCTL_STATE_DIR"], "ssh/id_ed25519")], shown
    done = w.run("ssh", name, "--", "sh", "-c", "pwd; echo $GPUCTL_RUN_ID; exit 5", code=5)
    assert done.stdout.startswith(where.strip()) and b"\nr-" in done.stdout, (done, where)
    log = w.run("exec", name, "--", "sh", "-c", "until grep -q port http.log; do sleep 0.05; done;"
                "cat http.log").stdout.decode()
    there = re.search(r"port (\d+)", log).group(1)
    for verb in ("exec", "ssh"):
        check_presence(w, verb, name, "--", "sh", "-c", "echo on; exec sleep 100")
    check_presence(w, "forward", name, there)
    # It has moved: each finds the new address by itself.
    wrong = move(w)
    assert own_ssh(w, flags, host, "pwd").stdout == where
    assert w.leases()[-1]["port"] != wrong
    for words in (["ssh", name, "--", "echo", "x"], ["exec", "-t", name, "--", "echo", "x"]):
        move(w)
        assert w.run(*words).stdout.strip() == b"x"
    move(w)
    child = w.start("forward", name, there)
    line = child.stdout.readline()
    found = re.search(rb"http://127\.0\.0\.1:(\d+)", line)
    if not found:
        child.kill()
    assert found, (line, child.communicate())
    here = found.group(1).decode()
    with urllib.request.urlopen("http://127.0.0.1:%s/http.log" % here, timeout=300) as reply:
        assert b"Serving" in reply.read()
    # The machine is given back: that is the end, with its reason.
    w.run("down", "-y", "--force", name)
    out, err = child.communicate(timeout=DEADLINE_S)
    assert child.returncode not in (0, -signal.SIGKILL) and b"given back" in err, (out, err)
    done = own_ssh(w, flags, host, "true", code=255)
    assert b"given back" in done.stderr, done.stderr
    done = w.run("forward", name, there, code=None)
    assert done.returncode != 0 and b"given back" in done.stderr, done
    eventually(lambda: not w.processes(), "nothing is left")


def test_the_kept_connection_goes_with_the_machine(w):
    """A command's connection is kept for the next one (see warm_link.py), and ends with the bill."""
    w.env["GPUCTL_WARM_LINK"] = "10m"
    name = "kept-1"
    w.rent("-d", "--provider", "vast", "--name", name, "--", "sleep", "600")

    def links():
        return [link for link in w.json("debug", "links")["links"] if link["answers"]]
    eventually(lambda: len(links()) == 1, "a kept connection")
    before = links()[0]
    assert w.run("exec", name, "--", "echo", "x").stdout == b"x\n"
    assert name.encode() in w.run("ps", "-u").stdout
    after = links()[0]
    assert after["pid"] == before["pid"] and after["served"] > before["served"], (before, after)
    w.run("down", "-y", "--force", name)
    eventually(lambda: not os.path.exists("/proc/%d" % before["pid"]), "its end with the machine")
    done = w.run("exec", name, "--", "true", code=None)
    assert done.returncode != 0 and b"given back" in done.stderr, done
    assert links() == []
    # With every machine, too.
    name = "kept-2"
    w.rent("-d", "--provider", "vast", "--name", name, "--", "sleep", "600")
    eventually(lambda: len(links()) == 1, "a kept connection")
    pid = links()[0]["pid"]
    w.run("down", "-y", "--force", "--all")
    eventually(lambda: not os.path.exists("/proc/%d" % pid), "its end")
    eventually(lambda: not w.processes(), "nothing is left")


def test_vast(w):
    check(w, "vast")


def test_runpod(w):
    check(w, "runpod")


def test_lambda(w):
    check(w, "lambda")


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""gpuctl dashboard: what its server tells and does, and whom it refuses. What the page shows is in
dashboard_page.py.

  dashboard.py GPUCTL FAKE_JOB [TEST...]
"""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.parse

import json_check
from runs import (DEADLINE_S, Patience, Terminal, cmdline, is_locked, lock_of, open_gate, run_tests,
                  wait_until)

STEP = "echo '{\"type\":\"step\",\"step\":%d,\"total_steps\":9,\"loss\":%s,\"lr\":0.001,\"tokens_per_s\":1000}' > $GPUCTL_METRICS; "


def stepping_job(l, name, *more, before="", then=""):
    """A run that is at step 3 until its gate is opened, then at step 4, and then ends."""
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    script = before + STEP % (2, "2.5") + STEP % (3, "1.5") + "read x < " + gate + "; " + STEP % (4, "1.25") + then
    l.run("launch", "-d", "--no-workdir", "--name", name, *more, "--", "bash", "-c", script)
    return gate


class Events:
    """An event stream, read as a page reads it."""

    def __init__(self, board, *run_ids, headers=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", board.port, timeout=DEADLINE_S)
        self.connection.request("GET", "/events?token=%s&runs=%s" % (board.token, ",".join(run_ids)),
                                headers=headers or {})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"
        self.last_id = 0

    def next(self):
        """Returns the next event's name and data; None at the end of the stream."""
        name, data = None, []
        while True:
            line = self.response.readline()
            if not line:
                return None
            line = line.decode().rstrip("\n")
            if line == "" and name:
                return name, json.loads("\n".join(data))
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                assert int(value) > self.last_id
                self.last_id = int(value)

    def until(self, wanted, check=lambda data: True):
        patience = Patience()
        seen = []
        while True:
            assert patience.lasts(), "no %s that fits in %s" % (wanted, seen[-20:])
            event = self.next()
            assert event is not None, "the stream ended before %s: %s" % (wanted, seen[-20:])
            seen.append(event)
            if event[0] == wanted and check(event[1]):
                return event[1]

    def close(self):
        self.connection.close()
        self.response.close()


class Board:
    """A dashboard that runs."""

    def __init__(self, l, *args):
        self.process = l.start("dashboard", "-o", "json", *args)
        self.line = self.process.stdout.readline()
        assert self.line, self.process.stderr.read()
        self.url = json.loads(self.line)["url"]
        parts = urllib.parse.urlsplit(self.url)
        self.port = parts.port
        assert parts.hostname == "127.0.0.1", self.url
        self.token = urllib.parse.parse_qs(parts.query)["token"][0]
        assert re.fullmatch("[0-9a-f]{32}", self.token), self.url

    def ask(self, path, method="GET", body=None, token=True, **headers):
        """Returns status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        if token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, answer.headers, text

    def act(self, verb, run_id):
        status, _, text = self.ask("/api/" + verb, "POST", json.dumps({"run_id": run_id}))
        return status, json.loads(text)

    def end(self, number=signal.SIGINT):
        """Ends it, and returns how long that took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(timeout=DEADLINE_S)
        took = time.monotonic() - begun
        out, err = self.line + self.process.stdout.read(), self.process.stderr.read()
        assert self.process.returncode == 0, (out, err)
        json_check.check_output(self.process.args, 0, out, err)
        return took


@contextlib.contextmanager
def board_of(l, *args):
    board = Board(l, *args)
    try:
        yield board
        board.end()
    finally:
        if board.process.poll() is None:
            board.process.kill()
            board.process.wait()


def run_named(l, name):
    return next(run for run in l.json("ps", "-a", "--offline")["runs"] if run["name"] == name)


def test_events_tell_what_a_real_run_does(l):
    gate = stepping_job(l, "live-1",
                        before="echo first line; echo '{\"accuracy\":0.5}' > $GPUCTL_METRICS; ")
    run_id = run_named(l, "live-1")["run_id"]
    with board_of(l) as board:
        events = Events(board, run_id)
        snapshot = events.until("snapshot")
        assert [run["name"] for run in snapshot["runs"]] == ["live-1"], snapshot
        assert snapshot["total"] == 1 and snapshot["totals"]["live"] == 1, snapshot
        # They come in any order, and the series in one part or two.
        told, steps, patience = {"step": None}, [], Patience()
        while told["step"] != 3 or len(steps) < 2:
            assert patience.lasts(), (told, steps)
            name, data = events.next()
            if name == "run":
                told = data
            elif name == "series":
                assert data["run_id"] == run_id, data
                steps += data["steps"]
        assert (told["status"], told["total_steps"], told["loss"]) == ("running", 9, 1.5), told
        assert (told["learning_rate"], told["tokens_per_s"]) == (0.001, 1000), told
        assert steps == [[2, 2.5, None, 0.001, 1000], [3, 1.5, None, 0.001, 1000]], steps
        # Another page that comes now has all of it, too.
        second = Events(board, run_id)
        open_gate(gate)
        more = events.until("series", lambda series: series["steps"][-1:] == [[4, 1.25, None, 0.001, 1000]])
        assert more["from_step"] in (3, 4), more
        ended = events.until("run", lambda run: run["status"] == "succeeded")
        assert ended["exit_code"] == 0 and ended["end_text"], ended
        whole = []
        while [point[0] for point in whole] != [2, 3, 4]:
            news = second.until("series")
            if news["from_step"] is None:
                whole = []
            whole = [point for point in whole if news["from_step"] is not None and point[0] < news["from_step"]]
            whole += news["steps"]
        # One that comes after the end, as after a break of its connection, misses nothing.
        third = Events(board, run_id, headers={"Last-Event-ID": str(events.last_id)})
        assert third.until("snapshot")["runs"][0]["status"] == "succeeded"
        late = third.until("series", lambda series: series["caught_up"] and len(series["steps"]) == 3)
        assert late["from_step"] is None and late["log"] == ["first line"], late
        assert late["own"] == [{"name": "accuracy", "value": 0.5}], late
        for each in (events, second, third):
            each.close()
    # What came was stored.
    run = run_named(l, "live-1")
    assert (run["status"], run["step"]) == ("succeeded", 4), run


def test_runs_come_and_go(l):
    with board_of(l) as board:
        events = Events(board)
        known = [run["name"] for run in events.until("snapshot")["runs"]]
        assert "quick-1" not in known, known
        l.run("launch", "--no-workdir", "--name", "quick-1", "--", "true")
        came = events.until("run", lambda run: run["status"] == "succeeded")
        assert came["name"] == "quick-1", came
        remove(l, "quick-1")
        assert events.until("gone")["run_id"] == came["run_id"]
        events.close()


def remove(l, name):
    """Removes a run from the list."""
    l.run("rm", "--forget", name)


def test_it_follows_as_attach_does_and_shares(l):
    gate = stepping_job(l, "shared-1")
    lock = lock_of(l, "shared-1")
    with board_of(l) as board:
        wait_until(lambda: is_locked(lock), "the dashboard follows")
        attached = Terminal(l, "attach", "shared-1")
        attached.until(b"step 3/9")
        events = Events(board)
        open_gate(gate)
        assert attached.finish() == 0
        events.until("run", lambda run: run["status"] == "succeeded")
        events.close()
    wait_until(lambda: not is_locked(lock), "nobody has the mirror")


def test_a_silent_machine_is_told(l):
    gate = stepping_job(l, "silent-1")
    with board_of(l) as board:
        events = Events(board)
        events.until("run", lambda run: run["step"] == 3)
        stopped = [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            events.until("run", lambda run: "last heard" in run["remark"])
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        events.until("run", lambda run: run["remark"] == "")
        events.close()
    open_gate(gate)
    l.run("wait", "silent-1")


def test_strangers_are_refused(l):
    with board_of(l) as board:
        local = "127.0.0.1:%d" % board.port
        cases = [
            (403, dict(path="/", token=False)),
            (403, dict(path="/?token=" + "0" * 32, token=False)),
            (403, dict(path="/?token=" + board.token[:-1], token=False)),
            (403, dict(path="/?token=", token=False)),
            (403, dict(path="/events", token=False)),
            (403, dict(path="/api/runs", token=False)),
            (403, dict(path="/api/runs", Authorization="Bearer x")),
            # Another name for this computer is another site.
            (403, dict(path="/", Host="evil.example:%d" % board.port)),
            (403, dict(path="/", Host="127.0.0.1")),
            (403, dict(path="/", Host="127.0.0.1:1")),
            (200, dict(path="/", Host="localhost:%d" % board.port)),
            # What changes something has its token in a header, where no form can put it.
            (403, dict(path="/api/stop?token=" + board.token, method="POST", body="{}", token=False)),
            (403, dict(path="/api/stop", method="POST", body="{}", Origin="http://evil.example")),
            (403, dict(path="/api/stop", method="POST", body="{}", Origin="null")),
            (400, dict(path="/api/stop", method="POST", body="{}", Origin="http://" + local)),
            (400, dict(path="/api/stop", method="POST", body='{"run_id":"../x"}')),
            (404, dict(path="/api/stop", method="POST", body='{"run_id":"%s"}' % ("a" * 24))),
            (405, dict(path="/api/stop")),
            (405, dict(path="/", method="POST")),
            (405, dict(path="/", method="PUT")),
            (405, dict(path="/", method="OPTIONS")),
            (404, dict(path="/api/launch", method="POST", body="{}")),
            (404, dict(path="/../../etc/passwd")),
            (413, dict(path="/api/stop", method="POST", body="x" * 5000)),
            (400, dict(path="/events?runs=a'b")),
            (400, dict(path="/events?runs=" + ",".join("%024x" % i for i in range(9)))),
            (400, dict(path="/api/runs?offset=-1")),
        ]
        for wanted, case in cases:
            status, headers, text = board.ask(**case)
            assert status == wanted, (case, status, text[:300])
            assert board.token.encode() not in text, case
            if wanted not in (413,):
                assert headers["Referrer-Policy"] == "no-referrer", case
                assert headers["X-Content-Type-Options"] == "nosniff", case
                assert "Access-Control-Allow-Origin" not in headers, case
                assert "default-src 'none'" in headers["Content-Security-Policy"], case
                assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], case
        for junk in (b"\0\1\2\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET http://x/ HTTP/1.1\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                     b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
                     b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n", b"x" * 100000):
            with socket.create_connection(("127.0.0.1", board.port), timeout=DEADLINE_S) as raw:
                with contextlib.suppress(OSError):
                    raw.sendall(junk)
                with contextlib.suppress(ConnectionResetError):
                    assert raw.recv(100).startswith((b"HTTP/1.1 4", b"")), junk[:50]
        # It listens for this computer alone.
        with open("/proc/net/tcp") as file:
            listens = [line.split()[1] for line in file if line.split()[3] == "0A"]
        assert [at for at in listens if at.endswith(":%04X" % board.port)] == ["0100007F:%04X" % board.port]


def test_the_page_needs_nothing_from_elsewhere(l):
    with board_of(l) as board:
        status, headers, text = board.ask("/?token=" + board.token, token=False)
        page = text.decode()
        assert status == 200 and page.startswith("<!doctype html>"), page[:100]
        assert "script-src 'sha256-" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"], headers["Content-Security-Policy"]
        assert "Leon Sorokin" in page  # the licence of what is in it
        assert not re.search(r'(src|href)="(?!data:)', page), "the page loads something"
        packed, headers, text = board.ask("/", **{"Accept-Encoding": "gzip"})
        assert packed == 200 and headers["Content-Encoding"] == "gzip" and len(text) < len(page) / 2
        status, _, text = board.ask("/", "HEAD")
        assert status == 200 and text == b""


def test_checkpoints_of_a_script_that_are_not_here(l):
    """The page tells of them, because the machine is asked; and a pull tells how far it is."""
    l.run("launch", "-d", "--no-workdir", "--name", "script-1", "--checkpoints", "out/checkpoint-*", "--",
          "bash", "-c", "mkdir -p out/checkpoint-5; head -c 300000000 /dev/zero > out/checkpoint-5/w.bin; "
          "sleep 600")
    run_id = run_named(l, "script-1")["run_id"]
    with board_of(l) as board:
        events = Events(board, run_id)
        found = events.until("detail", lambda data: data.get("checkpoints_there"))
        (there,) = found["checkpoints_there"]
        assert (there["step"], there["path"], there["bytes"], there["here"]) == (
            5, "work/out/checkpoint-5", 300000000, None), there
        status, answer = board.act("pull", run_id)
        assert status == 202, answer
        events.until("actions", lambda data: any(
            one["verb"] == "pull" and one["state"] == "running" and re.search(r"MB of 300", one["text"])
            for one in data["actions"]))
        events.until("actions", lambda data: data["actions"][-1]["state"] == "done")
    l.run("stop", "script-1")


def test_stop_and_pull(l):
    gate = os.path.join(l.dir, "acted.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "acted-1", "--", l.fake_job, "--steps", "9", "--checkpoint-every",
          "2", "--barrier", "step:4=" + gate)
    run_id = run_named(l, "acted-1")["run_id"]
    with board_of(l) as board:
        events = Events(board, run_id)
        events.until("run", lambda run: run["step"] == 3)

        def outcome(verb):
            done = events.until("actions", lambda data: any(
                each["verb"] == verb and each["state"] != "running" for each in data["actions"]))
            return [each for each in done["actions"] if each["verb"] == verb][-1]

        status, answer = board.act("pull", run_id)
        assert status == 202, answer
        pulled = outcome("pull")
        assert pulled["state"] == "done" and "acted-1/" in pulled["text"] and "verified" in pulled["text"], pulled
        here = events.until("detail", lambda data: data["checkpoints_here"])["checkpoints_here"]
        assert here[0]["is_there"] and here[0]["path"].startswith(l.work + "/acted-1/"), here
        assert os.path.isfile(os.path.join(here[0]["path"], "manifest.json")), here
        status, answer = board.act("stop", run_id)
        assert status == 202, answer
        # The same twice at once is one too many.
        again, answer = board.act("stop", run_id)
        assert again == 409, (again, answer)
        stopped = outcome("stop")
        assert stopped["state"] == "done" and "stopped" in stopped["text"], stopped
        events.until("run", lambda run: run["status"] == "stopped")
        status, answer = board.act("stop", run_id)
        assert status == 409 and "ended" in answer["error"]["message"], answer
        events.close()
    assert run_named(l, "acted-1")["status"] == "stopped"


def test_a_failed_action_says_why(l):
    gate = stepping_job(l, "barren-1")
    run_id = run_named(l, "barren-1")["run_id"]
    with board_of(l) as board:
        events = Events(board)
        status, _ = board.act("pull", run_id)
        assert status == 202
        done = events.until("actions", lambda data: any(a["state"] != "running" for a in data["actions"]))
        action = done["actions"][0]
        assert action["state"] == "failed" and "nothing to bring yet" in action["text"] and action["hint"], action
        events.close()
    open_gate(gate)
    l.run("wait", "barren-1")


def test_it_ends_at_once_with_pages_open(l):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        board = Board(l)
        events = [Events(board) for _ in range(5)]
        for each in events:
            each.until("snapshot")
        # Half of a request, and somebody who says nothing.
        silent = [socket.create_connection(("127.0.0.1", board.port)) for _ in range(2)]
        silent[0].sendall(b"GET / HT")
        took = board.end(number)
        assert took < 4, took
        for each in events:
            while each.next() is not None:
                pass
            each.close()
        for each in silent:
            each.close()


def test_connections_have_a_limit(l):
    with board_of(l) as board:
        many = []
        for _ in range(80):
            many.append(socket.create_connection(("127.0.0.1", board.port), timeout=DEADLINE_S))
        for each in many:
            each.close()
        wait_until(lambda: board.ask("/")[0] == 200, "others are served again")
        events = [Events(board) for _ in range(16)]
        status, _, text = board.ask("/events")
        assert status == 503, (status, text)
        for each in events:
            each.close()
        wait_until(lambda: works(board), "there is room again")


def works(board):
    with contextlib.suppress(AssertionError):
        Events(board).close()
        return True
    return False


def test_a_page_that_does_not_read_costs_no_memory(l):
    gate = stepping_job(l, "chatty-1", before="yes 'a line that is long enough to fill buffers' | head -n 400000; ")
    run_id = run_named(l, "chatty-1")["run_id"]

    def resident(board):
        with open("/proc/%d/status" % board.process.pid) as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))

    with board_of(l) as board:
        reader = Events(board, run_id)
        reader.until("run", lambda run: run["step"] == 3)
        sleepers = []
        for _ in range(8):
            sleeper = socket.socket()
            sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sleeper.connect(("127.0.0.1", board.port))
            sleeper.sendall(("GET /events?token=%s&runs=%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
                             % (board.token, run_id, board.port)).encode())
            sleepers.append(sleeper)
        before = resident(board)
        for _ in range(200):
            l_status = board.ask("/api/runs")[0]
            assert l_status == 200
        reader.until("run")
        assert resident(board) < before + 40000, (before, resident(board))
        reader.close()
        for each in sleepers:
            each.close()
    open_gate(gate)
    l.run("wait", "chatty-1")


def test_text_of_jobs_is_harmless(l):
    evil = "<img src=x onerror=alert(1)>\\033[2J\\033]0;x\\007 \\342\\200\\256 end\\n"
    l.run("launch", "--no-workdir", "--name", "evil-1", "--", "bash", "-c", "printf '%s'" % evil)
    run_id = run_named(l, "evil-1")["run_id"]
    with board_of(l) as board:
        events = Events(board, run_id)
        series = events.until("series", lambda data: data["log"])
        line = series["log"][0]
        assert "<img src=x onerror=alert(1)>" in line and "end" in line, line
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", line), repr(line)
        events.close()


def test_a_port_that_is_taken(l):
    with board_of(l) as board:
        out = subprocess.run([l.gpuctl, "dashboard", "--no-open", "--port", str(board.port)], cwd=l.work, env=l.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert out.returncode == 1 and b"HINT: without --port" in out.stderr, out
        error = l.json("dashboard", "--port", str(board.port), code=1)["error"]
        assert error["code"] == "FAILED_PRECONDITION", error


def fill(database, count):
    """Adds copies of the run seed-1, launched before it."""
    with contextlib.closing(sqlite3.connect(database)) as db:
        newest = db.execute("SELECT run_id FROM runs WHERE name = 'seed-1'").fetchone()[0]
        for table in ("runs", "specs"):
            names = [row[1] for row in db.execute("PRAGMA table_info(%s)" % table)]
            first = dict(zip(names, db.execute("SELECT * FROM %s WHERE run_id = ?" % table, [newest]).fetchone()))
            for i in range(count):
                row = {**first, "run_id": "%024x" % (i + 1)}
                for name, value in (("name", "old-%d" % (i + 1)), ("job_id", "%024x" % (i + 20001)),
                                    ("created_ms", first.get("created_ms", 0) - 1000 * (count - i))):
                    if name in row:
                        row[name] = value
                db.execute("INSERT INTO %s (%s) VALUES (%s)" % (table, ",".join(row), ",".join("?" * len(row))), list(row.values()))
        db.commit()


def test_ten_thousand_runs(l):
    l.run("launch", "--no-workdir", "--name", "seed-1", "--", "true")
    database = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    fill(database, 10000)
    with board_of(l) as board:
        begun = time.monotonic()
        events = Events(board)
        snapshot = events.until("snapshot")
        assert snapshot["total"] >= 10001 and len(snapshot["runs"]) == 200, (snapshot["total"], len(snapshot["runs"]))
        print("    snapshot of %d runs after %.2f s" % (snapshot["total"], time.monotonic() - begun))
        begun = time.monotonic()
        status, _, text = board.ask("/api/runs?offset=9000&limit=100")
        page = json.loads(text)
        print("    a page of the list after %.2f s" % (time.monotonic() - begun))
        assert status == 200 and len(page["runs"]) == 100 and page["total"] == snapshot["total"], status
        found = json.loads(board.ask("/api/runs?filter=OLD-4242")[2])
        assert [run["name"] for run in found["runs"]] == ["old-4242"] and found["matching"] == 1, found
        events.close()


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""gpuctl top: several live runs on one screen, and how it is left.

  top.py GPUCTL FAKE_JOB [TEST...]
"""
import os
import re
import signal

from runs import Terminal, cmdline, held_job, is_locked, lock_of, open_gate, run_tests, wait_until


def stepping_job(l, name, *more):
    """A run that is at step 3 until its gate is opened, and then ends with code 0."""
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    metric = "echo '{\"type\":\"step\",\"step\":%d,\"total_steps\":9,\"loss\":%s}' > $GPUCTL_METRICS; "
    script = metric % (2, "2.5") + metric % (3, "1.5") + "read x < " + gate
    l.run("launch", "-d", "--no-workdir", "--name", name, *more, "--", "bash", "-c", script)
    return gate


def line_of(t, name):
    """The newest line of a run; "" before the first."""
    lines = [line for line in re.split(rb"[\r\n]+", t.text) if line.startswith(name)]
    return lines[-1] if lines else b""


def until_line(t, name, *wanted):
    wait_until(lambda: t.read_some() and all(word in line_of(t, name) for word in wanted),
               "a line of %r with %r" % (name, wanted))


def test_runs_come_live_and_stay_when_they_end(l):
    first = stepping_job(l, "first-1")
    t = Terminal(l, "top", rows=30, columns=100)
    until_line(t, b"first-1", b"running", b"3/9", b"1.5")
    assert b"1 run lives; q leaves" in t.text, t.text
    second = stepping_job(l, "second-1")
    until_line(t, b"second-1", b"running", b"3/9")
    t.until(b"2 runs live")
    # Two curves share a plot.
    t.until(b"1 second-1  2 first-1")
    open_gate(first)
    until_line(t, b"first-1", b"succeeded")
    t.until(b"1 run lives, 1 ended")
    t.resize(5, 40)
    t.type(b"xq")
    assert t.finish() == 0, t.text[-2000:]
    assert t.text.rstrip().endswith(b"\x1b[0m") and b"\x1b[?25h" in t.text[-40:], t.text[-200:]
    run = next(run for run in l.json("ps")["runs"] if run["name"] == "second-1")
    assert run["status"] == "running", run
    open_gate(second)
    assert l.run("wait", "second-1").returncode == 0
    # All of it was stored.
    assert l.json("ps", "-a", "--offline")["runs"][-1]["step"] == 3


def test_ctrl_c_and_a_lost_terminal_leave_the_run(l):
    gate = stepping_job(l, "left-1")
    lock = lock_of(l, "left-1")
    for leave in (lambda t: t.type(b"\x03"), lambda t: os.kill(t.pid, signal.SIGTERM)):
        t = Terminal(l, "top")
        until_line(t, b"left-1", b"3/9")
        leave(t)
        assert t.finish() == 0, t.text[-2000:]
        wait_until(lambda: not is_locked(lock), "nobody has the mirror")
    t = Terminal(l, "top")
    until_line(t, b"left-1", b"3/9")
    os.close(t.fd)
    _, status = os.waitpid(t.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 1), status
    open_gate(gate)
    assert l.run("wait", "left-1").returncode == 0


def test_a_suspended_top_lets_others_go_on(l):
    gate = stepping_job(l, "suspended-2")
    lock = lock_of(l, "suspended-2")
    t = Terminal(l, "top")
    until_line(t, b"suspended-2", b"3/9")
    t.type(b"\x1a")
    wait_until(lambda: t.read_some() and not is_locked(lock), "the lock is released")
    open_gate(gate)
    assert l.run("wait", "suspended-2").returncode == 0
    t.text = b""
    os.kill(t.pid, signal.SIGCONT)
    until_line(t, b"suspended-2", b"succeeded")
    t.type(b"q")
    assert t.finish() == 0


def test_it_shares_a_run_with_attach(l):
    gate = stepping_job(l, "shared-1")
    attached = Terminal(l, "attach", "shared-1")
    attached.until(b"step 3/9")
    t = Terminal(l, "top")
    until_line(t, b"shared-1", b"running", b"3/9")
    open_gate(gate)
    assert attached.finish() == 0
    until_line(t, b"shared-1", b"succeeded")
    t.type(b"q")
    assert t.finish() == 0


def test_a_machine_that_falls_silent_is_named(l):
    gate = stepping_job(l, "silent-1")
    t = Terminal(l, "top", columns=160)
    until_line(t, b"silent-1", b"running", b"3/9")
    stopped = [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        until_line(t, b"silent-1", b"(last heard ")
        t.type(b"q")
        assert t.finish() == 0
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    open_gate(gate)
    assert l.run("wait", "silent-1").returncode == 0


def test_without_a_terminal_it_names_ps(l):
    done = l.run("top", code=2)
    assert b"gpuctl ps -o json" in done.stderr and done.stdout == b"", done
    assert "gpuctl ps -o json" in l.json("top", code=2)["error"]["hint"]
    held = held_job(l, "other-2")
    t = Terminal(l, "top", rows=6, columns=30)
    until_line(t, b"other-2", b"running")
    t.type(b"q")
    assert t.finish() == 0
    open_gate(held)


if __name__ == "__main__":
    run_tests(globals())

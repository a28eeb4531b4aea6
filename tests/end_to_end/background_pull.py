#!/usr/bin/env python3
"""attach --pull over a link that is slow, or gone for a while: sshd behind a proxy.

  background_pull.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import contextlib
import os
import pwd
import re
import select

from held_proxy import HeldProxy
from runs import DEADLINE_S, open_gate, run_tests, ssh_server
from sync import eventually, read_bytes, work_of

MEBIBYTE = 1 << 20
# publish STEP BYTES: writes a checkpoint of that many random bytes.
PUBLISH = """publish() {
  tmp=$GPUCTL_CHECKPOINT_DIR/.tmp-$1; mkdir $tmp; head -c $2 /dev/urandom > $tmp/w
  printf '{"format":1,"step":%d,"files":[{"path":"w","size":%d,"sha256":"%s"}]}' $1 $2 \\
    $(sha256sum < $tmp/w | cut -d" " -f1) > $tmp/manifest.json
  mv $tmp $GPUCTL_CHECKPOINT_DIR/$(printf step-%08d $1); echo published $1
}
"""


class Lines:
    """Reads lines of a pipe as they come, each within the deadline."""

    def __init__(self, stream):
        self.fd = stream.fileno()
        self.rest = b""

    def next(self):
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.fd], [], [], DEADLINE_S)
            assert ready, "no line came; %r" % self.rest
            data = os.read(self.fd, 1 << 16)
            assert data, "it ended; %r" % self.rest
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line


def await_lines(l, name, wanted):
    """Waits until the run has printed these first lines."""
    logs = l.start("logs", "-f", name)
    lines = Lines(logs.stdout)
    assert [lines.next() for _ in wanted] == wanted
    logs.kill()
    logs.communicate()


def expect_end(attached, lines):
    """Expects the end of the run with this line and code 0. Returns attach's other lines."""
    out, err = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, lines.rest + out) == (0, b"end\n"), (lines.rest + out, err)
    return err


@contextlib.contextmanager
def far_run(l, name, script):
    """Starts a run on a node behind a proxy, with a gate that `script` reads as descriptor 3."""
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l) as (port, folder, _), HeldProxy(port) as proxy:
        l.run("launch", "-d", "--no-workdir", "--name", name, "--host",
              "%s@127.0.0.1:%d" % (user, proxy.port), "-i", os.path.join(folder, "user"),
              "-e", "GATE=" + gate, "--", "bash", "-c",
              # It is held open, so that the end of one writer is not the end of the gate.
              PUBLISH + "exec 3<>$GATE; " + script)
        yield proxy, gate


def home_of(l, name, step):
    return os.path.join(l.work, name + "-1", "step-%08d" % step)


def expect_brought(l, name, steps):
    there = os.path.join(os.path.dirname(work_of(l, name)), "ckpt")
    for step in steps:
        assert read_bytes(home_of(l, name, step) + "/w") == read_bytes(
            there + "/step-%08d/w" % step), step


def test_the_newest_comes_first_and_the_log_goes_on(l):
    script = ("publish 1 1000; publish 2 1000; publish 3 %d; read x <&3; publish 4 1000; "
              "read x <&3; echo end" % (40 * MEBIBYTE))
    with far_run(l, "newest", script) as (proxy, gate):
        await_lines(l, "newest", [b"published 1", b"published 2", b"published 3"])
        proxy.hold_after(6 * MEBIBYTE)
        attached = l.start("attach", "newest", "--pull")
        lines = Lines(attached.stdout)
        assert lines.next() == b"published 1"
        eventually(proxy.held, "the large one is on its way")
        assert not os.path.exists(home_of(l, "newest", 3))
        # While the pull stands still, the job's output still comes.
        open_gate(gate)
        for step in (2, 3, 4):
            assert lines.next() == b"published %d" % step
        assert proxy.held() and not os.path.exists(home_of(l, "newest", 3))
        assert not os.path.exists(home_of(l, "newest", 4))
        proxy.release()
        eventually(lambda: os.path.exists(home_of(l, "newest", 1)), "the oldest")
        open_gate(gate)
        err = expect_end(attached, lines)
        # After each checkpoint the newest one is asked for again.
        assert re.findall(rb"step-0000000(\d): [^\n]*verified", err) == [
            b"3", b"4", b"2", b"1"], err
        expect_brought(l, "newest", (1, 2, 3, 4))


def test_a_node_that_is_away_for_a_while(l):
    size = 64 * MEBIBYTE
    script = "publish 1 %d; read x <&3; echo while away; read x <&3; echo end" % size
    with far_run(l, "away", script) as (proxy, gate):
        await_lines(l, "away", [b"published 1"])
        proxy.hold_after(40 * MEBIBYTE)
        attached = l.start("attach", "away", "--pull")
        lines = Lines(attached.stdout)
        assert lines.next() == b"published 1"
        eventually(proxy.held, "the checkpoint is on its way")
        proxy.cut()
        told = Lines(attached.stderr)
        seen = b""
        while b"checkpoints do not come home" not in seen:
            seen = told.next()
        open_gate(gate)
        proxy.release()
        brought = proxy.brought
        proxy.join()
        assert lines.next() == b"while away"
        eventually(lambda: os.path.exists(home_of(l, "away", 1)), "the checkpoint")
        # Complete parts are not sent again.
        assert proxy.brought - brought < size - 24 * MEBIBYTE, (proxy.brought - brought, size)
        expect_brought(l, "away", (1,))
        open_gate(gate)
        err = expect_end(attached, lines)
        assert (told.rest + err).count(b"step-00000001: 67.1 MB, verified") == 1, told.rest + err
        assert l.json("verify", "away", "--read-data")["ok"]


if __name__ == "__main__":
    run_tests(globals())

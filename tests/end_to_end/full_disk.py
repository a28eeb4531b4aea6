#!/usr/bin/env python3
"""Full disks, at home and on the node, over the real path.

  full_disk.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop. Mounts small file systems, for which it must be root.
Otherwise it fails and says so.
"""
import contextlib
import copy
import glob
import os
import random
import signal
import subprocess

from runs import DEADLINE_S, open_gate, run_tests
from sync import (eventually, project, pushed_bytes, read, same_trees, sync, work_of, write)


def test_a_full_disk_at_home_publishes_nothing(l):
    if os.geteuid() != 0:
        raise AssertionError("mounting a small file system takes root")
    home, work, gate = project(l, "fulldisk", a="1")
    write(work + "/large", random.randbytes(8 << 20))
    write(work + "/little", "little")
    small = os.path.join(l.dir, "small")
    os.mkdir(small)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=4m none %s && cd %s && "
         "{ %s cp fulldisk:large . ; echo code $?; ls; %s cp fulldisk:little . && cat little; }" %
         (small, small, l.gpuctl, l.gpuctl)],
        env=l.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        timeout=DEADLINE_S)
    assert done.stdout == b"code 1\nlittle", done
    assert b"No space left" in done.stderr, done
    open_gate(gate)


def test_on_a_nearly_full_disk_the_end_of_the_job_is_known(l):
    assert os.geteuid() == 0, "mounting a small file system takes root"
    state = os.path.join(l.dir, "small-state")
    os.mkdir(state)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=8m none %s && { "
         "%s launch --no-workdir -- sh -c 'echo three; exit 3'; echo code $?; "
         "%s wait @last; echo code $?; %s ps -a --json; }" % (state, l.gpuctl, l.gpuctl, l.gpuctl)],
        env={**l.env, "GPUCTL_STATE_DIR": state}, cwd=l.work, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S)
    assert done.stdout.count(b"code 3\n") == 2 and b'"status":"failed"' in done.stdout, done
    assert b"are free on this disk" in done.stderr, done


class SmallNode:
    """A laptop like `l`, with its own node on a file system of `room` bytes beside the node's
    programs. The mount is in a name space that only processes started here can see."""

    def __init__(self, l, room, name="small"):
        assert os.geteuid() == 0, "mounting a small file system takes root"
        self.l = copy.copy(l)
        self.l.root = os.path.join(l.dir, name + "-node")
        os.mkdir(self.l.root)
        programs = sum(os.stat(os.path.join(os.path.dirname(l.gpuctl), name)).st_size
                       for name in ("gpuctl-agent", "gpuctl-shim"))
        self.size = programs + room
        self.holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=%d none %s && echo; read line" %
             (self.size, self.l.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"\n"
        inside = os.path.join(l.dir, name + "-gpuctl")
        with open(inside, "w") as file:
            file.write("#!/bin/sh\nexec nsenter -m -t %d %s \"$@\"\n" % (self.holder.pid, l.gpuctl))
        os.chmod(inside, 0o755)
        self.l.gpuctl = inside
        self.l.env = {**l.env, "GPUCTL_NODE_ROOT": self.l.root,
                      "GPUCTL_STATE_DIR": os.path.join(l.dir, name + "-state")}
        # The path by which this process sees it.
        self.seen = "/proc/%d/root%s" % (self.holder.pid, self.l.root)

    def more_room(self, room):
        self.size += room
        subprocess.run(["nsenter", "-m", "-t", str(self.holder.pid), "mount", "-o",
                        "remount,size=%d" % self.size, self.l.root], check=True)

    def work_of(self, name):
        return self.seen + work_of(self.l, name)[len(self.l.root):]

    def close(self):
        def is_over():  # a guard may have started another server meanwhile
            pids = list(self.l.node_pids())
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            return not pids
        eventually(is_over, "the end of the node")
        self.holder.communicate()


FULL = b"No space left on device"


def fails_for_want_of_room(l, *arguments):
    """Expects the message to the user: the node, the reason, and a remedy."""
    done = l.run(*arguments, code=None)
    assert done.returncode == 1, done
    last = [line for line in done.stderr.splitlines() if FULL in line][-1]
    assert b"on local:" in last, done.stderr
    assert b"HINT: make room on local" in done.stderr, done.stderr
    return done


def test_a_setup_that_fills_the_disk(l):
    mebibyte = 1 << 20
    node = SmallNode(l, 24 * mebibyte, "setup")
    small = node.l
    try:
        done = small.run("launch", "--no-workdir", "--setup",
                         "head -c 100M /dev/zero > $GPUCTL_ENV_DIR/large", "--", "echo", "never",
                         code=1)
        assert FULL in done.stdout and b"its setup failed" in done.stderr, done
        assert b"node/envs is full: 0 bytes are free" in done.stdout.replace(b"setup-", b""), done
        # Nothing of it is left, so there is room for the next one. The node's sweep of unfinished
        # environments may have taken its directory too.
        assert not glob.glob(node.seen + "/envs/*/env"), os.listdir(node.seen + "/envs")
        done = small.run("launch", "--no-workdir", "--setup",
                         "head -c 4M /dev/zero > $GPUCTL_ENV_DIR/little", "--", "bash", "-c",
                         "stat -c %s $GPUCTL_ENV_DIR/little")
        assert done.stdout.endswith(b"\n4194304\n"), done
        # The setup succeeds, and there is no room for the marker of what it made.
        done = small.run("launch", "--no-workdir", "--setup",
                         "head -c 100M /dev/zero > $GPUCTL_ENV_DIR/large || true", "--", "echo",
                         "never", code=126)
        assert b"could not run: setup: " in done.stderr and FULL in done.stderr, done
        assert b"executable" not in done.stderr, done
        left = glob.glob(node.seen + "/envs/*/env")
        assert len(left) == 1, left
    finally:
        node.close()


def test_a_full_disk_on_the_node(l):
    mebibyte = 1 << 20
    node = SmallNode(l, 24 * mebibyte)
    small = node.l
    try:
        home = os.path.join(l.dir, "fullnode-1")
        write(home + "/a", "1")
        gate = os.path.join(l.dir, "fullnode.gate")
        os.mkfifo(gate)
        small.run("launch", "-d", "--name", "fullnode-1", "--workdir", home, "--", "bash", "-c",
                  "exec 3<>%s; echo begin; for turn in 1 2 3; do read line <&3; echo $line; done" % gate)
        work = node.work_of("fullnode-1")
        assert read(work + "/a") == "1"
        pieces = 12
        total = pieces * 4 * mebibyte
        for number in range(pieces):
            write("%s/part-%02d" % (home, number), random.randbytes(4 * mebibyte))
        write(home + "/a", "2")

        fails_for_want_of_room(small, "sync", "fullnode-1")
        assert sorted(os.listdir(work)) == ["a"] and read(work + "/a") == "1"
        # The job continues, and none of its output is lost.
        open_gate(gate, "while full")
        fails_for_want_of_room(small, "cp", home, "fullnode-1:copy")
        assert sorted(os.listdir(work)) == ["a"]
        node.more_room(64 * mebibyte)
        result = sync(small, "fullnode-1")
        assert result["kept"] == [] and same_trees(home, work), result
        # At least three of the pieces had arrived.
        assert result["bytes_sent"] <= total - 3 * 4 * mebibyte, result

        # A launch, whose content the node stores first.
        other = os.path.join(l.dir, "fullstore")
        for number in range(pieces):
            write("%s/other-%02d" % (other, number), random.randbytes(4 * mebibyte))
        fails_for_want_of_room(small, "launch", "-d", "--name", "refused-1", "--workdir", other, "--",
                               "true")
        run = next(r for r in small.json("ps", "-a")["runs"] if r["name"] == "refused-1")
        assert run["status"] == "failed" and FULL.decode() in run["reason"], run
        trees = node.seen + "/blobs/trees"
        assert all(not os.path.exists("%s/%s/other-00" % (trees, name))
                   for name in os.listdir(trees) if not name.startswith(".")), os.listdir(trees)
        open_gate(gate, "still there")
        node.more_room(256 * mebibyte)
        done = small.run("--trace", "launch", "--workdir", other, "--", "sh", "-c", "ls | wc -l")
        assert done.stdout == b"12\n", done
        assert sum(pushed_bytes(done)) <= total - 2 * 4 * mebibyte, done.stderr
        small.run("cp", home, "fullnode-1:copy")
        assert same_trees(home, work + "/copy")

        open_gate(gate, "end")
        small.run("wait", "fullnode-1")
        out = small.run("attach", "fullnode-1").stdout
        assert out == b"begin\nwhile full\nstill there\nend\n", out
    finally:
        node.close()


def test_a_disk_without_room_for_the_agent(l):
    node = SmallNode(l, -(1 << 20), "tiny")
    try:
        for verb in (["launch", "--no-workdir", "--", "true"], ["doctor"]):
            done = node.l.run(*verb, code=1)
            said = (done.stdout + done.stderr).decode()
            assert "deliver the agent: exit " in said, done
            assert "make room on local below %s and repeat this" % node.l.root in said, done
        node.more_room(64 << 20)
        assert node.l.run("launch", "--no-workdir", "--", "echo", "here").stdout == b"here\n"
    finally:
        node.close()


if __name__ == "__main__":
    run_tests(globals())

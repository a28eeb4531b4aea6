#!/usr/bin/env python3
"""P9: the cost of writing for a job under gpuctl. A job that writes 100 MB/s, and one that writes
as fast as it can, report their own speed: under gpuctl with nobody watching, into a plain file,
through a pipe into a file. Also the speed at which attach follows a job that does not stop."""

import json
import os
import statistics
import subprocess
import time

from common import Laptop, Sshd, Timed, emit, find_helper, interleave, wait_for

ROUNDS = 7
PACED_BYTES, PACED_RATE = 300 * 10**6, 100 * 10**6
FLAT_BYTES = 1 << 30
FOLLOW_BYTES = 2 << 30


class Writing:
    def __init__(self, laptop):
        self.laptop = laptop
        self.writer = find_helper("bench_writer")
        self.count = 0
        self.ends_s = []  # from attach's last byte to its exit

    def _argv(self, bytes_, rate):
        """Returns the writer's command with a FIFO that starts it, and a file for its report."""
        self.count += 1
        start = os.path.join(self.laptop.dir, "start-%d" % self.count)
        os.mkfifo(start)
        report = os.path.join(self.laptop.dir, "report-%d" % self.count)
        return start, report, [self.writer, "--bytes", str(bytes_), "--rate", str(rate), "--start",
                               start, "--report", report]

    def _go(self, start, report):
        # Write pending data first, so that this sample does not pay for it.
        os.sync()
        os.close(os.open(start, os.O_WRONLY))
        wait_for(lambda: os.path.exists(report), "the writer's report")
        with open(report) as file:
            told = json.load(file)
        return told["bytes"] / told["seconds"] / 1e6

    def under_gpuctl(self, bytes_, rate=0):
        start, report, argv = self._argv(bytes_, rate)
        row = self.laptop.launch(*argv)
        speed = self._go(start, report)
        self.laptop.run("wait", row["name"])
        size = sum(entry.stat().st_size for entry in os.scandir(self.laptop.output_dir(row)))
        assert size == bytes_, (size, bytes_)
        return speed

    def plain(self, bytes_, rate=0, through_cat=False):
        start, report, argv = self._argv(bytes_, rate)
        target = os.path.join(self.laptop.dir, "plain-%d" % self.count)
        with open(target, "wb") as file:
            cat = None
            if through_cat:
                cat = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=file)
            process = subprocess.Popen(argv, stdout=cat.stdin if cat else file)
            if cat:
                cat.stdin.close()
            speed = self._go(start, report)
            process.wait()
            if cat:
                cat.wait()
        assert os.path.getsize(target) == bytes_
        os.unlink(target)
        return speed

    def attached(self):
        """Returns the MB/s at which `gpuctl attach` into a pipe delivers the output of a job at
        full speed."""
        start, _, argv = self._argv(FOLLOW_BYTES, 0)
        row = self.laptop.launch(*argv)
        child = Timed([self.laptop.gpuctl, "attach", row["name"]], self.laptop.env)
        os.sync()
        os.close(os.open(start, os.O_WRONLY))
        seconds = child.count_bytes()
        assert child.count == FOLLOW_BYTES, (child.count, FOLLOW_BYTES)
        code, _ = child.wait()
        assert code == 0, code
        self.ends_s.append(time.perf_counter() - child.last_s)
        return child.count / seconds / 1e6

    def ssh(self, sshd):
        """Returns the same for the program's output through ssh, into the same pipe."""
        start, _, argv = self._argv(FOLLOW_BYTES, 0)
        child = Timed(sshd.ssh(*argv), self.laptop.env)
        os.sync()
        os.close(os.open(start, os.O_WRONLY))
        seconds = child.count_bytes()
        assert child.count == FOLLOW_BYTES
        child.wait()
        return child.count / seconds / 1e6


def main():
    with Laptop(needs_bytes=40 << 30) as laptop, Sshd(laptop.dir) as sshd:
        writing = Writing(laptop)
        paced = interleave(ROUNDS, {
            "gpuctl": lambda: writing.under_gpuctl(PACED_BYTES, PACED_RATE),
            "plain file": lambda: writing.plain(PACED_BYTES, PACED_RATE),
        })
        value, peer = paced.median("gpuctl"), paced.median("plain file")
        emit("P9 a job that writes 100 MB/s", value, "MB/s", "the same program into a plain file",
             peer, ">= 0.98 x", value >= 0.98 * peer, digits=2, rounds=ROUNDS,
             spread=paced.spread("gpuctl"))
        flat = interleave(ROUNDS, {
            "gpuctl": lambda: writing.under_gpuctl(FLAT_BYTES),
            "plain file": lambda: writing.plain(FLAT_BYTES),
            "| cat > file": lambda: writing.plain(FLAT_BYTES, through_cat=True),
        })
        value = flat.median("gpuctl")
        emit("P9 a job that writes as fast as it can", value, "MB/s",
             "the same program into a plain file", flat.median("plain file"), ">= 600 MB/s",
             value >= 600, digits=0, rounds=ROUNDS, spread=flat.spread("gpuctl"), **{
                 "| cat > file MB/s": round(flat.median("| cat > file")),
                 "| cat > file spread": flat.spread("| cat > file"),
                 "plain file spread": flat.spread("plain file")})
        follow = interleave(ROUNDS, {
            "attach": writing.attached,
            "ssh": lambda: writing.ssh(sshd),
        })
        value, peer = follow.median("attach"), follow.median("ssh")
        emit("P9 attach follows a job that writes as fast as it can", value, "MB/s",
             "ssh host PROGRAM, nothing stored on either side", peer, ">= 0.55 x",
             value >= 0.55 * peer, digits=0, rounds=ROUNDS, spread=follow.spread("attach"),
             **{"last byte to exit s": round(statistics.median(writing.ends_s), 3)})


if __name__ == "__main__":
    main()

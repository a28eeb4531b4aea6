#!/usr/bin/env python3
"""P8: from the exec of `gpuctl attach` on a terminal until the newest screenful of a job with 5 GB
of output is there; with a complete mirror, and with none. The peer is `ssh host tail` of the file,
which gets the path of the job's output."""

import os

from common import (Laptop, Sshd, Timed, directory_bytes, emit, find_helper, interleave, progress,
                    wait_for)

ROUNDS = 9
BYTES = 5 * 10**9
LAST = "LAST-LINE-OF-ALL"
SCREEN_LINES = 15


def screenful(argv, env):
    child = Timed(argv, env, terminal=True)
    took = child.until(LAST.encode())
    lines = child.text.count(b"step 123456 of 999999")
    child.end()
    assert lines >= SCREEN_LINES, "only %d lines before the last" % lines
    return took


class Cold:
    """Attaches with no mirror. Moves the existing part of a mirror away and keeps it: deleting
    gigabytes would disturb the next measurement."""

    def __init__(self, laptop, row):
        self.laptop, self.row, self.count = laptop, row, 0

    def __call__(self):
        mirror = self.laptop.mirror_dir(self.row)
        full = mirror + ".full"
        os.rename(mirror, full)
        took = screenful([self.laptop.gpuctl, "attach", self.row["name"]], self.laptop.env)
        self.count += 1
        os.rename(mirror, "%s.%d" % (mirror, self.count))
        os.rename(full, mirror)
        return took


def start_job(laptop):
    row = laptop.launch(find_helper("bench_writer"), "--bytes", str(BYTES), "--last", LAST,
                        "--wait", flags=["--output-limit", "6GiB"])
    total = BYTES + len(LAST) + 1
    wait_for(lambda: directory_bytes(laptop.output_dir(row)) >= total, "5 GB of output")
    return row, total


def main():
    with Laptop(needs_bytes=20 << 30) as laptop, Sshd(laptop.dir) as sshd:
        row, total = start_job(laptop)
        progress("  the job has written 5 GB; filling the mirror")
        attach = [laptop.gpuctl, "attach", row["name"]]
        fill = Timed(attach, laptop.env)
        seconds = fill.count_bytes(total)
        fill.end()
        progress("  %.0f MB/s" % (fill.count / seconds / 1e6))
        # Check the files on the disk: a warm mirror is complete.
        assert directory_bytes(os.path.join(laptop.mirror_dir(row), "output")) == total
        os.sync()
        newest = max(os.listdir(laptop.output_dir(row)))
        tail = sshd.ssh("tail", "-n", "24", os.path.join(laptop.output_dir(row), newest),
                        options=("-tt",))
        samples = interleave(ROUNDS, {
            "warm": lambda: screenful(attach, laptop.env),
            "cold": Cold(laptop, row),
            "ssh tail": lambda: screenful(tail, laptop.env),
        })
        for name, bar_s in (("warm", 0.1), ("cold", 0.3)):
            value = samples.median(name)
            emit("P8 attach to newest screenful, 5 GB behind it, %s mirror" % name, value, "s",
                 "ssh -tt host tail -n 24; published: SkyPilot tail < 0.1 s",
                 samples.median("ssh tail"), "<= %.1f s" % bar_s, value <= bar_s,
                 spread=samples.spread(name), rounds=ROUNDS)
        laptop.stop(row)


if __name__ == "__main__":
    main()

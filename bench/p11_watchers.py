#!/usr/bin/env python3
"""P11: 64 terminals follow a job that prints 1,000 lines a second; how far behind each is, whether
each has every line, and whether the job is slowed. The peer is as many `tail -f` of a plain file."""

import os
import selectors
import statistics
import subprocess
import sys
import time

from common import Laptop, emit, progress

WATCHERS, LINES_A_SECOND, SECONDS = 64, 1000, 20
# Prints its time of day and a number, at a steady pace; at the end how late the last line was.
JOB = r"""
import os, sys, time
out = os.fdopen(1, "w", buffering=1)
count, rate = int(sys.argv[1]), int(sys.argv[2])
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
begin = time.time()
for i in range(count):
    while time.time() < begin + i / rate: time.sleep(0.0005)
    out.write("%.6f %d of %d\n" % (time.time(), i, count))
out.write("late %.6f\n" % (time.time() - begin - count / rate))
"""


class Watcher:
    """A process whose stdout has the job's lines. Only times when lines come count: what was there
    before it began is skipped by its caller."""

    def __init__(self, argv, env):
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.rest, self.lines, self.behind, self.late = b"", 0, [], None

    def take(self):
        data = os.read(self.process.stdout.fileno(), 1 << 20)
        now = time.time()
        *whole, self.rest = (self.rest + data).split(b"\n")
        for line in whole:
            words = line.split()
            if len(words) == 4 and words[2] == b"of":
                assert int(words[1]) == self.lines, (line, self.lines)
                self.lines += 1
                self.behind.append(now - float(words[0]))
            elif words[:1] == [b"late"]:
                self.late = float(words[1])
        return bool(data) and self.late is None


def follow(watchers):
    selector = selectors.DefaultSelector()
    for watcher in watchers:
        selector.register(watcher.process.stdout, selectors.EVENT_READ, watcher)
    while selector.get_map():
        for key, _ in selector.select(timeout=1):
            if not key.data.take():
                selector.unregister(key.fileobj)
    for watcher in watchers:
        watcher.process.terminate()
        watcher.process.wait()


def measure(start_job, watch, count):
    """Returns the watchers' worst and median distance, how many had all lines, and the job's own
    delay."""
    go = start_job()
    watchers = [Watcher(*watch()) for _ in range(count)]
    time.sleep(2)
    open(go, "w").close()
    follow(watchers)
    wanted = LINES_A_SECOND * SECONDS
    behind = [value for watcher in watchers for value in watcher.behind]
    return {"worst": max(behind), "median": statistics.median(behind),
            "complete": sum(watcher.lines == wanted for watcher in watchers),
            "late": watchers[0].late}


def main():
    words = [str(LINES_A_SECOND * SECONDS), str(LINES_A_SECOND)]
    with Laptop() as laptop:
        rows = []

        def launch():
            go = os.path.join(laptop.dir, "go-%d" % len(rows))
            rows.append(laptop.launch(sys.executable, "-c", JOB, *words, go))
            return go

        def attach():
            return [laptop.gpuctl, "attach", rows[-1]["name"]], laptop.env

        plain = os.path.join(laptop.dir, "plain")
        jobs = []

        def begin_plain():
            go = os.path.join(laptop.dir, "go-plain")
            with open(plain, "w") as file:
                jobs.append(subprocess.Popen([sys.executable, "-c", JOB, *words, go], stdout=file))
            return go

        alone = measure(launch, attach, 1)
        progress("  one watcher: %s" % alone)
        ours = measure(launch, attach, WATCHERS)
        progress("  %d watchers: %s" % (WATCHERS, ours))
        peer = measure(begin_plain, lambda: (["/usr/bin/tail", "-n", "+1", "-f", plain], None), WATCHERS)
        jobs[0].wait()
        progress("  %d tails: %s" % (WATCHERS, peer))
        emit("P11 %d watchers of %d lines a second, the farthest behind" % (WATCHERS, LINES_A_SECOND),
             ours["worst"], "s", "%d x tail -f of a plain file" % WATCHERS, peer["worst"],
             "each complete and <= 1 s behind", ours["complete"] == WATCHERS and ours["worst"] <= 1,
             complete=ours["complete"], median_s=round(ours["median"], 4),
             peer_median_s=round(peer["median"], 4), one_watcher_worst_s=round(alone["worst"], 4))
        emit("P11 delay of the job that %d watch" % WATCHERS, ours["late"], "s", "watched by one",
             alone["late"], "<= 0.1 s after %d s" % SECONDS, ours["late"] <= 0.1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Growth with the runs of one owner: time and memory of verbs, and bytes of the list, for 1,000 to
100,000 runs, 50 of them live. Each line has the slope: what 10,000 more runs cost. No peer: it is
the smallest list that the others are compared with."""

import os
import sqlite3
import subprocess

from common import Laptop, emit, interleave, progress, run_timed
from p1_startup import LIVE, fill_store, insert

SIZES = (1000, 10_000, 100_000)
ROUNDS, OF_BATCH = 7, 100
# Verb, its words, the bar for the largest list in ms (None: nothing is promised).
VERBS = (("ps --offline", ["ps", "--offline"], 25),
         ("ps -a --limit 20", ["ps", "-a", "--offline", "--limit", "20"], 100),
         ("ps -a, all rows", ["ps", "-a", "--offline"], None),
         ("show of the oldest", ["show", "amber-fox-0"], 100),
         ("logs of the newest", ["logs", "--offline", "@last"], 100),
         ("queue", ["queue", "--offline"], 100),
         ("queue of a batch", ["queue", "--offline", "sweep0"], 100),
         ("a pass of keep, that plans only", ["keep", "--dry-run"], None))


def fill_batches(laptop, runs):
    """Makes batches of 100 of the ended runs, all over, and one that waits."""
    laptop.run("queue", "--offline")  # makes the tables
    database = sqlite3.connect(os.path.join(laptop.state, "state.db"))
    for first in range(0, runs - LIVE, OF_BATCH):
        batch = {"batch_id": "b-%06x" % first, "name": "sweep%d" % (first // OF_BATCH),
                 "digest": "0" * 64, "created_ms": first, "max_parallel": 8, "rents": 0,
                 "agreed_usd_per_hour": 0.0, "tags": "[]"}
        insert(database, "batches", batch)
        for number in range(min(OF_BATCH, runs - LIVE - first)):
            run_id = "r-%06x" % (first + number)
            entry = {"entry_id": "e-%06x" % (first + number), "batch_id": batch["batch_id"],
                     "number": number + 1, "name": "%s-%d" % (batch["name"], number + 1),
                     "parameters": '[["lr","1e-4"]]', "launch": "{}", "priority": 0, "after": "[]",
                     "state": "started", "run_id": run_id, "machine": "gpu1", "outcome": "done"}
            insert(database, "batch_entries", entry)
            insert(database, "batch_attempts", {"run_id": run_id, "entry_id": entry["entry_id"],
                                                "batch_id": batch["batch_id"], "reserved_usd": 0})
    database.commit()
    database.close()


def slope(points):
    """Returns the least squares' slope of [(runs, value)], for 10,000 runs."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    return 10_000 * (sum((x - mean_x) * (y - mean_y) for x, y in points) /
                     sum((x - mean_x) ** 2 for x, _ in points))


def peak_bytes(argv, env):
    """Returns the resident memory of a process at its highest."""
    script = ("import os,resource,subprocess,sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, "
              "stderr=subprocess.DEVNULL); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    done = subprocess.run(["/usr/bin/python3", "-c", script, *argv], env=env, check=True,
                          stdout=subprocess.PIPE)
    return int(done.stdout) * 1024


def main():
    # A pass of keep asks the machines of live runs, and those here are none.
    laptops = {(size, quiet): Laptop() for size in SIZES for quiet in (False, True)}
    try:
        for (size, quiet), laptop in laptops.items():
            fill_store(laptop, size, 0 if quiet else LIVE)
            fill_batches(laptop, size)
            progress("  %d runs are in the list" % size)
        takers = {}

        def laptop_for(words, size):
            return laptops[size, words[0] == "keep"]

        for name, words, _ in VERBS:
            for size in SIZES:
                takers[name, size] = (lambda laptop=laptop_for(words, size), words=words:
                                      1000 * run_timed([laptop.gpuctl, *words], laptop.env))
        for take in takers.values():
            take()
        samples = interleave(ROUNDS, takers)
        smallest, largest = SIZES[0], SIZES[-1]
        for name, words, bar_ms in VERBS:
            times = [(size, samples.median((name, size))) for size in SIZES]
            peaks = [(size, peak_bytes([laptop.gpuctl, *words], laptop.env))
                     for size in SIZES for laptop in [laptop_for(words, size)]]
            emit("scale %s, %d runs" % (name, largest), times[-1][1], "ms",
                 "the same with %d runs" % smallest, times[0][1],
                 "-" if bar_ms is None else "<= %d ms" % bar_ms,
                 bar_ms is None or times[-1][1] <= bar_ms, digits=2,
                 by_runs={str(size): round(value, 2) for size, value in times},
                 ms_for_10000_more=round(slope(times), 3),
                 peak_mb={str(size): round(value / 1e6, 1) for size, value in peaks},
                 mb_for_10000_more=round(slope(peaks) / 1e6, 2), rounds=ROUNDS)
        files = [(size, os.path.getsize(os.path.join(laptops[size, False].state, "state.db")))
                 for size in SIZES]
        emit("scale bytes of the list, %d runs" % largest, files[-1][1] / 1e6, "MB",
             "the same with %d runs" % smallest, files[0][1] / 1e6, "-", True, digits=2,
             bytes_a_run=round(slope(files) / 10_000))
    finally:
        for laptop in laptops.values():
            laptop.close()


if __name__ == "__main__":
    main()

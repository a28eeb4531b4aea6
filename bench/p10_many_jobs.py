#!/usr/bin/env python3
"""P10 with many jobs: memory of guard and server on a node with 10,000 finished and 100 live jobs,
and of the live jobs' shims; the time from the death of both until a command is answered. No peer."""

import os
import shutil
import signal
import stat
import time

from common import Laptop, emit, progress, run_timed
from p10_footprint import memory_bytes, role

FINISHED, LIVE = 10_000, 100
ROUNDS = 7
PARTS = ("guard", "server", "shim")


def copy_jobs(laptop, row, count):
    """Copies a finished job's directory, each time with an id of its own in its files."""
    jobs = os.path.join(laptop.root, "jobs")
    made = os.path.join(jobs, row["job_id"])

    def pipes(folder, names):  # a job that is over needs none
        return [name for name in names
                if stat.S_ISFIFO(os.lstat(os.path.join(folder, name)).st_mode)]

    files = [os.path.relpath(os.path.join(folder, name), made)
             for folder, _, names in os.walk(made)
             for name in sorted(set(names) - set(pipes(folder, names)))]
    for number in range(count):
        job_id = "j-%012x" % number
        copy = os.path.join(jobs, job_id)
        shutil.copytree(made, copy, symlinks=True, ignore=pipes)
        for name in files:
            path = os.path.join(copy, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as file:
                data = file.read()
            if row["job_id"].encode() in data:
                with open(path, "wb") as file:
                    file.write(data.replace(row["job_id"].encode(), job_id.encode()))


def by_role(laptop):
    found = {part: [] for part in PARTS}
    for pid, command in laptop.pids().items():
        if role(command) in found:
            found[role(command)].append(pid)
    return found


def restart(laptop, row):
    """Kills guard and server; returns the seconds until their successors have answered for a job. A
    guard that lives would start the server later each time."""
    found = by_role(laptop)
    for pid in found["guard"] + found["server"]:
        os.kill(pid, signal.SIGKILL)
    return run_timed([laptop.gpuctl, "exec", row["name"], "--", "true"], laptop.env)


def main():
    with Laptop(4 << 30) as laptop:
        done = laptop.launch("true")
        laptop.run("wait", done["name"])
        copy_jobs(laptop, done, FINISHED - 1)
        live = [laptop.launch("sleep", "100000") for _ in range(LIVE)]
        progress("  %d jobs on the node" % len(os.listdir(os.path.join(laptop.root, "jobs"))))
        restart(laptop, live[0])
        starts = sorted(restart(laptop, live[0]) for _ in range(ROUNDS))
        warm = sorted(run_timed([laptop.gpuctl, "exec", live[0]["name"], "--", "true"], laptop.env)
                      for _ in range(ROUNDS))
        time.sleep(5)
        found = by_role(laptop)
        assert [len(found[part]) for part in PARTS] == [1, 1, LIVE], found
        memory = {part: [memory_bytes(pid) for pid in found[part]] for part in PARTS}
        resident = {part: sum(m[0] for m in memory[part]) / 1e6 for part in PARTS}
        shared = {part: sum(m[1] for m in memory[part]) / 1e6 for part in PARTS}
        ours = resident["guard"] + resident["server"]
        emit("P10 memory of guard and server, %d finished and %d live jobs" % (FINISHED, LIVE),
             ours, "MB resident", "-", ours, "<= 40 MB", ours <= 40, digits=2,
             resident={part: round(value, 2) for part, value in resident.items()},
             proportional={part: round(value, 2) for part, value in shared.items()})
        start, usual = starts[ROUNDS // 2], warm[ROUNDS // 2]
        emit("P10 start of guard and server for a command, %d jobs" % (FINISHED + LIVE), start, "s",
             "the same command with a running server", usual, "<= 1 s", start <= 1, digits=3,
             spread=[starts[0], starts[-1]], rounds=ROUNDS)
        for row in live:
            laptop.run("stop", row["name"], "--no-wait", check=False)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs of several processes under random kills: of a process, of the launcher, of the shim, of the agent.

  ranks_kills.py GPUCTL FAKE_JOB [ROUNDS [FIRST_SEED]]

Nothing of the product judges: each process keeps a record of what it printed, and the marks are read by
ranks.py. After each round
  - no process of the job is left,
  - each rank's lines are the beginning of its record, in order and unmixed; all of it where neither
    launcher nor shim were killed and the rank itself was not,
  - the copy here is the node's output, byte for byte,
  - the run's end is that of what was killed.
"""
import contextlib
import os
import random
import re
import signal
import sys
import time

from ranks import taken_apart
from runs import Laptop, Patience, cmdline, processes_with

JOB = r"""
import os, random, signal, sys, time
rank = int(os.environ["RANK"])
source = random.Random(int(os.environ["SEED"]) * 100 + rank)
own = open("record-%d" % rank, "wb", buffering=0)
mode = source.choice(["plain", "saves", "deaf"])
def on_term(*_):
    if mode == "saves":
        line = b"rank %d saves\n" % rank
        own.write(line); os.write(1, line)
        os._exit(75)
if mode != "plain":
    signal.signal(signal.SIGTERM, on_term if mode == "saves" else signal.SIG_IGN)
if source.random() < 0.3 and os.fork() == 0:
    time.sleep(1000)
open("pid-%d" % rank, "w").write("%d\n" % os.getpid())
number = 0
while True:
    line = b"rank %d line %d %s\n" % (rank, number, b"x" * source.choice([0, 10, 100, 5000, 70000 if number % 50 == 49 else 3]))
    own.write(line)
    while line:
        line = line[os.write(1, line[:source.randint(1, len(line))]):]
    number += 1
    time.sleep(source.random() * 0.01)
"""


def read(path):
    with open(path, "rb") as file:
        return file.read()


def stored(directory):
    return b"".join(read(os.path.join(directory, name)) for name in sorted(os.listdir(directory)))


def until(condition, what):
    patience = Patience()
    while not condition():
        assert patience.lasts(), what
        time.sleep(0.01)


def one_round(l, seed):
    source = random.Random(seed)
    count = source.randint(2, 5)
    name = "kill%d" % seed
    retries = source.random() < 0.2
    more = ["--retry-max", "1", "--retry-on", "lost"] if retries else []
    l.run("launch", "-d", "--no-workdir", "--name", name, "--processes", str(count), "--grace", "1s",
          "--env", "SEED=%d" % seed, *more, "--", sys.executable, "-c", JOB)
    name += "-1"
    show = l.json("show", name)
    job_id, job = show["job_id"], os.path.join(l.root, "jobs", show["job_id"])
    work = job + "/work"
    until(lambda: all(os.path.exists(work + "/pid-%d" % rank) and read(work + "/pid-%d" % rank)
                      for rank in range(count)), "the processes began")
    pids = [int(read(work + "/pid-%d" % rank)) for rank in range(count)]
    launcher = int(re.search(rb'"pid":(\d+)', read(job + "/lifecycle.jsonl"))[1])
    with open("/proc/%d/stat" % launcher) as file:
        shim = int(file.read().rsplit(")", 1)[1].split()[1])
    time.sleep(source.random() * 0.3)
    what = source.choice(["rank", "rank", "ranks", "launcher", "shim", "agent", "agent", "stop", "term"])
    killed = set()
    if what in ("rank", "ranks"):
        killed = set(source.sample(range(count), 1 if what == "rank" else source.randint(1, count)))
        number = source.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
        for rank in killed:
            with contextlib.suppress(ProcessLookupError):  # it ended with another that was killed
                os.kill(pids[rank], number)
        wanted = {128 + number}
    elif what == "launcher":
        os.kill(launcher, signal.SIGKILL)
        wanted = {137}
    elif what == "term":
        os.kill(launcher, signal.SIGTERM)
        wanted = {143, 75, 137}
    elif what == "shim":
        os.kill(shim, signal.SIGKILL)
        wanted = None
    elif what == "agent":
        for pid in list(l.node_pids()):
            if b"gpuctl-agent" in cmdline(pid).split(b"\0")[0]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(source.random() * 0.3)
        assert all(os.path.exists("/proc/%d" % pid) for pid in pids), "the agent's death ends no job"
    if what in ("stop", "agent"):
        l.run("stop", name)
        wanted = {143, 75, 137}
    if what == "shim" and retries:
        # The guard starts it again; then it is stopped.
        until(lambda: read(job + "/lifecycle.jsonl").count(b'"event":"started"') == 2, "it is retried")
        l.run("stop", name)
    l.run("wait", name, code=None)
    until(lambda: not processes_with(b"GPUCTL_JOB_ID=" + job_id.encode()), "no process is left")
    run = next(run for run in l.json("ps", "-a", "-u")["runs"] if run["name"] == name)
    if wanted is not None:
        assert run["job_exit_code"] in wanted, (what, run)
    elif not retries:
        assert run["status"] == "lost", run
    if what in ("rank", "ranks"):
        assert re.match(r"rank (%s): signal" % "|".join(map(str, killed)), run["reason"]), (killed, run)
    l.run("logs", name)  # copies what is there
    there = stored(job + "/output")
    assert stored(l.json("show", name)["files"]["output"]) == there, name
    if what == "shim" and retries:
        return what + "+retry"
    texts = taken_apart(there)
    for rank in range(count):
        record, text = read(work + "/record-%d" % rank), texts.get(rank, b"")
        if what == "launcher" or what == "shim":
            # A torn last line may look like another rank's; what is whole is in order.
            text = b"".join(line for line in text.splitlines(True)
                            if line.startswith(b"rank %d line" % rank) and line.endswith(b"\n"))
            assert record.startswith(text) or what == "shim", (what, seed, rank)
            continue
        assert record.startswith(text), (what, seed, rank, text[-200:])
        # A record is written before the line; one that was killed between has one line more.
        missing = record[len(text):]
        assert missing.count(b"\n") <= 1, (what, seed, rank, missing[:200])
    return what


def main():
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    l = Laptop(sys.argv[1], sys.argv[2])
    done = {}
    try:
        for seed in range(first, first + rounds):
            try:
                what = one_round(l, seed)
            except BaseException:
                print("FAILED seed %d" % seed, flush=True)
                raise
            done[what] = done.get(what, 0) + 1
        print("ok %d rounds: %s" % (rounds, ", ".join("%s %d" % pair for pair in sorted(done.items()))))
    finally:
        l.close()


if __name__ == "__main__":
    main()

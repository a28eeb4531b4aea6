#!/usr/bin/env python3
"""Many runs of 1, 2 and 4 GPUs on one node of 8, while its server, its shims and the clients are
killed, and once all that runs there: never two on one GPU, and none is left behind.

  slots_many.py GPUCTL FAKE_JOB [RUNS [SEED]]

The jobs themselves are the judges: each locks a file for each of its GPUs, and notes when it began
and ended.
"""
import json
import os
import random
import signal
import sys
import time

from runs import Laptop, Patience, cmdline, end_processes, wait_until
from slots import give_gpus, uuid

GPUS = 8
# Locks are held by the job's processes, so a lost attempt has them until its last process is dead.
JOB = r"""
fd=10
for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do
  eval "exec $fd>%(dir)s/locks/$gpu"
  flock -n $fd || { echo "$0 has $gpu, and is not alone" >> %(dir)s/violations; exit 9; }
  fd=$((fd + 1))
done
echo "begin $EPOCHREALTIME $0 $GPUCTL_ATTEMPT $CUDA_VISIBLE_DEVICES" >> %(dir)s/log
sleep $1
echo "end $EPOCHREALTIME $0 $GPUCTL_ATTEMPT $CUDA_VISIBLE_DEVICES" >> %(dir)s/log
"""
DEADLINE_S = 900


def pids_of(l, part):
    return [pid for pid in l.node_pids() if part in cmdline(pid)]


def lifecycles(l):
    """The lifecycle of each job that the node accepted."""
    jobs = os.path.join(l.root, "jobs")
    found = {}
    for name in os.listdir(jobs) if os.path.isdir(jobs) else []:
        if not os.path.exists(os.path.join(jobs, name, "spec.json")):
            continue
        lines = []
        try:
            with open(os.path.join(jobs, name, "lifecycle.jsonl"), "rb") as file:
                for line in file.read().split(b"\n"):
                    try:
                        lines.append(json.loads(line))
                    except ValueError:
                        pass  # torn by a kill
        except FileNotFoundError:
            pass
        found[name] = lines
    return found


def last_state(lines):
    states = [line["event"] for line in lines
              if line["event"] in ("started", "exited", "lost", "retry")]
    return states[-1] if states else None


class Cost:
    """Memory and processor time of all servers of the node."""

    def __init__(self):
        self.ticks, self.peak_kib = {}, 0

    def look(self, l):
        for pid in pids_of(l, b"\0server\0"):
            try:
                with open("/proc/%d/stat" % pid) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                self.ticks[pid] = int(fields[11]) + int(fields[12])
                with open("/proc/%d/status" % pid) as file:
                    peak = [line for line in file if line.startswith("VmHWM")]
                self.peak_kib = max(self.peak_kib, int(peak[0].split()[1]))
            except (OSError, IndexError):
                pass  # it was killed

    def seconds(self):
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")


class Launches:
    """Clients that launch runs, two at a time."""

    def __init__(self, l, rng):
        self.l, self.rng, self.running, self.number = l, rng, [], 0

    def begin(self):
        self.number += 1
        gpus = self.rng.choice((1, 1, 1, 2, 2, 4))
        args = ["launch", "-d", "--no-workdir", "--name", "many-%d" % self.number, "--gpus",
                str(gpus), "--retry-max", "50", "--retry-on", "lost", "--retry-backoff", "0s", "--",
                "bash", "-c", JOB % {"dir": self.l.dir}, "many-%d:%d" % (self.number, gpus),
                "%.2f" % self.rng.uniform(0.1, 1.2)]
        self.running.append(self.l.start(*args))

    def reap(self):
        for client in [c for c in self.running if c.poll() is not None]:
            _, said = client.communicate()
            # A node whose server was killed may refuse or break links for a moment.
            assert client.returncode in (0, 1, -signal.SIGKILL), (client.returncode, said)
            self.running.remove(client)


def kill_something(l, rng, launches):
    # Not the guard: a client's bridge would start the next one, without the stand-in's place.
    what = rng.choice(("server", "server", "shim", "shim", "client"))
    if what == "client":
        pids = [client.pid for client in launches.running if client.poll() is None]
    else:
        part = {"server": b"\0server\0", "shim": b"gpuctl-shim"}[what]
        pids = pids_of(l, part)
    if pids:
        try:
            os.kill(rng.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return None
        return what
    return None


def kill_all(l, launches):
    """Does to the node what a loss of power does, and starts the agent again."""
    for client in launches.running:
        client.wait(timeout=300)
    launches.reap()
    end_processes(l.root.encode())
    give_gpus(l, GPUS)


def drive(l, count, rng):
    """Launches until `count` jobs are accepted, kills meanwhile, and returns when all are over."""
    launches, cost, kills = Launches(l, rng), Cost(), {}
    patience = Patience(DEADLINE_S)
    next_kill = time.monotonic() + 3
    most_waiting, killed_all = 0, False
    while True:
        assert patience.lasts(), {name: lines for name, lines in lifecycles(l).items()
                                        if last_state(lines) != "exited"}
        launches.reap()
        jobs = lifecycles(l)
        waiting = sum(1 for lines in jobs.values()
                      if last_state(lines) is None and any(x["event"] == "queued" for x in lines))
        most_waiting = max(most_waiting, waiting)
        if not killed_all and 2 * len(jobs) >= count:
            kill_all(l, launches)
            killed_all = True
        if len(jobs) < count and len(launches.running) < 2:
            launches.begin()
        over = all(last_state(lines) == "exited" for lines in jobs.values())
        if len(jobs) >= count and over and not launches.running:
            return cost, kills, most_waiting
        # Towards the end nothing is killed, or a job could be lost again and again.
        if time.monotonic() >= next_kill and len(jobs) < count:
            what = kill_something(l, rng, launches)
            if what:
                kills[what] = kills.get(what, 0) + 1
            next_kill = time.monotonic() + rng.uniform(0.5, 3)
        cost.look(l)
        time.sleep(0.1)


def judge(l, jobs):
    violations = os.path.join(l.dir, "violations")
    assert not os.path.exists(violations), open(violations).read()
    known = {uuid(i) for i in range(GPUS)}
    with open(os.path.join(l.dir, "log")) as file:
        lines = [line.split() for line in file]
    begins = {}
    busy = {gpu: [] for gpu in known}
    for word, at, who, attempt, gpus in lines:
        mine = gpus.split(",")
        assert len(set(mine)) == int(who.split(":")[1]) and set(mine) <= known, (who, gpus)
        if word == "begin":
            begins[who, attempt] = float(at)
        else:
            for gpu in mine:
                busy[gpu].append((begins[who, attempt], float(at), who))
    # Again, by what they wrote.
    for gpu, times in busy.items():
        times.sort()
        for (_, end, one), (begin, _, other) in zip(times, times[1:]):
            assert end <= begin, "%s: %s and %s" % (gpu, one, other)
    for name, events in jobs.items():
        ends = [event for event in events if event["event"] == "exited"]
        assert len(ends) == 1 and ends[0].get("exit_code") == 0, (name, events)
    waits = [next(e["time_ms"] for e in events if e["event"] == "started") -
             next(e["time_ms"] for e in events if e["event"] == "queued")
             for events in jobs.values()
             if any(e["event"] == "queued" for e in events)]
    return max(waits, default=0) / 1000, len(waits)


def main():
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 30)
    print("seed %d" % seed, flush=True)
    l = Laptop(sys.argv[1], sys.argv[2])
    try:
        os.mkdir(os.path.join(l.dir, "locks"))
        give_gpus(l, GPUS)
        begin = time.monotonic()
        cost, kills, most_waiting = drive(l, count, random.Random(seed))
        took = time.monotonic() - begin
        jobs = lifecycles(l)
        longest, waited = judge(l, jobs)
        wait_until(lambda: not pids_of(l, b"gpuctl-shim"), "the shims have ended")
        print("%d jobs in %.0f s, %d of them waited, at most %d at a time and %.0f s; killed: %s" % (
            len(jobs), took, waited, most_waiting, longest, kills))
        print("servers: %.1f s of processor time, %.1f %% of one; %.1f MiB at most" % (
            cost.seconds(), 100 * cost.seconds() / took, cost.peak_kib / 1024))
        assert waited > count / 4, "the test did not fill the node"
        print("ok     many")
    finally:
        l.close()


if __name__ == "__main__":
    main()

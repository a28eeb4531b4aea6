#!/usr/bin/env python3
"""P1: whole-process time of the shortest verbs: `gpuctl --help`, and `ps --offline` with 1,000 runs
in the list, 50 of them live with mirrors, and with 10,000 runs and 1,000 leases; `ps` where nothing
is live, so that nobody is asked."""

import json
import os
import sqlite3
import subprocess
import time

from common import Laptop, emit, find_helper, interleave, run_timed

ROUNDS = 21
RUNS, MANY_RUNS, LIVE, LEASES = 1000, 10_000, 50, 1000
PEERS = {
    "empty C++ program": lambda: [find_helper("bench_empty")],
    "ssh -V": lambda: ["/usr/bin/ssh", "-V"],
    "git --version": lambda: ["/usr/bin/git", "--version"],
    "python3 -c pass": lambda: ["/usr/bin/python3", "-c", "pass"],
}


def insert(database, table, row):
    database.execute("INSERT INTO %s (%s) VALUES (%s)" % (
        table, ", ".join(row), ", ".join("?" * len(row))), list(row.values()))


def write_mirror(directory, now_ms):
    """Writes a live run's mirror: lifecycle, 5,000 metric lines, 1 MB of output."""
    os.makedirs(os.path.join(directory, "output"))
    started = {"event": "started", "attempt": 1, "pid": 4242, "start_time_ticks": 1234567,
               "boot_id": "6f1d5f0e-58ab-4a40-8f5c-d1f0ea3bb8a1", "output_size": 0,
               "metrics_size": 0, "time_ms": now_ms - 600_000}
    with open(os.path.join(directory, "lifecycle.jsonl"), "w") as file:
        file.write(json.dumps(started, separators=(",", ":")) + "\n")
    with open(os.path.join(directory, "metrics.jsonl"), "w") as file:
        for step in range(5000):
            file.write('{"step":%d,"total_steps":20000,"loss":%.4f,"learning_rate":0.0003}\n' %
                       (step, 4.0 - step * 0.0005))
    with open(os.path.join(directory, "output", "0" * 20), "w") as file:
        file.write("a line of training output, as scripts print them\n" * 20_000)


def fill_store(laptop, runs, live):
    laptop.run("ps")  # makes the store with the schema of this gpuctl
    now_ms = int(time.time() * 1000)
    target = json.dumps({"provider": "ssh", "name": "ada@gpu.example:22", "host": "gpu.example",
                         "port": 22, "user": "ada", "identity_files": [], "proxy_command": "",
                         "root": ""})
    database = sqlite3.connect(os.path.join(laptop.state, "state.db"))
    for number in range(runs):
        run_id, is_live = "r-%06x" % number, number >= runs - live
        created_ms = now_ms - (runs - number) * 60_000
        row = {"run_id": run_id, "name": "amber-fox-%d" % number, "target": target,
               "target_name": "ada@gpu.example:22", "job_id": "j-%06x" % number,
               "node_id": "n-0123456789ab", "workdir": "/home/ada/project",
               "command": "python3 train.py --model models/qwen2.5-0.5b --lr 3e-4",
               "output_segment_bytes": 0, "created_ms": created_ms,
               "accepted_ms": created_ms + 500, "heard_ms": now_ms - 1000}
        if not is_live:
            row.update(end_state="JOB_STATE_FINISHED", exit_code=0, job_code=0, end_source="job",
                       end_reason="", ended_ms=created_ms + 50_000, step=20000,
                       total_steps=20000, loss=1.5)
        insert(database, "runs", row)
        spec = {"spec_digest": "0" * 64, "spec": {"job_id": row["job_id"], "run_id": run_id,
                                                  "argv": row["command"].split()}}
        insert(database, "specs", {"run_id": run_id, "spec": json.dumps(spec),
                                   "patterns": '{"checkpoints":[],"artifacts":[]}'})
        if is_live:
            write_mirror(os.path.join(laptop.state, "runs", run_id), now_ms)
    database.commit()
    database.close()


def fill_ledger(laptop):
    """Writes leases that have ended, each with a run."""
    # Makes the ledger with the schema of this gpuctl; nobody listens there.
    subprocess.run([laptop.gpuctl, "instances"], check=False, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL,
                   env={**laptop.env, "GPUCTL_VAST_API_KEY": "none",
                        "GPUCTL_VAST_URL": "http://127.0.0.1:9"})
    database = sqlite3.connect(os.path.join(laptop.state, "ledger.db"))
    columns = [row[1:3] for row in database.execute("PRAGMA table_info(leases)")]
    now_ms = int(time.time() * 1000)
    for number in range(LEASES):
        created_ms = now_ms - (LEASES - number) * 600_000
        known = {"lease_id": "l-%06x" % number, "label": "gpuctl-bench-%d" % number,
                 "provider": "vast", "instance_id": str(20_000_000 + number),
                 "state": "released", "gpu_name": "RTX 4090", "gpu_count": 1,
                 "price_usd_per_hour": 0.35, "quantum_s": 1, "intended_ms": created_ms,
                 "rented_ms": created_ms, "created_ms": created_ms, "seen_ms": created_ms + 500_000,
                 "ended_ms": created_ms + 500_000, "how_ended": "released"}
        insert(database, "leases", {name: known.get(name, "" if kind == "TEXT" else 0)
                                    for name, kind in columns})
        insert(database, "uses", {"lease_id": known["lease_id"], "run_id": "r-%06x" % number,
                                  "run_name": "amber-fox-%d" % number, "from_ms": created_ms,
                                  "number": 1})
    database.commit()
    database.close()


def check_listing(laptop, args, wanted, live):
    rows = json.loads(laptop.run("ps", *args, "--json"))["runs"]
    running = [row for row in rows if row["status"] == "running" and row["step"] == 4999]
    assert len(rows) == wanted and len(running) == live, (len(rows), len(running), rows[:1])


def main():
    with Laptop() as some, Laptop() as many, Laptop() as quiet:
        fill_store(some, RUNS, LIVE)
        fill_store(many, MANY_RUNS, LIVE)
        fill_ledger(many)
        fill_store(quiet, RUNS, 0)
        check_listing(some, ["--offline"], LIVE, LIVE)
        check_listing(some, ["-a", "--offline"], RUNS, LIVE)
        check_listing(many, ["--offline"], LIVE, LIVE)
        check_listing(quiet, [], 0, 0)
        with_leases = json.loads(many.run("ps", "-a", "--offline", "--json"))["runs"]
        assert sum("lease" in row for row in with_leases) == LEASES, len(with_leases)
        takers = {name: (lambda argv=make(): 1000 * run_timed(argv, some.env))
                  for name, make in PEERS.items()}
        bars = {}
        for name, laptop, args, bar_ms in (
                ("--help", some, ["--help"], 8),
                ("ps --offline, 1,000 runs, 50 of them live", some, ["ps", "--offline"], 15),
                ("ps -a --offline, 1,000 runs, 50 of them live", some, ["ps", "-a", "--offline"],
                 15),
                ("ps --offline, 10,000 runs, 50 of them live, 1,000 leases", many,
                 ["ps", "--offline"], 15),
                ("ps, 1,000 runs, none of them live", quiet, ["ps"], 15)):
            bars[name] = bar_ms
            takers[name] = (lambda laptop=laptop, args=args:
                            1000 * run_timed([laptop.gpuctl, *args], laptop.env))
        for take in takers.values():
            take()  # loads the programs into memory
        samples = interleave(ROUNDS, takers)
        peers = {name + " ms": round(samples.median(name), 2) for name in PEERS}
        for name, bar_ms in bars.items():
            value = samples.median(name)
            emit("P1 gpuctl " + name, value, "ms", "empty C++ program",
                 samples.median("empty C++ program"), "<= %d ms" % bar_ms, value <= bar_ms,
                 digits=2, spread=samples.spread(name), rounds=ROUNDS, **peers)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""From the exec of `gpuctl launch` until the run's first line is on its stdout, in an allocation of a
real Slurm (tests/slurm/cluster.py) that an earlier run has left idle; and the whole launch, until it
ends. The peer is `ssh login srun --jobid … --overlap echo first`, which starts no job of gpuctl's. It
needs root and what tests/slurm/install installs."""

import os
import shutil
import time

from common import Timed, emit, interleave, progress, run_timed
from slurm_content import with_cluster

ROUNDS = int(os.environ.get("GPUCTL_BENCH_SLURM_ROUNDS", "7"))


def measure(laptop, cluster):
    with open(os.path.join(laptop.work, "train.sh"), "w") as file:
        file.write("echo first; exec sleep 0.2\n")
    launch = [laptop.gpuctl, "launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "1h",
              "--salvage", "1h", "--workdir", laptop.work, "--", "sh", "train.sh"]
    ended = []

    def first_line():
        begin = time.monotonic()
        child = Timed(launch, laptop.env)
        took = child.until(b"first\n")
        code, _ = child.wait()
        assert code == 0, code
        ended.append(time.monotonic() - begin)
        return took

    cold = first_line()
    progress("  from the queue: %.2f s" % cold)
    node = laptop.json("ps", "-a")["runs"][0]["node"]
    job = node.split("/")[-1]
    step = cluster.ssh(["srun", "-u", "-Q", "--mpi=none", "--jobid", job, "--overlap", "echo", "first"])
    step[0] = shutil.which("ssh")
    first_line()
    ended.clear()
    samples = interleave(ROUNDS, {"gpuctl": first_line, "srun": lambda: run_timed(step, laptop.env)})
    nodes = {run["node"] for run in laptop.json("ps", "-a")["runs"]}
    assert nodes == {node}, "not all of it was one allocation: %s" % nodes
    ended.sort()
    emit("slurm launch to first line, warm", samples.median("gpuctl"), "s",
         "ssh login srun --overlap echo first (no job)", samples.median("srun"), "none", True, digits=3,
         first_time_with_the_queue_s=round(cold, 3), until_its_end_s=round(ended[len(ended) // 2], 3),
         spread=samples.spread("gpuctl"), peer_spread=samples.spread("srun"), rounds=ROUNDS)


if __name__ == "__main__":
    with_cluster(measure)

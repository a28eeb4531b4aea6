#!/usr/bin/env python3
"""Content on its way into an allocation of a real Slurm (tests/slurm/cluster.py): 200 MB of random
bytes as a run's work directory, through the store that the login node shares with the nodes, and
through the scheduler's own steps. Each is the time of `launch -d` on a warm allocation, less that of
the same launch with a work directory of one byte. The peer is plain ssh to the login node, into a
file on stable storage. It needs root and what tests/slurm/install installs."""

import os
import subprocess
import sys
import time

from common import CHECKOUT, emit, find_programs, interleave, progress

sys.path.insert(0, os.path.join(CHECKOUT, "tests", "slurm"))
from cluster import requirements  # noqa: E402
from places import place  # noqa: E402

MEGABYTES = int(os.environ.get("GPUCTL_BENCH_SLURM_MB", "200"))
ROUNDS = int(os.environ.get("GPUCTL_BENCH_SLURM_ROUNDS", "5"))
NAME = "content.bin"


def fill(path, megabytes):
    """Writes new bytes, which no earlier round has sent."""
    with open(path, "wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1000000))
        file.write(os.urandom(1))
        file.flush()
        os.fsync(file.fileno())


def measure(laptop, cluster):
    path = os.path.join(laptop.work, NAME)
    far = os.path.join(cluster.home, "plain.bin")

    def launch(megabytes, **env):
        fill(path, megabytes)
        begin = time.monotonic()
        laptop.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "1h",
                   "--salvage", "1h", "--name", "content-", "--", "true", **env)
        seconds = time.monotonic() - begin
        # The next launch finds the allocation idle.
        laptop.run("wait", laptop.json("ps", "-a")["runs"][0]["name"])
        return seconds

    def steps(megabytes):
        return launch(megabytes, GPUCTL_SLURM_RESULTS="off")

    def ssh():
        fill(path, MEGABYTES)
        begin = time.monotonic()
        with open(path, "rb") as file:
            subprocess.run(cluster.ssh(["sh", "-c", "cat > plain.bin && sync plain.bin"]), stdin=file,
                           check=True, timeout=600)
        seconds = time.monotonic() - begin
        assert os.path.getsize(far) == os.path.getsize(path)
        return seconds

    # The login node gets its programs, too.
    launch(10)
    node = laptop.json("ps", "-a")["runs"][0]["node"]
    samples = interleave(ROUNDS, {
        "store": lambda: launch(MEGABYTES), "steps": lambda: steps(MEGABYTES), "ssh": ssh,
        "one byte": lambda: launch(0)})
    nodes = {run["node"] for run in laptop.json("ps", "-a")["runs"]}
    assert nodes == {node}, "not all of it was one allocation: %s" % nodes
    little, plain = samples.median("one byte"), samples.median("ssh")
    for way, bar in (("store", 1.5), ("steps", None)):
        value = samples.median(way) - little
        emit("slurm content %d MB, %s" % (MEGABYTES, way), value, "s", "ssh login 'cat > file && sync file'",
             plain, "<= %s x" % bar if bar else "none", bar is None or value <= bar * plain, digits=3,
             launch_of_one_byte_s=round(little, 3), spread=samples.spread(way),
             peer_spread=samples.spread("ssh"), rounds=ROUNDS)


def with_cluster(measure_there):
    """Calls measure_there(laptop, cluster), with a cluster that has started."""
    reason = requirements()
    if reason:
        sys.exit("bench: " + reason)
    programs = find_programs()
    libraries = os.path.join(os.path.dirname(programs), "cloudsim")
    if not os.path.exists(os.path.join(libraries, "libcuda.so.1")):
        sys.exit("bench: no %s/libcuda.so.1: gpuctl-cloudsim builds it" % libraries)
    progress("  a cluster starts")
    with place(os.path.join(programs, "gpuctl"), "/bin/true", libraries, "cgroup") as (laptop, cluster):
        measure_there(laptop, cluster)


if __name__ == "__main__":
    with_cluster(measure)

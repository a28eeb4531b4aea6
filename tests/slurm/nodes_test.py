#!/usr/bin/env python3
"""Runs on several nodes of one allocation of a real Slurm.

  nodes_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [PROCTRACK] [TEST...]
"""
import glob
import hashlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from places import HOME, TRAPS, kept_in, left, run_of, run_tests, wait_until  # noqa: E402
from runs import SAVE  # noqa: E402

# Each node says what it was told, and makes a checkpoint and a result of its own.
TOLD = """echo node $GPUCTL_NODE_RANK of $GPUCTL_NODES on $(hostname) in $SLURM_JOB_ID gpus $CUDA_VISIBLE_DEVICES
echo $MASTER_ADDR:$MASTER_PORT >> %s/masters; sleep 2; echo of $GPUCTL_NODE_RANK > out.txt"""


def launching(l, *args):
    with open(os.path.join(l.work, "several.yaml"), "w") as file:
        file.write("resources: {nodes: 2, gpu: H100, provider: slurm}\n")
    return ("launch", "several.yaml", "--yes", "--time", "10m", "--salvage", "5m", *args)


def launch_on_two(l, name, *command, options=()):
    l.run(*launching(l, "-d", "--no-workdir", "--name", name, *options, "--", *command))
    return run_of(l, name)["node"].split("/")[-1]


def test_a_run_on_two_nodes(l, c):
    job = launch_on_two(l, "two-1", "bash", "-c", TOLD % HOME, options=("--artifacts", "out.txt"))
    assert c.squeue(job, "%D %T") == "2 RUNNING", c.squeue(job, "%D %T")
    said = l.run("attach", "two-1").stdout.decode()
    others = l.run("logs", "two-1", "--node", "1").stdout.decode()
    assert said.startswith("node 0 of 2 on n1 in %s gpus 0" % job), said
    assert others.startswith("node 1 of 2 on n2 in %s gpus 0" % job), others
    with open(os.path.join(c.home, "masters")) as file:
        masters = file.read().split()
    assert len(masters) == 2 and masters[0] == masters[1], masters
    l.run("pull", "two-1")
    for node, place in (("0", "two-1"), ("1", "two-1.node1")):
        with open(os.path.join(l.work, place, "out.txt")) as file:
            assert file.read() == "of %s\n" % node
    assert [run["name"] for run in l.json("ps", "-a")["runs"]] == ["two-1"]
    assert len(l.json("instances")["instances"]) == 1
    l.run("down", "--yes", "two-1")
    c.wait_sacct(job, "CANCELLED")
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))
    # What was kept of each is read through the login node, and goes with the run.
    assert l.run("logs", "two-1", "--node", "1").stdout.decode() == others
    assert kept_in(os.path.join(c.home, ".gpuctl-results"))
    l.run("rm", "two-1")
    assert not kept_in(os.path.join(c.home, ".gpuctl-results"))


def test_what_is_not_home_of_a_node_stays(l, c):
    job = launch_on_two(l, "stays-1", "bash", "-c", TOLD % HOME, options=("--artifacts", "out.txt"))
    l.run("attach", "stays-1")
    l.run("pull", "stays-1", "--node", "0")
    # The user is told before it is lost with the allocation; here it is kept.
    l.run("down", "--yes", "--force", "stays-1")
    c.wait_sacct(job, "CANCELLED")
    done = l.run("rm", "stays-1", code=None)
    assert done.returncode != 0 and b"stays-1.node1" in done.stderr, done
    kept = glob.glob(os.path.join(c.home, ".gpuctl-results", "gpuctl-*", "node-1", "*", "jobs", "*", "work", "out.txt"))
    assert len(kept) == 1, kept
    # It can still be had.
    l.run("pull", "stays-1", "--node", "1", "--to", "late")
    with open(os.path.join(l.work, "late", "out.txt")) as file:
        assert file.read() == "of 1\n"
    l.run("rm", "stays-1")
    assert not kept_in(os.path.join(c.home, ".gpuctl-results"))


def test_it_is_resumed_in_another_allocation(l, c):
    job = launch_on_two(l, "first-1", "bash", "-c",
                        SAVE.replace("echo $1 >", "echo $GPUCTL_NODE_RANK >") + "save 4; sleep 1; exit 5")
    l.run("attach", "first-1", code=None)
    l.run("pull", "first-1")
    l.run("down", "--yes", "first-1")
    c.wait_sacct(job, "CANCELLED")
    again = l.run("resume", "first-1", "--yes", "-d").stdout.decode().strip()
    assert run_of(l, again)["node"].split("/")[-1] != job
    # The job is the same, so it fails the same way; each node had its own checkpoint.
    l.run("attach", again, code=5)
    for node in "01":
        found = l.run("exec", again + (".node1" if node == "1" else ""), "--", "cat", ".gpuctl-resume/weights").stdout
        assert found == node.encode() + b"\n", found
    l.run("down", "--yes", "--force", again)


def test_large_content_goes_to_the_login_node_once(l, c):
    content = os.urandom(12 << 20)
    with open(os.path.join(l.work, "content"), "wb") as file:
        file.write(content)
    done = l.run(*launching(l, "--name", "content-1", "--", "sha256sum", "content"))
    assert b"not by the login node" not in done.stderr, done.stderr
    for node in ("0", "1"):
        said = l.run("logs", "content-1", "--node", node).stdout.decode()
        assert said.split()[0] == hashlib.sha256(content).hexdigest(), said
    store = glob.glob(os.path.join(c.home, ".gpuctl-results", "gpuctl-*", "store", "blobs", "trees", "*"))
    assert not store, store
    l.run("down", "--yes", "--force", "content-1")


def test_the_ends_of_an_allocation_reach_all_nodes(l, c):
    job = launch_on_two(l, "ends-1", "bash", "-c", TRAPS % (HOME, "$GPUCTL_NODE_RANK"))
    wait_until(lambda: b"begun" in l.run("logs", "ends-1", "--node", "1").stdout, "both have begun")
    c.scancel("-b", "-s", "TERM", job)
    for node in ("0", "1"):
        wait_until(lambda: os.path.exists(os.path.join(c.home, "saved-" + node)), "node %s saved" % node)
    wait_until(lambda: c.squeue(job) not in ("RUNNING", "COMPLETING"), "the allocation is over")
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))


def test_a_node_that_is_partly_used_counts(l, c):
    """sinfo has a line for each state, and the scheduler starts the job at once."""
    other = c.sbatch("sleep 600", "-w", "n1", "--gres=gpu:1")
    c.wait_state(other, "RUNNING")
    job = launch_on_two(l, "partly-1", "true")
    l.run("attach", "partly-1")
    l.run("down", "--yes", "--force", "partly-1")
    c.scancel(other)
    c.wait_sacct(job, "CANCELLED")


def test_ctrl_c_gives_the_allocation_back(l, c):
    with open(os.path.join(l.work, "content"), "wb") as file:
        file.write(os.urandom(64 << 20))
    process = l.start(*launching(l, "--name", "given-1", "--", "true"))
    said = b""
    while b" is ready: " not in said:
        said += process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    said += process.communicate(timeout=300)[1]
    assert process.returncode == 130 and b"nothing was started" in said, (process.returncode, said)
    assert l.json("instances")["instances"] == [] and l.json("ps", "-a")["runs"] == [], said
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))


def test_the_allocation_waits_for_the_results_of_all(l, c):
    job = launch_on_two(l, "waits-1", "bash", "-c", TOLD % HOME, options=("--artifacts", "out.txt", "--idle", "10s"))
    l.run("attach", "waits-1")
    # The first node's are home; what is on the other one would go with the allocation.
    l.run("pull", "waits-1", "--node", "0")
    time.sleep(25)
    assert c.squeue(job, "%T") == "RUNNING"
    l.run("pull", "waits-1", "--node", "1")
    wait_until(lambda: c.squeue(job, "%T") not in ("RUNNING", "COMPLETING"), "it ends by itself")
    with open(os.path.join(l.work, "waits-1.node1", "out.txt")) as file:
        assert file.read() == "of 1\n"


test_the_allocation_waits_for_the_results_of_all.cluster = {"shared_home": False}


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    return run_tests(sys.argv[1:], tests)


if __name__ == "__main__":
    sys.exit(main())

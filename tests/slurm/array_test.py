#!/usr/bin/env python3
"""Batches that are arrays of a real Slurm: one submission, a task for each run.

  array_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [PROCTRACK] [TEST...]
"""
import glob
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from ends_test import wrapped  # noqa: E402
from places import HOME, left, run_of, run_tests, wait_until  # noqa: E402
from queue_test import begun, check_clean, see_nodes  # noqa: E402

# Notes each beginning of its own in the home directory, which all nodes share.
RUN = "echo $SLURM_JOB_ID $GPUCTL_ATTEMPT $(cat mine.txt) >> %s/begun-sweep-{i}; echo it is {i}; sleep 1; " \
      "echo {i} > out.txt" % HOME
SUBMIT = ("submit", "--yes", "--array", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
          "--artifacts", "out.txt", "--name", "sweep")


def submit(l, count, *options, code=0):
    return l.run(*SUBMIT, *options, "--sweep", "i=1..%d" % count, "--", "bash", "-c", RUN, code=code)


def queue(c, *more):
    return c.run(["squeue", "-h", "--me", "-o", "%i %T", *more]).stdout.splitlines()


def entries(l, *words):
    batch, = l.json("queue", *words, "sweep")["batches"]
    return {entry["entry"]: entry for entry in batch["entries"]}


def states(l, *words):
    return sorted(entry["state"] for entry in entries(l, *words).values())


def see_end(l, ends):
    """All entries come to these ends. queue shows what it last knew of a run whose machine answers late."""
    def ended():
        now = states(l)
        assert set(now) <= {"queued", "running", *ends}, entries(l, "--offline")
        return now == ends
    wait_until(ended, lambda: "%s: %s" % (ends, entries(l)))


def test_six_runs_are_one_array(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    said = submit(l, 6, "--max-parallel", "4")
    assert said.stdout.decode().split() == ["sweep-%d" % i for i in range(1, 7)], said
    wait_until(lambda: states(l) == ["queued"] * 6, lambda: "all wait in Slurm's queue: %s" % states(l))
    waiting = [line for line in queue(c) if not line.endswith("RUNNING")]
    array = waiting[0].split("_")[0]
    assert waiting == [array + "_[0-5%4] PENDING"], waiting
    nodes = {name: entry["node"] for name, entry in entries(l).items()}
    assert nodes == {"sweep-%d" % (i + 1): "slurm/%s_%d" % (array, i) for i in range(6)}, nodes
    assert l.run("ps").stdout.count(b"waits in Slurm's queue") == 6
    assert len(l.json("instances", code=None)["instances"]) == 6
    # One alone, and nothing happens to the others.
    l.run("cancel", "sweep-6")
    assert sorted(queue(c, "-r", "-t", "PENDING")) == ["%s_%d PENDING" % (array, i) for i in range(5)], queue(c)
    # No gpuctl runs now.
    c.scancel(*holding)
    wait_until(lambda: not queue(c), lambda: "each allocation ends with its run: %s" % queue(c))
    for i in range(1, 6):
        (job, attempt, mine), = (line.split() for line in begun(c, "sweep-%d" % i))
        assert job.isdigit() and attempt == "1" and mine == "mine"
    assert begun(c, "sweep-6") == []
    see_end(l, ["cancelled"] + ["done"] * 5)
    l.run("pull", "--batch", "sweep", code=1)  # the cancelled one has nothing
    for i in range(1, 6):
        with open(os.path.join(l.work, "sweep-%d" % i, "out.txt")) as file:
            assert file.read() == "%d\n" % i
        assert l.run("logs", "sweep-%d" % i).stdout == b"it is %d\n" % i
    assert l.json("instances")["instances"] == []
    check_clean(c)


def test_a_gpuctl_that_is_killed_while_it_submits(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    # The controller takes the array, and whoever asked is killed before the answer.
    log = wrapped(c, "sbatch", "case $* in *--test-only*) exec $real \"$@\" ;; esac\n"
                  "$real \"$@\" >~/array && echo asked >> ~/asked && sleep 60\n")
    submitting = l.start(*SUBMIT, "--sweep", "i=1..6", "--", "bash", "-c", RUN)
    wait_until(lambda: os.path.exists(log), "the array is submitted")
    killed = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_ours(l, pid)]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    submitting.communicate(timeout=60)
    os.unlink(os.path.join(c.home, "bin", "sbatch"))
    assert len(queue(c, "-r", "-t", "PENDING")) == 6
    # Nobody wants them any more, and everybody knows of them.
    listed = l.json("instances", code=None)["instances"]
    assert len(listed) == 6 and {one["whose"] for one in listed} == {"leak"}, listed
    l.run("reap", "--yes")
    wait_until(lambda: not queue(c, "-r", "-t", "PENDING"), "reap has ended them")
    assert l.json("instances")["instances"] == []
    assert states(l, "--offline") == ["waiting"] * 6
    # The batch goes on.
    l.run("queue", "sweep")
    wait_until(lambda: states(l) == ["queued"] * 6, lambda: "all wait again: %s" % entries(l))
    c.scancel(*holding)
    wait_until(lambda: states(l) == ["done"] * 6, lambda: "all are done: %s" % entries(l))
    assert sorted(len(begun(c, "sweep-%d" % i)) for i in range(1, 7)) == [1] * 6
    check_clean(c)


test_a_gpuctl_that_is_killed_while_it_submits.cluster = {"path": "PATH=%s/bin:/usr/local/bin:/usr/bin:/bin" % HOME}


def is_ours(l, pid):
    """True for a gpuctl of this laptop, and not for a process that it reached by ssh."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            if l.dir.encode() not in file.read():
                return False
        return os.readlink("/proc/%d/exe" % pid) == os.path.realpath(l.gpuctl)
    except OSError:
        return False


def test_what_cannot_be_an_array_says_why(l, c):
    # Nobody knows yet whether nodes see the login node's files.
    said = submit(l, 2, "--dry-run")
    assert b"one by one: no node has been seen to share" in said.stdout, said.stdout.decode()
    see_nodes(l, c)
    l.env["TOKEN"] = "it"
    for options, why in ((("--secret", "TOKEN"), b"a run with secrets needs gpuctl at its start"),
                         ((), b"one array of Slurm")):
        said = submit(l, 2, "--dry-run", *options)
        assert why in said.stdout, said.stdout.decode()
    refused = submit(l, 2, "--gpus", "1", code=2)
    assert b"--gpus lets runs share one" in refused.stderr, refused.stderr.decode()
    assert not glob.glob(os.path.join(c.home, ".gpuctl-results", "*", "*_*")) and not left(c)


def test_a_batch_larger_than_an_array_is_several(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    submit(l, 5)
    wait_until(lambda: states(l) == ["queued"] * 5, lambda: "all wait in Slurm's queue: %s" % entries(l))
    waiting = sorted(line.split("_")[1] for line in queue(c) if "_" in line)
    assert waiting == ["[0-2] PENDING", "[0-1] PENDING"] or waiting == ["[0-1] PENDING", "[0-2] PENDING"], waiting
    l.run("cancel", "sweep")
    wait_until(lambda: not [line for line in queue(c) if "_" in line], "none waits any more")
    see_end(l, ["cancelled"] * 5)
    c.scancel(*holding)
    assert run_of(l, "sweep-1")["status"] == "stopped"
    check_clean(c)


test_a_batch_larger_than_an_array_is_several.cluster = {"config": ["MaxArraySize=3"]}


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    return run_tests(sys.argv[1:], tests)


if __name__ == "__main__":
    sys.exit(main())

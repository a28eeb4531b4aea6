#!/usr/bin/env python3
"""Runs that are left in the queue of a real Slurm: they begin with their allocation, and gpuctl is gone by then.

  queue_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [PROCTRACK] [TEST...]
"""
import glob
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from places import HOME, left, run_of, run_tests, wait_until  # noqa: E402

# Notes each beginning of its own in the home directory, which all nodes share, and prints for a while.
COUNTED = """echo $SLURM_JOB_ID $GPUCTL_ATTEMPT $(cat mine.txt) >> %s/begun-$GPUCTL_RUN_NAME
for i in $(seq 20); do echo line $i; sleep 0.2; done; echo made > out.txt"""
LAUNCH = ("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
          "--artifacts", "out.txt")


def see_nodes(l, c):
    """After a first allocation the cluster is known to share its files with the nodes."""
    l.run("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "2m", "--salvage", "2m", "--no-workdir",
          "--name", "first", "--", "true")
    wait_until(lambda: os.path.exists(os.path.join(c.home, ".gpuctl-results", ".seen-by-nodes")),
               "a node has seen the directory")
    l.run("down", "--yes", "--force", "first")
    with open(os.path.join(l.work, "mine.txt"), "w") as file:
        file.write("mine")


def command(name):
    return ("bash", "-c", COUNTED.replace("$GPUCTL_RUN_NAME", name) % HOME)


def begun(c, name):
    """Returns the beginnings that a run has noted: of an independent file, not of gpuctl's."""
    try:
        with open(os.path.join(c.home, "begun-" + name)) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def job_of(l, name):
    return run_of(l, name)["node"].split("/")[-1]


def free(c, holding):
    for number in holding:
        c.scancel(number)


def check_whole(l, c, name, job):
    """The run has begun once, in its allocation, with its files; all that it printed and made comes home."""
    l.run("attach", name)
    assert begun(c, name) == ["%s 1 mine" % job], begun(c, name)
    lines = l.run("logs", name).stdout.decode().splitlines()
    assert lines == ["line %d" % i for i in range(1, 21)], lines
    l.run("pull", name)
    with open(os.path.join(l.work, name, "out.txt")) as file:
        assert file.read() == "made\n"
    assert run_of(l, name)["status"] == "succeeded", run_of(l, name)


def check_clean(c):
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))
    wait_until(lambda: not [one for one in c.processes("login") if one["name"].startswith("gpuctl")],
               "no agent is left on the login node")


def test_a_run_begins_while_the_laptop_is_off(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    said = l.run(*LAUNCH, "-d", "--name", "left-1", "--", *command("left-1"))
    assert said.stdout.decode() == "left-1\n", said
    job = job_of(l, "left-1")
    assert c.squeue(job) == "PENDING"
    run = run_of(l, "left-1")
    assert run["status"] == "queued" and run["queue"]["scheduler"] == "Slurm" and run["stops"] is None, run
    assert b"waits in Slurm's queue" in l.run("ps").stdout
    assert b"waits in Slurm's queue: PENDING (" in l.run("logs", "left-1").stderr
    listed, = l.json("instances", code=None)["instances"]
    assert listed["instance_id"] == job, listed
    # Its content waits on the login node, and what it may take is set there.
    staged = os.path.join(glob.glob(os.path.join(c.home, ".gpuctl-results", "*", job + "-staged"))[0], "jobs", "*")
    assert len(glob.glob(os.path.join(staged, "spec.json"))) == 1
    l.run("extend", "--yes", "left-1", "5m")
    refused = l.run("exec", "left-1", "--", "true", code=None)
    assert refused.returncode and b"waits in Slurm's queue: PENDING" in refused.stderr, refused
    # It waits as long as that takes, and no limit of it is over meanwhile.
    two_weeks_on = "1@%d@%d" % ((time.time() + 14 * 86400) * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    for verb in (("reap", "--yes"), ("keep",)):
        l.run(*verb, code=None, GPUCTL_TEST_CLOCK=two_weeks_on)
        assert c.squeue(job) == "PENDING", verb
    # No gpuctl runs now.
    free(c, holding)
    wait_until(lambda: begun(c, "left-1"), "the run has begun")
    given = "cat /tmp/gpuctl-%d/%s-0/jobs/*/time_limit" % (c.uid, job)
    assert c.machines[c.squeue(job, "%N")].run(["sh", "-c", given]).stdout == "900\n"
    check_whole(l, c, "left-1", job)
    assert not glob.glob(os.path.join(c.home, ".gpuctl-results", "*", "again", "blobs", "trees", "*"))
    l.run("down", "--yes", "left-1")
    c.wait_sacct(job, "CANCELLED")
    check_clean(c)


def test_it_is_left_by_ctrl_c_and_followed_again(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    launched = l.start(*LAUNCH, "--name", "left-2", "--", *command("left-2"))
    words = b""
    while b"left-2 waits in Slurm's queue on slurm/" not in words:
        line = launched.stderr.readline()
        assert line, words.decode()
        words += line
    launched.send_signal(signal.SIGINT)
    shown, more = launched.communicate(timeout=300)
    words += more
    assert launched.returncode == 0 and not shown, (launched.returncode, words.decode())
    assert b"detached; left-2 goes on waiting on slurm/" in words, words.decode()
    job = job_of(l, "left-2")
    assert c.squeue(job) == "PENDING"
    attached = l.start("attach", "left-2")
    while b"waits in Slurm's queue" not in attached.stderr.readline():
        assert attached.poll() is None
    free(c, holding)
    shown, said = attached.communicate(timeout=600)
    assert attached.returncode == 0 and shown.decode().splitlines()[-1] == "line 20", (shown, said.decode())
    check_whole(l, c, "left-2", job)
    l.run("down", "--yes", "left-2")
    check_clean(c)


def test_in_the_queue_it_is_stopped_and_given_back(l, c):
    see_nodes(l, c)
    holding, _ = c.fill(0)
    for name, verb in (("stopped-1", ("stop", "stopped-1")), ("ended-1", ("down", "--yes", "ended-1"))):
        l.run(*LAUNCH, "-d", "--name", name, "--", *command(name))
        job = job_of(l, name)
        assert c.squeue(job) == "PENDING"
        l.run(*verb)
        c.wait_sacct(job, "CANCELLED")
        l.run("attach", name, code=None)
        run = run_of(l, name)
        assert run["status"] == "stopped", run
    l.run(*LAUNCH, "-d", "--name", "scancelled-1", "--", *command("scancelled-1"))
    job = job_of(l, "scancelled-1")
    c.scancel(job)
    c.wait_sacct(job, "CANCELLED")
    said = l.run("attach", "scancelled-1", code=None)
    run = run_of(l, "scancelled-1")
    assert run["reason"] == "Slurm: CANCELLED by " + c.user, (run, said)
    assert not [name for name in ("stopped-1", "ended-1", "scancelled-1") if begun(c, name)]
    wait_until(lambda: l.json("instances", code=None)["instances"] == [], "nothing is rented")
    free(c, holding)
    check_clean(c)


def test_what_needs_gpuctl_waits_with_it(l, c):
    holding, _ = c.fill(0)
    # Nobody knows yet whether nodes see the login node's files.
    launched = l.start("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--no-workdir",
                       "--name", "waits-1", "--", "true")
    words = b""
    while b"cannot be left in the queue" not in words:
        line = launched.stderr.readline()
        assert line, words.decode()
        words += line
    assert b"no node has been seen to share" in words, words.decode()
    launched.send_signal(signal.SIGINT)
    _, more = launched.communicate(timeout=300)
    assert launched.returncode == 130 and b"nothing bills" in more, (launched.returncode, more.decode())
    free(c, holding)
    see_nodes(l, c)
    holding, _ = c.fill(0)
    l.env["TOKEN"] = "it"
    launched = l.start("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--no-workdir",
                       "--secret", "TOKEN", "--name", "waits-2", "--", "sh", "-c", "echo has $TOKEN")
    words = b""
    while b"a run with secrets needs gpuctl at its start" not in words:
        line = launched.stderr.readline()
        assert line, words.decode()
        words += line
    free(c, holding)
    shown, _ = launched.communicate(timeout=600)
    assert launched.returncode == 0 and shown == b"has it\n", (launched.returncode, shown)
    l.run("down", "--yes", "waits-2")
    check_clean(c)


def launch_while_it_frees(l, c, name, after, *options):
    """Launches into a full cluster, which has room again after so many seconds; None: while the run is being left."""
    holding, _ = c.fill(0)
    launched = l.start(*LAUNCH, *options, "--name", name, "--", *command(name))
    said = b""
    if after is None:
        while b"waits in Slurm's queue" not in said:
            line = launched.stderr.readline()
            assert line, said.decode()
            said += line
    else:
        time.sleep(after)
    free(c, holding)
    shown, rest = launched.communicate(timeout=600)
    assert launched.returncode == 0, (after, shown, (said + rest).decode())
    return (after, shown, (said + rest).decode())


def test_it_begins_once_whenever_a_node_becomes_free(l, c, rounds=12, seed=281126):
    see_nodes(l, c)
    rng = random.Random(seed)
    for number in range(rounds):
        name, after = "race-%d" % number, rng.choice([None, rng.uniform(8, 16)])
        words = launch_while_it_frees(l, c, name, after, *(("-d",) if number % 2 else ()))
        job = job_of(l, name)
        wait_until(lambda: begun(c, name), lambda: "it begins: %s" % (words,))
        check_whole(l, c, name, job)
        # Its limits are there, too: an idle allocation ends itself.
        limits = "cat /tmp/gpuctl-%d/%s-0/limits.json" % (c.uid, job)
        assert job in c.machines[c.squeue(job, "%N")].run(["sh", "-c", limits]).stdout, words
        l.run("down", "--yes", name)
        check_clean(c)


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    for test in tests.values():
        test.cluster = {"config": ["KillWait=60"]}
    return run_tests(sys.argv[1:], tests)


if __name__ == "__main__":
    sys.exit(main())

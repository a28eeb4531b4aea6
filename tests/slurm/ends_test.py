#!/usr/bin/env python3
"""Ends of allocations of a real Slurm under a live run: what the run's end is then, and what is there of it
afterwards.

  ends_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [PROCTRACK] [TEST...]
"""
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from places import HOME, kept_in, left, run_of, run_tests, wait_until  # noqa: E402
from wishes import install  # noqa: E402

# Works until it is told to stop, then saves, and prints what it has saved.
SAVES = """trap 'head -c 100000 /dev/urandom > out.bin; sha256sum < out.bin; exit 0' TERM
head -c 1000000 /dev/urandom | tee early.pt | sha256sum; echo begun
i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done"""
# What a busy machine needs for the last second of an allocation is no measure of anything.
PATIENT = {"config": ["KillWait=60"]}
NEVER_SAID = ("the machine was lost", "machine is gone", "shim died", "its shim")


def saving(l, name, options=(), **env):
    """Launches a run that saves when it is told to stop. Returns its allocation's number."""
    l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
          "--no-workdir", "--name", name, "--artifacts", "out.bin", "--artifacts", "early.pt", *options, "--",
          "bash", "-c", SAVES, **env)
    wait_until(lambda: b"line 2" in l.run("logs", name, code=None).stdout, name + " works")
    return run_of(l, name)["node"].split("/")[-1]


def is_over(c, job):
    return c.squeue(job) not in ("RUNNING", "COMPLETING", "PENDING")


def told(l, name):
    """Returns the end of a run, after gpuctl was asked for it."""
    said = l.run("attach", name, code=None)
    run = run_of(l, name)
    text = said.stdout + said.stderr + l.run("show", name, code=None).stdout + l.run("ps", "-a").stdout
    for words in NEVER_SAID:
        assert words.encode() not in text, (words, text.decode())
    assert run["reason"], (run, said)
    return run


def check_saved(l, name):
    """Checks that all the run has printed is at home, and what it has saved at its end."""
    lines = l.run("logs", name).stdout.decode().splitlines()
    hashes = [line.split()[0] for line in lines if line.endswith("  -")]
    numbers = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert len(hashes) == 2 and numbers == list(range(1, len(numbers) + 1)), lines[-5:]
    l.run("pull", name)
    for file, digest in zip(("early.pt", "out.bin"), hashes):
        with open(os.path.join(l.work, name, file), "rb") as content:
            assert hashlib.sha256(content.read()).hexdigest() == digest, (name, file)


def check_clean(c):
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))
    wait_until(lambda: not [one for one in c.processes("login") if one["name"].startswith("gpuctl")],
               "no agent is left on the login node")


def in_parallel(*calls):
    failed = []

    def call(one):
        try:
            one()
        except BaseException as error:  # told below
            failed.append(error)
    threads = [threading.Thread(target=call, args=(one,)) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def test_every_end_is_slurms_word_and_nothing_is_lost(l, c):
    jobs = {}

    def start(name, **env):
        jobs[name] = saving(l, name, **env)
    in_parallel(lambda: start("limit-1"), lambda: start("ended-1"), lambda: start("root-1"),
                lambda: start("soft-1"), lambda: start("taken-1", GPUCTL_SLURM_PARTITION="low"))
    c.machines["login"].run(["scontrol", "update", "JobId=" + jobs["limit-1"], "TimeLimit=1"])
    c.scancel(jobs["ended-1"])
    c.machines["login"].run(["scancel", jobs["root-1"]])
    c.scancel("-b", "-s", "TERM", jobs["soft-1"])
    c.sbatch("sleep 600", "-w", c.squeue(jobs["taken-1"], "%N"), "--gres=gpu:4")
    words = {"limit-1": ("Slurm: TIMEOUT", "limit"), "ended-1": ("Slurm: CANCELLED by " + c.user, "stopped"),
             "root-1": ("Slurm: CANCELLED by root", "stopped"), "soft-1": ("Slurm: COMPLETED", "stopped"),
             "taken-1": ("Slurm: PREEMPTED", "lost")}
    for name in ("ended-1", "root-1", "soft-1", "taken-1", "limit-1"):
        wait_until(lambda name=name: is_over(c, jobs[name]),
                   lambda name=name: "%s is over, not %s" % (name, c.squeue(jobs[name])))
        run = told(l, name)
        reason, status = words[name]
        assert run["reason"].startswith(reason) and run["status"] == status, run
        assert run["job_exit_code"] == 0, run
        check_saved(l, name)
    c.scancel("-u", c.user)
    check_clean(c)


# Tells what it has, works until it is told to stop, and saves then.
GOES_ON = """trap 'echo saved by $GPUCTL_ATTEMPT > $GPUCTL_CHECKPOINT_DIR/state; exit 0' TERM
echo attempt $GPUCTL_ATTEMPT has $(cat mine.txt), $(cat $GPUCTL_CHECKPOINT_DIR/state 2>/dev/null)
i=0; while :; do i=$((i+1)); echo line $GPUCTL_ATTEMPT.$i; sleep 0.2; done"""


def going_on(l, c, name, retries, on=("preempted",)):
    """Launches a run that Slurm may start again by itself. Returns its allocation's number."""
    with open(os.path.join(l.work, "mine.txt"), "w") as file:
        file.write("mine")
    l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
          "--name", name, "--retry-max", str(retries), *(word for one in on for word in ("--retry-on", one)),
          "--", "bash", "-c", GOES_ON,
          GPUCTL_SLURM_PARTITION="low")
    job = run_of(l, name)["node"].split("/")[-1]
    wait_until(lambda: requeues(c, job), "Slurm may start it again")
    return job


def requeues(c, job):
    return "Requeue=1" in c.run(["scontrol", "show", "job", job]).stdout


def preempt(c, job):
    """Another job takes the node. Returns that job."""
    other = c.sbatch("sleep 600", "-w", c.squeue(job, "%N"), "--gres=gpu:4")
    wait_until(lambda: c.squeue(job) not in ("RUNNING", "COMPLETING"), "it was preempted")
    return other


def start_now(c, job):
    """Slurm lets a requeued job wait for two minutes; its user may shorten that."""
    assert c.squeue(job) == "PENDING", c.squeue(job)
    c.run(["scontrol", "update", "JobId=" + job, "StartTime=now"])
    wait_until(lambda: c.squeue(job) == "RUNNING", "Slurm starts it again")


def lines_so_far(l, name):
    return l.run("logs", name, code=None).stdout.decode().splitlines()


def check_attempts(lines, attempts):
    """Checks that each attempt's lines are there, in their order and without a gap."""
    numbers = [tuple(map(int, line.split()[1].split("."))) for line in lines if line.startswith("line ")]
    wanted = [(attempt, i + 1) for attempt in range(1, attempts + 1)
              for i in range(len([one for one in numbers if one[0] == attempt]))]
    assert numbers == wanted and {one[0] for one in numbers} == set(range(1, attempts + 1)), numbers


def test_a_preempted_run_goes_on_without_the_laptop(l, c):
    job = going_on(l, c, "again-1", 1)
    wait_until(lambda: "line 1.3" in lines_so_far(l, "again-1"), "the run works")
    l.run("extend", "--yes", "again-1", "5m")
    attached = l.start("attach", "again-1")
    first = c.squeue(job, "%N")
    other = preempt(c, job)
    # It waits in the queue: it is over for nobody.
    run = run_of(l, "again-1")
    assert run["status"] in ("running", "retrying") and not run["reason"], run
    l.run("logs", "again-1")
    assert attached.poll() is None
    assert [one["instance_id"] for one in l.json("instances", code=None)["instances"]] == [job]
    # On another node, whatever the first one has.
    start_now(c, job)
    assert c.squeue(job, "%N") != first
    c.scancel(other)
    wait_until(lambda: "line 2.3" in lines_so_far(l, "again-1"),
               lambda: "the second attempt works: %s" % lines_so_far(l, "again-1")[-3:])
    lines = lines_so_far(l, "again-1")
    assert "attempt 1 has mine," in lines and "attempt 2 has mine, saved by 1" in lines, lines
    check_attempts(lines, 2)
    # The running time that it was given stays.
    given = "cat /tmp/gpuctl-%d/%s-1/jobs/*/time_limit" % (c.uid, job)
    assert c.machines[c.squeue(job, "%N")].run(["sh", "-c", given]).stdout == "900\n"
    # Its retry is used up, so Slurm takes it for good.
    wait_until(lambda: not requeues(c, job), "Slurm does not start it once more")
    preempt(c, job)
    c.wait_sacct(job, "PREEMPTED")
    shown, said = attached.communicate()
    assert b"ended by Slurm: PREEMPTED" in said and b"set aside" not in said, said.decode()
    run = told(l, "again-1")
    assert run["reason"].startswith("Slurm: PREEMPTED") and run["status"] == "lost", run
    lines = lines_so_far(l, "again-1")
    check_attempts(lines, 2)
    assert shown.decode().splitlines() == lines, shown.decode()[-300:]
    l.run("pull", "again-1")
    with open(os.path.join(l.work, "again-1", "ckpt", "state")) as file:
        assert file.read() == "saved by 2\n"
    c.scancel("-u", c.user)
    check_clean(c)


def test_a_run_in_the_queue_is_read_and_stopped(l, c):
    job = going_on(l, c, "queued-1", 2)
    wait_until(lambda: "line 1.3" in lines_so_far(l, "queued-1"), "the run works")
    preempt(c, job)
    assert c.squeue(job) == "PENDING"
    # All that it had printed and saved is there, and nothing says that it is over.
    seen = l.run("logs", "queued-1")
    assert b"requeued by Slurm: PENDING" in seen.stderr, seen
    check_attempts(seen.stdout.decode().splitlines(), 1)
    kept = glob.glob(os.path.join(c.home, ".gpuctl-results", "*", job + "-0", "jobs", "*", "output", "*"))
    printed = b"".join(open(file, "rb").read() for file in sorted(kept))
    assert seen.stdout == printed and printed, (len(seen.stdout), len(printed))
    l.run("pull", "queued-1")
    with open(os.path.join(l.work, "queued-1", "ckpt", "state")) as file:
        assert file.read() == "saved by 1\n"
    attached = l.start("attach", "queued-1")
    while b"requeued by Slurm: PENDING" not in attached.stderr.readline():
        assert attached.poll() is None
    run = run_of(l, "queued-1")
    assert run["status"] in ("running", "retrying") and not run["reason"], run
    l.run("extend", "queued-1", "5m")
    refused = l.run("ssh", "queued-1", "--", "true", code=None)
    assert refused.returncode and b"requeued by Slurm: PENDING" in refused.stderr, refused
    # Stopped there, it does not start again, and nothing is left in the queue.
    l.run("stop", "queued-1")
    run = run_of(l, "queued-1")
    assert run["status"] == "stopped" and run["reason"] == "user", run
    c.wait_sacct(job, "CANCELLED")
    attached.communicate(timeout=300)
    assert run_of(l, "queued-1")["reason"] == "user"
    c.scancel("-u", c.user)
    check_clean(c)


def test_a_preemption_with_a_warning_puts_the_run_back_too(l, c):
    # Long before Slurm would take the node: the job has saved by then, and its script is over.
    c.machines["login"].run(["scontrol", "update", "PartitionName=low", "GraceTime=600"])
    job = going_on(l, c, "warned-1", 1)
    wait_until(lambda: "line 1.3" in lines_so_far(l, "warned-1"), "the run works")
    other = preempt(c, job)
    start_now(c, job)
    c.scancel(other)
    wait_until(lambda: "attempt 2 has mine, saved by 1" in lines_so_far(l, "warned-1"), "the run goes on")
    l.run("down", "--yes", "--force", "warned-1")
    check_clean(c)


test_a_preemption_with_a_warning_puts_the_run_back_too.cluster = {
    "config": [*PATIENT["config"], "SlurmctldParameters=preempt_send_user_signal"]}


def test_a_run_whose_node_is_cut_off_goes_on_elsewhere(l, c):
    job = going_on(l, c, "cut-2", 2, on=("lost",))
    attached = l.start("attach", "cut-2")
    wait_until(lambda: "line 1.3" in lines_so_far(l, "cut-2"), "the run works")
    first = c.squeue(job, "%N")
    c.cut(first)
    try:
        wait_until(lambda: c.squeue(job) == "PENDING", "Slurm has given the node up")
        assert run_of(l, "cut-2")["status"] == "running"
        start_now(c, job)
        assert c.squeue(job, "%N") != first
        wait_until(lambda: "line 2.3" in lines_so_far(l, "cut-2"), "the second attempt works")
        # The first one, which nobody can reach, ends itself.
        wait_until(lambda: not c.processes(first), lambda: "the first start ends: %s" % c.processes(first))
    finally:
        c.heal(first)
    lines = lines_so_far(l, "cut-2")
    # Its last words were not saved: nobody told it.
    assert "attempt 2 has mine," in lines, lines
    check_attempts(lines, 2)
    l.run("stop", "cut-2")
    attached.communicate()
    assert run_of(l, "cut-2")["reason"] == "user"
    wait_until(lambda: not requeues(c, job), "Slurm does not start a job again that was stopped")
    l.run("down", "--yes", "--force", "cut-2")
    c.wait_sacct(job, "CANCELLED")
    check_clean(c)


def test_what_was_saved_outlives_a_start_that_saved_nothing(l, c):
    job = going_on(l, c, "twice-1", 2, on=("preempted", "lost"))
    wait_until(lambda: "line 1.3" in lines_so_far(l, "twice-1"), "the run works")
    other = preempt(c, job)
    start_now(c, job)
    c.scancel(other)
    wait_until(lambda: "line 2.3" in lines_so_far(l, "twice-1"), "the second attempt works")
    second = c.squeue(job, "%N")
    c.cut(second)
    try:
        wait_until(lambda: c.squeue(job) == "PENDING", "Slurm has given the node up")
        # What the first attempt saved can be had also now.
        pulled = l.run("pull", "twice-1", code=None)
        # Its node was cut off in the middle; the run is not.
        assert b"is lost" not in pulled.stderr, pulled
        with open(os.path.join(l.work, "twice-1", "ckpt", "state")) as file:
            assert file.read() == "saved by 1\n"
        start_now(c, job)
        wait_until(lambda: "line 3.3" in lines_so_far(l, "twice-1"), "the third attempt works")
    finally:
        c.heal(second)
    lines = lines_so_far(l, "twice-1")
    assert "attempt 3 has mine, saved by 1" in lines, lines
    check_attempts(lines, 3)
    l.run("stop", "twice-1")
    l.run("down", "--yes", "--force", "twice-1")
    c.wait_sacct(job, "CANCELLED")
    check_clean(c)


def test_a_run_that_cannot_be_started_again_says_why(l, c):
    job = going_on(l, c, "gone-1", 2)
    wait_until(lambda: "line 1.3" in lines_so_far(l, "gone-1"), "the run works")
    other = preempt(c, job)
    for programs in glob.glob(os.path.join(c.home, ".gpuctl-results", "*", "again", "bin")):
        shutil.rmtree(programs)
    c.scancel(other)
    c.run(["scontrol", "update", "JobId=" + job, "StartTime=now"])
    wait_until(lambda: is_over(c, job), lambda: "it is over, not " + c.squeue(job))
    run = told(l, "gone-1")
    assert run["reason"].startswith("not started again: the programs of the agent are not in"), run
    assert run["status"] == "lost", run
    # All that it had is there.
    check_attempts(lines_so_far(l, "gone-1"), 1)
    l.run("pull", "gone-1")
    with open(os.path.join(l.work, "gone-1", "ckpt", "state")) as file:
        assert file.read() == "saved by 1\n"
    # What is gone of that is told.
    for state in glob.glob(os.path.join(c.home, ".gpuctl-results", "*", job + "-0", "jobs", "*", "ckpt", "state")):
        os.unlink(state)
    pulled = l.run("pull", "gone-1", code=None)
    assert b"only 0 of the 1 files that were kept" in pulled.stderr, pulled
    c.scancel("-u", c.user)
    check_clean(c)


def test_a_node_that_is_cut_off(l, c):
    job = saving(l, "cut-1")
    node = c.squeue(job, "%N")
    kept = os.path.join(c.home, ".gpuctl-results")
    wait_until(lambda: any("early.pt" in files or "output" in folders
                           for _, folders, files in os.walk(kept)), "the holder keeps the output")
    seen = l.run("logs", "cut-1").stdout
    c.cut(node)
    try:
        c.wait_sacct(job, "NODE_FAIL")
        run = told(l, "cut-1")
        assert run["reason"].startswith("Slurm: NODE_FAIL") and run["status"] == "lost", run
        # What was seen is there, and what the node wrote after that.
        lines = l.run("logs", "cut-1").stdout
        assert lines.startswith(seen) and len(lines) > len(seen), (len(seen), len(lines))
        pulled = l.run("pull", "cut-1", code=None)
        assert b"before all results were on the shared file system" in pulled.stderr, pulled
        # Nothing that is kept there says that the job is over.
        assert l.run("rm", "cut-1", code=None).returncode != 0 and kept_in(kept)
    finally:
        c.heal(node, gone=lambda: not c.processes(node))
    l.run("rm", "--force", "cut-1")
    assert kept_in(kept) == [], kept_in(kept)
    # Slurm ends what it had given up: with SIGTERM, or at once with SIGKILL. Then nobody was left to remove
    # the files, and the holder of the next allocation there does it.
    if left(c):
        for other in c.names:
            if other != node:
                c.sbatch("sleep 600", "-w", other, "--gres=gpu:4")
        next_job = saving(l, "next-1")
        assert c.squeue(next_job, "%N") == node
        old = "/tmp/gpuctl-%d/%s-0" % (c.uid, job)
        wait_until(lambda: not c.machines[node].run(["sh", "-c", "ls -d %s*" % old], check=False).stdout,
                   "the files of the allocation that was killed are removed")
        l.run("down", "--yes", "--force", "next-1")
        c.scancel("-u", c.user)
        check_clean(c)


def test_a_controller_that_dies_or_hangs_under_a_live_run(l, c):
    job = saving(l, "headless-1")
    attached = l.start("attach", "headless-1")
    c.wait_saved()
    for away, back in ((c.kill_controller, c.start_controller), (c.stop_controller, c.continue_controller)):
        away()
        try:
            assert run_of(l, "headless-1")["status"] == "running"
            seen = l.run("instances", "--json", code=None)
            assert seen.returncode != 0 and json.loads(seen.stdout)["instances"] == [], seen
        finally:
            back()
        wait_until(lambda: [i["instance_id"] for i in l.json("instances", code=None)["instances"]] == [job],
                   "the controller answers again")
    assert attached.poll() is None, "the link was not undisturbed"
    l.run("stop", "headless-1")
    attached.communicate()
    assert run_of(l, "headless-1")["reason"] == "user"
    check_saved(l, "headless-1")


def test_a_laptop_that_is_gone(l, c):
    holding, _ = c.fill(0)
    pending = subprocess.Popen(
        [l.gpuctl, "launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--no-workdir",
         "--name", "gone-1", "--", "true"], cwd=l.work, env=l.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def waiting():
        jobs = l.json("instances", code=None)["instances"]
        return [one["instance_id"] for one in jobs if one["instance_id"]]
    wait_until(waiting, "the job waits")
    job, = waiting()
    pending.send_signal(signal.SIGKILL)
    pending.wait()
    assert c.squeue(job) == "PENDING"
    for number in holding:
        c.scancel(number)
    # It starts, and nobody comes.
    l.run("down", "--all", "--yes")
    c.wait_sacct(job, "CANCELLED")
    assert l.json("instances")["instances"] == []
    live = subprocess.Popen(
        [l.gpuctl, "launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
         "--no-workdir", "--name", "gone-2", "--artifacts", "*.pt", "--artifacts", "out.bin", "--", "bash", "-c",
         SAVES], cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)
    while b"line 2" not in live.stdout.readline():
        pass
    live.send_signal(signal.SIGKILL)
    live.communicate()
    job = run_of(l, "gone-2")["node"].split("/")[-1]
    c.scancel("-b", "-s", "TERM", job)
    wait_until(lambda: is_over(c, job), "the allocation is over")
    assert told(l, "gone-2")["reason"] == "Slurm: COMPLETED"
    kept = os.path.join(c.home, ".gpuctl-results")
    there = kept_in(kept)
    assert len(there) == 2, there
    refused = l.json("rm", "gone-2", code=None)["runs"][0]
    assert refused["action"] == "kept" and "not at home" in refused["why"], refused
    assert not l.json("prune", "--older-than", "1h", "--dry-run")["leftovers"]
    check_saved(l, "gone-2")
    # The user's other files stay, whatever is removed.
    os.makedirs(os.path.join(kept, "gpuctl-mine"))
    # What is kept of a run is the run's; of the other allocation nothing but its directory is left.
    seen = l.json("prune", "--dry-run")
    assert [(run["name"], run["action"]) for run in seen["runs"]] == [("gone-2", "would_remove")], seen
    assert len(seen["leftovers"]) == 1 and seen["runs"][0]["freed_bytes"] > 1000000, seen
    empty = seen["leftovers"][0]["label"]
    # A login node that cannot be asked: the row goes, and a later prune finds the rest.
    silent = l.run("rm", "--forget", "gone-2", code=None, SSH_AUTH_SOCK="/nowhere")
    assert silent.returncode and b"keeps of it may be there" in silent.stderr, silent
    assert not any(run["name"] == "gone-2" for run in l.json("ps", "-a")["runs"])
    unknown = l.json("prune", "-y", code=None, SSH_AUTH_SOCK="/nowhere")
    assert len(unknown["unknown"]) == 1 and not unknown["leftovers"], unknown
    assert sorted(kept_in(kept)) == sorted([*there, "gpuctl-mine"])
    removed = l.json("prune", "-y")["leftovers"]
    assert sorted(one["label"] for one in removed) == sorted(there) and empty in there, removed
    assert all(one["action"] == "removed" for one in removed), removed
    assert kept_in(kept) == ["gpuctl-mine"], kept_in(kept)
    check_clean(c)


def connections(c):
    """Returns the processes on the login node that serve an ssh connection of the user."""
    return {one["pid"] for one in c.processes("login") if one["name"] == "sshd"}


def test_a_link_that_breaks_when_the_allocation_is_gone(l, c):
    """As for a laptop that slept: then the copy of the results has the end of the run."""
    job = saving(l, "still-1")
    attached = l.start("attach", "still-1")
    try:
        # It has begun with what was here already.
        now = len(l.run("logs", "still-1").stdout.splitlines())
        while b"line %d" % (now + 20) not in attached.stdout.readline():
            pass
        # Some may be those of other commands, which gpuctl keeps for the next one.
        there = [str(pid) for pid in connections(c)]
        c.machines["login"].run(["kill", "-STOP", *there])
        try:
            c.scancel(job)
            wait_until(lambda: is_over(c, job), "the allocation is over")
        finally:
            c.machines["login"].run(["kill", "-KILL", *there])
        text = b"".join(attached.communicate(timeout=120))
    finally:
        attached.kill()
    for words in NEVER_SAID:
        assert words.encode() not in text, (words, text.decode())
    run = run_of(l, "still-1")
    assert run["reason"].startswith("Slurm: CANCELLED by ") and run["status"] == "stopped", (run, text.decode())
    check_saved(l, "still-1")


def test_keep_brings_what_was_kept(l, c):
    """The laptop was away until the allocation was over."""
    install(l)
    shown = l.start("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--no-workdir",
                    "--name", "wish-1", "--pull", "--artifacts", "out.bin", "--artifacts", "early.pt", "--",
                    "bash", "-c", SAVES)
    wait_until(lambda: b"line 2" in l.run("logs", "wish-1", code=None).stdout, "wish-1 works")
    shown.send_signal(signal.SIGKILL)
    shown.communicate()
    jobs = {"wish-1": run_of(l, "wish-1")["node"].split("/")[-1]}
    for name, options in (("wish-2", ("--pull",)), ("wish-3", ("--pull", "--down"))):
        jobs[name] = saving(l, name, options)
    for job in jobs.values():
        c.scancel(job)
    wait_until(lambda: all(is_over(c, job) for job in jobs.values()), "the allocations are over")
    said = l.run("keep")
    for name in jobs:
        assert os.path.exists(os.path.join(l.work, name, "out.bin")), (name, said)
        assert run_of(l, name)["wishes"] == [], run_of(l, name)
        check_saved(l, name)
    again = l.run("keep")
    assert b"wish" not in again.stderr and b"pull" not in again.stderr, again


def test_without_a_shared_file_system(l, c):
    job = saving(l, "alone-1")
    c.scancel(job)
    wait_until(lambda: is_over(c, job), "the allocation is over")
    run = told(l, "alone-1")
    assert run["reason"] == "Slurm: CANCELLED by " + c.user, run
    # What had come home is there, and nothing else can come.
    assert b"line 2" in l.run("logs", "alone-1").stdout
    refused = l.run("pull", "alone-1", code=None)
    assert refused.returncode != 0 and b"what was not brought home before is gone with it" in refused.stderr, refused
    check_clean(c)


test_without_a_shared_file_system.cluster = {"shared_home": False, **PATIENT}


def test_a_holder_that_is_killed(l, c):
    job = saving(l, "again-1")
    node = c.squeue(job, "%N")
    holders = [one["pid"] for one in c.processes(node) if one["argv"][1:2] == ["hold"]]
    c.machines[node].run(["kill", "-9", *map(str, holders)])
    seen = len(l.run("logs", "again-1", code=None).stdout)
    wait_until(lambda: len(l.run("logs", "again-1", code=None).stdout) > seen, "the run goes on")
    l.run("down", "--yes", "--force", "again-1")
    c.wait_sacct(job, "CANCELLED")
    # The user ended it first.
    assert told(l, "again-1")["reason"] == "user"
    check_saved(l, "again-1")
    kept = os.path.join(c.home, ".gpuctl-results")
    held = [file for _, _, files in os.walk(kept) for file in files]
    assert "out.bin" in held and "end.json" in held, held
    gone = l.json("rm", "again-1")["runs"][0]
    assert gone["action"] == "removed" and gone["freed_bytes"] > 1000000, gone
    assert kept_in(kept) == [], kept_in(kept)
    check_clean(c)


def wrapped(c, name, text):
    """Puts a script before a program of Slurm's; it has the program's arguments, and $real. Returns the file in
    which each call is a line."""
    folder = os.path.join(c.home, "bin")
    os.makedirs(folder, 0o755, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write("#!/bin/sh\nreal=/usr/bin/%s\n%s" % (name, text))
    os.chmod(path, 0o755)
    return os.path.join(c.home, "asked")


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().splitlines()


def test_an_sbatch_that_is_killed_in_flight(l, c):
    # The controller takes the job, and nobody hears of it.
    log = wrapped(c, "sbatch", "case $* in *--test-only*) exec $real \"$@\" ;; esac\n"
                  "echo sbatch >> ~/asked\n$real \"$@\" >/dev/null\nkill -9 $$\n")
    l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--no-workdir",
          "--name", "flight-1", "--", "sleep", "600", code=None)
    wait_until(lambda: l.run("reap", "--yes", code=None).returncode == 0, "the intent is settled")
    assert lines_of(log) == ["sbatch"], lines_of(log)
    l.run("down", "--all", "--yes", code=None)
    wait_until(lambda: not c.run(["squeue", "-h", "--me"]).stdout, "nothing of ours is queued")
    assert l.json("instances")["instances"] == []


def test_fifty_jobs_are_one_question(l, c):
    c.fill(0)
    log = wrapped(c, "squeue", "echo squeue >> ~/asked\nexec $real \"$@\"\n")
    script = "for i in $(seq 10 59); do sbatch -J gpuctl-0123abcd-0123456789$i -o /dev/null --gres=gpu:4 " \
             "--wrap 'sleep 600' >/dev/null || exit; done"
    c.run(["sh", "-c", script], timeout=300)
    listed = l.json("instances", code=None)["instances"]
    assert len(listed) == 50, len(listed)
    assert lines_of(log) == ["squeue"], lines_of(log)
    c.scancel("-u", c.user)


for test in (test_an_sbatch_that_is_killed_in_flight, test_fifty_jobs_are_one_question):
    test.cluster = {**PATIENT, "path": "PATH=%s/bin:/usr/local/bin:/usr/bin:/bin" % HOME}


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    for test in tests.values():
        test.cluster = getattr(test, "cluster", PATIENT)
    return run_tests(sys.argv[1:], tests)


if __name__ == "__main__":
    sys.exit(main())

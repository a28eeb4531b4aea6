#!/usr/bin/env python3
"""Runs in allocations of a real Slurm: gpuctl as people use it, through the login node's sshd.

  runs_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [TEST...]

CLOUDSIM_LIBRARIES has the stand-in for libcuda.so.1: the cluster's GPUs are devices without a driver.
"""
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from places import HOME, TRAPS, kept_in, launch, left, run_of, run_tests, wait_until  # noqa: E402


def check_ssh(l, c, name, job, place_of_work):
    """OpenSSH's programs in an allocation, whose node has no server for us: commands, a terminal, files, a port."""
    told = "echo $PWD $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES $GPUCTL_ATTEMPT; cat; exit 7"
    said = l.run("ssh", name, "--", "sh", "-c", told, stdin=b"as it is\r\0", code=7).stdout
    assert said == ("%s %s 0 1\n" % (place_of_work, job)).encode() + b"as it is\r\0", said
    terminal = l.run("exec", "-t", name, "--", "sh", "-c", "tty; hostname; exit 3", code=3).stdout.decode().split()
    assert terminal[0].startswith("/dev/pts/") and terminal[1] == c.squeue(job, "%N"), terminal
    l.run("ssh", "--setup")
    options = ["-F", os.path.join(l.env["GPUCTL_STATE_DIR"], "ssh", "config")]
    with open(os.path.join(l.work, "there.bin"), "wb") as file:
        file.write(os.urandom(2000000))
    for way in (["there.bin", "gpuctl-%s:/tmp/there.bin" % name], ["gpuctl-%s:/tmp/there.bin" % name, "back.bin"]):
        subprocess.run(["scp", "-q", *options, *way], cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, check=True,
                       timeout=300)
    assert sha256(os.path.join(l.work, "back.bin")) == sha256(os.path.join(l.work, "there.bin"))
    server = l.start("ssh", name, "--", "sh", "-c", "cd /tmp; exec python3 -u -m http.server --bind 127.0.0.1 0 2>&1")
    port = int(server.stdout.readline().split(b" port ")[1].split()[0])
    forward = l.start("forward", "--json", name, str(port))
    try:
        with urllib.request.urlopen(json.loads(forward.stdout.readline())["url"] + "/there.bin", timeout=300) as file:
            assert file.read() == open(os.path.join(l.work, "back.bin"), "rb").read()
    finally:
        for process in (forward, server):
            process.send_signal(signal.SIGINT)
    assert forward.wait(timeout=300) == 0
    server.communicate(timeout=300)
    # Nothing stays when the connections have ended.
    wait_until(lambda: not [one for one in c.processes(c.squeue(job, "%N")) if "sshd" in one["name"]],
               "no sshd is left in the allocation")
    root = place_of_work.split("/jobs/")[0]
    files = c.machines[c.squeue(job, "%N")].run(["ls", root]).stdout.split()
    assert "jobs" in files and not [file for file in files if file.startswith("sshd")], files


def test_launch_attach_pull_down(l, c):
    offers = l.json("offers", "--provider", "slurm", "--gpu", "H100")["offers"]
    assert [(offer["region"], offer["gpu_count"]) for offer in offers] == [("main", 1), ("low", 1)], offers
    run, job = launch(l, "whole-1", "bash", "-c",
                      "echo job $SLURM_JOB_ID gpus $CUDA_VISIBLE_DEVICES; sleep 3; head -c 3000000 "
                      "/dev/urandom > out.bin; sha256sum out.bin", options=("--artifacts", "out.bin"))
    assert c.squeue(job) == "RUNNING" and c.squeue(job, "%j").startswith("gpuctl-"), run
    place_of_work = l.run("exec", "whole-1", "--", "pwd").stdout.decode()
    assert place_of_work.startswith("/tmp/gpuctl-%d/%s-0/jobs/" % (c.uid, job)), place_of_work
    check_ssh(l, c, "whole-1", job, place_of_work.strip())
    # Nobody is connected now, and the job goes on.
    said = l.run("attach", "whole-1").stdout.decode().split()
    assert said[:4] == ["job", job, "gpus", "0"], said
    l.run("pull", "whole-1")
    with open(os.path.join(l.work, "whole-1", "out.bin"), "rb") as file:
        digest = subprocess.run(["sha256sum"], stdin=file, stdout=subprocess.PIPE, check=True).stdout
    assert digest.decode().split()[0] == said[4], (digest, said)
    assert run_of(l, "whole-1")["status"] == "succeeded"
    l.run("down", "--yes", "whole-1")
    c.wait_sacct(job, "CANCELLED")
    assert l.json("instances")["instances"] == []


def test_a_cancelled_allocation_lets_the_job_save(l, c):
    _, job = launch(l, "cancelled-1", "bash", "-c", TRAPS % (HOME, "cancelled"))
    wait_until(lambda: b"begun" in l.run("logs", "cancelled-1").stdout, "the job has begun")
    c.scancel("-b", "-s", "TERM", job)
    wait_until(lambda: os.path.exists(os.path.join(c.home, "saved-cancelled")), "the job saved")
    wait_until(lambda: c.squeue(job) not in ("RUNNING", "COMPLETING"), "the allocation is over")
    wait_until(lambda: not left(c), lambda: "nothing is left: %s" % left(c))


def test_stop_ends_the_job_and_not_the_allocation(l, c):
    _, job = launch(l, "stopped-1", "bash", "-c", TRAPS % (HOME, "stopped"))
    wait_until(lambda: b"begun" in l.run("logs", "stopped-1").stdout, "the job has begun")
    l.run("stop", "stopped-1")
    assert os.path.exists(os.path.join(c.home, "saved-stopped"))
    assert c.squeue(job) == "RUNNING"
    # The idle allocation is used again.
    l.run("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "2m", "--salvage", "2m",
          "--no-workdir", "--name", "again-1", "--", "true")
    assert run_of(l, "again-1")["node"].endswith("/" + job), run_of(l, "again-1")
    # A run with wishes of its own gets another one.
    with open(os.path.join(l.work, "run.yaml"), "w") as file:
        file.write("name: own\nresources:\n  provider: slurm\n  gpu: H100:1\n"
                   "  slurm: {partition: low, time: 90m, flags: [--comment=mine]}\n"
                   "limits: {time: 5m, salvage: 2m}\nworkdir: .\nrun: sleep 100\n")
    l.run("launch", "--yes", "-d", "run.yaml", "--no-workdir")
    own = next(run for run in l.json("ps")["runs"] if run["name"].startswith("own"))
    number = own["node"].split("/")[-1]
    assert number != job and c.squeue(number, "%P|%l|%k") == "low|1:30:00|mine", c.squeue(number, "%P|%l|%k")
    assert l.json("show", own["name"])["spec"]["slurm"]["partition"] == "low"


def test_a_controller_that_is_silent_ends_nothing(l, c):
    _, job = launch(l, "silent-1", "bash", "-c", TRAPS % (HOME, "silent"))
    c.stop_controller()
    try:
        seen = l.run("instances", "--json", code=None)
        assert b"RUNNING" not in seen.stdout and seen.returncode != 0, seen
        assert run_of(l, "silent-1")["status"] == "running"
    finally:
        c.continue_controller()
    wait_until(lambda: [i["instance_id"] for i in l.json("instances", code=None)["instances"]] == [job],
               "the controller answers again")


def test_an_idle_allocation_that_was_cancelled_is_replaced(l, c):
    _, job = launch(l, "idle-1", "true")
    l.run("attach", "idle-1")
    c.scancel(job)
    wait_until(lambda: c.squeue(job) not in ("RUNNING", "COMPLETING"), "the allocation is over")
    # What was kept of it answers, and starts nothing.
    again = l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "2m", "--salvage", "2m",
                  "--no-workdir", "--name", "idle-2", "--", "true")
    assert b"left out: slurm/%s: it is over: CANCELLED by %s" % (job.encode(), c.user.encode()) in again.stderr, again
    assert not run_of(l, "idle-2")["node"].endswith("/" + job)
    leases = [one["instance_id"] for one in l.json("instances", code=None)["instances"]]
    assert job not in leases and len(leases) == 1, leases


def test_a_suspended_allocation_says_so_and_goes_on_later(l, c):
    _, job = launch(l, "paused-1", "bash", "-c", TRAPS % (HOME, "paused"))
    wait_until(lambda: b"begun" in l.run("logs", "paused-1").stdout, "the job has begun")
    seen = l.run("logs", "paused-1").stdout
    c.machines["login"].run(["scontrol", "suspend", job])
    # Nothing hangs, and what is at home is shown.
    said = l.run("logs", "paused-1", code=123)
    assert said.stdout.startswith(seen) and b"is suspended by Slurm: SUSPENDED" in said.stderr, said
    for verb in (["exec", "paused-1", "--", "true"], ["ssh", "paused-1", "--", "true"], ["pull", "paused-1"]):
        refused = l.run(*verb, code=123)
        assert b"is suspended by Slurm: SUSPENDED" in refused.stderr, refused
    assert run_of(l, "paused-1")["status"] == "running"
    c.machines["login"].run(["scontrol", "resume", job])
    assert l.run("exec", "paused-1", "--", "echo", "there").stdout == b"there\n"
    wait_until(lambda: len(l.run("logs", "paused-1").stdout) > len(said.stdout), "the job goes on")


def test_a_damaged_copy_is_told_and_removed(l, c):
    _, job = launch(l, "cut-1", "bash", "-c", TRAPS % (HOME, "cut"))
    kept = os.path.join(c.home, ".gpuctl-results")
    spec = lambda: glob.glob(os.path.join(kept, "*", job + "-0", "jobs", "*", "spec.json"))
    wait_until(spec, "the holder keeps the job")
    c.scancel(job)
    c.wait_sacct(job, "CANCELLED")
    wait_until(lambda: not left(c), "the allocation is over")
    os.truncate(spec()[0], 40)
    # It has an end, whatever can be read of it.
    l.run("attach", "cut-1", code=None)
    run = run_of(l, "cut-1")
    assert run["status"] not in ("running", "starting") and run["reason"].startswith("Slurm: CANCELLED"), run
    refused = l.run("rm", "--forget", "cut-1", code=None)
    assert refused.returncode and b"damaged" in refused.stderr and b"rm --force cut-1" in refused.stderr, refused
    l.run("rm", "--forget", "--force", "cut-1")
    assert kept_in(kept) == [] and not l.json("ps", "-a")["runs"], kept_in(kept)


def test_down_ends_soon_where_the_controller_is_silent(l, c):
    _, job = launch(l, "mute-1", "bash", "-c", TRAPS % (HOME, "mute"))
    c.stop_controller()
    try:
        began = time.monotonic()
        said = l.run("down", "--yes", "--force", "mute-1", code=122)
        took = time.monotonic() - began
        assert b"Slurm does not answer yet" in said.stderr and b"UNKNOWN" not in said.stderr, said
        # Each question has a limit of its own.
        assert took < 100, (took, said)
    finally:
        c.continue_controller()
    l.run("down", "--yes", "--force", "mute-1")
    c.wait_sacct(job, "CANCELLED")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def test_content_both_ways(l, c):
    big = os.path.join(l.work, "big.bin")
    with open(big, "wb") as file:
        for _ in range(int(os.environ.get("GPUCTL_SLURM_CONTENT_MB", "20"))):
            file.write(os.urandom(1000000))
    kept = os.path.join(c.home, ".gpuctl-results")
    # By the file system that the nodes share with the login node, and through the scheduler's steps.
    for name, way in (("store-1", {}), ("steps-1", {"GPUCTL_SLURM_RESULTS": "off"})):
        shutil.rmtree(kept, ignore_errors=True)
        l.run("launch", "--yes", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage", "5m",
              "--name", name, "--artifacts", "back.bin", "--", "cp", "big.bin", "back.bin", **way)
        stores = glob.glob(os.path.join(kept, "*", "store", "blobs", "trees"))
        assert len(stores) == (0 if way else 1), stores
        left_there = [file for store in stores for file in os.listdir(store) if not file.startswith(".")]
        assert not left_there, left_there
        l.run("pull", name, **way)
        assert sha256(os.path.join(l.work, name, "back.bin")) == sha256(big), name
        l.run("down", "--yes", name, **way)


if __name__ == "__main__":
    sys.exit(run_tests(sys.argv[1:], {name: test for name, test in globals().items()
                                      if name.startswith("test_")}))

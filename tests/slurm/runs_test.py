#!/usr/bin/env python3
"""Runs in allocations of a real Slurm: gpuctl as people use it, through the login node's sshd.

  runs_test.py GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [TEST...]

CLOUDSIM_LIBRARIES has the stand-in for libcuda.so.1: the cluster's GPUs are devices without a driver.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "end_to_end")]
from cluster import HOME, SKIPPED, Cluster, requirements  # noqa: E402
from runs import Laptop, wait_until  # noqa: E402

# Counts until it is told to stop, and then says so in the home directory, which all nodes share.
TRAPS = """trap 'echo saved > %s/saved-%s; exit 0' TERM
echo begun; i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"""


class Agent:
    """The user's own ssh-agent, with the cluster's key."""

    def __init__(self, key):
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", key + ".agent"],
                                        stdout=subprocess.DEVNULL)
        self.env = {"SSH_AUTH_SOCK": key + ".agent"}
        wait_until(lambda: os.path.exists(key + ".agent"), "an ssh-agent")
        subprocess.run(["ssh-add", "-q", key], env={**os.environ, **self.env}, check=True)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def place(gpuctl, fake_job, libraries, proctrack):
    directory = tempfile.mkdtemp(prefix="gpuctl-slurm-test-")
    laptop = Laptop(gpuctl, fake_job)
    try:
        with Cluster(directory, proctrack=proctrack) as c:
            own = os.path.join(c.home, "lib")
            os.mkdir(own)
            shutil.copy(os.path.join(libraries, "libcuda.so.1"), own)
            os.chmod(own, 0o755)
            with open(c.path("slurm/sshd_config"), "a") as file:
                file.write("SetEnv LD_LIBRARY_PATH=%s/lib GPUCTL_SIM_CUDA_DEVICES=1\n" % HOME)
            agent = Agent(c.key)
            try:
                laptop.env.pop("GPUCTL_NODE_ROOT", None)
                laptop.env.update(agent.env)
                laptop.env["GPUCTL_SLURM_HOST"] = "%s@%s:%d" % (c.user, c.host, c.port)
                yield laptop, c
                laptop.run("down", "--all", "--yes", code=None)
                wait_until(lambda: not left(c), lambda: "nothing of ours is left: %s" % left(c))
            finally:
                agent.stop()
    finally:
        shutil.rmtree(laptop.dir, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def left(c):
    """Returns the user's processes on the nodes, and what the holder keeps there."""
    found = []
    for name in c.names:
        found += ["%s: %s" % (name, process) for process in c.processes(name)]
        files = c.machines[name].run(["find", "/tmp", "-path", "/tmp/gpuctl-*/*"], check=False)
        found += ["%s: %s" % (name, file) for file in files.stdout.split()]
    return found


def launch(l, name, *command, options=()):
    l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage",
          "5m", "--no-workdir", "--name", name, *options, "--", *command)
    run = run_of(l, name)
    return run, run["node"].split("/")[-1]


def run_of(l, name):
    return next(run for run in l.json("ps", "-a")["runs"] if run["name"] == name)


def test_launch_attach_pull_down(l, c):
    offers = l.json("offers", "--provider", "slurm", "--gpu", "H100")["offers"]
    assert [(offer["region"], offer["gpu_count"]) for offer in offers] == [("main", 1), ("low", 1)], offers
    run, job = launch(l, "whole-1", "bash", "-c",
                      "echo job $SLURM_JOB_ID gpus $CUDA_VISIBLE_DEVICES; sleep 3; head -c 3000000 "
                      "/dev/urandom > out.bin; sha256sum out.bin", options=("--artifacts", "out.bin"))
    assert c.squeue(job) == "RUNNING" and c.squeue(job, "%j").startswith("gpuctl-"), run
    place_of_work = l.run("exec", "whole-1", "--", "pwd").stdout.decode()
    assert place_of_work.startswith("/tmp/gpuctl-%d/%s-0/jobs/" % (c.uid, job)), place_of_work
    refused = l.run("ssh", "whole-1", code=None).stderr
    assert b"an allocation has no ssh server of its own" in refused, refused
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


def main(argv):
    reason = requirements()
    if reason:
        print("skipped: " + reason)
        return SKIPPED
    gpuctl, fake_job, libraries, *names = argv
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    for proctrack in ("cgroup", "linuxproc"):
        for name in names or tests:
            print("%s, proctrack/%s" % (name, proctrack), flush=True)
            with place(gpuctl, fake_job, libraries, proctrack) as (laptop, c):
                try:
                    tests[name](laptop, c)
                except BaseException:
                    print(c.logs()[-6000:])
                    raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

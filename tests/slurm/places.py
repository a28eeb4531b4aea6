"""A cluster and a laptop that uses it, for tests of runs in allocations of a real Slurm."""
import contextlib
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "end_to_end")]
from cluster import HOME, SKIPPED, Cluster, requirements  # noqa: E402
from runs import Laptop, wait_until  # noqa: E402

HANGS_S = 840  # ctest waits a little longer
# Counts until it is told to stop, and then says so in the home directory, which all nodes share.
TRAPS = """trap 'echo saved > %s/saved-%s; exit 0' TERM
echo begun; i=0; while :; do i=$((i+1)); echo $i; sleep 0.2; done"""


class Agent:
    """The user's own ssh-agent, with the cluster's key."""

    def __init__(self, key):
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", key + ".agent"],
                                        stdout=subprocess.DEVNULL)
        self.env = {"SSH_AUTH_SOCK": key + ".agent"}
        try:
            # Its socket is there before it listens.
            wait_until(lambda: self.has(key), "an ssh-agent with the cluster's key")
        except BaseException:
            self.stop()
            raise

    def has(self, key):
        added = subprocess.run(["ssh-add", "-q", key], env={**os.environ, **self.env},
                               stderr=subprocess.DEVNULL, check=False)
        return added.returncode == 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def place(gpuctl, fake_job, libraries, proctrack, path="", **cluster):
    directory = tempfile.mkdtemp(prefix="gpuctl-slurm-test-")
    laptop = Laptop(gpuctl, fake_job)
    try:
        with Cluster(directory, proctrack=proctrack, **cluster) as c:
            for home in (c.home, *(c.home_of(name) for name in c.names)):
                own = os.path.join(home, "lib")
                if os.path.isdir(home):
                    os.makedirs(own, 0o755, exist_ok=True)
                    shutil.copy(os.path.join(libraries, "libcuda.so.1"), own)
            with open(c.path("slurm/sshd_config"), "a") as file:
                file.write("SetEnv LD_LIBRARY_PATH=%s/lib GPUCTL_SIM_CUDA_DEVICES=1 %s\n" % (HOME, path))
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


def kept_in(directory):
    """Returns the leases of which something is kept there."""
    return [name for name in os.listdir(directory) if not name.startswith(".")]


def launch(l, name, *command, options=()):
    l.run("launch", "--yes", "-d", "--provider", "slurm", "--gpu", "H100", "--time", "10m", "--salvage",
          "5m", "--no-workdir", "--name", name, *options, "--", *command)
    run = run_of(l, name)
    return run, run["node"].split("/")[-1]


def run_of(l, name):
    return next(run for run in l.json("ps", "-a")["runs"] if run["name"] == name)


def run_tests(argv, tests, proctracks=("cgroup", "linuxproc")):
    """Runs tests of the command line GPUCTL FAKE_JOB CLOUDSIM_LIBRARIES [PROCTRACK] [TEST...]; returns the exit
    code."""
    reason = requirements()
    if reason:
        print("skipped: " + reason)
        return SKIPPED
    # What ctest ends says where it was.
    faulthandler.dump_traceback_later(HANGS_S)
    gpuctl, fake_job, libraries, *names = argv
    if names and names[0] in proctracks:
        proctracks = names.pop(0),
    for proctrack in proctracks:
        for name in names or tests:
            print("%s, proctrack/%s" % (name, proctrack), flush=True)
            test = tests[name]
            with place(gpuctl, fake_job, libraries, proctrack, **getattr(test, "cluster", {})) as (laptop, c):
                began = time.monotonic()
                try:
                    test(laptop, c)
                    print("  %.0f s" % (time.monotonic() - began), flush=True)
                except BaseException:
                    print(c.logs()[-6000:])
                    raise
    return 0

#!/usr/bin/env python3
"""The test cluster does what Slurm does, and leaves nothing behind.

  cluster_test.py [unittest's arguments]
  cluster_test.py --kills COUNT     kills a cluster's owner with -9 at COUNT random moments
"""
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import cluster
import record
from cluster import LOCKS, SKIPPED, UID, Cluster, Patience, cgroup_mounts, remove_leftovers, requirements

# What this machine can have; both ways leave the same behind.
PROCTRACK = "linuxproc" if requirements("cgroup") else "cgroup"
CHANNEL = ["srun", "-u", "-Q", "--mpi=none", "--overlap", "--jobid"]


def wait_until(condition, what):
    patience = Patience()
    while not condition():
        assert patience.lasts(), what() if callable(what) else what
        time.sleep(0.02)


def channel(job, command):
    return [*CHANNEL, job, "sh", "-c", command]


def begin_of(pid):
    """Returns when a process was started, in ticks; with its number that names it for ever."""
    with open("/proc/%s/stat" % pid) as file:
        return file.read().rpartition(")")[2].split()[19]


def inside(*machines):
    """Returns the processes in machines: {(number outside, begin)}."""
    found, spaces = set(), {machine.namespace for machine in machines}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink("/proc/%s/ns/pid" % pid) in spaces:
                found.add((pid, begin_of(pid)))
        except OSError:
            pass
    return found


def alive(processes):
    """Returns those of `processes` that there still are."""
    found = set()
    for pid, begin in processes:
        try:
            if begin_of(pid) == begin:
                found.add(pid)
        except OSError:
            pass
    return found


def traces(name, directory=None):
    """Returns what there is of the cluster `name`: processes, cgroups, mounts, its lock, its directory."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if name.encode() in file.read():
                    found.append("process " + pid)
        except OSError:
            pass
    for where in set(cgroup_mounts().values()):
        found += [entry.path for entry in os.scandir(where) if entry.name.startswith(name)]
    with open("/proc/self/mountinfo") as file:
        found += ["mount " + line for line in file if name in line]
    if os.path.exists(os.path.join(LOCKS, name)):
        found.append("lock " + name)
    if directory:
        found += [os.path.join(directory, entry) for entry in os.listdir(directory) if name in entry]
    return found


def interfaces():
    """Returns the interfaces of this machine's network."""
    return subprocess.run(["ip", "-o", "link"], stdout=subprocess.PIPE, text=True, check=True).stdout


class Started(unittest.TestCase):
    """Tests of one cluster after another in it. Each leaves it idle."""

    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="slurm-test-")
        cls.addClassCleanup(cls.directory.cleanup)
        cls.c = cls.enterClassContext(Cluster(cls.directory.name, **cls.OPTIONS))
        print("%s: up after %.1f s" % (cls.__name__, cls.c.started_in_s), flush=True)

    def tearDown(self):
        self.c.run(["scancel", "-u", self.c.user])
        self.c.wait_until(lambda: not self.c.run(["squeue", "-h", "--me"]).stdout, "no job is left")
        self.c.wait_until(lambda: self.c.states() == ["idle"] * len(self.c.names), "the nodes are idle")

    def running(self, script="sleep 3600", *options):
        job = self.c.sbatch(script, *options)
        self.c.wait_state(job, "RUNNING")
        return job

    def setUp(self):
        began = time.monotonic()
        self.addCleanup(lambda: print("(%.1f s) " % (time.monotonic() - began), end="", flush=True))

    def named(self, node, name):
        """Returns the user's processes on a node that have `name` in their command lines."""
        return [one for one in self.c.processes(node) if name in " ".join(one["argv"])]


class WithCgroups(Started):
    @classmethod
    def setUpClass(cls):
        if requirements("cgroup"):
            raise unittest.SkipTest(requirements("cgroup"))
        super().setUpClass()

    def test_srun_on_both_nodes(self):
        done = self.c.run(["srun", "-N2", "-l", "hostname"])
        self.assertEqual(sorted(done.stdout.splitlines()), ["0: n1", "1: n2"])

    def test_the_login_node(self):
        self.assertEqual(self.c.run(["sh", "-c", "hostname; id -un; pwd"]).stdout, "login\nada\n/home/ada\n")
        self.assertEqual(self.c.run(["sh", "-c", "echo $HOME; exit 3"], check=False).returncode, 3)
        self.assertEqual(self.c.run(["sleep", "60"], timeout=1, check=False).returncode, 124)
        # Another key is not let in.
        other = os.path.join(self.directory.name, "other")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
        argv = [other if word == self.c.key else word for word in self.c.ssh(["true"])]
        argv[1:3] = ["-F", "/dev/null", "-i", other, "-p", str(self.c.port), "-o", "BatchMode=yes",
                     "-o", "UserKnownHostsFile=" + self.c.known_hosts]
        argv[argv.index("slurm")] = "ada@" + self.c.host
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
                              timeout=300)
        self.assertIn("Permission denied", done.stderr)

    def test_home_is_shared_and_tmp_is_not(self):
        job = self.running("sleep 3600", "-N2", "--ntasks-per-node=1")
        own = "/tmp/own-" + self.c.name
        self.c.run(channel(job, "hostname > shared-$(hostname); hostname > %s; ls /tmp" % own))
        self.assertEqual(self.c.run(["sh", "-c", "cat shared-*; ls /tmp"]).stdout, "n1\nn2\n")
        with open(os.path.join(self.c.home, "shared-n2")) as file:
            self.assertEqual(file.read(), "n2\n")
        seen = self.c.run(channel(job, "cat " + own)).stdout
        self.assertEqual(sorted(seen.split()), ["n1", "n2"])
        self.assertFalse(os.path.exists(own))

    def test_gpus(self):
        job = self.running("sleep 3600", "--gres=gpu:h100:3", "-w", "n2")
        self.assertEqual(self.c.run(channel(job, "echo $CUDA_VISIBLE_DEVICES")).stdout, "0,1,2\n")
        listed = self.c.run(channel(job, "nvidia-smi --query-gpu=index,uuid --format=csv,noheader")).stdout
        self.assertEqual(listed, "".join("%d, GPU-n2-%d\n" % (i, i) for i in range(4)))
        self.assertEqual(self.c.run(channel(job, "test -c /dev/nvidia3 && echo device")).stdout, "device\n")
        second = self.c.sbatch("true", "--gres=gpu:2", "-w", "n2")
        self.c.wait_until(lambda: self.c.squeue(second, "%r") == "Resources", "it waits for GPUs")
        self.c.scancel(job)
        self.c.wait_sacct(second, "COMPLETED")

    def test_a_channel_is_byte_equal(self):
        job = self.running()
        content = os.urandom(20_000_000)
        done = self.c.run(channel(job, "cat"), input=content, text=False)
        self.assertTrue(done.stdout == content, "%d bytes came back" % len(done.stdout))
        self.assertEqual(done.stderr, b"")
        self.assertEqual(self.c.run(channel(job, "exit 37"), check=False).returncode, 37)

    def test_scancel_ends_all_of_a_job(self):
        job = self.running("(setsid sleep 1111 &); sleep 1112", "-w", "n1")
        self.c.wait_until(lambda: len(self.named("n1", "sleep 111")) == 2, "both run")
        self.assertEqual(self.named("n2", "sleep 111"), [])
        self.assertEqual(self.named("login", "sleep 111"), [])
        self.c.scancel(job)
        self.c.wait_sacct(job, "CANCELLED")
        self.assertEqual(self.c.sacct(job), ["CANCELLED by %d" % UID])
        self.c.wait_until(lambda: not self.named("n1", "sleep 111"), "none runs")

    def test_a_controller_that_hangs(self):
        job = self.running("sleep 3600", "-w", "n1")
        self.c.wait_sacct(job, "RUNNING")  # known to the database, too
        self.c.stop_controller()
        try:
            for argv in (["squeue", "-h"], ["sinfo", "-h"], ["scancel", job],
                         ["sbatch", "--parsable", "--wrap", "true"]):
                done = self.c.run(argv, timeout=2, check=False)
                self.assertEqual((done.returncode, done.stdout), (124, ""), argv)
            self.assertIsNone(self.c.states())
            self.assertEqual(self.c.sacct(job), ["RUNNING"])
        finally:
            self.c.continue_controller()
        self.c.wait_until(lambda: self.c.states() is not None, "it answers again")

    def test_a_controller_that_dies(self):
        job = self.running("sleep 1113", "-w", "n1")
        with subprocess.Popen(self.c.ssh(channel(job, "cat")), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as open_channel:
            open_channel.stdin.write(b"before")
            open_channel.stdin.flush()
            self.assertEqual(open_channel.stdout.read(6), b"before")
            self.c.wait_saved()
            self.c.kill_controller()
            done = self.c.run(["scancel", job], timeout=300, check=False)
            self.assertNotIn(done.returncode, (0, 124))
            self.assertIn("Unable to contact slurm controller", done.stderr)
            open_channel.stdin.write(b"meanwhile")
            open_channel.stdin.flush()
            self.assertEqual(open_channel.stdout.read(9), b"meanwhile")
            self.c.start_controller()
            open_channel.stdin.close()
            self.assertEqual(open_channel.wait(timeout=300), 0)
        self.assertEqual(self.c.squeue(job), "RUNNING")
        self.assertEqual(len(self.named("n1", "sleep 1113")), 1)

    def test_a_node_that_is_cut_off(self):
        back, lost = (self.running("sleep 111%d" % i, "-w", "n2", option)
                      for i, option in ((4, "--requeue"), (5, "--no-requeue")))
        self.c.cut("n2")
        try:
            self.c.wait_sacct(lost, "NODE_FAIL")
            self.c.wait_until(lambda: self.c.states()[1].startswith("down"), "the node is down")
            self.assertEqual(self.c.states()[0], "idle")
            self.c.wait_state(back, "PENDING")
            self.assertEqual(self.c.sacct(back)[0], "NODE_FAIL")
            # Cut off, not switched off.
            self.assertEqual(len(self.named("n2", "sleep 1114")), 1)
        finally:
            self.c.heal("n2", gone=lambda: not self.named("n2", "sleep 111"))
        self.c.wait_until(lambda: self.c.states() == ["idle", "idle"], "the node is back")

    def test_preemption(self):
        low = self.c.low_priority_job("sleep 3600", "-w", "n1")
        self.c.wait_state(low, "RUNNING")
        high = self.running("sleep 3600", "-w", "n1", "--gres=gpu:4")
        self.c.wait_state(low, "PENDING")
        self.assertEqual(self.c.sacct(low)[0], "PREEMPTED")
        self.assertEqual(self.c.squeue(high), "RUNNING")

    def test_fill(self):
        holding, waiting = self.c.fill(3)
        self.assertEqual([self.c.squeue(job) for job in holding], ["RUNNING"] * 2)
        self.assertEqual([self.c.squeue(job) for job in waiting], ["PENDING"] * 3)


class WithLinuxproc(Started):
    OPTIONS = {"proctrack": "linuxproc", "accounting": False, "nodes": 1, "gpus": ""}

    def test_what_leaves_the_session_outlives_the_job(self):
        job = self.running("(setsid sleep 1116 &); sleep 1117")
        self.c.wait_until(lambda: len(self.named("n1", "sleep 111")) == 2, "both run")
        self.c.scancel(job)
        self.c.wait_until(lambda: self.c.squeue(job) in ("", "CANCELLED"), "the job is over")
        self.assertEqual(len(self.named("n1", "sleep 1116")), 1)
        self.assertEqual(self.named("n1", "sleep 1117"), [])
        self.c.machines["n1"].run(["kill", str(self.named("n1", "sleep 1116")[0]["pid"])])

    def test_there_is_no_sacct(self):
        done = self.c.run(["sacct"], check=False)
        self.assertEqual((done.returncode, "accounting storage is disabled" in done.stderr), (1, True))

    def test_gpus_without_a_type(self):
        self.assertEqual(self.c.run(["sinfo", "-h", "-p", "main", "-o", "%G"]).stdout, "gpu:4\n")


class WithoutSharedHome(Started):
    OPTIONS = {"proctrack": "linuxproc", "accounting": False, "shared_home": False}

    def test_each_node_has_a_home(self):
        job = self.running("sleep 3600", "-N2", "--ntasks-per-node=1")
        self.c.run(channel(job, "hostname > ~/own"))
        self.assertEqual(self.c.run(["sh", "-c", "ls ~"]).stdout, "")
        for name in self.c.names:
            with open(os.path.join(self.c.home_of(name), "own")) as file:
                self.assertEqual(file.read(), name + "\n")

    def test_a_node_loses_its_power(self):
        job = self.running("echo here > /tmp/here; sleep 3600", "-w", "n2", "--no-requeue")
        processes = inside(self.c.machines["n2"])
        self.assertEqual(alive(processes), {pid for pid, _ in processes})
        self.c.power_off("n2")
        wait_until(lambda: not alive(processes), "no process of it is left")
        self.c.wait_until(lambda: self.c.states()[1].startswith("down"), "the node is down")
        self.assertIn(self.c.squeue(job), ("", "NODE_FAIL"))
        self.c.power_on("n2")
        self.c.wait_until(lambda: self.c.states() == ["idle", "idle"], "the node is back")
        self.assertEqual(self.c.run(["srun", "-w", "n2", "sh", "-c", "hostname; ls /tmp"]).stdout, "n2\n")


class Ends(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="slurm-test-"))

    def test_nothing_is_left(self):
        with Cluster(self.directory, PROCTRACK) as c:
            c.wait_state(c.sbatch("setsid sleep 1118 & sleep 1119", "-N2"), "RUNNING")
            name, path, processes = c.name, c.dir, inside(*c.machines.values())
            # Three machines, a controller, a database and its server, two nodes, and the job.
            self.assertGreater(len(processes), 12)
            self.assertEqual(any(trace.startswith("/sys") for trace in traces(name)), PROCTRACK == "cgroup")
            self.assertIn("to-n1", c.machines["login"].run(["ip", "-o", "link"]).stdout)
            # The machine's own network and mounts do not have the cluster's, not even now.
            self.assertNotIn("to-n1", interfaces())
            self.assertFalse([trace for trace in traces(name) if trace.startswith("mount")])
        wait_until(lambda: not alive(processes), "no process is left")
        self.assertEqual(traces(name, self.directory), [])
        self.assertFalse(os.path.exists(path))
        self.assertNotIn("to-n1", interfaces())

    def test_two_at_once(self):
        with Cluster(self.directory, PROCTRACK, nodes=1) as first, \
                Cluster(self.directory, PROCTRACK, nodes=1) as second:
            jobs = [c.sbatch("hostname; sleep 3600") for c in (first, second)]
            self.assertEqual(jobs[0], jobs[1])  # each counts for itself
            for c in (first, second):
                c.wait_state(jobs[0], "RUNNING")
            first.scancel(jobs[0])
            first.wait_sacct(jobs[0], "CANCELLED")
            self.assertEqual(second.squeue(jobs[1]), "RUNNING")
            first.stop()
            self.assertEqual(second.run(["srun", "hostname"]).stdout, "n1\n")
            names = (first.name, second.name)
            self.assertEqual(traces(names[0], self.directory), [])
            self.assertNotEqual(traces(names[1], self.directory), [])

    def test_a_living_cluster_is_no_leftover(self):
        with Cluster(self.directory, PROCTRACK, nodes=1, accounting=False) as c:
            remove_leftovers()
            self.assertEqual(c.run(["srun", "hostname"]).stdout, "n1\n")

    def test_the_owner_is_killed(self):
        kill_owner(self.directory)

    def test_the_owner_is_killed_at_random_moments(self):
        for i in range(4):
            kill_at_any_moment(self.directory, keeper_too=i % 2 == 1)

    def test_owner_and_keeper_are_killed(self):
        owner, name = start_owner(self.directory)
        try:
            self.assertIn("up", owner.stdout.readline())
            keeper = [int(trace.split()[1]) for trace in traces(name) if is_keeper(trace)]
            self.assertEqual(len(keeper), 1)
            os.kill(keeper[0], signal.SIGKILL)
        finally:
            owner.kill()
            owner.communicate()
        wait_until(lambda: not [trace for trace in traces(name) if trace.startswith("process")], "all has ended")
        self.assertNotEqual(traces(name, self.directory), [])
        wait_until(lambda: remove_leftovers() or not traces(name, self.directory), "the leftovers are gone")

    def test_the_umask_of_the_test_does_not_matter(self):
        self.addCleanup(os.umask, os.umask(0o077))
        with Cluster(self.directory, PROCTRACK, nodes=1, accounting=False) as c:
            self.assertEqual(c.run(["srun", "sh", "-c", "hostname > ~/seen; umask"]).stdout, "0022\n")

    def test_a_start_that_fails_leaves_nothing(self):
        c = Cluster(self.directory, PROCTRACK, nodes=1, accounting=False, config=["SelectType=nothing"])
        with mock.patch.object(cluster, "DEADLINE_S", 5), self.assertRaises(cluster.ClusterError):
            c.wait_until = lambda condition, what: Cluster.wait_until(c, condition, what, 3)
            with c:
                pass
        self.assertEqual(traces(c.name, self.directory), [])


class Requirements(unittest.TestCase):
    def test_the_reason_is_said(self):
        with mock.patch.object(cluster, "PROGRAMS", ("sh", "no-such-program")):
            self.assertIn("no-such-program", requirements())
        with mock.patch.object(cluster, "cgroup_mounts", lambda: {"freezer": "/"}):
            self.assertEqual(requirements("linuxproc"), "")
            self.assertIn("no cgroups of version 1 for cpuset", requirements())

    def test_without_root_it_is_skipped(self):
        done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-I", "-c",
                               "exec(open(0).read())"], input=UNPRIVILEGED % os.path.dirname(cluster.__file__),
                              text=True, stdout=subprocess.PIPE, check=False, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (SKIPPED, "NOT TESTED: this is not root\n"))


class Recorded(unittest.TestCase):
    def test_the_answers_are_to_what_is_asked_today(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
        with open(os.path.join(folder, "commands.txt")) as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
        commands = {name: command for name, _, _, command in lines}
        self.assertEqual(len(commands), len(lines))
        self.assertEqual(commands["sinfo_idle"], shlex.join(record.SINFO))
        self.assertEqual(commands["squeue_waiting"], shlex.join(record.SQUEUE), "run tests/slurm/record.py")
        self.assertEqual({name for name in os.listdir(folder) if name.endswith(".out")},
                         {name + ".out" for name in commands})


UNPRIVILEGED = "import sys; sys.path.insert(0, %r); import cluster; sys.argv = ['x']; sys.exit(cluster.main())"

# Says its name, then that it is up, and waits to be killed.
OWNER = """
import sys, time
sys.path.insert(0, %r)
from cluster import Cluster
class Told(Cluster):
    def claim(self):
        print("began", flush=True)
        super().claim()
        print(self.name, flush=True)
with Told(%r, %r, nodes=1) as c:
    c.sbatch("setsid sleep 1120 & sleep 1121")
    print("up", flush=True)
    sys.stdin.read()
"""


def is_keeper(trace):
    kind, _, pid = trace.partition(" ")
    if kind != "process":
        return False
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return b"--keep" in file.read()
    except OSError:  # it has ended meanwhile
        return False


def start_owner(directory):
    """Starts a process that owns a cluster. Returns it and the cluster's name."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER % (os.path.dirname(cluster.__file__), directory, PROCTRACK)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout.readline() == "began\n"
    return owner, owner.stdout.readline().strip()


def kill_at_any_moment(directory, keeper_too):
    """Kills an owner with -9 between the first and the last step of its start, with or without its
    keeper. Returns how many traces there were."""
    owner = subprocess.Popen([sys.executable, "-c", OWNER % (os.path.dirname(cluster.__file__), directory, PROCTRACK)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout.readline() == "began\n"
        # Any moment is right. Most of the short steps come first.
        time.sleep(random.uniform(0, random.choice((0.03, 0.15, 0.6, 6))))
        reached = sum(len(traces(name, directory)) for name in owned(directory))
        for name in owned(directory) if keeper_too else ():
            for trace in traces(name):
                if is_keeper(trace):
                    os.kill(int(trace.split()[1]), signal.SIGKILL)
    finally:
        owner.kill()
        names = set(owner.communicate()[0].split()[:1]) - {"up"}
    for name in names:
        if keeper_too:
            # As the next cluster does when it starts. A process that the kernel is about to end has its
            # lock for a moment longer than its arguments.
            wait_until(lambda name=name: remove_leftovers() or not traces(name, directory),
                       lambda name=name: "left: %s" % traces(name, directory))
        wait_until(lambda name=name: not traces(name, directory),
                   lambda name=name: "left: %s" % traces(name, directory))
    if not names:
        # It had not said its name; what it had begun is no more than a lock.
        wait_until(lambda: remove_leftovers() or not owned(directory), lambda: "left: %s" % owned(directory))
    assert not os.listdir(directory), os.listdir(directory)
    return reached


def owned(directory):
    """Returns the names of the clusters that have their directories in `directory`."""
    found = []
    for name in os.listdir(LOCKS) if os.path.isdir(LOCKS) else ():
        try:
            with open(os.path.join(LOCKS, name)) as file:
                if os.path.dirname(file.read()) == os.path.abspath(directory):
                    found.append(name)
        except FileNotFoundError:
            pass
    return found


def kill_owner(directory):
    """Kills an owner with -9 whose cluster is up."""
    owner, name = start_owner(directory)
    try:
        assert owner.stdout.readline() == "up\n"
        assert len(traces(name, directory)) > 5, traces(name, directory)
    finally:
        owner.kill()
        owner.communicate()
    wait_until(lambda: not traces(name, directory), lambda: "left: %s" % traces(name, directory))


def main():
    reason = requirements(PROCTRACK)
    if reason:
        print("NOT TESTED: " + reason)
        return SKIPPED
    if sys.argv[1:2] == ["--kills"]:
        with tempfile.TemporaryDirectory(prefix="slurm-test-") as directory:
            for i in range(int(sys.argv[2])):
                reached = kill_at_any_moment(directory, keeper_too=i % 2 == 1)
                print("kill %d: %d traces before, none after" % (i + 1, reached), flush=True)
        return 0
    return not unittest.main(exit=False, verbosity=2).result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())

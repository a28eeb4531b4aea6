#!/usr/bin/env python3
"""An arm64 node and an x86-64 laptop, over the real path: gpuctl here; sshd, agent, shim and job in
an arm64 Debian that qemu runs.

  node_test.py SOURCE GPUCTL FAKE_JOB [TEST...]      as root, with `deploy/packages.sh build test`

The first run makes the Debian and the programs for arm64, which takes about 20 minutes on two
processors (build/arm64/*.log shows how far it is); the others take two. So the test has a label of
its own, which neither `./test` nor CI runs: `./test --label arm64`. It ends with 77, and says why,
where it cannot run: not as root, on another processor, or on Linux before 6.7.

The kernel is this machine's, which would run an x86-64 program that was sent by mistake. So the test
looks at what lies on the node, and at what its processes are.
"""
import contextlib
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "end_to_end")]

from emulation import NotPossible, die_with
from runs import DEADLINE_S, Laptop, open_gate
from sync import eventually, read, read_bytes, write
from system import Node, System

SKIPPED = 77
AARCH64 = 183
# What qemu is told in each sshd's environment, by the size of the pages. The one with large pages is
# an old processor as well: its instructions are those that every arm64 has.
QEMU = {4096: {}, 65536: {"QEMU_PAGESIZE": "65536", "QEMU_CPU": "cortex-a53"}}
MADE = "GPUCTL_ARM64_MADE"


class ArmLaptop(Laptop):
    """A laptop with programs for arm64, and its node."""

    def __init__(self, system, gpuctl, fake_job):
        super().__init__(gpuctl, fake_job)
        self.system = system
        key = os.path.join(self.dir, "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.node = Node(system, key + ".pub", QEMU, os.path.join(self.dir, "sshd.log"))
        # The processes of a node are found by its root, so that must be nobody else's.
        self.root = "/tmp/" + os.path.basename(self.dir)
        self.env["GPUCTL_NODE_ROOT"] = self.root
        self.env["GPUCTL_NODE_DIR"] = system.programs
        self.host = self.host_with_pages(4096)
        self.started = []

    def host_with_pages(self, size):
        return ["--host", "root@127.0.0.1:%d" % self.node.ports[size], "-i",
                os.path.join(self.dir, "key")]

    def launch(self, *args, code=0, **env):
        return self.run("launch", "-y", *self.host, *args, code=code, **env)

    def held_job(self, name):
        """Starts a detached run that waits at the gate that it returns."""
        gate = "/tmp/%s.gate" % name
        os.mkfifo(self.node.path(gate))
        self.launch("-d", "--no-workdir", "--name", name, "--", "sh", "-c",
                    "echo begin; read line < %s; echo end $line" % gate)
        return self.node.path(gate)

    def run_named(self, name):
        return next(run for run in self.json("ps", "-a")["runs"] if run["name"] == name)

    def start(self, *args):
        me = os.getpid()
        self.started.append(subprocess.Popen(
            [self.gpuctl, *args], cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=lambda: die_with(me)))
        return self.started[-1]

    def close(self):
        # After a failure they would go on, and look for the node.
        for process in self.started:
            process.kill()
            process.wait()
        self.node.close()
        super().close()


class SecondLaptop(ArmLaptop):
    """Another laptop at the node of `first`, with programs of its own when `build` is given."""

    def __init__(self, first, name, build=None):
        self.__dict__.update(first.__dict__)
        self.dir = os.path.join(first.dir, name)
        self.work = os.path.join(self.dir, "work")
        os.makedirs(self.work)
        shutil.copy(first.dir + "/key", self.dir)
        self.host = self.host_with_pages(4096)
        self.env = {**first.env, "GPUCTL_STATE_DIR": os.path.join(self.dir, "state"),
                    "GPUCTL_CACHE_DIR": os.path.join(self.dir, "cache")}
        if build is None:
            return
        programs = os.path.join(self.dir, "programs")
        shutil.copytree(first.system.programs, programs)
        os.unlink(programs + "/manifest.json")
        with open(programs + "/linux-aarch64/gpuctl-agent", "ab") as file:
            file.write(b"build %d" % build)
        for program in os.listdir(programs + "/linux-aarch64"):
            # A later build displaces an earlier one.
            later = time.time() + 1000 * build
            os.utime(os.path.join(programs, "linux-aarch64", program), (later, later))
        self.env["GPUCTL_NODE_DIR"] = programs


def machine_of(program):
    with open(program, "rb") as file:
        head = file.read(20)
    assert head[:4] == b"\x7fELF", (program, head)
    return struct.unpack("<H", head[18:20])[0]


def bundles(l):
    return {name for name in os.listdir(l.node.path(l.root + "/bin")) if len(name) == 32}


def current(l):
    return os.path.basename(os.readlink(l.node.path(l.root + "/bin/current")))


def read_of_process(pid, name):
    with contextlib.suppress(OSError):
        return read_bytes("/proc/%d/%s" % (pid, name))
    return b""


def processes(l, program, *command):
    """Returns the node's processes of this program and command: {pid: bundle}."""
    found = {}
    wanted = [word.encode() for word in command]
    for pid in l.node_pids():
        # qemu, the program's path, its argv[0], its arguments
        words = read_of_process(pid, "cmdline").split(b"\0")
        if len(words) > 3 and os.path.basename(words[1]) == program.encode() and (
                words[3:3 + len(wanted)] == wanted):
            found[pid] = words[1].split(b"/")[-2].decode()
    return found


def processes_of_job(l, name):
    mark = b"GPUCTL_JOB_ID=" + l.run_named(name)["job_id"].encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if mark in read_of_process(pid, "environ").split(b"\0")]


def one_agent_of(l, bundle):
    return all(list(processes(l, "gpuctl-agent", command, "--root").values()) == [bundle]
               for command in ("guard", "server"))


def state_of(l, name):
    run = l.run_named(name)
    return run["status"], run["exit_code"]


def test_doctor(l):
    done = l.run("doctor", *l.host)
    assert b"Linux aarch64" in done.stdout and b"FAIL" not in done.stdout, done.stdout.decode()


def test_what_is_sent_and_runs_is_for_arm64(l):
    write(l.work + "/here/a.txt", "alpha\n")
    done = l.launch("--workdir", "here", "--", "sh", "-c",
                    "cat a.txt; uname -m; dpkg --print-architecture; echo err >&2; exit 7", code=7)
    assert done.stdout == b"alpha\naarch64\narm64\nerr\n", done.stdout
    (bundle,) = bundles(l)
    folder = l.node.path("%s/bin/%s/" % (l.root, bundle))
    assert sorted(os.listdir(folder)) == ["api_level", "gpuctl-agent", "gpuctl-shim", "roots.pem",
                                          "version"], os.listdir(folder)
    for name in ("gpuctl-agent", "gpuctl-shim"):
        assert machine_of(folder + name) == AARCH64, name
        ours = read_bytes(os.path.join(l.system.programs, "linux-aarch64", name))
        assert read_bytes(folder + name) == ours, name
    pids = list(l.node_pids())
    assert pids
    for pid in pids:
        # As the namespace's mount shows it, by whatever path.
        assert os.path.basename(os.readlink("/proc/%d/exe" % pid)) == "qemu-aarch64-static", pid


def test_detach_and_attach(l):
    gate = l.held_job("held-1")
    assert l.run_named("held-1")["status"] == "running"
    attached = l.start("attach", "held-1")
    assert attached.stdout.readline() == b"begin\n"
    assert l.run("exec", "held-1", "--", "uname", "-m").stdout == b"aarch64\n"
    open_gate(gate)
    out, err = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, out) == (0, b"end now\n"), (out, err)
    assert l.run("logs", "held-1").stdout == b"begin\nend now\n"


def test_stop_lets_the_job_save(l):
    l.launch("-d", "--no-workdir", "--name", "stopped-1", "--", "sh", "-c",
             "trap 'echo saved > saved; exit 3' TERM; echo up; while :; do sleep 0.1; done")
    run = l.json("stop", "stopped-1")["runs"][0]
    assert (run["status"], run["reason"], run["exit_code"]) == ("stopped", "user", 3), run
    l.run("pull", "stopped-1", "saved", "--to", "kept")
    assert read(l.work + "/kept/saved") == "saved\n"


MAKE_RESULTS = """
mkdir out
head -c 3000000 /dev/urandom > out/random
head -c 70000 /dev/zero > out/zeros
chmod 755 out/zeros
d=$GPUCTL_CHECKPOINT_DIR
mkdir -p $d/.tmp
head -c 200000 /dev/urandom > $d/.tmp/weights
printf '{"format":1,"step":2,"files":[{"path":"weights","size":200000,"sha256":"%s"}]}' \
  $(sha256sum < $d/.tmp/weights | cut -d' ' -f1) > $d/.tmp/manifest.json
mv $d/.tmp $d/step-00000002
"""


def test_pull_brings_what_is_there(l):
    l.launch("--no-workdir", "--name", "results-1", "--", "sh", "-ec", MAKE_RESULTS)
    job = l.node.path("%s/jobs/%s/" % (l.root, l.run_named("results-1")["job_id"]))
    l.run("pull", "results-1", "out/**", "--to", "home")
    for name in ("random", "zeros"):
        assert read_bytes(l.work + "/home/out/" + name) == read_bytes(job + "work/out/" + name), name
    assert os.access(l.work + "/home/out/zeros", os.X_OK)
    pulled = l.json("pull", "results-1", "--to", "checkpoints")["checkpoints"]
    assert [checkpoint["step"] for checkpoint in pulled] == [2], pulled
    weights = read_bytes(os.path.join(l.work, pulled[0]["path"], "weights"))
    assert hashlib.sha256(weights).hexdigest() == json.loads(
        read(os.path.join(l.work, pulled[0]["path"], "manifest.json")))["files"][0]["sha256"]
    verified = l.json("verify", "results-1", "--read-data")
    assert verified["ok"] and verified["checkpoints"] == 1, verified


def test_a_changed_work_directory_is_merged_there(l):
    here = l.work + "/merged"
    write(here + "/a", "first " * 10000)
    gate = "/tmp/merged.gate"
    os.mkfifo(l.node.path(gate))
    l.launch("-d", "--workdir", "merged", "--name", "merged-1", "--", "sh", "-c",
             "echo of the job > b; read x < %s; cat a" % gate)
    write(here + "/a", "second " * 10000)
    assert l.json("sync", "merged-1")["written"] == 1
    assert l.run("exec", "merged-1", "--", "cat", "b").stdout == b"of the job\n"
    write(l.work + "/sent", "sent " * 1000)
    l.run("cp", "sent", "merged-1:c")
    l.run("cp", "merged-1:c", "back")
    assert read(l.work + "/back") == "sent " * 1000
    open_gate(l.node.path(gate))
    l.run("wait", "merged-1")
    assert l.run("logs", "merged-1").stdout == b"second " * 10000


def test_what_is_killed(l):
    # The job.
    l.held_job("shot-1")
    (job,) = processes_of_job(l, "shot-1")
    os.kill(job, signal.SIGKILL)
    l.run("wait", "shot-1", code=137)
    assert state_of(l, "shot-1") == ("failed", 137), l.run_named("shot-1")
    # Guard and server come back, and the job does not notice.
    gate = l.held_job("orphan-1")
    for command in ("guard", "server"):
        for pid in processes(l, "gpuctl-agent", command):
            os.kill(pid, signal.SIGKILL)
    assert l.run("exec", "orphan-1", "--", "echo", "here").stdout == b"here\n"
    eventually(lambda: one_agent_of(l, current(l)), "guard and server are back")
    open_gate(gate)
    l.run("wait", "orphan-1")
    assert state_of(l, "orphan-1") == ("succeeded", 0)
    # The shim. Then nobody knows the job's end, and its processes may not stay.
    l.held_job("lost-1")
    assert processes_of_job(l, "lost-1")
    (shim,) = processes(l, "gpuctl-shim")
    os.kill(shim, signal.SIGKILL)
    l.run("wait", "lost-1", code=125)
    assert state_of(l, "lost-1") == ("lost", 125), l.run_named("lost-1")
    eventually(lambda: not processes_of_job(l, "lost-1"), "the end of the lost job's processes")


def test_a_second_laptop(l):
    gate = l.held_job("of-the-first-1")
    second = SecondLaptop(l, "second laptop")
    took = processes(l, "gpuctl-agent", "server")
    assert second.launch("--no-workdir", "--", "echo", "mine").stdout == b"mine\n"
    # It found its programs there, and the server that is there serves it.
    assert processes(l, "gpuctl-agent", "server") == took and len(bundles(l)) == 1
    assert l.run_named("of-the-first-1")["status"] == "running"
    open_gate(gate)
    l.run("wait", "of-the-first-1")


def test_an_upgrade_under_a_running_job(l):
    gate = l.held_job("long-1")
    attached = l.start("attach", "long-1")
    old = current(l)
    newer = [SecondLaptop(l, "build %d" % build, build) for build in (1, 2, 3)]
    for number, other in enumerate(newer):
        if number == 2:
            # What was delivered so far was used days ago.
            for name in bundles(l):
                os.utime(l.node.path("%s/bin/%s" % (l.root, name)), (10 ** 9, 10 ** 9))
        assert other.launch("--no-workdir", "--", "echo", "new").stdout == b"new\n"
        eventually(lambda: one_agent_of(l, current(l)), "guard and server of the newer build")
        newer[number] = current(l)
        assert machine_of(l.node.path("%s/bin/%s/gpuctl-agent" % (l.root, current(l)))) == AARCH64
    assert len({old, *newer}) == 4, (old, newer)
    # The newest two stay, and that of the running job. The sweep comes right after the upgrade.
    eventually(lambda: os.path.exists(l.node.path(l.root + "/node/server.json")) and
               processes(l, "gpuctl-agent", "server") and newer[0] not in bundles(l), "the sweep")
    assert bundles(l) == {old, newer[1], newer[2]}, (bundles(l), old, newer)
    assert list(processes(l, "gpuctl-shim").values()) == [old]
    assert l.run("exec", "long-1", "--", "echo", "here").stdout == b"here\n"
    open_gate(gate)
    out, err = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, out) == (0, b"begin\nend now\n"), (out, err)


def test_pages_of_64_kib_and_an_old_processor(l):
    wide = SecondLaptop(l, "wide")
    wide.root = l.root + "-wide"
    wide.env["GPUCTL_NODE_ROOT"] = wide.root
    wide.host = wide.host_with_pages(65536)
    assert l.launch("--no-workdir", "--", "getconf", "PAGESIZE").stdout == b"4096\n"
    # A job's environment is the machine's, so it must be told once more.
    words = ["%s=%s" % word for word in QEMU[65536].items()]
    done = wide.launch("--no-workdir", "-e", words[0], "-e", words[1], "--", "getconf", "PAGESIZE")
    assert done.stdout == b"65536\n", done
    for command in ("guard", "server"):
        (pid,) = processes(wide, "gpuctl-agent", command)
        environment = read_of_process(pid, "environ").decode().split("\0")
        assert set(words) <= set(environment), (command, environment)
    for test in (test_stop_lets_the_job_save, test_pull_brings_what_is_there,
                 test_a_changed_work_directory_is_merged_there):
        with contextlib.suppress(OSError):
            os.unlink(wide.node.path("/tmp/merged.gate"))
        test(wide)


def main():
    source, gpuctl, fake_job, *wanted = sys.argv[1:]
    if os.uname().machine != "x86_64" or os.geteuid() != 0:
        print("NOT TESTED: this needs root on an x86-64 machine")
        return SKIPPED
    system = System(source)
    if MADE not in os.environ:
        try:
            system.make()
        except NotPossible as error:
            print("NOT TESTED: %s" % error)
            return SKIPPED
        # As in a container, jobs get the environment of the node's first process. That is a child of
        # this one, so this one must not have the environment of whoever tests.
        os.execve(sys.executable, [sys.executable, *sys.argv],
                  {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                   "LANG": "C.UTF-8", MADE: "1"})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    laptop = ArmLaptop(system, gpuctl, fake_job)
    try:
        for name in wanted or tests:
            begin = time.monotonic()
            try:
                tests[name](laptop)
                print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
            except Exception:
                failed.append(name)
                print("FAILED %s\n%s" % (name, traceback.format_exc()), flush=True)
        if failed:
            print(read(os.path.join(laptop.dir, "sshd.log"))[-4000:])
    finally:
        laptop.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

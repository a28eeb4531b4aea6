"""Machines for tests of runs on several of them: namespaces with an address each, joined by a bridge.

  machines.enter()                 # the rest of the program runs in namespaces of its own
  with Machines(2) as them:
      them.hosts                   # "root@10.88.0.11,root@10.88.0.12"

enter() starts this program again as the first process of its own network and its own processes, so that
nothing of it is joined to the machine's network, and all of it ends with the program. Each machine has
its own network, processes, host name, /root, /tmp and /run, and an sshd; the test's program is the
laptop, at 10.88.0.1. It needs root, Linux, ip, unshare and sshd: requirements() says what is missing.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "end_to_end"))
from runs import Patience  # noqa: E402

SKIPPED = 77
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSIDE = "GPUCTL_TEST_MACHINES_INSIDE"


def requirements():
    """Returns why there can be no machines here, in words, or "" when there can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if os.geteuid() != 0:
        return "this is not root"
    for program in ("ip", "unshare", "nsenter", "sshd", "ssh-keygen", "mount"):
        if not shutil.which(program, path=PATH):
            return program + " is missing"
    tried = subprocess.run(
        ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
         "-ec", "mount -t tmpfs tmpfs /tmp; ip link add tried type veth peer name other; "
         "ip link add bridge type bridge"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    return "" if tried.returncode == 0 else "no namespaces or networks: " + tried.stderr.strip()


def enter():
    """Runs the rest of the program in namespaces of its own; skips where that cannot be."""
    if os.environ.get(INSIDE):
        return
    why = requirements()
    if why:
        print("skipped: " + why)
        sys.exit(SKIPPED)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
                          sys.executable, *sys.argv])


def run(*argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: %s" % (argv, done.stderr)
    return done.stdout


class Machine:
    def __init__(self, them, number):
        self.number, self.name = number, "n%d" % number
        self.address = "10.88.0.%d" % (10 + number)
        self.host = "root@" + self.address
        self.veth = "to%d" % number
        config = os.path.join(them.dir, "sshd-%d" % number)
        with open(config, "w") as file:
            file.write("ListenAddress %s\nHostKey %s/host\nAuthorizedKeysFile %s/key.pub\nStrictModes no\n"
                       "PermitRootLogin yes\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
                       "SetEnv %s\n" % (self.address, them.dir, them.dir, " ".join(
                           "%s=%s" % pair for pair in them.environment.items())))
        script = ("hostname %s; mount -t tmpfs tmpfs /root; mount -t tmpfs tmpfs /run; mkdir /run/sshd; "
                  "echo up; read -r go; exec %s -D -e -f %s" % (
                      self.name, shutil.which("sshd", path=PATH), config))
        # A tmpfs at /tmp would hide the test's own directory, which has the keys.
        with open(config + ".log", "wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "sh", "-ec", script],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout.readline() == b"up\n", open(config + ".log").read()
        pid = str(self.process.pid)
        run("ip", "link", "add", self.veth, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "link", "set", self.veth, "master", "bridge", "up")
        self.ip("link", "set", "lo", "up")
        self.ip("address", "add", self.address + "/24", "dev", "eth0")
        self.ip("link", "set", "eth0", "up")
        self.ip("route", "add", "default", "via", "10.88.0.1")
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()
        with open("/proc/%s/task/%s/children" % (pid, pid)) as file:
            self.first = int(file.read().split()[0])
        self.home = "/proc/%d/root/root" % self.first

    def ip(self, *args):
        run("nsenter", "-t", str(self.process.pid), "-n", "ip", *args)

    def link(self, state):
        """Cuts the machine off ("down"), or joins it again ("up"). Nobody is told: packets vanish."""
        run("ip", "link", "set", self.veth, state)

    def slow(self, rate):
        """Lets at most this much per second come to the machine, such as "40mbit"; False where the
        kernel cannot."""
        return subprocess.run(["tc", "qdisc", "replace", "dev", self.veth, "root", "tbf", "rate", rate,
                               "burst", "64k", "latency", "500ms"], stdin=subprocess.DEVNULL,
                              capture_output=True, check=False, env={**os.environ, "PATH": PATH}
                              ).returncode == 0

    def processes(self, *words):
        """Returns the processes of the machine that have all these words in their command lines:
        {pid as the test sees it: command line}."""
        found = {}
        space = os.readlink("/proc/%d/ns/pid" % self.first)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/ns/pid" % pid) != space:
                    continue
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    line = file.read().replace(b"\0", b" ").decode(errors="replace")
                if line and all(word in line for word in words):
                    found[int(pid)] = line
        return found

    def kill(self, *words):
        """Kills the processes with these words; returns how many."""
        found = self.processes(*words)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def jobs(self):
        """Returns the jobs of the machine: {job id: [lifecycle events]}."""
        folder = os.path.join(self.home, ".gpuctl", "jobs")
        found = {}
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if not os.path.exists(os.path.join(folder, name, "spec.json")):
                continue
            found[name] = []
            with contextlib.suppress(FileNotFoundError):
                with open(os.path.join(folder, name, "lifecycle.jsonl")) as file:
                    found[name] = [json.loads(line) for line in file if line.endswith("\n")]
        return found

    def stop(self):
        # The kernel takes it away with the machine's network, but only after a while.
        subprocess.run(["ip", "link", "delete", self.veth], stderr=subprocess.DEVNULL, check=False)
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Machines:
    """`count` machines. environment: variables that what comes by ssh gets there."""

    def __init__(self, count, environment=None):
        self.environment = environment or {"GPUCTL_TEST": "1"}
        self.count, self.all = count, []

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="gpuctl-machines-")
        os.chmod(self.dir, 0o755)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir + "/key")
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.dir + "/host")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "bridge", "type", "bridge")
        run("ip", "address", "add", "10.88.0.1/24", "dev", "bridge")
        run("ip", "link", "set", "bridge", "up")
        try:
            for number in range(1, self.count + 1):
                self.all.append(Machine(self, number))
            for machine in self.all:
                wait_until(lambda m=machine: b"SSH" in greeting(m.address), machine.name + " has an sshd")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        for machine in self.all:
            machine.stop()
        self.all = []
        run("ip", "link", "delete", "bridge")
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def hosts(self):
        return ",".join(machine.host for machine in self.all)


def greeting(address):
    import socket
    try:
        with socket.create_connection((address, 22), timeout=5) as peer:
            return peer.recv(100)
    except OSError:
        return b""


def wait_until(condition, what, seconds=240):
    import time
    patience = Patience(seconds)
    while not condition():
        assert patience.lasts(), "not within %d s: %s" % (seconds, what)
        time.sleep(0.05)

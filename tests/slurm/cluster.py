"""A real Slurm cluster for tests: a login node with the controller, and compute nodes.

  with Cluster(directory) as c:
      job = c.sbatch("sleep 60", "-p", "low")
      c.run(["squeue", "--me"])

Each node is a machine of its own as far as programs can tell: processes, network, host name, /tmp,
/run, /dev and cgroups are its own (machine.py). The user's home is one directory for all of them, as
on a cluster with a shared file system; Cluster.home is that directory as the test sees it. A node has
4 GPUs for Slurm, which are character devices without a driver, and a stand-in for nvidia-smi.

The login node is reached by ssh at 127.0.0.1 only, with a key and a host key that are made for this
cluster. Its sshd gets each connection from a socket of the test's own network, so the cluster's
network is joined to no other one: any number of clusters may be up at once, with the same addresses.

Partitions: `main` (the default, a day at most) may take the nodes of `low`, whose jobs are then put
back into the queue. The daemons' time limits are short. A job that Slurm puts back starts only two
minutes later; that time is Slurm's own.

Whatever becomes of the test: each machine's first process reads from a pipe of the test's process,
and ends when that does. The kernel ends all other processes with it, and takes the mounts, networks
and interfaces away. What the kernel keeps, the directory and the cgroups, is removed by a keeper
process that waits for the same end, and by the next cluster in case the keeper was killed as well.
Both go by a lock file in /run/gpuctl-slurm: who can lock it knows that the cluster is over.

It needs root, Linux and Debian's packages (tests/slurm/install). requirements() says what is missing;
tests then end with SKIPPED.
"""
import contextlib
import fcntl
import json
import os
import pwd
import secrets
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "end_to_end"))
from runs import Patience  # noqa: E402

SKIPPED = 77
LOCKS = "/run/gpuctl-slurm"
CGROUPS = "/sys/fs/cgroup"
PREFIX = "gpuctl-slurm-"
USER, UID, HOME = "ada", 20771, "/home/ada"
ROOT_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    "LANG": "C.UTF-8", "HOME": "/root"}
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "sbatch", "srun", "sacctmgr", "mariadbd",
            "mariadb-install-db", "sshd", "ssh", "ssh-keygen", "ip", "nsenter", "unshare", "mount",
            "timeout")
CONTROLLERS = ("freezer", "cpuset", "memory", "devices", "cpuacct", "cpu")
UMASK = 0o022
DEADLINE_S = 120  # for what takes seconds on a quiet machine


class ClusterError(Exception):
    """Something of the cluster did not do what it should; the text has its logs."""


def search_path(program):
    return shutil.which(program, path=ROOT_ENVIRONMENT["PATH"])


def cgroup_mounts():
    """Returns the mount points of the controllers that Slurm uses, by the version 1 of cgroups:
    {controller: mount point}."""
    found = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split()[:3]
            if kind == "cgroup":
                for controller in set(options.split(",")) & set(CONTROLLERS):
                    found.setdefault(controller, before.split()[4])
    return found


def requirements(proctrack="cgroup"):
    """Returns why no cluster can be here, in words, or "" when it can."""
    if sys.platform != "linux":
        return "this is not Linux"
    if os.geteuid() != 0:
        return "this is not root"
    missing = [program for program in PROGRAMS if not search_path(program)]
    if missing:
        return "these programs are missing: %s (tests/slurm/install)" % ", ".join(missing)
    for folder in ("/etc/slurm", "/home", "/usr/local/bin"):
        if not os.path.isdir(folder):
            return folder + " is missing"
    with contextlib.suppress(KeyError):
        return "the machine has a user with the number %d: %s" % (UID, pwd.getpwuid(UID).pw_name)
    if proctrack == "cgroup":
        # Debian 12's Slurm uses version 2 only where systemd gives it a part of the tree.
        mounts = cgroup_mounts()
        missing = [name for name in CONTROLLERS if name not in mounts]
        if missing:
            return "no cgroups of version 1 for %s" % ", ".join(missing)
        for name, where in mounts.items():
            at = os.path.join(CGROUPS, name)
            if not os.path.exists(at) or not os.path.samefile(at, where):
                return "the cgroups of version 1 for %s are at %s, not at %s" % (name, where, at)
            if not os.access(where, os.W_OK):
                return where + " cannot be written"
    tried = subprocess.run(
        ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec",
         "mount -t tmpfs tmpfs /tmp; mount -t proc proc /proc; mknod /tmp/gpu c 195 0; "
         "ip link add tried type veth peer name other; ip link add bridge type bridge"],
        env=ROOT_ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        check=False)
    if tried.returncode != 0:
        return "no namespaces, networks or devices of our own: " + tried.stderr.strip()
    return ""


def remove_tree(path):
    """Removes a directory tree. Files may vanish meanwhile."""
    patience = Patience(20)
    while os.path.lexists(path):
        shutil.rmtree(path, ignore_errors=True)
        if not patience.lasts():
            raise ClusterError(path + " cannot be removed")
        if os.path.lexists(path):
            select.select([], [], [], 0.05)


def remove_cgroups(name):
    """Removes the cgroups of a cluster or a node whose processes have ended."""
    for mount_point in set(cgroup_mounts().values()):
        for top in [entry.path for entry in os.scandir(mount_point)
                    if (entry.name + "-").startswith(name + "-")]:
            patience = Patience(20)
            while os.path.isdir(top):
                for folder, _, _ in os.walk(top, topdown=False):
                    # Busy until the kernel is done with the last process.
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
                if not patience.lasts():
                    raise ClusterError(top + " cannot be removed")
                if os.path.isdir(top):
                    select.select([], [], [], 0.05)


def lock_of_ended(path):
    """Returns a descriptor that locks the file, if its cluster is over; else None."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


def remove_ended(path):
    """Removes what a cluster left, by its lock file, if the cluster is over. Returns whether it was."""
    descriptor = lock_of_ended(path)
    if descriptor is None:
        return not os.path.exists(path)
    try:
        remove_cgroups(os.path.basename(path))
        with open(path) as file:
            directory = file.read()
        # It is empty when the owner ended before it had a directory.
        if os.path.basename(directory) == os.path.basename(path):
            remove_tree(directory)
        os.unlink(path)
    finally:
        os.close(descriptor)
    return True


def remove_leftovers():
    """Removes what clusters left whose processes are all gone."""
    for name in os.listdir(LOCKS) if os.path.isdir(LOCKS) else ():
        remove_ended(os.path.join(LOCKS, name))


class Machine:
    """One machine's namespaces, and its first process."""

    def __init__(self, cluster, name, gpus=0, cgroups=(), listener=None):
        self.cluster, self.name = cluster, name
        self.daemons = {}
        settings = {"dir": cluster.dir, "name": name, "gpus": gpus, "cgroups": cgroups,
                    "home": os.path.dirname(cluster.home_of(name)),
                    "listener": None if listener is None else listener.fileno()}
        passed = [cluster.lock] + ([] if listener is None else [listener.fileno()])
        self.log = os.path.join(cluster.dir, "logs", "machine-%s.log" % name)
        with open(self.log, "wb") as log:
            # Its standard input is the lifeline: nobody else has the other end.
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child",
                 sys.executable, "-I", os.path.join(HERE, "machine.py"), json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=passed,
                env=ROOT_ENVIRONMENT, umask=UMASK, start_new_session=True)
        self.pid = None

    def wait_ready(self):
        line = self.process.stdout.readline()
        if not line:
            with open(self.log, errors="replace") as file:
                raise ClusterError("%s did not start: %s" % (self.name, file.read()))
        self.pid = json.loads(line)["pid"]
        self.namespace = os.readlink("/proc/%d/ns/pid" % self.pid)

    def entering(self, argv):
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", *argv]

    def run(self, argv, timeout=30, check=True, **options):
        """Runs a command in the machine, as root. Returns what subprocess.run does, with texts."""
        done = subprocess.run(
            self.entering(["timeout", "-k", "1", str(timeout), *argv]), text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ROOT_ENVIRONMENT,
            umask=UMASK, timeout=timeout + DEADLINE_S,
            **({} if "input" in options else {"stdin": subprocess.DEVNULL}), **options)
        if check and done.returncode != 0:
            raise ClusterError("%s: %s: exit %d\n%s%s" % (
                self.name, shlex.join(argv), done.returncode, done.stdout, done.stderr))
        return done

    def start(self, name, argv):
        """Starts a daemon that stays in the foreground. The machine's first process is its parent."""
        log = os.path.join(self.cluster.dir, "logs", "%s-%s.log" % (name, self.name))
        with open(log, "ab") as file:
            done = subprocess.run(
                self.entering(["sh", "-c", '"$@" < /dev/null >&2 & echo $!', "-", *argv]),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, env=ROOT_ENVIRONMENT,
                umask=UMASK, start_new_session=True, check=True, timeout=DEADLINE_S)
        self.daemons[name] = int(done.stdout)

    def signal(self, name, signal):
        """Sends a signal, such as "KILL", to a daemon that was started."""
        self.run(["kill", "-" + signal, str(self.daemons[name])])

    def end(self, name):
        """Kills a daemon and waits for its end."""
        self.signal(name, "KILL")
        number = self.daemons.pop(name)
        self.cluster.wait_until(lambda: number not in [one["pid"] for one in self.processes()],
                                name + " has ended")

    def processes(self):
        """Returns the processes of the machine: [{"pid", "uid", "name", "argv"}], with the numbers that
        they have in it. It needs no help of the machine."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%s/ns/pid" % pid) != self.namespace:
                    continue
                with open("/proc/%s/status" % pid) as file:
                    status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    argv = file.read().decode(errors="replace").split("\0")[:-1]
                if status["State"][0] not in "ZX":
                    found.append({"pid": int(status["NSpid"].split()[-1]),
                                  "uid": int(status["Uid"].split()[0]), "name": status["Name"],
                                  "argv": argv})
        return found

    def stop(self):
        """Ends everything in the machine."""
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.daemons.clear()


def start_munge(machine):
    """Starts what proves to Slurm's daemons who they and the users are."""
    machine.start("munged", ["munged", "-F", "--key-file=/run/own/munge.key", "--pid-file=/run/munge/pid",
                             "--log-file=/run/logs/munge.log", "--seed-file=/run/munge/seed"])


class Cluster:
    """A running cluster. Everything that it is made of is gone after `with`.

    directory: where it makes a directory of its own. proctrack: "cgroup" or "linuxproc", how Slurm
    knows which processes are a job's. accounting: whether there is a database, and so sacct. gpus: the
    type of the nodes' 4 GPUs; "" for GPUs without a type. constrain_memory: a job that takes more
    memory than it asked for is killed; only with cgroups. config: lines for slurm.conf. programs: names
    and texts of programs for /etc/slurm, such as a prolog. shared_home=False: each node has a home of
    its own, so no directory is shared.
    """

    def __init__(self, directory, proctrack="cgroup", accounting=True, nodes=2, gpus="h100",
                 constrain_memory=False, config=(), programs=None, shared_home=True):
        assert proctrack in ("cgroup", "linuxproc") and 1 <= nodes <= 9
        self.directory, self.proctrack, self.accounting = directory, proctrack, accounting
        self.names = ["n%d" % (i + 1) for i in range(nodes)]
        self.gpus, self.constrain_memory, self.config = gpus, constrain_memory, config
        self.programs, self.shared_home = programs or {}, shared_home
        self.user, self.uid = USER, UID
        self.machines = {}
        self.lock = self.keeper = self.listener = self.dir = None
        self.name = self.marker = None
        self.started_in_s = None

    def __enter__(self):
        began = time.monotonic()
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        self.started_in_s = time.monotonic() - began
        return self

    def __exit__(self, *unused):
        self.stop()

    # How it starts.

    def start(self):
        remove_leftovers()
        self.claim()
        self.write_files()
        self.start_machines()
        self.join_networks()
        login = self.machines["login"]
        start_munge(login)
        if self.accounting:
            self.start_database()
        self.start_controller(wait=False)
        for name in self.names:
            self.start_node(name)
        self.wait_until(lambda: self.states() == ["idle"] * len(self.names), "the nodes are idle")
        if self.accounting:
            # What ends before the database knows the cluster would be missing there.
            self.wait_until(lambda: "10.77.0.1" in login.run(
                ["sacctmgr", "-nP", "show", "cluster", "format=ControlHost"]).stdout,
                            "the database knows the controller")

    def claim(self):
        """Takes a name, its lock and a directory, and starts the keeper."""
        os.makedirs(LOCKS, exist_ok=True)
        while self.lock is None:
            self.name = PREFIX + secrets.token_hex(4)
            self.marker = os.path.join(LOCKS, self.name)
            descriptor = os.open(self.marker, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else a cluster that began just now took it for a leftover
                self.lock = descriptor
            else:
                os.close(descriptor)
        self.keeper = subprocess.Popen(
            [sys.executable, "-I", os.path.join(HERE, "cluster.py"), "--keep", self.marker],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=ROOT_ENVIRONMENT, start_new_session=True)
        directory = os.path.join(os.path.abspath(self.directory), self.name)
        os.write(self.lock, os.fsencode(directory))
        os.mkdir(directory, 0o755)
        self.dir = directory

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, path, text, mode=0o644):
        with open(os.open(self.path(path), os.O_WRONLY | os.O_CREAT, mode), "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)

    def write_files(self):
        homes = [self.home_of(name) for name in ["login", *(() if self.shared_home else self.names)]]
        for folder in [*map(self.path, ("logs", "slurm", "secret", "etc", "homes")),
                       *map(os.path.dirname, homes), *homes]:
            os.mkdir(folder)
            os.chmod(folder, 0o700 if folder == self.path("secret") else 0o755)  # whatever the umask is
        for home in homes:
            os.chown(home, UID, UID)
        self.home = self.home_of("login")
        for file in ("passwd", "group", "shadow"):
            with open("/etc/" + file) as source:
                text = source.read()
            self.write("etc/" + file, text + {
                "passwd": "%s:x:%d:%d::%s:/bin/bash\n" % (USER, UID, UID, HOME),
                "group": "%s:x:%d:\n" % (USER, UID),
                # "*" has no password; "!" would be a locked user for sshd.
                "shadow": "%s:*:19000:0:99999:7:::\n" % USER}[file], 0o600 if file == "shadow" else 0o644)
        hosts = ["127.0.0.1 localhost", "10.77.0.1 login"]
        hosts += ["%s %s" % (self.address(name), name) for name in self.names]
        self.write("etc/hosts", "\n".join(hosts) + "\n")
        with open(self.path("secret/munge.key"), "wb") as file:
            file.write(secrets.token_bytes(128))
        for file in ("secret/host_key", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.path(file)],
                           check=True, timeout=300, stdin=subprocess.DEVNULL)
        self.key = self.path("key")
        self.write_sshd()
        self.write_slurm()

    def home_of(self, name):
        """Returns the user's home on a node as the test sees it."""
        return self.path("homes", "login" if self.shared_home else name, USER)

    def write_sshd(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.host, self.port = self.listener.getsockname()
        with open(self.path("key.pub")) as file:
            self.write("slurm/authorized_keys", file.read())
        self.write("slurm/sshd_config", "\n".join((
            "HostKey /run/own/host_key", "PidFile none", "AuthorizedKeysFile /etc/slurm/authorized_keys",
            "StrictModes no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
            "UsePAM no", "UseDNS no", "PrintMotd no", "LogLevel ERROR", "AllowUsers " + USER,
            "Subsystem sftp internal-sftp")) + "\n")
        with open(self.path("secret/host_key.pub")) as file:
            kind, key = file.read().split()[:2]
        self.host_key = "%s %s" % (kind, key)
        self.known_hosts = self.path("known_hosts")
        self.write("known_hosts", "[%s]:%d %s\n" % (self.host, self.port, self.host_key))
        self.ssh_config = self.path("ssh_config")
        self.write("ssh_config", "\n".join((
            "Host slurm", "  HostName " + self.host, "  Port %d" % self.port, "  User " + USER,
            "  IdentityFile " + self.key, "  IdentitiesOnly yes", "  BatchMode yes",
            "  UserKnownHostsFile " + self.known_hosts, "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes", "  ConnectTimeout 20")) + "\n")

    def write_slurm(self):
        gres = "gpu:%s:4" % self.gpus if self.gpus else "gpu:4"
        typed = "Type=%s " % self.gpus if self.gpus else ""
        lines = [
            "ClusterName=test", "SlurmctldHost=login(10.77.0.1)", "SlurmUser=root",
            "AuthType=auth/munge", "StateSaveLocation=/run/slurmctld", "SlurmdSpoolDir=/run/slurmd",
            "SlurmctldPidFile=/run/slurmctld/pid", "SlurmdPidFile=/run/slurmd/pid",
            "SlurmctldDebug=info", "SlurmdDebug=info", "MpiDefault=none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=500",
            "SlurmdParameters=config_overrides", "GresTypes=gpu", "ReturnToService=2",
            "SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0", "KillWait=5",
            "SlurmdTimeout=15", "SlurmctldTimeout=10", "MessageTimeout=10", "MinJobAge=20",
            "InactiveLimit=0", "JobAcctGatherType=jobacct_gather/linux", "JobRequeue=1",
            "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE",
            "ProctrackType=proctrack/" + self.proctrack]
        lines += ["TaskPlugin=task/%s" % ("cgroup" if self.proctrack == "cgroup" else "none")]
        if self.accounting:
            lines += ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=login",
                      "AccountingStorageTRES=gres/gpu"]
        lines += ["NodeName=%s NodeAddr=%s CPUs=16 RealMemory=16000 Gres=%s" % (
            name, self.address(name), gres) for name in self.names]
        nodes = ",".join(self.names)
        lines += ["PartitionName=main Nodes=%s Default=YES PriorityTier=10 MaxTime=1-00:00:00 "
                  "DefaultTime=10:00 PreemptMode=off" % nodes,
                  "PartitionName=low Nodes=%s PriorityTier=1 GraceTime=3 MaxTime=2-00:00:00 "
                  "DefaultTime=10:00 PreemptMode=REQUEUE" % nodes]
        self.write("slurm/slurm.conf", "\n".join([*lines, *self.config]) + "\n")
        self.write("slurm/gres.conf", "NodeName=%s Name=gpu %sFile=/dev/nvidia[0-3]\n" % (nodes, typed))
        for name, text in self.programs.items():
            self.write("slurm/" + name, text, 0o755)
        memory = "yes" if self.constrain_memory else "no"
        self.write("slurm/cgroup.conf", "\n".join((
            "CgroupPlugin=cgroup/v1", "CgroupMountpoint=" + CGROUPS, "CgroupAutomount=no",
            "ConstrainCores=no", "ConstrainDevices=no", "ConstrainRAMSpace=" + memory,
            "ConstrainSwapSpace=no")) + "\n")
        self.write("secret/slurmdbd.conf", "\n".join((
            "AuthType=auth/munge", "DbdHost=login", "SlurmUser=root", "StorageType=accounting_storage/mysql",
            "StorageHost=localhost", "StorageUser=root", "StorageLoc=slurm", "PidFile=/run/slurmctld/dbd.pid",
            "DebugLevel=info")) + "\n", 0o600)
        # slurmdbd wants it beside slurm.conf, and readable by nobody else.
        os.symlink("/run/own/slurmdbd.conf", self.path("slurm/slurmdbd.conf"))

    def address(self, name):
        return "10.77.0.%d" % (11 + self.names.index(name))

    def start_machines(self):
        for name in ["login", *self.names]:
            self.start_machine(name)
        for machine in self.machines.values():
            machine.wait_ready()

    def start_machine(self, name):
        mounts = sorted(set(cgroup_mounts().values())) if self.proctrack == "cgroup" else []
        cgroups = []
        for where in mounts if name != "login" else ():
            own = os.path.join(where, "%s-%s" % (self.name, name))
            os.mkdir(own)
            # Nothing may be in a cpuset without processors.
            for file in ("cpuset.cpus", "cpuset.mems") if os.path.exists(own + "/cpuset.cpus") else ():
                with open(os.path.join(where, file)) as source, open(os.path.join(own, file), "w") as to:
                    to.write(source.read())
            cgroups.append((own, where))
        self.machines[name] = Machine(self, name, gpus=0 if name == "login" else 4, cgroups=cgroups,
                                      listener=self.listener if name == "login" else None)

    def join_networks(self):
        self.machines["login"].run(["sh", "-ec", "ip link set lo up; ip link add name bridge0 type bridge; "
                                    "ip addr add 10.77.0.1/24 dev bridge0; ip link set bridge0 up"])
        for name in self.names:
            self.join_network(name)

    def join_network(self, name):
        login = self.machines["login"]
        # Both ends are made where they belong, so this machine's network never has them.
        subprocess.run(
            ["ip", "link", "add", "name", "to-" + name, "netns", str(login.pid), "type", "veth",
             "peer", "name", "eth0", "netns", str(self.machines[name].pid)],
            check=True, timeout=300, env=ROOT_ENVIRONMENT, stdin=subprocess.DEVNULL)
        login.run(["sh", "-ec", "ip link set to-%s master bridge0; ip link set to-%s up" % (name, name)])
        self.machines[name].run(["sh", "-ec", "ip link set lo up; ip addr add %s/24 dev eth0; "
                                 "ip link set eth0 up" % self.address(name)])

    def start_database(self):
        login = self.machines["login"]
        login.run(["mariadb-install-db", "--no-defaults", "--user=root", "--datadir=/run/mysqld/data",
                   "--skip-test-db", "--auth-root-authentication-method=socket",
                   "--innodb-log-file-size=8M"], timeout=DEADLINE_S)
        login.start("mariadbd", ["mariadbd", "--no-defaults", "--user=root", "--datadir=/run/mysqld/data",
                                 "--socket=/run/mysqld/mysqld.sock", "--skip-networking",
                                 "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
                                 "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
                                 "--pid-file=/run/mysqld/pid"])
        self.wait_until(lambda: login.run(["sh", "-c", "test -S /run/mysqld/mysqld.sock"],
                                          check=False).returncode == 0, "the database is up")
        login.start("slurmdbd", ["slurmdbd", "-D"])
        add = "sacctmgr -i -Q add cluster test && sacctmgr -i -Q add account lab Cluster=test && " \
              "sacctmgr -i -Q add user %s Account=lab" % USER
        self.wait_until(lambda: login.run(["bash", "-c", "echo > /dev/tcp/10.77.0.1/6819"],
                                          check=False).returncode == 0, "slurmdbd listens")
        login.run(["sh", "-c", add], timeout=DEADLINE_S)

    def start_node(self, name):
        start_munge(self.machines[name])
        self.machines[name].start("slurmd", ["slurmd", "-D", "-N", name])

    # What tests do with it.

    def wait_until(self, condition, what, seconds=DEADLINE_S):
        """Waits for a condition, which is asked again and again. `what` says it in words."""
        patience = Patience(seconds)
        while not condition():
            if not patience.lasts():
                raise ClusterError("not within %d s: %s\n%s" % (seconds, what, self.logs()))
            select.select([], [], [], 0.05)

    def logs(self):
        """Returns the ends of all logs."""
        text = []
        for name in sorted(os.listdir(self.path("logs"))):
            with open(self.path("logs", name), errors="replace") as file:
                content = file.read()
            if content.strip():
                text.append("== %s\n%s" % (name, content[-3000:]))
        return "\n".join(text)

    def ssh(self, argv=(), options=()):
        """Returns the command line that runs `argv` on the login node, as the user."""
        return ["ssh", "-F", self.ssh_config, *options, "slurm", *([shlex.join(argv)] if argv else [])]

    def run(self, argv, timeout=300, check=True, text=True, **options):
        """Runs a command on the login node, by ssh as the user. Returns what subprocess.run does.

        It fails when the command does, unless check is false; a command that takes longer than
        `timeout` seconds is ended there and has the exit code 124.
        """
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        done = subprocess.run(self.ssh(["timeout", "-k", "1", str(timeout), *argv]), check=False, text=text,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout + 60, **options)
        if check and done.returncode != 0:
            raise ClusterError("%s: exit %d\n%s%s" % (shlex.join(argv), done.returncode, done.stdout,
                                                      done.stderr))
        return done

    def sbatch(self, script, *options, check=True):
        """Submits a script of sh; returns the job's number. With check=False: what run() returns."""
        done = self.run(["sbatch", "--parsable", "-o", "%s/slurm-%%j.out" % HOME, *options],
                        input="#!/bin/sh\n%s\n" % script, check=check)
        return done.stdout.strip().split(";")[0] if check else done

    def squeue(self, job, field="%T", timeout=20):
        """Returns a field of squeue for a job; "" when squeue has forgotten the job."""
        done = self.run(["squeue", "-h", "-j", str(job), "-o", field], timeout=timeout, check=False)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise ClusterError("squeue: exit %d\n%s" % (done.returncode, done.stderr))
        return done.stdout.strip()

    def sacct(self, job, fields="State", timeout=20):
        """Returns the lines of sacct for a job, oldest first; each requeue has a line of its own."""
        return self.run(["sacct", "-X", "-D", "-P", "-n", "-j", str(job), "-o", fields],
                        timeout=timeout).stdout.splitlines()

    def scancel(self, *words, timeout=20):
        return self.run(["scancel", *map(str, words)], timeout=timeout)

    def wait_state(self, job, *states, seconds=DEADLINE_S):
        """Waits until squeue says one of the states of a job."""
        self.wait_until(lambda: self.squeue(job) in states, "job %s is %s" % (job, " or ".join(states)),
                        seconds)

    def wait_sacct(self, job, state, seconds=DEADLINE_S):
        """Waits until sacct says a state of a job, such as "TIMEOUT". "CANCELLED by 1" is "CANCELLED"."""
        self.wait_until(lambda: [line.split()[0] for line in self.sacct(job)][-1:] == [state],
                        "sacct says that job %s is %s" % (job, state), seconds)

    def states(self):
        """Returns the states of the nodes in their order, such as ["idle", "down*"]; None without an
        answer of the controller."""
        done = self.machines["login"].run(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %t"], timeout=5,
                                          check=False)
        if done.returncode != 0:
            return None
        return [line.split()[1] for line in sorted(done.stdout.splitlines())]

    def cut(self, name):
        """Takes the node's network away. Its processes live on."""
        self.machines["login"].run(["ip", "link", "set", "to-" + name, "down"])

    def heal(self, name, gone=lambda: True):
        """Gives the node its network back. Waits until the controller works with it again, and until `gone`
        is true: what the controller had given up has ended there."""
        login = self.machines["login"]
        login.run(["ip", "link", "set", "to-" + name, "up"])
        told = []

        def answers():
            state = login.run(["sinfo", "-h", "-n", name, "-p", "main", "-o", "%t"], check=False).stdout.strip()
            return state and not state.endswith("*") and not state.startswith("down") and gone()

        def is_back():
            if told and answers():
                return True
            # By itself the controller asks a node that was down after a minute or two. A daemon that reads its
            # configuration again says at once what runs there. The controller leaves a job alone that it gave
            # up less than MessageTimeout ago, so it is told more than once.
            if not told or time.monotonic() > told[-1] + 5:
                told.append(time.monotonic())
                self.machines[name].run(["pkill", "-HUP", "-x", "slurmd"])
            return False
        self.wait_until(is_back, name + " is back")

    def power_off(self, name):
        """Ends a node as a loss of power does: all its processes, at once, and its network."""
        self.machines.pop(name).stop()
        remove_cgroups("%s-%s" % (self.name, name))

    def power_on(self, name):
        """Starts a node again, with an empty /tmp, after power_off."""
        self.start_machine(name)
        self.machines[name].wait_ready()
        # The other end of its cable went with it, when the kernel found the time.
        self.wait_until(lambda: self.machines["login"].run(["ip", "link", "show", "to-" + name],
                                                           check=False).returncode != 0, "the old cable is gone")
        self.join_network(name)
        self.start_node(name)

    def wait_saved(self):
        """Waits until the controller has written down all that it knows now. It does so every few seconds;
        what it had not written is unknown to it after kill_controller."""
        login, word = self.machines["login"], "saved-" + secrets.token_hex(8)
        # The whole list is written at once, so it has this job only together with all before it.
        job = login.run(["sbatch", "--parsable", "-H", "-J", word, "-o", "/dev/null", "--wrap", "true"]).stdout
        self.wait_until(lambda: login.run(["grep", "-q", word, "/run/slurmctld/job_state"],
                                          check=False).returncode == 0, "the controller has saved its state")
        login.run(["scancel", job.strip()])

    def kill_controller(self):
        """Kills the controller with -9. See wait_saved."""
        self.machines["login"].end("slurmctld")

    def stop_controller(self):
        """The controller hangs from now on: connections are taken and not answered."""
        self.machines["login"].signal("slurmctld", "STOP")

    def continue_controller(self):
        self.machines["login"].signal("slurmctld", "CONT")

    def start_controller(self, wait=True):
        """Starts the controller, with what it knew before. Returns when it answers."""
        self.machines["login"].start("slurmctld", ["slurmctld", "-D"])
        if wait:
            self.wait_until(lambda: self.states() is not None, "the controller answers")

    def processes(self, name, uid=UID):
        """Returns the user's processes on a node ("login" or "n1", …); uid=None: everybody's. See
        Machine.processes."""
        return [one for one in self.machines[name].processes() if uid is None or one["uid"] == uid]

    def fill(self, count):
        """Takes all GPUs, and lets `count` jobs wait. Returns the numbers (of those that hold the nodes,
        of those that wait)."""
        gres = "--gres=gpu:4"
        holding = [self.sbatch("sleep 3600", "-J", "holds", "-w", name, gres) for name in self.names]
        for job in holding:
            self.wait_state(job, "RUNNING")
        script = 'for i in $(seq %d); do sbatch --parsable -J waits -o /dev/null %s --wrap="sleep 3600" ' \
                 '|| exit; done' % (count, gres)
        waiting = self.run(["sh", "-c", script], timeout=300 + count).stdout.split()
        return holding, waiting

    def low_priority_job(self, script="sleep 3600", *options):
        """Submits a job with all GPUs of a node that any job in `main` may push aside."""
        return self.sbatch(script, "-p", "low", "--gres=gpu:4", *options)

    # How it ends.

    def stop(self):
        """Ends everything and removes it. It may be called again."""
        for machine in self.machines.values():
            if not machine.process.stdin.closed:
                machine.process.stdin.close()  # all at once
        for machine in self.machines.values():
            machine.stop()
        self.machines = {}
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        try:
            if self.lock is not None:
                remove_cgroups(self.name)
                if self.dir:
                    remove_tree(self.dir)
                os.unlink(self.marker)
        finally:
            # What could not be removed is left to the keeper, which may have the lock now.
            if self.lock is not None:
                os.close(self.lock)
                self.lock = None
            if self.keeper is not None:
                self.keeper.stdin.close()
                self.keeper.wait(timeout=2 * DEADLINE_S)
                self.keeper = None


def keep(marker):
    """Waits for the end of the test's process, then removes what it left."""
    while os.read(0, 4096):
        pass
    patience = Patience()
    while not remove_ended(marker) and patience.lasts():
        select.select([], [], [], 0.05)


def main():
    if sys.argv[1:2] == ["--keep"]:
        keep(sys.argv[2])
        return 0
    reason = requirements()
    if reason:
        print("NOT TESTED: " + reason)
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory, Cluster(directory) as cluster:
        print("up after %.1f s; %s" % (cluster.started_in_s, shlex.join(cluster.ssh())), flush=True)
        print("It ends with the end of the input.", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())

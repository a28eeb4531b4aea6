"""An arm64 Debian with sshd on this x86-64 machine, and the programs that gpuctl sends to it.

All is made in build/arm64, once: qemu/ (unpacked, not installed), root/ (the Debian) and programs/
(by deploy/node-programs). programs/ is built again when its sources change.
"""
import contextlib
import fcntl
import glob
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess

from emulation import Emulation, mount

RELEASE = "bookworm"
INCLUDED = "openssh-server"


def run(*command, log, **options):
    """Runs a command whose output goes into a file, which the error shows."""
    with open(log, "wb") as file:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                              check=False, **options)
    if done.returncode != 0:
        with open(log, errors="replace") as file:
            text = file.read()[-4000:]
        raise RuntimeError("%s: exit %d\n%s" % (command, done.returncode, text))


class System:
    def __init__(self, source):
        self.source = source
        self.dir = os.path.join(source, "build/arm64")
        self.qemu = os.path.join(self.dir, "qemu/usr/bin/qemu-aarch64-static")
        self.root = os.path.join(self.dir, "root")
        self.programs = os.path.join(self.dir, "programs/node")
        os.makedirs(self.dir, exist_ok=True)

    def make(self):
        with open(self.dir + "/lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.make_qemu()
            Emulation(self.qemu, lambda: None).wait()  # raises where it is not possible
            self.make_root()
            self.make_programs()

    def make_qemu(self):
        if os.path.exists(self.qemu):
            return
        folder = self.dir + "/qemu"
        run("bash", "-euc", 'source "$1"; unpack_debian "$2" qemu-user-static', "-",
            self.source + "/deploy/packages.sh", folder, log=self.dir + "/qemu.out")
        for program in glob.glob(folder + "/usr/bin/*"):  # one of forty is wanted
            if program != self.qemu:
                os.unlink(program)

    def make_root(self):
        made = self.root + "/made"
        wanted = "%s %s" % (RELEASE, INCLUDED)
        with contextlib.suppress(OSError), open(made) as file:
            if file.read() == wanted:
                return
        shutil.rmtree(self.root, ignore_errors=True)
        log = self.dir + "/root.log"
        run("debootstrap", "--foreign", "--arch=arm64", "--variant=minbase", "--include=" + INCLUDED,
            RELEASE, self.root, log=log)

        def second_stage():
            self.mount_system_folders()
            # With this variable debootstrap makes no device nodes, which only the machine may.
            run("chroot", self.root, "/debootstrap/debootstrap", "--second-stage", log=log,
                env={"container": "lxc", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})

        assert Emulation(self.qemu, second_stage).wait() == 0
        with open(made, "w") as file:
            file.write(wanted)

    def mount_system_folders(self):
        for name in ("proc", "dev"):
            mount("--rbind", "/" + name, os.path.join(self.root, name))

    def make_programs(self):
        made = self.dir + "/programs.made"
        wanted = self.digest_of_sources()
        with contextlib.suppress(OSError), open(made) as file:
            if file.read() == wanted:
                return
        # A copy of what it makes goes into a cache, which must not be the user's.
        run(self.source + "/deploy/node-programs", "--here", "--out", os.path.dirname(self.programs),
            "linux-aarch64", log=self.dir + "/programs.log",
            env={**os.environ, "GPUCTL_CACHE_DIR": self.dir + "/cache"})
        with open(made, "w") as file:
            file.write(wanted)

    def digest_of_sources(self):
        """Of all that the programs are made of."""
        listed = subprocess.run(
            ["git", "-C", self.source, "ls-files", "-z", "-co", "--exclude-standard", "--",
             "CMakeLists.txt", "agent", "cmake", "common", "deploy", "proto"],
            stdout=subprocess.PIPE, check=True).stdout
        digest = hashlib.sha256()
        for name in sorted(os.fsdecode(listed).split("\0")[:-1]):
            with contextlib.suppress(FileNotFoundError):
                with open(os.path.join(self.source, name), "rb") as file:
                    content = file.read()
                digest.update(("%s %d\n" % (name, len(content))).encode() + content)
        return digest.hexdigest()


class Node:
    """The system, running. Each of `environments` has an sshd on a port of its own, for root with the
    key `authorized`, which gives it to all that it starts. /tmp, /root and /run are in memory, and
    all of it goes with the last process.
    """

    def __init__(self, system, authorized, environments, log):
        self.system = system
        self.listeners = {name: socket.create_server(("127.0.0.1", 0), backlog=64)
                          for name in environments}
        self.ports = {name: listener.getsockname()[1] for name, listener in self.listeners.items()}
        self.environments = environments
        self.authorized = authorized
        self.log = log
        self.emulation = Emulation(system.qemu, self.serve)
        for listener in self.listeners.values():
            listener.close()

    def path(self, inside):
        """Returns the path on this machine of a file of the node."""
        return "/proc/%d/root%s%s" % (self.emulation.pid, self.system.root, inside)

    def close(self):
        self.emulation.close()

    # From here on, in the namespaces.

    def serve(self):
        root = self.system.root
        self.system.mount_system_folders()
        for name in ("tmp", "root", "run"):
            mount("-t", "tmpfs", "-o", "mode=%s" % ("1777" if name == "tmp" else "755"), "tmpfs",
                  os.path.join(root, name))
        os.mkdir(root + "/run/sshd")
        shutil.copyfile(self.authorized, root + "/run/authorized")
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing stays a zombie
        while True:
            ready, _, _ = select.select(self.listeners.values(), [], [])
            for name, listener in self.listeners.items():
                if listener not in ready:
                    continue
                connection, _ = listener.accept()
                if os.fork() == 0:
                    self.become_sshd(connection, self.environments[name], log)
                connection.close()

    def become_sshd(self, connection, environment, log):
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chroot(self.system.root)
            os.chdir("/")
            os.setsid()
            for fd, at in ((connection.fileno(), 0), (connection.fileno(), 1), (log, 2)):
                os.dup2(fd, at)
            # sshd gives its own environment to nobody, so it is told twice.
            told = " ".join("%s=%s" % word for word in environment.items())
            os.execve("/usr/sbin/sshd", [
                "/usr/sbin/sshd", "-i", "-e", "-f", "/dev/null", "-o", "UsePAM=no",
                "-o", "StrictModes=no", "-o", "PasswordAuthentication=no",
                "-o", "AuthorizedKeysFile=/run/authorized",
                "-o", "HostKey=/etc/ssh/ssh_host_ed25519_key",
                *(["-o", "SetEnv=" + told] if told else []),
            ], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})
        finally:
            os._exit(127)

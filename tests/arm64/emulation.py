"""Namespaces in which the kernel starts arm64 programs by qemu. The machine itself knows nothing of
it: since Linux 6.7 each user namespace can have its own binfmt_misc.
"""
import ctypes
import os
import signal
import subprocess
import sys
import traceback

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
PR_SET_PDEATHSIG = 1
# The first 20 bytes of an ELF file for arm64 Linux, and which of their bits count.
MAGIC = (b"\x7fELF\x02\x01\x01\x00" + bytes(8) + b"\x02\x00\xb7\x00",
         b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff")
NOT_HERE = 3

LIBC = ctypes.CDLL(None, use_errno=True)


class NotPossible(Exception):
    """This machine cannot have such a namespace; the text says why."""


def mount(*words):
    done = subprocess.run(["mount", *words], stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise OSError("mount %s: %s" % (" ".join(words), done.stderr.decode().strip()))


def die_with(parent):
    """Ends this process when `parent`, its parent, ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def register(qemu):
    folder = "/proc/sys/fs/binfmt_misc"
    try:
        mount("-t", "binfmt_misc", "binfmt_misc", folder)
        magic, mask = ("".join("\\x%02x" % byte for byte in part) for part in MAGIC)
        with open(folder + "/register", "w", encoding="ascii") as file:
            # F: qemu is opened now, so that it is found in every root. P: it is told the argv[0].
            file.write(":gpuctl-arm64:M::%s:%s:%s:FP" % (magic, mask, qemu))
    except OSError as error:
        raise NotPossible("this kernel (%s) has no binfmt_misc for a user namespace, which came with "
                          "Linux 6.7: %s" % (os.uname().release, error)) from error


class Emulation:
    """Runs `work()`, a function, as the first process of new user, mount and process namespaces.

    When it ends, or this process does, however it does, all processes and mounts of the namespaces
    are gone. `pid` is the first process's as this process sees it.
    """

    def __init__(self, qemu, work):
        ready, mapped, told = os.pipe(), os.pipe(), os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        self.holder = os.fork()
        if self.holder == 0:
            for fd in (ready[0], mapped[1], told[0]):
                os.close(fd)
            hold(parent, ready[1], mapped[0], told[1], qemu, work)
        for fd in (ready[1], mapped[0], told[1]):
            os.close(fd)
        with os.fdopen(ready[0], "rb") as file:
            refused = file.read().decode()
        if not refused:
            for name in ("uid_map", "gid_map"):
                with open("/proc/%d/%s" % (self.holder, name), "w", encoding="ascii") as file:
                    file.write("0 0 4294967295")
        os.close(mapped[1])
        with os.fdopen(told[0], "rb") as file:
            said = file.read().decode()
        if not said.isdigit():
            self.wait()
            if not refused and not said:
                raise RuntimeError("the namespaces' first process ended at once")
            raise NotPossible(refused or said)
        self.pid = int(said)

    def wait(self):
        """Returns the exit code of `work`: 0, or 1 when it raised."""
        _, status = os.waitpid(self.holder, 0)
        return os.waitstatus_to_exitcode(status)

    def close(self):
        os.kill(self.holder, signal.SIGKILL)
        self.wait()


def hold(parent, ready, mapped, told, qemu, work):
    """The process between: it is in the new user namespace, its child is the first in the others."""
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) != 0:
        os.write(ready, ("a user namespace: " + os.strerror(ctypes.get_errno())).encode())
        os._exit(NOT_HERE)
    die_with(parent)  # unshare would have cleared it
    os.close(ready)
    os.read(mapped, 1)
    os.close(mapped)
    state = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.close(state[0])
        first_process(state[1], qemu, work)
    os.close(state[1])
    with os.fdopen(state[0], "rb") as file:
        said = file.read()
    os.write(told, str(child).encode() if said == b"ok" else said)
    os.close(told)
    _, status = os.waitpid(child, 0)
    os._exit(0 if status == 0 else 1)


def first_process(state, qemu, work):
    code = 1
    try:
        # Its parent is outside, so that it cannot be asked for.
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            mount("--make-rprivate", "/")
            mount("-t", "proc", "proc", "/proc")
        except OSError as error:
            raise NotPossible("this machine lets no namespace have its own /proc: %s" % error) from error
        register(qemu)
        os.write(state, b"ok")
        os.close(state)
        work()
        code = 0
    except NotPossible as error:
        os.write(state, str(error).encode())
    except BaseException:  # whatever it is, this process must not go on as the test
        traceback.print_exc()
    finally:
        os._exit(code)

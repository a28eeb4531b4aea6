#!/usr/bin/env python3
"""A node whose kernel is as old as Linux 3.10 (CentOS 7): every system call that is newer does not
exist there.

  old_kernel.py GPUCTL FAKE_JOB [TEST...]

strace answers ENOSYS for them to all that an ssh command starts: agent, server, shim, job.
"""
import os
import platform
import pwd
import subprocess
import sys

from runs import run_tests, ssh_server

# The first system call of x86-64 that came after Linux 3.10 is sched_setattr, of 3.14. All that are
# newer have higher numbers. strace skips those that it does not know, because of the "?".
NEWER = ",".join("?%d" % number for number in range(314, 600))
SKIPPED = 77

# What must not be there: memfd_create, getrandom, statx and clone3 by their numbers.
PROBE = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for number in (318, 319, 332, 435):
    assert libc.syscall(number, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == errno.ENOSYS, number
print("as old as that")
"""


def test_a_run_on_an_old_kernel(l):
    command = os.path.join(l.dir, "old")
    with open(command, "w", encoding="ascii") as file:
        # -DDD: the tracer is no parent of ours, and is not waited for.
        file.write("#!/bin/sh\nexec strace -DDD -f --seccomp-bpf -o /dev/null -e trace=%s "
                   "-e inject=%s:error=ENOSYS /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n" % (NEWER, NEWER))
    os.chmod(command, 0o755)
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l, "-o", "ForceCommand=" + command) as (port, folder, _):
        host = ["--host", "%s@127.0.0.1:%d" % (user, port), "-i", os.path.join(folder, "user")]
        done = l.run("launch", "-y", "--no-workdir", *host, "--", sys.executable, "-c", PROBE)
        assert done.stdout == b"as old as that\n", done
        os.mkdir(l.work + "/src")
        with open(l.work + "/src/a", "w") as file:
            file.write("alpha" * 100000)
        done = l.run("launch", "-y", "--workdir", "src", "--name", "old-1", *host, "--", "bash", "-c",
                     "cp a b; head -c 3000000 /dev/urandom > c; sha256sum c; exit 3", code=3)
        l.run("pull", "old-1", "b", "c", "--to", "home")
        with open(l.work + "/home/b") as file:
            assert file.read() == "alpha" * 100000
        summed = subprocess.check_output(["sha256sum", "c"], cwd=l.work + "/home")
        assert summed == done.stdout, (summed, done.stdout)
        l.run("launch", "-d", "-y", "--no-workdir", "--name", "old-2", *host, "--", "bash", "-c",
              "trap 'exit 4' TERM; for i in {1..1000}; do sleep 0.05; done")
        assert l.run("exec", "old-2", "--", "echo", "here").stdout == b"here\n"
        stopped = l.json("stop", "old-2")["runs"][0]
        assert (stopped["status"], stopped["exit_code"]) == ("stopped", 4), stopped


if __name__ == "__main__":
    if platform.machine() != "x86_64":
        print("NOT TESTED: the numbers of system calls are those of x86-64")
        sys.exit(SKIPPED)
    run_tests(globals())

#!/usr/bin/env python3
"""Nodes with hardly anything but our static programs: no glibc, no coreutils, mostly no bash.

  bare_system.py GPUCTL FAKE_JOB BARE [TEST...]

BARE is a directory with Debian's bin/busybox and bin/bash-static, made by ./test. (chroot_test looks
at the programs alone in an empty root; here they come by ssh.)
"""
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys

from runs import run_tests, ssh_server
from sync import eventually

SKIPPED = 77
BARE = os.path.abspath(sys.argv.pop(3)) + "/bin/" if __name__ == "__main__" else None

UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]

# All that a delivery and a launch start on a node beside its shell.
NEEDED = ["cat", "chmod", "mkdir", "mv", "rm", "uname"]


def make_root(l, name):
    root = os.path.join(l.dir, name)
    for folder in ("bin", "dev", "etc", "lib", "proc", "root", "tmp"):
        os.makedirs(os.path.join(root, folder))
    os.mkfifo(root + "/tmp/gate")
    return root


@contextlib.contextmanager
def node_in(l, root):
    """Yields the flags for a node whose root directory this is."""
    command = os.path.join(l.dir, os.path.basename(root) + ".sh")
    # The mounts go with the last process that has them.
    with open(command, "w", encoding="utf-8") as file:
        file.write("""#!/bin/sh
exec %s sh -c '
  for name in proc dev; do mount --rbind /$name "$0/$name" || exit; done
  exec chroot "$0" /bin/sh -c "$SSH_ORIGINAL_COMMAND"' '%s'
""" % (" ".join(UNSHARE), root))
    os.chmod(command, 0o755)
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l, "-o", "ForceCommand=" + command, "-o", "SetEnv=PATH=/usr/sbin:/usr/bin:/sbin:/bin "
                    "HOME=/root") as (port, folder, _):
        try:
            yield ["--host", "%s@127.0.0.1:%d" % (user, port), "-i", os.path.join(folder, "user")]
        finally:
            eventually(lambda: not kill_all_in(root), "the end of all processes there")


def kill_all_in(root):
    """Returns whether there was a process with this root directory."""
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.path.samefile("/proc/%s/root" % pid, root):
                os.kill(int(pid), signal.SIGKILL)
                found = True
    return found


def use(l, name, host):
    """Uses a node with a work directory, and all verbs that need no program there but `cat`."""
    os.mkdir(os.path.join(l.work, name))
    with open(os.path.join(l.work, name, "a"), "w") as file:
        file.write("alpha")
    done = l.run("launch", "-y", "--workdir", name, "--name", name + "-1", *host, "--", "cat", "a")
    assert done.stdout == b"alpha", done
    done = l.run("launch", "-y", "--no-workdir", *host, "--", "no-such-program", code=127)
    assert b"could not run" in done.stderr, done.stderr
    l.run("pull", name + "-1", "a", "--to", name + "-home")
    with open(os.path.join(l.work, name + "-home/a")) as file:
        assert file.read() == "alpha"
    l.run("launch", "-d", "-y", "--no-workdir", "--name", name + "-2", *host, "--", "sh", "-c",
          "trap 'exit 4' TERM; read line <> /tmp/gate")
    assert l.run("exec", name + "-2", "--", "cat", stdin=b"through").stdout == b"through"
    stopped = l.json("stop", name + "-2")["runs"][0]
    assert (stopped["status"], stopped["exit_code"]) == ("stopped", 4), stopped
    doctor = l.run("doctor", *host)
    assert b"FAIL" not in doctor.stdout, doctor.stdout.decode()


def test_a_root_without_any_program_that_is_not_needed(l):
    root = make_root(l, "empty")
    # Not busybox's shell, which has all applets in it.
    shutil.copy2(BARE + "bash-static", root + "/bin/sh")
    for applet in NEEDED:
        shutil.copy2(BARE + "busybox", os.path.join(root, "bin", applet))
    with node_in(l, root) as host:
        use(l, "empty", host)


def test_alpine(l):
    """Its layout: ash and busybox, and neither bash nor glibc."""
    root = make_root(l, "alpine")
    shutil.copy2(BARE + "busybox", root + "/bin/busybox")
    os.symlink("/bin/busybox", root + "/bin/sh")
    for path, text in (("etc/alpine-release", "3.20.0\n"),
                       ("etc/passwd", "root:x:0:0:root:/root:/bin/ash\n"),
                       ("etc/os-release", "ID=alpine\n")):
        with open(os.path.join(root, path), "w") as file:
            file.write(text)
    with node_in(l, root) as host:
        l.run("launch", "-y", "--no-workdir", *host, "--", "busybox", "--install", "-s", "/bin")
        use(l, "alpine", host)
        with open(os.path.join(l.work, "run.yaml"), "w") as file:
            file.write("name: script\nrun: |\n  echo of the script\n")
        # Only the script of a run file is bash's.
        done = l.run("launch", "run.yaml", "-y", "--no-workdir", *host, code=127)
        assert b"could not run: exec bash: No such file" in done.stderr, done.stderr
        assert b"HINT: is it installed there" in done.stderr, done.stderr


if __name__ == "__main__":
    if not os.access(BARE + "bash-static", os.X_OK):
        print("NOT TESTED: %s has no programs; ./test puts them there" % BARE)
        sys.exit(SKIPPED)
    done = subprocess.run([*UNSHARE, "true"], stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        print("NOT TESTED: %s" % done.stderr.decode().strip())
        sys.exit(SKIPPED)
    run_tests(globals())

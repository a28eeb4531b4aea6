#!/usr/bin/env python3
"""A machine that is reached through a command only: a pod of Kubernetes, with `sshd -i` behind
`kubectl exec -i`. A program that takes kubectl's arguments and copies in pieces, as a stream over
HTTP does, stands in for it; ssh, its configuration and sshd are real.

  proxy_command.py GPUCTL FAKE_JOB [TEST...]
"""
import contextlib
import os
import pwd
import re
import signal
import subprocess
import sys

from runs import Terminal, open_gate, processes_with, run_tests, wait_until

KUBECTL = """#!%(python)s
import os, random, signal, subprocess, sys, threading, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
words = sys.argv[1:]
if words[:2] != ["exec", "-i"] or "--" not in words:
    sys.exit("error: unknown command")
pod = words[2]
if not os.path.isdir(os.path.join(%(pods)r, pod)):
    sys.exit('Error from server (NotFound): pods "%%s" not found' %% pod)
if os.path.exists(os.path.join(%(pods)r, pod, "asks")):
    print("open https://login.test/device and enter ABCD", file=sys.stderr, flush=True)
    while os.path.exists(os.path.join(%(pods)r, pod, "asks")):
        time.sleep(0.05)
child = subprocess.Popen(words[words.index("--") + 1:], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
def up():
    while piece := os.read(0, random.randrange(1, 40000)):
        child.stdin.write(piece)
        child.stdin.flush()
    child.stdin.close()
threading.Thread(target=up, daemon=True).start()
while piece := os.read(child.stdout.fileno(), random.randrange(1, 40000)):
    os.write(1, piece)
sys.exit(child.wait())
"""


@contextlib.contextmanager
def pod(l, name):
    """Makes a pod and the user's ssh configuration for it. Yields the pod's folder."""
    pods, bin_dir = os.path.join(l.dir, "pods"), os.path.join(l.dir, "bin")
    folder = os.path.join(pods, name)
    for path in (folder, bin_dir):
        os.makedirs(path, exist_ok=True)
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    for key in ("user", "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                        os.path.join(folder, key)], check=True)
    write(os.path.join(folder, "sshd_config"),
          "HostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nUsePAM no\n"
          "PasswordAuthentication no\nPidFile none\n" % (folder, folder))
    config = os.path.join(l.dir, "ssh_config")
    write(config, "Host %s\n  User %s\n  IdentityFile %s/user\n  IdentitiesOnly yes\n"
          "  ProxyCommand kubectl exec -i %%h -c main -- /usr/sbin/sshd -i -f %s/sshd_config\n"
          % (name, pwd.getpwuid(os.geteuid()).pw_name, folder, folder))
    # ssh reads ~/.ssh/config of the user database's home, which a test must not write to.
    program(os.path.join(bin_dir, "ssh"),
            "#!/bin/sh\nexec /usr/bin/ssh -F %s \"$@\"\n" % config)
    program(os.path.join(bin_dir, "kubectl"), KUBECTL % {"python": sys.executable, "pods": pods})
    l.env["PATH"] = bin_dir + ":" + os.environ["PATH"]
    yield folder


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def program(path, text):
    write(path, text)
    os.chmod(path, 0o755)


def ways(l):
    return processes_with((l.dir + "/bin/kubectl").encode())


def test_a_run_in_a_pod(l):
    with pod(l, "trainer-0") as folder:
        write(os.path.join(l.work, "train.py"), "print('from the pod')\n")
        data = os.urandom(3_000_000)
        with open(os.path.join(l.work, "data.bin"), "wb") as file:
            file.write(data)
        done = l.run("launch", "--host", "trainer-0", "--name", "in-pod", "--artifacts", "out.bin",
                     "--", "sh", "-c", "python3 train.py; cp data.bin out.bin; exit 3", code=3)
        assert done.stdout == b"from the pod\n", done
        assert b"@trainer-0:22: its host key is" in done.stderr, done.stderr
        l.run("pull", "in-pod", "--to", os.path.join(l.dir, "home"))
        with open(os.path.join(l.dir, "home", "out.bin"), "rb") as file:
            assert file.read() == data
        assert l.run("exec", "in-pod", "--", "cat", stdin=data).stdout == data
        assert l.json("ps", "-a")["runs"][0]["node"].endswith("@trainer-0:22")
        # Another pod of that name is another machine.
        os.rename(os.path.join(folder, "host"), os.path.join(folder, "old"))
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
                        os.path.join(folder, "host")], check=True)
        done = l.run("exec", "in-pod", "--", "true", code=None)
        assert done.returncode != 0 and b"host key" in done.stderr, done
    wait_until(lambda: not ways(l), "kubectl has ended")


def test_the_run_outlives_the_command(l):
    with pod(l, "trainer-1"):
        gate = os.path.join(l.dir, "cut-1.gate")
        os.mkfifo(gate)
        t = Terminal(l, "launch", "--host", "trainer-1", "--no-workdir", "--name", "cut-1", "--",
                     "sh", "-c", "echo began; read x < %s; echo over" % gate)
        t.until(b"began")
        for _ in range(3):
            wait_until(lambda: ways(l), "kubectl")
            before = set(ways(l))
            for pid in before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: set(ways(l)) - before, "another kubectl")
        open_gate(gate)
        t.until(b"over")
        assert t.finish() == 0, t.text


def test_what_the_command_says_is_told(l):
    with pod(l, "trainer-2") as folder:
        gate = os.path.join(l.dir, "told-1.gate")
        os.mkfifo(gate)
        # Who must sign in first sees how.
        asks = os.path.join(folder, "asks")
        write(asks, "")
        launch = l.start("launch", "--host", "trainer-2", "--no-workdir", "--name", "told-1", "-d",
                         "--", "sh", "-c", "read x < " + gate)
        said = b""
        while b"login.test/device" not in said:
            line = launch.stderr.readline()
            assert line, said
            said += line
        os.unlink(asks)
        _, rest = launch.communicate(timeout=300)
        assert launch.returncode == 0, said + rest
        os.rename(folder, folder + ".gone")
        # The errors name the cause.
        want = b'pods "trainer-2" not found'
        done = l.run("exec", "told-1", "--", "true", code=None)
        assert done.returncode != 0 and done.stderr.count(want) >= 1, done
        assert re.search(rb'reach [^ ]*trainer-2:22: its ProxyCommand said .*pods "trainer-2" not found',
                         done.stderr), done.stderr
        error = l.run("exec", "told-1", "--json", "--", "true", code=None)
        assert want in error.stdout.replace(b'\\\\"', b'"').replace(b'\\"', b'"'), error
        # A panel stays whole: they stand in it.
        t = Terminal(l, "attach", "told-1")
        t.until(b"its ProxyCommand")
        t.until(b'pods "trainer-2"')
        assert b"\nError from server" not in t.text, t.text
        os.rename(folder + ".gone", folder)
        open_gate(gate)
        assert t.finish() == 0, t.text


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""The verbs over the real path: gpuctl, sshd on a socketpair, guard, server, shim, job.

  runs.py GPUCTL FAKE_JOB [TEST...]

Everything is below one temporary directory. At the end every process of its node is ended.
"""
import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import pty
import pwd
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback

import json_check  # noqa: F401, from now on every JSON output is held to docs/schemas

# A shell's function: saves a checkpoint of this step as the trainer does, with its number as content.
SAVE = """
    save() {
      mkdir $GPUCTL_CHECKPOINT_DIR/.new; echo $1 > $GPUCTL_CHECKPOINT_DIR/.new/weights
      sum=$(sha256sum < $GPUCTL_CHECKPOINT_DIR/.new/weights | cut -d' ' -f1)
      echo '{"format": 1, "step": '$1', "files": [{"path": "weights", "size": 2, "sha256": "'$sum'"}]}' \\
        > $GPUCTL_CHECKPOINT_DIR/.new/manifest.json
      mv $GPUCTL_CHECKPOINT_DIR/.new $GPUCTL_CHECKPOINT_DIR/step-$1
    }
    """
DEADLINE_S = 240  # for what takes seconds on a quiet machine


class Patience:
    """The time that a test waits for a condition, at which it looks again and again.

    A machine that stood still between two looks, paused or busy with others, does not use it up.
    """

    def __init__(self, seconds=DEADLINE_S):
        self.left = seconds
        self.looked = time.monotonic()

    def lasts(self):
        now = time.monotonic()
        self.left -= min(now - self.looked, 1)
        self.looked = now
        return self.left > 0


def processes_with(*marks):
    """Returns the processes that have one of `marks`, bytes, in their arguments or environment, with
    the beginning of what was found."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            text = b""
            for name in ("cmdline", "environ"):
                with open("/proc/%s/%s" % (pid, name), "rb") as file:
                    text += file.read()
            if any(mark in text for mark in marks) and int(pid) != os.getpid():
                found[int(pid)] = text[:300]
    return found


def end_processes(*marks):
    """Kills processes_with(marks) until there are none: a guard starts a server while we look."""
    patience = Patience()
    quiet = 0  # a process that is being started shows neither arguments nor environment
    while quiet < 2 and patience.lasts():
        found = processes_with(*marks)
        quiet = 0 if found else quiet + 1
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class Laptop:
    def __init__(self, gpuctl, fake_job):
        self.gpuctl = os.path.abspath(gpuctl)
        self.fake_job = os.path.abspath(fake_job)
        self.dir = tempfile.mkdtemp(prefix="gpuctl-real-")
        self.root = os.path.join(self.dir, "node")
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        self.env = {**os.environ, "HOME": self.dir, "LANG": "C.UTF-8", "TERM": "xterm",
                    "GPUCTL_STATE_DIR": os.path.join(self.dir, "state"),
                    "GPUCTL_CACHE_DIR": os.path.join(self.dir, "cache"),
                    "GPUCTL_NODE_ROOT": self.root,
                    # warm_link.py tries it. Others count connections, or cut them.
                    "GPUCTL_WARM_LINK": "off"}
        for name in ("CI", "NO_COLOR", "CLICOLOR"):
            self.env.pop(name, None)

    def run(self, *args, stdin=b"", code=0, **env):
        done = subprocess.run([self.gpuctl, *args], cwd=self.work, env={**self.env, **env},
                              input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=DEADLINE_S)
        if code is not None:
            assert done.returncode == code, "%s: exit %d, not %d\n%s\n%s" % (
                args, done.returncode, code, done.stdout.decode(errors="replace")[-2000:],
                done.stderr.decode(errors="replace")[-2000:])
        return done

    def json(self, *args, code=0, **env):
        return json.loads(self.run(*args, "--json", code=code, **env).stdout)

    def start(self, *args):
        return subprocess.Popen([self.gpuctl, *args], cwd=self.work, env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    def node_pids(self):
        mine = self.root.encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    words = file.read()
                if mine in words and int(pid) != os.getpid():
                    yield int(pid)

    def close(self):
        end_processes(self.dir.encode())
        shutil.rmtree(self.dir, ignore_errors=True)


class Terminal:
    """A command on a pseudo-terminal of 80 by 24."""

    def __init__(self, laptop, *args, rows=24, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(laptop.work)
            os.execve(laptop.gpuctl, [laptop.gpuctl, *args], laptop.env)
        self.resize(rows, columns)
        self.text = b""

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_some(self):
        ready, _, _ = select.select([self.fd], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.text += data
        return bool(data)

    def until(self, wanted):
        patience = Patience()
        while wanted not in self.text:
            assert patience.lasts(), "no %r in %r" % (wanted, self.text[-3000:])
            assert self.read_some(), "ended without %r: %r" % (wanted, self.text[-3000:])

    def until_or_end(self, wanted):
        """Returns whether it came before the command's end."""
        patience = Patience()
        while wanted not in self.text:
            assert patience.lasts(), "no %r in %r" % (wanted, self.text[-3000:])
            if not self.read_some():
                break
        return wanted in self.text

    def type(self, data):
        os.write(self.fd, data)

    def finish(self):
        patience = Patience()
        while self.read_some():
            assert patience.lasts(), "does not end: %r" % self.text[-3000:]
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def wait_for_file(path):
    patience = Patience()
    while not os.path.exists(path):
        assert patience.lasts(), path
        select.select([], [], [], 0.02)


def cmdline(pid):
    with contextlib.suppress(OSError):
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read()
    return b""


def is_locked(path):
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def held_job(laptop, name, *extra):
    """Starts a detached run that waits until somebody writes to its FIFO `gate`."""
    gate = os.path.join(laptop.dir, name + ".gate")
    os.mkfifo(gate)
    laptop.run("launch", "-d", "--no-workdir", "--name", name, *extra, "--", "bash", "-c",
               "echo begin; read line < %s; echo \"end $line\"" % gate)
    return gate


def open_gate(gate, text="now"):
    """Lets a job go on. A job that waits at one gate twice holds it open (`exec 3<> GATE`): its
    second `read` would else meet the end of the first word's writer."""
    patience = Patience()
    while True:
        try:
            file = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError as error:
            # ENXIO: no reader. One that ended already will never come.
            assert error.errno == errno.ENXIO and patience.lasts(), \
                "no job waits at %s: %s" % (gate, error)
            time.sleep(0.01)
    os.write(file, (text + "\n").encode())
    os.close(file)


def test_the_end_of_a_run_says_how_its_results_come_home(l):
    home = os.path.join(l.dir, "results")
    os.mkdir(home)
    makes = ["--workdir", home, "--", "sh", "-c", "mkdir out; echo 1 > out/a"]
    for name, flags, words in (
            ("named", ["--artifacts", "out/**"], b"HINT: gpuctl pull named-1 brings the results that it named home"),
            ("unnamed", [], b"HINT: files that it made stay on local: gpuctl pull unnamed-1 lists them"),
            ("pulled", ["--artifacts", "out/**", "--pull"], None)):
        terminal = Terminal(l, "launch", "--name", name, *flags, *makes)
        assert terminal.finish() == 0, terminal.text
        text = b" ".join(terminal.text.split())
        assert words in text if words else b"gpuctl pull" not in text, text


def test_a_dry_run_asks_the_machine_for_its_gpu(l):
    """It says what the launch would say."""
    def said(done):
        # How much of the disk is free may have changed between the two.
        return [re.sub(rb"has [0-9.]+ [kMGTP]?B of disk free", b"has SIZE of disk free", text)
                for text in (done.stdout, done.stderr)]

    write = os.path.join(l.work, "gpu.yaml")
    with open(write, "w", encoding="utf-8") as file:
        file.write("name: needs\nresources: {gpu: H100:1, provider: local}\nrun: 'true'\n")
    for flags in (["gpu.yaml"], ["--provider", "local", "--gpus", "1", "--", "true"],
                  ["--host", "local", "--gpu", "A100-80GB", "--", "true"],
                  ["--provider", "local", "--disk", "900TB", "--", "true"]):
        for more in ([], ["--json"]):
            dry = l.run("launch", "--no-workdir", "--dry-run", *more, *flags, code=121)
            real = l.run("launch", "--no-workdir", *more, *flags, code=121)
            if "--gpus" not in flags:
                assert said(dry) == said(real), (dry, real)
            assert b"asks for" in dry.stdout + dry.stderr, dry
    assert b"machine   local" in l.run("launch", "--no-workdir", "--dry-run", "--", "true").stdout


def test_output_and_exit_code_pass_through(l):
    done = l.run("launch", "--no-workdir", "--", "bash", "-c",
                 "printf 'a\\0b\\n\\033[2J'; echo err >&2; exit 7", code=7)
    assert done.stdout == b"a\0b\n\033[2Jerr\n", done.stdout
    assert b"exited with code 7" in done.stderr, done.stderr


def test_directories_may_have_any_name(l):
    # sshd's configuration, its patterns and the shell each have their own quotes.
    odd = " it's \"50%\" \\ $HOME [a] *?"
    done = l.run("launch", "--", "sh", "-c", "echo hello", GPUCTL_STATE_DIR=l.dir + "/state" + odd,
                 GPUCTL_CACHE_DIR=l.dir + "/cache" + odd, GPUCTL_NODE_ROOT=l.root + odd)
    assert done.stdout == b"hello\n", done


def test_signal_limit_and_missing_command(l):
    l.run("launch", "--no-workdir", "--", "bash", "-c", "kill -9 $$", code=137)
    done = l.run("launch", "--no-workdir", "--json", "--time", "1s", "--grace", "1s", "--",
                 "sleep", "600", code=119)
    run = json.loads(done.stdout)
    assert run["source"] == "gpuctl" and run["reason"].startswith("limit:"), run
    assert run["exit_code"] == 119 and run["job_exit_code"] == 143, run
    done = l.run("launch", "--no-workdir", "--", "no-such-command-xyz", code=127)
    assert b"could not run" in done.stderr, done.stderr
    assert b"is it installed there and in PATH?" in done.stderr, done.stderr
    done = l.run("launch", "--no-workdir", "--", "no-such-script.py", code=127)
    assert b"HINT: a script needs its interpreter: -- python3 no-such-script.py" in done.stderr
    # One that is here is refused before anything is launched or rented.
    with open(os.path.join(l.work, "only a script.py"), "w") as file:
        file.write("print('hello')\n")
    for verb in (["launch"], ["submit", "--name", "scripts", "--sweep", "lr=1,2"]):
        done = l.run(*verb, "--", "only a script.py", code=2)
        assert b"HINT: a script needs its interpreter: -- python3 'only a script.py'" in done.stderr, done.stderr
    assert l.run("launch", "--", "python3", "only a script.py").stdout == b"hello\n"
    done = l.run("launch", "--", "python3", "only a scrpt.py", code=2)
    assert b'only a scrpt.py is not in the work directory (did you mean "only a script.py"?)' in done.stderr, done
    l.run("launch", "--no-workdir", "--name", "crashes", "--", "bash", "-c", "echo KeyError: x; exit 4", code=4)
    assert re.search(rb"last line +KeyError: x", l.run("show", "crashes").stdout)
    done = l.run("launch", "--", "my book.ipynb", code=2)
    assert b"HINT: make a script of it, jupyter nbconvert --to script 'my book.ipynb', and launch that: -- python3 'my book.py'" in done.stderr, done.stderr
    done = l.run("launch", "--no-workdir", "-e", "PATH=/usr/bin:/bin", "--", "bash", "-c", "python -V || exit 1",
                 code=None)
    assert done.returncode == 0 or b"many machines have python3 but no python" in done.stderr, done


def test_work_directory_is_sent_without_git(l):
    os.makedirs(os.path.join(l.work, "src/.git"))
    for path, text in (("src/a.txt", "alpha"), ("src/.git/config", "secret")):
        with open(os.path.join(l.work, path), "w") as file:
            file.write(text)
    done = l.run("launch", "--workdir", "src", "--", "bash", "-c", "cat a.txt; ls -A")
    assert done.stdout == b"alphaa.txt\n", done.stdout
    # Ignored files stay at home, and so do secrets that were not named.
    for path, text in (("src/.gitignore", "*.bin\nout/\n"), ("src/b.bin", "b"),
                       ("src/.gpuctlignore", "!b.bin\n"), ("src/c.bin", "c"),
                       ("src/.env", "TOKEN=canary"), ("src/out/log", "log")):
        os.makedirs(os.path.dirname(os.path.join(l.work, path)), exist_ok=True)
        with open(os.path.join(l.work, path), "w") as file:
            file.write(text)
    done = l.run("launch", "--workdir", "src", "--", "ls", "-A")
    assert done.stdout.split() == [b".gitignore", b".gpuctlignore", b"a.txt", b"b.bin"], done.stdout
    assert b"secrets by their names: .env;" in done.stderr, done.stderr
    listed = l.json("sync", "--dry-run", "--workdir", "src")
    assert [entry["path"] for entry in listed["entries"]] == [
        ".gitignore", ".gpuctlignore", "a.txt", "b.bin"], listed
    done = l.run("launch", "--workdir", "src", "--include", ".env", "--", "cat", ".env")
    assert done.stdout == b"TOKEN=canary" and b"secrets" not in done.stderr, done.stderr
    for path in (".gitignore", ".gpuctlignore", ".env", "b.bin", "c.bin"):
        os.unlink(os.path.join(l.work, "src", path))
    shutil.rmtree(os.path.join(l.work, "src/out"))
    # The second time the content is there already, and nothing is hashed again.
    done = l.run("launch", "--workdir", "src", "--trace", "--", "cat", "a.txt")
    assert done.stdout == b"alpha" and b"trace: push" not in done.stderr, done.stderr


def test_run_file_env_and_secrets(l):
    with open(os.path.join(l.work, "run.yaml"), "w") as file:
        file.write("name: from-file\nenv: {COLOUR: red}\nsecrets: [TOKEN]\nrun: |\n"
                   "  echo $COLOUR $TOKEN $GPUCTL_ATTEMPT\n  false | true\n  echo not reached\n")
    done = l.run("launch", "run.yaml", "--no-workdir", code=1, TOKEN="canary-5309")
    assert done.stdout == b"red canary-5309 1\n", done.stdout
    for folder, _, files in os.walk(l.env["GPUCTL_STATE_DIR"]):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found = b"canary-5309" in file.read()
            # The job printed it, so only its own output has it.
            assert not found or "/output/" in path, path


def test_detach_attach_wait_ps(l):
    gate = held_job(l, "held-1")
    run = l.json("ps")["runs"][0]
    assert (run["name"], run["status"], run["state"]) == ("held-1", "running", "JOB_STATE_RUNNING"), run
    l.run("wait", "held-1", "--timeout", "100ms", code=124)
    l.run("wait", "held-1", "--for", "running")
    attached = l.start("attach", "held-1")
    open_gate(gate)
    out, err = attached.communicate(timeout=DEADLINE_S)
    assert (attached.returncode, out) == (0, b"begin\nend now\n"), (out, err)
    l.run("wait", "held-1")
    assert l.run("attach", "held-1").stdout == b"begin\nend now\n"
    assert l.json("ps")["runs"] == []
    assert b"succeeded" in l.run("ps", "-a").stdout
    assert l.run("logs", "hel", "--tail", "1").stdout == b"end now\n"


def test_ps_asks_the_machines_of_live_runs(l):
    gate = os.path.join(l.dir, "asked.gate")
    os.mkfifo(gate)
    script = ("step() { echo '{\"type\":\"step\",\"step\":'$1',\"total_steps\":9}' >> $GPUCTL_METRICS; }; "
              "exec 3<> %s; step 1; read x <&3; step 7; read x <&3" % gate)
    l.run("launch", "-d", "--no-workdir", "--name", "asked-1", "--", "bash", "-c", script)

    def step(*flags):
        run = next(run for run in l.json("ps", *flags)["runs"] if run["name"] == "asked-1")
        return run["step"]

    wait_until(lambda: step() == 1, "the job is at its first step")
    open_gate(gate)
    assert step("--offline") == 1  # nobody was asked since
    wait_until(lambda: step() == 7, "the job is at its second step")
    assert step("--offline") == 7
    t = Terminal(l, "ps", rows=24, columns=80)
    assert t.finish() == 0
    # It was drawn at once, and again in its place.
    assert t.text.count(b"NAME") == 2 and b"A\x1b[J" in t.text, t.text
    assert l.run("ps", "-u", "--offline", code=2).stdout == b""
    # Its end is known without attach.
    open_gate(gate)
    wait_until(lambda: "asked-1" not in [run["name"] for run in l.json("ps")["runs"]], "it ended")
    ended = next(run for run in l.json("ps", "-a", "--offline")["runs"] if run["name"] == "asked-1")
    assert ended["status"] == "succeeded", ended


def test_ps_waits_for_no_silent_machine(l):
    gate = held_job(l, "unheard-1")
    stopped = [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        run = next(run for run in l.json("ps")["runs"] if run["name"] == "unheard-1")
        assert run["status"] == "running" and run["last_heard"], run
        assert b"local did not answer within 1s" in l.run("ps").stderr
        assert not l.run("ps", "--offline").stderr
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    open_gate(gate)
    l.run("wait", "unheard-1")


def test_output_that_finds_no_room_is_an_error(l):
    """Without an error a script that reads the file would take half a list for a whole one."""
    if not os.path.exists("/dev/full"):
        return  # another system's
    for args in (["ps", "-a"], ["ps", "-a", "--json"], ["--help"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([l.gpuctl, *args], env=l.env, cwd=l.work, stdout=full,
                                  stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False)
        assert done.returncode == 1 and b"write the output: No space left" in done.stderr, done


def test_wait_returns_the_first_failure_in_order(l):
    names = []
    for code in (0, 5, 4):
        names.append("w%d" % code)
        l.run("launch", "-d", "--no-workdir", "--name", names[-1], "--", "bash", "-c",
              "exit %d" % code, code=None)
    l.run("wait", *names, code=5)


def test_stop_lets_the_job_save(l):
    saved = os.path.join(l.dir, "saved")
    l.run("launch", "-d", "--no-workdir", "--name", "stopme-1", "--", "bash", "-c",
          "trap 'echo saved > %s; exit 3' TERM; echo up; while :; do sleep 0.05; done" % saved)
    run = l.json("stop", "stopme-1")["runs"][0]
    assert (run["status"], run["reason"], run["exit_code"]) == ("stopped", "user", 3), run
    assert os.path.exists(saved)
    l.run("stop", "stopme-1")
    assert b"nothing is rented for that" in l.run("down", "stopme-1", "-y").stderr


def test_logs_follow(l):
    gate = held_job(l, "followed-1")
    logs = l.start("logs", "-f", "followed-1")
    assert logs.stdout.readline() == b"begin\n"
    open_gate(gate)
    out, _ = logs.communicate(timeout=DEADLINE_S)
    assert (logs.returncode, out) == (0, b"end now\n"), out


def test_exec_is_byte_exact(l):
    gate = held_job(l, "execd-1", "-e", "COLOUR=it's red")
    done = l.run("exec", "execd-1", "--", "cat", stdin=bytes(range(256)) * 1000)
    assert done.stdout == bytes(range(256)) * 1000
    done = l.run("exec", "execd-1", "--", "bash", "-c",
                 "echo \"$COLOUR|$GPUCTL_JOB_ID|$(basename $PWD)\"; head -c 200000 /dev/zero >&2; exit 9",
                 code=9)
    job_id = l.json("ps")["runs"][0]["job_id"]
    assert done.stdout.decode() == "it's red|%s|work\n" % job_id, done.stdout
    assert done.stderr == b"\0" * 200000, len(done.stderr)
    l.run("exec", "execd-1", "--", "no-such-command-xyz", code=127)
    open_gate(gate)
    l.run("wait", "execd-1")


def test_exec_outlives_the_job_that_it_looks_at(l):
    held_job(l, "looked-at-1")
    held = os.path.join(l.dir, "exec.gate")
    os.mkfifo(held)
    looking = l.start("exec", "looked-at-1", "--", "bash", "-c",
                      "echo here; read x < %s; echo $x" % held)
    assert looking.stdout.readline() == b"here\n"
    l.run("stop", "looked-at-1")
    assert looking.poll() is None
    open_gate(held, "still here")
    assert looking.communicate(timeout=DEADLINE_S)[0] == b"still here\n"
    assert looking.returncode == 0


def test_pull_verifies_and_publishes_whole(l):
    l.run("launch", "--no-workdir", "--name", "trained-1", "--", l.fake_job, "--steps", "4",
          "--checkpoint-every", "2")
    pulled = l.json("pull", "trained-1", "--to", "home")
    path = os.path.join(l.work, pulled["checkpoints"][0]["path"])
    assert pulled["checkpoints"][0]["step"] == 4, pulled
    with open(os.path.join(path, "manifest.json")) as file:
        manifest = json.load(file)
    for entry in manifest["files"]:
        with open(os.path.join(path, entry["path"]), "rb") as file:
            assert hashlib.sha256(file.read()).hexdigest() == entry["sha256"]
    assert os.listdir(os.path.join(l.work, "home")) == [os.path.basename(path)]
    assert l.json("pull", "trained-1", "--to", "home")["checkpoints"][0]["already_here"]
    l.run("pull", "trained-1", "--to", "home", "--checkpoint", "2")
    missing = l.run("pull", "trained-1", "--to", "home", "--checkpoint", "3", code=1)
    assert b"there are steps 2, 4" in missing.stderr, missing.stderr
    verified = l.json("verify", "trained-1", "--read-data")
    assert verified["ok"] and verified["checkpoints"] == 2, verified
    assert verified["output"]["complete"], verified
    victim = os.path.join(path, manifest["files"][0]["path"])
    with open(victim, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    done = l.run("pull", "trained-1", "--to", "home", code=118)
    assert b"HINT:" in done.stderr, done.stderr
    l.run("verify", "trained-1")
    verified = l.json("verify", "trained-1", "--read-data", code=118)
    assert [(p["path"], p["problem"]) for p in verified["problems"]] == [
        (os.path.realpath(victim), "changed")], verified
    os.unlink(victim)
    done = l.run("verify", "trained-1", code=118)
    assert done.stdout.decode().startswith("missing  " + os.path.realpath(path)), done


WRITE_CHECKPOINT = """
d=$GPUCTL_CHECKPOINT_DIR/step-00000002
mkdir -p $GPUCTL_CHECKPOINT_DIR/.tmp
cd $GPUCTL_CHECKPOINT_DIR/.tmp
printf %s "$0" > weights
printf '{"format":1,"step":2,"files":[{"path":"weights","size":%d,"sha256":"%s"}]}' \
  ${#0} $(sha256sum < weights | cut -d' ' -f1) > manifest.json
rm -rf $d
mv $GPUCTL_CHECKPOINT_DIR/.tmp $d
"""


def test_pull_does_not_take_another_runs_checkpoint_for_this_ones(l):
    for name, weights in (("twin-a", "one"), ("twin-b", "two"), ("twin-c", "one")):
        l.run("launch", "--no-workdir", "--name", name, "--", "bash", "-c", WRITE_CHECKPOINT,
              weights)
    l.run("pull", "twin-a", "--to", "twins")
    done = l.run("pull", "twin-b", "--to", "twins", code=1)
    assert b"is something else" in done.stderr and b"--to" in done.stderr, done.stderr
    # The same content counts as home, whoever brought it.
    assert l.json("pull", "twin-c", "--to", "twins")["checkpoints"][0]["already_here"]
    with open(os.path.join(l.work, "twins/step-00000002/weights")) as file:
        assert file.read() == "one"
    assert os.listdir(os.path.join(l.work, "twins")) == ["step-00000002"]


def test_pull_of_names_that_are_no_text(l):
    l.run("launch", "--no-workdir", "--name", "odd-1", "--", "python3", "-c",
          "import os\n"
          "for d in (b'out', b'saved-\\xff'):\n"
          "    os.mkdir(d)\n"
          "    for n in (b'plain', b'\\xff\\n\\x01'):\n"
          "        open(d + b'/' + n, 'wb').write(n)\n")
    pulled = l.json("pull", "odd-1", "**/*", "--to", "odd-home")
    assert len(pulled["files"]) == 4, pulled
    home = os.path.join(l.work, "odd-home").encode()
    for directory in (b"out", b"saved-\xff"):
        assert sorted(os.listdir(os.path.join(home, directory))) == [b"plain", b"\xff\n\x01"]
        with open(os.path.join(home, directory, b"\xff\n\x01"), "rb") as file:
            assert file.read() == b"\xff\n\x01"
    assert l.json("verify", "odd-1", "--read-data")["ok"]


def test_pull_brings_a_checkpoint_that_was_written_again(l):
    gate, written = os.path.join(l.dir, "again.gate"), os.path.join(l.dir, "again.written")
    for path in (gate, written):
        os.mkfifo(path)
    script = os.path.join(l.dir, "again.sh")
    with open(script, "w") as file:
        file.write(WRITE_CHECKPOINT)
    l.run("launch", "-d", "--no-workdir", "--name", "again-1", "--", "bash", "-c",
          "for w in one three; do bash -c \"$(cat %s)\" $w; echo > %s; read line < %s; done" %
          (script, written, gate))
    home = os.path.join(l.work, "again-1/step-00000002/weights")
    with open(written) as file:
        file.read()
    l.run("pull", "again-1")
    assert l.json("pull", "again-1")["checkpoints"][0]["already_here"]
    open_gate(gate)
    with open(written) as file:
        file.read()
    assert not l.json("pull", "again-1")["checkpoints"][0]["already_here"]
    with open(home) as file:
        assert file.read() == "three"
    assert l.json("verify", "again-1", "--read-data")["ok"]
    open_gate(gate)


def test_pull_refuses_a_checkpoint_that_is_damaged_on_the_node(l):
    l.run("launch", "--no-workdir", "--name", "damaged-1", "--", l.fake_job, "--steps", "2",
          "--checkpoint-every", "2")
    job_id = l.json("ps", "-a")["runs"][0]["job_id"]
    folder = os.path.join(l.root, "jobs", job_id, "ckpt/step-00000002")
    with open(os.path.join(folder, "manifest.json")) as file:
        victim = os.path.join(folder, json.load(file)["files"][0]["path"])
    with open(victim, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))
    l.run("pull", "damaged-1", "--to", "bad", code=118)
    assert os.listdir(os.path.join(l.work, "bad")) == []


def test_ps_shows_the_others_when_one_run_cannot_be_read(l):
    gates = {name: os.path.join(l.dir, name + ".gate") for name in ("spoiled-1", "sound-1")}
    for name, gate in gates.items():
        os.mkfifo(gate)
        l.run("launch", "-d", "--no-workdir", "--name", name, "--", "bash", "-c",
              "read line < %s" % gate)
    ids = {run["name"]: run["run_id"] for run in l.json("ps")["runs"]}
    path = os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", ids["spoiled-1"], "lifecycle.jsonl")
    with open(path, "ab") as file:
        file.write(b"[" * (70 << 20))
    done = l.run("ps")
    assert b"spoiled" in done.stdout and b"sound" in done.stdout, done.stdout
    assert b"spoiled-1: its state here cannot be read" in done.stderr, done.stderr
    os.truncate(path, 0)
    for gate in gates.values():
        open_gate(gate)


def test_pull_of_files_beside_the_checkpoints(l):
    l.run("launch", "--no-workdir", "--name", "loose-1", "--", "bash", "-c",
          PUBLISH + "publish 1; cd $GPUCTL_CHECKPOINT_DIR; echo more > step-00000001/extra; "
          "echo plain > model.pt; mkdir torn; echo part > torn/w")
    refused = l.run("rm", "loose-1", code=1).stderr
    assert b"gpuctl pull loose-1 brings the files beside the checkpoints" in refused, refused
    brought = l.json("pull", "loose-1", "--to", "plain")
    assert [each["path"] for each in brought["files"]] == [
        "ckpt/model.pt", "ckpt/step-00000001/extra", "ckpt/torn/w"], brought
    home = os.path.join(l.work, "plain")
    for name, text in (("ckpt/model.pt", "plain"), ("ckpt/step-00000001/extra", "more"),
                       ("ckpt/torn/w", "part"), ("step-00000001/w", "weights 1")):
        with open(os.path.join(home, name), encoding="utf-8") as file:
            assert file.read() == text + "\n", name
    again = l.run("pull", "loose-1", "--to", "plain").stderr
    assert again.count(b"was here already") == 4, again
    l.run("rm", "loose-1")


def test_pull_of_files(l):
    l.run("launch", "--no-workdir", "--name", "files-1", "--", "bash", "-c",
          "mkdir -p out/deep; echo 1 > out/a.json; echo 2 > out/deep/b.json; echo 3 > out/c.txt")
    l.run("pull", "files-1", "out/**/*.json", "--to", "files-1")
    found = sorted(os.path.join(d, f)[len(l.work):] for d, _, fs in
                   os.walk(os.path.join(l.work, "files-1")) for f in fs)
    # The directory of the run's name is its own: launches do not send it.
    assert found == ["/files-1/.gpuctlignore", "/files-1/out/a.json", "/files-1/out/deep/b.json"], found
    l.run("pull", "files-1", "nothing/*", code=1)
    # What the job made has a folder of its own, so not all that was sent has to come.
    assert b"HINT: gpuctl pull files-1 'out/**' brings them" in l.run("pull", "files-1", code=1).stderr
    for pattern in ("*.json", "out/c.txt"):
        done = l.run("pull", pattern, code=2)
        assert b"the run stands in front of the patterns" in done.stderr, done
        assert b"HINT: gpuctl pull @last " in done.stderr, done


def test_pull_keeps_times_and_says_what_modes_it_drops(l):
    l.run("launch", "--no-workdir", "--name", "modes-1", "--", "bash", "-c",
          "echo x > tool; echo x > plain; chmod 6755 tool; touch -d @1500000000 tool plain")
    said = l.run("pull", "modes-1", "*", "--to", "modes-1").stderr.decode().splitlines()
    for name in ("tool", "plain"):
        info = os.stat(os.path.join(l.work, "modes-1", name))
        assert info.st_mtime_ns == 1500000000 * 10**9 and info.st_mode & 0o7000 == 0, (name, info)
        line, = (one for one in said if "modes-1/%s: " % name in one)
        assert ("without its setuid and setgid" in line) == (name == "tool"), line
    said = l.run("cp", "modes-1:tool", ".").stderr
    assert b"setuid and setgid are not kept: tool" in said, said
    info = os.stat(os.path.join(l.work, "tool"))
    assert info.st_mtime_ns == 1500000000 * 10**9 and info.st_mode & 0o7777 == 0o755, info


def test_the_list_of_checkpoints_fits_and_tells_their_loss(l):
    folder = "outputs/an-experiment-with-a-long-name"
    script = ("for i in 1 2; do mkdir -p {0}/checkpoint-$i; echo $i > {0}/checkpoint-$i/weights; done; "
              "for m in '\"step\":1,\"loss\":3.5' '\"step\":2,\"loss\":2.5,\"eval_loss\":1.25'; do "
              "echo \"{{$m}}\" > $GPUCTL_METRICS; done").format(folder)
    l.run("launch", "--no-workdir", "--name", "told-1", "--checkpoints", folder + "/checkpoint-*", "--",
          "bash", "-c", script)
    l.run("pull", "told-1")
    found = [(one["step"], one["loss"], one["eval_loss"], one["here"] is None)
             for one in l.json("pull", "told-1", "--list")["checkpoints"]]
    assert found == [(1, 3.5, None, True), (2, 2.5, 1.25, False)], found
    t = Terminal(l, "pull", "told-1", "--list")
    assert t.finish() == 0
    lines = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", t.text).decode().split("\r\n")
    assert all(len(line) <= 80 for line in lines), lines
    assert "EVAL LOSS" in lines[0] and "1.25" in lines[2] and "1.25" not in lines[1], lines
    # A pipe gets all of it.
    table = l.run("pull", "told-1", "--list").stdout.decode()
    assert "work/%s/checkpoint-2" % folder in table and "./told-1/checkpoint-2" in table, table


def test_the_host_local_is_this_computer(l):
    assert l.run("launch", "--no-workdir", "--host", "local", "--", "echo", "here").stdout == b"here\n"
    plan = l.json("launch", "--no-workdir", "--host", "local", "--dry-run", "--run", "true")["plan"]
    assert (plan["provider"], plan["node"]) == ("local", "local"), plan
    for provider in ("local", "runpod"):
        done = l.run("launch", "--no-workdir", "--host", "me@box", "--provider", provider, "--run", "true", code=2)
        assert b"name different machines" in done.stderr, done
        done = l.run("resume", "any", "--host", "me@box", "--provider", provider, code=2)
        assert b"name different machines" in done.stderr, done
    plan = l.json("launch", "--no-workdir", "--host", "local", "--provider", "ssh", "--dry-run", "--run",
                  "true")["plan"]
    assert plan["provider"] == "ssh" and "@local:" in plan["node"], plan
    done = l.run("launch", "--no-workdir", "--host", "local", "-p", "22", "--", "true", code=2)
    assert b"--host local is this computer" in done.stderr, done


def test_pull_of_a_scripts_checkpoints(l):
    gate = os.path.join(l.dir, "foreign.gate")
    os.mkfifo(gate)
    script = ("exec 3<> %s; mkdir -p out/checkpoint-1 out/checkpoint-3.tmp; "
              "echo one > out/checkpoint-1/weights; echo half > out/checkpoint-3.tmp/weights; "
              "read x <&3; mkdir -p out/checkpoint-2/deep; echo two > out/checkpoint-2/deep/weights; "
              "echo '{\"torn' > out/config.json; mkdir out/checkpoint-4; "
              "echo '{\"torn' > out/checkpoint-4/config.json; touch ready; read x <&3" % gate)
    l.run("launch", "-d", "--no-workdir", "--name", "foreign-1", "--checkpoints", "out/checkpoint-*",
          "--", "bash", "-c", script)
    open_gate(gate)
    job_id = l.json("ps")["runs"][0]["job_id"]
    wait_for_file(os.path.join(l.root, "jobs", job_id, "work/ready"))
    # It was written a moment ago, so its writer may not be done.
    assert b"nothing to bring yet" in l.run("pull", "foreign-1", "--to", "scripts", code=1).stderr
    open_gate(gate)
    l.run("wait", "foreign-1")
    missing = l.run("pull", "foreign-1", "--to", "scripts", "--checkpoint", "checkpoint-4", code=1)
    assert b"there are checkpoint-1, checkpoint-2\n" in missing.stderr, missing.stderr
    pulled = l.json("pull", "foreign-1", "--to", "scripts")
    assert pulled["checkpoints"] == [{"step": 2, "kind": "foreign", "path": "scripts/checkpoint-2",
                                      "bytes": 4, "already_here": False,
                                      "verified": True}], pulled
    home = os.path.join(l.work, "scripts")
    assert os.listdir(home) == ["checkpoint-2"], os.listdir(home)
    with open(os.path.join(home, "checkpoint-2/deep/weights")) as file:
        assert file.read() == "two\n"
    assert l.json("pull", "foreign-1", "--to", "scripts")["checkpoints"][0]["already_here"]
    l.run("pull", "foreign-1", "--to", "scripts", "--checkpoint", "checkpoint-1")
    l.run("pull", "foreign-1", "--to", "scripts", "--checkpoint", "1")
    # New content under the same name replaces what pull itself had brought.
    weights = os.path.join(l.root, "jobs", job_id, "work/out/checkpoint-2/deep/weights")
    with open(weights, "w") as file:
        file.write("another two\n")
    assert not l.json("pull", "foreign-1", "--to", "scripts")["checkpoints"][0]["already_here"]
    with open(os.path.join(home, "checkpoint-2/deep/weights")) as file:
        assert file.read() == "another two\n"
    assert sorted(os.listdir(home)) == ["checkpoint-1", "checkpoint-2"], os.listdir(home)
    assert l.json("verify", "foreign-1", "--read-data")["files"] == 2
    # The user's own files stay.
    with open(os.path.join(home, "checkpoint-1/weights"), "w") as file:
        file.write("mine")
    done = l.run("pull", "foreign-1", "--to", "scripts", "--checkpoint", "1", code=1)
    assert b"is something else" in done.stderr, done.stderr
    with open(os.path.join(home, "checkpoint-1/weights")) as file:
        assert file.read() == "mine"


# Saves a checkpoint of which nothing proves that it is whole when it is stopped, and ends with a
# code of its own. With a checkpoint to begin with it says so and ends.
SAVES_AT_SIGTERM = """
import os, signal, sys, time
code, wait, damage = int(sys.argv[1]), float(sys.argv[2]), len(sys.argv) > 3
start = os.environ.get("GPUCTL_RESUME_FROM")
if start:
    with open(os.path.join(start, "state")) as file:
        print("going on from", file.read())
    sys.exit(0)
def save(number, frame):
    time.sleep(wait)
    os.makedirs("out/checkpoint-7")
    with open("out/checkpoint-7/state", "w") as file:
        file.write("step 7")
    if damage:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(code)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
signal.pause()
"""


def stop_saver(l, name, *command):
    """Launches a job that saves when it is stopped, and stops it."""
    l.run("launch", "-d", "--no-workdir", "--name", name, "--checkpoints", "out/checkpoint-*", "--",
          *command)
    logs = l.start("logs", "-f", name)
    assert logs.stdout.readline() == b"ready\n"
    l.run("stop", name)
    logs.communicate(timeout=DEADLINE_S)


def test_what_a_stopped_script_saved_is_pulled_and_resumed(l):
    for name, code, command in [
            ("exits", 143, ["python3", "-c", SAVES_AT_SIGTERM, "143", "0"]),
            ("fails", 1, ["python3", "-c", SAVES_AT_SIGTERM, "1", "0"]),
            # A trap runs when the command before it has ended, which SIGTERM reaches, too.
            ("trap", 143, ["bash", "-c", "trap 'exit 143' TERM; python3 -c \"$0\" 0 0; true",
                           SAVES_AT_SIGTERM]),
            # SIGTERM ends this shell at once, and the script saves without it.
            ("shell", 143, ["bash", "-c", "python3 -c \"$0\" 0 2; echo over", SAVES_AT_SIGTERM])]:
        stop_saver(l, name, *command)
        run = l.json("wait", name + "-1", code=code)["runs"][0]
        assert run["job_exit_code"] == code and run["status"] == "stopped", run
        pulled = l.json("pull", name + "-1")
        assert [each["step"] for each in pulled["checkpoints"]] == [7], (name, pulled)
        out = l.run("resume", name + "-1").stdout
        assert b"going on from step 7\n" in out, (name, out)


def test_a_checkpoint_that_may_be_torn_can_be_resumed_by_name(l):
    stop_saver(l, "torn", "python3", "-c", SAVES_AT_SIGTERM, "0", "0", "damage")
    said = l.run("pull", "torn-1", code=1).stderr.decode()
    assert "out/checkpoint-7 matches the patterns" in said, said
    refused = l.run("resume", "torn-1", code=1).stderr.decode()
    assert "--from PATH begins with any checkpoint here" in refused, refused
    # The commands of the hint, as they stand there.
    hint = said[said.index("HINT: ") + 6:]
    assert hint == ("gpuctl pull torn-1 'out/checkpoint-7/**' brings it as it is, and gpuctl resume "
                    "torn-1 --from torn-1/out/checkpoint-7 goes on from that\n"), hint
    l.run("pull", "torn-1", "out/checkpoint-7/**")
    out = l.run("resume", "torn-1", "--from", "torn-1/out/checkpoint-7").stdout
    assert b"going on from step 7\n" in out, out
    missing = l.run("resume", "torn-1", "--from", "torn-1/nowhere", code=2).stderr
    assert b"--from: there is no torn-1/nowhere" in missing, missing


# Publishes a checkpoint as the trainer does.
PUBLISH = """publish() {
  tmp=$GPUCTL_CHECKPOINT_DIR/.tmp-$1; mkdir $tmp; echo "weights $1" > $tmp/w
  printf '{"format":1,"step":%d,"files":[{"path":"w","size":%d,"sha256":"%s"}]}' $1 \\
    $(stat -c %s $tmp/w) $(sha256sum < $tmp/w | cut -d" " -f1) > $tmp/manifest.json
  mv $tmp $GPUCTL_CHECKPOINT_DIR/$(printf step-%08d $1)
}
"""


def wait_until(condition, what):
    """`what` is missing when it never becomes true: a text, or a function that returns what there is."""
    patience = Patience()
    while not condition():
        assert patience.lasts(), what() if callable(what) else what
        select.select([], [], [], 0.02)


def test_pull_watch_keeps_the_newest(l):
    gate = os.path.join(l.dir, "watched.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "watched-1", "--", "bash", "-c",
          PUBLISH + "exec 3<> %s; publish 1; publish 2; echo up; read x <&3; publish 3; read x <&3; "
          "publish 4" % gate)
    logs = l.start("logs", "-f", "watched-1")
    assert logs.stdout.readline() == b"up\n"
    kept = os.path.join(l.work, "kept")
    watch = l.start("pull", "watched-1", "--watch", "--keep", "2", "--to", "kept", "--json")
    second, third = [os.path.join(kept, "step-%08d" % step) for step in (2, 3)]
    wait_for_file(second)
    with open(os.path.join(kept, "step-00000002", "w")) as file:
        assert file.read() == "weights 2\n"
    wait_for_file(os.path.join(kept, "step-00000001"))
    open_gate(gate)
    wait_for_file(third)
    wait_until(lambda: sorted(os.listdir(kept)) == ["step-00000002", "step-00000003"],
               "the oldest is not removed")
    # A file that the user put there is the user's.
    with open(os.path.join(second, "note"), "w") as file:
        file.write("keep")
    open_gate(gate)
    out, err = watch.communicate(timeout=DEADLINE_S)
    assert watch.returncode == 0, (out, err)
    assert sorted(os.listdir(kept)) == ["step-0000000%d" % step for step in (2, 3, 4)]
    steps = [each["step"] for each in json.loads(out)["checkpoints"]]
    assert steps == [2, 1, 3, 4], steps
    assert l.json("verify", "watched-1", "--read-data")["checkpoints"] == 3
    logs.communicate(timeout=DEADLINE_S)
    # A run that has ended is looked at only once more.
    l.run("pull", "watched-1", "--watch", "--to", "kept")
    assert sorted(os.listdir(kept)) == ["step-0000000%d" % step for step in (1, 2, 3, 4)]
    l.run("pull", "watched-1", "--keep", "2", code=2)
    l.run("pull", "watched-1", "--watch", "--keep", "none", code=2)


def test_attach_and_launch_bring_checkpoints_home(l):
    done = l.run("launch", "--no-workdir", "--name", "homed-1", "--pull=1", "--", "bash", "-c",
                 PUBLISH + "publish 1; publish 2; echo out; exit 3", code=3)
    assert done.stdout == b"out\n", done.stdout
    home = os.path.join(l.work, "homed-1")
    assert sorted(os.listdir(home)) == [".gpuctlignore", "step-00000002"], os.listdir(home)
    gate = os.path.join(l.dir, "pulling.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "pulling-1", "--", "bash", "-c",
          PUBLISH + "publish 7; read x < %s" % gate)
    t = Terminal(l, "attach", "pulling-1", "--pull")
    t.until(b"step-00000007: ")
    begin = time.monotonic()
    t.type(b"\x03")
    assert t.finish() == 0, t.text
    assert time.monotonic() - begin < 10
    open_gate(gate)
    l.run("wait", "pulling-1")
    assert os.path.exists(os.path.join(l.work, "pulling-1/step-00000007/w"))
    l.run("launch", "--no-workdir", "-d", "--pull=2", "--", "true", code=2)
    l.run("attach", "pulling-1", "--pull=x", code=2)


def test_what_was_pulled_is_not_sent_back(l):
    os.mkdir(os.path.join(l.work, "project"))
    os.mkdir(os.path.join(l.work, "project/mine-1"))
    project = os.path.join(l.work, "project")
    for name in ("brought-1", "mine-1"):
        l.run("launch", "--no-workdir", "--name", name, "--", "bash", "-c", "echo 1 > result.json")

    def pull(*args):
        subprocess.run([l.gpuctl, "pull", *args], cwd=project, env=l.env, check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S)

    pull("brought-1", "*.json")
    # This one was there before and is the user's.
    pull("mine-1", "*.json")
    done = l.run("launch", "--workdir", "project", "--", "find", ".", "-mindepth", "1")
    assert sorted(done.stdout.split()) == [b"./mine-1", b"./mine-1/result.json"], done.stdout
    assert os.listdir(os.path.join(project, "mine-1")) == ["result.json"]
    pull("brought-1", "*.json", "--to", "elsewhere")
    assert os.listdir(os.path.join(project, "elsewhere")) == ["result.json"]


def test_retry_is_one_run(l):
    marker = os.path.join(l.dir, "second")
    done = l.run("launch", "--no-workdir", "--retry-max", "1", "--retry-on", "exit:75",
                 "--retry-backoff", "10ms", "--", "bash", "-c",
                 "echo attempt $GPUCTL_ATTEMPT; test -e %s && exit 0; touch %s; exit 75" % (marker, marker))
    assert done.stdout == b"attempt 1\nattempt 2\n", done.stdout
    assert b": attempt 2 begins\n" in done.stderr and b"attempt 1 begins" not in done.stderr, done.stderr


def test_requirements_are_checked_on_the_node(l):
    before = l.json("ps", "-a", "--offline")["runs"]
    done = l.run("launch", "--no-workdir", "--disk", "900TB", "--", "true", code=121)
    assert b"HINT:" in done.stderr
    assert l.json("ps", "-a", "--offline")["runs"] == before


def test_doctor_and_debug(l):
    checks = l.json("doctor")
    assert checks["ok"], checks
    l.run("launch", "--no-workdir", "--name", "seen-1", "--", "echo", "hello")
    report = l.json("debug", "job", "seen-1")
    assert report["node_reached"] and "JOB_STATE_FINISHED" in report["node_says"], report
    assert l.run("debug", "replay", "seen-1").stdout == b"hello\n"


@contextlib.contextmanager
def ssh_server(l, *options):
    """Runs a real sshd on its own port, with more options. Yields the port and the right key."""
    folder = os.path.join(l.dir, "sshd")
    os.makedirs(folder, exist_ok=True)
    for name in ("host", "user", "wrong", "host2"):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)

    def serve(host_key):
        server = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-f", "/dev/null", "-p", str(port), "-h",
             os.path.join(folder, host_key), "-o", "ListenAddress=127.0.0.1", "-o", "UsePAM=no",
             "-o", "StrictModes=no", "-o", "PidFile=none", "-o", "PasswordAuthentication=no",
             "-o", "AuthorizedKeysFile=" + os.path.join(folder, "user.pub"),
             *options],
            stderr=subprocess.DEVNULL)
        patience = Patience()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return server
            except OSError:
                assert patience.lasts(), "sshd does not listen"
                select.select([], [], [], 0.02)

    servers = [serve("host")]

    def restart(host_key):
        servers[-1].kill()
        servers[-1].wait()
        servers.append(serve(host_key))

    try:
        yield port, folder, restart
    finally:
        servers[-1].kill()
        servers[-1].wait()


def test_ssh_provider(l):
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l) as (port, folder, restart):
        host = ["--no-workdir", "--host", "%s@127.0.0.1:%d" % (user, port), "-i"]
        done = l.run("launch", *host, os.path.join(folder, "user"), "--", "bash", "-c", "echo over; exit 4",
                     code=4)
        assert done.stdout == b"over\n"
        done = l.run("launch", *host, os.path.join(folder, "wrong"), "--", "true", code=120)
        assert b"HINT: name the right key" in done.stderr, done.stderr
        restart("host2")
        done = l.run("launch", *host, os.path.join(folder, "user"), "--", "true", code=120)
        assert b"host key" in done.stderr, done.stderr


def own_calls(log):
    """Returns the lines of a `strace -f` of the traced program itself, not of its children."""
    with open(log, errors="replace") as file:
        lines = [line.split(None, 1) for line in file]
    first = lines[0][0]
    started = {pid for pid, call in lines if call.startswith("execve(") and pid != first}
    return [call for pid, call in lines if pid not in started]


def test_the_connection_is_set_up_without_waiting(l):
    """sshd answers a channel's opening only after our acknowledgement, which the kernel delays by
    40 ms by default. And libssh must not read the user's configuration, which `ssh -G` has read
    already."""
    log = os.path.join(l.dir, "strace")
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l) as (port, folder, _):
        done = subprocess.run(
            ["strace", "-f", "-o", log, "-e", "trace=setsockopt,openat,open,execve", l.gpuctl, "launch",
             "--no-workdir", "--host", "%s@127.0.0.1:%d" % (user, port), "-i",
             os.path.join(folder, "user"), "--", "echo", "over"],
            cwd=l.work, env={**l.env, "GPUCTL_STATE_DIR": os.path.join(l.dir, "state-traced")},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=DEADLINE_S)
    assert done.stdout == b"over\n", done
    calls = own_calls(log)
    for option in ("TCP_NODELAY, [1]", "TCP_QUICKACK, [1]"):
        assert any(option in call for call in calls), option
    opened = [call for call in calls if "/.ssh/config" in call or "/etc/ssh/ssh_config" in call]
    assert not opened, opened
    # It is set again before each wait of the set-up, because the kernel forgets it.
    assert sum("TCP_QUICKACK" in call for call in calls) > 3


def test_ctrl_c_before_acceptance_starts_nothing(l):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        t = Terminal(l, "launch", "--no-workdir", "--name", "never-1", "--host",
                     "ada@127.0.0.1:%d" % silent.getsockname()[1], "--", "true")
        t.until(b"connecting")
        begin = time.monotonic()
        t.type(b"\x03")
        assert t.finish() == 130
        # The connection attempt would have lasted much longer.
        assert time.monotonic() - begin < 10
    assert b"nothing was started" in t.text, t.text
    run = next(r for r in l.json("ps", "-a")["runs"] if r["name"] == "never-1")
    assert run["status"] == "failed" and run["exit_code"] == 130, run


def test_killed_client_leaves_a_run_to_return_to(l):
    gate = os.path.join(l.dir, "killed.gate")
    os.mkfifo(gate)
    client = l.start("launch", "--no-workdir", "--name", "killed-1", "--", "bash", "-c",
                     "echo begin; read x < %s; echo end" % gate)
    assert client.stdout.readline() == b"begin\n"
    client.kill()
    client.communicate()
    open_gate(gate)
    assert l.run("attach", "killed-1").stdout == b"begin\nend\n"


def test_terminal_panel(l):
    gate = os.path.join(l.dir, "panel.gate")
    os.mkfifo(gate)
    script = ("echo '{\"type\":\"step\",\"step\":3,\"total_steps\":9,\"loss\":1.5}' > $GPUCTL_METRICS; "
              "printf 'bad\\033[2Jline\\n'; read x < %s; exit 6" % gate)
    t = Terminal(l, "launch", "--no-workdir", "--name", "panel-1", "--", "bash", "-c", script)
    t.until(b"step 3/9")
    t.until(b"badline")
    t.resize(10, 40)
    t.until(b"Ctrl-C")
    open_gate(gate)
    assert t.finish() == 6
    assert b"exited with code 6" in t.text
    assert b"bad\x1b[2J" not in t.text
    # The cursor is visible again.
    assert t.text.rindex(b"\x1b[?25h") > t.text.rindex(b"\x1b[?25l")


def interrupted_twice(l, name):
    """Returns a terminal in which gpuctl asks whether it shall stop the run."""
    # The second Ctrl-C must come soon; on a busy machine it can miss its time.
    for _ in range(20):
        t = Terminal(l, "attach", name)
        t.until(b"running")
        t.type(b"\x03")
        t.until(b"detached; ")
        t.type(b"\x03")
        if t.until_or_end(b"Stop the run? [y/N]"):
            return t
        assert t.finish() == 0
    raise AssertionError("nobody asked: " + repr(t.text[-2000:]))


def test_ctrl_c_detaches_and_twice_asks_whether_to_stop(l):
    t = Terminal(l, "launch", "--no-workdir", "--name", "left-1", "--", "sleep", "600")
    t.until(b"running")
    t.type(b"\x03")
    assert t.finish() == 0
    assert b"gpuctl attach left-1" in t.text, t.text[-2000:]

    def status():
        return next(run["status"] for run in l.json("ps")["runs"] if run["name"] == "left-1")

    t = interrupted_twice(l, "left-1")
    t.type(b"n\n")
    assert t.finish() == 0
    # One who leans on Ctrl-C stops nothing.
    t = interrupted_twice(l, "left-1")
    t.type(b"\x03")
    assert t.finish() == -signal.SIGINT
    assert b"gpuctl: left-1 runs on\r\n" in t.text, t.text[-2000:]
    assert status() == "running"
    t = interrupted_twice(l, "left-1")
    t.type(b"y\n")
    assert t.finish() == 0
    assert b"left-1 was told to stop" in t.text, t.text[-2000:]
    assert l.run("wait", "left-1", code=143).returncode == 143

def test_a_second_terminal_does_not_claim_to_have_lost_the_job(l):
    """It reads what the first terminal stores, and has no link."""
    gate = held_job(l, "shared-1")
    first = l.start("attach", "shared-1")
    lock = os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", l.json("ps")["runs"][0]["run_id"],
                        "lock")
    wait_until(lambda: is_locked(lock), "the first one follows it")
    second = Terminal(l, "attach", "shared-1")
    second.until(b"begin")
    # The panel is drawn again each second.
    for _ in range(3):
        drawn = second.text.count(b"Ctrl-C detaches")
        wait_until(lambda: second.read_some() and second.text.count(b"Ctrl-C detaches") > drawn,
                   "the panel is drawn again")
    open_gate(gate)
    assert second.finish() == 0
    first.communicate(timeout=DEADLINE_S)
    assert b"end now" in second.text, second.text
    for wrong in (b"last heard", b"retrying"):
        assert wrong not in second.text, second.text


def lock_of(l, name):
    run = next(run for run in l.json("ps")["runs"] if run["name"] == name)
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", run["run_id"], "lock")


def test_other_verbs_do_not_wait_for_an_open_attach(l):
    gate = held_job(l, "beside-1")
    lock = lock_of(l, "beside-1")
    attached = l.start("attach", "beside-1")
    wait_until(lambda: is_locked(lock), "attach follows it")
    assert l.run("logs", "beside-1").stdout == b"begin\n"
    l.run("metrics", "beside-1")
    l.run("ps", "-u")
    assert b"it runs on" in l.run("resume", "beside-1", code=1).stderr
    l.run("rm", "beside-1", code=1)
    open_gate(gate)
    attached.communicate(timeout=DEADLINE_S)
    assert l.run("logs", "beside-1").stdout == b"begin\nend now\n"


def test_a_suspended_attach_lets_others_go_on(l):
    gate = held_job(l, "suspended-1")
    lock = lock_of(l, "suspended-1")
    t = Terminal(l, "attach", "suspended-1")
    t.until(b"begin")
    wait_until(lambda: is_locked(lock), "attach follows it")
    t.type(b"\x1a")
    wait_until(lambda: t.read_some() and not is_locked(lock), "the lock is released")
    assert l.run("logs", "suspended-1").stdout == b"begin\n"
    open_gate(gate)
    assert l.run("wait", "suspended-1").returncode == 0
    os.kill(t.pid, signal.SIGCONT)
    assert t.finish() == 0
    assert b"end now" in t.text, t.text[-2000:]


def test_a_suspended_wait_lets_others_go_on(l):
    gate = held_job(l, "waited-1")
    lock = lock_of(l, "waited-1")
    t = Terminal(l, "wait", "waited-1")
    wait_until(lambda: is_locked(lock), "wait follows it")
    wait_until(lambda: l.run("logs", "--offline", "waited-1").stdout, "the first output is here")
    t.type(b"\x1a")
    wait_until(lambda: not is_locked(lock), "the lock is released")
    open_gate(gate)
    assert l.run("wait", "waited-1").returncode == 0
    os.kill(t.pid, signal.SIGCONT)
    assert t.finish() == 0


def freeze_outside_a_write(l, pid):
    """Stops the process while it does not hold the lock of the list of runs, which nobody could take
    from it."""
    patience = Patience()
    while True:
        os.kill(pid, signal.SIGSTOP)
        with contextlib.closing(sqlite3.connect(l.env["GPUCTL_STATE_DIR"] + "/state.db",
                                                timeout=0.2)) as store:
            try:
                store.execute("BEGIN IMMEDIATE").close()
                store.rollback()
                return
            except sqlite3.OperationalError as error:
                assert patience.lasts(), error
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)


def test_a_frozen_attach_does_not_block_others(l):
    """Its process keeps the mirror's lock, so the others ask the node."""
    held_job(l, "frozen-1")
    lock = lock_of(l, "frozen-1")
    attached = l.start("attach", "frozen-1")
    wait_until(lambda: is_locked(lock), "attach follows it")
    wait_until(lambda: l.run("logs", "--offline", "frozen-1").stdout, "the first output is here")
    freeze_outside_a_write(l, attached.pid)
    try:
        assert l.run("logs", "frozen-1").stdout == b"begin\n"
        assert b"stopped by you" in l.run("stop", "frozen-1").stderr
        l.run("wait", "frozen-1", code=143)
    finally:
        os.kill(attached.pid, signal.SIGCONT)
    attached.communicate(timeout=DEADLINE_S)
    assert l.run("logs", "frozen-1").stdout == b"begin\n"


def test_attach_shows_the_newest_screenful_once(l):
    gate = os.path.join(l.dir, "tail.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "tailed-1", "--", "bash", "-c",
          "seq 100000 200000; read x < %s; seq 200001 200100" % gate)
    t = Terminal(l, "attach", "tailed-1")
    t.until(b"200000")
    open_gate(gate)
    assert t.finish() == 0
    # The text that replaces the panel begins a new line.
    text = t.text.replace(b"\x1b[J", b"\n")
    lines = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\r", b"", text).split(b"\n")
    numbers = [int(line) for line in lines if line.isdigit()]
    assert numbers == sorted(set(numbers)), "a line came twice or out of order"
    assert numbers[-1] == 200100 and numbers[0] > 190000, (numbers[0], numbers[-1])
    missing = set(range(200001, 200101)) - set(numbers)
    assert not missing, (sorted(missing), t.text[-4000:])


# The exit code of a run of which no test was tried: CTest tells it as skipped.
SKIPPED = 77


class Skipped(Exception):
    """Raised by a test that cannot be tried here, with the reason."""


def tell_state(l):
    """Prints the end of what the node has logged, the course of its jobs, and the processes that live
    below the laptop's directory: a failure that comes once in a hundred runs cannot be repeated."""
    texts = [l.root + "/node/agent.log", *glob.glob(l.root + "/jobs/*/lifecycle*")]
    for path in sorted(texts)[:40]:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            print("-- %s\n%s" % (path, file.read()[-2000:].decode(errors="replace")))
    for pid, text in sorted(processes_with(l.dir.encode()).items()):
        with contextlib.suppress(OSError):
            state = open("/proc/%d/stat" % pid, "rb").read().rpartition(b")")[2].split()[0].decode()
            print("-- %d %s %s" % (pid, state, text.replace(b"\0", b" ").decode(errors="replace")))
    sys.stdout.flush()


def run_tests(names, apart=False, by_name=()):
    """Runs the tests in `names`, a module's globals, or those named on the command line. `apart`:
    each on a laptop and a node of its own. Those of `by_name` run only when they are named. The exit
    code is SKIPPED when all that ran raised Skipped."""
    tests = {name: test for name, test in names.items() if name.startswith("test_")}
    wanted = sys.argv[3:] or [name for name in tests if name not in by_name]
    failed, skipped = [], []
    laptop = Laptop(sys.argv[1], sys.argv[2])
    try:
        for name in wanted:
            begin = time.monotonic()
            try:
                if apart:
                    own = Laptop(sys.argv[1], sys.argv[2])
                    try:
                        tests[name](own)
                    except Exception:
                        tell_state(own)
                        raise
                    finally:
                        own.close()
                else:
                    tests[name](laptop)
                print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
            except Skipped as why:
                skipped.append(name)
                print("skipped %s: %s" % (name, why), flush=True)
            except Exception:
                failed.append(name)
                if not apart:
                    tell_state(laptop)
                print("FAILED %s\n%s" % (name, traceback.format_exc()), flush=True)
    finally:
        laptop.close()
    sys.exit(1 if failed else SKIPPED if skipped == wanted else 0)


if __name__ == "__main__":
    run_tests(globals())

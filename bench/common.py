"""Code that the benchmarks share: a separate laptop and node, sshd, timing, the JSON line.

Everything lies below one temporary directory and nothing is left running. Programs are taken from
$GPUCTL_BIN_DIR, else from build/release/bin, else from build/dev/bin; helpers from ../bench beside
them, else from any build/*/bench.
"""

import contextlib
import json
import os
import pwd
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEADLINE_S = 120


def progress(text):
    print(text, file=sys.stderr, flush=True)


def find_programs():
    wanted = os.environ.get("GPUCTL_BIN_DIR")
    places = [wanted] if wanted else [os.path.join(CHECKOUT, "build", preset, "bin")
                                      for preset in ("release", "dev")]
    for place in places:
        if all(os.access(os.path.join(place, name), os.X_OK)
               for name in ("gpuctl", "gpuctl-agent", "gpuctl-shim")):
            return os.path.abspath(place)
    sys.exit("bench: no gpuctl, gpuctl-agent and gpuctl-shim in " + ", ".join(places) +
             "\nHINT: cmake --preset dev && cmake --build --preset dev")


def find_helper(name):
    places = [os.path.join(find_programs(), "..", "bench")]
    # Not from every build: a sanitized helper would give wrong results.
    places += [os.path.join(CHECKOUT, "build", preset, "bench") for preset in ("release", "dev")]
    for place in places:
        path = os.path.abspath(os.path.join(place, name))
        if os.access(path, os.X_OK):
            return path
    sys.exit("bench: no %s beside the programs or in build/dev/bench\nHINT: cmake --build --preset dev --target %s" %
             (name, name))


def emit(name, value, unit, peer, peer_value, bar, holds, digits=4, **more):
    """Prints the bar's line. `ratio` is gpuctl's value divided by the peer's; None if one is
    missing."""
    number = lambda x: None if x is None else round(x, digits)
    ratio = None if peer_value in (None, 0) else round(value / peer_value, 3)
    line = {"name": name, "value": number(value), "unit": unit, "peer": peer,
            "peer_value": number(peer_value), "ratio": ratio, "bar": bar, "holds": bool(holds)}
    line.update(more)
    line["load_1m"] = round(os.getloadavg()[0], 2)
    print(json.dumps(line, ensure_ascii=False), flush=True)


def emit_race(name, samples, factor, rounds, **more):
    """Prints the line for `samples` of gpuctl and rsync. The bar is `factor` times rsync's time."""
    ours, peer = samples.median("gpuctl"), samples.median("rsync")
    emit(name, ours, "s", "rsync -a", peer, "<= %s x" % factor, ours <= factor * peer,
         spread=samples.spread("gpuctl"), rounds=rounds, **more)


def spread(values, digits=4):
    return [round(min(values), digits), round(max(values), digits)]


class Samples:
    """Samples by name, taken in turns."""

    def __init__(self):
        self.of = {}

    def add(self, name, value):
        self.of.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.of[name])

    def spread(self, name):
        return spread(self.of[name])


def interleave(rounds, takers):
    """Takes samples in turns. `takers`: name -> function that returns one sample. Each round takes
    one of each; the first name changes from round to round."""
    samples = Samples()
    names = list(takers)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            samples.add(name, takers[name]())
        progress("  round %d/%d: %s" % (number + 1, rounds, ", ".join(
            "%s %.4g" % (name, samples.of[name][-1]) for name in names)))
    return samples


class Timed:
    """A child process, timed from just before its exec. Its stdout is a pipe, or all three are a
    pseudo-terminal of 80 by 24."""

    def __init__(self, argv, env, terminal=False):
        quiet = os.open(os.devnull, os.O_RDWR)
        self.text = b""
        self.count = 0
        self.first_s = self.last_s = None
        if terminal:
            import fcntl
            import struct
            import termios
            self.fd, slave = os.openpty()
            fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            # The leader of a new session opens it, so it becomes the controlling terminal.
            actions = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
                       (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
        else:
            import fcntl
            self.fd, slave = os.pipe()
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, 1 << 20)
            actions = [(os.POSIX_SPAWN_DUP2, quiet, 0), (os.POSIX_SPAWN_DUP2, slave, 1),
                       (os.POSIX_SPAWN_DUP2, quiet if "-v" not in sys.argv else 2, 2)]
        self.begin = time.perf_counter()
        self.pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=terminal,
                                  setsigdef=[signal.SIGPIPE])
        os.close(slave)
        os.close(quiet)

    def until(self, marker, deadline_s=DEADLINE_S):
        """Returns the seconds from exec until `marker` came."""
        end = time.monotonic() + deadline_s
        while True:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            data = b""
            if ready:
                with contextlib.suppress(OSError):
                    data = os.read(self.fd, 1 << 16)
            now = time.perf_counter()
            self.text += data
            if marker in self.text:
                return now - self.begin
            if not data:
                self.end()
                sys.exit("bench: %r never came; got %r" % (marker, self.text[-1500:]))

    def count_bytes(self, wanted=None):
        """Counts received bytes, up to `wanted` or the end; returns the seconds from the first to
        the last."""
        while wanted is None or self.count < wanted:
            data = os.read(self.fd, 1 << 20)
            now = time.perf_counter()
            if not data:
                break
            self.first_s = self.first_s or now
            self.last_s = now
            self.count += len(data)
        return (self.last_s or 0) - (self.first_s or 0)

    def drain(self):
        with contextlib.suppress(OSError):
            while os.read(self.fd, 1 << 16):
                pass

    def wait(self):
        """Returns its exit code and the seconds from exec to its end. Drops the rest of its
        output."""
        self.drain()
        _, status = os.waitpid(self.pid, 0)
        took = time.perf_counter() - self.begin
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status), took

    def end(self, number=signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
        return self.wait()[0]


def run_timed(argv, env):
    """Returns the seconds of a whole process, from posix_spawn to its end; it must succeed."""
    quiet = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, quiet, fd) for fd in (0, 1, 2)]
    begin = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=actions)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - begin
    os.close(quiet)
    if status != 0:
        sys.exit("bench: %s: status %d" % (argv, status))
    return took


def wait_for(condition, what, deadline_s=DEADLINE_S):
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            sys.exit("bench: never happened: " + what)
        time.sleep(0.01)


def clean_environment(**more):
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("GPUCTL_") and key not in ("CI", "NO_COLOR", "CLICOLOR",
                                                            "SSH_AUTH_SOCK")}
    env.update(LANG="C.UTF-8", TERM="xterm-256color", **more)
    return env


def on_tmpfs(path):
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], check=True, stdout=subprocess.PIPE)
    return kind.stdout.strip() == b"tmpfs"


def directory_bytes(path):
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(path):
            total += entry.stat().st_size
    return total


class Laptop:
    """gpuctl with separate files, and this machine as its node. A context manager."""

    def __init__(self, needs_bytes=1 << 30):
        self.programs = find_programs()
        self.gpuctl = os.path.join(self.programs, "gpuctl")
        self.dir = tempfile.mkdtemp(prefix="gpuctl-bench-")
        free = shutil.disk_usage(self.dir).free
        if free < needs_bytes:
            os.rmdir(self.dir)
            sys.exit("bench: %s has %d MB free, %d MB are needed" %
                     (tempfile.gettempdir(), free >> 20, needs_bytes >> 20))
        self.root = os.path.join(self.dir, "node")
        self.state = os.path.join(self.dir, "state")
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        self.env = clean_environment(
            HOME=self.dir, GPUCTL_STATE_DIR=self.state,
            GPUCTL_CACHE_DIR=os.path.join(self.dir, "cache"),
            GPUCTL_CONFIG_DIR=os.path.join(self.dir, "config"), GPUCTL_NODE_ROOT=self.root,
            GPUCTL_WARM_LINK="off")  # each command as if it were the first

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def run(self, *args, check=True, timeout=DEADLINE_S):
        done = subprocess.run([self.gpuctl, *args], cwd=self.work, env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout)
        if check and done.returncode != 0:
            sys.exit("bench: gpuctl %s: exit %d\n%s" %
                     (" ".join(args), done.returncode, done.stderr.decode(errors="replace")))
        return done.stdout.decode()

    def launch(self, *command, flags=()):
        """Starts a job and leaves it running; returns its row of `ps --json`."""
        name = self.run("launch", "-y", "-d", "--no-workdir", *flags, "--", *command).strip()
        return self.row(name)

    def row(self, name):
        for row in json.loads(self.run("ps", "-a", "--json"))["runs"]:
            if row["name"] == name:
                return row
        sys.exit("bench: run %s is not listed" % name)

    def stop(self, row):
        self.run("down", "-y", row["name"], check=False)

    def output_dir(self, row):
        return os.path.join(self.root, "jobs", row["job_id"], "output")

    def mirror_dir(self, row):
        return os.path.join(self.state, "runs", row["run_id"])

    def pids(self, of=("gpuctl-agent", "gpuctl-shim")):
        """Returns the live processes of gpuctl's programs at this node: pid -> command line."""
        found = {}
        root = self.root.encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open("/proc/%s/cmdline" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                if any(word.startswith(root) for word in words) and any(
                        name.encode() in words[0] for name in of):
                    found[int(pid)] = b" ".join(words).decode(errors="replace").strip()
        return found

    def close(self):
        if os.path.exists(os.path.join(self.state, "state.db")):
            with contextlib.suppress(subprocess.TimeoutExpired, SystemExit):
                self.run("down", "--all", "-y", check=False)
        subprocess.run([os.path.join(self.programs, "gpuctl-agent"), "shutdown", "--root",
                        self.root], stdout=subprocess.DEVNULL, check=False)
        end = time.monotonic() + 10
        while self.pids() and time.monotonic() < end:
            time.sleep(0.05)
        for pid, command in self.pids().items():
            progress("bench: had to kill %d: %s" % (pid, command))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)


class Sshd:
    """A real sshd on a loopback port, as this user, with a key made for it. The ssh provider and
    the peers connect to it. It has the settings that gpuctl gives to its local sshd."""

    def __init__(self, directory):
        self.dir = os.path.join(directory, "sshd")
        os.mkdir(self.dir, 0o700)
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.key = os.path.join(self.dir, "client_key")
        host_key = os.path.join(self.dir, "host_key")
        for key in (self.key, host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        config = os.path.join(self.dir, "config")
        with open(config, "w") as file:
            file.write("\n".join([
                "ListenAddress 127.0.0.1", "HostKey " + host_key,
                "AuthorizedKeysFile " + self.key + ".pub", "StrictModes no", "UsePAM no",
                "PermitRootLogin prohibit-password", "PasswordAuthentication no",
                "KbdInteractiveAuthentication no", "PidFile none", "LogLevel ERROR",
                "PrintMotd no", "PrintLastLog no", "UseDNS no", "X11Forwarding no",
                "MaxStartups 100", "Subsystem sftp internal-sftp", "SetEnv SHLVL=1", ""]))
        self.process = self._listen(config)

    def _listen(self, config):
        for _ in range(20):
            # sshd does not accept port 0, so find a free port first; another process may take it
            # meanwhile.
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            process = subprocess.Popen(
                ["/usr/sbin/sshd", "-D", "-e", "-f", config, "-p", str(self.port)],
                stdin=subprocess.DEVNULL, stderr=open(os.path.join(self.dir, "log"), "ab"))
            end = time.monotonic() + 5
            while process.poll() is None and time.monotonic() < end:
                with contextlib.suppress(OSError), socket.create_connection(
                        ("127.0.0.1", self.port), 1):
                    return process
                time.sleep(0.01)
            process.kill()
            process.wait()
        sys.exit("bench: sshd does not start; see " + self.dir)

    def ssh(self, *command, port=None, options=()):
        """Returns the command line of OpenSSH's client for `command` there."""
        return ["/usr/bin/ssh", "-F", "none", "-i", self.key, "-p", str(port or self.port),
                "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
                "-o", "UserKnownHostsFile=" + os.path.join(self.dir, "known_hosts"),
                "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ControlMaster=no",
                "-o", "ControlPath=none", *options, self.user + "@127.0.0.1", *command]

    def gpuctl_flags(self, port=None):
        return ["--host", self.user + "@127.0.0.1", "-p", str(port or self.port), "-i", self.key]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class DelayProxy:
    """A proxy that adds `delay_ms` in each direction to `port` of this machine, and carries at most
    `mbit` megabits a second in each direction (0: no limit)."""

    def __init__(self, port, delay_ms, mbit=0):
        self.process = subprocess.Popen(
            [find_helper("delayproxy"), "--target", "127.0.0.1:%d" % port, "--delay-ms",
             str(delay_ms), "--mbit", str(mbit)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = json.loads(self.process.stdout.readline())["port"]

    def limit(self, mbit):
        """Changes the rate, also of connections that there are."""
        self.process.stdin.write(b"mbit %g\n" % mbit)
        self.process.stdin.flush()
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

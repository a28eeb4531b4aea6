"""A laptop that launches runs on several machines (machines.py), and what their tests ask of both."""
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time

import machines
from machines import wait_until


class Skipped(Exception):
    """A test cannot be here; why says the text."""


class Laptop:
    gpuctl = None  # the program; run_tests sets it

    def __init__(self, them):
        self.them = them
        self.dir = tempfile.mkdtemp(prefix="gpuctl-laptop-")
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        self.env = {**os.environ, "HOME": self.dir, "GPUCTL_STATE_DIR": self.dir + "/state",
                    "GPUCTL_CACHE_DIR": self.dir + "/cache", "GPUCTL_WARM_LINK": "off", "TERM": "xterm"}
        for name in ("CI", "GPUCTL_NODE_ROOT"):
            self.env.pop(name, None)

    def command(self, *args):
        return [self.gpuctl, *args]

    def launching(self, *args):
        return self.command("launch", "--host", self.them.hosts, "-i", self.them.dir + "/key", *args)

    def run(self, argv, code=0, timeout=300):
        done = subprocess.run(argv, cwd=self.work, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=timeout, check=False)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert code is None or done.returncode == code, "%s: exit %d, not %d\n%s\n%s" % (
            argv, done.returncode, code, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def launch(self, *args, code=0):
        return self.run(self.launching(*args), code)

    def ask(self, *args, code=0):
        return self.run(self.command(*args), code)

    def start(self, *args):
        return subprocess.Popen(self.launching(*args), cwd=self.work, env=self.env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def write(self, name, text):
        with open(os.path.join(self.work, name), "w") as file:
            file.write(textwrap.dedent(text))

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def variables(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def types(events):
    return [event["event"] for event in events]


def last(machine):
    """Returns the newest event of the machine's only job."""
    jobs = machine.jobs()
    assert len(jobs) == 1, jobs
    events = [event for event in next(iter(jobs.values())) if event["event"] in ("started", "exited", "lost",
                                                                               "retry")]
    return events[-1] if events else {"event": "none"}


def nothing_runs(them):
    """True when no process of a job, no shim and no keeper is left."""
    return not any(machine.processes("gpuctl-shim ") or machine.processes("gpuctl-agent gang") or
                   machine.processes("the-job") for machine in them.all)


def wait_for_end(them, seconds=240):
    wait_until(lambda: nothing_runs(them), "nothing runs any more: %s" % [
        machine.processes() for machine in them.all], seconds)


def wait_for_jobs(them, count=None):
    running = them.all if count is None else them.all[:count]
    wait_until(lambda: all(machine.processes("the-job") for machine in running), "the job runs everywhere")


SLEEPER = ["--no-workdir", "--grace", "2s", "--", "bash", "-c", "echo began; exec -a the-job sleep 600"]


def run_tests(argv, tests):
    """Runs tests of the command line GPUCTL [TEST...]; all without names. Returns the exit code: SKIPPED when no
    test was run to its end."""
    Laptop.gpuctl = os.path.abspath(argv[0])
    code = machines.SKIPPED
    for test in [tests[name] for name in argv[1:]] or tests.values():
        began = time.monotonic()
        try:
            test()
        except Skipped as why:
            print("skipped %s: %s" % (test.__name__, why), flush=True)
            continue
        code = 0
        print("ok   %s %.0f s" % (test.__name__, time.monotonic() - began), flush=True)
    return code

"""A laptop with accounts at three simulated rental markets, for tests of launch and later verbs.

The gpuctl, the agent, ssh, and the machines are real; only the markets are simulated.
"""
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from runs import (  # noqa: E402
    DEADLINE_S, Laptop, end_processes, open_gate, processes_with)
from simulator import KEYS, Simulator, enter_key, eventually  # noqa: E402

SERVICES = ("runpod", "lambda", "vast")
# Markets that only the tests of every market use: the others count on the offers of those above.
MORE_SERVICES = ("digitalocean", "shadeform", "huggingface")
# The simulator's available machines at Vast.ai with this GPU.
VAST_OFFERS = {"RTX 4090": (9100001, 9100002, 9100003)}
# A job as users write them: metrics, checkpoints that grow, an artifact; it needs its data.
TRAIN = r"""#!/bin/bash
set -e
count=$(wc -l < sets/words/train.txt)
echo "training on $count lines"
mkdir -p out
for step in 1 2; do
  echo "{\"type\":\"step\",\"step\":$step,\"total_steps\":2,\"loss\":0.$((9 - step))}" >> "$GPUCTL_METRICS"
  mkdir -p "ckpt/step-$step"
  head -c 300000 /dev/urandom > "ckpt/step-$step/weights.bin"
  (cd ckpt && sha256sum "step-$step/weights.bin") >> out/sums
done
cat extra/note.txt
echo '{"accuracy": 0.5}' > out/result.json
"""


def write(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    os.chmod(path, mode)


class RentWorld(Laptop):
    """with RentWorld(gpuctl, fake_job, cloudsim) as w: …; nothing runs or bills afterwards."""

    def __init__(self, gpuctl, fake_job, cloudsim, *options, rate_limits=False):
        super().__init__(gpuctl, fake_job)
        unlimited = () if rate_limits else ("--no-rate-limits",)
        self.sim = Simulator(cloudsim, *unlimited, "--boot-s", "0.1", *options)
        self.ahead_s = 0
        # The machines' agents have their own roots.
        del self.env["GPUCTL_NODE_ROOT"]
        self.env["GPUCTL_CONFIG_DIR"] = os.path.join(self.dir, "config")
        # A machine with much else to do may be slow; one test tries markets that hang.
        self.env["GPUCTL_MARKET_PATIENCE"] = "30s"
        for service in SERVICES:
            self.env["GPUCTL_%s_URL" % service.upper()] = self.sim.url + "/" + service
            self.env["GPUCTL_%s_API_KEY" % service.upper()] = KEYS[service]

    def __enter__(self):
        return self

    def __exit__(self, kind, *unused):
        try:
            if kind is None:
                self.check_nothing_left()
        finally:
            self.sim.stop()
            left = self.processes()
            end_processes(*self.marks(), self.dir.encode())
            shutil.rmtree(self.dir, ignore_errors=True)
        assert kind is not None or not left, "processes are left: %s" % left

    def run(self, *args, **more):
        """As Laptop.run. `doctor` looks at `local`, whose files are otherwise those of the user who
        tests: an ssh session has the user's own home."""
        if args[0] == "doctor":
            more.setdefault("GPUCTL_NODE_ROOT", self.root)
        return super().run(*args, **more)

    def marks(self):
        return (b"@%d\0" % self.sim.pid,
                b"GPUCTL_STATE_DIR=%s\0" % self.env["GPUCTL_STATE_DIR"].encode())

    def processes(self):
        """Returns the processes on the machines and those of gpuctl."""
        return list(processes_with(*self.marks()))

    def check_nothing_left(self):
        """Expects that nothing is alive after a test, in the books and in the ledger."""
        if self.alive():
            done = self.run("down", "--all", "--force", code=None)
            assert done.returncode == 0, done
        assert self.alive() == [], self.alive()
        assert self.json("instances")["instances"] == []

    def advance(self, seconds):
        """Moves the clock of the markets and of every gpuctl that starts from now on."""
        self.sim.advance(seconds)
        self.ahead_s += seconds
        self.env["GPUCTL_TEST_CLOCK"] = "1@%d@%d" % (
            (time.time() + self.ahead_s) * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)

    def books(self):
        return self.sim.books()["instances"]

    def alive(self):
        return [book for book in self.books() if book["alive"]]

    @staticmethod
    def account(service):
        return KEYS[service]

    def check_sums(self, home):
        """Expects that the newest checkpoint at home equals the job's, byte for byte."""
        with open(home + "/out/sums", encoding="utf-8") as file:
            sums = [line for line in file if "step-2/" in line]
        assert len(sums) == 1, sums
        subprocess.run(["sha256sum", "--check", "--quiet"], cwd=home, input=sums[0], text=True,
                       check=True)

    def creates(self, service=""):
        """Returns the requests for a machine, with any outcome."""
        return [r for r in self.sim.requests(service) if r["route"] == "create"]

    def finish(self, child):
        """Returns its stdout and stderr. If it does not end, fails with its output and requests."""
        try:
            return child.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            raise AssertionError("does not end: %s\n%s" % (
                child.communicate()[1].decode(), self.sim.requests()[-6:])) from None

    def add_services(self, url=None):
        """Gives gpuctl the keys of MORE_SERVICES, too."""
        for service in MORE_SERVICES:
            self.env["GPUCTL_%s_URL" % service.upper()] = (url or self.sim.url) + "/" + service
            self.env["GPUCTL_%s_API_KEY" % service.upper()] = KEYS[service]
        enter_key(self.sim, self.env["GPUCTL_STATE_DIR"])

    def rent(self, *args, code=0, **env):
        return self.run("launch", "-y", "--no-workdir", *args, code=code, **env)

    def empty(self, gpu, *services):
        """Puts that model out of stock, in the named services or everywhere."""
        for item, places in self.sim.state()["stock"]["runpod"].items():
            if gpu in item and (not services or "runpod" in services):
                for cloud in places:
                    self.sim.stock(service="runpod", item=item, cloud=cloud.upper(), count=0)
        for item in VAST_OFFERS.get(gpu, ()):
            if not services or "vast" in services:
                self.sim.stock(service="vast", item=item, count=0)

    def files(self, name):
        """Returns the files that pull brought to its own directory: path -> content."""
        home, found = os.path.join(self.work, name), {}
        for folder, _, names in os.walk(home):
            for each in set(names) - {".gpuctlignore"}:
                path = os.path.join(folder, each)
                with open(path, "rb") as file:
                    found[os.path.relpath(path, home)] = file.read()
        return found

    def told_home(self):
        """Returns what the machines were told of results that are at home."""
        told = []
        for pid in self.processes():
            with contextlib.suppress(OSError, ValueError):
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                # A process that is ending has no words.
                if words[1:2] == [b"guard"]:
                    with open(words[words.index(b"--root") + 1] + b"/home.json", "rb") as file:
                        told.append(json.load(file))
        return told

    def running(self, program):
        """Returns the processes on the machines whose program has `program`, bytes, in its name."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    if program in file.read().split(b"\0", 1)[0]:
                        found.append(pid)
        return found

    def agents(self):
        """Returns one of the agents' processes on the machines, or none."""
        return self.running(b"gpuctl-agent")[:1]

    def leases(self):
        """Returns the ledger's rows, oldest first."""
        path = os.path.join(self.env["GPUCTL_STATE_DIR"], "ledger.db")
        if not os.path.exists(path):
            return []
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            ledger.row_factory = sqlite3.Row
            return [dict(row) for row in ledger.execute("SELECT * FROM leases ORDER BY intended_ms")]

    def excluded(self):
        path = os.path.join(self.env["GPUCTL_STATE_DIR"], "ledger.db")
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            return [row[0] for row in ledger.execute("SELECT place FROM places")]

    def excluded_for_s(self):
        """Returns for how many seconds from now each place is left out."""
        path = os.path.join(self.env["GPUCTL_STATE_DIR"], "ledger.db")
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            return {place: until_ms / 1000 - time.time()
                    for place, until_ms in ledger.execute("SELECT place, until_ms FROM places")}

    def project(self):
        """Makes a work directory with a training script, and a data tree. Returns their flags."""
        home = os.path.join(self.dir, "project")
        data = os.path.join(self.dir, "dataset")
        write(home + "/train.sh", TRAIN, 0o755)
        write(home + "/extra/note.txt", "note of the work directory\n")
        write(data + "/train.txt", "a word\n" * 1000)
        return ["--workdir", home, "--data", data + "=sets/words", "--checkpoints", "ckpt/step-*",
                "--artifacts", "out/**"]


def run_tests(names):
    """  TEST.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]; each test gets a world of its own."""
    tests = {name: test for name, test in names.items() if name.startswith("test_")}
    failed = []
    for name in sys.argv[4:] or list(tests):
        begin = time.monotonic()
        try:
            with RentWorld(*sys.argv[1:4]) as world:
                tests[name](world)
            print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:
            failed.append(name)
            print("FAILED %s\n%s" % (name, traceback.format_exc()), flush=True)
    sys.exit(1 if failed else 0)


__all__ = ["SERVICES", "RentWorld", "eventually", "open_gate", "run_tests", "write"]

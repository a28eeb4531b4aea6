"""Common code of rent_fault_matrix and rent_kill_matrix: each cell has its own gpuctl and
simulator, both on one fast clock."""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from simulator import KEYS, Simulator, enter_key  # noqa: E402

PROVIDERS = ("runpod", "lambda", "vast", "digitalocean", "shadeform", "huggingface")
GPU = {"runpod": "RTX4090", "lambda": "A10", "vast": "RTX4090", "digitalocean": "H100",
       "shadeform": "H100", "huggingface": "A10G"}
# Begun units of this many seconds are billed whole.
QUANTUM_S = {"lambda": 60, "digitalocean": 3600, "shadeform": 3600, "huggingface": 60}
FIRST_OF_A_KIND = {}


class CellFailed(AssertionError):
    pass


def check(condition, what):
    if not condition:
        raise CellFailed(what)


class Cell:
    """with Cell(gpuctl, simulator program, "vast") as cell: …"""

    def __init__(self, gpuctl, program, provider, speed, nodes=False, more=()):
        self.gpuctl, self.provider, self.speed = gpuctl, provider, speed
        options = ["--no-rate-limits", "--boot-s", "2", "--speed", str(speed), *more]
        self.sim = Simulator(program, *options, *([] if nodes else ["--no-nodes"]))
        self.root = tempfile.mkdtemp(prefix="rent-cell-")
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        now = self.sim.control("GET", "clock")["now_ms"]
        asked = (before + time.clock_gettime(time.CLOCK_BOOTTIME)) / 2
        self.clock = f"{speed}@{now}@{round(asked * 1000)}"
        self.log = []
        if provider == "huggingface":
            enter_key(self.sim, os.path.join(self.root, "a", "state"))

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.sim.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def environment(self, state="a", **more):
        home = os.path.join(self.root, state)
        os.makedirs(home, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "HOME": home, "TMPDIR": self.root, "LC_ALL": "C.UTF-8",
               "GPUCTL_STATE_DIR": home + "/state", "GPUCTL_CONFIG_DIR": home + "/config",
               "GPUCTL_CACHE_DIR": home + "/cache",
               "GPUCTL_TEST_CLOCK": self.clock, "GPUCTL_WARM_LINK": "off",
               f"GPUCTL_{self.provider.upper()}_URL": f"{self.sim.url}/{self.provider}",
               f"GPUCTL_{self.provider.upper()}_API_KEY": KEYS[self.provider]}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            if name in os.environ:
                env[name] = os.environ[name]
        env.update(more)
        return env

    def start(self, *arguments, state="a", program=None, **more):
        return subprocess.Popen([program or self.gpuctl, *arguments], env=self.environment(state, **more),
                                cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def finish(self, process, timeout=300):
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            self.log.append((process.args[1:], "timeout", out, err))
            raise CellFailed(f"{process.args[1:]} did not end in {timeout} s")
        self.log.append((process.args[1:], process.returncode, out, err))
        return process.returncode, out, err

    def run(self, *arguments, state="a", timeout=300, **more):
        return self.finish(self.start(*arguments, state=state, **more), timeout)

    def run_killed_at_write(self, *arguments, number):
        """A gpuctl that dies at the `number`-th call of the ledger's write hook."""
        program = os.path.join(os.path.dirname(self.gpuctl), "gpuctl_killed_at_write")
        return self.run(*arguments, program=program, KILL_AT_WRITE=str(number))

    def launch_arguments(self, name="one", *more):
        return ("launch", "-y", "--provider", self.provider, "--gpu", GPU[self.provider], "--name",
                name, "--no-workdir", *more, "--", "true")

    def json(self, *arguments, state="a", codes=(0,)):
        """Asks again where the market was slower than the fast clock allows: 30 s are some 200 ms
        there."""
        for _ in range(5):
            code, out, err = self.run(*arguments, "-o", "json", state=state)
            if code in codes or code != 122 or "timed out after" not in out:
                break
        check(code in codes, f"{arguments} exited with {code}: {err}")
        return json.loads(out)

    def books(self):
        return [b for b in self.sim.books()["instances"] if b["service"] == self.provider]

    def alive(self):
        return [b for b in self.books() if b["alive"]]

    def leases(self, state="a"):
        """Returns the leases directly from the ledger, so that no listing changes them."""
        import sqlite3
        path = os.path.join(self.root, state, "state", "ledger.db")
        if not os.path.exists(path):
            return []
        database = sqlite3.connect(path)
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute("SELECT * FROM leases")]
        finally:
            database.close()

    def story(self):
        return "\n".join(f"  $ gpuctl {' '.join(a)} -> {c}\n{o[-800:]}{e[-1800:]}"
                         for a, c, o, e in self.log)


def which_cells(arguments):
    """Returns the arguments without "--only TEXT", the cells' names have it, and "--every N", each
    N-th cell is tried; and TEXT and N."""
    values = {"--only": "", "--every": "1"}
    rest = list(arguments)
    for flag in values:
        if flag in rest:
            at = rest.index(flag)
            values[flag] = rest[at + 1]
            del rest[at:at + 2]
    return rest, values["--only"], int(values["--every"])


def run_cells(cells, jobs):
    """Runs the cells, name -> function. Prints the failed ones and returns their number."""
    began, failed, times = time.monotonic(), [], []

    def one(name):
        start = time.monotonic()
        try:
            cells[name]()
            problem = None
        except Exception as error:  # an exception in a cell is a failure, too
            problem = f"{type(error).__name__}: {error}"
        return name, problem, time.monotonic() - start

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, problem, took in pool.map(one, cells):
            times.append((took, name))
            if problem:
                failed.append(name)
                print(f"FAILED {name} ({took:.1f} s): {problem}", flush=True)
    slow = ", ".join(f"{name} {took:.1f} s" for took, name in sorted(times)[-3:])
    print(f"{len(cells)} cells, {len(failed)} failed, {time.monotonic() - began:.0f} s; "
          f"slowest: {slow}")
    return len(failed)

"""Rented machines whose laptop never comes back. Each limit ends the job, with its checkpoint, and
then the bill, without any gpuctl. Real client, agent and shim; simulated markets.

    rent_alone_test.py GPUCTL GPUCTL-CLOUDSIM
"""
import calendar
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from simulator import KEYS, Simulator, eventually  # noqa: E402

GPUCTL, CLOUDSIM = sys.argv[1:3]

# Saves at SIGTERM, as training scripts do; "saved" is its checkpoint.
SAVES_ON_TERM = ("trap 'echo late > saved.bin; exit 0' TERM; echo early > first.bin; "
                 "while :; do sleep 0.1; done")
SAVES_AND_ENDS = "echo done > saved.bin"
LONG = {"--time": "1h", "--idle": "1h", "--salvage": "1h", "--lease": "1h", "--grace": "30s"}


class Alone:
    """One market, one laptop and one run; everything is removed afterwards."""

    def __init__(self, service):
        self.service = service
        self.sim = Simulator(CLOUDSIM, "--no-rate-limits", "--boot-s", "0.3")
        self.dir = tempfile.TemporaryDirectory(prefix="rent-alone-")
        self.env = {**os.environ, "GPUCTL_WARM_LINK": "off",
                    f"GPUCTL_{service.upper()}_URL": f"{self.sim.url}/{service}",
                    f"GPUCTL_{service.upper()}_API_KEY": KEYS[service]}
        for name in ("STATE", "CONFIG", "CACHE"):
            self.env[f"GPUCTL_{name}_DIR"] = os.path.join(self.dir.name, name.lower())
        self.work = os.path.join(self.dir.name, "work")
        os.mkdir(self.work)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.sim.stop()
        self.dir.cleanup()

    def gpuctl(self, *args):
        return subprocess.run([GPUCTL, *args], env=self.env, cwd=self.work, capture_output=True,
                              text=True, check=False, stdin=subprocess.DEVNULL)

    def launch(self, script, *flags, **limits):
        given = {**LONG, **{"--" + name: value for name, value in limits.items()}}
        args = ["launch", "-y", "--provider", self.service, "--name", "alone-1", "--checkpoints",
                "*.bin", *flags, *[word for pair in given.items() for word in pair]]
        run = self.gpuctl(*args, "--", "bash", "-c", script)
        assert run.returncode == 0, run.stderr
        return run

    def instance(self):
        return eventually(lambda: [i for i in self.sim.state()["instances"] if "dir" in i],
                          "a rented machine")[0]

    def hold_release(self):
        """Holds the request that ends the instance, so that the state before it can be seen."""
        route = "terminate" if self.service != "lambda" else "*"
        return self.sim.hold(service=self.service, route=route, nth_request=1, phase="before")

    def job_dir(self):
        for place, directories, _ in os.walk(self.instance()["dir"]):
            if os.path.basename(place) == "jobs" and len(directories) == 1:
                return os.path.join(place, directories[0])
        raise AssertionError("no job on the machine")

    def lifecycle(self):
        with open(os.path.join(self.job_dir(), "lifecycle.jsonl"), encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def saved(self):
        with open(os.path.join(self.job_dir(), "work", "saved.bin"), encoding="utf-8") as text:
            return text.read()

    def check_end(self, hold, reason):
        """Expects the job to be over, with its checkpoint, when the machine asks for its own end.
        Then the bill ends."""
        self.sim.wait_hold(hold, 90)
        last = self.lifecycle()[-1]
        assert last["event"] == "exited", last
        assert last.get("reason", "") == reason, last
        assert self.saved() == ("late\n" if reason else "done\n")
        self.sim.release(hold)
        self.check_bill_ended()

    def check_bill_ended(self):
        book = eventually(lambda: next((b for b in self.sim.books()["instances"] if not b["alive"]),
                                       None), "the end of the bill", 60)
        assert book["ended_by"] == "instance " + book["id"], book["ended_by"]
        assert len(self.sim.books()["instances"]) == 1


def boot(service):
    """The laptop dies after the create and before the agent: the start script ends the machine."""
    with Alone(service) as alone:
        hold = alone.sim.hold(service=service, route="describe", nth_request=1, phase="before")
        # The deadline is half an hour ahead by the clocks of laptop and market, which are two hours
        # behind. By the machine's clock it has passed at boot.
        alone.sim.advance(-7200)
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        behind = dict(alone.env, GPUCTL_TEST_CLOCK="1@%d@%d" % ((time.time() - 7200) * 1000,
                                                               up * 1000))
        client = subprocess.Popen(
            [GPUCTL, "launch", "-y", "--provider", service, "--", "true"], env=behind,
            cwd=alone.work, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        alone.sim.wait_hold(hold)
        client.send_signal(signal.SIGKILL)
        client.wait()
        alone.sim.release(hold, drop=True)
        alone.check_bill_ended()


def idle_home(service):
    """Results are at home: the machine ends, although they could be kept for long."""
    with Alone(service) as alone:
        hold = alone.hold_release()
        alone.launch(SAVES_AND_ENDS, "--pull", idle="2s")
        with open(os.path.join(alone.work, "alone-1", "saved.bin"), encoding="utf-8") as text:
            assert text.read() == "done\n"
        alone.check_end(hold, "")


def idle_salvage(service):
    """Nobody fetched the results: the machine ends when they were kept for long enough."""
    with Alone(service) as alone:
        hold = alone.hold_release()
        alone.launch(SAVES_AND_ENDS, "-d", idle="2s", salvage="3s")
        alone.check_end(hold, "")


def time_limit(service):
    with Alone(service) as alone:
        hold = alone.hold_release()
        alone.launch(SAVES_ON_TERM, "-d", cost="5", time="2s", idle="1s", salvage="2s")
        alone.check_end(hold, "limit:time")


def cost_limit(service):
    with Alone(service) as alone:
        plan = alone.gpuctl("launch", "--dry-run", "--json", "--provider", service, "--", "true")
        rate = json.loads(plan.stdout)["plan"]["price_usd_per_hour"]
        # Only a machine that is there already runs anything for so little.
        alone.launch("true")
        assert alone.gpuctl("rm", "--force", "alone-1").returncode == 0
        hold = alone.hold_release()
        # A third of 30 s is salvage, and 2 s are grace.
        alone.launch(SAVES_ON_TERM, "-d", cost=f"{rate * 30 / 3600:.6f}", grace="2s", idle="1s")
        alone.check_end(hold, "limit:cost")


def lease(service):
    """Without contact for long the machine ends, even when results are not at home."""
    with Alone(service) as alone:
        hold = alone.hold_release()
        alone.launch(SAVES_AND_ENDS, "-d", lease="3s")
        alone.check_end(hold, "")


def no_key(service):
    """A market that gives machines no key: the job ends, but the bill needs a laptop."""
    with Alone(service) as alone:
        alone.launch(SAVES_ON_TERM, "-d", cost="5", time="2s", idle="1s", salvage="1s")
        eventually(lambda: alone.lifecycle()[-1]["event"] == "exited", "the job's end")
        assert alone.lifecycle()[-1].get("reason") == "limit:time", alone.lifecycle()
        assert alone.saved() == "late\n"
        assert alone.sim.books()["instances"][0]["alive"]
        shown = json.loads(alone.gpuctl("instances", "--json").stdout)
        assert len(shown["instances"]) == 1, shown
        kept = alone.gpuctl("down", "-y", "--all")
        assert kept.returncode == 1 and "saved.bin" in kept.stderr, kept
        down = alone.gpuctl("down", "--force", "--all")
        assert down.returncode == 0, down.stderr
        book = alone.sim.books()["instances"][0]
        assert not book["alive"], book
        assert book["ended_by"] == KEYS[service], book["ended_by"]


def reaped_in_its_stead(service):
    """A market that gives machines no key, and a laptop that reaps regularly: the laptop enforces
    the limits, and its question is not a contact."""
    with Alone(service) as alone:
        gate = os.path.join(alone.work, "gate")
        alone.launch(f"echo done > saved.bin; until [ -e {gate} ]; do sleep 0.1; done", "-d",
                     idle="2s")

        def reap(codes=(0,), **env):
            done = subprocess.run([GPUCTL, "reap", "-y"], env={**alone.env, **env}, cwd=alone.work,
                                  capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL)
            assert done.returncode in codes, done
            return done.stderr

        def alive():
            return alone.sim.books()["instances"][0]["alive"]

        assert "no leaks" in reap() and alive(), "its job runs"
        with open(gate, "w", encoding="utf-8"):
            pass
        eventually(lambda: alone.lifecycle()[-1]["event"] == "exited", "the job's end")
        # Longer than the idle limit, which counts only when the results are at home.
        begin = time.monotonic()
        while time.monotonic() < begin + 3:
            assert "no leaks" in reap() and alive(), "its results are not home"
        pulled = alone.gpuctl("pull", "alone-1", "--to", "home")
        assert pulled.returncode == 0, pulled
        said = []
        # A node that does not answer in time, when it is asked again, is left alone once more.
        try:
            eventually(lambda: said.append(reap((0, 117))) or not alive(), "the end of the bill")
        except AssertionError as error:
            raise AssertionError("%s: %s" % (error, said[-3:])) from None
        assert "its idle limit is over, and it cannot end itself: ended" in said[-1], said
        book = alone.sim.books()["instances"][0]
        assert book["ended_by"] == KEYS[service], book


def reaped_unreachable(service):
    """A machine without a key whose node does not answer: the ledger's times decide, later."""
    with Alone(service) as alone:
        alone.launch(SAVES_ON_TERM, "-d", cost="50")
        root = os.path.dirname(os.path.dirname(alone.job_dir()))
        os.rename(os.path.join(root, "bin"), os.path.join(root, "bin-gone"))

        advanced = 0

        def reap(hours):
            # The market's clock agrees, or the laptop would distrust its own.
            nonlocal advanced
            alone.sim.advance((hours - advanced) * 3600)
            advanced = hours
            up = time.clock_gettime(time.CLOCK_BOOTTIME)
            ahead = dict(alone.env, GPUCTL_TEST_CLOCK="1@%d@%d" % (
                (time.time() + hours * 3600) * 1000, up * 1000))
            done = subprocess.run([GPUCTL, "reap", "-y"], env=ahead, cwd=alone.work, check=False,
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL)
            assert done.returncode == 0, done
            return done.stderr, alone.sim.books()["instances"][0]["alive"]

        # An hour for the job, one for its results, one for inexact times.
        said, alive = reap(hours=2.9)
        assert alive and "UNKNOWN" in said and "gpuctl down ends it now" in said, said
        said, alive = reap(hours=3.1)
        assert not alive and "its node does not answer" in said, said


def read_rfc3339(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def check_ends_by_date(alone):
    """Expects the market to end the bill at the date that the create gave, and not before, without
    any request of ours."""
    book = alone.sim.books()["instances"][0]
    info = alone.sim.call(alone.service, "GET", f"/v1/instances/{book['id']}/info").json
    end = read_rfc3339(info["auto_delete"]["date_threshold"])
    asked = len(alone.sim.requests())
    alone.sim.advance(end - 60 - alone.sim.books()["now_ms"] / 1000)
    assert alone.sim.book(book["id"])["alive"], "it ended before its date"
    # Nobody looks for a week.
    alone.sim.advance(7 * 24 * 3600)
    book = alone.sim.book(book["id"])
    assert (book["alive"], book["ended_by"]) == (False, "simulator: auto_delete"), book
    assert book["ended_ms"] == end * 1000, (book["ended_ms"], end)
    hours = math.ceil((book["ended_ms"] - book["created_ms"]) / 3_600_000)
    [charge] = book["charges"]
    assert abs(book["billed_usd"] - hours * charge["usd_per_hour"]) < 1e-6, book
    assert len(alone.sim.requests()) == asked, "somebody asked"
    return end


def expiry(service):
    """The laptop dies while the job runs and never comes back: the market ends the bill at the date
    that it was given, behind all limits. When the laptop comes back after all, it tells that."""
    with Alone(service) as alone:
        client = subprocess.Popen(
            [GPUCTL, "launch", "-y", "--provider", service, "--name", "alone-1", "--time", "1h",
             "--", "bash", "-c", "while :; do sleep 0.1; done"], env=alone.env, cwd=alone.work,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def runs():
            shown = alone.gpuctl("ps", "--json")
            return shown.returncode == 0 and '"status":"running"' in shown.stdout
        eventually(runs, "the job", 240)
        begun = alone.sim.books()["now_ms"] / 1000
        client.send_signal(signal.SIGKILL)
        client.wait()
        end = check_ends_by_date(alone)
        # Behind the run's hour and four hours of salvage, and not by much.
        assert begun + 5 * 3600 < end < begun + 6.5 * 3600, end - begun
        up = time.clock_gettime(time.CLOCK_BOOTTIME)
        alone.env["GPUCTL_TEST_CLOCK"] = "1@%d@%d" % (alone.sim.books()["now_ms"], up * 1000)
        shown = json.loads(alone.gpuctl("instances", "--json").stdout)
        assert shown["instances"] == [] and shown["unsettled"] == [], shown
        told = alone.gpuctl("attach", "alone-1")
        assert told.returncode != 0 and f"{service} has " in told.stderr, told
        assert "whose end there was set to 20" in told.stderr, told
        assert "preempted" not in told.stderr, told


def boot_expiry(service):
    """The laptop dies before it has read the answer to its create: the market ends what it made."""
    with Alone(service) as alone:
        hold = alone.sim.hold(service=service, route="create", nth_request=1, phase="after")
        client = subprocess.Popen(
            [GPUCTL, "launch", "-y", "--provider", service, "--", "true"], env=alone.env,
            cwd=alone.work, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        alone.sim.wait_hold(hold)
        client.send_signal(signal.SIGKILL)
        client.wait()
        alone.sim.release(hold, drop=True)
        check_ends_by_date(alone)


CELLS = [(cell, service) for service in ("runpod", "vast")
         for cell in (cost_limit, boot, idle_home, idle_salvage, time_limit, lease)]
CELLS += [(cell, "lambda") for cell in (no_key, reaped_in_its_stead, reaped_unreachable)]
CELLS += [(cell, service) for service in ("digitalocean", "shadeform")
          for cell in (no_key, reaped_in_its_stead)]
CELLS += [(cell, "shadeform") for cell in (expiry, boot_expiry)]


def main():
    only = sys.argv[3:]
    failures, threads = [], []
    turns = threading.Semaphore(4)

    def run(cell, service):
        name = f"{service} {cell.__name__}"
        with turns:
            begin = time.monotonic()
            try:
                cell(service)
                print(f"ok {name}: {time.monotonic() - begin:.1f} s", flush=True)
            except Exception:  # pylint: disable=broad-except
                failures.append(name)
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)

    for cell, service in CELLS:
        if only and cell.__name__ not in only and service not in only:
            continue
        threads.append(threading.Thread(target=run, args=(cell, service)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert threads
    print(f"{len(threads)} cells, failed: {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

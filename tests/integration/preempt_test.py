"""A machine that its market takes away: the run is lost as preempted, its bill ends, and it goes on
elsewhere from its newest checkpoint at home.

    preempt_test.py GPUCTL GPUCTL-CLOUDSIM
"""
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from simulator import KEYS, Simulator, eventually  # noqa: E402

GPUCTL, CLOUDSIM = map(os.path.abspath, sys.argv[1:3])

# Without a checkpoint to resume from it makes one and never ends. With one it ends with its
# content.
JOB = r"""
if [ -n "${GPUCTL_RESUME_FROM:-}" ]; then
  echo "went on from $(cat "$GPUCTL_RESUME_FROM/weights")"
  exit 0
fi
echo began
mkdir "$GPUCTL_CHECKPOINT_DIR/.tmp-1"
cd "$GPUCTL_CHECKPOINT_DIR/.tmp-1"
echo forty-two > weights
printf '{"format":1,"step":1,"files":[{"path":"weights","size":%d,"sha256":"%s"}]}' \
  "$(stat -c %s weights)" "$(sha256sum weights | cut -c -64)" > manifest.json
mv ../.tmp-1 ../step-1
while :; do sleep 0.1; done
"""

# The same as foreign scripts do it: single files, each written in place.
FILES_JOB = r"""
if [ -n "${GPUCTL_RESUME_FROM:-}" ]; then
  echo "went on from $(basename "$GPUCTL_RESUME_FROM"): $(cat "$GPUCTL_RESUME_FROM")"
  exit 0
fi
echo began
for step in 10 20; do echo "weights of $step" > "step_$step.pt"; done
while :; do sleep 0.1; done
"""


def content_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class World(unittest.TestCase):
    """One laptop with an account at `service`, and the common steps of the tests."""
    service = "vast"

    def setUp(self):
        self.sim = Simulator(CLOUDSIM, "--no-rate-limits", "--boot-s", "0.3")
        self.addCleanup(self.sim.stop)
        directory = tempfile.TemporaryDirectory(prefix="preempt-")
        self.addCleanup(directory.cleanup)
        self.env = {**os.environ, "GPUCTL_WARM_LINK": "off",
                    f"GPUCTL_{self.service.upper()}_URL": f"{self.sim.url}/{self.service}",
                    f"GPUCTL_{self.service.upper()}_API_KEY": KEYS[self.service]}
        for name in ("STATE", "CONFIG", "CACHE"):
            self.env[f"GPUCTL_{name}_DIR"] = os.path.join(directory.name, name.lower())
        self.work = os.path.join(directory.name, "work")
        os.mkdir(self.work)

    def start(self, *args):
        client = subprocess.Popen([GPUCTL, *args], env=self.env, cwd=self.work, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.addCleanup(self.end, client)
        return client

    @staticmethod
    def end(client):
        """Ends a client that the test has given up on, and reports its progress."""
        if client.poll() is None:
            client.terminate()
            print(client.communicate(timeout=30), file=sys.stderr)
        client.stdout.close()
        client.stderr.close()

    def finish(self, *args, code=0):
        client = self.start(*args)
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, code, err)
        return out

    def launch(self, *flags, job=JOB):
        return self.start("launch", "-y", "--provider", self.service, "--name", "taken", *flags,
                          "--", "bash", "-c", job)

    def await_checkpoint(self):
        home = os.path.join(self.work, "taken-1")
        # It comes in a hidden directory, which gets its name when it is complete.
        eventually(lambda: any("weights" in files and "/." not in folder
                               for folder, _, files in os.walk(home)),
                   "the checkpoint at home", 60)

    def take_away(self, what="preempt"):
        self.await_checkpoint()
        self.sim.change(self.service, self.sim.books()["instances"][0]["id"], what)

    def node_processes(self):
        """Returns the processes on the simulator's machines."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open("/proc/%s/environ" % pid, "rb") as file:
                    if b"@%d\0" % self.sim.pid in file.read():
                        found.append(int(pid))
        return found

    def newest_at_home(self):
        return next(os.path.join(folder, "weights")
                    for folder, _, files in os.walk(os.path.join(self.work, "taken-1"))
                    if "weights" in files)

    def time_limit_of(self, instance):
        for folder, _, files in os.walk(self.sim.node(instance)["dir"]):
            if "spec.json" in files and os.path.basename(os.path.dirname(folder)) == "jobs":
                with open(os.path.join(folder, "spec.json"), encoding="utf-8") as file:
                    return int(json.load(file)["spec"]["limits"]["time_s"])
        raise AssertionError("no job on the machine")

    def lost_and_resumed_by_hand(self, what):
        client = self.launch("--pull")
        self.take_away(what)
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, 125, err)
        self.assertEqual(out, "began\n")
        self.assertIn("preempted: ", err)
        self.assertFalse(self.sim.books()["instances"][0]["alive"], "it bills on")
        client = self.start("resume", "taken-1", "-y")
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out, "went on from forty-two\n")
        runs = json.loads(self.start("ps", "-a", "--json").communicate()[0])["runs"]
        self.assertEqual([run["name"] for run in runs], ["taken-2", "taken-1"])
        self.assertEqual(runs[1]["exit_code"], 125)
        resumed = json.loads(self.start("attach", "taken-2", "--json").communicate()[0])
        self.assertEqual(resumed["resumed_from"], runs[1]["run_id"])
        self.assertTrue(runs[1]["reason"].startswith("preempted: "), runs[1])
        self.assertIsNotNone(runs[1]["lease"]["ended"], "its bill is open in the ledger")


class EveryMarketTest(World):
    """Tests of every way in which a market says that it took a machine away."""

    def test_vast_preempts(self):
        self.lost_and_resumed_by_hand("preempt")


class RunpodTest(World):
    service = "runpod"

    def test_the_pod_is_gone(self):
        self.lost_and_resumed_by_hand("preempt")

    def test_the_pod_has_exited(self):
        self.lost_and_resumed_by_hand("stop")


class LambdaTest(World):
    service = "lambda"

    def test_the_instance_is_preempted(self):
        self.lost_and_resumed_by_hand("preempt")

    def test_the_instance_is_terminated_by_the_market(self):
        self.lost_and_resumed_by_hand("end")


class ShadeformTest(World):
    service = "shadeform"

    def test_the_instance_is_reclaimed(self):
        self.lost_and_resumed_by_hand("preempt")

    def test_the_instance_is_deleted_by_somebody(self):
        self.lost_and_resumed_by_hand("end")


class DigitaloceanTest(World):
    service = "digitalocean"

    def test_the_droplet_is_deleted_by_somebody(self):
        self.lost_and_resumed_by_hand("end")


class PreemptTest(World):
    def test_goes_on_by_itself(self):
        client = self.launch("--retry-max", "1", "--retry-on", "preempted", "--cost", "5",
                             "--time", "1h")
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out, "began\nwent on from forty-two\n")
        machines = self.sim.books()["instances"]
        self.assertEqual(len(machines), 2)
        self.assertFalse(machines[0]["alive"])
        # Its limit is the rest of the first one's.
        [seen] = json.loads(self.start("instances", "--json").communicate()[0])["instances"]
        self.assertEqual(seen["instance_id"], str(machines[1]["id"]))
        self.assertLess(seen["lease"]["cost_limit_usd"], 5)
        self.assertGreater(seen["lease"]["cost_limit_usd"], 4)
        # So is its time.
        self.assertLess(self.time_limit_of(machines[1]["id"]), 3600)
        self.assertGreater(self.time_limit_of(machines[1]["id"]), 3000)

    def test_no_time_is_left(self):
        client = self.launch("--retry-max", "1", "--retry-on", "preempted", "--time", "60s")
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, 125, err)
        self.assertIn("of its 1m 00s of running time are left", err)
        self.assertIn("HINT: gpuctl resume taken-1", err)
        self.assertEqual(len(self.sim.books()["instances"]), 1)
        # Not by hand either, unless there is more time.
        client = self.start("resume", "taken-1", "-y")
        err = client.communicate(timeout=300)[1]
        self.assertNotEqual(client.returncode, 0, err)
        self.assertIn("--time", err)
        plan = json.loads(self.finish(
            "resume", "taken-1", "--time", "2h", "--cost", "9", "--idle", "3m", "--salvage", "5m",
            "--lease", "7h", "--max-price", "4", "--dry-run", "--json"))["plan"]
        self.assertGreater(plan["limits"].pop("salvage_cost_usd"), 0)
        self.assertEqual(plan["limits"], {"time_s": 7200, "cost_usd": 9, "idle_s": 180,
                                          "salvage_s": 300, "lease_s": 25200,
                                          "market_end_s": None})

    def test_a_disk_with_what_is_not_at_home_is_kept(self):
        """Vast keeps the disk of a machine that was outbid. Only its storage bills."""
        gate = os.path.join(self.work, "began")
        client = self.launch(job="touch '%s'; %s" % (gate, JOB))
        eventually(lambda: os.path.exists(gate), "the job", 240)
        machine = self.sim.books()["instances"][0]["id"]
        self.sim.change(self.service, machine, "preempt")
        err = client.communicate(timeout=300)[1]
        self.assertEqual(client.returncode, 125, err)
        self.assertIn("what is not at home is kept", err)
        self.assertTrue(self.sim.book(machine)["alive"], "its disk was destroyed")
        err = self.start("instances").communicate(timeout=30)[1]
        self.assertIn("and bills", err)
        self.finish("instances", "--json", code=117)
        self.finish("reap", "-y", "--no-wait", code=117)
        self.assertTrue(self.sim.book(machine)["alive"], "its disk was destroyed")
        self.finish("down", "taken-1", "-y")
        self.assertFalse(self.sim.book(machine)["alive"])

    def test_a_machine_that_is_offline_for_a_while(self):
        gate = os.path.join(self.work, "gate")
        client = self.launch(job="echo began; while [ ! -e '%s' ]; do sleep 0.1; done" % gate)
        eventually(lambda: '"status":"running"' in self.finish("ps", "--json"), "the job", 240)
        machine = self.sim.books()["instances"][0]["id"]
        processes = self.node_processes()
        self.assertNotEqual(processes, [])
        self.sim.change(self.service, machine, "offline")
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        try:
            told = ""
            while "is offline" not in told:
                line = client.stderr.readline()
                self.assertNotEqual(line, "", told)
                told += line
            self.assertIn("what is not at home is kept", told)
            self.finish("instances", code=117)
            self.assertTrue(self.sim.book(machine)["alive"], told)
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
        self.sim.change(self.service, machine, "online")
        with open(gate, "w", encoding="utf-8"):
            pass
        out, err = client.communicate(timeout=300)
        self.assertEqual((client.returncode, out), (0, "began\n"), err)
        self.finish("instances")

    def test_what_nobody_heard_counts_as_used(self):
        """A detached run's machine is found gone an hour later, and nobody knows how long it
        ran."""
        self.launch("-d", "--time", "2h").communicate(timeout=300)
        eventually(lambda: self.start("pull", "taken-1").wait(timeout=30) == 0, "its checkpoint", 240)
        self.sim.change(self.service, self.sim.books()["instances"][0]["id"], "end")
        self.sim.advance(3600)
        later = "1@%d@%d" % ((time.time() + 3600) * 1000,
                             time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        self.env["GPUCTL_TEST_CLOCK"] = later
        client = self.start("resume", "taken-1", "--dry-run")
        err = client.communicate(timeout=300)[1]
        self.assertEqual(client.returncode, 0, err)
        self.assertIn("it counts as having run for 1h 0", err)
        plan = json.loads(self.finish("resume", "taken-1", "--dry-run", "--json"))
        self.assertLess(plan["plan"]["limits"]["time_s"], 3600)
        self.assertGreater(plan["plan"]["limits"]["time_s"], 3000)
        plan = json.loads(self.finish("resume", "taken-1", "--time", "90m", "--dry-run", "--json"))
        self.assertEqual(plan["plan"]["limits"]["time_s"], 5400)

    def test_is_resumed_once_at_a_time(self):
        gate = os.path.join(self.work, "gate")
        client = self.launch("--pull", job=JOB.replace(
            "exit 0", "while [ ! -e '%s' ]; do sleep 0.1; done; exit 0" % gate))
        self.take_away()
        client.communicate(timeout=300)
        # While another launch is about to rent, and while its job runs.
        held = self.sim.hold(service=self.service, route="create", nth_request=1, phase="before")
        first = self.start("resume", "taken-1", "-y", "-d")
        self.sim.wait_hold(held)
        second = self.start("resume", "taken-1", "-y")
        err = second.communicate(timeout=300)[1]
        self.sim.release(held)
        self.assertIn("another gpuctl is resuming it", err)
        self.assertEqual(first.communicate(timeout=300)[0], "taken-2\n")
        third = self.start("resume", "taken-1", "-y")
        err = third.communicate(timeout=300)[1]
        self.assertEqual((second.returncode, third.returncode), (1, 1), err)
        self.assertIn("taken-2 goes on from it already, on " + self.service, err)
        self.assertEqual(len(self.sim.books()["instances"]), 2)
        with open(gate, "w", encoding="utf-8"):
            pass
        self.finish("wait", "taken-2")
        # Its end is known now.
        self.finish("resume", "taken-1", "-y")
        self.assertEqual(len(self.sim.books()["instances"]), 2, "the idle machine was not used")

    def test_down_when_it_was_preempted(self):
        client = self.launch("--pull", "--down")
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertEqual((client.returncode, out), (125, "began\n"), err)
        self.assertIn("is gone already", err)
        self.assertNotIn("stays rented", err)
        with open(self.newest_at_home(), encoding="utf-8") as file:
            self.assertEqual(file.read(), "forty-two\n")
        shown = json.loads(self.finish("instances", "--json"))["instances"]
        self.assertEqual(shown, [])
        # One of several attempts; the last one ended normally.
        self.assertFalse(self.sim.books()["instances"][0]["alive"])

    def test_down_after_it_went_on(self):
        client = self.launch("--down", "--retry-max", "1", "--retry-on", "preempted")
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertEqual((client.returncode, out), (0, "began\nwent on from forty-two\n"), err)
        machines = self.sim.books()["instances"]
        self.assertEqual([machine["alive"] for machine in machines], [False, False])
        self.assertEqual(machines[1]["ended_by"], KEYS[self.service])

    def test_single_files_of_a_script(self):
        """Checkpoints in a foreign format, one file each, come home and are resumed from."""
        client = self.launch("--pull", "--workdir", self.work, "--checkpoints", "*.pt",
                             job=FILES_JOB)
        # The newest comes home first, so the older one is the last in the record.
        record = os.path.join(self.env["GPUCTL_STATE_DIR"], "runs", "*", "pulled.jsonl")
        eventually(lambda: all(any(name in content_of(path) for path in glob.glob(record))
                               for name in ("step_10.pt", "step_20.pt")),
                   "both checkpoints at home", 60)
        self.sim.change(self.service, self.sim.books()["instances"][0]["id"], "preempt")
        out, err = client.communicate(timeout=300)
        self.assertEqual((client.returncode, out), (125, "began\n"), err)
        with open(os.path.join(self.work, "taken-1", "step_20.pt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "weights of 20\n")
        out = self.finish("resume", "taken-1", "-y")
        self.assertEqual(out, "went on from step_20.pt: weights of 20\n")

    def test_pays_no_more_than_was_accepted(self):
        client = self.launch("--retry-max", "1", "--retry-on", "preempted")
        self.await_checkpoint()  # what is dearer than the plan before that is not rented at all
        for offer in self.sim.state()["stock"][self.service]:
            self.sim.price(service=self.service, item=int(offer), usd_per_hour=100)
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertNotEqual(client.returncode, 0, err)
        self.assertEqual(out, "began\n")
        self.assertEqual(len(self.sim.books()["instances"]), 1)

    def test_cost_is_not_begun_anew(self):
        plan = json.loads(self.start("launch", "--dry-run", "--json", "--provider", self.service, "--",
                                     "true").communicate()[0])["plan"]
        # Ten minutes and two seconds: the least that a launch takes, and too little for another.
        client = self.launch("--retry-max", "1", "--retry-on", "preempted", "--cost",
                             str(round(plan["price_usd_per_hour"] * 602 / 3600, 6)))
        self.take_away()
        out, err = client.communicate(timeout=300)
        self.assertEqual(client.returncode, 125, err)
        self.assertIn("does not pay for", err)
        self.assertEqual(len(self.sim.books()["instances"]), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)

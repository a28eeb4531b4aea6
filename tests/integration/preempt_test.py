"""A machine that its market takes away: the run is lost as preempted, its bill is ended, and it goes
on elsewhere from its newest checkpoint at home.

    preempt_test.py GPUCTL GPUCTL-CLOUDSIM
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from simulator import KEYS, Simulator, eventually  # noqa: E402

GPUCTL, CLOUDSIM = map(os.path.abspath, sys.argv[1:3])
SERVICE = "vast"

# Without a checkpoint to go on from: makes one and never ends. With one: ends with what it holds.
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


class PreemptTest(unittest.TestCase):
    def setUp(self):
        self.sim = Simulator(CLOUDSIM, "--no-rate-limits", "--boot-s", "0.3")
        self.addCleanup(self.sim.stop)
        directory = tempfile.TemporaryDirectory(prefix="preempt-")
        self.addCleanup(directory.cleanup)
        self.env = {**os.environ, f"GPUCTL_{SERVICE.upper()}_URL": f"{self.sim.url}/{SERVICE}",
                    f"GPUCTL_{SERVICE.upper()}_API_KEY": KEYS[SERVICE]}
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
        """A client that the test has given up on; it says how far it came."""
        if client.poll() is None:
            client.terminate()
            print(client.communicate(timeout=30), file=sys.stderr)
        client.stdout.close()
        client.stderr.close()

    def launch(self, *flags):
        return self.start("launch", "-y", "--provider", SERVICE, "--name", "taken", *flags, "--", "bash", "-c", JOB)

    def take_away(self):
        home = os.path.join(self.work, "taken")
        eventually(lambda: any("weights" in files for _, _, files in os.walk(home)),
                   "the checkpoint at home", 60)
        self.sim.change(SERVICE, self.sim.books()["instances"][0]["id"], "preempt")

    def test_lost_and_resumed_by_hand(self):
        client = self.launch("--pull")
        self.take_away()
        out, err = client.communicate(timeout=90)
        self.assertEqual(client.returncode, 125, err)
        self.assertEqual(out, "began\n")
        self.assertIn("preempted: ", err)
        self.assertFalse(self.sim.books()["instances"][0]["alive"], "it bills on")
        client = self.start("resume", "taken", "-y")
        out, err = client.communicate(timeout=90)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out, "went on from forty-two\n")
        runs = json.loads(self.start("ps", "-a", "--json").communicate()[0])["runs"]
        self.assertEqual([run["name"] for run in runs], ["taken-2", "taken"])
        self.assertEqual(runs[1]["exit_code"], 125)
        resumed = json.loads(self.start("attach", "taken-2", "--json").communicate()[0])
        self.assertEqual(resumed["resumed_from"], runs[1]["run_id"])

    def test_goes_on_by_itself(self):
        client = self.launch("--retry-max", "1", "--retry-on", "preempted", "--cost", "5")
        self.take_away()
        out, err = client.communicate(timeout=90)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(out, "began\nwent on from forty-two\n")
        machines = self.sim.books()["instances"]
        self.assertEqual(len(machines), 2)
        self.assertFalse(machines[0]["alive"])
        # Its limit is what the first one left.
        [seen] = json.loads(self.start("instances", "--json").communicate()[0])["instances"]
        self.assertEqual(seen["instance_id"], str(machines[1]["id"]))
        self.assertLess(seen["lease"]["cost_limit_usd"], 5)
        self.assertGreater(seen["lease"]["cost_limit_usd"], 4)

    def test_pays_no_more_than_was_accepted(self):
        client = self.launch("--retry-max", "1", "--retry-on", "preempted")
        for offer in self.sim.state()["stock"][SERVICE]:
            self.sim.price(service=SERVICE, item=int(offer), usd_per_hour=100)
        self.take_away()
        out, err = client.communicate(timeout=90)
        self.assertNotEqual(client.returncode, 0, err)
        self.assertEqual(out, "began\n")
        self.assertEqual(len(self.sim.books()["instances"]), 1)

    def test_cost_is_not_begun_anew(self):
        plan = json.loads(self.start("launch", "--dry-run", "--json", "--provider", SERVICE, "--",
                                     "true").communicate()[0])["plan"]
        client = self.launch("--retry-max", "1", "--retry-on", "preempted", "--cost",
                             str(round(plan["price_usd_per_hour"] * 0.15, 4)))
        self.take_away()
        out, err = client.communicate(timeout=90)
        self.assertEqual(client.returncode, 125, err)
        self.assertIn("does not pay for", err)
        self.assertEqual(len(self.sim.books()["instances"]), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)

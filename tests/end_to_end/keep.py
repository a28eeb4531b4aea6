#!/usr/bin/env python3
"""gpuctl keep at simulated markets: what it does for runs while nobody watches.

  keep.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import os
import signal
import time

from rent_world import eventually, run_tests

VAST = ["--provider", "vast", "--gpu", "RTX-4090"]
# Makes one checkpoint and goes on; with a checkpoint to resume from it ends.
JOB = r"""
if [ -n "${GPUCTL_RESUME_FROM:-}" ]; then
  echo "went on from $(cat "$GPUCTL_RESUME_FROM/weights")"
  exit 0
fi
mkdir "$GPUCTL_CHECKPOINT_DIR/.tmp-1"
cd "$GPUCTL_CHECKPOINT_DIR/.tmp-1"
echo forty-two > weights
printf '{"format":1,"step":1,"files":[{"path":"weights","size":%d,"sha256":"%s"}]}' \
  "$(stat -c %s weights)" "$(sha256sum weights | cut -c -64)" > manifest.json
mv ../.tmp-1 ../step-1
while [ ! -e "$GPUCTL_CHECKPOINT_DIR/../enough" ]; do sleep 0.1; done
"""


def log_of(w):
    path = os.path.join(w.env["GPUCTL_STATE_DIR"], "keep.log")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.split(" ", 1)[1].rstrip("\n") for line in file]


def home_of(w, name):
    found = []
    for folder, _, files in os.walk(w.work):
        if name in folder and "weights" in files and "/." not in folder:
            found.append(folder)
    return found


def pulled(w, name):
    """Keeps until a checkpoint is at home."""
    def comes():
        w.run("keep", code=None)
        return home_of(w, name)
    eventually(comes, "a checkpoint of %s at home" % name)


def test_results_come_home_and_end_the_salvage(w):
    done = w.rent("-d", "--pull", "--name", "fetched", *VAST, "--", "bash", "-c", JOB)
    assert b"gpuctl keep --install" in done.stderr, done
    pulled(w, "fetched")
    assert any(line.startswith("pull fetched-1: brought") for line in log_of(w)), log_of(w)
    lines = len(log_of(w))
    w.run("keep")
    assert len(log_of(w)) == lines, log_of(w)
    (book,) = w.alive()
    for folder, _, _ in os.walk(w.sim.node(book["id"])["dir"]):
        if folder.endswith("/ckpt"):
            open(os.path.join(folder, "..", "enough"), "w", encoding="utf-8").close()
    w.run("wait", "fetched")
    w.run("keep")
    # All is at home: the machine ends after its idle time, not after its salvage.
    w.run("down", "fetched", "-y")
    assert w.alive() == []


def test_a_preempted_run_goes_on_once_with_two_keeps(w):
    # A run that is to be resumed is brought home without --pull, too.
    w.rent("-d", "--spot", "--cost", "5", "--name", "taken", "--retry-max", "2", "--retry-on",
           "preempted", *VAST, "--", "bash", "-c", JOB)
    pulled(w, "taken")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    w.run("keep", code=None)
    assert "preempted" in str(w.json("ps", "-a")["runs"]), w.json("ps", "-a")
    assert len(w.json("ps", "-a")["runs"]) == 1, "a launch that shows it goes first"
    w.advance(200)
    dry = w.run("keep", "--dry-run", code=None)
    assert b"would run: gpuctl resume" in dry.stderr, dry
    assert len(w.alive()) == 1, "the disk of the machine that was taken away"
    both = [w.start("keep") for _ in range(2)]
    for child in both:
        child.communicate(timeout=120)
    assert len(w.alive()) == 1 and w.alive()[0]["id"] != book["id"], w.alive()
    runs = {run["name"] for run in w.json("ps", "-a")["runs"]}
    assert runs == {"taken-1", "taken-2"}, (runs, log_of(w))
    assert sum(line.startswith("resume taken-1: goes on as taken-2") for line in log_of(w)) == 1
    assert w.run("attach", "taken-2").stdout.endswith(b"went on from forty-two\n")
    w.run("keep", code=None)
    assert len(w.json("ps", "-a")["runs"]) == 2, log_of(w)
    w.run("down", "--all", "--force")


def test_a_price_rise_is_answered_by_the_rule(w):
    rules = {"accept": "accept-price-increase", "refuse": "reject-price-increase"}
    w.rent("-d", "--name", "ruled", "--on-price-rise", "accept", "--max-price", "0.7", *VAST, "--",
           "sleep", "3600")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "announce_price", factor=2, in_s=86_400)
    w.run("keep")
    asked = [r["path"] for r in w.sim.requests("vast") if r["path"].endswith("-price-increase/")]
    assert len(asked) == 1 and rules["accept"] in asked[0], asked
    assert "accept-price ruled-1: done" in log_of(w), log_of(w)
    w.run("keep")
    assert len(log_of(w)) == 1, log_of(w)
    w.run("down", "--all", "--force")
    w.rent("-d", "--name", "stopped", "--on-price-rise", "stop", "--fresh", *VAST, "--", "sleep",
           "3600")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "announce_price", factor=2, in_s=86_400)
    w.run("keep")
    assert "stop stopped-1: done" in log_of(w), log_of(w)
    assert w.json("ps")["runs"] == [], w.json("ps")
    w.run("launch", "--on-price-rise", "accept", "-y", *VAST, "--", "true", code=2)
    w.run("down", "--all", "--force")


def test_killed_at_any_moment_the_next_pass_goes_on(w):
    w.rent("-d", "--pull", "--name", "tough", *VAST, "--", "bash", "-c", JOB)
    for round_number in range(12):
        child = w.start("keep")
        time.sleep(0.02 * round_number)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        assert len(w.alive()) == 1, "its job runs"
    pulled(w, "tough")
    assert len(w.creates("vast")) == 1
    w.run("down", "--all", "--force")


def test_a_failure_is_said_once_and_mends_itself(w):
    w.rent("-d", "--pull", "--name", "barred", *VAST, "--", "bash", "-c", JOB)
    bar = os.path.join(w.work, "barred-1")
    with open(bar, "w", encoding="utf-8"):
        pass
    for _ in range(3):
        assert w.run("keep", code=None).returncode != 0
    assert len([line for line in log_of(w) if line.startswith("pull barred-1: FAILED")]) == 1
    os.unlink(bar)
    pulled(w, "barred")
    assert log_of(w)[-1].startswith("pull barred-1: brought"), log_of(w)
    w.run("down", "--all", "--force")


if __name__ == "__main__":
    run_tests(globals())

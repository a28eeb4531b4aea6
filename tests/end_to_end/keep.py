#!/usr/bin/env python3
"""gpuctl keep at simulated markets: what it does for runs while nobody watches.

  keep.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
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


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def words_of(pid):
    with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as file:
        return file.read().split(b"\0")
    return []


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


def end_job(w):
    """Ends the JOB of the only machine."""
    (book,) = w.alive()
    for folder, _, _ in os.walk(w.sim.node(book["id"])["dir"]):
        if folder.endswith("/ckpt"):
            open(os.path.join(folder, "..", "enough"), "w", encoding="utf-8").close()


def test_results_come_home_and_end_the_salvage(w):
    done = w.rent("-d", "--pull", "--name", "fetched", *VAST, "--", "bash", "-c", JOB)
    assert b"gpuctl keep --install" in done.stderr, done
    pulled(w, "fetched")
    assert any(line.startswith("pull fetched-1: brought") for line in log_of(w)), log_of(w)
    lines = len(log_of(w))
    w.run("keep")
    assert len(log_of(w)) == lines, log_of(w)
    end_job(w)
    w.run("wait", "fetched")
    w.run("keep")
    # All is at home: the machine ends after its idle time, not after its salvage.
    w.run("down", "fetched", "-y")
    assert w.alive() == []


def test_all_runs_of_one_machine_come_home(w):
    job = 'mkdir "$GPUCTL_CHECKPOINT_DIR/step-{lr}" && echo {lr} > ' \
          '"$GPUCTL_CHECKPOINT_DIR/step-{lr}/weights"'
    w.run("submit", "-y", "--name", "kp", "--pull", "--no-workdir", *VAST, "--sweep", "lr=1,2,3",
          "--", "bash", "-c", job)
    w.run("wait", "--batch", "kp", "--timeout", "3m")
    assert len(w.creates("vast")) == 1, w.creates()
    w.run("keep")
    for number in "123":
        home = os.path.join(w.work, "kp-" + number)
        assert len(home_of(w, "kp-" + number)) == 1, (os.listdir(w.work), log_of(w))
        # A launch in this directory does not send it back.
        with open(home + "/.gpuctlignore", encoding="utf-8") as file:
            assert file.read() == "*\n", number
    w.run("down", "--all", "-y")
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
        child.communicate(timeout=300)
    assert len(w.alive()) == 1 and w.alive()[0]["id"] != book["id"], w.alive()
    runs = {run["name"] for run in w.json("ps", "-a")["runs"]}
    assert runs == {"taken-1", "taken-2"}, (runs, log_of(w))
    assert sum(line.startswith("resume taken-1: goes on as taken-2") for line in log_of(w)) == 1
    assert w.run("attach", "taken-2").stdout.endswith(b"went on from forty-two\n")
    w.run("keep", code=None)
    assert len(w.json("ps", "-a")["runs"]) == 2, log_of(w)
    w.run("down", "--all", "--force")


SPOT = ["-d", "--spot", "--retry-max", "1", "--retry-on", "preempted", *VAST]


def runs_of(w):
    return sorted(run["name"] for run in w.json("ps", "-a")["runs"])


def take(w, market="vast"):
    (book,) = [book for book in w.alive() if book["service"] == market]
    w.sim.change(market, book["id"], "preempt")


def pass_by(w, times):
    """Passes, five minutes after each other."""
    for _ in range(times):
        w.run("keep", code=None)
        w.advance(300)


def test_a_run_without_checkpoints_is_resumed_as_often_as_it_says(w):
    w.rent(*SPOT, "--cost", "5", "--name", "bare", "--", "sleep", "3600")
    pass_by(w, 1)  # all that there is, nothing, is at home
    take(w)
    pass_by(w, 5)
    assert runs_of(w) == ["bare-1", "bare-2"], (runs_of(w), log_of(w))
    assert len(w.alive()) == 1, w.alive()
    done = w.run("resume", "bare-1", "--anew", "-d", "-y", code=None)
    assert done.returncode != 0 and b"goes on from it already" in done.stderr, done
    take(w)
    pass_by(w, 3)
    assert runs_of(w) == ["bare-1", "bare-2"], (runs_of(w), log_of(w))
    w.run("down", "--all", "--force")


def test_what_was_made_after_the_last_look_is_not_given_up(w):
    """The laptop slept while the job made its first checkpoint, and then the machine was taken."""
    w.rent(*SPOT, "--cost", "5", "--name", "slept", "--", "sleep", "36000")
    pass_by(w, 1)  # nothing is there yet
    w.advance(3600)
    take(w)
    pass_by(w, 3)
    assert runs_of(w) == ["slept-1"] and len(w.alive()) == 1, (runs_of(w), log_of(w))
    assert any("resume slept-1: FAILED: no checkpoint of it is at home" in line
               for line in log_of(w)), log_of(w)
    w.run("down", "--all", "--force")


def test_a_directory_that_is_not_there_is_no_run_without_results(w):
    """A pull that cannot write is not taken for one that finds nothing to bring."""
    disk = os.path.join(w.dir, "disk")
    os.mkdir(disk)
    os.symlink(disk, os.path.join(w.work, "far-1"))
    w.rent("-d", "--pull", "--name", "far", *VAST, "--", "bash", "-c", JOB)
    os.rename(disk, disk + ".unmounted")
    w.run("keep", code=None)
    assert any(line.startswith("pull far-1: FAILED") for line in log_of(w)), log_of(w)
    end_job(w)
    w.run("wait", "far")
    w.run("keep", code=None)
    os.rename(disk + ".unmounted", disk)
    w.run("keep")
    assert os.path.exists(disk + "/step-1/weights"), (os.listdir(disk), log_of(w))


def test_a_node_that_is_slower_than_people_wait_is_heard(w):
    """Nobody waits for a pass of keep. What it does not learn of a node, it does not do."""
    w.rent("-d", "--name", "slow", *VAST, "--", "true")
    folder = w.sim.node(w.alive()[0]["id"])["dir"]

    def has_ended():
        found = glob.glob(os.path.join(folder, "**", "lifecycle.jsonl"), recursive=True, include_hidden=True)
        return found and "exited" in read(found[0])
    eventually(has_ended, "the job is over")
    servers = [pid for pid in w.processes() if words_of(pid)[1:2] == [b"server"]]
    assert servers, "the node has an agent"
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    passing = w.start("keep")
    time.sleep(6)
    for pid in servers:
        os.kill(pid, signal.SIGCONT)
    passing.communicate(timeout=120)
    runs = w.json("ps", "-a", "--offline")["runs"]
    assert runs[0]["status"] == "succeeded", runs
    w.run("down", "--all", "--force")


def test_what_goes_on_twice_counts_twice(w):
    """The second machine goes before it has a checkpoint of its own."""
    w.rent("-d", "--spot", "--cost", "5", "--name", "twice", "--retry-max", "2", "--retry-on",
           "preempted", *VAST, "--", "bash", "-c",
           JOB.replace("exit 0", '[ "$GPUCTL_RUN_ID" != "$(cat again)" ] || exit 0; sleep 3600'))
    pulled(w, "twice")
    for _ in range(4):
        take(w)
        pass_by(w, 2)
        if len(runs_of(w)) == 3:
            break
    take(w)
    pass_by(w, 3)
    assert runs_of(w) == ["twice-1", "twice-2", "twice-3"], (runs_of(w), log_of(w))
    w.run("down", "--all", "--force")


def test_it_is_resumed_no_dearer_than_it_was(w):
    w.rent(*SPOT, "--name", "cheap", "--", "bash", "-c", JOB)
    pulled(w, "cheap")
    take(w)
    for item in w.sim.state()["stock"]["vast"]:
        with contextlib.suppress(AssertionError):  # not every kind of stock has a price
            w.sim.price(service="vast", item=int(item), usd_per_hour=30.0)
    w.run("ps", "-u")
    w.advance(300)
    pass_by(w, 2)
    assert runs_of(w) == ["cheap-1"], log_of(w)
    # Its disk goes only when the run can go on without it; the failure is said once.
    assert len(w.alive()) == 1 and len([
        line for line in log_of(w) if line.startswith("resume cheap-1: FAILED")]) == 1, log_of(w)
    w.run("down", "--all", "--force")


def test_what_its_user_ends_is_not_resumed(w):
    for verb in (["down", "--force"], ["stop"]):
        name = "ended-" + verb[0]
        w.rent(*SPOT, "--cost", "5", "--fresh", "--name", name, "--", "bash", "-c", JOB)
        pulled(w, name)
        take(w)
        w.run("ps", "-u")
        w.run(verb[0], name, *verb[1:])
        w.advance(300)
        before = runs_of(w)
        pass_by(w, 2)
        assert runs_of(w) == before, log_of(w)
        w.run("down", "--all", "--force", "-y")


def test_a_kept_disk_with_the_only_checkpoint_stays(w):
    w.rent(*SPOT, "--cost", "5", "--name", "only", "--", "bash", "-c", JOB)
    eventually(lambda: w.json("ps", "-u")["runs"][0]["status"] == "running", "it runs")
    take(w)
    w.run("ps", "-u")
    w.advance(300)
    pass_by(w, 2)
    assert len(w.alive()) == 1 and runs_of(w) == ["only-1"], (w.alive(), log_of(w))
    assert any("no checkpoint of it is at home" in line for line in log_of(w)), log_of(w)
    w.run("down", "--all", "--force")


def test_a_run_taken_away_at_each_market_is_resumed(w):
    """There the machine is gone, and the first listing of a pass sees it."""
    for market, flags in (("runpod", ["--spot", "--gpu", "RTX-4090"]), ("lambda", ["--gpu", "A10"])):
        w.rent("-d", "--cost", "5", "--name", market, "--retry-max", "1", "--retry-on", "preempted",
               "--provider", market, *flags, "--", "bash", "-c", JOB)
        pulled(w, market + "-1")
        w.advance(200)
        take(w, market)
        w.advance(10)
        pass_by(w, 3)
        assert market + "-2" in runs_of(w), (runs_of(w), log_of(w))
        w.run("down", "--all", "--force", "-y")


def test_a_copy_of_the_ledger_does_nothing_for_the_originals_runs(w):
    w.rent("-d", "--name", "mine", "--on-price-rise", "stop", *VAST, "--", "sleep", "3600")
    copy = w.dir + "/copy"
    shutil.copytree(w.env["GPUCTL_STATE_DIR"], copy)
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "announce_price", factor=1.01, in_s=30 * 86400)
    w.run("keep", code=None, GPUCTL_STATE_DIR=copy)
    assert w.json("ps", "-u")["runs"][0]["status"] == "running"
    w.run("down", "--all", "--force")


def test_a_state_directory_that_cannot_be_written_ends_leaks_all_the_same(w):
    w.rent("-d", "--name", "leaked", "--provider", "lambda", "--gpu", "A10", "--", "sleep", "600")
    w.sim.fault("lambda", "terminate", "500", times=-1)
    fast = "60@%d@%d" % (time.time() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    done = w.run("down", "leaked", "--force", code=None, GPUCTL_TEST_CLOCK=fast)
    assert done.returncode != 0, done
    w.sim.clear_faults()
    assert len(w.alive()) == 1
    state = w.env["GPUCTL_STATE_DIR"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=8m none %s.small && cp -a %s/. "
         "%s.small && mount --move %s.small %s && mount -o remount,ro %s && exec %s keep" % (
             state, state, state, state, state, state, w.gpuctl)],
        env=w.env, cwd=w.work, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=300,
        check=False) if not os.mkdir(state + ".small") else None
    assert done.returncode == 1 and b"only leaks are ended" in done.stderr, done
    assert w.alive() == [], done


def test_ctrl_c_ends_what_it_does_in_order(w):
    w.rent(*SPOT, "--cost", "5", "--name", "cut", "--", "bash", "-c", JOB)
    pulled(w, "cut")
    take(w)
    w.run("ps", "-u")
    w.advance(300)
    hold = w.sim.hold(service="vast", route="create", nth_request=1, phase="before")
    child = w.start("keep")
    w.sim.wait_hold(hold)
    child.send_signal(signal.SIGINT)
    w.sim.release(hold)
    w.finish(child)
    assert child.returncode != 0 and w.alive() == [], (child.returncode, w.alive())
    assert any(line.startswith("resume cut-1: FAILED") for line in log_of(w)), log_of(w)


def test_runs_without_results_are_no_failures(w):
    w.rent("-d", "--pull", "--name", "young", *VAST, "--", "sleep", "3600")
    eventually(lambda: w.json("ps", "-u")["runs"][0]["status"] == "running", "it runs")
    assert w.run("keep").returncode == 0
    said = w.json("keep")
    assert said["deeds"] == [] and said["failures"] == [], said
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
        child.communicate(timeout=300)
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

#!/usr/bin/env python3
"""Schedules: `every` in a run file, started by gpuctl keep.

  schedules.py GPUCTL FAKE_JOB [TEST...]

The clock of each gpuctl is set ahead; nothing waits for a minute to pass.
"""
import calendar
import os
import random
import signal
import subprocess
import time

from runs import run_tests, wait_until

# A day in winter, at noon UTC.
NOON = calendar.timegm((2027, 1, 11, 12, 0, 0))
DAY = 24 * 3600


def at(l, seconds):
    """Sets the clock of the gpuctls that start from now on."""
    l.env["GPUCTL_TEST_CLOCK"] = "1@%d@%d" % (
        (NOON + seconds) * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


def begin(l):
    l.env["TZ"] = "UTC"
    at(l, 0)


def batch(l, name):
    (found,) = l.json("queue", name, "--offline")["batches"]
    return found


def ran(l):
    path = os.path.join(l.dir, "ran")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().split()


def job(l):
    return ["--no-workdir", "--host", "local", "--", "bash", "-c",
            "echo $GPUCTL_RUN_ID >> %s/ran; [ ! -e %s/hold ] || while [ ! -e %s/go ]; do sleep 0.05; "
            "done" % (l.dir, l.dir, l.dir)]


def passes(l, name, done):
    """Makes passes of keep until so many entries are done."""
    def enough():
        l.run("keep", code=None)
        return batch(l, name)["done"] == done
    wait_until(enough, "%d are done" % done)


def test_the_end_of_a_run_is_not_the_end_of_its_schedule(l):
    begin(l)
    open(os.path.join(l.dir, "hold"), "w", encoding="utf-8").close()
    l.run("submit", "--name", "nightly", "--every", "0 3 * * *", "--overlap", *job(l))
    at(l, DAY)
    def runs():
        l.run("keep", code=None)
        return batch(l, "nightly")["running"] == 1
    wait_until(runs, "one runs")
    for verb in (["stop", "nightly-1"], ["down", "-y", "nightly-1"]):
        said = l.run(*verb).stderr
        assert said.count(b"the schedule nightly goes on: its next run starts 2027-01-13 03:00") == 1, said
        assert b"HINT: gpuctl cancel nightly ends the schedule" in said, said
    l.run("cancel", "nightly")
    assert b"goes on" not in l.run("down", "-y", "nightly-1").stderr


def test_each_time_starts_one_run(l):
    begin(l)
    submitted = l.run("submit", "--name", "nightly", "--every", "0 3 * * *", *job(l))
    assert submitted.stdout == b"nightly\n", submitted
    assert b"next 2027-01-12 03:00" in submitted.stderr, submitted.stderr
    schedule = batch(l, "nightly")["schedule"]
    assert (schedule["every"], schedule["next"]) == ("0 3 * * *", "2027-01-12T03:00:00.000Z"), schedule
    assert b"2027-01-12 03:00" in l.run("queue", "--offline").stdout
    l.run("keep")
    assert ran(l) == [] and batch(l, "nightly")["entries"] == []
    at(l, 15 * 3600 + 60)
    passes(l, "nightly", 1)
    assert len(ran(l)) == 1
    l.run("keep")
    assert len(ran(l)) == 1
    assert batch(l, "nightly")["schedule"]["next"] == "2027-01-13T03:00:00.000Z"
    # A week without this computer: one run, not seven.
    at(l, 8 * DAY)
    passes(l, "nightly", 2)
    l.run("keep")
    assert len(ran(l)) == 2
    assert [entry["entry"] for entry in batch(l, "nightly")["entries"]] == ["nightly-1", "nightly-2"]
    assert batch(l, "nightly")["schedule"]["next"] == "2027-01-20T03:00:00.000Z"
    # The same again changes nothing, other times replace these.
    again = l.run("submit", "--name", "nightly", "--every", "0 3 * * *", *job(l))
    assert b"goes on" in again.stderr, again.stderr
    assert batch(l, "nightly")["schedule"]["next"] == "2027-01-20T03:00:00.000Z"
    l.run("submit", "--name", "nightly", "--every", "0 5 * * *", *job(l))
    assert batch(l, "nightly")["schedule"]["next"] == "2027-01-20T05:00:00.000Z"
    cancelled = l.run("cancel", "nightly")
    assert b"its schedule ended" in cancelled.stderr, cancelled.stderr
    at(l, 30 * DAY)
    l.run("keep")
    assert len(ran(l)) == 2 and batch(l, "nightly")["over"]
    assert l.json("queue")["batches"] == []
    # One that ended goes on when it is submitted again.
    again = l.run("submit", "--name", "nightly", "--every", "0 5 * * *", *job(l))
    assert b"nightly goes on" in again.stderr, again.stderr
    assert not batch(l, "nightly")["over"]
    l.run("cancel", "nightly")


def test_never_two_at_once_unless_allowed(l):
    begin(l)
    open(os.path.join(l.dir, "hold"), "w").close()
    l.run("submit", "--name", "slow", "--every", "@hourly", *job(l))
    at(l, 3600)
    l.run("keep")
    wait_until(lambda: len(ran(l)) == 1, "the first one runs")
    at(l, 2 * 3600)
    l.run("keep")
    found = batch(l, "slow")
    assert len(found["entries"]) == 1, found
    assert found["schedule"]["skipped"] == "slow-1 was not over", found
    assert b"went by, because slow-1 was not over" in l.run("queue", "slow", "--offline").stderr
    open(os.path.join(l.dir, "go"), "w").close()
    passes(l, "slow", 1)  # its end is known
    at(l, 3 * 3600)
    passes(l, "slow", 2)
    assert len(ran(l)) == 2


def test_a_run_file_with_times(l):
    begin(l)
    with open(os.path.join(l.work, "run.yaml"), "w") as file:
        file.write("name: filed\nevery: '*/10 * * * *'\nresources: {provider: local}\n"
                   "run: echo x >> %s/ran\n" % l.dir)
    refused = l.run("launch", "run.yaml", code=2)
    assert b"gpuctl submit" in refused.stderr, refused.stderr
    assert l.json("submit", "--dry-run", "run.yaml")["plan"]["next"] == "2027-01-11T12:10:00.000Z"
    l.run("submit", "run.yaml")
    at(l, 601)
    passes(l, "filed", 1)
    with open(os.path.join(l.work, "bad.yaml"), "w") as file:
        file.write("every: 0 25 * * *\nrun: x\n")
    wrong = l.run("submit", "bad.yaml", code=2)
    assert b"hour" in wrong.stderr and b"25" in wrong.stderr, wrong.stderr
    assert b"without parameters" in l.run("submit", "--every", "@daily", "--sweep", "a=1,2", "--",
                                          "true", code=2).stderr
    l.run("submit", "--overlap", "--", "true", code=2)


def test_killed_and_many_keeps_start_each_time_once(l):
    begin(l)
    seed = int(os.environ.get("GPUCTL_TEST_SEED", "5"))
    print("seed", seed)
    chance = random.Random(seed)
    l.run("submit", "--name", "often", "--every", "@daily", *job(l))
    for turn in range(6):
        at(l, (turn + 1) * DAY)
        # As a timer starts them: keep itself lets one pass at a time, queue lets all.
        several = [subprocess.Popen([l.gpuctl, *verb], cwd=l.work, env=l.env,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
                   for verb in (["keep"], ["queue"], ["queue", "--pass", "--json"])]
        time.sleep(chance.random() * 0.5)
        for one in several:
            if chance.random() < 0.7:
                one.send_signal(signal.SIGKILL)
        for one in several:
            one.wait(timeout=300)
        passes(l, "often", turn + 1)
        assert len(ran(l)) == len(set(ran(l))) == turn + 1, (turn, ran(l))


if __name__ == "__main__":
    run_tests(globals(), apart=True)

#!/usr/bin/env python3
"""More time for a run that is not over, on this computer and on rented machines.

  extend.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import os
import random
import signal
import time

import huggingface
from keep import end_job, JOB, VAST
from markets import end_at_shadeform, ends_in_ledger, SHADEFORM
from rent_world import eventually, run_tests


def here(w, name, time_limit, *words):
    """Starts a run on this computer, and returns when it runs."""
    w.run("launch", "-d", "--no-workdir", "--provider", "local", "--name", name, "--time", time_limit,
          *(words or ("--", "sleep", "3600")))


def state_of(w, name):
    return next(run for run in w.json("ps", "-a", "-u")["runs"] if run["name"] == name)


def over(w, name):
    return state_of(w, name)["exit_code"] is not None


def test_a_run_outlives_its_first_limit(w):
    here(w, "long", "4s")
    begin = time.monotonic()
    json_of = w.json("extend", "long-1", "1h")["extended"]
    assert (json_of["added_s"], json_of["time_s"], json_of["cost_usd"]) == (3600, 3604, None), json_of
    assert b"time 1h 00m" in w.run("show", "long-1").stdout
    # What enforces the limit may be another process by then.
    for pid in list(w.node_pids()):
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().split(b"\0")
        if b"guard" in words or b"server" in words:
            os.kill(pid, signal.SIGKILL)
    time.sleep(max(0, begin + 7 - time.monotonic()))
    assert not over(w, "long-1"), state_of(w, "long-1")
    w.run("stop", "long-1")
    done = w.run("extend", "long-1", "1h", code=1)
    assert b"long-1 is over: " in done.stderr, done
    # A hint at what would be refused is none.
    assert b"HINT: no checkpoint of it is at home: gpuctl pull long-1 brings one" in done.stderr, done
    assert b"gpuctl resume long-1 --anew begins anew" in done.stderr, done


def pulls(w, name):
    return w.run("pull", name, code=None).returncode == 0


def test_what_helps_an_ended_run(w):
    here(w, "saves", "1h", "--checkpoints", "out-*", "--", "bash", "-c",
         "mkdir out-1 && echo 1 > out-1/weights; sleep 3600")
    eventually(lambda: pulls(w, "saves-1"), "its checkpoint comes home")
    w.run("stop", "saves-1")
    done = w.run("extend", "saves-1", "1h", code=1)
    assert b"HINT: gpuctl resume saves-1 goes on from its newest checkpoint" in done.stderr, done
    here(w, "good", "1h", "--", "true")
    w.run("wait", "good-1")
    done = w.run("extend", "good-1", "1h", code=1)
    assert b"HINT: gpuctl launch --like good-1 runs it again" in done.stderr, done


def test_the_new_limit_ends_the_run_too(w):
    here(w, "short", "2s")
    w.run("extend", "short-1", "4s")
    eventually(lambda: over(w, "short-1"), "its longer limit ends it")
    run = state_of(w, "short-1")
    assert run["status"] == "limit" and "time" in run["reason"], run


def test_two_at_once_lose_no_time(w):
    here(w, "both", "1h")
    both = [w.start("extend", "both-1", "1h") for _ in range(4)]
    ends = [(child.communicate(timeout=300)[1], child.returncode) for child in both]
    given = [err for err, code in ends if code == 0]
    refused = [err for err, code in ends if code == 1]
    assert len(given) + len(refused) == 4 and given, ends
    assert all(b"another gpuctl is extending both-1" in err for err in refused), ends
    plan = w.json("extend", "both-1", "1h", "--dry-run")["extended"]
    assert plan["time_s"] == 3600 * (2 + len(given)), (plan, ends)
    w.run("stop", "both-1")


def test_wrong_words_change_nothing(w):
    here(w, "words", "1h")
    for args, why in ((["words-1", "soon"], b"extend: "), (["words-1", "0s"], b"no time"),
                      (["words-1"], b"TIME"), (["nobody", "1h"], b"nobody")):
        assert why in w.run("extend", *args, code=None).stderr, (args, why)
    plan = w.json("extend", "words-1", "1h", "--dry-run")["extended"]
    assert plan["dry_run"] and plan["time_s"] == 7200, plan
    assert w.json("extend", "words-1", "1h", "--dry-run")["extended"]["time_s"] == 7200
    w.run("stop", "words-1")


def limits_there(w, instance):
    """The limits that the agent on a machine enforces."""
    for folder, _, files in os.walk(w.sim.node(instance)["dir"]):
        if "limits.json" in files:
            with open(os.path.join(folder, "limits.json"), encoding="utf-8") as file:
                return json.load(file)["limits"]
    raise AssertionError("the machine has no limits")


def cap(w, name):
    return state_of(w, name)["lease"]["cost_limit_usd"]


def test_a_rented_machine_costs_more_only_when_that_is_agreed(w):
    w.rent("-d", "--name", "held", "--time", "1h", "--salvage", "10m", *VAST, "--", "bash", "-c", JOB)
    before = cap(w, "held-1")
    done = w.run("extend", "held-1", "2h", code=2)
    assert b"extend asks before it costs more" in done.stderr, done
    assert cap(w, "held-1") == before
    plan = w.json("extend", "held-1", "2h", "-y")["extended"]
    price = state_of(w, "held-1")["lease"]["usd_per_hour"]
    # It began with 20 minutes for the start, which were hardly used.
    assert 1.5 * price < plan["added_usd"] <= 2 * price + 0.01, (plan, price)
    assert abs(cap(w, "held-1") - before - plan["added_usd"]) < 1e-6, (cap(w, "held-1"), before, plan)
    (machine,) = w.alive()
    assert abs(limits_there(w, machine["id"])["cost_usd"] - cap(w, "held-1")) < 1e-6
    end_job(w)
    w.run("wait", "held-1", "--timeout", "2m")
    w.run("down", "held-1", "-y", "--force")
    assert w.alive() == []


def test_a_killed_extend_leaves_what_the_next_one_mends(w):
    rng = random.Random(7)
    w.rent("-d", "--name", "cut", "--time", "1h", "--salvage", "10m", *VAST, "--", "bash", "-c", JOB)
    (machine,) = w.alive()
    for _ in range(40):
        child = w.start("extend", "cut-1", "10m", "-y")
        time.sleep(rng.random() * 0.25)
        child.kill()
        child.communicate()
    done = w.json("extend", "cut-1", "1m", "-y")["extended"]
    assert 3660 <= done["time_s"] <= 3600 + 40 * 600 + 60, done
    # The record, the job's own limit, the ledger and the machine's agent agree.
    assert w.json("extend", "cut-1", "1m", "--dry-run")["extended"]["time_s"] == done["time_s"] + 60
    (limit,) = [os.path.join(folder, "time_limit")
                for folder, _, files in os.walk(w.sim.node(machine["id"])["dir"])
                if "time_limit" in files]
    with open(limit, encoding="utf-8") as file:
        assert int(file.read()) == done["time_s"], done
    assert abs(limits_there(w, machine["id"])["cost_usd"] - cap(w, "cut-1")) < 1e-6
    # It pays for the time, the start and what was promised to results, and for nothing twice.
    price = state_of(w, "cut-1")["lease"]["usd_per_hour"]
    hours = done["time_s"] / 3600
    assert price * hours <= cap(w, "cut-1") <= price * (hours + 0.6), (cap(w, "cut-1"), price, done)
    end_job(w)
    w.run("wait", "cut-1", "--timeout", "2m")
    w.run("down", "cut-1", "-y", "--force")


def test_the_end_that_a_market_sets_moves_along(w):
    w.add_services()
    w.rent("-d", "--name", "far", "--time", "1h", "--salvage", "10m", *SHADEFORM, "--", "bash", "-c",
           JOB)
    (machine,) = w.alive()
    first, limit = end_at_shadeform(w, machine["id"]), cap(w, "far-1")
    # What cannot be moved does not cost more either.
    w.sim.fault("shadeform", "update", "500", times=-1)
    done = w.run("extend", "far-1", "9h", "-y", code=121)
    assert b"extend far-1: " in done.stderr and b"HINT: it can go on on another" in done.stderr, done
    w.sim.clear_faults()
    assert end_at_shadeform(w, machine["id"]) == first and cap(w, "far-1") == limit
    assert b"time 1h 00m" in w.run("show", "far-1").stdout
    w.run("extend", "far-1", "9h", "-y")
    moved = end_at_shadeform(w, machine["id"])
    assert moved > first + 8 * 3_600_000 and ends_in_ledger(w) == {machine["id"]: moved}, moved
    assert cap(w, "far-1") > limit and b"time 10h 00m" in w.run("show", "far-1").stdout
    end_job(w)
    w.run("wait", "far-1", "--timeout", "2m")
    w.run("down", "far-1", "-y", "--force")


def test_an_end_that_cannot_be_moved_is_told(w):
    huggingface.begin(w)
    w.rent("-d", "--name", "fixed", "--time", "1h", "--salvage", "10m", *huggingface.RENT, "--",
           "bash", "-c", JOB)
    limit = cap(w, "fixed-1")
    done = w.run("extend", "fixed-1", "9h", "-y", code=121)
    assert b"before the run has had its time" in done.stderr, done
    assert b"gpuctl resume fixed-1 goes on from there" in done.stderr, done
    assert cap(w, "fixed-1") == limit and b"time 1h 00m" in w.run("show", "fixed-1").stdout
    # What ends before that is given.
    w.run("extend", "fixed-1", "2m", "-y")
    assert b"time 1h 02m" in w.run("show", "fixed-1").stdout
    end_job(w)
    w.run("wait", "fixed-1", "--timeout", "2m")
    w.run("down", "fixed-1", "-y", "--force")


def test_a_batch_pays_no_more_than_its_limit(w):
    args = ["--name", "paid", *VAST, "--time", "1h", "--salvage", "10m"]
    plan = json.loads(w.run("submit", "--json", "--dry-run", *args, "--no-workdir", "--",
                            "true").stdout)["plan"]
    w.run("submit", "-y", *args, "--max-cost", "%.2f" % (plan["each_cost_usd"] + 0.05),
          "--no-workdir", "--", "bash", "-c", JOB)
    eventually(lambda: state_of(w, "paid-1")["status"] == "running", "it runs")
    done = w.run("extend", "paid-1", "9h", "-y", code=121)
    assert b"batch paid: --max-cost" in done.stderr, done
    end_job(w)
    w.run("wait", "paid-1", "--timeout", "2m")
    w.run("down", "--all", "-y", "--force")


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""Batches on rented machines of simulated markets: warm machines, the cost limit, kills.

  batches_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

BATCH_RUNS and BATCH_NODES set the size of the test with kills, BATCH_SEED its course.
"""
import contextlib
import json
import os
import random
import re
import signal
import time

from batches import batch, check_ran_once, job, most_at_once, notes, starters
from process_groups import ProcessGroup
from rent_world import DEADLINE_S, eventually, run_tests

VAST = ["--provider", "vast", "--gpu", "RTX-4090", "--time", "1h", "--salvage", "10m", "--idle", "5m"]
CENT = 0.01


def gated(w, name, gate):
    """A job that waits until the file `gate` is there."""
    path = os.path.join(w.dir, name)
    script = ('echo "begin {v} $GPUCTL_RUN_ID" >> %s; while [ ! -e %s ]; do sleep 0.1; done; '
              'echo "end {v} $GPUCTL_RUN_ID" >> %s' % (path, os.path.join(w.dir, gate), path))
    return ["--no-workdir", "--", "bash", "-c", script]


def open_gate(w, gate):
    with open(os.path.join(w.dir, gate), "w", encoding="utf-8"):
        pass


def values(count):
    return [str(i) for i in range(count)]


def billed(w):
    return sum(book["billed_usd"] for book in w.books())


def json_plan(w, *args):
    return json.loads(w.run("submit", "--json", "--dry-run", *args).stdout)["plan"]


def offers(w, nodes):
    """Makes enough machines at the market."""
    for i in range(nodes):
        w.sim.offer(service="vast", like=9100001, item=9_200_000 + i, gpu="RTX 4090",
                    usd_per_hour=0.3)


def is_settled(w, name):
    """True when no entry of the batch is just being started."""
    return batch(w, name, "--offline")["starting"] == 0


def test_one_warm_machine_serves_a_batch(w):
    w.run("submit", "-y", "--name", "warm", *VAST, "--sweep", "v=" + ",".join(values(4)),
          *job(w, "warm.ran", "0.1"))
    w.run("wait", "--batch", "warm", "--timeout", "3m")
    check_ran_once(w, "warm.ran", values(4))
    assert len(w.creates("vast")) == 1 and len(w.alive()) == 1, w.books()
    rows = w.json("queue", "warm", "--results")["results"]
    assert all(row["cost_usd"] > 0 for row in rows), rows
    # It is not forgotten while a machine of it may bill.
    done = w.run("rm", "--forget", "warm", code=1)
    assert b"forget batch warm: vast/" in done.stderr and b" may bill for it" in done.stderr, done
    assert b"HINT: gpuctl down --batch warm" in done.stderr, done
    assert len(w.json("queue", "warm", "--results")["results"]) == 4
    spent = w.json("cost", "--by", "run")["total"]["spent_high_usd"]
    w.run("down", "--batch", "warm", "-y", "--force")
    w.run("rm", "--forget", "-y", "warm")
    assert b"warm" not in w.run("queue", "-aq").stdout + w.run("ps", "-aq").stdout
    assert w.json("cost", "--by", "run")["total"]["spent_high_usd"] >= spent
    w.run("down", "--all", "-y", "--force")


EIGHT = ["--gpu", "H100:8", "--time", "1h", "--salvage", "10m", "--idle", "5m"]


def test_runs_share_a_rented_machine(w):
    """Four of six runs fit on a machine of eight GPUs: the others follow there."""
    sweep = ["--gpus", "2", "--sweep", "v=" + ",".join(values(6))]
    plan = json_plan(w, *EIGHT, *sweep, "--", "true")
    assert plan["max_parallel"] == 4, plan
    # Two rounds on one machine, not six machines.
    assert abs(plan["cost_usd"] - 2 * plan["each_cost_usd"]) < CENT, plan
    cap = round(plan["cost_usd"], 2)
    w.run("submit", "-y", "--name", "shared", "--max-cost", str(cap), *EIGHT, *sweep,
          *gated(w, "shared.ran", "shared.go"))

    def four_run():
        w.run("queue", "shared")
        return is_settled(w, "shared") and batch(w, "shared", "--offline")["running"] == 4

    eventually(four_run, "four run")
    found = batch(w, "shared")
    assert len(w.alive()) == 1, w.books()
    running = [entry for entry in found["entries"] if entry["state"] == "running"]
    assert len({entry["node"] for entry in running}) == 1, found
    gpus = [gpu for run in w.json("ps")["runs"] for gpu in run["gpu_ids"]]
    assert len(gpus) == 8 and len(set(gpus)) == 8, gpus
    assert found["spent_usd"] + found["promised_usd"] <= cap, found
    open_gate(w, "shared.go")
    w.run("wait", "--batch", "shared", "--timeout", "3m")
    check_ran_once(w, "shared.ran", values(6))
    assert most_at_once(w, "shared.ran") == 4, notes(w, "shared.ran")
    assert len([r for r in w.creates() if r["instance"]]) == 1, w.creates()
    w.run("down", "--all", "-y", "--force")
    spent = batch(w, "shared")["spent_usd"]
    assert billed(w) - CENT <= spent <= cap, (billed(w), spent, cap)


def test_more_at_once_than_one_machine_has_gpus_for(w):
    w.run("submit", "-y", "--name", "two", "--max-parallel", "3", *EIGHT, "--gpus", "4",
          "--max-price", "30", "--sweep", "v=" + ",".join(values(5)), *gated(w, "two.ran", "two.go"))

    def three_run():
        w.run("queue", "two")
        return is_settled(w, "two") and batch(w, "two", "--offline")["running"] == 3

    eventually(three_run, "three run")
    assert len(w.alive()) == 2, w.books()
    open_gate(w, "two.go")
    w.run("wait", "--batch", "two", "--timeout", "3m")
    check_ran_once(w, "two.ran", values(5))
    assert len([r for r in w.creates() if r["instance"]]) == 2, w.creates()
    w.run("down", "--all", "-y", "--force")


def test_a_shared_machine_that_ends_is_replaced(w):
    w.run("submit", "-y", "--name", "cut-shared", *EIGHT, "--gpus", "4", "--sweep", "v=0,1,2",
          *gated(w, "cut.ran", "cut.go"))

    def two_run():
        w.run("queue", "cut-shared")
        return is_settled(w, "cut-shared") and \
            batch(w, "cut-shared", "--offline")["running"] == 2

    eventually(two_run, "two run")
    w.run("down", "--all", "-y", "--force")
    open_gate(w, "cut.go")
    w.run("wait", "--batch", "cut-shared", "--timeout", "3m", code=None)
    states = sorted(entry["state"] for entry in batch(w, "cut-shared")["entries"])
    assert states == ["cancelled", "cancelled", "done"], states
    w.run("down", "--all", "-y", "--force")


def test_sharing_and_preemption(w):
    done = w.run("submit", "-y", *EIGHT, "--gpus", "4", "--retry-on", "preempted", "--retry-max",
                 "1", "--sweep", "v=0,1",
                 "--", "true", code=2)
    assert b"retry.on: preempted does not go with runs that share" in done.stderr, done
    assert w.creates() == [], w.creates()


def test_the_plan_says_what_all_may_cost_and_asks(w):
    args = ["--name", "asked", *VAST, "--max-parallel", "2", "--sweep", "v=1,2,3", "--", "true"]
    done = w.run("submit", *args, code=2)
    assert b"HINT: add -y" in done.stderr, done
    done = w.run("submit", "--dry-run", *args)
    assert b"at most 2 at once" in done.stdout and b"at most in all" in done.stdout, done
    done = w.run("submit", "-y", "--max-cost", "0.01", *args, code=2)
    assert b"does not pay for one run" in done.stderr, done
    assert w.creates() == [] and w.json("queue", "-a")["batches"] == []


def test_the_cost_limit_holds_to_the_cent(w):
    offers(w, 4)
    plan = json_plan(w, *VAST, "--sweep", "v=1,2,3,4", "--", "true")
    each = plan["each_cost_usd"]
    cap = round(each * 2.2, 2)  # two at once, and some that was spent before the others
    w.run("submit", "-y", "--name", "capped", "--max-parallel", "4", "--max-cost", str(cap), *VAST,
          "--sweep", "v=" + ",".join(values(4)), *gated(w, "capped.ran", "go"))
    eventually(lambda: is_settled(w, "capped"), "the first are started")
    for _ in range(3):
        w.run("queue", "capped")
        eventually(lambda: is_settled(w, "capped"), "what may start is started")
    found = batch(w, "capped")
    waiting = [entry for entry in found["entries"] if entry["state"] == "waiting"]
    assert len(waiting) == 2 and any("--max-cost" in entry["why"] for entry in waiting), found
    assert len(w.alive()) == 2, w.books()
    assert found["spent_usd"] + found["promised_usd"] <= cap, found
    open_gate(w, "go")
    w.advance(120)
    w.run("wait", "--batch", "capped", "--timeout", "3m")
    check_ran_once(w, "capped.ran", values(4))
    found = batch(w, "capped")
    assert found["done"] == 4, found
    # Their machines were used again.
    assert len([r for r in w.creates("vast") if r["instance"]]) == 2, w.creates("vast")
    w.run("down", "--all", "-y", "--force")
    assert billed(w) <= cap + CENT / 2, (billed(w), cap)
    spent = batch(w, "capped")["spent_usd"]
    assert billed(w) - CENT <= spent <= cap, (billed(w), spent, cap)


def test_nothing_on_offer_lets_it_wait_and_keep_goes_on(w):
    w.run("submit", "-y", "--name", "empty", *VAST, "--sweep", "v=1,2", *gated(w, "e.ran", "go"))
    eventually(lambda: is_settled(w, "empty") and len(notes(w, "e.ran")) == 1, "one runs")
    done = w.run("down", "--all", "-y", "--force")  # its user ends it
    assert b"batch empty will rent again: 1 of its runs wait" in done.stderr, done
    w.empty("RTX 4090")
    w.run("queue")
    eventually(lambda: is_settled(w, "empty"), "the other one was tried")
    found = batch(w, "empty")
    states = sorted(entry["state"] for entry in found["entries"])
    assert states == ["cancelled", "waiting"], found
    assert any("tried again" in (entry["why"] or "") for entry in found["entries"]), found
    for item in (9100001, 9100002, 9100003):
        w.sim.stock(service="vast", item=item, count=1)
    w.advance(1200)
    open_gate(w, "go")
    w.run("keep", code=None)
    w.run("wait", "--batch", "empty", "--timeout", "2m", code=None)
    assert batch(w, "empty")["done"] == 1, batch(w, "empty")
    w.run("down", "--all", "-y", "--force")


def test_a_launcher_that_is_killed_while_it_rents(w):
    """The machine that it rented is used by the next one, or is ended as a leak; the run is neither
    lost nor doubled."""
    for phase in ("before", "after"):
        name = "cut-" + phase
        hold = w.sim.hold(service="vast", route="create", nth_request=1, phase=phase)
        child = w.start("submit", "-y", "--name", name, *VAST, "--sweep", "v=1,2",
                        *job(w, name + ".ran", "0.1"))
        w.sim.wait_hold(hold)
        for pid in starters(w):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        w.sim.release(hold, drop=True)
        w.finish(child)
        w.run("wait", "--batch", name, "--timeout", "3m")
        check_ran_once(w, name + ".ran", ["1", "2"])
        # A request without an answer is settled by two listings that are far apart.
        w.run("down", "--all", "-y", "--force", code=None)
        for _ in range(3):
            w.advance(200)
            w.run("reap", "-y", code=None)
        assert w.alive() == [], (phase, w.alive())


def test_a_preempted_run_goes_on_in_its_place(w):
    script = "if [ -e %s ]; then exit 0; fi; sleep 3600" % os.path.join(w.dir, "go")
    w.run("submit", "-y", "--name", "spot", "--spot", "--retry-max", "2", "--retry-on", "preempted",
          *VAST, "--sweep", "v=1,2", "--no-workdir", "--", "bash", "-c", script)
    eventually(lambda: batch(w, "spot", "--offline")["running"] == 1, "one runs")
    w.run("keep", code=None)  # it has no results
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    w.run("ps", "-u")
    found = batch(w, "spot")
    assert (found["running"], found["waiting"]) == (1, 1), found
    assert "keep resumes it" in found["entries"][0]["why"], found
    open_gate(w, "go")
    w.advance(300)
    w.run("keep", code=None)
    w.run("wait", "--batch", "spot", "--timeout", "2m")
    found = batch(w, "spot")
    # The run that went on took the number behind the batch's own.
    assert found["done"] == 2 and found["entries"][0]["run"] not in ("spot-1", "spot-2"), found
    w.run("down", "--all", "-y", "--force")


def test_a_preempted_run_that_is_given_up_holds_its_batch_up_no_more(w):
    script = "if [ -e %s ]; then exit 0; fi; sleep 3600" % os.path.join(w.dir, "given-up")
    w.run("submit", "-y", "--name", "giveup", "--spot", "--retry-max", "2", "--retry-on", "preempted",
          *VAST, "--sweep", "v=1,2", "--no-workdir", "--", "bash", "-c", script)
    eventually(lambda: batch(w, "giveup", "--offline")["running"] == 1, "one runs")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    w.run("ps", "-u")
    found = batch(w, "giveup")
    assert (found["running"], found["waiting"]) == (1, 1), found
    w.run("stop", found["entries"][0]["run"], code=None)
    open_gate(w, "given-up")
    done = w.run("wait", "--batch", "giveup", "--timeout", "5m", code=None)
    found = batch(w, "giveup")
    assert found["over"] and (found["done"], found["failed"]) == (1, 1), (found, done)
    w.run("down", "--all", "-y", "--force")


def test_an_interrupted_submit_rents_no_more_than_it_says(w):
    offers(w, 3)
    child = w.start("submit", "-y", "--name", "cutoff", "--max-parallel", "3", "--max-cost", "10", *VAST,
                    "--sweep", "v=1,2,3", *job(w, "cutoff.ran", "0.1"))
    # They have begun, and some of them wait for their turn.
    eventually(lambda: len(starters(w)) == 3, "processes start entries")
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=DEADLINE_S)[1]
    assert child.returncode == 130, (child.returncode, said)
    begun = sum(int(n) for n in re.findall(rb"(\d+) (?:starting|running|done)", said.split(b"interrupted, and")[1]))
    eventually(lambda: starters(w) == [], "no process starts entries")
    rented = [one for one in w.creates("vast") if one["status"] == 200]
    assert len(rented) <= begun, (begun, said, rented)
    waiting = batch(w, "cutoff", "--offline")["waiting"]
    assert waiting == 3 - begun, (waiting, said)
    w.run("wait", "--batch", "cutoff", "--timeout", "5m")
    check_ran_once(w, "cutoff.ran", ["1", "2", "3"])
    w.run("down", "--all", "-y", "--force")


def kill_some(w, rng):
    """Kills passes, starters and keep, or an agent's processes on one machine."""
    victims = starters(w)
    if rng.random() < 0.3:
        victims += w.agents()
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def measured(w):
    """Says what gpuctl and the machines took, where the system lets us count it."""
    if not ProcessGroup.available():
        print("processor time and memory: not measured", flush=True)
        yield
        return
    begin, own = time.monotonic(), time.process_time()
    with ProcessGroup("machines", w.sim.pid) as machines, \
            ProcessGroup("laptop", os.getpid()) as laptop:
        yield
        for group, less in ((laptop, time.process_time() - own), (machines, 0)):
            print("%s: %.1f s of processor time in %.0f s, at most %.0f MB at once" % (
                group.name, group.cpu_s() - less, time.monotonic() - begin, group.peak_bytes / 1e6),
                flush=True)


def test_random_kills(w):
    with measured(w):
        random_kills(w)


def random_kills(w):
    runs, nodes = int(os.environ.get("BATCH_RUNS", "12")), int(os.environ.get("BATCH_NODES", "3"))
    seed = int(os.environ.get("BATCH_SEED", str(random.randrange(10_000))))
    print("BATCH_RUNS=%d BATCH_NODES=%d BATCH_SEED=%d" % (runs, nodes, seed), flush=True)
    rng = random.Random(seed)
    offers(w, nodes)
    cap = 2.0 * nodes
    submitting = w.start("submit", "-y", "--name", "soak", "--max-parallel", str(nodes),
                         "--max-cost", str(cap), *VAST, "--sweep", "v=" + ",".join(values(runs)),
                         *job(w, "soak.ran", "0.2"))
    assert submitting.stdout.readline() == b"soak-1\n"
    time.sleep(rng.uniform(0, 3))
    submitting.kill()
    submitting.communicate()
    # An entry whose offer was taken, by a launch that was killed as well, waits longer each time.
    end = time.monotonic() + 8 * DEADLINE_S + 5 * runs
    while not batch(w, "soak", "--offline")["over"]:
        assert time.monotonic() < end, batch(w, "soak")
        child = w.start(*(["keep"] if rng.random() < 0.2 else
                          ["queue", "--pass", "--patience", "10"]))
        time.sleep(rng.uniform(0.2, 4))
        if rng.random() < 0.5:
            child.kill()
            kill_some(w, rng)
        child.communicate(timeout=300)
        found = batch(w, "soak", "--offline")
        assert found["spent_usd"] + found["promised_usd"] <= cap + 1e-6, found
    eventually(lambda: not starters(w), "the last starters end")
    check_ran_once(w, "soak.ran", values(runs))
    assert most_at_once(w, "soak.ran") <= nodes
    assert batch(w, "soak")["done"] == runs, batch(w, "soak")
    w.run("down", "--all", "-y", "--force", code=None)
    for _ in range(3):
        w.advance(200)
        w.run("reap", "-y", code=None)
    assert w.alive() == [], w.alive()
    assert billed(w) <= cap + CENT / 2, (billed(w), cap)


if __name__ == "__main__":
    run_tests(globals())

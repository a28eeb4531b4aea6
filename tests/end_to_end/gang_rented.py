#!/usr/bin/env python3
"""A run on several rented machines: all of them or none, one bill. The real gpuctl, agents and ssh,
at simulated markets.

  gang_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import os
import random
import signal
import subprocess
import time

from rent_world import eventually, run_tests, write
from runs import SAVE, open_gate
from wishes import install

KILLS = 4
# Two regions of Lambda Cloud have an A10.
PAIR = ["--gpu", "A10"]


def run_file(w, run, nodes=2, **more):
    """Returns the path of a run file for several machines."""
    resources = {"nodes": nodes, **more.pop("resources", {})}
    path = os.path.join(w.dir, "gang-%s.yaml" % more.get("name", "pair"))
    write(path, json.dumps({"name": "pair", "resources": resources, "run": run, **more}))
    return path


def launch(w, run, *flags, code=0, nodes=2, **more):
    return w.run("launch", "-y", "--no-workdir", run_file(w, run, nodes, **more), *PAIR, *flags,
                 code=code)


def start(w, run, *flags, **more):
    return w.start("launch", "-y", "--no-workdir", run_file(w, run, **more), *PAIR, *flags)


def the_run(w):
    (run,) = w.json("ps", "-a")["runs"]
    return run


def check_given_back(w, child, said):
    """Expects that the launch ends, that nothing bills, and that the ledger says the same."""
    out, err = w.finish(child)
    assert child.returncode not in (0, None) and said in err, (child.returncode, out, err)
    assert w.alive() == [], w.alive()
    assert not [r for r in w.leases() if r["state"] in ("rented", "releasing")], w.leases()
    assert w.json("ps", "-a")["runs"] == []


def test_one_run_one_bill(w):
    path = run_file(w, "echo node $GPUCTL_NODE_RANK of $GPUCTL_NODES; mkdir -p out;"
                       "echo $GPUCTL_NODE_RANK > out/rank", artifacts=["out/*"])
    plan = w.json("launch", "--dry-run", "--no-workdir", path, *PAIR)["plan"]
    one = w.json("offers", "--provider", "lambda", "--gpu", "A10")["offers"][0]
    price = one["price_usd_per_hour"]
    assert plan["machines"] == 2 and plan["provider"] == "lambda", plan
    assert abs(plan["price_usd_per_hour"] - 2 * price) < 1e-9, plan
    text = w.run("launch", "--dry-run", "--no-workdir", path, *PAIR).stdout.decode()
    assert "machines  2 of A10:1 at lambda" in text and "for 2 machines" in text, text
    assert "no offers from vast: its machines have no private network" in text, text

    done = w.run("launch", "-y", "--no-workdir", path, *PAIR)
    assert done.stdout == b"node 0 of 2\n" and b" bill on, " in done.stderr, done
    books = w.alive()
    assert len(books) == 2 and len({b["region"] for b in books}) == 1, books
    run = the_run(w)
    leases = [run["lease"], *run["other_leases"]]
    assert sorted(l["instance_id"] for l in leases) == sorted(b["id"] for b in books), run
    limits = [l["cost_limit_usd"] for l in leases]
    assert abs(sum(limits) - plan["limits"]["cost_usd"]) < 1e-6 and limits[0] == limits[1], run
    (row,) = w.json("cost")["rows"]
    assert (row["key"], row["machines"]) == ("pair-1", 2), row
    shown = w.run("show", "pair-1").stdout.decode()
    assert "/h for 2 machines" in shown and "pair-1.node1" in shown, shown
    assert "$%.2f" % (2 * price) in w.run("ps", "-a").stdout.decode()

    # Nothing ends while results are there only; then each name ends both.
    kept = w.run("down", "-y", "pair-1", code=1)
    assert kept.stderr.count(b"stays, and bills on") == 2 and len(w.alive()) == 2, kept
    w.run("pull", "pair-1")
    for node, home in enumerate(("pair-1", "pair-1.node1")):
        with open(os.path.join(w.work, home, "out/rank"), encoding="utf-8") as file:
            assert file.read() == "%d\n" % node
    ended = w.json("down", "-y", "pair-1.node1")
    assert len(ended["instances"]) == 2 and [r["name"] for r in ended["runs"]] == ["pair-1"], ended
    assert w.alive() == []
    spent = sum(i["spent_high_usd"] for i in ended["instances"])
    assert abs(w.json("cost", "pair-1")["total"]["spent_high_usd"] - spent) < 1e-6
    assert w.run("rm", "pair-1").stdout.count(b"was not there") == 2


def test_at_digitalocean_too(w):
    w.add_services()
    done = w.run("launch", "-y", "--no-workdir", "--down", "--provider", "digitalocean", "--gpu",
                 "H100,H200,L40S,RTX-4000-Ada,RTX-6000-Ada", run_file(w, "echo $GPUCTL_NODES"))
    assert done.stdout == b"2\n", done
    books = [b for b in w.books() if b["service"] == "digitalocean"]
    assert len(books) == 2 and len({b["region"] for b in books}) == 1, books
    assert w.alive() == []


def test_down_brings_all_home_and_ends_both(w):
    done = launch(w, "mkdir out; echo $GPUCTL_NODE_RANK > out/rank", "--down",
                  artifacts=["out/*"])
    assert done.stderr.count(b" is gone; it cost ") == 2 and w.alive() == [], done
    for node, home in enumerate(("pair-1", "pair-1.node1")):
        with open(os.path.join(w.work, home, "out/rank"), encoding="utf-8") as file:
            assert file.read() == "%d\n" % node


def test_a_cost_is_that_of_all_machines(w):
    plan = w.json("launch", "--dry-run", "--no-workdir", run_file(w, "true"), *PAIR, "--cost", "3",
                  "--time", "10m")["plan"]
    assert plan["limits"]["cost_usd"] == 3, plan
    launch(w, "true", "--cost", "3", "--time", "10m")
    run = the_run(w)
    assert [l["cost_limit_usd"] for l in (run["lease"], *run["other_leases"])] == [1.5, 1.5], run
    w.run("down", "-y", "--all", "--force")  # an idle machine needs no cost for its start
    too_little = launch(w, "true", "--cost", "0.1", "--time", "10m", code=2)
    assert b"--cost" in too_little.stderr, too_little


def test_where_one_cannot_be_had_there_is_none(w):
    """Of two creates at the first offer one is refused; both machines are of the second offer."""
    w.sim.fault("lambda", "create", "out_of_stock", after=1)
    done = launch(w, "echo ran")
    assert done.stdout == b"ran\n" and b"giving " in done.stderr, done
    alive, gone = w.alive(), [b for b in w.books() if not b["alive"]]
    assert len(alive) == 2 and len(gone) == 1, w.books()
    assert {b["region"] for b in alive} != {gone[0]["region"]}, w.books()
    w.run("down", "-y", "--force", "pair-1")


def test_a_machine_of_no_use_takes_the_others_with_it(w):
    w.sim.fault("lambda", "create", "ssh_never", times=1)
    done = launch(w, "echo ran", "--ssh-within-s", "2")
    assert done.stdout == b"ran\n", done
    assert len(w.alive()) == 2 and len(w.books()) == 4, w.books()
    w.run("down", "-y", "--force", "pair-1")


def test_nothing_bills_where_no_offer_can_be_had(w):
    w.sim.fault("lambda", "create", "ssh_never", times=-1)
    done = launch(w, "true", "--ssh-within-s", "1", code=121)
    assert b"rent 2 machines together" in done.stderr and b"HINT: " in done.stderr, done
    assert w.alive() == [] and w.json("ps", "-a")["runs"] == []
    assert all(r["how_ended"] for r in w.leases()), w.leases()


def test_no_funds(w):
    w.sim.account(service="lambda", key="sim-lambda-key", quota=1)
    done = launch(w, "true", code=None)
    assert done.returncode not in (0, None) and b"lambda" in done.stderr, done
    assert w.alive() == []


def test_ctrl_c_while_they_are_made(w):
    held = w.sim.hold(service="lambda", route="create", nth_request=2, phase="after")
    child = start(w, "true")
    w.sim.wait_hold(held)
    child.send_signal(signal.SIGINT)
    w.sim.release(held)
    check_given_back(w, child, b"interrupted")


def test_ctrl_c_while_a_market_takes_its_time(w):
    """Lambda Cloud takes one launch in twelve seconds: what was not asked for yet is not."""
    w.env["GPUCTL_RATE_LIMITS"] = "on"
    child = start(w, "true", nodes=4)
    eventually(lambda: w.creates(), "the first one is asked for")
    child.send_signal(signal.SIGINT)
    check_given_back(w, child, b"interrupted")
    assert len(w.creates()) <= 2, w.creates()
    del w.env["GPUCTL_RATE_LIMITS"]


def test_ctrl_c_while_one_does_not_answer(w):
    w.sim.fault("lambda", "create", "ssh_never", after=1)
    child = start(w, "true", "--ssh-within-s", "300")
    eventually(lambda: len(w.alive()) == 2, "both were made")
    eventually(lambda: len([r for r in w.leases() if r["host"]]) == 2, "both have an address")
    child.send_signal(signal.SIGINT)
    check_given_back(w, child, b"interrupted")


def test_a_lost_answer_is_settled_before_others_are_rented(w):
    """The first create is done and its answer lost; the other machine is out of stock."""
    held = w.sim.hold(service="lambda", route="create", nth_request=1, phase="after")
    w.sim.fault("lambda", "create", "out_of_stock", after=1, times=1)
    child = start(w, "echo ran")
    w.sim.wait_hold(held)
    w.sim.fault("lambda", "list", "503", times=2)
    w.sim.release(held, drop=True)
    out, err = w.finish(child)
    assert (child.returncode, out) == (0, b"ran\n"), err
    # What was lost was found and given back, so that there are never three.
    assert len(w.alive()) == 2 and len(w.books()) == 3, w.books()
    assert sorted(r["state"] for r in w.leases()) == ["not_created", "released", "rented", "rented"]
    w.run("down", "-y", "--force", "pair-1")


def test_an_interrupted_launch_says_what_may_bill(w):
    held = w.sim.hold(service="lambda", route="create", nth_request=1, phase="after")
    child = start(w, "true")
    w.sim.wait_hold(held)
    child.send_signal(signal.SIGINT)
    w.sim.fault("lambda", "list", "503", times=40)
    w.sim.release(held, drop=True)
    out, err = w.finish(child)
    label = next(r["label"] for r in w.leases() if r["state"] == "intent").encode()
    assert child.returncode == 130 and label in err and b"nothing bills" not in err, (out, err)
    w.sim.clear_faults()
    w.run("reap", "-y")
    assert w.alive() == []


def test_a_release_that_fails_is_told(w):
    """The key is revoked after the first machine was made."""
    held = w.sim.hold(service="lambda", route="create", nth_request=2, phase="before")
    child = start(w, "true")
    w.sim.wait_hold(held)
    eventually(lambda: len(w.alive()) == 1, "one was made")
    w.sim.fault("lambda", "*", "401", times=-1)
    w.sim.release(held)
    out, err = w.finish(child)
    (book,) = w.alive()
    assert child.returncode not in (0, None) and book["id"].encode() + b" at lambda may bill" in err, (out, err)
    w.sim.clear_faults()
    w.run("reap", "-y")
    assert w.alive() == []


def test_the_first_rental_of_all_is_found_again(w):
    """Both machines, and what a lost ledger finds again, have one owner's name."""
    launch(w, "sleep 600", "-d")
    state = w.env["GPUCTL_STATE_DIR"]
    for name in os.listdir(state):
        if name.startswith("ledger.db"):
            os.unlink(os.path.join(state, name))
    assert w.run("reap", "-y").stderr.count(b"is in the ledger again") == 2
    assert len(the_run(w)["other_leases"]) == 1
    w.run("down", "-y", "--force", "pair-1")
    assert w.alive() == []


def test_a_run_is_listed_with_all_its_machines(w):
    child = start(w, "sleep 30", "--down")
    for line in child.stderr:
        if b"launching pair-1" in line:
            child.kill()
            break
    child.communicate()
    assert len(the_run(w)["other_leases"]) == 1
    w.run("down", "-y", "--force", "pair-1")
    assert w.alive() == []


def test_a_machine_that_waits_for_the_other_is_not_idle(w):
    w.sim.fault("lambda", "create", "ssh_late", times=1, after=1, seconds=25)
    child = start(w, "echo ran", "--ssh-within-s", "300", "--idle", "10s")
    eventually(lambda: len(w.alive()) == 2, "both were made")
    eventually(lambda: [r for r in w.leases() if r["claimed_ms"]], "one is ready")
    ready = time.monotonic()
    eventually(lambda: time.monotonic() > ready + 13, "its idle limit is over")
    assert b"no leaks" in w.run("reap", "-y").stderr
    out, err = w.finish(child)
    assert (child.returncode, out) == (0, b"ran\n"), err
    w.run("down", "-y", "--force", "pair-1")


def test_a_machine_of_a_killed_launch_is_told(w):
    w.sim.fault("lambda", "create", "ssh_never", times=1, after=1)
    child = start(w, "true", "--ssh-within-s", "300")
    eventually(lambda: len(w.alive()) == 2, "both were made")
    eventually(lambda: [r for r in w.leases() if r["claimed_ms"]], "one is ready")
    child.kill()
    child.communicate()
    (ready,) = [r for r in w.leases() if r["claimed_ms"]]
    w.run("reap", "-y", code=None)
    said = w.run("ps", "-a").stderr
    assert b"gpuctl down lambda/" + ready["instance_id"].encode() + b" ends it" in said, said
    w.run("down", "-y", "--force", "lambda/" + ready["instance_id"])
    assert w.alive() == []


def test_an_interrupted_down_says_what_it_did_not_end(w):
    launch(w, "sleep 600", "-d")
    held = w.sim.hold(service="lambda", route="terminate", nth_request=1, phase="after")
    child = w.start("down", "-y", "--force", "pair-1")
    w.sim.wait_hold(held)
    w.sim.fault("lambda", "terminate", "ended_lag", lists=20)
    child.send_signal(signal.SIGINT)
    w.sim.release(held)
    _, err = w.finish(child)
    left = [r["instance_id"].encode() for r in w.leases() if r["state"] == "rented"]
    assert len(left) == 1 and left[0] + b" bills on" in err, err
    w.sim.clear_faults()
    w.run("down", "-y", "--force", "pair-1")
    assert w.alive() == []


def test_killed_at_any_moment(w):
    """A launch that is killed leaves nothing that reap does not find."""
    seed = int(os.environ.get("GPUCTL_TEST_SEED", time.time_ns() % 1000000))
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    for kill in range(KILLS):
        child = start(w, "sleep 30", name="k%d" % kill)
        if chance.random() < 0.5:
            eventually(lambda: w.creates() or child.poll() is not None, "it asks the market")
        time.sleep(chance.uniform(0, 6))
        child.kill()
        child.communicate()
        runs = [r for r in w.json("ps", "-a")["runs"] if r["name"] == "k%d-1" % kill]
        if runs:
            w.run("down", "-y", "--force", runs[0]["name"], code=None)
        w.run("reap", "-y", code=None)
        eventually(lambda: w.run("reap", "-y", code=None).returncode == 0, "nothing is left over")
        w.run("down", "--all", "-y", "--force", code=None)
        assert w.alive() == [], (kill, w.alive(), w.leases())


def test_idle_machines_are_used_again_together(w):
    launch(w, "true")
    first = {b["id"] for b in w.alive()}
    plan = w.run("launch", "--dry-run", "--no-workdir", run_file(w, "true"), *PAIR).stdout
    assert b"rented and idle: they bill now" in plan, plan
    again = launch(w, "echo again")
    assert again.stdout == b"again\n" and {b["id"] for b in w.alive()} == first, again
    leases = [the["lease"]["instance_id"] for the in w.json("ps", "-a")["runs"]]
    assert set(leases) <= first, leases
    # One alone is no place for both.
    w.run("down", "-y", "--force", "lambda/" + sorted(first)[0])
    third = launch(w, "echo third")
    assert third.stdout == b"third\n" and len(w.alive()) == 3, third
    # What is left over is used by a run on one machine.
    w.rent("--name", "single", *PAIR, "--", "true")
    assert len(w.alive()) == 3
    w.run("down", "--all", "-y", "--force")


def test_keep_brings_all_home_and_ends_both(w):
    install(w)
    gates = [os.path.join(w.dir, "gate%d" % node) for node in range(2)]
    for gate in gates:
        os.mkfifo(gate)
    done = launch(w, "cat %s/gate$GPUCTL_NODE_RANK; mkdir out; echo $GPUCTL_NODE_RANK > out/rank" %
                  w.dir, "-d", "--down", artifacts=["out/*"])
    assert done.stdout == b"pair-1\n", done
    w.run("keep")
    assert len(w.alive()) == 2
    for gate in gates:
        open_gate(gate)
    eventually(lambda: w.json("ps", "-a", "-u")["runs"][0]["status"] == "succeeded", "it is over")
    eventually(lambda: not w.run("keep", code=None).returncode and w.alive() == [], "both are gone")
    for node, home in enumerate(("pair-1", "pair-1.node1")):
        with open(os.path.join(w.work, home, "out/rank"), encoding="utf-8") as file:
            assert file.read() == "%d\n" % node


def test_extend_raises_the_limits_of_all(w):
    launch(w, "sleep 600", "-d", "--time", "20m")
    before = the_run(w)
    extended = w.json("extend", "pair-1", "1h", "-y")["extended"]
    after = the_run(w)
    for run in (before, after):
        run["limits"] = [l["cost_limit_usd"] for l in (run["lease"], *run["other_leases"])]
    assert after["limits"][0] == after["limits"][1] > before["limits"][0], (before, after)
    assert abs(sum(after["limits"]) - extended["cost_usd"]) < 1e-6, (after, extended)
    assert abs(sum(after["limits"]) - sum(before["limits"]) - extended["added_usd"]) < 1e-6
    w.run("down", "-y", "--force", "pair-1")


def test_resume_rents_as_many_again(w):
    say = "echo node $GPUCTL_NODE_RANK from ${GPUCTL_RESUME_FROM##*/}; cat $GPUCTL_RESUME_FROM/weights"
    launch(w, SAVE + "if [ -z $GPUCTL_RESUME_FROM ]; then [ $GPUCTL_NODE_RANK = 0 ] && save 3; sleep 1; exit 4;"
           "fi; " + say, code=4)
    w.run("pull", "pair-1")
    w.run("down", "-y", "pair-1")
    assert w.alive() == []
    done = w.run("resume", "-y", "pair-1")
    assert done.stdout == b"node 0 from .gpuctl-resume\n3\n" and len(w.alive()) == 2, done
    assert w.run("logs", "pair-2", "--node", "1").stdout == b"node 1 from .gpuctl-resume\n3\n"
    w.run("down", "-y", "--force", "pair-2")


def test_a_machine_that_is_gone_ends_the_run(w):
    launch(w, "sleep 600", "-d")
    other = the_run(w)["other_leases"][0]["instance_id"]
    w.sim.change("lambda", other, "end")
    eventually(lambda: w.json("ps", "-a", "-u")["runs"][0]["status"] in ("failed", "lost", "stopped"),
               "the run is over")
    assert len(w.alive()) == 1
    w.run("down", "-y", "--force", "pair-1")
    assert w.alive() == [] and w.json("instances")["instances"] == []


def test_what_is_refused(w):
    w.run("config", "set", "slurm.host", "nobody@127.0.0.1")
    for flags, words in ((["--provider", "vast"], b"no private network"),
                         (["--provider", "lambda,slurm"], b"slurm alone")):
        done = launch(w, "true", *flags, code=2)
        assert words in done.stderr and b"HINT: " in done.stderr, done
    w.run("config", "unset", "slurm.host")
    done = launch(w, "true", code=2, retry={"max": 1, "on": ["preempted"]})
    assert b"retry.on: preempted" in done.stderr, done
    assert w.creates() == []


if __name__ == "__main__":
    run_tests(globals())

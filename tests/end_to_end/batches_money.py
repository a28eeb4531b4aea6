#!/usr/bin/env python3
"""What launches and batches on rented machines cost: price limits, plans, packing, shares of a bill.

  batches_money.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import os
import re
import signal
import time

from batches import batch, check_ran_once, job, notes
from batches_rented import CENT, billed, gated, is_settled, json_plan, open_gate, values
from rent_world import eventually, run_tests

MODEL = ["--provider", "vast", "--gpu", "RTX-4090", "--time", "1h"]
ONE = [*MODEL, "--salvage", "10m", "--idle", "5m"]
EIGHT = ["--gpu", "H100:8", "--time", "1h", "--salvage", "10m", "--idle", "5m"]
CHEAPEST = 9100001  # of the simulator's RTX 4090 at Vast.ai


def plan_of(w, *args):
    return json.loads(w.run("launch", "--json", "--dry-run", "--no-workdir", *args).stdout)["plan"]


def only_offers(w, *prices):
    """Leaves the market exactly these RTX 4090."""
    w.empty("RTX 4090")
    for i, price in enumerate(prices):
        w.sim.offer(service="vast", like=CHEAPEST, item=9_300_000 + i, gpu="RTX 4090",
                    usd_per_hour=price)


def all_run(w, name, count):
    def they_do():
        w.run("queue", name)
        return is_settled(w, name) and batch(w, name, "--offline")["running"] == count
    eventually(they_do, "%d of %s run" % (count, name))


def test_launch_takes_nothing_much_dearer_than_it_showed(w):
    only_offers(w, 0.20, 0.24, 0.60, 4.0)
    plan = plan_of(w, *MODEL, "--", "true")
    first, limit = plan["price_usd_per_hour"], plan["max_price_usd_per_hour"]
    assert first <= limit <= first * 1.25 + CENT, plan
    text = w.run("launch", "--dry-run", "--no-workdir", *MODEL, "--", "true").stdout.decode()
    assert "$%.2f at most; --max-price allows more" % limit in text, text
    assert "or another that fits" in text and "$4." not in text, text
    # The two within the limit are gone by the time of the rent; the dear ones are not taken.
    w.sim.fault("vast", "create", "offer_gone", times=-1)
    done = w.rent(*MODEL, "--", "true", code=121)
    assert b"the next one is RTX-4090:1 at vast for $0.6" in done.stderr, done
    assert b"HINT: --max-price 0.6" in done.stderr, done
    assert len(w.creates("vast")) == 2 and w.books() == [], (w.creates("vast"), done)
    w.sim.clear_faults()
    # A limit that is typed is the limit.
    only_offers(w, 0.20, 0.24, 0.60, 4.0)
    assert plan_of(w, *MODEL, "--max-price", "1", "--", "true")["max_price_usd_per_hour"] == 1
    # Without a GPU, too.
    plan = plan_of(w, "--", "true")
    assert plan["max_price_usd_per_hour"] <= plan["price_usd_per_hour"] * 1.25 + CENT, plan


def test_the_same_batch_is_agreed_to_once(w):
    def submit(*more, code=0):
        return w.run("submit", "--name", "again", *ONE, *more, "--sweep", "v=1,2",
                     *gated(w, "again.ran", "again.go"), code=code)
    submit(code=2)
    submit("-y")
    done = submit()
    assert b"nothing is submitted again" in done.stderr, done
    # More money is another agreement; less is not.
    for more in (["--max-parallel", "2"], ["--max-price", "9"]):
        done = submit(*more, code=2)
        assert b"submit asks before it rents" in done.stderr, done
    submit("--max-cost", "9")
    done = submit("--max-cost", "19", code=2)
    assert b"submit asks before it rents" in done.stderr, done
    open_gate(w, "again.go")
    w.run("wait", "--batch", "again", "--timeout", "3m")
    check_ran_once(w, "again.ran", values(3)[1:])


def test_a_tight_cost_limit_is_told(w):
    args = [*ONE, "--max-parallel", "3", "--sweep", "v=1,2,3", "--no-workdir", "--name", "tight"]
    one = json_plan(w, *args, "--", "true")["each_cost_usd"]
    for times, said in ((1.5, b"at the highest price that pays for 1 machine at once, and 3 are asked"),
                        (2.5, b"that pays for 2 machines at once"), (3.01, None)):
        plan = b" ".join(w.run("submit", "--dry-run", *args, "--max-cost", "%.2f" % (one * times + CENT),
                               "--", "true").stdout.split())
        assert said in plan if said else b"at once, and" not in plan, (times, plan)


def test_ctrl_c_in_a_submit_says_what_goes_on(w):
    hold = w.sim.hold(service="vast", route="create", nth_request=1, phase="before")
    child = w.start("submit", "-y", "--name", "cut", *ONE, "--sweep", "v=1,2",
                    *job(w, "cut.ran", "0.1"))
    w.sim.wait_hold(hold)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 130 and out == b"cut-1\ncut-2\n", (child.returncode, out)
    assert b"interrupted, and cut is submitted: " in err, err
    assert b"gpuctl cancel cut calls off what waits" in err, err
    w.sim.release(hold)
    w.run("wait", "--batch", "cut", "--timeout", "3m")
    check_ran_once(w, "cut.ran", ["1", "2"])


def test_an_idle_machine_is_in_the_plan(w):
    w.rent("--name", "first", *ONE, "--", "true")
    (machine,) = w.alive()
    plan = plan_of(w, *ONE, "--", "true")
    assert plan["idle"] and plan["node"] == "vast/" + str(machine["id"]), plan
    text = w.run("launch", "--dry-run", "--no-workdir", *ONE, "--", "true").stdout
    assert b"rented and idle: it bills now, used or not" in text, text
    assert not plan_of(w, *ONE, "--fresh", "--", "true")["idle"]
    args = ["--name", "on-idle", *ONE, "--sweep", "v=1,2"]
    plan = json_plan(w, *args, "--no-workdir", "--", "true")
    assert plan["each"]["idle"], plan
    # At its own price one run costs less than at the limit: that is enough for --max-cost.
    limits = plan_of(w, *ONE, "--", "true")["limits"]
    cap = limits["cost_usd"] + CENT
    assert cap < plan["each_cost_usd"], (cap, plan)
    w.run("submit", "-y", "--max-cost", "%.2f" % (cap + CENT), *args, *job(w, "idle.ran", "0.1"))
    eventually(lambda: len(notes(w, "idle.ran")) >= 2, "one has run")
    assert [b["id"] for b in w.books()] == [machine["id"]], w.books()
    w.run("cancel", "--running", "on-idle", code=None)
    w.run("down", "--all", "-y", "--force")


def test_after_needs_no_offer_at_the_submit(w):
    w.run("submit", "--name", "prep", "--provider", "local", *gated(w, "prep.ran", "prep.go"))
    w.empty("RTX 4090")
    later = ["submit", "-y", "--name", "later", "--after", "prep", *ONE, *job(w, "later.ran", "0.1")]
    done = w.run(*later, code=121)
    assert b"so there is no price to agree to" in done.stderr, done
    assert b"HINT: --max-price USD" in done.stderr, done
    later[2:2] = ["--max-price", "0.5"]
    plan = json_plan(w, *later[2:])
    assert plan["each"]["provider"] is None and plan["max_price_usd_per_hour"] == 0.5, plan
    text = w.run("submit", "--dry-run", *later[2:]).stdout
    assert b"none is on offer now; one is looked for when the time comes" in text, text
    w.run(*later)
    assert batch(w, "later")["waiting"] == 1
    # What is rented now needs one.
    now = [word for word in later if word not in ("--after", "prep", "later")]
    now[now.index("--name") + 1:now.index("--name") + 1] = ["now"]
    assert b"nothing on offer is RTX-4090" in w.run(*now, code=121).stderr
    w.sim.stock(service="vast", item=CHEAPEST, count=1)
    open_gate(w, "prep.go")
    w.run("wait", "--batch", "prep", "--timeout", "1m")
    w.run("wait", "--batch", "later", "--timeout", "3m")
    check_ran_once(w, "later.ran", ["{v}"])
    w.run("down", "--all", "-y", "--force")


def test_queue_says_what_it_rents(w):
    w.run("submit", "--name", "first", "--provider", "local", *gated(w, "first.ran", "first.go"))
    w.run("submit", "-y", "--name", "told", "--after", "first", *ONE, *job(w, "told.ran", "0.1"))
    assert b"renting" not in w.run("queue").stderr
    open_gate(w, "first.go")
    told = re.compile(rb"renting RTX-4090 at vast for told-1, \$0\.\d\d/h")
    eventually(lambda: told.search(w.run("queue").stderr), "queue says that it rents")
    w.run("wait", "--batch", "told", "--timeout", "3m")
    assert b"renting" not in w.run("queue").stderr
    w.run("down", "--all", "-y", "--force")


def test_each_machine_is_told_once_with_its_price(w):
    """By submit, and by wait for what is rented later; the passes are processes of their own."""
    told = re.compile(rb"renting RTX-4090 at vast for (\S+), \$0\.\d\d/h")
    said = w.run("submit", "-y", "--name", "now", *ONE, *job(w, "now.ran", "0.1")).stderr
    assert told.findall(said) == [b"now-1"], said
    w.run("down", "--all", "-y", "--force")
    w.run("submit", "--name", "gate", "--provider", "local", *gated(w, "gate.ran", "gate.go"))
    w.run("submit", "-y", "--name", "later", "--after", "gate", *ONE, *job(w, "later.ran", "0.1"))
    waiting = w.start("wait", "--batch", "later", "--timeout", "3m")
    open_gate(w, "gate.go")
    err = w.finish(waiting)[1]
    assert told.findall(err) == [b"later-1"], err
    out = w.run("wait", "--batch", "later", "--json").stdout
    # It says what bills on, and the command that ends it.
    (bill,) = json.loads(out)["batches"][0]["bills"]
    (book,) = w.alive()
    assert bill["node"] == "vast/%s" % book["id"] and bill["usd_per_hour"] > 0, bill
    assert b"vast/%s bills on, $0." % book["id"].encode() in err, err
    assert b"HINT: gpuctl down --batch later ends it now" in err, err
    w.run("down", "--batch", "later", "-y", "--force")
    assert w.alive() == []
    done = w.run("wait", "--batch", "later", "--json")
    assert json.loads(done.stdout)["batches"][0]["bills"] == [], done


def test_down_of_a_batch_leaves_what_others_use(w):
    w.run("submit", "-y", "--name", "mine", *EIGHT, "--gpus", "2", "--sweep", "v=1,2",
          "--no-workdir", "--", "sleep", "3600")
    def both():
        names = [run["name"] for run in w.json("ps")["runs"] if run["status"] == "running"]
        return {"mine-1", "mine-2"} <= set(names)
    eventually(both, "both run")
    w.run("launch", "-d", "--no-workdir", "--name", "other", "--on", "mine-1", "--gpus", "1", "--",
          "sleep", "3600")
    refused = w.run("down", "mine", "-y", code=2)
    assert b"gpuctl down --batch mine ends its runs and machines" in refused.stderr, refused
    done = w.run("down", "--batch", "mine", "-y", "--force", code=1)
    assert done.stderr.count(b" stays: other-1 uses it now") == 1, done
    assert len(w.alive()) == 1
    w.run("stop", "other-1")
    w.run("down", "--batch", "mine", "-y", "--force")
    assert w.alive() == []
    w.run("down", "--batch", "nope", "-y", code=2)
    w.run("down", "--batch", "mine", "--all", "-y", code=2)


def test_the_plan_of_a_batch(w):
    sweep = ["--sweep", "v=" + ",".join(values(10))]
    args = ["--name", "plan", *EIGHT, "--gpus", "2", "--max-failures", "3", *sweep, "--no-workdir",
            "--", "true"]
    text = w.run("submit", "--dry-run", *args).stdout.decode()
    lines = text.splitlines()
    assert lines[0] == "batch     plan: 10 runs, at most 4 at once", text
    assert "          and 2 more" in lines, text
    assert "          no more start after 3 failed runs" in lines, text
    assert "sharing   4 runs at once on each machine of 8 GPUs, each with 2 GPUs of its own" in lines
    assert "while results wait for you; --salvage shortens that" in text, text
    assert "to start (up to 20m 00s), " in text and " idle once they are home: $" in text, text
    assert not [line for line in lines if line.strip().startswith("run ")], text
    plan = json_plan(w, *args)
    assert plan["each"]["name"] is None and len(plan["entries"]) == 10, plan
    assert (plan["runs_on_one_machine"], plan["max_failures"]) == (4, 3), plan
    assert plan["each"]["limits"]["cost_usd"] == plan["each_cost_usd"], plan
    price = plan["max_price_usd_per_hour"]
    rounds = round(plan["cost_usd"] / plan["each_cost_usd"])
    assert abs(plan["salvage_cost_usd"] - rounds * price * 600 / 3600) < CENT, plan
    # Runs without parameters are named as well.
    assert "          solo-1" in w.run("submit", "--dry-run", "--name", "solo", *ONE, "--no-workdir",
                                       "--", "true").stdout.decode()
    assert w.creates() == []


def test_results_that_nobody_names(w):
    lost = b"results   none are named: files that the job makes are lost with the machine"
    done = w.run("launch", "--dry-run", "--no-workdir", *ONE, "--", "true")
    assert lost in done.stdout, done
    assert plan_of(w, *ONE, "--", "true")["names_results"] is False
    # --down brings all at the end.
    for more in (["--checkpoints", "out/*"], ["--artifacts", "out/**"], ["--down"]):
        assert plan_of(w, *ONE, *more, "--", "true")["names_results"] is True, more
    # What only this process would do is in the plan.
    done = w.run("launch", "--dry-run", "--no-workdir", *ONE, "--down", "--pull", "--", "true")
    assert b"here      --down and --pull need this gpuctl to live" in done.stdout, done
    assert plan_of(w, *ONE, "--down", "--", "true")["needs_this_gpuctl"] == ["--down"]
    assert plan_of(w, *ONE, "-d", "--pull", "--", "true")["needs_this_gpuctl"] == []
    # The same without a question, also for a run on a machine that is rented already.
    done = w.rent("--name", "lost-1", *ONE, "--", "true")
    assert done.stderr.count(lost) == 1, done
    done = w.run("launch", "--on", "lost-1", "--no-workdir", "--", "true")
    assert done.stderr.count(lost) == 1, done
    done = w.rent("--name", "named-1", *ONE, "--artifacts", "*.txt", "--", "true")
    assert lost not in done.stderr, done
    w.run("down", "--all", "-y", "--force")
    # Nothing is lost on a machine of one's own.
    done = w.run("launch", "--provider", "local", "--no-workdir", "--", "true",
                 GPUCTL_NODE_ROOT=w.root)
    assert lost not in done.stderr, done


def test_submit_says_what_it_costs_also_without_a_question(w):
    done = w.run("submit", "-y", "--name", "terms", *ONE, "--sweep", "v=1,2",
                 *job(w, "terms.ran", "0.1"))
    lines = done.stderr.decode().splitlines()
    assert any(line.startswith("price     $") and "per hour at most" in line for line in lines), lines
    assert any(line.startswith("cost      $") and "at most in all" in line for line in lines), lines
    assert any(line.startswith("machine   RTX-4090") for line in lines), lines
    assert len([line for line in lines if line.startswith("results   none are named")]) == 1, lines
    w.run("wait", "--batch", "terms", "--timeout", "3m")
    w.run("down", "--all", "-y", "--force")
    # A market whose machines cannot end their own bill.
    done = w.run("submit", "-y", "--name", "endless", "--provider", "lambda", "--gpu", "H100",
                 "--time", "1h", "--artifacts", "*.txt", *job(w, "endless.ran", "0.1"))
    assert b"lambda gives machines no key to end their own bill" in done.stderr, done
    assert b"results   none" not in done.stderr, done
    w.run("wait", "--batch", "endless", "--timeout", "3m")
    w.run("down", "--all", "-y", "--force")


def test_what_was_submitted_before(w):
    args = ["--name", "again", *ONE, "--sweep", "v=1,2"]
    w.run("submit", "-y", *args, *job(w, "again.ran", "0.1"))
    w.run("wait", "--batch", "again", "--timeout", "3m")
    w.run("down", "--all", "-y", "--force")
    # Nothing is left to do: no question, also while nothing is on offer.
    w.empty("RTX 4090")
    before = len(w.creates())
    done = w.run("submit", *args, *job(w, "again.ran", "0.1"))
    assert b"was submitted before and is over: 2 done; nothing is left to do" in done.stderr, done
    assert done.stdout == b"again-1\nagain-2\n", done
    done = w.run("submit", "--json", *args, *job(w, "again.ran", "0.1"))
    assert json.loads(done.stdout)["submitted"]["submitted_before"], done
    # Another price limit is no other content.
    w.run("submit", "--max-price", "3", *args, *job(w, "again.ran", "0.1"))
    # Other content is refused before anything is asked.
    done = w.run("submit", *args, *job(w, "other.ran", "0.1"), code=2)
    assert b"there is a batch again already, and it runs something else" in done.stderr, done
    assert b"add -y" not in done.stderr, done
    assert len(w.creates()) == before
    check_ran_once(w, "again.ran", ["1", "2"])


def test_a_later_submit_may_pay_more(w):
    only_offers(w, 0.20)
    args = ["--name", "dear", *ONE, "--sweep", "v=1,2", *gated(w, "dear.ran", "go")]
    w.run("submit", "-y", *args)
    eventually(lambda: len(notes(w, "dear.ran")) == 1, "one runs")
    w.run("down", "--all", "-y", "--force")
    w.sim.price(service="vast", item=9_300_000, usd_per_hour=0.60)

    def told():
        w.run("queue")
        why = batch(w, "dear", "--offline")["entries"][1]["why"] or ""
        return "nearest: RTX-4090:1 at vast, 0.6" in why and "with --max-price allows more" in why

    eventually(told, "the next price is told")
    assert w.alive() == [] and len(notes(w, "dear.ran")) == 1, w.books()
    w.run("submit", "-y", "--max-price", "1", *args)
    w.advance(1200)
    open_gate(w, "go")
    w.run("wait", "--batch", "dear", "--timeout", "3m", code=None)
    found = batch(w, "dear")
    assert (found["done"], found["cancelled"]) == (1, 1), found
    w.run("down", "--all", "-y", "--force")


def test_a_machine_that_fails_its_check_is_not_answered_with_a_price(w):
    only_offers(w, 0.20)
    w.sim.fault("vast", "create", "cuda_broken", times=-1, error=999)
    w.run("submit", "-y", "--name", "broken", *ONE, "--no-workdir", "--", "true")

    def told():
        w.run("queue")
        why = batch(w, "broken", "--offline")["entries"][0]["why"] or ""
        return "CUDA does not work there: cuInit: error 999" in why and why

    eventually(told, "why it waits is told")
    assert "--max-price" not in told() and "its place is left out for a while" in told(), told()
    w.run("cancel", "broken")
    w.sim.clear_faults()
    w.sim.fault("vast", "create", "cuda_broken", error=999)
    only_offers(w, 0.20, 0.60)
    w.run("offers", "--retry-places", code=None)
    done = w.rent(*ONE, "--", "true", code=121)
    assert b"CUDA does not work there" in done.stderr and b"--max-price" not in done.stderr.split(b"HINT: ")[1], done
    assert b"HINT: its place is left out for a while" in done.stderr, done
    assert w.alive() == [], w.books()
    w.sim.clear_faults()


def test_down_names_what_is_lost_before_it_ends_the_machine(w):
    """With -y, of a batch as of a run."""
    only_offers(w, 0.20)
    make = ["--no-workdir", "--", "bash", "-c", "echo words > result.txt"]
    w.run("submit", "-y", "--name", "lossy", *ONE, "--sweep", "v=1,2", *make)
    w.run("wait", "--batch", "lossy", "--timeout", "3m")
    for args in (["--batch", "lossy"], ["lone-1"]):
        if args == ["lone-1"]:
            w.rent("--name", "lone-1", *ONE, *make[1:])
        done = w.run("down", "-y", *args)
        lost, gone = done.stderr.find(b"lost with the machine: "), done.stderr.find(b" is gone; it cost")
        assert 0 <= lost < gone, done
        name = b"lossy-1" if args[0] == "--batch" else b"lone-1"
        assert name in done.stderr[lost:gone], done
        assert w.alive() == [], w.books()
        # As quiet as it may be, that is told.
    w.rent("--name", "lone-2", *ONE, *make[1:])
    done = w.run("down", "-yq", "lone-2")
    assert done.stdout == b"" and b"lost with the machine: lone-2" in done.stderr, done
    assert b"is gone" not in done.stderr, done


def test_a_batch_packs_onto_the_machine_of_another(w):
    w.run("submit", "-y", "--name", "wide", *EIGHT, "--gpus", "4", *gated(w, "wide.ran", "go"))
    all_run(w, "wide", 1)
    # Two GPUs each: two of three fit beside the other batch.
    w.run("submit", "-y", "--name", "small", *EIGHT, "--gpus", "2", "--max-parallel", "2",
          "--sweep", "v=1,2", *gated(w, "small.ran", "go"))
    all_run(w, "small", 2)
    assert len(w.alive()) == 1, w.books()
    assert len({run["node"] for run in w.json("ps")["runs"]}) == 1
    gpus = [gpu for run in w.json("ps")["runs"] for gpu in run["gpu_ids"]]
    assert len(gpus) == len(set(gpus)) == 8, gpus
    # Each counts what the machine may still cost.
    limit = w.leases()[-1]["cost_usd"]
    for name in ("wide", "small"):
        found = batch(w, name, "--offline")
        assert limit - 1 < found["promised_usd"] + billed(w), (found, limit)
    time.sleep(1)
    open_gate(w, "go")
    for name in ("wide", "small"):
        w.run("wait", "--batch", name, "--timeout", "3m")
    w.run("down", "--all", "-y", "--force")
    # All parts together are the bill, to the cent.
    report = w.json("cost")
    rows = {row["key"]: row["spent_high_usd"] for row in report["rows"]}
    assert set(rows) <= {"wide-1", "small-1", "small-2", "(idle)"} and len(rows) >= 3, rows
    assert abs(sum(rows.values()) - report["total"]["spent_high_usd"]) < 1e-6, report
    assert abs(sum(rows.values()) - billed(w)) < 0.5, (rows, billed(w))
    # Half of the GPUs, half of the cost while all ran; the newest does not pay for all.
    assert rows["small-1"] < rows["wide-1"] and rows["small-2"] < rows["wide-1"], rows
    by_batch = {row["key"]: row["spent_high_usd"] for row in w.json("cost", "--by", "batch")["rows"]}
    assert set(by_batch) == {"wide", "small"}, by_batch
    for name, usd in by_batch.items():
        assert abs(batch(w, name, "--offline")["spent_usd"] - usd) < 1e-6, (name, usd)
        (row,) = w.json("cost", name)["rows"]
        assert (row["key"], round(row["spent_high_usd"] - usd, 6)) == (name, 0), row
    two = w.json("cost", "small-1", "small-2")
    assert {row["key"] for row in two["rows"]} == {"small-1", "small-2"}, two
    assert abs(two["total"]["spent_high_usd"] - rows["small-1"] - rows["small-2"]) < 1e-6, two
    assert two["total"]["machines"] == 1, two
    done = w.run("cost", "small", "wide-1", code=2)
    assert b"not both at once" in done.stderr, done
    # The beginning of a run's name is enough, as everywhere; of a batch it is not.
    (row,) = w.json("cost", "smal")["rows"]
    assert row["key"] in ("small-1", "small-2"), row
    assert b"no run \"smol\"" in w.run("cost", "smol", code=None).stderr


def test_packing_stays_within_both_cost_limits(w):
    gate = gated(w, "first.ran", "go")
    cap = json_plan(w, "--name", "first", *EIGHT, "--gpus", "4", *gate)["cost_usd"]
    w.run("submit", "-y", "--name", "first", "--max-cost", "%.2f" % (cap + CENT), *EIGHT, "--gpus",
          "4", *gate)
    all_run(w, "first", 1)
    w.advance(1800)  # so that the second one raises the machine's limit
    w.run("submit", "-y", "--name", "second", *EIGHT[:2], "--time", "4h", "--gpus", "4", "--max-price", "40",
          *gated(w, "second.ran", "go"))
    all_run(w, "second", 1)
    assert len(w.alive()) == 2, "the first batch could not pay for more"
    found = batch(w, "first", "--offline")
    assert found["spent_usd"] + found["promised_usd"] <= cap + 2 * CENT, found
    open_gate(w, "go")
    for name in ("first", "second"):
        w.run("wait", "--batch", name, "--timeout", "3m")
    w.run("down", "--all", "-y", "--force")


def test_submit_on_a_machine(w):
    w.rent("-d", "--name", "host", "--gpus", "1", *EIGHT, "--", "sleep", "600")
    done = w.run("submit", "--on", "host-1", "--cost", "3", "--", "true", code=2)
    assert b"--cost does not go with it" in done.stderr, done
    node = next(run["node"] for run in w.json("ps")["runs"])
    limit = w.leases()[0]["cost_usd"]
    done = w.run("submit", "--name", "beside", "--on", "host-1", "--gpus", "2", "--sweep", "v=1,2,3",
                 *job(w, "beside.ran", "0.1"))
    w.run("wait", "--batch", "beside", "--timeout", "2m")
    check_ran_once(w, "beside.ran", ["1", "2", "3"])
    assert {entry["node"] for entry in batch(w, "beside")["entries"]} == {node}
    assert len(w.creates()) == 1 and w.leases()[0]["cost_usd"] == limit, w.leases()
    # By the machine's name, and once it is gone.
    w.run("submit", "--name", "named", "--on", node, "--gpus", "1", *job(w, "named.ran", "0.1"))
    w.run("wait", "--batch", "named", "--timeout", "2m")
    w.run("down", "--all", "-y", "--force")
    w.run("submit", "--name", "gone", "--on", node, "--", "true", code=1)


def test_no_more_start_after_so_many_failures(w):
    fails = ["--no-workdir", "--", "bash", "-c", "exit 3"]
    w.run("submit", "-y", "--name", "bad", *ONE, "--max-failures", "2", "--sweep",
          "v=" + ",".join(values(5)), *fails)
    done = w.run("wait", "--batch", "bad", "--timeout", "3m", code=3)
    assert b"bad: no more of it start: 2 runs failed (--max-failures 2)" in done.stderr, done
    found = batch(w, "bad", "--offline")
    assert (found["failed"], found["cancelled"], found["over"]) == (2, 3, True), found
    assert found["gave_up"] == "2 runs failed (--max-failures 2)", found
    done = w.run("queue", "bad", "--offline")
    assert b"no more of it start: 2 runs failed (--max-failures 2)" in done.stderr, done
    w.run("down", "--all", "-y", "--force")


def at_next_time(w, name):
    """Moves all clocks to the next time of a schedule."""
    due = batch(w, name, "--offline")["schedule"]["next"]
    seconds = time.mktime(time.strptime(due[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    w.advance(max(0, seconds + 30 - (time.time() + w.ahead_s)))


def passes_until(w, name, done):
    def enough():
        w.run("keep", code=None)
        return batch(w, name, "--offline")["done"] == done
    eventually(enough, "%d of %s are done" % (done, name))


def test_a_schedule_rents_each_time(w):
    w.env["TZ"] = "UTC"
    time.tzset()
    hourly = ["--name", "hourly", "--every", "@hourly", *ONE]
    done = w.run("submit", "-y", *hourly, *job(w, "hourly.ran", "0.1"), code=2)
    assert b"--max-cost" in done.stderr, done
    plan = json_plan(w, *hourly, "--max-cost", "9", *job(w, "hourly.ran", "0.1"))
    assert plan["cost_usd"] == 9 and plan["entries"] == [], plan
    each = plan["each_cost_usd"]
    cap = round(2.4 * each, 2)
    # Nothing is rented before its time, and nothing needs to be on offer.
    w.empty("RTX 4090")
    w.run("submit", "-y", *hourly, "--max-price", "0.5", "--max-cost", str(cap),
          *job(w, "hourly.ran", "0.1"))
    w.run("keep", code=None)
    assert w.creates() == [], w.creates()
    for item in (9100001, 9100002, 9100003):
        w.sim.stock(service="vast", item=item, count=1)
    at_next_time(w, "hourly")
    passes_until(w, "hourly", 1)
    assert len([r for r in w.creates() if r["instance"]]) == 1, w.creates()
    # An hour later the machine is gone: its results are at home, and it was idle for long.
    at_next_time(w, "hourly")
    w.run("reap", "-y", code=None)
    passes_until(w, "hourly", 2)
    entries = batch(w, "hourly", "--offline")["entries"]
    assert [entry["entry"] for entry in entries] == ["hourly-1", "hourly-2"], entries
    found = batch(w, "hourly")
    assert found["spent_usd"] + found["promised_usd"] <= cap, found
    w.run("cancel", "hourly")
    w.run("down", "--all", "-y", "--force")
    assert billed(w) <= cap + CENT, (billed(w), cap)


def test_a_schedule_stops_at_its_cost_limit(w):
    w.env["TZ"] = "UTC"
    time.tzset()
    hourly = ["--name", "capped", "--every", "@hourly", *ONE]
    each = json_plan(w, *hourly, "--max-cost", "9", "--no-workdir", "--", "true")["each_cost_usd"]
    cap = round(1.1 * each, 2)
    w.run("submit", "-y", *hourly, "--max-cost", str(cap), *job(w, "capped.ran", "0.1"))
    at_next_time(w, "capped")
    passes_until(w, "capped", 1)
    w.advance(1200)  # it costs something
    w.run("down", "--all", "-y", "--force")
    at_next_time(w, "capped")
    w.run("keep", code=None)
    found = batch(w, "capped")
    assert (found["done"], found["waiting"]) == (1, 1), found
    assert "--max-cost" in found["entries"][1]["why"], found
    assert w.alive() == [] and found["spent_usd"] <= cap, found
    w.run("cancel", "capped")


def test_a_schedule_gives_up_after_failures(w):
    w.env["TZ"] = "UTC"
    time.tzset()
    w.run("submit", "-y", "--name", "failing", "--every", "@hourly", "--max-failures", "1",
          "--max-cost", "20", *ONE, "--no-workdir", "--", "bash", "-c", "exit 3")
    at_next_time(w, "failing")

    def failed():
        w.run("keep", code=None)
        return batch(w, "failing", "--offline")["failed"] == 1

    eventually(failed, "it failed")
    w.advance(7200)
    w.run("keep", code=None)
    found = batch(w, "failing", "--offline")
    assert found["over"] and len(found["entries"]) == 1 and found["schedule"]["next"] is None, found
    assert b"no more of it start" in w.run("queue", "failing", "--offline").stderr
    w.run("down", "--all", "-y", "--force")


if __name__ == "__main__":
    run_tests(globals())

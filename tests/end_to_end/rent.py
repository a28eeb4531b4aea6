#!/usr/bin/env python3
"""launch on rented machines: the real gpuctl, agent and ssh, at simulated markets.

  rent.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time

from runs import Terminal
from rent_world import MORE_SERVICES, SERVICES, VAST_OFFERS, eventually, open_gate, run_tests, write

# "RTX 4090" finds these, cheapest first: Vast.ai's two, then Runpod's.
GPU = ["--gpu", "RTX-4090"]


def check_a_run(w, service, quantum_s):
    name = "train-%s-1" % service
    done = w.run("launch", "-y", "--provider", service, "--name", name, *w.project(), "--",
                 "./train.sh")
    assert b"training on 1000 lines" in done.stdout, done
    assert b"note of the work directory" in done.stdout, done
    run = next(r for r in w.json("ps", "-a")["runs"] if r["name"] == name)
    price = run["lease"]["usd_per_hour"]
    assert run["status"] == "succeeded" and run["step"] == 2 and price > 0, run
    most = price * max(1, 2 * quantum_s / 3600)
    assert 0 <= run["spent_low_usd"] <= run["spent_high_usd"] < most, run
    assert run["spent_high_usd"] > 0, run
    assert ("$%.2f" % price).encode() in w.run("ps", "-a").stdout

    pulled = w.json("pull", name)
    assert [(c["path"], c["verified"]) for c in pulled["checkpoints"]] == [
        ("./%s/step-2" % name, True)], pulled
    assert {f["path"] for f in pulled["files"]} == {"work/out/result.json", "work/out/sums"}, pulled
    w.check_sums(os.path.join(w.work, name))

    ended = w.json("down", "-y", name)["instances"][0]
    (book,) = [b for b in w.books() if b["service"] == service]
    (row,) = [r for r in w.leases() if r["provider"] == service]
    assert not book["alive"] and book["ended_by"] == w.account(service), book
    assert row["instance_id"] == book["id"] == ended["instance_id"], (row, book, ended)
    assert (row["state"], row["how_ended"]) == ("released", "released"), row
    quantum_usd = price * quantum_s / 3600
    assert ended["spent_low_usd"] - quantum_usd <= book["billed_usd"], (ended, book)
    assert book["billed_usd"] <= ended["spent_high_usd"] + quantum_usd, (ended, book)
    eventually(lambda: w.processes() == [], "the end of the machine's processes")
    for by, key in (("run", name), ("provider", service)):
        (cost,) = [r for r in w.json("cost", "--by", by)["rows"] if r["key"] == key]
        assert abs(cost["spent_high_usd"] - ended["spent_high_usd"]) < 1e-9, (cost, ended)
        assert abs(cost["spent_low_usd"] - ended["spent_low_usd"]) < 1e-9, (cost, ended)
    # A second time is no error and sends no request.
    assert b"nothing is rented for that" in w.run("down", "-y", name).stderr


def test_a_run_at_each_market(w):
    w.add_services()
    for service in SERVICES + MORE_SERVICES:
        check_a_run(w, service, {"lambda": 60, "digitalocean": 3600, "shadeform": 3600,
                                 "huggingface": 60}.get(service, 1))


def test_each_bad_offer_is_followed_by_the_next(w):
    """Every failure of a market, one after the other, cheapest first. A launch pays for two machines
    of no use."""
    w.sim.fault("vast", "create", "out_of_stock")
    w.sim.fault("vast", "create", "offer_gone", after=1)
    w.sim.fault("runpod", "create", "wrong_gpu", gpu="NVIDIA GeForce GTX 1080")
    w.sim.fault("runpod", "create", "cuda_broken", after=1, error=999)
    w.sim.fault("runpod", "create", "boot_fails", after=2)
    w.sim.fault("lambda", "create", "ssh_never")
    wanted = ["--gpu", "RTX-4090,A10", "--cost", "30", "--max-price", "5", "--ssh-within-s", "2", "--", "echo", "it runs"]
    first = w.rent(*wanted, code=121)
    assert b"2 machines were paid for, $0." in first.stderr and b"HINT: " in first.stderr, first
    assert len(w.books()) == 2
    # Vast's offers are as they were when it is asked again.
    w.empty("RTX 4090", "vast")
    second = w.rent(*wanted, code=121)
    assert b"2 machines were paid for" in second.stderr and len(w.books()) == 4, second
    done = w.rent(*wanted)
    assert done.stdout == b"it runs\n", done
    said, at = first.stderr + second.stderr + done.stderr, 0
    for reason in (b"no_such_ask", b"no_such_ask", b"its offer promised 1 x RTX-4090, there is 1 x "
                   b"GTX-1080", b"CUDA does not work there: cuInit: error 999",
                   b"it will not come up: ERROR", b"by ssh:", b"is ready"):
        found = said.find(reason, at)
        assert found >= 0, (reason, said.decode())
        at = found + len(reason)
    books = w.books()
    assert [b["service"] for b in books] == ["runpod"] * 3 + ["lambda"] * 2, books
    assert [b["alive"] for b in books] == [False] * 4 + [True], books
    assert all(b["ended_by"] == w.account(b["service"]) for b in books[:4]), books
    states = {row["instance_id"]: (row["state"], row["how_ended"]) for row in w.leases()}
    assert [states[b["id"]] for b in books[:4]] == [("released", "of no use")] * 4, states
    assert states[books[4]["id"]][0] == "rented", states
    places = {"runpod": "runpod/%(region)s/%(product)s", "lambda": "lambda/%(product)s/%(region)s"}
    bad = sorted(places[b["service"]] % b for b in books[:4])
    assert sorted(w.excluded()) == bad, (w.excluded(), bad)
    # A market that does not name machines has others in the same place.
    for place, seconds in w.excluded_for_s().items():
        hours = 2 if place.startswith("runpod/") else 24
        assert hours - 0.5 < seconds / 3600 <= hours, (place, seconds)

    # A bad place is left out for a while.
    w.sim.clear_faults()
    before = len(w.creates())
    done = w.rent("--fresh", "--provider", "runpod", *GPU, "--", "true", code=121)
    assert b"bad machine lately" in done.stderr and b"HINT:" in done.stderr, done
    assert len(w.creates()) == before
    # It is not offered, and the plan does not begin with it.
    offers = w.json("offers", "--explain", *GPU)
    places = {offer["place"] for offer in offers["offers"]}
    assert not places & set(bad), (places, bad)
    assert set(bad) & {offer["place"] for offer in offers["left_out"]}, offers["left_out"]
    done = w.run("offers", "--provider", "runpod", *GPU, "--retry-places")
    assert b"4 places are tried again" in done.stderr, done
    assert w.excluded() == []


def error_of(w, *args, code, **env):
    """Returns stderr of a launch that fails; its JSON must say the same."""
    done = w.rent(*args, "--", "true", code=code, **env)
    error = json.loads(w.rent(*args, "--json", "--", "true", code=code, **env).stdout)["error"]
    assert error["exit_code"] == code and error["source"] == "gpuctl", error
    assert error["message"].encode() in done.stderr, (error, done)
    assert error["hint"] and error["hint"].encode() in done.stderr, (error, done)
    return error["message"]


def test_offers_are_those_that_a_launch_would_take(w):
    whole = w.json("offers", *GPU)
    assert whole["defaults"] == [] and len({one["provider"] for one in whole["offers"]}) > 1, whole
    w.run("config", "set", "max_price", "0.31")
    w.run("config", "set", "provider", "vast")
    cut = w.json("offers", *GPU)
    assert cut["offers"] == [one for one in whole["offers"] if one["provider"] == "vast" and
                             one["price_usd_per_hour"] <= 0.31] != [], cut
    assert [one["key"] for one in cut["defaults"]] == ["resources.provider", "resources.max_price"], cut
    said = w.run("offers", *GPU).stderr
    assert b"only what launch would take: resources.max_price 0.31, from " in said, said
    own = w.json("offers", "--max-price", "9", "--provider", "runpod", *GPU)
    assert own["defaults"] == [] and {one["provider"] for one in own["offers"]} == {"runpod"}, own
    # A default that is no market leaves all of them.
    w.run("config", "set", "provider", "local")
    w.run("config", "unset", "max_price")
    assert w.json("offers", *GPU) == whole
    # Without --gpu, how to see machines with more of them.
    assert b"gpuctl offers --gpu H100:8" in w.run("offers", "--max-price", "9").stderr


def test_nothing_in_stock(w):
    w.empty("RTX 4090")
    message = error_of(w, *GPU, code=121)
    # The nearest offers, with prices.
    assert "nearest: RTX-3090:1 at vast, 0.15 USD/h" in message and "A10:1 at lambda" in message
    assert w.creates() == []


def test_a_key_that_is_refused(w):
    message = error_of(w, "--provider", "runpod", code=120, GPUCTL_RUNPOD_API_KEY="wrong")
    assert "runpod" in message and "401" in message and "wrong" not in message, message
    # The other markets are still asked.
    w.empty("RTX 4090", "vast")
    done = w.rent("--gpu", "RTX-4090,A10", "--", "echo", "there", GPUCTL_RUNPOD_API_KEY="wrong")
    assert done.stdout == b"there\n" and [b["service"] for b in w.alive()] == ["lambda"], done


def test_a_key_of_another_account(w):
    """What it shows and does not show says nothing about our machines."""
    for service in SERVICES:
        w.sim.account(service=service, key="theirs", balance_usd=100)
    for service in SERVICES:
        name = "ours-" + service
        w.rent("--provider", service, "--gpu", "RTX-4090,A10", "-d", "--name", name, "--", "sleep",
               "600")
    theirs = {"GPUCTL_%s_API_KEY" % service.upper(): "theirs" for service in SERVICES}
    for verb in (["instances"], ["reap", "-y", "--no-wait"], ["down", "--all", "-y"]):
        done = w.run(*verb, code=120, **theirs)
        for service in SERVICES:
            assert b"was rented with another key of " + service.encode() in done.stderr, done
    shown = w.json("instances", code=120, **theirs)
    assert sorted(market["provider"] for market in shown["unknown"]) == sorted(SERVICES), shown
    assert len(w.alive()) == 3 and [r["state"] for r in w.leases()] == ["rented"] * 3
    # With our own keys nothing is a leak, and everything can be ended.
    assert w.json("reap", "-y", "--no-wait")["ended"] == []
    assert len(w.alive()) == 3
    w.run("down", "--all", "-y")
    assert w.alive() == []


def test_a_ledger_that_was_lost(w):
    """Its machines are asked, and come back into the new one with their runs."""
    w.rent("--provider", "vast", *GPU, "-d", "--name", "kept", "--", "sleep", "600")
    (book,) = w.alive()
    state = w.env["GPUCTL_STATE_DIR"]
    ledger = os.path.join(state, "ledger.db")

    def lose():
        for name in os.listdir(state):
            if name.startswith("ledger.db"):
                os.unlink(os.path.join(state, name))

    def spoil_a_page():
        with open(ledger, "r+b") as file:
            file.seek(4096 * 2)
            file.write(b"\xff" * 8192)

    def spoil_all():
        with open(ledger, "r+b") as file:
            file.write(b"no database" * 100)

    for harm in (lose, spoil_a_page, spoil_all):
        harm()
        shown = w.json("instances", code=117)["instances"]
        assert [(i["instance_id"], i["whose"]) for i in shown] == [(book["id"], "lost")], shown
        done = w.run("reap", "-y", "--no-wait")
        assert b"is in the ledger again: its job runs" in done.stderr, done
        shown = w.json("instances")["instances"]
        assert [(i["whose"], [r["name"] for r in i["lease"]["runs"]]) for i in shown] == [
            ("ours", ["kept-1"])], shown
    assert len([name for name in os.listdir(state) if "damaged" in name]) >= 2
    assert w.json("ps")["runs"][0]["status"] == "running"
    w.run("down", "kept-1", "-y")
    assert w.alive() == []


def test_what_a_lost_machine_cost_where_its_market_does_not_tell_since_when(w):
    """Its first run knows, or its node, where the list of runs is lost, too."""
    state = w.env["GPUCTL_STATE_DIR"]
    for lost in (["ledger.db"], ["ledger.db", "state.db"]):
        w.rent("--provider", "lambda", "--gpu", "A10", "-d", "--name", "long", "--fresh", "--",
               "sleep", "6000")
        for name in os.listdir(state):
            if name.startswith(tuple(lost)):
                os.unlink(os.path.join(state, name))
        w.advance(1800)
        w.run("reap", "-y", "--no-wait")
        (book,) = w.alive()
        done = w.run("down", "lambda/" + book["id"], "-y", "--force")
        (low, high), = re.findall(rb"is gone; it cost <?\$([\d.]+)(?:-([\d.]+))?", done.stderr)
        (billed,) = [b["billed_usd"] for b in w.books() if b["id"] == book["id"]]
        assert float(low) <= billed + 0.005 <= float(high) + 0.03, (lost, done.stderr, billed)


def test_a_lost_machine_whose_node_names_an_impossible_time(w):
    """It costs as much as is known without that node."""
    state = w.env["GPUCTL_STATE_DIR"]
    for said in (-5, 1, 2 ** 63 - 1):
        w.rent("--provider", "lambda", "--gpu", "A10", "-d", "--name", "liar", "--fresh", "--",
               "sleep", "6000")
        (book,) = w.alive()
        (path,) = [os.path.join(where, "limits.json")
                   for where, _, files in os.walk(w.sim.node(book["id"])["dir"])
                   if "limits.json" in files]
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        stored["limits"]["billing_started_ms"] = str(said)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(stored, file)
        os.unlink(state + "/ledger.db")
        w.run("reap", "-y", "--no-wait")
        done = w.run("down", "lambda/" + book["id"], "-y", "--force")
        (low, high), = re.findall(rb"is gone; it cost <?\$([\d.]+)(?:-([\d.]+))?", done.stderr)
        assert float(high or low) < 1, (said, done.stderr)


def test_a_ledger_that_was_copied(w):
    """It ends nothing of the original's, whatever the copy takes for lost."""
    w.rent("--provider", "vast", *GPU, "-d", "--name", "before", "--", "sleep", "600")
    copy = os.path.join(w.dir, "copy")
    shutil.copytree(w.env["GPUCTL_STATE_DIR"], copy)
    w.rent("--provider", "runpod", *GPU, "-d", "--name", "after", "--fresh", "--", "sleep", "600")
    shown = w.json("instances", GPUCTL_STATE_DIR=copy)["instances"]
    assert [i["whose"] for i in shown] == ["other-owner"] * 2, shown
    assert w.json("reap", "-y", "--no-wait", GPUCTL_STATE_DIR=copy)["ended"] == []
    assert len(w.alive()) == 2
    assert w.json("reap", "-y", "--no-wait")["ended"] == []
    # A run that the copy knows can be ended from there by its name.
    w.run("down", "before-1", "-y", GPUCTL_STATE_DIR=copy)
    assert [b["service"] for b in w.alive()] == ["runpod"]
    # Any machine of the account can, by the market's word alone.
    (book,) = w.alive()
    w.run("down", "runpod/" + book["id"], "-y", GPUCTL_STATE_DIR=copy)
    assert w.alive() == []


def test_down_and_reap_on_a_disk_without_room(w):
    """The bill ends first. What could not be written down is found out later."""
    assert os.geteuid() == 0, "mounting a small file system takes root"
    w.rent("--provider", "vast", *GPU, "-d", "--name", "full-a", "--", "sleep", "600")
    w.rent("--provider", "runpod", *GPU, "-d", "--name", "full-b", "--fresh", "--", "sleep", "600")
    state = w.env["GPUCTL_STATE_DIR"]
    small = os.path.join(w.dir, "small")
    os.mkdir(small)
    # The same directory on a disk that is full, and then on one that is read-only.
    for verb, more in (("down full-a -y", "dd if=/dev/zero of=%s/filler bs=64k 2>/dev/null" % state),
                       ("down --all -y", "rm -f %s/filler; mount -o remount,ro %s" % (
                           state, state))):
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", "cp -a %s/. %s && mount -t tmpfs -o size=8m none %s && "
             "cp -a %s/. %s && { %s; rm -rf %s/.; %s instances; %s %s; }" % (
                 state, small, state, small, state, more, small, w.gpuctl, w.gpuctl, verb)],
            env=w.env, cwd=w.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=300)
        assert done.returncode == 0 and b"cannot be written down" in done.stderr, done
    assert w.alive() == []
    # The real ledger learned nothing, and asks the markets.
    assert [r["state"] for r in w.leases()] == ["rented"] * 2
    assert w.json("instances")["instances"] == []


def test_a_machine_that_ended_itself_is_no_alarm(w):
    w.rent("--provider", "vast", *GPU, "--name", "short", "--idle", "2s", "--", "true")
    eventually(lambda: w.alive() == [], "it has ended itself")
    done = w.run("instances", code=None)
    # Its market does not know it any more, and its own limit is over: that is no question.
    assert b"is gone: nothing ran on it for longer than its idle limit" in done.stderr, done
    assert b"it bills" not in done.stderr and b"gpuctl reap" not in done.stderr, done
    w.rent("--provider", "vast", *GPU, "--name", "short", "--idle", "2s", "--", "true")
    eventually(lambda: w.alive() == [], "it has ended itself")
    (ended,) = w.json("instances")["ended"]
    assert ended["lease_state"] == "released" and w.json("instances")["ended"] == [], ended
    w.rent("--provider", "vast", *GPU, "--name", "short", "--idle", "2s", "--", "true")
    eventually(lambda: w.alive() == [], "it has ended itself")
    done = w.run("reap", "-y", "--no-wait")
    assert b"reap again" not in done.stderr, done


def idle_machine(w):
    (machine,) = w.alive()
    return "vast/%s" % machine["id"]


def test_an_idle_machine_says_when_it_ends_itself(w):
    w.rent("-d", "--provider", "vast", *GPU, "--name", "busy", "--idle", "20m", "--salvage", "40m",
           "--", "sleep", "3600")
    said = w.run("instances")
    assert b"idle" not in said.stdout and b"ends itself" not in w.run("ps").stderr, said
    assert w.json("instances")["instances"][0]["idle"] is None
    w.run("stop", "busy-1")
    idle = w.json("instances")["instances"][0]["idle"]
    assert idle["since"] < idle["ends"] < idle["ends_at_latest"] and not idle["results_home"], idle
    assert re.search(rb"ours: idle, ends in (19m|20m).* to (39m|40m).*, results of busy-1 not pulled",
                     w.run("instances").stdout)
    assert w.json("show", "busy-1")["results_home"] is None
    assert re.search(rb"at home +not all, as far as known; gpuctl pull busy-1", w.run("show", "busy-1").stdout)
    assert re.search(rb"bills on, .*it ends itself in (19m|20m).* once its results are home, else "
                     rb"in (39m|40m).*; gpuctl down busy-1 ends it now", w.run("ps").stderr)
    (bills,) = w.json("ps")["bills"]
    assert bills["run"] == "busy-1" and bills["node"] == idle_machine(w) and bills["usd_per_hour"] > 0
    # What nothing is missing of is told by the one who brought it.
    pulled = w.run("pull", "busy-1", code=None)
    assert re.search(rb"all results that are on vast/\d+ are at home; it ends itself in (19m|20m)",
                     pulled.stderr), pulled
    assert w.json("instances")["instances"][0]["idle"]["results_home"] is True
    assert b", results at home" in w.run("instances").stdout
    assert re.search(rb"its results are at home, and it ends itself in .*; gpuctl down busy-1",
                     w.run("ps").stderr)
    home = next(run["results_home"] for run in w.json("ps", "-a")["runs"] if run["name"] == "busy-1")
    assert home and home == w.json("show", "busy-1")["results_home"], home
    assert re.search(rb"at home +all its results, since ", w.run("show", "busy-1").stdout)
    w.run("down", "busy-1", "-y", "--force")
    assert w.json("ps")["bills"] == []
    # All files of a run without named results are its results.
    w.rent("--provider", "vast", *GPU, "--name", "plain", "--idle", "20m", "--salvage", "40m",
           "--", "sh", "-c", "echo x > made; echo y > other")
    assert b"gpuctl pull plain-1 '**', for it names no results" in w.run("show", "plain-1").stdout
    w.run("pull", "plain-1", "other")
    assert w.json("instances")["instances"][0]["idle"]["results_home"] is False
    pulled = w.run("pull", "plain-1", "**")
    assert re.search(rb"all results that are on vast/\d+ are at home; it ends itself in (19m|20m)",
                     pulled.stderr), pulled
    assert w.json("instances")["instances"][0]["idle"]["results_home"] is True
    w.run("down", "plain-1", "-y")
    # This market gives its machines no way to end themselves.
    w.rent("--provider", "lambda", "--gpu", "A10", "--name", "held", "--idle", "20m", "--", "true")
    assert b"idle, ends" not in w.run("instances").stdout
    assert b"ends itself" not in w.run("ps").stderr
    w.run("down", "held-1", "-y", "--force")


def test_runs_of_one_machine_do_not_differ_in_its_gpus(w):
    """A short one has no samples of the GPUs, a longer one has."""
    w.rent("--provider", "vast", *GPU, "--name", "brief", "--", "true")
    w.run("launch", "--no-workdir", "--name", "longer", "--on", "brief-1", "--gpus", "0", "--",
          "sleep", "3")
    fields = [one["field"] for one in w.json("diff", "brief-1", "longer-1")["differences"]]
    assert "took" in fields and "gpus" not in fields and "driver" not in fields, fields
    w.run("down", "-y", "--force", "longer-1")


def test_down_says_lost_only_of_what_is_lost(w):
    job = "for i in 1 2 3 4; do mkdir step-$i; echo $i > step-$i/w; done"
    named = ["--checkpoints", "step-*", "--", "bash", "-c", job]
    w.rent("--provider", "vast", *GPU, "--name", "one", *named)
    w.run("launch", "--no-workdir", "--name", "two", "--on", "one-1", "--gpus", "0", *named)
    done = w.run("down", "one-1", "two-1", "-y", code=1)
    assert b"lost" not in done.stderr and b"stays, and bills on" in done.stderr, done
    hint = done.stderr.split(b"HINT: ")[1]
    assert b"gpuctl pull one-1" in hint and b"gpuctl pull two-1" in hint, done
    said = w.run("pull", "one-1", "two-1").stderr
    assert said.count(b"3 other checkpoints are only there, because the newest one counts as the "
                      b"result; gpuctl pull two-1 --list names them") == 1, said
    w.run("pull", "two-1", "--checkpoint", "1")
    said = w.run("pull", "two-1").stderr
    assert b"2 other checkpoints are only there" in said, said
    w.run("pull", "two-1", "step-2/*")
    said = w.run("pull", "two-1").stderr
    assert b"1 other checkpoint is only there" in said, said
    done = w.run("down", "one-1", "two-1", "-y")
    assert w.alive() == []
    (lost,) = [line for line in done.stderr.split(b"\n") if b"lost" in line]
    assert b"one-1: 3 older checkpoints (" in lost and b"two-1: 1 older checkpoint (" in lost, done
    assert b"step-" not in lost, done


def test_down_keeps_what_is_not_at_home(w):
    w.rent("--provider", "vast", *GPU, "--name", "unpulled", "--", "sh", "-c",
           "mkdir $GPUCTL_CHECKPOINT_DIR/a && echo weights > $GPUCTL_CHECKPOINT_DIR/a/weights")
    (book,) = w.alive()
    done = w.run("down", "unpulled-1", "-y", code=1)
    assert b"stays, and bills on" in done.stderr and b"not at home: unpulled-1: " in done.stderr, done
    assert b"HINT: gpuctl pull unpulled-1" in done.stderr, done
    assert [b["id"] for b in w.alive()] == [book["id"]]
    w.run("pull", "unpulled-1")
    w.run("down", "unpulled-1", "-y")
    assert w.alive() == []
    # It says where the results went when they are asked for.
    done = w.run("pull", "unpulled-1", code=None)
    assert done.returncode != 0 and b"was given back" in done.stderr, done
    home = os.path.join(w.work, "unpulled-1").encode()
    assert b"HINT: what came home before is in " + home in done.stderr, done
    os.rename(home, home + b".moved")
    done = w.run("pull", "unpulled-1", code=None)
    assert b"what was not brought home before is gone" in done.stderr, done
    # Or without them.
    w.rent("--provider", "vast", *GPU, "--name", "forced", "--", "sh", "-c",
           "mkdir $GPUCTL_CHECKPOINT_DIR/a && echo weights > $GPUCTL_CHECKPOINT_DIR/a/weights")
    w.run("down", "forced-1", "--force")
    assert w.alive() == []


def test_down_keeps_what_it_cannot_ask(w):
    """Whether its results are at home is not known while ssh to a machine in order fails."""
    w.rent("--provider", "vast", *GPU, "--name", "mute", "--artifacts", "out", "--", "sh", "-c",
           "echo result > out")
    (book,) = w.alive()
    config = w.sim.node(book["id"])["dir"] + "/sshd_config"
    with open(config, encoding="utf-8") as file:
        good = file.read()
    write(config, "Broken yes\n")
    done = w.run("down", "-y", "mute-1", code=1)
    assert b"stays, and bills on" in done.stderr and len(w.alive()) == 1, done
    shown = w.json("down", "-y", "mute-1", code=1)
    assert [kept["instance_id"] for kept in shown["kept"]] == [book["id"]], shown
    write(config, good)
    w.run("pull", "mute-1")
    w.run("down", "-y", "mute-1")


def test_down_all_goes_on_after_a_run_whose_machine_is_gone(w):
    """The laptop was not there when the machine ended, and another run is still live."""
    w.rent("--provider", "vast", *GPU, "-d", "--name", "gone", "--", "sleep", "600")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "end")
    w.advance(200)
    assert b"ended by itself or by somebody else's hand" in w.run("instances").stderr
    w.run("launch", "--provider", "local", "--no-workdir", "-d", "--name", "here", "--", "sleep", "600",
          GPUCTL_NODE_ROOT=w.dir + "/n")
    done = w.run("down", "--all", "-y", GPUCTL_NODE_ROOT=w.dir + "/n")
    assert b"gone-1 lost: its machine was given back" in done.stderr, done
    assert b"here-1 " in done.stderr and b"nothing of this gpuctl bills" in done.stderr, done
    assert w.json("ps")["runs"] == []
    subprocess.run([os.path.dirname(w.gpuctl) + "/gpuctl-agent", "shutdown", "--root", w.dir + "/n"],
                   check=True)


def test_down_all_does_not_call_nothing_what_the_ledger_lost(w):
    w.rent("--provider", "vast", *GPU, "-d", "--name", "kept", "--", "sleep", "600")
    (book,) = w.alive()
    for name in os.listdir(w.env["GPUCTL_STATE_DIR"]):
        if name.startswith("ledger.db"):
            os.unlink(os.path.join(w.env["GPUCTL_STATE_DIR"], name))
    done = w.run("down", "--all", "-y", code=117)
    assert b"UNKNOWN: %s at vast" % book["id"].encode() in done.stderr, done
    assert b"nothing of this gpuctl bills" not in done.stderr, done
    w.run("down", "vast/" + book["id"], "-y")
    assert b"nothing of this gpuctl bills" in w.run("down", "--all", "-y").stderr


def test_a_market_that_showed_nothing_for_a_while_ends_no_run(w):
    """Its list and its look-up had lost a machine, whose run went on."""
    for market, gpu in (("vast", "RTX-4090"), ("runpod", "RTX-4090"), ("lambda", "A10")):
        w.rent("--provider", market, "--gpu", gpu, "-d", "--name", "kept-" + market, "--", "sleep", "600")
    w.advance(200)
    ids = {book["service"]: book["id"] for book in w.alive()}
    for market, instance in ids.items():
        w.sim.change(market, instance, "hide")
    assert w.run("instances").stderr.count(b"ended by itself or by somebody else's hand") == 3
    for market, instance in ids.items():
        w.sim.change(market, instance, "show")
    done = w.run("reap", "-y", "--no-wait")
    assert done.stderr.count(b"is there after all") == 3, done
    assert len(w.alive()) == 3 and [r["state"] for r in w.leases()] == ["rented"] * 3
    assert [i["whose"] for i in w.json("instances")["instances"]] == ["ours"] * 3
    assert sorted(r["status"] for r in w.json("ps", "-u")["runs"]) == ["running"] * 3
    w.run("down", "--all", "-y")


def test_a_ledger_of_the_time_of_the_launch_comes_back(w):
    """A backup from between the rent and the claim is restored while the run goes on."""
    state = w.env["GPUCTL_STATE_DIR"]
    launch = w.start("launch", "-y", "--no-workdir", "--provider", "vast", *GPU, "-d", "--name", "old",
                     "--", "sleep", "600")
    saved = w.dir + "/saved.db"

    def rented():
        try:
            if [(r["state"], r["claimed_ms"]) for r in w.leases()] != [("rented", 0)]:
                return False
        except sqlite3.OperationalError:  # it is being made
            return False
        with contextlib.closing(sqlite3.connect(state + "/ledger.db")) as old, \
                contextlib.closing(sqlite3.connect(saved)) as new:
            old.backup(new)
        return True

    eventually(rented, "the ledger is saved after the rent and before the claim")
    w.finish(launch)
    assert launch.returncode == 0
    for ending in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state + "/ledger.db" + ending)
    shutil.copy(saved, state + "/ledger.db")
    assert w.leases()[0]["claimed_ms"] == 0
    done = w.run("reap", "-y", "--no-wait")
    assert b"is there after all, with old" in done.stderr, done
    assert len(w.alive()) == 1
    w.run("down", "old-1", "-y")


def test_a_lost_ledger_is_not_made_anew_by_a_wrong_clock(w):
    w.rent("--provider", "vast", *GPU, "-d", "--name", "lost", "--", "sleep", "600")
    for ending in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(w.env["GPUCTL_STATE_DIR"] + "/ledger.db" + ending)
    w.env["GPUCTL_TEST_CLOCK"] = "1@%d@%d" % (
        (time.time() - 400 * 86400) * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    done = w.run("reap", "-y", code=117)
    assert b"UNKNOWN" in done.stderr and b"in the ledger again" not in done.stderr, done
    del w.env["GPUCTL_TEST_CLOCK"]
    done = w.run("reap", "-y")
    assert b"in the ledger again: its job runs" in done.stderr, done
    done = w.run("down", "--all", "-y", "--force")
    assert re.search(rb"is gone; it cost <?\$0\.\d\d", done.stderr), done


def test_down_does_not_wait_for_ever(w):
    """A node that answers and never ends the job delays the end of its bill by the grace and a
    minute, here of a clock that runs sixty times as fast."""
    w.rent("--provider", "vast", *GPU, "-d", "--name", "stuck", "--", "sleep", "600")
    stopped = []
    for pid in w.processes():
        with contextlib.suppress(OSError), open("/proc/%d/cmdline" % pid, "rb") as file:
            words = file.read().split(b"\0")
            if os.path.basename(words[0]) == b"gpuctl-shim" or b"guard" in words:
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
    assert stopped
    fast = "60@%d@%d" % (time.time() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
    done = w.run("down", "stuck-1", "-y", GPUCTL_TEST_CLOCK=fast)
    assert b"has not ended within its grace of 1m 00s" in done.stderr, done
    assert w.alive() == []


# Goes on until it is ended: the first of two runs must not be over before the second one has begun.
STEPS = ('for i in $(seq 1 2500); do echo "{\\"step\\":$i,\\"total_steps\\":%d}" >> $GPUCTL_METRICS; '
         'sleep 0.2; done')


def test_what_a_run_will_cost(w):
    """Before it starts, from an earlier run of the same work; while it runs, from its pace."""
    vast = ["--provider", "vast", *GPU]
    os.makedirs(w.dir + "/other")
    write(os.path.join(w.work, "train.sh"), "echo trained\n")

    def plan(*flags):
        done = w.run("launch", "--dry-run", "--json", *flags, "--", "bash", "train.sh")
        return json.loads(done.stdout)["plan"]

    assert "last_time" not in plan(*vast)
    w.run("launch", "-y", *vast, "--name", "earlier", "--", "bash", "train.sh")
    again = plan("--fresh", *vast)
    assert again["last_time"]["run"] == "earlier-1" and again["last_time"]["usd"] > 0, again
    done = w.run("launch", "--dry-run", "--fresh", *vast, "--", "bash", "train.sh")
    assert b"last time " in done.stdout and b"(earlier-1)" in done.stdout, done
    # Another work directory's time says nothing, and neither does another GPU's.
    assert "last_time" not in plan("--provider", "vast", "--gpu", "RTX-3090")
    assert "last_time" not in plan("--workdir", w.dir + "/other", *vast)

    w.rent(*vast, "--fresh", "-d", "--name", "soon", "--", "bash", "-c", STEPS % 3000)
    w.rent("--provider", "vast", "--gpu", "RTX-3090", "-d", "--time", "30m", "--name", "late", "--",
           "bash", "-c", STEPS % 1_000_000)

    def forecasts():
        runs = {run["name"]: run for run in w.json("ps")["runs"]}
        found = [runs.get(name, {}) for name in ("soon-1", "late-1")]
        return found if all(run.get("done") for run in found) else None

    soon, late = eventually(forecasts, "both runs have a forecast")
    assert soon["limited_before_done"] is False and late["limited_before_done"] is True
    assert 0 < soon["done_usd"] < late["done_usd"], (soon, late)
    assert b", limit first" in w.run("ps").stdout


def test_a_cost_that_pays_for_nothing(w):
    message = error_of(w, "--provider", "vast", *GPU, "--cost", "0.01", code=2)
    assert "do not pay for 10m 00s" in message and "would do" in message, message
    assert w.creates() == []


def test_no_offer_costs_more_than_was_agreed(w):
    """The cheap offer is gone when it is asked for, and the next one costs sixty times as much."""
    for item in VAST_OFFERS["RTX 4090"][1:]:
        w.sim.price(service="vast", item=item, usd_per_hour=20)
    w.sim.fault("vast", "create", "offer_gone")
    done = w.rent("--provider", "vast", *GPU, "--max-price", "30", "--", "true", code=121)
    assert b"left out" in done.stderr and b"the agreed $" in done.stderr, done
    assert len(w.creates("vast")) == 1 and w.alive() == []


def test_an_image_that_cannot_be_pulled(w):
    """It stops the launch at once and blames no machine."""
    w.sim.fault("vast", "create", "image_missing", times=-1)
    done = w.rent("--provider", "vast", *GPU, "--image", "org/image:tag", "--", "true", code=122)
    assert b"its image cannot be pulled" in done.stderr and b"manifest unknown" in done.stderr, done
    assert len(w.creates("vast")) == 1 and w.alive() == [] and w.excluded() == [], w.excluded()


def test_a_clock_that_is_wrong_rents_nothing(w):
    """What was written down of the machine would have wrong times, and so wrong costs."""
    for ahead_s in (-400 * 86400, -3600, 3600, 400 * 86400):
        clock = "1@%d@%d" % ((time.time() + ahead_s) * 1000,
                             time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)
        done = w.rent("--gpu", "RTX-4090", "--", "true", code=1, GPUCTL_TEST_CLOCK=clock)
        assert b"this computer's clock is" in done.stderr and b"set the clock" in done.stderr, done
    assert w.books() == [] and w.creates() == [] and w.leases() == []


def test_no_funds(w):
    w.sim.account(service="vast", key=w.account("vast"), balance_usd=0)
    message = error_of(w, "--provider", "vast", *GPU, code=122)
    assert "lacks credit" in message, message
    # It is asked once per launch, not once per offer; then come the others.
    assert len(w.creates("vast")) == 2
    done = w.rent(*GPU, "--", "echo", "there")
    assert done.stdout == b"there\n" and b"no more requests go to vast" in done.stderr, done
    assert [b["service"] for b in w.books()] == ["runpod"] and len(w.creates("vast")) == 3


def test_two_launches_race_for_one_offer(w):
    held = w.sim.hold(service="vast", route="create", nth_request=1, phase="before")
    slow = w.start("launch", "-y", "--no-workdir", "--name", "slow-1", *GPU, "--", "echo", "slow")
    w.sim.wait_hold(held)
    quick = w.rent("--name", "quick-1", *GPU, "--", "echo", "quick")
    w.sim.release(held)
    out, err = w.finish(slow)
    assert (slow.returncode, out, quick.stdout) == (0, b"slow\n", b"quick\n"), (err, quick)
    assert err.count(b"trying the next offer") == 1 and b"next offer" not in quick.stderr, err
    runs = {r["name"]: r["lease"] for r in w.json("ps", "-a")["runs"]}
    assert {r["instance_id"] for r in runs.values()} == {b["id"] for b in w.alive()}, runs
    assert [b["product"] for b in w.alive()] == ["9100001", "9100002"], w.alive()
    assert sorted(r["state"] for r in w.leases()) == ["not_created", "rented", "rented"]


def test_an_idle_machine_is_used_again(w):
    gate = os.path.join(w.dir, "gate")
    os.mkfifo(gate)
    w.rent("--name", "first-1", *GPU, "--", "true")
    done = w.rent("--name", "second-1", *GPU, "--", "true")
    assert b"rented and idle" in done.stderr and len(w.creates()) == 1, done
    (row,) = w.leases()
    runs = {r["name"]: r for r in w.json("ps", "-a")["runs"]}
    assert runs["first-1"]["node"] == runs["second-1"]["node"] == "vast/" + row["instance_id"], runs

    # A job that needs more than it has rents another machine.
    done = w.rent("--name", "bigger-1", "--gpu", "A100-80GB", "--", "true")
    assert b"rented and idle" not in done.stderr and len(w.alive()) == 2, done
    w.run("down", "-y", "bigger-1")
    done = w.rent("--name", "larger-1", "--gpu", "80GB", "--", "true")
    assert b"rented and idle" not in done.stderr and len(w.alive()) == 2, done
    w.run("down", "-y", "larger-1")
    # One that costs twice as much as the cheapest offer is not taken by itself.
    plan = w.json("launch", "--dry-run", "--no-workdir", "--gpu", "16GB..24GB", "--run", "true")["plan"]
    assert not plan["idle"] and plan["max_price_usd_per_hour"] < row["price_usd_per_hour"], plan
    done = w.rent("--name", "small-1", "--gpu", "16GB..24GB", "--time", "1h", "--max-price", "1", "--",
                  "true")
    assert b"rented and idle" in done.stderr and len(w.alive()) == 1, done
    # So does a job while it is busy, and a job that requests its own machine.
    w.rent("-d", "--name", "busy-1", *GPU, "--", "bash", "-c", "read line < " + gate)
    assert len(w.alive()) == 1
    w.rent("--name", "beside-1", *GPU, "--", "true")
    assert len(w.alive()) == 2, w.alive()
    open_gate(gate)
    w.run("wait", "busy-1")
    w.rent("--name", "own-1", "--fresh", *GPU, "--", "true")
    assert len(w.alive()) == 3, w.alive()
    assert len({r["lease"]["lease_id"] for r in w.json("ps", "-a")["runs"]}) == 5


def test_the_record_of_a_rented_run(w):
    w.rent("--name", "kept", *GPU, "--tag", "base", "-e", "LR=1e-3", "--", "sh", "-c", "sleep 3")
    shown = w.json("show", "kept-1")
    (gpu,) = shown["gpus"]
    assert "4090" in gpu["name"] and gpu["memory_bytes"] > 20e9 and gpu["driver_version"], gpu
    price = shown["lease"]["usd_per_hour"]
    assert price > 0 and 0 < shown["spent_high_usd"] < price, shown
    page = w.run("show", "kept-1").stdout.decode()
    for words in ("driver " + gpu["driver_version"], "$%.2f/h" % price, "vast/", "cost $", "idle "):
        assert words in page, (words, page)
    # The same again, on the same machine, with one thing changed.
    done = w.run("launch", "-y", "--like", "kept-1", "-e", "LR=3e-4")
    assert b"rented and idle" in done.stderr and len(w.creates()) == 1, done
    fields = {one["field"] for one in w.json("diff", "kept-1", "kept-2")["differences"]}
    assert "env.LR" in fields and not fields & {"machine", "gpus", "driver", "price", "gpu"}, fields
    w.run("down", "-y", "kept-2")
    page = w.run("show", "kept-1").stdout.decode()
    assert "the machine is gone: released" in page, page
    # A machine of one's own has no market's limits of cost.
    plan = w.json("launch", "--like", "kept-1", "--provider", "local", "--dry-run", code=None)
    assert "error" in plan or plan["plan"]["provider"] == "local", plan


def test_an_idle_machine_is_used_when_nothing_is_on_offer(w):
    gate = os.path.join(w.dir, "gate")
    os.mkfifo(gate)
    w.rent("--name", "first-1", "--provider", "vast", *GPU, "--", "true")
    w.empty("RTX 4090")
    (row,) = w.leases()
    done = w.run("launch", "--dry-run", "--json", "--no-workdir", *GPU, "--", "true")
    plan = json.loads(done.stdout)["plan"]
    assert plan["node"] == "vast/" + row["instance_id"] and "offer" not in plan, plan
    (run,) = w.json("ps", "-a")["runs"]
    assert plan["price_usd_per_hour"] == run["lease"]["usd_per_hour"] > 0, plan
    done = w.run("launch", "--dry-run", "--no-workdir", *GPU, "--", "true")
    assert b"rented and idle: it bills now" in done.stdout, done
    assert b"nothing else that fits is on offer" in done.stdout, done
    done = w.rent("--name", "second-1", *GPU, "--", "echo", "there")
    assert done.stdout == b"there\n" and b"rented and idle" in done.stderr, done
    # A machine is not reused when it does not fit, costs too much, is not wanted, or is busy.
    for flags in (["--fresh"], ["--max-price", "0.01"], ["--provider", "runpod"], ["--spot"]):
        done = w.rent(*flags, *GPU, "--", "true", code=121)
        assert b"nothing on offer is" in done.stderr, done
    w.rent("-d", "--name", "busy-1", *GPU, "--", "bash", "-c", "read line < " + gate)
    done = w.rent(*GPU, "--", "true", code=121)
    assert b"nothing on offer is" in done.stderr, done
    open_gate(gate)
    w.run("wait", "busy-1")
    assert len(w.creates()) == 1, w.creates()


def test_an_idle_machine_that_costs_too_much_is_left_alone(w):
    """It costs more than --max-price, than the plan showed, or than was accepted before a retry."""
    seen = os.path.join(w.dir, "seen")
    wish = ["--provider", "vast", *GPU]
    w.sim.price(service="vast", item=9100001, usd_per_hour=2.0)
    w.sim.stock(service="vast", item=9100002, count=0)
    w.rent("--name", "dear-1", *wish, "--", "true")
    w.sim.stock(service="vast", item=9100002, count=1)
    for name, limit in (("limited", ["--max-price", "0.5"]), ("shown", [])):
        done = w.rent("--name", name, *limit, *wish, "--", "true")
        assert b"rented and idle" not in done.stderr, done
        assert [b["product"] for b in w.alive()] == ["9100001", "9100002"], w.alive()
        w.run("down", "-y", name)
    child = w.start("launch", "-y", "--no-workdir", "--name", "taken-1", "--retry-max", "1",
                    "--retry-on", "preempted", *wish, "--", "bash", "-c",
                    "if [ -e '%s' ]; then echo again; else touch '%s'; sleep 1000; fi" % (seen, seen))
    eventually(lambda: os.path.exists(seen), "the job runs")
    w.sim.change("vast", w.alive()[-1]["id"], "preempt")
    out, err = w.finish(child)
    assert (child.returncode, out) == (0, b"again\n"), (out, err)
    assert b"goes on on another machine" in err and b"rented and idle" not in err, err
    # The second one's node has no retry left.
    with contextlib.closing(sqlite3.connect(os.path.join(w.env["GPUCTL_STATE_DIR"], "state.db"))) as runs:
        specs = [json.loads(text)["spec"] for (text,) in runs.execute(
            "SELECT spec FROM specs JOIN runs USING (run_id) WHERE name LIKE 'taken-%' ORDER BY created_ms")]
    assert [spec["retry"].get("max_retries", 0) for spec in specs] == [1, 0], specs


def test_what_is_told_of_a_run_that_was_taken_away(w):
    """Its end is told once, a hint that works, and nobody takes its disk for empty."""
    w.rent("-d", "--spot", "--provider", "vast", *GPU, "--name", "cut", "--", "sleep", "600")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    done = w.run("attach", "cut", code=125)
    words = b" ".join(done.stderr.split())
    assert b"cut-1 lost: preempted: " in words, done
    assert b"HINT: gpuctl resume cut-1 --anew starts it again from the beginning" in words, done
    for verb, code in ((["show", "cut"], 0), (["ps", "-a"], 0), (["ps", "-a", "-u"], 0), (["wait", "cut"], 125),
                       (["attach", "cut"], 125), (["logs", "cut"], 0), (["extend", "cut", "1h"], 1)):
        done = w.run(*verb, code=None)
        told = (done.stdout + done.stderr).lower()
        assert b"lost: lost" not in told and b"preempted: preempted" not in told, done
    assert b"--anew begins anew" in w.run("extend", "cut", "1h", code=1).stderr
    assert b"--anew" in w.run("resume", "cut", "-d", "-y", code=None).stderr
    # Where nobody is asked, the disk stays; a machine that the market does not see, too.
    done = w.run("down", "cut", "-y", code=1)
    words = b" ".join(done.stderr.split())
    assert b"stays, and bills on" in words and b"gpuctl down --force cut-1 does without them" in words, done
    assert len(w.alive()) == 1, w.alive()
    assert w.json("down", "cut", "-y", code=1)["kept"][0]["instance_id"] == book["id"]
    terminal = Terminal(w, "down", "cut")
    terminal.until(b"[y/N]")
    assert b"it is not known whether all results of cut-1" in b" ".join(terminal.text.split()), terminal.text
    terminal.type(b"n\r")
    assert terminal.finish() == 1 and len(w.alive()) == 1
    # Nobody waits longer than the results are kept.
    w.advance(25 * 3600)
    w.run("down", "cut", "-y")
    assert w.alive() == []


def test_a_kept_disk_of_which_all_is_at_home_goes(w):
    w.rent("-d", "--spot", "--provider", "vast", *GPU, "--name", "home", "--artifacts", "out", "--", "bash", "-c",
           "echo 1 > out")
    w.run("wait", "home")
    w.run("pull", "home")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    w.run("down", "home", "-y")
    assert w.alive() == []


def test_the_wait_for_a_machine_tells_its_time(w):
    hold = w.sim.hold(service="vast", route="create", nth_request=1, phase="before")
    terminal = Terminal(w, "launch", "-y", "--no-workdir", "--provider", "vast", *GPU, "--name", "slow", "--",
                        "true")
    w.sim.wait_hold(hold)
    terminal.until(b"slow waits for its machine: ")
    w.sim.release(hold)
    assert terminal.finish() == 0, terminal.text
    # What is said comes in a line of its own, and nothing of it is left behind.
    assert re.search(rb"waits for its machine: \d+s\r\x1b\[Kgpuctl: ", terminal.text), terminal.text
    rest = terminal.text.split(b"gpuctl: launching slow-1")[1]
    assert b"waits for its machine" not in rest, terminal.text
    w.run("down", "slow", "-y", "--force")


def test_nobody_is_asked_without_a_terminal(w):
    done = w.run("launch", "--no-workdir", *GPU, "--", "true", code=2)
    assert b"-y" in done.stderr, done
    w.run("launch", "--no-workdir", *GPU, "--json", "--", "true", code=2)
    terminal = Terminal(w, "launch", "--no-workdir", *GPU, "--", "true")
    terminal.until(b"[y/N]")
    for part in (b"RTX-4090", b"at vast", b"per hour", b"limits    running   1d 0h"):
        assert part in terminal.text, (part, terminal.text)
    terminal.type(b"n\n")
    assert terminal.finish() == 1
    assert b"nothing was rented" in terminal.text, terminal.text
    terminal = Terminal(w, "launch", "--no-workdir", *GPU, "--", "true")
    terminal.until(b"[y/N]")
    terminal.type(b"\x03")
    assert terminal.finish() == -signal.SIGINT
    assert b"gpuctl: nothing was rented\r\n" in terminal.text, terminal.text
    assert w.creates() == [] and w.books() == []
    terminal = Terminal(w, "launch", "--no-workdir", *GPU, "--", "echo", "word")
    terminal.until(b"[y/N]")
    terminal.type(b"y\n")
    assert terminal.finish() == 0
    assert b"word" in terminal.text and len(w.alive()) == 1, terminal.text


def test_what_only_rented_machines_have_is_refused_elsewhere(w):
    for flags in (["--cost", "5"], ["--spot"], ["--max-price", "2"]):
        for place in (["--provider", "local"], ["--host", "somebody@127.0.0.1"]):
            done = w.run("launch", "--no-workdir", *place, *flags, "--", "true", code=2)
            assert b" is for rented machines" in done.stderr, done
    # The cost of a rented run does not prevent its continuation on the user's own machine.
    w.run("launch", "-y", "--provider", "vast", "--cost", "5", "--name", "dear-1", *w.project(), "--",
          "./train.sh")
    w.run("pull", "dear-1")
    assert w.json("resume", "dear-1", "--provider", "local", "--dry-run")["plan"]["node"] == "local"
    done = w.run("resume", "dear-1", "--provider", "local", "--dry-run", "--cost", "3", code=2)
    assert b"limits.cost is for rented machines" in done.stderr, done


def test_a_missing_node_bundle_is_found_before_anything_is_rented(w):
    alone = os.path.join(w.dir, "alone")
    os.mkdir(alone)
    whole, w.gpuctl = w.gpuctl, shutil.copy(w.gpuctl, alone)
    for flags in (["-y"], ["--dry-run"]):
        done = w.run("launch", *flags, "--no-workdir", *GPU, "--", "true", code=2)
        assert b"find the programs for the node: none for linux-x86_64" in done.stderr, done
        assert b"HINT: gpuctl node fetch linux-x86_64" in done.stderr, done
    # One for another system does not count.
    for name in ("gpuctl-agent", "gpuctl-shim"):
        with open(os.path.join(alone, name), "wb") as file:
            file.write(b"\xcf\xfa\xed\xfe\x0c\0\0\1 a program for macOS")
        os.chmod(file.name, 0o755)
    done = w.run("launch", "-y", "--no-workdir", *GPU, "--", "true", code=2)
    assert b"none for linux-x86_64" in done.stderr, done
    w.gpuctl = whole
    assert w.creates() == [] and w.leases() == []


def start_down(w, name, on_hangup):
    """Starts down -y NAME; the market holds its request to end the machine. Returns the hold."""
    held = w.sim.hold(service="vast", route="terminate", nth_request=1, phase="after")
    child = subprocess.Popen(
        [w.gpuctl, "down", "-y", name], cwd=w.work, env=w.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, on_hangup))
    w.sim.wait_hold(held)
    return child, held


def test_down_when_the_terminal_is_closed(w):
    w.sim.fault("vast", "terminate", "ended_lag", lists=2)
    w.rent("--name", "first-1", "--provider", "vast", *GPU, "--", "true")
    child, held = start_down(w, "first-1", signal.SIG_DFL)
    child.send_signal(signal.SIGHUP)
    w.sim.release(held)
    out, err = w.finish(child)
    assert child.returncode == 1 and b"interrupted" in err, (child.returncode, out, err)
    assert [r["state"] for r in w.leases()] == ["releasing"], w.leases()
    w.run("down", "-y", "first-1")
    # Under nohup the signal has no effect.
    w.rent("--name", "second-1", "--provider", "vast", *GPU, "--", "true")
    child, held = start_down(w, "second-1", signal.SIG_IGN)
    child.send_signal(signal.SIGHUP)
    w.sim.release(held)
    out, err = w.finish(child)
    assert child.returncode == 0 and b"is gone" in err, (child.returncode, out, err)


def launch_vast(w, gpu="RTX-4090"):
    return w.start("launch", "-y", "--no-workdir", "--fresh", "--provider", "vast", "--gpu", gpu,
                   "--", "echo", "never")


def press_again_and_again(child):
    """Ctrl-C of a user who is in a hurry: no number of them costs the last words."""
    until = time.monotonic() + 100
    while child.poll() is None and time.monotonic() < until:
        child.send_signal(signal.SIGINT)
        time.sleep(0.01)


def check_interrupted(w, child):
    press_again_and_again(child)
    out, err = w.finish(child)
    assert (child.returncode, out) == (130, b""), (child.returncode, out, err)
    assert b"interrupted" in err and b"nothing bills" in err and b"bills on" not in err, err
    assert w.alive() == [] and len(w.books()) <= 1 and len(w.creates()) == 1, w.books()
    assert [r["state"] for r in w.leases()] == ["released"], w.leases()
    assert w.excluded() == [], "an interrupted machine is not a bad one"
    # No list of runs has it; the list of all says why.
    said = w.run("ps", "-a").stderr
    assert re.search(rb"\S+ was interrupted before it began, .* ago; its machine vast/\d+ is gone and cost ",
                     said), said
    assert b"was interrupted" not in w.run("ps").stderr


def test_ctrl_c_while_the_create_is_under_way(w):
    held = w.sim.hold(service="vast", route="create", nth_request=1, phase="after")
    child = launch_vast(w)
    w.sim.wait_hold(held)
    child.send_signal(signal.SIGINT)
    w.sim.release(held)
    check_interrupted(w, child)


def test_ctrl_c_while_it_boots(w):
    w.sim.fault("vast", "create", "boot_never")
    child = launch_vast(w)
    eventually(w.alive, "it was made")
    check_interrupted(w, child)


def test_ctrl_c_while_ssh_does_not_answer(w):
    w.sim.fault("vast", "create", "ssh_never")
    child = launch_vast(w)
    eventually(w.alive, "it was made")
    eventually(lambda: w.leases()[0]["port"], "its address is known")
    check_interrupted(w, child)


def test_ctrl_c_while_it_is_checked(w):
    # Its second GPU never appears.
    w.sim.fault("vast", "create", "wrong_gpu", gpu="NVIDIA GeForce RTX 4090", count=1)
    child = launch_vast(w, "RTX-4090:2")
    eventually(lambda: w.agents(), "the agent runs there")
    check_interrupted(w, child)


def test_ctrl_c_while_the_driver_hangs(w):
    w.sim.fault("vast", "create", "cuda_broken", error=-1)
    child = launch_vast(w)
    eventually(lambda: w.running(b".gpuctl-cuda-"), "the check runs there")
    check_interrupted(w, child)


def test_down_at_the_end(w):
    done = w.run("launch", "-y", "--down", "--name", "all-1", *GPU, *w.project(), "--", "./train.sh")
    w.check_sums(os.path.join(w.work, "all-1"))
    assert b"is gone; it cost " in done.stderr and w.alive() == [], done
    # A failed job's results come home, too; its exit code counts.
    w.rent("--down", "--name", "failed-1", "--artifacts", "*.txt", *GPU, "--", "bash", "-c",
           "echo it broke > why.txt; exit 7", code=7)
    with open(os.path.join(w.work, "failed-1", "why.txt"), encoding="utf-8") as file:
        assert file.read() == "it broke\n"
    assert w.alive() == []
    done = w.rent("--down", *GPU, "--", "true")
    assert b"left nothing" in done.stderr and w.alive() == [], done
    # Results that cannot be brought home keep their machine.
    with open(os.path.join(w.work, "blocked-1"), "w", encoding="utf-8") as file:
        file.write("in the way")
    done = w.rent("--down", "--name", "blocked-1", "--artifacts", "*.txt", *GPU, "--", "bash", "-c",
                  "echo x > why.txt", code=None)
    assert done.returncode not in (0, 7) and b"is kept, $0.30/h, for 23h" in done.stderr, done
    assert b"HINT: gpuctl pull blocked-1" in done.stderr and len(w.alive()) == 1, done
    os.unlink(os.path.join(w.work, "blocked-1"))
    w.run("pull", "blocked-1")
    w.run("down", "-y", "blocked-1")
    assert w.alive() == []


def test_down_asks_once_for_all_machines(w):
    w.rent("--name", "home-1", *GPU, "--", "true")
    w.rent("--fresh", "--name", "lost-1", "--artifacts", "*.txt", *GPU, "--", "bash", "-c",
           "echo x > a.txt")
    refused = w.run("down", "--all", code=2)
    assert b"there is nobody to ask" in refused.stderr and len(w.alive()) == 2, refused
    for answer, code, left in ((b"n\n", 1, 2), (b"y\n", 0, 0)):
        terminal = Terminal(w, "down", "--all")
        terminal.until(b"End all 2 machines? [y/N]")
        terminal.type(answer)
        assert terminal.finish() == code and len(w.alive()) == left, terminal.text
        text = b" ".join(terminal.text.split())
        assert text.count(b"[y/N]") == 1, text
        assert b"of home-1. Its results are at home." in text, text
        assert b"of lost-1. Not at home, and lost then: lost-1: 1 file" in text, text
    # Of one machine, too.
    w.rent("--name", "alone-1", *GPU, "--", "true")
    terminal = Terminal(w, "down", "alone-1")
    terminal.until(b"[y/N]")
    text = b" ".join(terminal.text.split())
    assert b"Its results are at home. End " in text and b"of alone-1? [y/N]" in text, text
    # A second thought is told as it is.
    terminal.type(b"\x03")
    assert terminal.finish() == -signal.SIGINT and len(w.alive()) == 1, terminal.text
    assert b" was left alone" in terminal.text, terminal.text
    terminal = Terminal(w, "down", "alone-1")
    terminal.until(b"[y/N]")
    terminal.type(b"y\n")
    assert terminal.finish() == 0 and w.alive() == [], terminal.text


def test_warnings_come_before_the_question(w):
    w.rent("--name", "first-1", *GPU, "--artifacts", "*.txt", "--", "bash", "-c", "echo x > a.txt")
    terminal = Terminal(w, "launch", "--no-workdir", "--down", "--name", "late-1", *GPU, "--", "true")
    terminal.until(b"Use it? [y/N]")
    text = b" ".join(terminal.text.split())
    assert b"--down will leave vast/" in text and b"home: first-1" in text, text
    terminal.type(b"n\n")
    terminal.finish()
    unnamed = b"results   none are named: files that the job makes are lost with the machine"
    w.rent("--name", "bare-1", *GPU, "--", "bash", "-c", "exit 3", code=3)
    done = w.run("resume", "bare-1", "--anew", "-y", code=3)
    assert unnamed in done.stderr, done
    done = w.run("submit", "--name", "joins", "--on", "bare-1", "--no-workdir", "--", "true")
    assert unnamed in done.stderr, done
    w.run("down", "--all", "-y", "--force")


def test_down_leaves_a_machine_with_results_of_others(w):
    for name in ("first-1", "second-1"):
        w.rent("--name", name, *GPU, "--artifacts", "*.txt", "--", "bash", "-c", "echo x > a.txt")
    w.rent("--name", "first", *GPU, "--artifacts", "*.txt", "--", "bash", "-c", "echo x > a.txt")
    assert len(w.alive()) == 1
    # Of this one nothing is missing, so it is not named.
    w.run("pull", "second-1")
    done = w.rent("--down", "--name", "late-1", *GPU, "--", "true", code=1)
    said = done.stderr.decode()
    warned = said[:said.index("launching late-1")]
    assert "--down will leave vast/" in warned, said
    assert "home: first-1, first-2\n" in warned, said
    assert "stays, and bills on, $0.30/h: earlier runs" in said, said
    assert said.endswith("HINT: gpuctl pull first-1, gpuctl pull first-2, then gpuctl down late-1\n"), said
    # The commands of the hint, as they stand there.
    for name in ("first-1", "first-2"):
        w.run("pull", name)
    w.run("down", "-y", "late-1")
    assert w.alive() == []
    # Nothing is left of others: no word, and the machine goes.
    w.rent("--name", "none-1", *GPU, "--", "true")
    done = w.rent("--down", *GPU, "--", "true")
    assert b"--down will leave" not in done.stderr and w.alive() == [], done


def test_resume_rents_nothing_for_a_run_that_succeeded(w):
    w.run("launch", "-y", "--down", "--name", "well-1", *GPU, *w.project(), "--", "./train.sh")
    done = w.run("resume", "well-1", "-y", code=1)
    assert b"resume well-1: it succeeded, and this would rent a machine again" in done.stderr, done
    assert b"HINT: gpuctl pull well-1" in done.stderr, done
    assert len(w.creates()) == 1
    w.run("resume", "well-1", "-y", "--dry-run", code=1)
    w.run("resume", "well-1", "--anew", "--dry-run")
    w.run("resume", "well-1", "--from", "well-1", "--dry-run")
    # Here it costs nothing.
    # It is not refused for its success: this computer lacks the GPU.
    done = w.run("resume", "well-1", "--provider", "local", "--dry-run", code=121)
    assert b"local has no GPU" in done.stderr, done


def test_down_brings_what_no_pattern_names(w):
    done = w.rent("--down", "--name", "plain-1", *GPU, "--", "bash", "-c",
                  "mkdir outputs; echo weights > outputs/w.bin; echo log > train.log")
    assert b"bringing all that its job made" in done.stderr and w.alive() == [], done
    assert w.files("plain-1") == {"outputs/w.bin": b"weights\n", "train.log": b"log\n"}
    # A pattern that matches nothing does not lose the rest.
    w.rent("--down", "--name", "typo-1", "--artifacts", "output/**", *GPU, "--", "bash", "-c",
           "mkdir outputs; echo weights > outputs/w.bin")
    assert w.files("typo-1") == {"outputs/w.bin": b"weights\n"} and w.alive() == []
    # Nobody knows whether a checkpoint is whole that a failing job wrote at its end.
    w.rent("--down", "--name", "broke-1", "--checkpoints", "./outputs//ck-*", *GPU, "--", "bash",
           "-c", "mkdir -p outputs/ck-1; echo weights > outputs/ck-1/w.bin; exit 1", code=1)
    assert w.files("broke-1") == {"outputs/ck-1/w.bin": b"weights\n"} and w.alive() == []


def test_a_pull_that_brings_nothing_leaves_the_results_unfetched(w):
    w.rent("--name", "made-1", "--artifacts", "output/**", *GPU, "--", "bash", "-c",
           "echo weights > w.bin")
    done = w.run("pull", "made-1", code=1)
    assert b"the job made 1 file: w.bin" in done.stderr, done
    assert w.told_home() == [], w.told_home()
    w.run("pull", "made-1", "**")
    assert w.files("made-1") == {"w.bin": b"weights\n"}
    w.run("down", "-y", "made-1")


def test_down_of_a_run_whose_machine_another_one_uses(w):
    gate = os.path.join(w.dir, "gate")
    os.mkfifo(gate)
    done = w.rent("--name", "old-1", *GPU, "--", "true")
    assert b"bills on, $0.30/h" in done.stderr and b"gpuctl down old-1 ends it now" in done.stderr, done
    for verb in ("wait", "stop"):
        assert b"gpuctl down old-1 ends it now" in w.run(verb, "old-1").stderr, verb
    done = w.run("ps")
    assert b"old-1 is over, and vast/" in done.stderr and b"gpuctl down old-1 ends it" in done.stderr, done
    w.rent("-d", "--name", "user-1", *GPU, "--", "bash", "-c", "read line < %s; echo $line" % gate)
    assert len(w.creates()) == 1 and b"is over" not in w.run("ps").stderr
    # Without a user to ask nothing happens, and that is not an error of the market.
    done = w.run("down", "user-1", code=2)
    assert b"add -y" in done.stderr, done
    done = w.run("down", "-y", "old-1", code=1)
    assert b"stays: user-1 uses it now" in done.stderr, done
    assert b"nothing" not in done.stderr and len(w.alive()) == 1, done
    # It cannot say of another run that nothing bills.
    w.run("launch", "-y", "--provider", "local", "--no-workdir", "--name", "here-1", "--", "true",
          GPUCTL_NODE_ROOT=w.root)
    done = w.run("down", "-y", "here-1", GPUCTL_NODE_ROOT=w.root)
    assert b"others bill on" in done.stderr and b"nothing bills" not in done.stderr, done
    open_gate(gate, "untouched")
    done = w.run("attach", "user-1")
    assert done.stdout == b"untouched\n" and b"gpuctl down user-1 ends it now" in done.stderr, done
    # When that run is over, too, both names end the bill.
    w.run("down", "-y", "old-1")
    assert w.alive() == []


def restart(w, name):
    """Restarts the run's pod, which gives it another ssh port. Returns the old port."""
    run = next(r for r in w.json("ps", "-a")["runs"] if r["name"] == name)
    pod = run["lease"]["instance_id"]
    (row,) = [r for r in w.leases() if r["instance_id"] == pod]
    answer = w.sim.call("runpod", "POST", "/v2/pods/%s/action" % pod, {"action": "restart"})
    assert answer.status == 200, answer.text
    eventually(lambda: w.sim.node(pod)["phase"] == "running" and w.sim.node(pod)["ssh"]["open"],
               "it has started again")
    assert w.sim.node(pod)["ssh"]["port"] != row["port"]
    return row["port"]


def test_a_machine_that_moved_is_found_again(w):
    w.rent("--provider", "runpod", "--name", "moved-1", "--artifacts", "*.txt", "--", "bash", "-c",
           "echo kept > why.txt")
    before = restart(w, "moved-1")
    w.run("pull", "moved-1")
    with open(os.path.join(w.work, "moved-1", "why.txt"), encoding="utf-8") as file:
        assert file.read() == "kept\n"
    assert w.leases()[0]["port"] != before
    # The next launch finds it, too, and verbs that show the job learn that the restart ended it.
    w.rent("-d", "--provider", "runpod", "--name", "live-1", "--", "sleep", "1000")
    assert len(w.creates()) == 1
    restart(w, "live-1")
    done = w.run("attach", "live-1", code=125)
    assert b"lost" in done.stderr, done


def sparse(path, size):
    with open(path, "wb") as file:
        file.truncate(size)


def launch_doomed(w, name, *flags):
    """Runs a launch whose work directory loses a file after the scan. Returns its end."""
    home = os.path.join(w.dir, "doomed-" + name)
    os.mkdir(home)
    sparse(home + "/model.bin", 1 << 20)
    held = w.sim.hold(service="vast", route="create" if "--fresh" in flags else "offers",
                      nth_request=1, phase="before")
    child = w.start("launch", "-y", "--name", name, "--workdir", home, "--provider", "vast", *GPU,
                    *flags, "--", "true")
    w.sim.wait_hold(held)
    os.unlink(home + "/model.bin")
    w.sim.release(held)
    out, err = w.finish(child)
    assert child.returncode not in (0, None) and out == b"", (child.returncode, err)
    assert b"model.bin" in err, err
    return err


def test_a_launch_that_fails_gives_its_new_machine_back(w):
    err = launch_doomed(w, "lost", "--fresh")
    assert b"which was rented for this launch: ending it" in err, err
    assert b"is gone; it cost " in err and b"stays rented" not in err, err
    assert w.alive() == [], w.alive()
    eventually(lambda: w.processes() == [], "the end of the processes")
    (row,) = w.leases()
    assert (row["state"], row["how_ended"]) == ("released", "of no use"), row
    assert w.excluded() == [], "the machine was not to blame"
    (run,) = w.json("ps", "-a")["runs"]
    assert run["status"] == "failed" and run["job_exit_code"] is None, run
    # The user may want to try again there. Then this launch must not end it.
    err = launch_doomed(w, "kept", "--fresh", "--keep")
    assert b"stays rented" in err and len(w.alive()) == 1, err
    again = w.rent("--provider", "vast", *GPU, "--", "true")
    assert b"rented and idle" in again.stderr, again
    assert w.run("launch", "--keep", "--down", "--", "true", code=2)


def start_held_push(w, *args):
    """Starts a launch whose work directory is being sent and does not arrive."""
    home = os.path.join(w.dir, "large")
    os.mkdir(home)
    sparse(home + "/model.bin", 1 << 30)
    child = w.start("launch", "-y", "--workdir", home, "--provider", "vast", *GPU, *args, "--",
                    "true")

    def receivers():
        found = []
        for pid in w.processes():
            with contextlib.suppress(OSError):
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                if b"receive" in words and words[0].endswith(b"gpuctl-agent"):
                    os.kill(pid, signal.SIGSTOP)
                    found.append(pid)
        return found

    eventually(lambda: receivers() or child.poll() is not None, "the push is under way")
    assert child.poll() is None, "the push was over before it could be held"
    return child


def test_ctrl_c_while_it_is_sent(w):
    check_interrupted_launch(w, start_held_push(w))


def test_a_machine_that_waits_for_its_job_is_not_idle(w):
    """Neither a new nor a reused machine is idle while another launch sends the job's files."""
    def restock():
        for item in (9100001, 9100002):
            w.sim.stock(service="vast", item=item, count=1)

    new = start_held_push(w, "--name", "new-1")
    other = w.rent("--name", "other-1", "--provider", "vast", *GPU, "--", "true")
    assert b"rented and idle" not in other.stderr and len(w.alive()) == 2, other
    check_interrupted_launch(w, new, left=1, creates=2)
    shutil.rmtree(os.path.join(w.dir, "large"))
    restock()
    again = start_held_push(w, "--name", "again-1")
    third = w.rent("--name", "third-1", "--provider", "vast", *GPU, "--", "true")
    assert b"rented and idle" not in third.stderr and len(w.alive()) == 2, third
    again.send_signal(signal.SIGINT)
    out, err = w.finish(again)
    assert (again.returncode, out) == (130, b"") and b"rented and idle" in err, err
    # A launch that gives it up leaves it to the next.
    restock()
    last = w.rent("--name", "last-1", "--provider", "vast", *GPU, "--", "true")
    assert b"rented and idle" in last.stderr and len(w.alive()) == 2, last


def check_interrupted_launch(w, child, left=0, creates=1):
    press_again_and_again(child)
    out, err = w.finish(child)
    assert (child.returncode, out) == (130, b""), (child.returncode, out, err)
    assert b"interrupted" in err and b"rented for this launch: ending it" in err, err
    assert b"is gone; it cost " in err, err
    assert len(w.alive()) == left and len(w.creates()) == creates, w.books()
    assert w.leases()[0]["state"] == "released", w.leases()


def test_a_reused_machine_outlives_a_launch_that_fails(w):
    w.rent("--name", "first-1", "--provider", "vast", *GPU, "--", "true")
    err = launch_doomed(w, "second-1")
    assert b"rented and idle" in err and b"stays rented" in err, err
    assert len(w.alive()) == 1 and len(w.creates()) == 1, w.books()


if __name__ == "__main__":
    run_tests(globals())

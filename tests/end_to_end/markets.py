#!/usr/bin/env python3
"""Behaviour of single markets: Vast.ai leaves keys out and lets hosts raise prices, Runpod rents
spot machines in its own way, Shadeform ends machines at a date.

  markets.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import calendar
import contextlib
import json
import os
import signal
import sqlite3
import sys
import time

from rent_world import KEYS, RentWorld, eventually, open_gate, run_tests

VAST = ["--provider", "vast", "--gpu", "RTX-4090"]
DAY_S = 86_400


def attached_keys(w):
    return [r for r in w.sim.requests("vast")
            if r["method"] == "POST" and "/instances/" in r["path"] and r["path"].endswith("/ssh/")]


def test_a_key_that_was_not_applied_is_attached(w):
    w.sim.fault("vast", "create", "key_not_applied")
    done = w.rent(*VAST, "--", "echo", "let in")
    (book,) = w.books()
    assert done.stdout == b"let in\n", done
    said = "vast/%s refuses our ssh key: vast attached it to the instance once more" % book["id"]
    assert done.stderr.count(said.encode()) == 1, done
    (request,) = attached_keys(w)
    assert (request["status"], request["instance"]) == (200, book["id"]), request
    # When the key is there, nothing is attached.
    w.rent("--fresh", *VAST, "--", "true")
    assert len(attached_keys(w)) == 1 and len(w.alive()) == 2


def test_a_key_that_cannot_be_attached(w):
    w.sim.fault("vast", "create", "key_not_applied", times=-1)
    # The account's list of keys and the new one go well.
    w.sim.fault("vast", "keys", "400", after=2, times=1)
    w.empty("RTX 4090", "runpod")
    w.sim.stock(service="vast", item=9100002, count=0)
    done = w.rent(*VAST, "--ssh-within-s", "3", "--", "true", code=121)
    assert b"attach the ssh key to Vast instance" in done.stderr and b"trying on" in done.stderr
    assert b"back: reach vast/" in done.stderr and len(attached_keys(w)) == 1, done
    assert w.alive() == [] and len(w.books()) == 1, w.books()


LAMBDA = ["--provider", "lambda", "--gpu", "A10"]


def machine_dir(w, book):
    return next(i["dir"] for i in w.sim.state()["instances"] if i["id"] == book["id"])


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_a_machine_has_the_host_key_that_it_got(w):
    done = w.rent(*LAMBDA, "--trace", "--name", "keyed", "--", "echo", "sure")
    assert done.stdout == b"sure\n" and b"first contact" not in done.stderr, done
    (book,) = w.books()
    lines = read(os.path.join(machine_dir(w, book), "host_key")).split(b"\n")
    # The seed is before the second copy of the public part, near the end.
    secret = max(lines, key=len)[-130:-70]
    assert len(secret) == 60 and secret not in done.stderr, done
    # The secret part is on the machine alone.
    kept = [os.path.join(place, name) for place, _, names in os.walk(w.env["GPUCTL_STATE_DIR"])
            for name in names]
    assert any(path.endswith("ledger.db") for path in kept)
    for path in kept:
        if os.path.isfile(path):
            assert secret not in read(path), path
    for verb in (["ps"], ["instances"]):
        assert secret not in w.run(*verb, "--json").stdout
    # Without the pin the key is still known.
    pins = os.path.join(w.env["GPUCTL_STATE_DIR"], "ssh", "host-keys")
    for name in os.listdir(pins):
        os.unlink(os.path.join(pins, name))
    again = w.run("exec", "keyed", "--", "echo", "again")
    assert again.stdout == b"again\n" and b"first contact" not in again.stderr, again


def test_a_machine_with_another_host_key_is_refused(w):
    w.sim.fault("lambda", "create", "host_key_not_applied")
    done = w.rent(*LAMBDA, "--", "true", code=120)
    assert b"and gpuctl gave the machine SHA256:" in done.stderr, done
    assert b"HINT: somebody may be between" in done.stderr, done
    assert w.alive() == [] and len(w.books()) == 1, w.books()


def test_a_machine_that_makes_its_own_host_key_tells_it_at_first_contact(w):
    done = w.rent(*VAST, "--", "echo", "there")
    assert done.stdout == b"there\n", done
    assert done.stderr.count(b"first contact with vast/") == 1, done
    assert b"its host key is SHA256:" in done.stderr, done


def rent_gated(w, name, *flags):
    """Starts a run that ends at a line written to the returned path. Also returns its machine's
    id."""
    gate = os.path.join(w.dir, "gate")
    os.mkfifo(gate)
    w.rent("-d", "--name", name, *flags, *VAST, "--", "bash", "-c", "read line < " + gate)
    (book,) = w.alive()
    return gate, book["id"]


def answers(w):
    return [r["path"] for r in w.sim.requests("vast") if r["path"].endswith("-price-increase/")]


def cut_ssh(w):
    """Ends the machines' ssh sessions; more of them may come."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/stat" % pid, encoding="utf-8") as file:
                name, _, rest = file.read().rpartition(")")
            if "(sshd" in name and int(rest.split()[1]) == w.sim.pid:
                os.kill(int(pid), signal.SIGKILL)


def limits_on(w):
    """Returns the limits that the only machine's node enforces."""
    (book,) = w.alive()
    (path,) = [os.path.join(where, "limits.json")
               for where, _, files in os.walk(w.sim.node(book["id"])["dir"])
               if "limits.json" in files]
    with open(path, encoding="utf-8") as file:
        return json.load(file)["limits"]


def test_traffic_counts_in_the_books_and_against_the_limit(w):
    w.rent("-d", "--name", "thirsty", "--cost", "2", *VAST, "--", "sleep", "3600")
    (book,) = w.alive()
    limits = limits_on(w)
    assert limits["upload_usd_per_gb"] > 0 and limits["download_usd_per_gb"] > 0, limits
    w.sim.change("vast", book["id"], "traffic", sent_gb=20, received_gb=50)
    w.run("reap", "-y")
    (run,) = w.json("ps")["runs"]
    traffic = w.books()[0]["traffic_usd"]
    assert traffic > 0.05
    assert abs(run["lease"]["traffic_usd"] - traffic) < 1e-6, (run["lease"], traffic)
    assert run["spent_low_usd"] >= traffic, run
    total = w.json("cost")["total"]
    assert abs(total["spent_low_usd"] - run["lease"]["spent_low_usd"]) < 0.01, total
    # What is above the limit stops the job at once, with nobody at the laptop.
    w.sim.change("vast", book["id"], "traffic", sent_gb=2000)
    w.run("wait", "thirsty", code=119)
    assert "limit:cost" in str(w.json("ps", "-a")["runs"]), w.json("ps", "-a")
    ended = w.run("down", "thirsty", "--force").stderr.decode()
    billed = w.books()[0]["billed_usd"]
    assert "it cost $%.2f" % billed in ended, (ended, billed)


def test_a_new_price_reaches_the_limits_of_the_node(w):
    gate, instance = rent_gated(w, "pricey", "--max-price", "0.70")
    before = limits_on(w)
    assert abs(before["rate_usd_per_hour"] - 0.30) < 0.01, before
    w.sim.change("vast", instance, "price", factor=2)
    w.advance(3600)
    w.run("reap", "-y")
    after = limits_on(w)
    assert abs(after["rate_usd_per_hour"] - 0.59) < 0.01, after
    assert after["spent_before_usd"] > 0.29, after
    assert after["cost_usd"] == before["cost_usd"] and after["grace_ms"] == before["grace_ms"]
    assert int(after["revision"]) > int(before["revision"])
    # Results are kept for the same money.
    money = [int(limits["salvage_s"]) * limits["rate_usd_per_hour"] for limits in (before, after)]
    assert abs(money[0] / money[1] - 1) < 0.01, (before, after)
    # It is told once.
    w.run("reap", "-y")
    assert limits_on(w) == after
    open_gate(gate)
    w.run("wait", "pricey")
    w.run("down", "pricey", "--force")


def test_a_price_that_triples_does_not_end_a_job_at_once(w):
    """The money for keeping its results would else be more than all that is left."""
    gate, instance = rent_gated(w, "tripled", "--max-price", "2")
    w.sim.change("vast", instance, "price", factor=3)
    w.run("reap", "-y")
    assert limits_on(w)["rate_usd_per_hour"] > 0.8, limits_on(w)
    # The node has judged its new limits, more than once.
    time.sleep(2)
    assert w.json("ps", "-u")["runs"][0]["status"] == "running", w.run("ps", "-a").stdout
    open_gate(gate)
    w.run("wait", "tripled")
    w.run("down", "tripled", "--force")


def test_a_price_rise_is_told_and_accepted_only_as_agreed(w):
    gate, instance = rent_gated(w, "dear", "--max-price", "0.50")
    assert w.json("instances")["instances"][0]["price_rise"] is None
    assert b"no price rise waits" in w.run("price").stderr
    w.sim.change("vast", instance, "announce_price", factor=2, traffic_factor=3, in_s=DAY_S)

    # $0.29 of the GPU twice, and the disk as before.
    told = b"(dear-1): its host raises the price from $0.30/h to at most $0.59/h when its contract " \
           b"ends, 20"
    for part in (told, b"upload from $0.0030 to $0.0090 a GB", b"its run may cost $0.50/h",
                 b"gpuctl price " + instance.encode() + b" --accept or --refuse"):
        assert part in w.run("instances").stderr, part
    rise = w.json("instances")["instances"][0]["price_rise"]
    assert abs(rise["after_usd_per_hour"] - rise["before_usd_per_hour"] - 0.29) < 1e-6, rise
    (listed,) = w.json("price")["price_rises"]
    assert listed["run"] == "dear-1" and listed["max_usd_per_hour"] == 0.5, listed
    assert listed["from"] == rise["from"] and listed["instance_id"] == instance, listed
    # ps and attach show it from the last listing.
    before = len(w.sim.requests("vast"))
    assert told in w.run("ps").stderr
    assert len(w.sim.requests("vast")) == before
    attach = w.start("attach", "dear")

    # No rise is accepted automatically, above the run's allowed cost, or without a request.
    refused = w.run("price", "dear", "--accept", "-y", code=1)
    assert b"more than $0.50/h" in refused.stderr and b"HINT: --max-price" in refused.stderr
    w.run("price", "dear", "--accept", "--max-price", "0.60", code=2)
    w.run("price", "dear", "-y", code=2)
    w.run("reap", "-y")
    assert answers(w) == []
    done = w.run("price", "dear", "--accept", "-y", "--max-price", "0.60")
    assert b"accepted: %s costs at most $0.59/h from" % instance.encode() in done.stderr, done
    assert answers(w) == ["/api/v0/instances/accept-price-increase/"]
    assert w.json("instances")["instances"][0]["price_rise"] is None
    assert b"raises the price" not in w.run("ps").stderr
    again = w.run("price", instance, "--accept", "-y", code=1)
    assert b"none waits" in again.stderr, again

    assert "went from" not in w.run("instances").stderr.decode()
    w.advance(DAY_S + 1)
    assert b"went from $0.30 to $0.59/h" in w.run("instances").stderr
    open_gate(gate)
    out, err = w.finish(attach)
    assert (attach.returncode, out) == (0, b"") and told in err, err


def test_a_price_rise_is_noticed_when_the_link_breaks(w):
    gate, instance = rent_gated(w, "cut")
    attach = w.start("attach", "cut")
    lists = "/api/v0/instances/pending-price-increases/"
    w.sim.change("vast", instance, "announce_price", factor=1.5, in_s=DAY_S)

    def asked():
        cut_ssh(w)
        return any(r["path"] == lists for r in w.sim.requests("vast"))

    eventually(asked, "the market was asked")
    eventually(lambda: b"raises the price" in w.run("ps").stderr, "the answer is stored")
    open_gate(gate)
    out, err = w.finish(attach)
    assert (attach.returncode, out) == (0, b""), (attach.returncode, out, err)
    assert err.count(b"raises the price from $0.30/h to at most $0.44/h") == 1, err


def test_one_404_does_not_end_a_machine(w):
    gate = os.path.join(w.dir, "once.gate")
    os.mkfifo(gate)
    w.rent("-d", "--name", "once-1", "--provider", "runpod", "--gpu", "RTX-4090", "--", "bash",
           "-c", "echo begun; read line < %s" % gate)
    attached = w.start("attach", "once-1")
    assert attached.stdout.readline() == b"begun\n"
    w.sim.fault("runpod", "describe", "404", times=1)

    def is_asked():
        cut_ssh(w)
        return any(r["status"] == 404 for r in w.sim.requests("runpod"))

    eventually(is_asked, "the market is asked")
    # Where one answer counted, the end was requested at once.
    assert attached.poll() is None
    go_on = os.open(gate, os.O_RDWR)  # does not wait for a reader
    os.write(go_on, b"now\n")
    w.finish(attached)
    os.close(go_on)
    assert attached.returncode == 0 and len(w.alive()) == 1, (attached.returncode, w.books())
    assert not [r for r in w.sim.requests("runpod") if r["route"] == "terminate"]


def test_a_laptop_that_was_away_ends_nothing(w):
    """Nobody asked for a day, and the market has lost sight of the machine a moment ago."""
    w.rent("-d", "--name", "away", "--time", "72h", *VAST, "--", "sleep", "3600")
    (book,) = w.alive()
    w.advance(25 * 3600)
    w.sim.change("vast", book["id"], "offline")
    config = w.sim.node(book["id"])["dir"] + "/sshd_config"
    with open(config, encoding="utf-8") as file:
        good = file.read()
    with open(config, "w", encoding="utf-8") as file:
        file.write("Broken yes\n")
    attach = w.start("attach", "away")
    eventually(lambda: any(r["route"] == "describe" for r in w.sim.requests("vast")[-4:]),
               "the market is asked")
    eventually(lambda: b"is offline" in w.run("instances", code=117).stderr, "it is told")
    with open(config, "w", encoding="utf-8") as file:
        file.write(good)
    w.sim.change("vast", book["id"], "online")
    eventually(lambda: w.json("ps", "-u")["runs"][0]["status"] == "running", "it runs")
    assert attach.poll() is None
    attach.kill()
    attach.communicate()
    assert not [r for r in w.sim.requests("vast") if r["route"] == "terminate"]
    w.run("down", "--all", "--force")


def test_a_run_that_went_on_leaves_no_second_machine(w):
    """The market showed its machine nowhere for a while, and the run was resumed meanwhile."""
    w.rent("-d", "--name", "gap", "--cost", "5", *VAST, "--", "sleep", "3600")
    (book,) = w.alive()
    w.advance(200)
    w.sim.change("vast", book["id"], "hide")
    w.run("instances")
    w.run("ps", "-u")
    w.run("resume", "gap", "--anew", "-d", "-y")
    w.sim.change("vast", book["id"], "show")
    done = w.run("reap", "-y", "--no-wait")
    assert b"its run went on as gap-2" in done.stderr, done
    assert len(w.alive()) == 1 and w.alive()[0]["id"] != book["id"], w.alive()
    w.run("down", "--all", "--force")


def test_a_refused_price_rise_ends_with_the_contract(w):
    gate, instance = rent_gated(w, "firm")
    w.sim.change("vast", instance, "announce_price", factor=2, in_s=DAY_S)
    assert b"raises the price" not in w.run("ps").stderr
    # When it is asked for, ps shows it, too.
    assert b"raises the price" in w.run("ps", "-u").stderr
    done = w.run("price", "firm", "--refuse", "-y")
    assert b"refused: the old price holds until 20" in done.stderr, done
    assert b"not extended" in done.stderr and b"expires" in done.stderr, done
    assert answers(w) == ["/api/v0/instances/reject-price-increase/"]
    assert w.run("price", "--json").stdout.count(b'"price_rises":[]') == 1
    open_gate(gate)
    w.run("wait", "firm")
    w.advance(DAY_S + 1)
    (seen,) = w.json("instances", code=117)["instances"]
    assert (seen["state"], w.alive()[0]["phase"]) == ("failed", "stopped"), seen

    # Values that the market does not tell are shown as unknown.
    w.sim.fault("vast", "prices", "403", times=1)
    done = w.run("instances", code=117)
    assert b"firm-1 is exited" in done.stderr and b"gpuctl down vast/" in done.stderr, done
    assert b"it is not known whether prices rise at vast" in done.stderr, done


SPOT = ["--provider", "runpod", "--spot", "--gpu", "RTX-4090"]


def rents_by_graphql(w):
    return [r for r in w.creates("runpod") if r["path"] == "/graphql"]


def test_a_spot_pod_is_rented_by_a_bid(w):
    offers = w.json("offers", *SPOT)["offers"]
    assert {o["provider"] for o in offers} == {"runpod"} and all(o["spot"] for o in offers), offers
    # Half of $0.34, the community's price, and a twentieth more; the disk is on top.
    disk = 40 * 0.10 / 720
    assert abs(offers[0]["price_usd_per_hour"] - 0.17 * 1.05 - disk) < 1e-6, offers[0]
    w.rent("-d", "--name", "bid-1", "--max-price", "0.18", *SPOT, "--", "sleep", "1000")
    (book,) = w.books()
    (gpu,) = [c for c in book["charges"] if c["kind"] == "gpu"]
    assert book["spot"] and len(rents_by_graphql(w)) == len(w.creates()) == 1, book
    assert abs(gpu["usd_per_hour"] - (0.18 - disk)) < 1e-6, gpu
    (seen,) = w.json("instances")["instances"]
    assert (seen["whose"], seen["lease"]["spot"]) == ("ours", True), seen
    assert abs(seen["usd_per_hour"] - 0.18) < 1e-6, seen

    # It is taken away without notice.
    attach = w.start("attach", "bid-1")
    eventually(w.agents, "the job's agent runs")
    w.sim.change("runpod", book["id"], "preempt")
    _, err = w.finish(attach)
    assert attach.returncode == 125 and b"preempted: runpod has" in err, (attach.returncode, err)
    assert w.alive() == [] and w.leases()[0]["state"] == "released"


def test_a_spot_pod_whose_create_went_unanswered_is_found(w):
    for fault in ("500_after", "torn"):
        w.sim.fault("runpod", "create", fault)
        done = w.rent("--fresh", "--name", "found--1" + fault, *SPOT, "--", "echo", "there")
        assert done.stdout == b"there\n" and b"is ready" in done.stderr, done
    assert len(rents_by_graphql(w)) == len(w.alive()) == 2, w.books()
    assert [r["state"] for r in w.leases()] == ["rented", "rented"], w.leases()


def test_spot_pods_that_cannot_be_had(w):
    w.sim.fault("runpod", "create", "out_of_stock", times=-1)
    done = w.rent(*SPOT, "--", "true", code=121)
    assert b"SUPPLY_CONSTRAINT" in done.stderr and w.books() == [], done
    w.sim.clear_faults()
    w.sim.fault("runpod", "create", "no_funds")
    done = w.rent(*SPOT, "--", "true", code=122)
    assert b"balance is too low" in done.stderr and b"no more requests go to runpod" in done.stderr
    assert w.books() == [] and {r["state"] for r in w.leases()} == {"not_created"}, w.leases()


SHADEFORM = ["--provider", "shadeform", "--gpu", "RTX-A6000"]


def end_at_shadeform(w, instance):
    """Returns the date at which the market ends an instance, in Unix milliseconds; 0: never."""
    info = w.sim.call("shadeform", "GET", "/v1/instances/%s/info" % instance).json
    text = info.get("auto_delete", {}).get("date_threshold", "")
    return 1000 * calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) if text else 0


def ends_in_ledger(w):
    """Returns the instances' ends as the ledger has them."""
    path = os.path.join(w.env["GPUCTL_STATE_DIR"], "ledger.db")
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return dict(ledger.execute("SELECT instance_id, ends_ms / 1000 * 1000 FROM leases "
                                   "JOIN ends USING (lease_id)"))


def test_what_a_cloud_sells_twice_comes_cheapest_first(w):
    """DigitalOcean's machine is there by Shadeform, for $3.35, and by a key of DigitalOcean."""
    w.add_services()

    def firsts():
        offers = w.json("offers", "--gpu", "H100-SXM,H100")["offers"]
        seen = [o for o in offers if o["place"].startswith(("digitalocean/gpu-h100x1-80gb/nyc2",
                                                            "shadeform/digitalocean/nyc2"))]
        assert offers == sorted(offers, key=lambda o: o["price_usd_per_hour"]), offers
        return [(o["provider"], round(o["price_usd_per_hour"], 2)) for o in seen]

    assert firsts() == [("shadeform", 3.35), ("digitalocean", 3.39)], firsts()
    w.sim.price(service="shadeform", item="digitalocean/H100_sxm5", usd_per_hour=3.45)
    assert firsts() == [("digitalocean", 3.39), ("shadeform", 3.45)], firsts()
    both = ["--provider", "digitalocean,shadeform", "--gpu", "H100", "--region", "nyc2,digitalocean"]
    w.rent("--down", *both, "--", "true")
    w.sim.price(service="shadeform", item="digitalocean/H100_sxm5", usd_per_hour=3.20)
    w.rent("--down", *both, "--", "true")
    assert [(b["service"], b["product"]) for b in w.books()] == [
        ("digitalocean", "gpu-h100x1-80gb"), ("shadeform", "digitalocean/H100_sxm5")], w.books()


def test_the_market_ends_a_machine_behind_its_limits_and_moves_that(w):
    w.add_services()
    done = w.rent("--trace", "--name", "first", "--time", "1h", *SHADEFORM, "--", "true")
    assert KEYS["shadeform"].encode() not in done.stderr and b"base64_script" not in done.stderr
    (book,) = w.alive()
    first = end_at_shadeform(w, book["id"])
    hours = (first - book["created_ms"]) / 3_600_000
    # An hour, four of salvage, the start, and what lies behind all limits.
    assert 5 < hours < 6.5 and ends_in_ledger(w) == {book["id"]: first}, (hours, ends_in_ledger(w))
    # A list does not tell the end; the ledger keeps it.
    (shown,) = w.json("instances")["instances"]
    assert ends_in_ledger(w) == {book["id"]: first}
    assert shown["ends"].startswith(
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(first / 1000))), shown
    updates = lambda: [r for r in w.sim.requests("shadeform") if r["route"] == "update"]
    w.rent("--name", "second", "--time", "1h", *SHADEFORM, "--", "true")
    assert updates() == [] and end_at_shadeform(w, book["id"]) == first
    # A longer run on the idle machine, and one beside it.
    w.rent("--name", "third", "--time", "9h", *SHADEFORM, "--", "true")
    third = end_at_shadeform(w, book["id"])
    assert third > first + 20 * 3_600_000 and ends_in_ledger(w) == {book["id"]: third}
    assert [r["status"] for r in updates()] == [200] and len(w.books()) == 1, w.books()
    # The market answers well and moves nothing: the machine is not used for what it would cut.
    w.sim.fault("shadeform", "update", "end_ignored")
    done = w.rent("--name", "fourth", "--time", "48h", *SHADEFORM, "--", "true")
    assert b"left out: shadeform/%s: " % book["id"].encode() in done.stderr, done
    assert b"shadeform did not move that" in done.stderr and len(w.alive()) == 2, done
    assert end_at_shadeform(w, book["id"]) == third == ends_in_ledger(w)[book["id"]]
    (other,) = [b["id"] for b in w.alive() if b["id"] != book["id"]]
    w.run("down", "-y", "first")
    # One beside it: on a machine that is named.
    w.sim.fault("shadeform", "update", "500", times=-1)
    refused = w.rent("--on", "fourth", "--name", "fifth", "--time", "200h", "--", "true", code=None)
    assert refused.returncode != 0 and b"move the end of" in refused.stderr, refused
    w.sim.clear_faults()
    before = end_at_shadeform(w, other)
    w.rent("--on", "fourth", "--name", "fifth", "--time", "200h", "--", "true")
    assert end_at_shadeform(w, other) > before and ends_in_ledger(w)[other] > before


def test_a_run_with_more_time_has_its_machine_for_longer(w):
    w.add_services()
    w.rent("-d", "--name", "more", "--time", "1h", *SHADEFORM, "--", "sleep", "3600")
    (book,) = w.alive()
    first = end_at_shadeform(w, book["id"])
    w.sim.fault("shadeform", "update", "end_ignored")
    done = w.run("extend", "more", "24h", "-y", code=121)
    assert b"shadeform did not move that" in done.stderr and b"HINT: " in done.stderr, done
    assert end_at_shadeform(w, book["id"]) == first == ends_in_ledger(w)[book["id"]]
    assert b"time 1h 00m" in w.run("show", "more").stdout
    w.run("extend", "more", "24h", "-y")
    moved = end_at_shadeform(w, book["id"])
    assert moved > first + 23 * 3_600_000 and ends_in_ledger(w) == {book["id"]: moved}, moved
    w.run("down", "-y", "--force", "more")


def test_a_machine_that_comes_back_into_the_ledger_has_its_end(w):
    w.add_services()
    w.rent("-d", "--name", "found", *SHADEFORM, "--", "sleep", "1000")
    (book,) = w.alive()
    end = end_at_shadeform(w, book["id"])
    assert ends_in_ledger(w) == {book["id"]: end} and end > 0
    for name in os.listdir(w.env["GPUCTL_STATE_DIR"]):
        if name.startswith("ledger.db"):
            os.unlink(os.path.join(w.env["GPUCTL_STATE_DIR"], name))
    w.run("reap", "-y")
    assert [b["id"] for b in w.alive()] == [book["id"]], w.books()
    assert ends_in_ledger(w) == {book["id"]: end}, ends_in_ledger(w)
    w.run("down", "-y", "--force", "found")


def test_an_end_that_the_market_dropped_is_no_promise(w):
    w.add_services()
    w.sim.fault("shadeform", "create", "end_ignored")
    w.rent("--name", "again", *SHADEFORM, "--", "true")
    (book,) = w.alive()
    assert end_at_shadeform(w, book["id"]) == ends_in_ledger(w)[book["id"]] > 0
    w.run("down", "-y", "again")
    # A create whose answer was lost had its end, too.
    w.sim.clear_faults()
    w.sim.fault("shadeform", "create", "reset_after")
    w.rent("--name", "lost", *SHADEFORM, "--", "true")
    (book,) = w.alive()
    assert end_at_shadeform(w, book["id"]) == ends_in_ledger(w)[book["id"]] > 0
    w.run("down", "-y", "lost")
    w.sim.fault("shadeform", "create", "end_ignored")
    w.sim.fault("shadeform", "update", "end_ignored", times=-1)
    done = w.rent("--name", "never", *SHADEFORM, "--", "true")
    (book,) = w.alive()
    warning = b"warning: shadeform was told to end %s at 20" % book["id"].encode()
    assert done.stderr.count(warning) == 1 and b"only a gpuctl ends its bill" in done.stderr, done
    assert end_at_shadeform(w, book["id"]) == ends_in_ledger(w).get(book["id"], 0) == 0
    w.run("down", "-y", "never")


def test_a_spot_machine_of_a_cloud_behind_shadeform(w):
    w.add_services()
    spot = ["--spot", *SHADEFORM]
    offers = w.json("offers", *spot)["offers"]
    assert [(o["place"], o["price_usd_per_hour"], o["spot"]) for o in offers] == [
        ("shadeform/hyperstack/canada-1/A6000", 0.3, True),
        ("shadeform/hyperstack/norway-1/A6000", 0.35, True)], offers
    saves = "mkdir out; echo kept > out/saved; while :; do sleep 0.1; done"
    attach = w.start("launch", "-y", "--name", "taken", "--no-workdir", "--checkpoints", "out",
                     "--pull", *spot, "--", "bash", "-c", saves)
    home = os.path.join(w.work, "taken-1", "out", "saved")
    eventually(lambda: os.path.exists(home), "what it saved is at home")
    (book,) = w.alive()
    assert book["spot"] and book["charges"][0]["usd_per_hour"] == 0.3, book
    w.sim.change("shadeform", book["id"], "preempt")
    _, err = w.finish(attach)
    assert attach.returncode == 125 and b"preempted: shadeform has" in err, err
    assert read(home) == b"kept\n" and w.alive() == []
    assert w.leases()[0]["state"] == "released" and w.run("instances").returncode == 0


def test_money_and_stock_at_shadeform(w):
    w.add_services()
    w.sim.fault("shadeform", "create", "out_of_stock")
    w.sim.fault("shadeform", "create", "quota", after=1)
    done = w.rent("--provider", "shadeform", "--gpu", "H100", "--name", "next", "--", "true", code=121)
    assert b"(OUT_OF_STOCK); trying the next offer" in done.stderr, done
    assert b"(QUOTA_EXCEEDED); trying the next offer" in done.stderr, done
    w.sim.clear_faults()
    w.sim.account(service="shadeform", key=KEYS["shadeform"], balance_usd=1)
    done = w.rent("--provider", "shadeform", "--gpu", "H100", "--", "true", code=122)
    assert b"Balance must be a minimum of $5" in done.stderr, done
    assert done.stderr.count(b"renting ") == 1, done
    assert b"no more requests go to shadeform" in done.stderr and w.books() == [], done


def refused_in_a_hurry(limited):
    """Returns the requests that the markets refused as too many."""
    with RentWorld(*sys.argv[1:4], rate_limits=True) as w:
        # The markets' time runs faster, so that a late request is not taken for an early one.
        w.sim.control("POST", "clock", {"speed": 2})
        if limited:
            w.env["GPUCTL_RATE_LIMITS"] = "on"
            lists = [w.start("instances") for _ in range(3)]
            w.rent(*VAST, "--down", "--", "true")
        else:
            lists = [w.start("instances") for _ in range(6)]
        for each in lists:
            w.finish(each)
            assert each.returncode == 0 or not limited, each.returncode
        refused = [r for r in w.sim.requests() if r["status"] == 429]
        w.env["GPUCTL_RATE_LIMITS"] = "on"
        return refused


def test_our_limits_keep_us_below_those_of_the_markets(_):
    assert refused_in_a_hurry(limited=True) == []
    assert refused_in_a_hurry(limited=False)


if __name__ == "__main__":
    run_tests(globals())

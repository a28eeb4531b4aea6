#!/usr/bin/env python3
"""Text that a market says must not act on a terminal or forge a line of ours.

  hostile_rental.py GPUCTL FAKE_JOB CLOUDSIM

A server between gpuctl and the simulator makes the texts in its answers hostile.
"""
import os
import sys

from hostile_market import FREE, HostileMarket
from hostile_words import TEXT, show
from hostile_world import change, kept, run
from rent_world import SERVICES, RentWorld


def stored_by_the_market(w, words):
    """Puts hostile texts of markets into the ledger."""
    change(os.path.join(w.env["GPUCTL_STATE_DIR"], "ledger.db"), *[
        ("UPDATE %s SET %s = CAST(? AS TEXT)" % (table, column),
         words.bytes("%s.%s" % (table, column)))
        for table, columns in (
            ("leases", ("gpu_name", "region", "place", "how_ended", "host", "purpose")),
            ("listed", ("status", "gpu_name", "region", "place", "why")),
            ("uses", ("run_name",)), ("places", ("reason",)), ("price_rises", ("also", "rise_id")))
        for column in columns])


GPU = ["--gpu", "RTX-4090"]
MARKET_VERBS = [["offers", *GPU], ["offers", "--explain", *GPU], ["instances"], ["volumes"], ["price"],
                ["reap", "--dry-run"], ["doctor"], ["ps", "-a"], ["ps", "-u"],
                ["launch", "--dry-run", *GPU, "--no-workdir", "--", "true"],
                ["launch", "--dry-run", *GPU, "--volume", "sets", "--no-workdir", "--", "true"]]


# Texts that must have been seen, or the test looks at nothing.
SHOWN = {"lambda id", "lambda mount_point", "lambda name", "leases.gpu_name", "leases.how_ended",
         "leases.region", "machine's GPU", "price_rises.also", "runpod dataCenter", "runpod id",
         "runpod name", "uses.run_name", "vast geolocation", "vast msg", "vast status_msg",
         *("body of a %d" % status for status in (200, 400, 401, 500))}


def test_what_a_market_says(w, words, sheet):
    for service, path, body in (
            ("runpod", "/v2/network-volumes", {"name": "sets", "size": 50, "dataCenter": "US-TX-3"}),
            ("lambda", "/api/v1/filesystems", {"name": "sets", "region": "us-west-1"})):
        w.sim.call(service, "POST", path, body)
    with HostileMarket(w.sim, words) as market:
        for service in SERVICES:
            w.env["GPUCTL_%s_URL" % service.upper()] = market.url + "/" + service
        w.add_services(market.url)
        # Machines that fail, and some that run.
        one_line = [part for part in TEXT if b"\n" not in part]  # nvidia-smi prints one a GPU
        launch = ["launch", "-y", "-d", "--fresh", *GPU, "--no-workdir", "--name", "rented-1", "--",
                  "sleep", "99"]
        w.sim.fault("vast", "create", "out_of_stock")
        w.sim.fault("vast", "create", "boot_fails", after=1)
        show(w, sheet, *launch, modes=["terminal", "pipe"])
        for service in SERVICES:  # whichever has an offer left
            w.sim.fault(service, "create", "wrong_gpu", gpu=words.text("machine's GPU", one_line))
        show(w, sheet, *launch, modes=["terminal"], name="launch, another GPU")
        if w.alive():
            instance = w.alive()[0]
            if instance["service"] == "vast":
                w.sim.change("vast", instance["id"], "announce_price", factor=2, in_s=86400)
        for args in MARKET_VERBS:
            show(w, sheet, *args, modes=["terminal", "json"])
        ledger = os.path.join(w.env["GPUCTL_STATE_DIR"])
        with kept(ledger):
            market.keys = None
            for args in MARKET_VERBS:
                show(w, sheet, *args, name="all: " + " ".join(args), modes=["terminal"])
            show(w, sheet, "down", "--all", modes=["terminal"], name="all: down --all")
        market.keys = FREE
        for args in MARKET_VERBS[:10] + [["down", "rented-1"], ["down", "--all"]]:
            with kept(ledger):
                stored_by_the_market(w, words)
                show(w, sheet, *args, name="stored: " + " ".join(args), modes=["terminal", "json"])
        for status, kind in ((200, "text/html"), (400, "text/plain"), (401, "application/json"),
                             (500, "text/html")):
            market.instead = (status, kind, words.bytes("body of a %d" % status))
            for args in MARKET_VERBS[:7] if status < 500 else MARKET_VERBS[:1]:
                with kept(ledger):
                    show(w, sheet, *args, modes=["terminal"], name="%d: %s" % (
                        status, " ".join(args)))
        market.instead = None
        show(w, sheet, "down", "--all", "-y", modes=["terminal"])
        for service in SERVICES:
            w.env["GPUCTL_%s_URL" % service.upper()] = w.sim.url + "/" + service
        w.add_services()
    w.check_nothing_left()
    assert SHOWN <= set(words.marks), SHOWN - set(words.marks)
    # Most texts of a market are shown to nobody.
    return sorted(set(words.marks) - SHOWN)


if __name__ == "__main__":
    with RentWorld(*sys.argv[1:4]) as world:
        run(test_what_a_market_says, world)

#!/usr/bin/env python3
"""gpuctl dashboard with a machine of a simulated market: what it costs, and when it stops.

  dashboard_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

With GPUCTL_SHOTS=DIR and GPUCTL_BROWSER=NPM_DIR a picture of the page is kept there.
"""
import os

from dashboard import Events, board_of
from rent_world import eventually, run_tests

STEPS = ("for i in 1 2 3; do echo '{\"type\":\"step\",\"step\":'$i',\"total_steps\":9,\"loss\":'$((4 - i))'.5}' > $GPUCTL_METRICS; "
         "done; sleep 600")


def test_a_rented_run_and_its_cost(w):
    w.run("launch", "-y", "-d", "--provider", "vast", "--gpu", "RTX-4090", "--cost", "5", "--no-workdir", "--name", "paid-1",
          "--", "bash", "-c", STEPS)
    w.advance(1800)
    with board_of(w) as board:
        events = Events(board)
        snapshot = events.until("snapshot")
        assert snapshot["totals"]["machines_billing"] == 1 and snapshot["totals"]["usd_per_hour"] > 0, snapshot["totals"]
        run = events.until("run", lambda run: run["step"] == 3)
        price = run["lease"]["usd_per_hour"]
        assert price == snapshot["totals"]["usd_per_hour"], run
        # Half an hour of it.
        assert 0.4 * price < run["spent_high_usd"] < 0.7 * price + 0.1, run
        assert run["lease"]["cost_limit_usd"] == 5 and run["stops"], run
        told = w.json("ps", "--offline")["runs"][0]
        assert abs(told["spent_high_usd"] - run["spent_high_usd"]) < 0.05, (told, run)
        if os.environ.get("GPUCTL_SHOTS") and os.environ.get("GPUCTL_BROWSER"):
            picture(board)
        status, answer = board.act("stop", run["run_id"])
        assert status == 202, answer
        ended = events.until("run", lambda run: run["status"] == "stopped")
        # The job is over; the bill is not, and the page must not say so.
        assert ended["lease"]["lease_state"] == "rented" and ended["stops"] is None, ended
        w.run("down", "paid-1", "--force")
        events.until("run", lambda run: run["lease"]["lease_state"] == "released")
        assert events.until("totals", lambda totals: totals["usd_per_hour"] is None)["machines_billing"] == 0
        events.close()
    eventually(lambda: w.alive() == [], "the machine is gone")


def picture(board):
    import dashboard_page
    program, why = dashboard_page.find_browser(os.environ["GPUCTL_BROWSER"])
    assert program, why
    browser = dashboard_page.BROWSER = dashboard_page.Browser(os.environ["GPUCTL_BROWSER"], program)
    browser.do("open", url=board.url, height=1000, width=1440)
    browser.wait_row("paid-1", "running", "$")
    browser.shot("cost-list")
    browser.open_run("paid-1")
    browser.wait_text(".detail", "Spent by this run", "/ hour", "A limit stops it in")
    browser.shot("cost")
    browser.close()


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""Hugging Face Jobs: what differs from the other markets. Its gateway, its end at a time that
cannot be moved, the end of the bill with the job's command, and its token.

  huggingface.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import os
import signal
import sqlite3

from rent_world import KEYS, enter_key, eventually, run_tests

MARKET = "huggingface"
RENT = ["--provider", MARKET, "--gpu", "A10G"]
PAGE = b"huggingface.co/settings/keys"
# A job that saves something and waits.
SAVES = ('mkdir -p "$GPUCTL_CHECKPOINT_DIR/step-1" && echo one > "$GPUCTL_CHECKPOINT_DIR/step-1/w" '
         '&& echo saved && sleep 600')


def begin(w, key=True):
    """Gives gpuctl its account there and no other."""
    for name in [name for name in w.env if name.endswith(("_API_KEY", "_URL"))]:
        if name.startswith("GPUCTL_"):
            del w.env[name]
    w.env["GPUCTL_HUGGINGFACE_URL"] = w.sim.url + "/" + MARKET
    w.env["GPUCTL_HUGGINGFACE_API_KEY"] = KEYS[MARKET]
    if key:
        enter_key(w.sim, w.env["GPUCTL_STATE_DIR"])


def job_of(w):
    """Returns the one job's entry in the books, and the ledger's row."""
    (book,) = w.books()
    (row,) = w.leases()
    assert row["instance_id"] == book["id"], (row, book)
    return book, row


def saved(w, name):
    """Starts a run, and brings home what it has saved."""
    w.rent(*RENT, "--name", name, "-d", "--time", "1h", "--", "sh", "-c", SAVES)
    eventually(lambda: b"saved" in w.run("logs", name).stdout, "something is saved")
    pulled = w.json("pull", name)
    assert [f["path"] for f in pulled["files"]] == ["ckpt/step-1/w"], pulled


def checkpoint(w, name):
    return [content for path, content in w.files(name).items() if path.endswith("step-1/w")]


def test_the_ledger_knows_the_end_that_was_granted(w):
    begin(w)
    w.rent(*RENT, "--name", "timed", "-d", "--time", "1h", "--", "sleep", "600")
    book, row = job_of(w)
    (lease,) = w.json("instances")["instances"]
    request = w.sim.call(MARKET, "GET", "/api/jobs/%s/%s" % (owner(w), book["id"])).json
    # A run of an hour, and what its results may wait.
    assert request["timeout"] > 3600, request
    ends_ms = book["created_ms"] + 1000 * request["timeout"]
    assert abs(ends_of(w, row) - ends_ms) <= 1000, (ends_of(w, row), ends_ms)
    assert lease["ends"] is not None, lease
    # The run's time, and a short one again, fit; a longer one does not fit into what is left.
    w.run("stop", "timed")
    w.run("wait", "timed", code=None)
    w.rent(*RENT, "--name", "longer", "-d", "--time", "20h", "--", "true")
    assert len(w.books()) == 2, w.books()


def owner(w):
    return w.sim.call(MARKET, "GET", "/api/whoami-v2").json["name"]


def ends_of(w, row):
    path = os.path.join(w.env["GPUCTL_STATE_DIR"], "ledger.db")
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        return ledger.execute("SELECT ends_ms FROM ends WHERE lease_id = ?",
                              (row["lease_id"],)).fetchone()[0]


def test_the_market_ends_a_job_at_its_time(w):
    begin(w)
    saved(w, "timed-1")
    book, row = job_of(w)
    w.advance((ends_of(w, row) - book["created_ms"]) / 1000 + 60)
    eventually(lambda: not w.alive(), "the market ends the job")
    (book,) = w.books()
    assert book["ended_by"] == "simulator: timeout", book
    done = w.run("attach", "timed-1", code=None)
    assert b"it is CANCELED (Job timed out)" in done.stderr, done
    assert b"whose end there was set to" in done.stderr and b"preempted" not in done.stderr, done
    (row,) = w.leases()
    assert row["state"] == "released", row
    assert checkpoint(w, "timed-1") == [b"one\n"], w.files("timed-1")


def test_a_job_that_the_market_takes_away(w):
    begin(w)
    saved(w, "taken-1")
    book, _ = job_of(w)
    w.sim.change(MARKET, book["id"], "preempt")
    done = w.run("attach", "taken-1", code=None)
    assert b"preempted" in done.stderr, done
    assert checkpoint(w, "taken-1") == [b"one\n"], w.files("taken-1")


def test_a_job_that_gets_less_time_is_given_back(w):
    """The market drops the time that it was asked for, and says so."""
    begin(w)
    hold = w.sim.hold(service=MARKET, route="describe", phase="before", nth=1)
    child = w.start("launch", "-y", "--no-workdir", *RENT, "--name", "short", "--time", "1h", "--",
                    "true")
    w.sim.wait_hold(hold)
    w.sim.change(MARKET, w.books()[0]["id"], "timeout", seconds=1800)
    w.sim.stock(service=MARKET, item="a10g-small", count=0)
    w.sim.release(hold)
    _, err = w.finish(child)
    assert b"before the run has had its time" in err and child.returncode != 0, err
    assert not w.alive(), w.books()


def test_the_bill_ends_with_the_command_when_the_laptop_is_gone(w):
    begin(w)
    child = w.start("launch", "-y", "--no-workdir", *RENT, "--name", "alone", "--idle", "2s",
                    "--salvage", "3s", "--", "sh", "-c", "echo begun; sleep 2")
    eventually(lambda: b"begun" in w.run("logs", "alone", code=None).stdout, "the job runs")
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    eventually(lambda: not w.alive(), "the job ends itself", 240)
    (book,) = w.books()
    assert book["ended_by"] == "simulator: its command ended", book
    assert all(charge["to_ms"] > 0 for charge in book["charges"]), book
    status = w.sim.call(MARKET, "GET", "/api/jobs/%s/%s" % (owner(w), book["id"])).json["status"]
    assert status["stage"] == "COMPLETED", status
    w.run("reap", code=None)
    assert [row["state"] for row in w.leases()] == ["released"], w.leases()


def test_a_silent_gateway_is_no_sign_of_life(w):
    """The gateway answers on after the job's end. gpuctl asks the market, and tells."""
    begin(w)
    w.sim.fault(MARKET, "create", "gateway_answers_after_end")
    child = w.start("launch", "-y", "--no-workdir", *RENT, "--name", "mute", "--", "sh", "-c",
                    "echo begun; sleep 600")
    eventually(lambda: b"begun" in w.run("logs", "mute", code=None).stdout, "the job runs")
    w.sim.change(MARKET, w.books()[0]["id"], "end")
    _, err = w.finish(child)
    assert b"its machine" in err or b"preempted" in err, err
    assert [row["state"] for row in w.leases()] == ["released"], w.leases()


def test_a_key_that_is_not_on_the_page_is_asked_for_once(w):
    begin(w, key=False)
    child = w.start("launch", "-y", "--no-workdir", *RENT, "--name", "keyless", "--", "echo", "ran")
    said = b""
    for line in child.stderr:
        said += line
        if PAGE in line:
            break
    enter_key(w.sim, w.env["GPUCTL_STATE_DIR"])
    out, err = w.finish(child)
    err = said + err
    with open(os.path.join(w.env["GPUCTL_STATE_DIR"], "ssh", "id_ed25519.pub"), "rb") as file:
        assert file.read().strip() in err, err
    assert out == b"ran\n" and err.count(PAGE) == 1, err
    # Nobody is blamed for it.
    assert w.excluded() == [], w.excluded()


def test_without_the_key_no_second_job_is_rented(w):
    begin(w, key=False)
    done = w.rent(*RENT, "--name", "keyless", "--ssh-within-s", "2", "--", "true", code=None)
    assert done.returncode != 0 and b"gpuctl's public key is not at" in done.stderr, done
    assert len(w.books()) == 1 and not w.alive() and w.excluded() == [], w.books()


def test_login_tells_of_the_page_once(w):
    begin(w, key=False)
    w.env.pop("GPUCTL_HUGGINGFACE_API_KEY")
    done = w.run("login", MARKET, stdin=KEYS[MARKET].encode() + b"\n")
    assert PAGE in done.stderr and b"ssh-ed25519 " in done.stderr, done


def test_one_host_key_for_all_jobs(w):
    begin(w)
    w.rent(*RENT, "--name", "first", "--down", "--", "true")
    pins = os.path.join(w.env["GPUCTL_STATE_DIR"], "ssh", "host-keys")
    before = os.listdir(pins)
    done = w.rent(*RENT, "--name", "second", "--down", "--", "true")
    assert len(before) == 1 and os.listdir(pins) == before, (before, os.listdir(pins))
    assert b"first contact" not in done.stderr, done
    # Another key at the gateway is somebody else's.
    with open(os.path.join(pins, before[0]), "w", encoding="utf-8") as file:
        file.write("SHA256:%s\n" % ("A" * 43))
    done = w.rent(*RENT, "--name", "third", "--", "true", code=None)
    assert done.returncode != 0 and b"has changed" in done.stderr, done
    assert not w.alive(), w.books()


def test_the_token_is_the_key_and_may_be_the_jobs_too(w):
    begin(w)
    w.env.pop("GPUCTL_HUGGINGFACE_API_KEY")
    w.env["HF_TOKEN"] = KEYS[MARKET]
    # It is there for other programs, too: only who names the market asks it.
    w.env.update(GPUCTL_VAST_URL=w.sim.url + "/vast", GPUCTL_VAST_API_KEY=KEYS["vast"])
    before = len(w.sim.requests(MARKET))
    asked_at_all = lambda: [m["provider"] for m in w.json("offers", "--gpu", "H100,H200")["providers"]]
    assert asked_at_all() == ["vast"], asked_at_all()
    w.run("instances")
    for wrong in ("hf_unknown", "two words"):
        w.env["HF_TOKEN"] = wrong
        assert asked_at_all() == ["vast"], wrong
        w.run("instances")
        assert b"UNKNOWN" not in w.run("ps").stderr
    assert len(w.sim.requests(MARKET)) == before, w.sim.requests(MARKET)[before:]
    w.env["HF_TOKEN"] = KEYS[MARKET]
    shows = ["--", "sh", "-c", 'echo "token=$HF_TOKEN"']
    assert w.rent(*RENT, "--name", "none", *shows).stdout == b"token=\n"
    asked = b"token=%s\n" % KEYS[MARKET].encode()
    assert w.rent(*RENT, "--name", "secret", "--secret", "HF_TOKEN", *shows).stdout == asked
    assert w.rent(*RENT, "--name", "named", "-e", "HF_TOKEN=hf_of_the_job",
                  *shows).stdout == b"token=hf_of_the_job\n"
    # The key by its other name is for gpuctl alone.
    done = w.rent(*RENT, "--name", "key", "--secret", "HUGGINGFACE_API_KEY", *shows, code=None,
                  HUGGINGFACE_API_KEY=KEYS[MARKET])
    assert done.returncode != 0 and b"is the key of your account" in done.stderr, done


def test_an_account_without_money(w):
    begin(w)
    w.sim.fault(MARKET, "create", "no_funds")
    done = w.rent(*RENT, "--name", "poor", "--", "true", code=None)
    assert done.returncode != 0 and b"Pre-paid credit balance is insufficient" in done.stderr, done
    assert w.books() == [], w.books()


if __name__ == "__main__":
    run_tests(globals())

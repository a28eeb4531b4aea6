#!/usr/bin/env python3
"""What lists, plans and records tell of rented machines.

  told_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import os
import signal

from batches_money import only_offers
from rent_world import open_gate, run_tests
from runs import Terminal, wait_until

GPU = ["--gpu", "RTX-4090", "--provider", "vast", "--time", "1h"]


def test_lists_name_the_run_with_its_number(w):
    for _ in range(2):
        w.rent("--name", "first", *GPU, "--", "true")
    assert len(w.creates()) == 1, w.creates()
    (seen,) = w.json("instances")["instances"]
    assert [run["name"] for run in seen["lease"]["runs"]] == ["first-1", "first-2"], seen
    assert b"first-2" in w.run("instances").stdout
    report = w.json("cost")
    rows = {row["key"]: row["spent_high_usd"] for row in report["rows"]}
    assert {"first-1", "first-2"} <= set(rows) <= {"first-1", "first-2", "(idle)"}, rows
    assert abs(sum(rows.values()) - report["total"]["spent_high_usd"]) < 1e-6, report
    # Nothing that was spent looks like nothing.
    lines = w.run("cost").stdout.decode().splitlines()
    assert lines[-1].startswith("total "), lines
    for line in lines[1:]:
        assert " $0.00 " not in line and " $0.0000 " not in line, lines
    w.run("down", "--all", "-y", "--force")


def test_the_record_of_a_run_keeps_its_own_limits(w):
    w.rent("--name", "short", *GPU, "--idle", "5m", "--", "true")
    assert w.json("show", "short-1")["machine_limits"]["idle_s"] == 300
    assert b"machine's" not in w.run("show", "short-1").stdout
    done = w.rent("--name", "long", *GPU, "--idle", "30m", "--", "true")
    assert len(w.creates()) == 1 and b"using vast/" in done.stderr, done
    assert b"its limits rise for this run: idle 5m 00s -> 30m 00s" in done.stderr, done
    shown = w.json("show", "short-1")
    assert shown["limits"]["idle_s"] == 300 and shown["machine_limits"]["idle_s"] == 1800, shown
    text = w.run("show", "short-1").stdout
    assert b"idle 5m 00s" in text and b"idle 30m 00s" in text and b"later runs changed them" in text
    shown = w.json("show", "long-1")
    assert shown["limits"] == shown["machine_limits"], shown
    w.run("down", "--all", "-y", "--force")


def test_a_machine_with_results_of_others_has_money_for_the_next_run(w):
    """What waits there for two hours is paid for beside a run that needs little."""
    saves = ["--checkpoints", "out", "--", "bash", "-c", "mkdir -p out; date > out/w; sleep 1"]
    w.rent("--name", "first", *GPU[:4], "--time", "2m", *saves)
    for name, limits in (("short", ["--salvage", "5m"]), ("cheap", ["--cost", "0.30"])):
        done = w.rent("--name", name, *GPU[:4], "--time", "2m", *limits, *saves)
        assert len(w.creates()) == 1 and b"using vast/" in done.stderr, done
    w.run("submit", "-y", "--name", "some", *GPU[:4], "--time", "30s", "--salvage", "5m", "--max-cost", "1",
          "--sweep", "a=1,2", *saves)
    w.run("wait", "--batch", "some")
    assert len(w.creates()) == 1, w.creates()
    w.run("down", "--all", "-y", "--force")


def test_a_run_whose_end_nobody_saw_keeps_no_machine(w):
    """It failed while no gpuctl followed it. --down and down end the machine all the same."""
    gate = os.path.join(w.dir, "go")
    os.mkfifo(gate)

    def fail_unseen(name):
        w.rent("-d", "--name", name, *GPU, "--", "bash", "-c", "read x < %s; exit 3" % gate)
        open_gate(gate)
        # Each job has a shim.
        wait_until(lambda: not w.running(b"gpuctl-shim"), "the end of " + name)
        # The node has answered somebody since then, and knows the end.
        w.run("exec", name + "-1", "--", "true", code=None)
    fail_unseen("early")
    done = w.rent("--name", "last", *GPU, "--down", "--", "true")
    assert len(w.creates()) == 1 and b"rented and idle" in done.stderr, done
    assert b"uses it now" not in done.stderr and w.alive() == [], done
    fail_unseen("again")
    w.rent("--name", "done", *GPU, "--", "true")
    done = w.run("down", "-y", "done-1")
    assert w.alive() == [] and len(w.creates()) == 2, done
    assert [w.json("show", name)["status"] for name in ("early-1", "again-1")] == ["failed"] * 2


def test_a_silent_machine_keeps_the_runs_that_may_be_live(w):
    """Nobody saw the end of an earlier run, and its node does not answer: down names it and stays."""
    gate = os.path.join(w.dir, "go")
    os.mkfifo(gate)
    w.rent("-d", "--name", "early", *GPU, "--", "bash", "-c", "read x < %s; exit 3" % gate)
    open_gate(gate)
    wait_until(lambda: not w.running(b"gpuctl-shim"), "its end")
    w.rent("--name", "last", *GPU, "--", "true")
    frozen = w.running(b"gpuctl-agent")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    done = w.run("down", "-y", "last-1", code=1)
    assert b"stays: early-1 uses it now" in done.stderr and b"ends the machine for both" in done.stderr, done
    (machine,) = w.alive()
    done = w.run("logs", "early-1", code=None)
    assert b"link closed" not in done.stderr and b"does not answer" in done.stderr, done
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    w.run("down", "-y", "last-1")
    assert w.alive() == [], machine


def test_a_run_that_joins_says_whose_limits_it_raises(w):
    gate = os.path.join(w.dir, "go")
    os.mkfifo(gate)
    eight = ["--gpu", "H100:8", "--salvage", "10m", "--gpus", "4", "--no-workdir"]
    w.run("submit", "-y", "--name", "wide", *eight, "--time", "1h", "--idle", "5m", "--", "bash", "-c",
          "read x < " + gate)
    done = w.run("submit", "-y", "--name", "late", *eight, "--time", "1h", "--idle", "40m", "--", "true")
    assert len(w.creates()) == 1, done
    assert b"late-1 raises the limits of its machine " in done.stderr, done
    assert b"idle 5m 00s -> 40m 00s" in b" ".join(done.stderr.split()), done
    open_gate(gate)
    w.run("wait", "--batch", "wide")
    w.run("wait", "--batch", "late")
    w.run("down", "--all", "-y", "--force")


def test_two_launches_on_one_machine_say_that_they_share(w):
    gate = os.path.join(w.dir, "go")
    os.mkfifo(gate)
    w.rent("-d", "--name", "one", *GPU, "--", "bash", "-c", "read x < " + gate)
    done = w.run("launch", "--name", "two", "--no-workdir", "--on", "one-1", "--", "true")
    text = b" ".join(done.stderr.split())
    assert b"one-1 is live on vast/" in text and b"shares all GPUs there with it" in text, done
    assert b"HINT: with --gpus 1 each run gets a GPU of its own" in text, done
    done = w.run("launch", "--name", "three", "--no-workdir", "--on", "one-1", "--gpus", "0", "--",
                 "true")
    assert b"shares all GPUs" not in done.stderr, done
    open_gate(gate)
    w.run("wait", "one-1")
    # One that is over shares with nobody.
    done = w.run("launch", "--name", "four", "--no-workdir", "--on", "one-1", "--", "true")
    assert b"shares all GPUs" not in done.stderr, done
    w.run("down", "--all", "-y", "--force")


def test_resume_asks_for_the_gpu_that_the_run_had(w):
    w.rent("--name", "lost", "--provider", "vast", "--time", "1h", "--", "bash", "-c", "exit 3", code=3)
    gpu = w.leases()[0]["gpu_name"]
    w.run("down", "--all", "-y", "--force")
    done = w.run("resume", "lost-1", "--anew", "--dry-run")
    assert ("lost-1 had %s, and goes on with the same" % gpu).encode() in done.stderr, done
    assert ("gpu       %s:1" % gpu).encode() in done.stdout, done
    # What is typed counts, and a machine of the user's own is not asked for it.
    done = w.run("resume", "lost-1", "--anew", "--dry-run", "--gpu", "H100")
    assert b"goes on with the same" not in done.stderr and b"gpu       H100" in done.stdout, done
    done = w.run("resume", "lost-1", "--anew", "--dry-run", "--provider", "local")
    assert b"goes on with the same" not in done.stderr, done


def test_an_idle_machine_that_is_not_used_is_told(w):
    w.rent("--name", "small", *GPU, "--", "true")
    h100 = ["--gpu", "H100", "--time", "1h", "--no-workdir", "--", "true"]
    text = b" ".join(w.run("launch", "--dry-run", *h100).stdout.split())
    assert b"(RTX-4090) is idle and bills, and is not used: it has other GPUs" in text, text
    done = w.run("launch", "-y", *h100)
    assert b"is idle and bills, and is not used: it has other GPUs" in b" ".join(done.stderr.split()), done
    # Both bill on now. What they have in common is said once.
    said = w.run("ps").stderr.decode()
    assert "2 machines bill on, and their runs are over, $" in said, said
    assert said.count("gpuctl down") == 1 and said.count("it ends itself in ") == 2, said
    w.run("down", "--all", "-y", "--force")


def test_fewer_offers_than_machines_are_a_warning(w):
    only_offers(w, 0.20, 0.60)
    args = ["--name", "scarce", *GPU, "--sweep", "v=1,2", "--no-workdir"]
    done = w.run("submit", "--dry-run", *args, "--max-parallel", "2", "--", "true")
    text = " ".join(done.stdout.decode().split())
    assert "warning 1 machine fits within that price, and 2 are asked for" in text, text
    assert "--max-price 0.6" in text, text
    for more in (["--max-parallel", "2", "--max-price", "1"], ["--max-parallel", "1"]):
        text = w.run("submit", "--dry-run", *args, *more, "--", "true").stdout
        assert b"are asked for" not in text, text


def test_top_tells_of_idle_machines_and_of_runs_that_wait(w):
    w.run("submit", "-y", "--name", "held", "--provider", "vast", "--gpu", "RTX-4090", "--no-workdir",
          "--sweep", "v=1,2", "--", "true")
    w.run("wait", "--batch", "held", "--timeout", "3m")
    done = w.run("queue", "held")
    assert b"bills on, $" in done.stderr and b"gpuctl down --batch held ends it now" in done.stderr, done
    done = w.run("reap", "--dry-run")
    assert b"no leaks" in done.stderr and b"1 machine of yours bills, $" in done.stderr, done
    waits = ["--provider", "vast", "--gpu", "H100:8", "--max-price", "0.01", "--no-workdir"]
    w.run("launch", "-d", "--provider", "local", "--no-workdir", "--name", "first", "--", "sleep", "60")
    w.run("submit", "-y", "--name", "last", "--after", "first-1", *waits, "--", "true")
    (machine,) = w.alive()
    terminal = Terminal(w, "top", rows=30, columns=120)
    terminal.until(b"vast/%s is idle and bills $" % str(machine["id"]).encode())
    terminal.until(b"1 run of last waits; gpuctl wait --batch last goes on with it")
    terminal.type(b"q")
    assert terminal.finish() == 0, terminal.text
    w.run("stop", "first-1")
    w.run("down", "--all", "-y", "--force")


def test_eighty_columns_break_no_words(w):
    w.rent("--name", "narrow", *GPU, "--", "true")
    w.run("submit", "--name", "a-name-of-some-length", "--every", "0 3 * * *", "--host", "local",
          "--no-workdir", "--", "true")
    for verb in ("instances", "queue"):
        terminal = Terminal(w, verb, columns=80)
        assert terminal.finish() == 0, terminal.text
        for line in terminal.text.decode().splitlines():
            # What is no table is broken by the terminal.
            assert len(line.rstrip()) <= 80 or line.startswith(("HINT: ", "gpuctl: ")), line
    terminal = Terminal(w, "instances", columns=80)
    terminal.finish()
    assert b"narrow-1" in terminal.text and b"idle, ends in" in b" ".join(terminal.text.split()), \
        terminal.text
    w.run("cancel", "a-name-of-some-length")
    w.run("down", "--all", "-y", "--force")


if __name__ == "__main__":
    run_tests(globals())

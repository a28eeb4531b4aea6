#!/usr/bin/env python3
"""Runs that share a rented machine.

  slots_rented.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import os

from rent_world import open_gate, run_tests
from runs import Terminal, wait_until

GPU = ("--gpu", "RTX4090", "--provider", "vast", "--time", "1h")


def run_of(w, name):
    return next(run for run in w.json("ps", "-a")["runs"] if run["name"] == name)


def test_a_run_joins_the_machine_of_another(w):
    gates = [os.path.join(w.dir, name) for name in ("first.gate", "second.gate")]
    for gate in gates:
        os.mkfifo(gate)
    w.rent("-d", "--name", "first-1", "--gpus", "1", "--idle", "20m", *GPU, "--", "bash", "-c",
           "read line < " + gates[0])
    limit = w.leases()[0]["cost_usd"]
    done = w.run("launch", "-d", "--no-workdir", "--name", "second-1", "--on", "first-1", "--gpus",
                 "1", "--time", "20h", "--", "bash", "-c", "read line < " + gates[1])
    assert len(w.alive()) == 1 and len(w.creates()) == 1, done
    first, second = (run_of(w, name) for name in ("first-1", "second-1"))
    assert second["status"] == "queued" and second["node"] == first["node"], second
    assert second["lease"]["lease_id"] == first["lease"]["lease_id"], second
    # The machine keeps its limits.
    assert w.leases()[0]["cost_usd"] == limit, w.leases()
    # It is not idle, and no other launch takes it.
    plan = w.json("launch", *GPU, "--dry-run", "--no-workdir", "--run", "true")["plan"]
    assert plan["node"] is None, plan
    open_gate(gates[0])
    wait_until(lambda: run_of(w, "second-1")["status"] == "running", "the second one runs")
    assert run_of(w, "second-1")["gpu_ids"], "it has a GPU of its own"
    # By the machine's name.
    done = w.run("launch", "--no-workdir", "--name", "third-1", "--on", first["node"], "--gpus",
                 "0", "--", "true")
    assert len(w.alive()) == 1 and run_of(w, "third-1")["node"] == first["node"], done
    open_gate(gates[1])
    w.run("wait", "second-1")
    w.run("down", "-y", "--force", "second-1")
    done = w.run("launch", "--on", "first-1", "--no-workdir", "--", "true", code=1)
    assert b"is gone, or is being ended" in done.stderr, done


def test_a_quarter_of_a_machine_and_another_one(w):
    """The lines of docs/run-file.md."""
    gates = [os.path.join(w.dir, name) for name in ("one.gate", "two.gate")]
    for gate in gates:
        os.mkfifo(gate)
    w.rent("-d", "--name", "one-1", "--gpu", "H100:8", "--gpus", "2", "--", "bash", "-c",
           "read line < " + gates[0])
    w.run("launch", "-d", "--no-workdir", "--name", "two-1", "--on", "@last", "--gpus", "2", "--",
          "bash", "-c", "read line < " + gates[1])
    own = [run_of(w, name)["gpu_ids"] for name in ("one-1", "two-1")]
    assert [len(gpus) for gpus in own] == [2, 2] and not set(own[0]) & set(own[1]), own
    assert len(w.alive()) == 1, w.alive()
    for gate in gates:
        open_gate(gate)
    w.run("wait", "one-1", "two-1")
    w.run("down", "-y", "--force", "two-1")


def test_down_ends_no_machine_under_other_runs(w):
    gates = [os.path.join(w.dir, name) for name in ("stays.gate", "goes.gate")]
    for gate in gates:
        os.mkfifo(gate)
    w.rent("-d", "--name", "stays-1", "--gpu", "H100:8", "--gpus", "2", "--", "bash", "-c",
           "read line < " + gates[0])
    w.run("launch", "-d", "--no-workdir", "--name", "goes-1", "--on", "@last", "--gpus", "2", "--",
          "bash", "-c", "read line < " + gates[1])
    # The newest run on the machine, live and then over.
    for _ in range(2):
        done = w.run("down", "-y", "--force", "goes-1", code=1)
        assert b"stays: stays-1 uses it now" in done.stderr, done
        assert run_of(w, "stays-1")["status"] == "running" and len(w.alive()) == 1, done
        w.run("stop", "goes-1", code=None)
        assert b"bills on" not in w.run("ps").stderr
    open_gate(gates[0])
    w.run("wait", "stays-1")
    assert b"bills on" in w.run("ps").stderr
    done = w.run("down", code=2)
    assert b"no run is live, and 1 machine is rented" in done.stderr, done
    w.run("down", "-y", "--force", "goes-1")
    assert w.alive() == [], w.alive()


def test_down_asks_once_and_names_all_its_runs(w):
    gates = [os.path.join(w.dir, name) for name in ("one.gate", "two.gate")]
    for gate in gates:
        os.mkfifo(gate)
    w.rent("-d", "--name", "one-1", "--gpu", "H100:8", "--gpus", "2", "--checkpoints", "step-*", "--",
           "bash", "-c", "trap 'mkdir step-2; echo 2 > step-2/w; exit 143' TERM; mkdir step-1; "
           "echo '{}' > step-1/w.json; read line < " + gates[0])
    w.run("launch", "-d", "--no-workdir", "--name", "two-1", "--on", "@last", "--gpus", "2", "--",
          "bash", "-c", "read line < " + gates[1])
    wait_until(lambda: b"step 1" in w.run("pull", "one-1", "--checkpoint", "2", code=1).stderr or
               b"step-1" in w.run("pull", "one-1", "--checkpoint", "2", code=1).stderr,
               "the node lists the checkpoint")
    terminal = Terminal(w, "down", "one-1", "two-1")
    terminal.until(b"[y/N]")
    text = b" ".join(terminal.text.split())
    assert b"Not at home, and lost then: one-1: 1 checkpoint" in text, text
    assert b"so is what they save as they stop. HINT: gpuctl pull one-1 brings" in text, text
    assert b" and stop one-1, two-1? [y/N]" in text, text
    terminal.type(b"y\n")
    assert terminal.finish() == 0
    assert terminal.text.count(b"[y/N]") == 1, terminal.text
    assert b"lost with the machine: one-1: 1 checkpoint" in terminal.text, terminal.text
    assert b"work/step-2" in terminal.text, terminal.text
    assert w.alive() == [], w.alive()
    # Of a machine without a live run, too.
    w.rent("--name", "ended-1", "--artifacts", "out.txt", *GPU, "--", "bash", "-c", "echo 1 > out.txt")
    terminal = Terminal(w, "down", "ended-1")
    terminal.until(b"[y/N]")
    text = b" ".join(terminal.text.split())
    assert b"Not at home, and lost then: ended-1: 1 file" in text, text
    assert b" of ended-1? [y/N]" in text, text
    terminal.type(b"n\n")
    assert terminal.finish() == 1 and len(w.alive()) == 1, terminal.text
    w.run("down", "-y", "--force", "ended-1")


def test_a_share_of_no_machine_rents_none(w):
    done = w.run("launch", "-y", "--no-workdir", "--gpus", "2", "--", "true", code=2)
    assert b"nothing says which machine is rented" in done.stderr, done
    done = w.run("launch", "-y", "--no-workdir", *GPU, "--gpus", "2", "--", "true", code=2)
    assert b"2 GPUs of a machine with 1" in done.stderr, done
    assert w.creates() == [], w.creates()


if __name__ == "__main__":
    run_tests(globals())

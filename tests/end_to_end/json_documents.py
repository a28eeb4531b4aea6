#!/usr/bin/env python3
"""Gets the JSON documents that no other test gets, so that each one of docs/schemas is held to it.

  json_documents.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

json_check.py compares each with its schema; what is looked at here is that the document came.
"""
import fcntl
import os

import json_check
from fine_tune import write_model, write_rows
from markets import rent_gated
from rent_world import open_gate, run_tests, write
from simulator import KEYS
from volumes import make_volume

OWN = ["--provider", "local", "--no-workdir"]
RENT = ["--provider", "vast", "--gpu", "RTX4090"]
SAVES = "mkdir -p ckpt/step-1; echo weights > ckpt/step-1/w.bin; echo done > result.txt"


def has(w, verb, *documents, args=(), code=0, **env):
    """Runs the verb as JSON. Expects that stdout has these documents of its schema, in order."""
    args = list(args)
    at = args.index("--") if "--" in args else len(args)
    kind = ["-o", env.pop("kind", "json")]
    done = w.run(verb, *args[:at], *kind, *args[at:], code=code, **env)
    found = [json_check.check_document(verb, json_check.read_strictly(line))
             for line in (done.stdout.splitlines() if verb != "run-schema" else [done.stdout])]
    if json_check.CAN_CHECK:
        assert found == list(documents), (verb, args, found, done)


def lines(w, verb, *documents, **more):
    has(w, verb, *documents, kind="jsonl", **more)


def on_this_machine(w):
    w.env["GPUCTL_NODE_ROOT"] = w.root
    w.env["GPUCTL_KEY_STORE"] = "file"


def test_of_runs_here(w):
    on_this_machine(w)
    git = "git init -q . && git -c user.name=n -c user.email=e@example.invalid commit -q --allow-empty -m m"
    assert os.system("cd %s && %s" % (w.work, git)) == 0
    write(w.work + "/a.txt", "a\n")
    script = "echo '{\"type\":\"step\",\"step\":1,\"loss\":2}' >> $GPUCTL_METRICS; " + SAVES
    w.run("launch", "--provider", "local", "--name", "one", "--checkpoints", "ckpt/step-*", "--artifacts",
          "*.txt", "--", "sh", "-c", script)
    w.run("launch", *OWN, "--name", "two", "--", "false", code=1)
    lines(w, "ps", "line", "line", args=["-a"])
    lines(w, "wait", "line", "line", args=["one", "two"], code=1)
    lines(w, "metrics", "line", args=["one"])
    has(w, "metrics", "files", args=["one", "--plot", "p.svg"])
    lines(w, "metrics", "file_line", args=["one", "--tensorboard", "events"])
    has(w, "show", "diff", args=["one", "--diff"])
    has(w, "tag", "result", args=["one", "best", "--note", "the note"])
    has(w, "cp", "result", args=["one:result.txt", "here.txt"])
    has(w, "debug", "replay", args=["replay", "one"])
    has(w, "debug", "man_pages", args=["man-pages", "man"])
    has(w, "pull", "result", args=["one", "--to", "home"])
    has(w, "pull", "list", args=["one", "--list"])
    has(w, "resume", "plan", args=["one", "--dry-run"])
    has(w, "resume", "result", args=["one"])
    lines(w, "rm", "line", args=["--dry-run", "two"])
    lines(w, "prune", "line", "line", "line", args=["--dry-run"])
    os.mkdir(w.work + "/small")
    write(w.work + "/small/b.txt", "b\n")
    lines(w, "sync", "dry_run_line", args=["--dry-run", "--workdir", "small"])
    has(w, "sync", "explain", args=["--explain", "a.txt"])
    lines(w, "sync", "explain_line", args=["--explain", "a.txt"])
    lines(w, "node", "line")
    has(w, "run-schema", "result")
    has(w, "down", "runs", args=["two", "-y"])
    lines(w, "down", args=["--all", "-y"])
    w.run("launch", "-d", *OWN, "--name", "long", "--", "sleep", "600")
    lines(w, "stop", "line", args=["long"])
    for verb in ("logs", "exec", "ssh"):
        done = w.run(verb, "no-such", "--json", *(["--", "true"] if verb == "exec" else []), code=2)
        assert json_check.check_document(verb, json_check.read_strictly(done.stdout)) == \
            "error_document", done
    done = w.run("no-such-verb", "--json", code=2)
    json_check.check_document("error", json_check.read_strictly(done.stdout))


def test_of_packages(w):
    on_this_machine(w)
    w.run("launch", *OWN, "--name", "python", "--", "true")
    has(w, "show", "packages", args=["python", "--packages"])


def test_of_settings_and_keys(w):
    on_this_machine(w)
    has(w, "config", "setting", args=["set", "max_price", "3"])
    has(w, "config", "setting", args=["get", "max_price"])
    has(w, "config", "path", args=["path"])
    has(w, "config", "unset", args=["unset", "max_price"])
    with open(w.dir + "/key", "w", encoding="utf-8") as file:
        file.write(KEYS["vast"])
    done = w.run("login", "vast", "--json", stdin=KEYS["vast"].encode())
    assert json_check.read_strictly(done.stdout)["action"] == "stored", done
    done = w.run("login", "--secret", "TOKEN", "--json", stdin=b"value")
    assert json_check.read_strictly(done.stdout)["secret"] == "TOKEN", done


def test_of_batches(w):
    on_this_machine(w)
    grid = ["submit", "--host", "local", "--no-workdir", "--sweep", "v=1,2"]
    has(w, "submit", "plan", args=[*grid[1:], "--name", "grid", "--dry-run", "--", "echo", "{v}"])
    has(w, "submit", "result", args=[*grid[1:], "--name", "grid", "--", "sh", "-c", "echo loss=0.{v}"])
    has(w, "wait", "batches", args=["--batch", "grid", "--timeout", "50s"])
    lines(w, "wait", "batch_line", args=["--batch", "grid", "--timeout", "50s"])
    lines(w, "queue", "line", args=["grid"])
    has(w, "queue", "results", args=["grid", "--results"])
    has(w, "pull", "several", args=["--batch", "grid"], code=1)
    lines(w, "pull", "several_line", "several_line", args=["grid-1", "grid-2"], code=1)
    lines(w, "queue", "results_line", "results_line", args=["grid", "--results"])
    has(w, "queue", "pass", args=["--pass", "--patience", "1"])
    w.run(*grid, "--name", "held", "--", "sleep", "600")
    lines(w, "cancel", "line", "line", args=["held", "--running"])


def fake_scheduler(w):
    """A crontab in a file, and no user manager."""
    write(w.dir + "/fake/systemctl", "#!/bin/sh\nexit 1\n", 0o755)
    write(w.dir + "/fake/crontab", """#!/bin/sh
table=%s/crontab.txt
case $1 in
  -l) cat "$table" 2>/dev/null || { echo "no crontab for you" >&2; exit 1; } ;;
  -r) rm -f "$table" ;;
  -) cat > "$table" ;;
  *) cat "$1" > "$table" ;;
esac
""" % w.dir, 0o755)
    w.env["PATH"] = w.dir + "/fake:" + w.env["PATH"]


def test_of_keep(w):
    fake_scheduler(w)
    has(w, "keep", "result")
    has(w, "keep", "dry_run", args=["--dry-run"])
    has(w, "keep", "status", args=["--status"], code=None)
    # A scheduler would not see these keys.
    keys = {name: w.env.pop(name) for name in list(w.env) if name.endswith("_API_KEY")}
    has(w, "keep", "schedule_dry_run", args=["--install", "--dry-run"])
    has(w, "keep", "schedule", args=["--install"])
    has(w, "keep", "wish", args=["--wish", "w-none"])
    has(w, "reap", "schedule", args=["--uninstall"])
    w.env.update(keys)
    lock = w.env["GPUCTL_STATE_DIR"] + "/locks/keep"
    with open(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        has(w, "keep", "busy")
    has(w, "reap", "result", args=["-y", "--no-wait"])


def test_of_rented_machines(w):
    script = w.dir + "/project"
    write(script + "/train.sh", SAVES + "\n", 0o755)
    job = ["-y", *RENT, "--time", "10m", "--workdir", script, "--checkpoints", "ckpt/step-*", "--artifacts",
           "*.txt", "--", "bash", "train.sh"]
    at = job.index("--")
    has(w, "launch", "result", args=[*job[:at], "--down", "--name", "whole", *job[at:]])
    has(w, "launch", "result", args=["-d", *job[:at], "--name", "left", *job[at:]])
    w.run("wait", "left")
    lines(w, "instances", "line")
    lines(w, "offers", *["line"] * len(w.json("offers", *RENT)["offers"]), args=RENT)
    assert w.run("offers", *RENT, "-q").stdout.split()[0].startswith(b"vast/")
    has(w, "down", "result", args=["left", "-y", "--force"])
    has(w, "launch", "result", args=["-d", *job[:at], "--name", "again", *job[at:]])
    w.run("wait", "again")
    lines(w, "down", "line", args=["again", "-y", "--force"])
    lines(w, "cost", "line", "line", "line")
    make_volume(w, "runpod")
    lines(w, "volumes", "line")


def test_of_price_rises(w):
    gate, instance = rent_gated(w, "dear", "--max-price", "0.50")
    w.sim.change("vast", instance, "announce_price", factor=2, traffic_factor=3, in_s=86400)
    lines(w, "price", "line")
    assert w.run("price", "-q").stdout.decode().split() == [instance]
    has(w, "price", "answer", args=["dear", "--refuse", "-y"])
    open_gate(gate)
    w.run("wait", "dear")
    w.run("down", "dear", "--force")


def test_of_data(w):
    write_model(w.work + "/model", max_position_embeddings=4096)
    write_rows(w.work + "/rows.jsonl")
    has(w, "prepare", "result", args=["rows.jsonl", "--model", "model", "--out", "data"])


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""Text that came from a job, a node or a market acts on no terminal and forges no line of ours.

  hostile_text.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

Every text that gpuctl once gets from elsewhere is a hostile one here; every verb that may show it
runs on a terminal, into a pipe and as JSON. What a job itself prints is shown raw by design where
no panel is.
"""
import contextlib
import json
import os
import shutil
import sqlite3
import sys
import time
import traceback

from hostile_words import LINE, TEXT, Sheet, Wide, Words, show
from runs import Laptop, open_gate

JOB = rb"""
import hashlib, json, os, sys
out = %(output)r
os.write(1, out)
with open(os.environ["GPUCTL_METRICS"], "w") as metrics:
    for step in (1, 2):
        metrics.write(json.dumps({"type": "step", "step": step, "loss": 0.5, %(metric)r: 1.0,
                                  "message": %(message)r}) + "\n")
os.makedirs(b"out")
for name in %(artifacts)r:
    open(b"out/" + name, "w").write("one")
for name in %(checkpoints)r:
    os.makedirs(b"ck/" + name)
    open(b"ck/" + name + b"/weights", "w").write("two")
root = os.environ["GPUCTL_CHECKPOINT_DIR"]
os.makedirs(root + "/.tmp")
for name in %(weights)r:
    open(os.fsencode(root) + b"/.tmp/" + name, "w").write("three")
sha = hashlib.sha256(b"three").hexdigest()
json.dump({"format": 1, "step": 2, "files": [
    {"path": name.decode("utf-8", "replace"), "size": 5, "sha256": sha}
    for name in %(weights)r]}, open(root + "/.tmp/manifest.json", "w"))
os.rename(root + "/.tmp", root + "/step-00000002")
if len(sys.argv) > 1:
    open(sys.argv[1]).read()
sys.exit(3)
"""


def write_job(laptop, words):
    """A job that gives hostile text wherever a job can; the path of its work directory."""
    home = os.path.join(laptop.dir, "project")
    os.mkdir(home)
    with open(os.path.join(home, "job.py"), "wb") as file:
        file.write(JOB % {
            b"output": output(words), b"metric": words.text("metric name"),
            b"message": words.text("metric text"), b"artifacts": words.names("artifact name"),
            b"checkpoints": words.names("checkpoint name"),
            b"weights": words.names("checkpoint's file", TEXT)})
    return home


def output(words):
    mark = words.mark("output")
    return b"".join(mark + part + mark + b"\n" for part in LINE)


def change(path, *statements):
    """Each is SQL with its values; all in one transaction."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for sql, *values in statements:
            database.execute(sql, values)


@contextlib.contextmanager
def kept(*folders):
    """What a verb changes in them is undone."""
    for folder in folders:
        shutil.copytree(folder, folder + ".kept", symlinks=True)
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)
            os.rename(folder + ".kept", folder)


def launch_job(l, words, name, *args, code=3):
    home = os.path.join(l.dir, "project")
    if not os.path.isdir(home):
        write_job(l, words)
    return ["launch", *(["-d"] if args else []), "-y", "--workdir", home, "--name", name,
            "--checkpoints", "ck/*", "--artifacts", "out/**", "--", sys.executable, "job.py", *args]


def run_dir(l, name):
    runs = l.json("ps", "-a")["runs"]
    (run,) = [run["run_id"] for run in runs if run["name"] == name]
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", run)


def test_what_a_job_writes(l, words, sheet):
    raw = output(words)
    show(l, sheet, *launch_job(l, words, "odd"), raw=raw, name="launch")
    gate = os.path.join(l.dir, "gate")
    os.mkfifo(gate)
    l.run(*launch_job(l, words, "held", gate))
    attach = Wide(l, "attach", "held")
    attach.until(b"Ctrl-C detaches", times=4)
    attach.until(words.mark("output"))
    open_gate(gate)
    sheet.look("attach (panel)", attach.finish())
    for args in (["logs", "odd"], ["attach", "odd"], ["debug", "replay", "odd"]):
        show(l, sheet, *args, raw=raw)
    work, state = l.work, l.env["GPUCTL_STATE_DIR"]
    for args in (["ps"], ["ps", "-a"], ["metrics", "odd"], ["metrics", "odd", "held"],
                 ["wait", "odd"], ["stop", "odd"], ["debug", "job", "odd"], ["verify", "odd"],
                 ["doctor"], ["down", "odd", "-y"], ["resume", "odd", "-y", "--dry-run"],
                 ["pull", "odd", "no-such-thing"], ["pull", "odd", "--checkpoint", "77"],
                 ["cp", "odd:out", "copied"], ["cp", "odd:nothing", "copied"],
                 ["sync", "odd"], ["sync", "--dry-run", "--workdir", "copied"]):
        show(l, sheet, *args)
    for mode in ("terminal", "pipe", "json"):
        with kept(work, state):
            for args in (["pull", "odd", "--to", "home"], ["pull", "odd", "--to", "home"],
                         ["pull", "odd", "**", "--to", "home"], ["verify", "odd", "--read-data"]):
                show(l, sheet, *args, modes=[mode])
            damage(os.path.join(work, "home"))
            for args in (["verify", "odd"], ["verify", "odd", "--read-data"],
                         ["pull", "odd", "--to", "home"], ["prune", "--dry-run"],
                         ["rm", "odd", "--dry-run"], ["rm", "odd"]):
                show(l, sheet, *args, modes=[mode])
    show(l, sheet, "rm", "odd", "--force", modes=["terminal"])
    show(l, sheet, "prune", "-y", modes=["terminal"])
    return ["metric name", "metric text"]


def damage(folder):
    for parent, _, names in os.walk(os.fsencode(folder)):
        for number, name in enumerate(sorted(names)):
            path = os.path.join(parent, name)
            if number % 2:
                os.unlink(path)
            else:
                with open(path, "ab") as file:
                    file.write(b"more")


def row_of(l, name):
    path = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT run_id, target FROM runs WHERE name = ?",
                                [name]).fetchone()


def alter_runs(l, words):
    """What nodes once said, in the laptop's files; each run has it in another way."""
    database = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    for name in ("by-row", "by-lines", "by-error", "far", "unheard"):
        l.run("launch", "--no-workdir", "--name", name, "--", "bash", "-c", "exit 3", code=3)
    text = "UPDATE runs SET %s = CAST(? AS TEXT) WHERE name = ?"
    change(database, *[
        (text % column, words.bytes("runs." + column), "by-row")
        for column in ("end_reason", "node_id", "command", "workdir", "end_state", "end_source")])
    change(database, ("UPDATE runs SET exit_code = 119, end_source = 'gpuctl' WHERE name = ?",
                      "by-row"))
    open_again = "UPDATE runs SET end_state = NULL, exit_code = NULL, ended_ms = NULL, " \
                 "end_source = NULL, end_reason = NULL, job_code = NULL WHERE name = ?"
    change(database, (open_again, "by-lines"), (open_again, "by-error"), (open_again, "unheard"))
    for name, key in (("by-lines", "reason"), ("by-error", "error")):
        path = os.path.join(run_dir(l, name), "lifecycle.jsonl")
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        lines[0]["boot_id"] = words.text("lifecycle boot_id")
        lines[-1][key] = words.text("lifecycle " + key)
        if key == "error":
            lines[-1]["exit_code"] = 127
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    target = json.loads(row_of(l, "far")[1])
    target.update(name=words.text("target name"), provider="ssh", host=words.text("target host"),
                  user=words.text("target user"))
    change(database, ("UPDATE runs SET target = ?, target_name = ? WHERE name = ?",
                      json.dumps(target), target["name"], "far"))
    folder = run_dir(l, "by-lines")
    with open(folder + "/metrics.jsonl", "w", encoding="utf-8") as file:
        for step in (1, 2):
            file.write(json.dumps({words.text("mirrored metric"): 1.0, "step": step,
                                   "loss": 0.5, "type": words.text("mirrored type")}) + "\n")
    gpu = {"index": 0, "name": words.text("telemetry GPU"), "busy_percent": 7,
           "memory_used_bytes": 1 << 30, "memory_total_bytes": 1 << 34}
    with open(folder + "/telemetry/00000000000000000000", "w", encoding="utf-8") as file:
        file.write(json.dumps({"time_ms": int(time.time() * 1000), "gpus": [gpu]}) + "\n")
    with open(folder + "/pulled.jsonl", "w", encoding="utf-8") as file:
        for kind in ("trainer", "foreign", "files"):
            file.write("\n" + json.dumps({
                "kind": kind, "step": 2, "time_ms": 1, "node_modified_ms": 1, "ours": True,
                "path": l.work + "/" + octal(words.bytes("pulled path")),
                "from": octal(words.bytes("pulled from")),
                "files": [{"path": octal(words.bytes("pulled file")), "size": 3, "sha256": "0" * 64,
                           "modified_ns": 1}]}) + "\n")


def octal(path):
    """As pulled.jsonl spells a path's bytes."""
    return "".join("\\%03o" % byte if byte < 32 or byte > 126 or byte == 92 else chr(byte)
                   for byte in path)


def test_what_the_laptop_has_stored(l, words, sheet):
    alter_runs(l, words)
    state = l.env["GPUCTL_STATE_DIR"]
    names = ["by-row", "by-lines", "by-error", "far", "unheard"]
    offline = [["ps"], ["ps", "-a"], ["doctor"], ["prune", "--dry-run"],
               ["metrics", "--offline", *names[:2]], ["instances"], ["reap", "--dry-run"]]
    each = [["wait"], ["verify"], ["verify", "--read-data"], ["attach"], ["debug", "job"],
            ["debug", "replay"], ["logs"], ["stop"], ["pull"], ["metrics"], ["down", "-y"],
            ["resume", "--dry-run"], ["rm", "--dry-run"], ["rm"], ["exec"]]
    for args in offline + [[*verb, name] for name in names for verb in each]:
        if args[0] == "exec":
            args = [*args, "--", "true"]
        if args[0] in ("wait", "attach") and args[-1] == "far":
            continue
        for mode in ("terminal", "pipe", "json"):
            with kept(state):
                show(l, sheet, *args, modes=[mode])
    # Kept, and shown by nothing.
    return ["lifecycle boot_id", "mirrored metric", "mirrored type", "pulled from",
            "runs.end_source", "runs.end_state", "runs.workdir", "target user", "telemetry GPU"]


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    for name in sys.argv[4:] or list(tests):
        begin = time.monotonic()
        words = Words()
        sheet = Sheet(words)
        laptop = Laptop(*sys.argv[1:3])
        try:
            hidden = tests[name](laptop, words, sheet)
            sheet.check(hidden or ())
            print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:
            failed.append(name)
            print("FAILED %s (%.1f s)\n%s" % (name, time.monotonic() - begin,
                                              traceback.format_exc()), flush=True)
        finally:
            laptop.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

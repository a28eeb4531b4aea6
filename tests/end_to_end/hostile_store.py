#!/usr/bin/env python3
"""Text in the laptop's files must not act on a terminal or forge a line of ours.

  hostile_store.py GPUCTL FAKE_JOB

The list of runs and the mirrors have the words of nodes and jobs. Here all of them are hostile.
"""
import contextlib
import json
import os
import sys
import time

from hostile_words import show
from hostile_world import change, kept, row_of, run, run_dir
from runs import Laptop


def alter_runs(l, words):
    """Puts hostile texts of nodes into the laptop's files, in another way for each run."""
    database = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    for name in ("by-row-1", "by-lines-1", "by-error-1", "far-1", "unheard-1"):
        l.run("launch", "--no-workdir", "--name", name, "--", "bash", "-c", "exit 3", code=3)
    text = "UPDATE runs SET %s = CAST(? AS TEXT) WHERE name = ?"
    change(database, *[
        (text % column, words.bytes("runs." + column), "by-row-1")
        for column in ("end_reason", "node_id", "command", "workdir", "end_state", "end_source")])
    change(database, ("UPDATE runs SET exit_code = 119, end_source = 'gpuctl' WHERE name = ?",
                      "by-row-1"))
    open_again = "UPDATE runs SET end_state = NULL, exit_code = NULL, ended_ms = NULL, " \
                 "end_source = NULL, end_reason = NULL, job_code = NULL WHERE name = ?"
    change(database, (open_again, "by-lines-1"), (open_again, "by-error-1"), (open_again, "unheard-1"))
    for name, key in (("by-lines-1", "reason"), ("by-error-1", "error")):
        path = os.path.join(run_dir(l, name), "lifecycle.jsonl")
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        lines[0]["boot_id"] = words.text("lifecycle boot_id")
        lines[-1][key] = words.text("lifecycle " + key)
        if key == "error":
            lines[-1]["exit_code"] = 127
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    target = json.loads(row_of(l, "far-1")[1])
    target.update(name=words.text("target name"), provider="ssh", host=words.text("target host"),
                  user=words.text("target user"))
    change(database, ("UPDATE runs SET target = ?, target_name = ? WHERE name = ?",
                      json.dumps(target), target["name"], "far-1"))
    folder = run_dir(l, "by-lines-1")
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
    """Returns a path's bytes as pulled.jsonl writes them."""
    return "".join("\\%03o" % byte if byte < 32 or byte > 126 or byte == 92 else chr(byte)
                   for byte in path)


def test_what_the_laptop_has_stored(l, words, sheet):
    alter_runs(l, words)
    state = l.env["GPUCTL_STATE_DIR"]
    names = ["by-row-1", "by-lines-1", "by-error-1", "far-1", "unheard-1"]
    offline = [["ps"], ["ps", "-a"], ["doctor"], ["prune", "--dry-run"],
               ["metrics", "--offline", *names[:2]], ["metrics", "--offline", "--csv", *names[:2]],
               ["metrics", "--offline", "--plot", "a.svg", "--tensorboard", "logs", *names[:2]],
               ["completion", "words", "--", "logs", ""], ["instances"], ["reap", "--dry-run"]]
    each = [["wait"], ["verify"], ["verify", "--read-data"], ["attach"], ["debug", "job"],
            ["debug", "replay"], ["logs"], ["stop"], ["pull"], ["metrics"], ["down", "-y"],
            ["resume", "--dry-run"], ["rm", "--dry-run"], ["rm"], ["exec"]]
    for args in offline + [[*verb, name] for name in names for verb in each]:
        if args[0] == "exec":
            args = [*args, "--", "true"]
        if args[0] in ("wait", "attach") and args[-1] == "far-1":
            continue
        for mode in ("terminal", "pipe", "json"):
            with kept(state):
                show(l, sheet, *args, modes=[mode])
    # Stored and never shown.
    return ["lifecycle boot_id", "mirrored metric", "mirrored type", "pulled from",
            "runs.end_source", "runs.end_state", "runs.workdir", "target user", "telemetry GPU"]


if __name__ == "__main__":
    with contextlib.closing(Laptop(*sys.argv[1:3])) as laptop:
        run(test_what_the_laptop_has_stored, laptop)

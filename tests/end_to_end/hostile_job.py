#!/usr/bin/env python3
"""Text that a job writes must not act on a terminal or forge a line of ours.

  hostile_job.py GPUCTL FAKE_JOB

Without a panel a job's own output is shown raw, by design. All other text is made safe.
"""
import contextlib
import os
import sys

from hostile_words import LINE, TEXT, Wide, show
from hostile_world import kept, run
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
    """Writes a job that gives hostile text wherever a job can. Returns its work directory."""
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


def launch_job(l, words, name, *args, code=3):
    home = os.path.join(l.dir, "project")
    if not os.path.isdir(home):
        write_job(l, words)
    return ["launch", *(["-d"] if args else []), "-y", "--workdir", home, "--name", name,
            "--checkpoints", "ck/*", "--artifacts", "out/**", "--", sys.executable, "job.py", *args]


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
                 ["metrics", "odd", "--csv"], ["completion", "words", "--", "logs", ""],
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


if __name__ == "__main__":
    with contextlib.closing(Laptop(*sys.argv[1:3])) as laptop:
        run(test_what_a_job_writes, laptop)

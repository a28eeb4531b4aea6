#!/usr/bin/env python3
"""stop_if and plateau: the node stops a job whose numbers say that it is not worth going on.

  alerts.py GPUCTL FAKE_JOB [TEST...]
"""
import os
import time

from runs import Patience, run_tests
from sync import write

# Saves when it is told to stop, as a training script does.
SCRIPT = """#!/bin/bash
trap 'mkdir -p ckpt; echo weights > ckpt/step-9.pt; echo saved; exit %(code)s' TERM
%(work)s
while :; do sleep 0.1; done
"""


def script(l, work, code=143):
    write(l.work + "/train.sh", (SCRIPT % {"work": work, "code": code}).encode())


def run_file(l, text):
    write(l.work + "/run.yaml", ("run: exec bash train.sh\ncheckpoints: ckpt/step-*\n" + text).encode())


def metrics(*losses):
    return "\n".join('echo \'{"step":%d,"loss":%s}\' >> "$GPUCTL_METRICS"' % (i + 1, loss)
                     for i, loss in enumerate(losses))


def test_a_loss_that_is_no_number_stops_the_job(l):
    script(l, metrics(2.5, 2.0, "NaN"))
    run_file(l, "name: nan\nstop_if: loss is nan\n")
    done = l.run("launch", "run.yaml", code=143)
    assert b"saved" in done.stdout, done
    assert b"nan-1 stopped because loss is nan at step 3; ended by SIGTERM" in done.stderr, done
    run = l.json("show", "nan")
    assert (run["status"], run["reason"], run["exit_code"], run["source"]) == (
        "stopped", "alert:loss is nan at step 3", 143, "job"), run
    assert b"loss is nan at step 3" in l.run("show", "nan").stdout
    assert l.json("wait", "nan", code=143)["runs"][0]["reason"] == "alert:loss is nan at step 3"
    listed = [row for row in l.json("ps", "-a")["runs"] if row["name"] == "nan-1"]
    assert listed[0]["status"] == "stopped" and listed[0]["reason"].startswith("alert:"), listed
    # What it saved when it was told to stop is there.
    pulled = l.json("pull", "nan", "ckpt/*")
    assert [file["path"] for file in pulled["files"]] == ["work/ckpt/step-9.pt"], pulled


def test_the_laptop_is_not_needed(l):
    script(l, "sleep 1; for s in 1 2 3 4 5; do echo \"step $s/9 loss 30.$s\"; done", code=0)
    run_file(l, "name: alone\nstop_if: [loss > 1e9, 'loss>20']\nretry: {max: 3, on: [failed]}\n")
    l.run("launch", "-d", "run.yaml")
    # Nobody is connected; the shim's own line says why it stopped.
    lifecycle = None
    patience = Patience()
    while True:
        assert patience.lasts(), lifecycle
        time.sleep(0.1)
        for job in os.listdir(l.root + "/jobs"):
            with open(os.path.join(l.root, "jobs", job, "lifecycle.jsonl"), encoding="utf-8") as file:
                lifecycle = file.read()
            if "loss > 20" in lifecycle and "exited" in lifecycle:
                break
        else:
            continue
        break
    assert "alert:loss > 20 at step 1" in lifecycle, lifecycle
    done = l.run("wait", "alone", code=0)
    assert b"stopped because loss > 20 at step 1; exited with code 0" in done.stderr, done


def test_a_loss_that_no_longer_falls(l):
    script(l, metrics(3, 2, 2, 2, 2, 2))
    run_file(l, "name: flat\nplateau: {metric: loss, steps: 4}\n")
    done = l.run("launch", "run.yaml", code=143)
    assert b"loss has not fallen for 4 steps at step 6" in done.stderr, done


def test_one_that_falls_goes_on(l):
    script(l, metrics(5, 4, 3, 2, 1) + "\nsleep 2.5; exit 0")
    run_file(l, "name: falls\nplateau: {steps: 2}\nstop_if: [loss is nan, loss > 20]\n")
    done = l.run("launch", "run.yaml")
    assert b"exited with code 0" in done.stderr, done


def test_the_guard_may_die(l):
    script(l, "while [ ! -e " + l.dir + "/go ]; do sleep 0.1; done\n" + metrics("NaN"))
    run_file(l, "name: guard\nstop_if: loss is nan\n")
    l.run("launch", "-d", "run.yaml")
    for pid in list(l.node_pids()):
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            if b"guard" in file.read().split(b"\0"):
                os.kill(pid, 9)
    write(l.dir + "/go", b"")
    # The next client starts another guard.
    l.run("wait", "guard", code=143)
    assert l.json("show", "guard")["reason"] == "alert:loss is nan at step 1"


def test_wrong_conditions_are_errors(l):
    for text, words in (("stop_if: loss is bad\n", b"is no condition"),
                        ("stop_if: [accuracy < 1]\n", b"is no metric"),
                        ("plateau: {metric: loss}\n", b"plateau.steps"),
                        ("plateau: {steps: 0}\n", b"plateau.steps must be"),
                        ("plateau: {steps: 5, min_delta: -1}\n", b"min_delta"),
                        ("plateau: {metric: lr, steps: 5}\n", b"none of loss, eval_loss"),
                        ("plateau: {metrik: loss}\n", b"did you mean")):
        run_file(l, text)
        done = l.run("launch", "run.yaml", "--dry-run", code=2)
        assert words in done.stderr and b"run.yaml:3:" in done.stderr, (text, done)


def test_like_takes_them_over(l):
    script(l, metrics("NaN"))
    run_file(l, "name: first\nstop_if: loss is nan\nplateau: {steps: 7, min_delta: 0.5}\n")
    l.run("launch", "run.yaml", code=143)
    l.run("launch", "--like", "first", "--name", "second", code=143)
    run = l.json("show", "second")
    assert run["reason"] == "alert:loss is nan at step 1", run
    assert run["spec"]["plateau"] == [{"metric": "loss", "steps": 7, "min_delta": 0.5}], run["spec"]


if __name__ == "__main__":
    run_tests(globals())

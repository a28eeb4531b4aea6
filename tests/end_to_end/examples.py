#!/usr/bin/env python3
"""One of the examples, launched as its page says, with the provider local and few steps.

  examples.py GPUCTL FAKE_JOB EXAMPLES NAME

Exits with 77, which is no success, where a Python library that the example needs is not installed.
"""
import os
import shutil
import subprocess
import sys

from runs import Laptop

NEEDS = {"pytorch": ["torch"], "huggingface": ["torch", "transformers", "accelerate"],
         "lightning": ["torch", "lightning"], "builtin-trainer": []}
PYTHON = "/usr/bin/python3"  # the one that has Debian's libraries
SKIPPED = 77


def has(module):
    return subprocess.run([PYTHON, "-c", "import " + module], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def check_run(w, name, source):
    w.work = os.path.join(w.dir, name)
    shutil.copytree(os.path.join(source, name), w.work)
    more = ["--trainer", "train.steps=20", "--trainer", "checkpoint.every=10"]
    done = w.run("launch", "run.yaml", "-y", "--provider", "local", "--env", "STEPS=20", "--env", "NO_INSTALL=1",
                 *(more if name == "builtin-trainer" else ()))
    (run,) = w.json("ps", "-a")["runs"]
    assert run["status"] == "succeeded" and run["step"] == 20 and run["loss"] > 0, (run, done)
    pulled = w.json("pull", run["name"])
    assert pulled["checkpoints"], pulled
    if name == "pytorch":
        resumed = w.run("resume", run["name"], "-y")
        assert b"going on after step 20" in resumed.stdout, resumed


def main():
    gpuctl, fake_job, source, name = sys.argv[1:5]
    missing = [module for module in NEEDS[name] if not has(module)]
    if missing:
        print("NOT RUN: %s needs %s" % (name, ", ".join(missing)))
        return SKIPPED
    w = Laptop(gpuctl, fake_job)
    w.env["PATH"] = os.path.dirname(PYTHON) + ":" + w.env["PATH"]
    try:
        check_run(w, name, source)
    finally:
        w.close()
    print("ok     " + name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

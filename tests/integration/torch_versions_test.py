#!/usr/bin/env python3
"""The trainer against the LibTorch of other Debian releases: in a root of each, as on a node,
build.sh compiles it, and its tests pass there on the CPU. Needs root and util-linux.

    torch_versions_test.py TRAINER-SRC TRAINER GPUCTL-TRAINER ROOTS [RELEASE...]

TRAINER is the source folder with the tests. `./test --label torch` makes ROOTS. Exits with 77, which
is no success, where a root is missing.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import debian_root

SOURCES, TRAINER, PROGRAM, ROOTS = (os.path.abspath(path) for path in sys.argv[1:5])
RELEASES = sys.argv[5:] or ["trixie", "sid"]
LEAST = {"trixie": (2, 6), "sid": (2, 12)}
SKIPPED = 77

# Compiles the tests as build.sh compiles the trainer, and links them with the objects of its build.
TESTS = r"""
set -eu
cd /tests
program=$(sh /src/build.sh --build)
rm objects/cli-*.o
TRAINER_COMPILE=$(sh /src/build.sh --compiler | sed -n 1p)
libraries=$(sh /src/build.sh --compiler | sed -n 2p)
TRAINER_MORE= TRAINER_OBJECTS=/tests/objects TRAINER_TORCH="the tests" TRAINER_COUNT=all
export TRAINER_COMPILE TRAINER_MORE TRAINER_OBJECTS TRAINER_TORCH TRAINER_COUNT
# Of the rooms that nodes get.
rest=$(cd trainer && for test in */*_test.cc; do
  if [ -d "/src/trainer/${test%%/*}" ]; then echo "$test"; fi
done; echo tests/process.cc)
TRAINER_MORE="-O0 -DTRAINER_PROGRAM=\"$program\""
echo "$rest" | awk '{ print NR, $0 }' | xargs -n 2 -P "$(nproc)" sh /src/build.sh --compile
${CXX:-g++} -pthread -o all_tests objects/*.o $libraries -lgtest_main -lgtest
./all_tests --gtest_brief=1
"""


def losses(command, config, metrics):
    open(metrics, "wb").close()  # pylint: disable=consider-using-with
    subprocess.run([*command, "train", "--config", config], check=True, timeout=300,
                   stdout=subprocess.DEVNULL)
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["loss"] for line in lines if line["type"] in ("step", "eval")]


def write_config(path, texts, checkpoints):
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model": {"layers": 2, "d_model": 32, "heads": 4, "kv_heads": 2, "ffn": 64,
                             "context": 32}, "data": {"paths": [texts]},
                   "checkpoint": {"dir": checkpoints},
                   "train": {"steps": 12, "batch": 4, "threads": 2, "eval_every": 6,
                             "device": "cpu"}}, file)


def inside(root, *command):
    return debian_root.inside(root, *command, GPUCTL_TRAINER_CACHE="/cache", CXX="ccache g++")


def check(release, directory):
    root = os.path.join(ROOTS, release)
    for name in ("src", "tests", "cache", "run"):
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    shutil.copytree(SOURCES, root + "/src")
    shutil.copytree(TRAINER, root + "/tests/trainer")
    shutil.copytree(SOURCES + "/include", root + "/tests/include")
    answer = subprocess.check_output(inside(root, "sh", "/src/build.sh", "--check"), text=True)
    kind, yes, accelerator, what = answer.strip().split("\t")
    assert (kind, yes, accelerator) == ("gpuctl-trainer-check", "yes", "cpu"), answer
    version = re.match(r"torch (\d+)\.(\d+)", what)
    assert tuple(map(int, version.groups())) >= LEAST.get(release, (1, 13)), answer
    print(what, flush=True)

    begin = time.monotonic()
    os.mkdir(root + "/tests/objects")
    program = subprocess.check_output(
        inside(root, "env", "GPUCTL_TRAINER_OBJECTS=/tests/objects", "sh", "/src/build.sh",
               "--build"), text=True).strip()
    print("built in %.0f s" % (time.monotonic() - begin), flush=True)
    begin = time.monotonic()
    subprocess.run(inside(root, "sh", "-c", TESTS), check=True)
    print("tested in %.0f s" % (time.monotonic() - begin), flush=True)

    # The same training as by this machine's LibTorch. Other versions round in another order.
    for place, at in ((root + "/run", "/run"), (directory, directory)):
        os.makedirs(place, exist_ok=True)
        with open(place + "/a.txt", "w", encoding="utf-8") as file:
            file.write("the quick brown fox jumps over the lazy dog\n" * 200)
        write_config(place + "/run.json", at + "/a.txt", at + "/ckpt")
    there = losses(inside(root, "env", "GPUCTL_METRICS=/run/metrics", program), "/run/run.json",
                   root + "/run/metrics")
    here = losses(["env", "GPUCTL_METRICS=%s/metrics" % directory, PROGRAM],
                  directory + "/run.json", directory + "/metrics")
    assert len(there) == len(here) > 12, (there, here)
    worst = max(abs(a - b) for a, b in zip(there, here))
    print("losses differ by at most %.1e" % worst, flush=True)
    assert worst < 1e-4, (there, here)


def main():
    missing = [r for r in RELEASES if not os.path.exists(os.path.join(ROOTS, r, "made"))]
    if missing or os.geteuid() != 0:
        print("NOT TESTED: no root of %s in %s; as root, ./test --label torch makes them" %
              (" and ".join(missing) or "any", ROOTS))
        sys.exit(SKIPPED)
    for release in RELEASES:
        with tempfile.TemporaryDirectory(prefix="torch-versions-") as directory:
            check(release, directory)
        print("ok     %s" % release, flush=True)


if __name__ == "__main__":
    main()

"""Builds and runs the trainer for gpu_check."""

import glob
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def run(session, words, **variables):
    """Runs a program within the time that is left. Raises an error with the end of what it said."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("GPUCTL_")}
    environment.update(variables)
    try:
        ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               universal_newlines=True, env=environment, timeout=session.left())
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{os.path.basename(words[0])} did not end in time")
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(words)[:300]} ended with {ended.returncode}: "
                           + (ended.stdout + ended.stderr)[-1500:]
                           + crash_site(session, words, ended.returncode, environment))
    return ended.stdout


def crash_site(session, words, code, environment):
    """Where a program that a signal ended crashes: it runs again in a debugger, if there is one."""
    debugger = shutil.which("gdb") or shutil.which("cuda-gdb")
    if code >= 0 or debugger is None:
        return ""
    try:
        said = subprocess.run([debugger, "-batch", "-ex", "run", "-ex", "bt 30", "--args", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                              universal_newlines=True, timeout=min(60, session.left())).stdout
    except subprocess.TimeoutExpired:
        return "; in a debugger it does not end in time"
    site = said[said.rfind(" received signal"):] if " received signal" in said else said
    return "; in a debugger: " + "\n".join(line[:200] for line in site.splitlines()[:34])


# For build.sh.
MORE_FLAGS = os.environ.get("GPUCTL_TRAINER_CXXFLAGS", "")


def check_build(session):
    if session.trainer is None:
        sources = find_sources(session.options.sources)
        objects = session.directory + "/objects"
        os.makedirs(objects)
        session.trainer = run(session, ["sh", sources + "/build.sh", "--build"],
                              GPUCTL_TORCH=sys.executable, GPUCTL_TRAINER_CXXFLAGS=MORE_FLAGS,
                              GPUCTL_TRAINER_OBJECTS=objects,
                              GPUCTL_TRAINER_CACHE=session.directory + "/cache").split()[-1]
        build_tests(session, sources, objects)
    said = run(session, [session.trainer, "--help"])
    session.report("build", "train" in said, trainer=session.trainer, dump=session.dump,
                   unit_tests=session.unit_tests)


def find_sources(named):
    for folder in [named] if named else sorted(glob.glob(ROOT + "/build/*/bin/trainer-src")):
        if os.path.exists(folder + "/build.sh"):
            return os.path.abspath(folder)
    raise RuntimeError("there is no bin/trainer-src below build/; give --sources DIR")


def find_gtest():
    """Returns flags for the compiler and libraries for GoogleTest, or None."""
    for prefix in (os.environ.get("GPUCTL_GTEST"), "/usr", "/usr/local"):
        if prefix and os.path.exists(prefix + "/include/gtest/gtest.h"):
            found = [path for folder in ("/lib", "/lib64", "/lib/*-linux-gnu")
                     for path in glob.glob(f"{prefix}{folder}/libgtest*.a")]
            include = "" if prefix == "/usr" else f"-isystem {prefix}/include"
            return include, " ".join(sorted(found, reverse=True))  # gtest_main needs gtest
    return None


def build_tests(session, sources, objects):
    """Compiles the program of tests/families.py and the unit tests with the flags of build.sh, and
    links them with the objects of its build."""
    compiler, libraries = run(session, ["sh", sources + "/build.sh", "--compiler"],
                              GPUCTL_TORCH=sys.executable).splitlines()
    tree = session.directory + "/tests"
    os.makedirs(tree)
    os.symlink(ROOT + "/trainer", tree + "/trainer")
    os.symlink(sources + "/include", tree + "/include")
    gtest = find_gtest()
    parts = {"trainer/tests/families_dump.cc": "-O1"}
    # Of the rooms that are built here.
    unit = [] if gtest is None else sorted(
        os.path.relpath(path, ROOT) for path in glob.glob(ROOT + "/trainer/*/*_test.cc")
        if os.path.isdir(sources + "/" + os.path.relpath(os.path.dirname(path), ROOT)))
    parts.update({part: "-O0 " + gtest[0] for part in unit})

    def compile_one(part):
        name = f"{tree}/{part[8:-3].replace('/', '-')}.o"
        subprocess.run(f"cd {tree} && {compiler} {MORE_FLAGS} {parts[part]} -c {part} -o {name}",
                       shell=True, check=True, timeout=session.left())
        return name

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        compiled = list(pool.map(compile_one, parts))
    rooms = " ".join(path for path in sorted(glob.glob(objects + "/*.o"))
                     if not os.path.basename(path).startswith("cli-"))

    def link(name, own, more):
        program = session.directory + "/" + name
        subprocess.run(f"{compiler.split(' -O2 ')[0]} -o {program} {' '.join(own)} {rooms} "
                       f"{more} -pthread {libraries}", shell=True, check=True,
                       timeout=session.left())
        return program

    session.dump = session.dump or link("families_dump", compiled[:1], "")
    if unit:
        session.unit_tests = link("unit_tests", compiled[1:], gtest[1])


def train(session, name, config, words=()):
    """Runs `gpuctl-trainer train`; returns its metrics, by type, and the newest checkpoint."""
    path = f"{session.directory}/{name}"
    with open(path + ".json", "w") as file:
        json.dump(config, file)
    run(session, [session.trainer, "train", "--config", path + ".json", "--checkpoint-dir",
                  path + ".checkpoints", *words], GPUCTL_METRICS=path + ".metrics")
    lines = {}
    with open(path + ".metrics") as file:
        for line in map(json.loads, file):
            lines.setdefault(line["type"], []).append(line)
    newest = sorted(entry for entry in os.listdir(path + ".checkpoints")
                    if entry.startswith("step-"))[-1]
    return lines, f"{path}.checkpoints/{newest}"

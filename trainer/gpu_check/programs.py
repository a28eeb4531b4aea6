"""Builds and runs the trainer for gpu_check."""

import glob
import json
import os
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
                           + (ended.stdout + ended.stderr)[-1500:])
    return ended.stdout


# For build.sh.
MORE_FLAGS = os.environ.get("GPUCTL_TRAINER_CXXFLAGS", "")


def check_build(session):
    if session.trainer is None:
        sources = find_sources(session.options.sources)
        session.trainer = run(session, ["sh", sources + "/build.sh", "--build"],
                              GPUCTL_TORCH=sys.executable, GPUCTL_TRAINER_CXXFLAGS=MORE_FLAGS,
                              GPUCTL_TRAINER_CACHE=session.directory + "/cache").split()[-1]
        if session.dump is None:
            session.dump = build_dump(session, sources)
    said = run(session, [session.trainer, "--help"])
    session.report("build", "train" in said, trainer=session.trainer, dump=session.dump)


def find_sources(named):
    for folder in [named] if named else sorted(glob.glob(ROOT + "/build/*/bin/trainer-src")):
        if os.path.exists(folder + "/build.sh"):
            return os.path.abspath(folder)
    raise RuntimeError("there is no bin/trainer-src below build/; give --sources DIR")


def build_dump(session, sources):
    """Compiles the program of tests/families.py with the flags of build.sh."""
    compiler, libraries = run(session, ["sh", sources + "/build.sh", "--compiler"],
                              GPUCTL_TORCH=sys.executable).splitlines()
    objects = session.directory + "/objects"
    os.makedirs(objects + "/trainer")
    for room in os.listdir(sources + "/trainer"):
        os.symlink(f"{sources}/trainer/{room}", f"{objects}/trainer/{room}")
    os.symlink(sources + "/include", objects + "/include")
    os.symlink(ROOT + "/trainer/tests", objects + "/trainer/tests")
    parts = ["trainer/tests/families_dump.cc"]
    parts += sorted(os.path.relpath(path, sources)
                    for path in glob.glob(sources + "/trainer/*/*.cc") if "/cli/" not in path)

    def compile_one(part):
        name = part.replace("/", "-")[:-3] + ".o"
        subprocess.run(f"cd {objects} && {compiler} {MORE_FLAGS} -c {part} -o {name}", shell=True, check=True,
                       timeout=session.left())
        return f"{objects}/{name}"

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        compiled = list(pool.map(compile_one, parts))
    program = session.directory + "/families_dump"
    linker = compiler.split(" -O2 ")[0]
    subprocess.run(f"{linker} -o {program} {' '.join(compiled)} -pthread {libraries}", shell=True,
                   check=True, timeout=session.left())
    return program


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

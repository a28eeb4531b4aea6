#!/usr/bin/env python3
"""gpuctl and its agent with the newest libraries that Debian has, in a root of sid and experimental:
they compile, their unit tests pass, and whole runs on `local`, by SSH and on rented machines do as
with the older ones. So do the examples whose Python libraries only sid has. Homebrew's libraries,
which a Mac uses, are as new. Needs root and util-linux.

    newest_libraries_test.py PROJECT ROOT

`./test --label newest` makes ROOT. Exits with 77, which is no success, where it is missing.
"""
import os
import re
import shutil
import subprocess
import sys
import time

import debian_root

PROJECT, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])
# Test data: in the root it lies beside the sources, where tests look for it.
SHARED = os.environ.get("GPUCTL_SHARED_DIR") or os.path.join(PROJECT, "..", "shared")
SKIPPED = 77
# Older ones would prove nothing.
LEAST = {"libgrpc++-dev": (1, 80), "libprotobuf-dev": (30,), "libabsl-dev": (20260526,),
         "libssl-dev": (4,), "libssh-dev": (0, 12), "libfmt-dev": (12,)}
# The trainer has tests of its own with newer LibTorches. Archives are what the agent is linked
# with; gpuctl takes shared libraries here, as on a Mac.
CONFIGURE = ("cmake --preset dev -DGPUCTL_BUILD_TRAINER=OFF -DGPUCTL_BUILD_BENCH=OFF "
             "-DGPUCTL_STATIC_CLIENT=OFF")
# What reaches these libraries, and whole runs. The rest looks at other things: text, the simulator.
TESTS = (r"^(common|agent|agent_transfer|agent_transfer_fault|node_limits|shim|shim_unit|ledger|rental|"
         r"http|curl_http|start_script|rental_adapters|client|client_core|link|pull_files|fault_proxy|"
         r"run|node|transport|node_limits_integration|market_contract|preempt)_test$|_fuzz_replay$|"
         r"^end_to_end_(runs|exec_cp|sync|sftp|background_pull|rent|markets|self_test|"
         r"example_pytorch|example_huggingface)$")


def inside(command):
    return debian_root.inside(ROOT, "sh", "-c", command)


def versions():
    shown = subprocess.check_output(
        inside("dpkg-query -W -f='${Package} ${Version}\\n' " + " ".join(LEAST)), text=True)
    return {name: version for name, version in (line.split() for line in shown.splitlines())}


def numbers(version):
    """1:1.15.3+ds-1 is (1, 15, 3)."""
    return tuple(map(int, re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version).group(1).split(".")))


def bring_sources():
    """Puts the tracked and the new files of the project into the root. What did not change keeps its
    time of change, so that a second build is a short one."""
    listed = subprocess.check_output(
        ["git", "-C", PROJECT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    wanted = {name for name in listed.decode().split("\0")
              if name and os.path.lexists(os.path.join(PROJECT, name))}
    there = os.path.join(ROOT, "src")
    for folder, folders, files in os.walk(there):
        if folder == there and "build" in folders:
            folders.remove("build")
        for name in files:
            path = os.path.join(folder, name)
            if os.path.relpath(path, there) not in wanted:
                os.remove(path)
    for name in wanted:
        path = os.path.join(there, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy2(os.path.join(PROJECT, name), path, follow_symlinks=False)
    shutil.rmtree(ROOT + "/shared", ignore_errors=True)
    if os.path.isdir(SHARED):
        shutil.copytree(SHARED, ROOT + "/shared", symlinks=True)


def timed(what, command):
    begin = time.monotonic()
    subprocess.run(inside("cd /src && " + command), check=True)
    print("%s in %.0f s" % (what, time.monotonic() - begin), flush=True)


def main():
    if not os.path.exists(os.path.join(ROOT, "made")) or os.geteuid() != 0:
        print("NOT TESTED: no root in %s; as root, ./test --label newest makes it" % ROOT)
        sys.exit(SKIPPED)
    have = versions()
    for name, least in LEAST.items():
        print(name, have[name], flush=True)
        assert numbers(have[name]) >= least, (name, have[name], least)
    bring_sources()
    timed("configured", CONFIGURE)
    timed("built", "cmake --build --preset dev -j 2 -- -k 0")
    timed("tested", "ctest --test-dir build/dev --output-on-failure -j 4 --no-tests=error "
          "-R '%s'" % TESTS)


if __name__ == "__main__":
    main()

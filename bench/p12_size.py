#!/usr/bin/env python3
"""P12: sizes of the programs: those sent to a node (agent and shim), and the client with the
libraries that a system does not have anyway."""

import os
import re
import subprocess
import tempfile

from common import emit, find_programs

# Libraries of the system: the C and C++ run time, which every Linux with any C++ program has.
SYSTEM = re.compile(r"^(linux-vdso|ld-linux|libc\.|libm\.|libstdc\+\+|libgcc_s|libpthread|libdl|"
                    r"librt\.|libresolv\.)")
MB = 1e6


def stripped_bytes(path):
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "--strip-all", "-o", copy.name, path], check=True)
        return os.path.getsize(copy.name)


def libraries_of(path):
    """Returns name -> file of every library that the dynamic linker loads for the program."""
    listing = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    return {name: os.path.realpath(file)
            for name, file in re.findall(r"^\s*(\S+) => (\S+) \(", listing, re.MULTILINE)}


def is_static(path):
    return subprocess.run(["ldd", path], capture_output=True, check=False).returncode != 0


def main():
    programs = find_programs()
    path = lambda name: os.path.join(programs, name)
    sizes = {name: stripped_bytes(path(name)) for name in ("gpuctl-agent", "gpuctl-shim", "gpuctl")}
    # A rented machine gets these too; not every build has them.
    others = {name: os.path.getsize(path(name)) for name in ("roots.pem", "gpuctl-cuda-check")
              if os.path.exists(path(name))}
    node = (sizes["gpuctl-agent"] + sizes["gpuctl-shim"] + sum(others.values())) / MB
    emit("P12 node bundle: agent, shim and what goes with them, stripped", node, "MB",
         "published: dstack's runner", 19.7, "<= 20 MB", node <= 20, digits=2,
         agent=round(sizes["gpuctl-agent"] / MB, 2), shim=round(sizes["gpuctl-shim"] / MB, 2),
         others={name: round(size / MB, 2) for name, size in sorted(others.items())},
         static=is_static(path("gpuctl-agent")) and is_static(path("gpuctl-shim")))
    ours = {name: os.path.getsize(file) for name, file in libraries_of(path("gpuctl")).items()
            if not SYSTEM.match(name)}
    client = (sizes["gpuctl"] + sum(ours.values())) / MB
    emit("P12 client, stripped, with its non-system libraries", client, "MB", "none published",
         None, "<= 25 MB", client <= 25, digits=2, program=round(sizes["gpuctl"] / MB, 2),
         program_as_built=round(os.path.getsize(path("gpuctl")) / MB, 2),
         libraries={name: round(size / MB, 2) for name, size in sorted(ours.items())})


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compiles, on Linux, every translation unit of the macOS build for macOS on Apple silicon.

Zig's C++ compiler brings Apple's C headers and libc++; the libraries' headers are this machine's,
reached through a folder of links so that nothing else of /usr/include is seen. The units of a room
are compiled together, as in the build, and the headers of most rooms once for all. The compiler
checks each group and instantiates its templates; it makes no object. A group is compiled again only
when a unit of it, a header it read, the compiler or the flags changed.

GPUCTL_MACOS_COMPILE=off turns the test off where Zig cannot be had.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

FOLDERS = ["client", "common", "provisioning", "agent", "trainer/base", "trainer/config",
           "trainer/unicode", "trainer/tokenizer", "trainer/jinja_values", "trainer/jinja",
           "trainer/chat", "trainer/prepare", "trainer/interchange", "trainer/adapters"]
PARTS = ["trainer/checkpoint/base_digest.cc", "trainer/checkpoint/describe_folder.cc",
         "trainer/checkpoint/folder_files.cc", "trainer/checkpoint/manifest.cc",
         "trainer/checkpoint/safetensors_header.cc", "trainer/checkpoint/stored_file.cc",
         "trainer/data/prepared.cc"]
# Headers from the system's package manager, by their names below an include directory.
LIBRARIES = ["absl", "google", "grpc", "grpcpp", "nlohmann", "spdlog", "fmt", "libssh", "yaml-cpp",
             "CLI", "toml++", "curl", "openssl", "zstd.h", "sqlite3.h", "zlib.h", "zconf.h", "ares.h",
             "ares_build.h", "ares_rules.h", "ares_version.h", "utf8proc.h",
             "pcre2.h"]
GROUP = 12  # units compiled together, at most
# Read in nearly every room, so parsed once.
COMMON_HEADERS = [
    "algorithm", "filesystem", "functional", "map", "memory", "optional", "string", "thread",
    "vector", "nlohmann/json.hpp", "absl/status/statusor.h", "absl/strings/str_cat.h",
    "absl/strings/str_format.h", "absl/strings/str_join.h", "absl/strings/str_split.h",
    "absl/time/time.h", "gpuctl/v1/agent.grpc.pb.h", "gpuctl/v1/run.pb.h",
    "gpuctl/v1/transfer.pb.h"]
FLAGS = ["-target", "aarch64-macos", "-std=c++20", "-g0", "-fno-sanitize=all",
         "-Wall", "-Wextra", "-Werror=shadow", "-DSPDLOG_FMT_EXTERNAL", "-DFMT_HEADER_ONLY",
         '-DGPUCTL_VERSION="0"']


def units(source):
    """Returns the .cc files of a macOS build: all except tests and Linux-only files. Of the rooms
    that gpuctl takes in part, those files."""
    found = []
    for folder in FOLDERS:
        for path in glob.glob(os.path.join(source, folder, "**", "*.cc"), recursive=True):
            name = os.path.basename(path)
            if not name.endswith(("_test.cc", "_linux.cc")) and not name.startswith("test_"):
                found.append(os.path.relpath(path, source))
    return sorted(found + PARTS)


def groups(found):
    """Returns the units by folder, in groups that two processors share evenly."""
    by_folder = {}
    for unit in found:
        by_folder.setdefault(os.path.dirname(unit), []).append(unit)
    return [units[i:i + GROUP] for units in by_folder.values() for i in range(0, len(units), GROUP)]


def make_links(folder):
    """Fills `folder` with links to the libraries' headers and nothing else."""
    multiarch = sorted(glob.glob("/usr/include/*-linux-gnu*"))
    os.makedirs(folder, exist_ok=True)
    for name in LIBRARIES:
        places = [os.path.join(base, name) for base in ["/usr/include"] + multiarch]
        places = [place for place in places if os.path.exists(place)]
        if not places:
            continue
        if len(places) == 1:
            link(places[0], os.path.join(folder, name))
            continue
        # A folder in two directories (OpenSSL's generated headers) becomes a real one with the
        # files of both.
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for place in places:
            for header in os.listdir(place):
                link(os.path.join(place, header), os.path.join(folder, name, header))


def link(target, path):
    if os.path.islink(path) and os.readlink(path) == target:
        return
    if os.path.lexists(path):
        os.remove(path)
    os.symlink(target, path)


class Hashes:
    """Content hashes of files, each read once."""

    def __init__(self):
        self.known = {}

    def of(self, path):
        if path not in self.known:
            try:
                with open(path, "rb") as file:
                    self.known[path] = hashlib.sha256(file.read()).hexdigest()
            except OSError:
                self.known[path] = "absent"
        return self.known[path]

    def of_all(self, paths):
        digest = hashlib.sha256()
        for path in sorted(paths):
            digest.update(f"{path} {self.of(path)}\n".encode())
        return digest.hexdigest()


def dependencies(dep_file):
    """Returns the files named in a Make dependency file."""
    with open(dep_file, encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    return text.split(":", 1)[1].split()


def front_end(zig):
    """Returns the command that zig runs for C++ on the target, without input and output. `zig c++`
    itself always wants an object."""
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "empty.cc")
        with open(unit, "w", encoding="utf-8"):
            pass
        said = subprocess.run(
            [zig, "c++", *FLAGS, "-c", "-o", unit + ".o", unit], check=True, capture_output=True,
            text=True, env=dict(os.environ, ZIG_VERBOSE_CC="1", ZIG_GLOBAL_CACHE_DIR=folder,
                                ZIG_LOCAL_CACHE_DIR=folder)).stderr
    command = next(line.split() for line in said.splitlines() if f" clang {unit} " in line)
    for flag in ("-MF", "-o"):
        at = command.index(flag)
        del command[at:at + 2]
    return [word for word in command if word not in (unit, "-c", "-MD", "-MV")]


class Compiler:
    def __init__(self, options):
        self.options = options
        self.out = os.path.join(options.build, "macos")
        self.links = os.path.join(self.out, "include")
        make_links(self.links)
        self.command = front_end(options.zig) + [
            "-I", options.source, "-isystem", options.proto_include, "-isystem", self.links]
        version = subprocess.run([options.zig, "version"], check=True,
                                 capture_output=True, text=True).stdout
        self.identity = hashlib.sha256((version + "\0".join(self.command)).encode()).hexdigest()
        self.hashes = Hashes()
        self.common = []

    def precompile(self):
        """Parses the headers that most units read, and instantiates what they use of templates; the
        groups after it begin with them."""
        header = os.path.join(self.out, "common_headers.h")
        with open(header, "w", encoding="utf-8") as file:
            file.writelines(f"#include <{name}>\n" for name in COMMON_HEADERS)
        subprocess.run(self.command + ["-fpch-instantiate-templates", "-x", "c++-header", "-MD",
                                       "-MF", header + ".d", "-o", header + ".pch", header],
                       cwd=self.options.source, check=True)
        self.common = dependencies(header + ".d")
        self.command += ["-include-pch", header + ".pch"]

    def base(self, group):
        return os.path.join(self.out, "units", group[0].replace("/", "__"))

    def is_done(self, group):
        """Says whether the group was compiled as it is now."""
        try:
            with open(self.base(group) + ".json", encoding="utf-8") as file:
                last = json.load(file)
            return (last["compiler"] == self.identity
                    and last["content"] == self.hashes.of_all(last["files"]))
        except (OSError, ValueError, KeyError):
            return False

    def compile(self, group):
        """Returns the compiler's output when it failed."""
        base = self.base(group)
        os.makedirs(os.path.dirname(base), exist_ok=True)
        unit = base + ".unity.cc"
        with open(unit, "w", encoding="utf-8") as file:
            file.writelines(f'#include "{path}"\n' for path in group)
        command = self.command + ["-fsyntax-only", "-MD", "-MF", base + ".d", unit]
        result = subprocess.run(command, cwd=self.options.source, check=False,
                                capture_output=True, text=True)
        if result.returncode != 0:
            return result.stderr + result.stdout or f"exit {result.returncode}"
        # The dependencies of a unit name the precompiled header, not what that was made of.
        files = [os.path.join(self.options.source, path)
                 for path in sorted({*dependencies(base + ".d"), *self.common})
                 if not path.endswith(".pch")]
        with open(base + ".json", "w", encoding="utf-8") as file:
            json.dump({"compiler": self.identity, "content": self.hashes.of_all(files),
                       "files": files}, file)
        return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--proto-include", required=True)
    parser.add_argument("--zig", required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="compile only units whose path contains this")
    options = parser.parse_args()
    for name in ("source", "build", "proto_include", "zig"):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    if os.environ.get("GPUCTL_MACOS_COMPILE") == "off":
        print("off: GPUCTL_MACOS_COMPILE=off")
        return 0
    if not os.access(options.zig, os.X_OK):
        print(f"{options.zig}: Zig is not there. ./test installs it. "
              "GPUCTL_MACOS_COMPILE=off goes without.", file=sys.stderr)
        return 1
    started = time.monotonic()
    compiler = Compiler(options)
    todo = [unit for unit in units(options.source) if not options.only or options.only in unit]
    if not todo:
        print("no translation unit found", file=sys.stderr)
        return 1
    failed = []
    together = groups(todo)
    changed = [group for group in together if not compiler.is_done(group)]
    if changed:
        compiler.precompile()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for group, said in zip(changed, pool.map(compiler.compile, changed)):
            if said:
                failed.append(", ".join(group))
                print(f"== {failed[-1]}\n{said}")
    print(f"{len(todo)} units for macOS arm64 in {len(together)} groups, {len(changed)} compiled now, "
          f"{len(failed)} groups failed, {time.monotonic() - started:.1f} s")
    for unit in failed:
        print(f"failed: {unit}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks the scripts in deploy/ as far as they run in a moment and without rights.

  scripts_test.py SOURCE
"""
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

SOURCE = sys.argv[1]
DEPLOY = os.path.join(SOURCE, "deploy")
PLATFORMS = ["linux-x86_64", "linux-aarch64"]
PROGRAMS = ["gpuctl-agent", "gpuctl-shim", "gpuctl-cuda-check"]


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def bash(script, *arguments, **environment):
    """Runs a bash script that may call the functions of version.sh and packages.sh."""
    return subprocess.run(
        ["bash", "-euc", f"source {DEPLOY}/version.sh; source {DEPLOY}/packages.sh; {script}", "-",
         *arguments], check=True, capture_output=True, text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000", **environment}).stdout


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def node_archive(self, platform, folder, roots="roots\n"):
        """Packs made-up programs of a platform as build_node.sh does; returns the archive."""
        for program in PROGRAMS:
            write(self.path("packed", platform, platform, program), f"{platform} {program}", 0o755)
        write(self.path("packed", platform, "roots.pem"), roots)
        os.makedirs(self.path(folder), exist_ok=True)
        archive = self.path(folder, f"gpuctl-node-{self.version()}-{platform}.tar.zst")
        bash('gpuctl_pack "$1" "$2"', self.path("packed", platform), archive)
        return archive

    def version(self):
        return bash(f"gpuctl_version {SOURCE}").strip()

    def test_version_level_and_time_are_those_of_the_sources(self):
        self.assertRegex(self.version(), r"^\d+\.\d+\.\d+$")
        self.assertGreater(int(bash(f"gpuctl_api_level {SOURCE}")), 1)
        self.assertEqual(bash(f"gpuctl_commit_time {SOURCE}"), "1790000000\n")
        write(self.path("CMakeLists.txt"), "")
        os.utime(self.path("CMakeLists.txt"), (1700000000, 1700000000))
        self.assertEqual(bash(f"gpuctl_commit_time {self.folder}", SOURCE_DATE_EPOCH=""),
                         "1700000000\n")

    def test_an_archive_is_the_same_whoever_packs_it(self):
        digests = set()
        for name, order, umask, when in [("a", ["x", "b/y", "b/z"], 0o22, 1600000000),
                                         ("b", ["b/z", "x", "b/y"], 0o77, 1700000000)]:
            before = os.umask(umask)
            for file in order:
                write(self.path(name, file), file, 0o777 & ~umask if file == "x" else 0o666 & ~umask)
                os.utime(self.path(name, file), (when, when))
            os.umask(before)
            for ending in ["tar.zst", "tar.gz"]:
                archive = self.path(f"{name}.{ending}")
                bash('gpuctl_pack "$1" "$2"', self.path(name), archive)
                digests.add((ending, sha256(archive)))
        self.assertEqual(len(digests), 2)
        with tarfile.open(self.path("a.tar.gz")) as archive:
            rows = [(m.name, m.mode, m.uid, m.gid, m.mtime) for m in archive.getmembers()]
        self.assertEqual(rows, [("b", 0o755, 0, 0, 1790000000), ("b/y", 0o644, 0, 0, 1790000000),
                                ("b/z", 0o644, 0, 0, 1790000000), ("x", 0o755, 0, 0, 1790000000)])

    def node_programs(self, archive, **environment):
        """Runs node-programs --on with an ssh that gives the archive back, as a host would that
        built it; returns the manifest."""
        write(self.path("ssh"), f"#!/bin/sh\ncat > /dev/null\n"
              f"tar -cf - -C {os.path.dirname(archive)} ./{os.path.basename(archive)}\n", 0o755)
        subprocess.run([os.path.join(DEPLOY, "node-programs"), "--on", "host", "--ssh",
                        self.path("ssh"), "--out", self.path("out")],
                       check=True, capture_output=True, text=True,
                       env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000",
                            "GPUCTL_CACHE_DIR": self.path("cache"), **environment})
        with open(self.path("out/node/manifest.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_programs_from_two_hosts_make_one_manifest(self):
        first = self.node_archive(PLATFORMS[0], "first")
        second = self.node_archive(PLATFORMS[1], "second")
        self.assertEqual(list(self.node_programs(first)["platforms"]), PLATFORMS[:1])
        manifest = self.node_programs(second)
        self.assertEqual(list(manifest["platforms"]), PLATFORMS)
        self.assertEqual(manifest["version"], self.version())
        self.assertEqual(manifest["api_level"], int(bash(f"gpuctl_api_level {SOURCE}")))
        self.assertEqual(manifest["commit_time_s"], 1790000000)
        self.assertEqual(manifest["roots_sha256"], hashlib.sha256(b"roots\n").hexdigest())
        for platform, archive in zip(PLATFORMS, [first, second]):
            about = manifest["platforms"][platform]
            self.assertEqual((about["archive"], about["sha256"], about["size"]),
                             (os.path.basename(archive), sha256(archive), os.path.getsize(archive)))
            for program in PROGRAMS:
                text = f"{platform} {program}".encode()
                self.assertEqual(about["files"][program], {
                    "sha256": hashlib.sha256(text).hexdigest(), "size": len(text)})
                for folder in ["out/node", f"cache/node/{self.version()}"]:
                    path = self.path(folder, platform, program)
                    self.assertEqual(read(path), text.decode())
                    self.assertTrue(os.access(path, os.X_OK))
        self.assertEqual(read(self.path("cache/node", self.version(), "manifest.json")),
                         read(self.path("out/node/manifest.json")))

    def test_what_another_commit_or_other_roots_made_goes(self):
        self.node_programs(self.node_archive(PLATFORMS[0], "first"))
        manifest = self.node_programs(self.node_archive(PLATFORMS[1], "second"),
                                      SOURCE_DATE_EPOCH="1790000001")
        self.assertEqual(list(manifest["platforms"]), PLATFORMS[1:])
        manifest = self.node_programs(self.node_archive(PLATFORMS[0], "first", roots="others\n"),
                                      SOURCE_DATE_EPOCH="1790000001")
        self.assertEqual(list(manifest["platforms"]), PLATFORMS[:1])
        self.assertFalse(os.path.exists(self.path("cache/node", self.version(), PLATFORMS[1])))

    def test_a_host_that_builds_nothing_changes_nothing(self):
        self.node_programs(self.node_archive(PLATFORMS[0], "first"))
        before = read(self.path("out/node/manifest.json"))
        with self.assertRaises(subprocess.CalledProcessError):
            self.node_programs(self.path("nothing", "there"))
        self.assertEqual(read(self.path("out/node/manifest.json")), before)
        self.assertFalse([name for name in os.listdir(self.path("out")) if name[0] == "."])

    def test_the_openssl_of_a_mac_is_that_of_its_libssh(self):
        for answer, expected in [("ca-certificates\nopenssl@5\nzlib\n", "openssl@5"),
                                 ("openssl@3\n", "openssl@3"), ("zlib\n", "openssl@4")]:
            write(self.path("bin/brew"), f"#!/bin/sh\nprintf '%s' '{answer}'\n", 0o755)
            path = f"{self.path('bin')}:{os.environ['PATH']}"
            self.assertEqual(bash("homebrew_openssl", PATH=path), expected + "\n")
            self.assertIn(expected, bash("homebrew_packages build", PATH=path).split())
        write(self.path("bin/brew"), "#!/bin/sh\nexit 1\n", 0o755)
        self.assertEqual(bash("homebrew_openssl", PATH=path), "openssl@4\n")

    def test_the_formula_is_filled_in(self):
        version = "1.2.3"
        names = [f"gpuctl-{version}.tar.gz", "node-manifest.json"]
        names += [f"gpuctl-node-{version}-{platform}.tar.zst" for platform in PLATFORMS]
        for name in names:
            write(self.path(name), name)
        formula = subprocess.run([os.path.join(DEPLOY, "homebrew/fill"), version,
                                  "https://host.example/v1", self.folder], check=True,
                                 capture_output=True, text=True).stdout
        self.assertNotRegex(formula, r"@[A-Z_0-9]+@")
        for name in names:
            self.assertIn(f'url "https://host.example/v1/{name}"\n', formula)
            self.assertIn(f'sha256 "{sha256(self.path(name))}"\n', formula)

    def test_a_dockerfile_copies_and_installs_what_there_is(self):
        for name in ["Dockerfile", "Dockerfile.node"]:
            text = read(os.path.join(DEPLOY, name))
            for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE):
                self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
            for sets in re.findall(r"packages\.sh ((?:[a-z-]+ )+)&&", text):
                for one in sets.split():
                    self.assertTrue(bash(f"debian_packages {one}").split(), one)
        self.assertIn("FROM --platform=$BUILDPLATFORM", read(os.path.join(DEPLOY, "Dockerfile.node")))

    def test_the_workflow_runs_scripts_that_there_are(self):
        with open(os.path.join(SOURCE, ".github/workflows/ci.yml"), encoding="utf-8") as file:
            workflow = yaml.safe_load(file)
        runners = {job["runs-on"] for job in workflow["jobs"].values()}
        self.assertTrue(any(name.startswith("macos") for name in runners), runners)
        self.assertTrue(any(name.startswith("ubuntu") for name in runners), runners)
        commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"]
                    if "run" in step]
        programs = {word for command in commands
                    for word in re.findall(r"(?:^|\s)(\.ci/run|deploy/[\w./-]+)(?=\s|$)", command)}
        self.assertLessEqual({".ci/run", "deploy/node-programs", "deploy/packages.sh"}, programs)
        for program in programs:
            self.assertTrue(os.path.isfile(os.path.join(SOURCE, program)), program)

    def test_scripts_say_what_they_take(self):
        for name in ["node-programs", "release"]:
            script = os.path.join(DEPLOY, name)
            told = subprocess.run([script, "--help"], check=True, capture_output=True, text=True)
            self.assertIn("--out", told.stdout)
            self.assertNotIn("set -euo", told.stdout)
            wrong = subprocess.run([script, "--nonsense"], check=False, capture_output=True,
                                   text=True)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn("--nonsense", wrong.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

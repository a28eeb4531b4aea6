#!/usr/bin/env python3
"""Installs a build into a DESTDIR, looks at what lies there, and runs a job with it.

  install_test.py CMAKE BUILD
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD = sys.argv[1], sys.argv[2]
PREFIX = "usr/local"


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Short, because a Unix socket lies below it.
        cls.folder = tempfile.TemporaryDirectory(prefix="gi-", dir="/tmp")
        cls.root = os.path.join(cls.folder.name, "d")
        cls.prefix = os.path.join(cls.root, PREFIX)
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", "/" + PREFIX], check=True,
                       env={**os.environ, "DESTDIR": cls.root}, stdout=subprocess.DEVNULL)
        cls.environment = {
            **os.environ,
            "GPUCTL_STATE_DIR": os.path.join(cls.folder.name, "s"),
            "GPUCTL_CONFIG_DIR": os.path.join(cls.folder.name, "c"),
            "GPUCTL_CACHE_DIR": os.path.join(cls.folder.name, "k"),
            "GPUCTL_NODE_ROOT": os.path.join(cls.folder.name, "n"),
        }

    @classmethod
    def tearDownClass(cls):
        agent = os.path.join(cls.prefix, "libexec/gpuctl/gpuctl-agent")
        subprocess.run([agent, "shutdown", "--root", os.path.join(cls.folder.name, "n")],
                       check=False, capture_output=True)
        cls.folder.cleanup()

    def gpuctl(self, *arguments):
        return subprocess.run([os.path.join(self.prefix, "bin/gpuctl"), *arguments], check=True,
                              env=self.environment, capture_output=True, text=True).stdout

    def test_what_lies_where(self):
        for path in ["bin/gpuctl", "libexec/gpuctl/gpuctl-agent", "libexec/gpuctl/gpuctl-shim",
                     "libexec/gpuctl/gpuctl-cuda-check"]:
            self.assertTrue(os.access(os.path.join(self.prefix, path), os.X_OK), path)
        for path in ["libexec/gpuctl/roots.pem", "share/man/man1/gpuctl.1",
                     "share/man/man1/gpuctl-launch.1", "share/doc/gpuctl/LICENSE",
                     "share/doc/gpuctl/README.md", "share/doc/gpuctl/docs/json.md",
                     "share/doc/gpuctl/docs/schemas/ps.json", "share/doc/gpuctl/docs/renting.md",
                     "share/bash-completion/completions/gpuctl",
                     "share/zsh/site-functions/_gpuctl",
                     "share/fish/vendor_completions.d/gpuctl.fish"]:
            self.assertGreater(os.path.getsize(os.path.join(self.prefix, path)), 50, path)

    def test_nothing_lies_elsewhere(self):
        for folder, _, files in os.walk(self.root):
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), self.prefix)
                self.assertRegex(path, r"^(bin/gpuctl(-trainer)?$|libexec/gpuctl/|"
                                       r"share/(man/man1|doc/gpuctl|bash-completion|zsh|fish)/)")

    def test_a_job_runs(self):
        self.assertRegex(self.gpuctl("--version"), r"^gpuctl \d+\.\d+\.\d+\n$")
        output = self.gpuctl("launch", "--provider", "local", "--no-workdir", "-y", "--name", "one",
                             "--", "echo", "it", "runs")
        self.assertIn("it runs", output)
        # The form of the lines that the shell's completion reads.
        line = self.gpuctl("ps", "-a", "--offline", "-o", "jsonl")
        self.assertIn('"name":"one-1"', line)
        self.assertEqual(json.loads(line)["name"], "one-1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

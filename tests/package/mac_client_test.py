#!/usr/bin/env python3
"""Makes gpuctl for a Mac, with unit tests, and looks at what a Mac would look at. Nothing runs it.

  mac_client_test.py SOURCE     with the packages of `deploy/packages.sh build mac`, and npm

The first time it builds the libraries: a quarter of an hour. GPUCTL_MAC_TARGET=x86_64-macos is for the other
processor.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

SOURCE = sys.argv[1]
TARGET = os.environ.get("GPUCTL_MAC_TARGET", "aarch64-macos")
PROCESSOR = "arm64" if TARGET.startswith("aarch64") else "x86_64"
CACHE = os.path.join(SOURCE, "build/macos")
TREE = os.path.join(CACHE, TARGET, "gpuctl")
STUBS = [os.path.join(CACHE, TARGET, "runtime/libSystem.tbd"),
         os.path.join(SOURCE, "deploy/macos/CoreFoundation.framework/CoreFoundation.tbd")]
NEEDED = {"/usr/lib/libSystem.B.dylib",
          "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation"}
PROGRAMS = ["bin/gpuctl", "libexec/gpuctl/gpuctl-agent", "libexec/gpuctl/gpuctl-shim"]
MOST = 20_000_000  # bytes: of gpuctl, and of the agent and the shim together
TESTS = ["shim_unit_test", "agent_test", "agent_transfer_test", "common_test", "client_core_test"]

sys.path.insert(0, os.path.join(SOURCE, "deploy/macos"))
import check  # noqa: E402
from bare_root import run  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        return file.read()


def mac_client(out, *flags):
    # The mirror of a test machine need not have the newest sources.
    run(os.path.join(SOURCE, "deploy/mac-client"), "--older", "--out", out, *flags, TARGET)
    return glob.glob(os.path.join(out, "gpuctl-*-macos-*.tar.gz"))[0]


class MacClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.node = os.path.join(cls.folder, "node")
        cls.make_node_programs()
        cls.archive = mac_client(os.path.join(cls.folder, "out"), "--tests", "--node", cls.node)
        unpacked = os.path.join(cls.folder, "unpacked")
        with tarfile.open(cls.archive) as archive:
            archive.extractall(unpacked)
        cls.top = os.path.join(unpacked, os.listdir(unpacked)[0])
        cls.exported = check.read_stubs(STUBS, PROCESSOR)

    @classmethod
    def make_node_programs(cls):
        """Made-up programs for nodes: only their place in the tarball is looked at."""
        for platform in ("linux-x86_64", "linux-aarch64"):
            os.makedirs(os.path.join(cls.node, platform))
            for name in ("gpuctl-agent", "gpuctl-shim", "gpuctl-cuda-check"):
                path = os.path.join(cls.node, platform, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(name)
                os.chmod(path, 0o755)
        with open(os.path.join(SOURCE, "CMakeLists.txt"), encoding="utf-8") as file:
            version = re.search(r"project\([^)]*VERSION ([\d.]+)", file.read()).group(1)
        manifest = '{"version": "%s", "platforms": {}}' % version
        for name, text in [("roots.pem", ""), ("manifest.json", manifest)]:
            with open(os.path.join(cls.node, name), "w", encoding="utf-8") as file:
                file.write(text)

    def path(self, name):
        return os.path.join(self.top, name)

    def faults(self, content):
        return check.faults(content, PROCESSOR, self.exported, MOST)

    def test_the_tarball_has_the_layout_of_the_one_for_linux(self):
        self.assertRegex(os.path.basename(self.top), rf"^gpuctl-[\d.]+-macos-{PROCESSOR}$")
        for name in PROGRAMS + ["libexec/gpuctl/roots.pem", "libexec/gpuctl/trainer-src/build.sh",
                                "libexec/gpuctl/node/linux-x86_64/gpuctl-agent",
                                "libexec/gpuctl/node/linux-aarch64/gpuctl-shim",
                                "libexec/gpuctl/node/manifest.json", "LICENSE", "README.md",
                                "share/doc/gpuctl/docs/installing.md"]:
            self.assertTrue(os.path.isfile(self.path(name)), name)
        for name in PROGRAMS:
            self.assertTrue(os.access(self.path(name), os.X_OK), name)
        if glob.glob(os.path.join(SOURCE, "build/*/bin/gpuctl")):
            for name in ["share/man/man1/gpuctl.1", "share/bash-completion/completions/gpuctl",
                         "share/zsh/site-functions/_gpuctl"]:
                self.assertTrue(os.path.isfile(self.path(name)), name)

    def test_a_mac_would_take_the_programs(self):
        for name in PROGRAMS:
            self.assertEqual(self.faults(read(self.path(name))), [], name)
        for name in TESTS:
            self.assertEqual(check.faults(read(os.path.join(TREE, "tests", name)), PROCESSOR,
                                          self.exported), [], name)

    def test_their_sizes_are_bounded(self):
        client, agent, shim = (os.path.getsize(self.path(name)) for name in PROGRAMS)
        self.assertLess(client, MOST)
        self.assertLess(agent + shim, MOST)
        self.assertGreater(shim, 500_000)

    def test_llvm_reads_the_same_from_them(self):
        for name in PROGRAMS:
            program = check.Program(read(self.path(name)))
            listed = run("llvm-objdump", "--macho", "--dylibs-used", self.path(name))
            libraries = re.findall(r"^\t(\S+)", listed, re.M)
            self.assertEqual(set(libraries), NEEDED, name)
            self.assertEqual(libraries, program.libraries())
            undefined = re.findall(r"^\s*U (\S+)", run("llvm-nm", "-u", self.path(name)), re.M)
            undefined = undefined or run("llvm-nm", "-u", self.path(name)).split()
            self.assertEqual(sorted(undefined), sorted(symbol for symbol, _ in program.undefined()))
            headers = run("llvm-objdump", "--macho", "--private-headers", self.path(name))
            for wanted in ("LC_CODE_SIGNATURE", "minos 13.0"):
                self.assertIn(wanted, headers)
            # Without these tables no exception finds its handler.
            self.assertIn("LSDA", run("llvm-objdump", "--macho", "--unwind-info", self.path(name)))

    def test_no_path_of_this_machine_is_in_them(self):
        for name in PROGRAMS:
            self.assertNotIn(SOURCE.encode(), read(self.path(name)), name)

    def test_linked_again_they_are_the_same(self):
        for name in ("gpuctl", "gpuctl-agent", "gpuctl-shim"):
            os.remove(os.path.join(TREE, "bin", name))
        again = mac_client(os.path.join(self.folder, "again"), "--tests", "--node", self.node)
        self.assertEqual(read(self.archive), read(again))

    # The checks find what they are for.

    def change(self, content, old, new):
        self.assertEqual(len(old), len(new))
        self.assertIn(old, content)
        return content.replace(old, new, 1)

    def assert_found(self, content, pattern):
        found = self.faults(content)
        self.assertTrue(any(re.search(pattern, fault) for fault in found), (pattern, found))

    def test_a_changed_byte_is_found(self):
        content = bytearray(read(self.path(PROGRAMS[2])))
        content[len(content) // 2] ^= 1
        self.assertEqual(self.faults(bytes(content)),
                         [fault for fault in self.faults(bytes(content)) if "1 of" in fault])
        self.assert_found(bytes(content), r"signature does not fit 1 of \d+ pages")

    def test_another_library_is_found(self):
        content = self.change(read(self.path(PROGRAMS[2])), b"/usr/lib/libSystem.B.dylib",
                              b"/usr/lib/libOther_.B.dylib")
        self.assert_found(content, "needs /usr/lib/libOther_.B.dylib")

    def test_a_symbol_that_no_library_has_is_found(self):
        content = self.change(read(self.path(PROGRAMS[2])), b"\0_waitpid\0", b"\0_waitpix\0")
        self.assert_found(content, "^_waitpix is not in /usr/lib/libSystem.B.dylib")

    def test_an_unsigned_cut_off_or_foreign_program_is_found(self):
        content = read(self.path(PROGRAMS[2]))
        signature = [at for kind, at, _ in check.Program(content).commands
                     if kind == check.SIGNATURE][0]
        self.assert_found(content[:signature] + b"\x29" + content[signature + 1:], "is not signed")
        self.assert_found(content[:-100], "cut off")
        self.assertTrue(self.faults(read("/bin/true")))
        other = "x86_64" if PROCESSOR == "arm64" else "arm64"
        self.assertTrue(any("another processor" in fault for fault in
                            check.faults(content, other, self.exported)))
        self.assertIn("more than 1000",
                      " ".join(check.faults(content, PROCESSOR, self.exported, 1000)))

    def test_a_newer_macos_is_found(self):
        content = bytearray(read(self.path(PROGRAMS[2])))
        at = [at for kind, at, _ in check.Program(content).commands
              if kind == check.BUILD_VERSION][0]
        content[at + 14] = 14
        self.assert_found(bytes(content), r"oldest macOS is \(14, 0\)")

    def test_a_planted_library_is_found(self):
        """Links a program with a library that a Mac has not."""
        stub = os.path.join(self.folder, "libplanted.tbd")
        with open(stub, "w", encoding="utf-8") as file:
            file.write(f"--- !tapi-tbd\ntbd-version: 4\ntargets: [ {PROCESSOR}-macos ]\n"
                       "install-name: '/opt/planted/libplanted.dylib'\nexports:\n"
                       f"  - targets: [ {PROCESSOR}-macos ]\n    symbols: [ _planted ]\n...\n")
        source = os.path.join(self.folder, "planted.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int planted(void);\nint main(void) { return planted(); }\n")
        compiler = os.path.join(CACHE, TARGET, "bin/c")
        run(compiler, "-c", source, "-o", source + ".o")
        program = os.path.join(self.folder, "planted")
        run(compiler, source + ".o", stub, "-o", program)
        self.assertEqual(self.faults(read(program)),
                         ["it needs /opt/planted/libplanted.dylib",
                          "_planted is not in /opt/planted/libplanted.dylib"])
        # Without the library the linker itself refuses.
        refused = subprocess.run([compiler, source + ".o", "-o", program + "-2"], check=False,
                                 capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stderr, "undefined symbol: _?planted")


if __name__ == "__main__":
    del sys.argv[1]
    unittest.main(verbosity=2)

#!/usr/bin/env python3
"""Makes a release, looks at each of its files, and installs and runs it in bare systems.

  release_test.py SOURCE BIN     as root, with the packages of `deploy/packages.sh build test package`

BIN is the folder with gpuctl-cloudsim, the simulated markets.

The release is left in build/release-test. GPUCTL_RELEASE=DIR tests one that was made before, with the
key in DIR.key.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import unittest

from bare_root import bare_root, files_in, inside, program_in, run

SOURCE, BIN = (os.path.abspath(path) for path in sys.argv[1:3])
BUILD = os.path.join(SOURCE, "build")
OUT = os.environ.get("GPUCTL_RELEASE", os.path.join(BUILD, "release-test"))
KEY = OUT + ".key"
PLATFORMS = ["linux-x86_64", "linux-aarch64"]
LINT = os.path.join(SOURCE, "tests/lint")


def release(out):
    with open(out + ".log", "w", encoding="utf-8") as log:
        done = subprocess.run([os.path.join(SOURCE, "deploy/release"), "--dirty", "--out", out,
                               "--key", KEY, "--url", "https://host.example/v"],
                              check=False, stdout=log, stderr=log)
    assert done.returncode == 0, f"see {out}.log"


# From nothing to the first line of a job's output, without the download.
MOST_SECONDS_TO_A_FIRST_LINE = 30
# The pages that begin with a machine on which gpuctl was just installed.
PAGES = ["test_readme", "test_first_run"]
RUN = """
  out=$({gpuctl} launch --provider local --no-workdir -y --name one -- sh -c 'echo it runs')
  echo "$out"
  {gpuctl} ps -a
"""


class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if "GPUCTL_RELEASE" not in os.environ:
            for path in [KEY, KEY + ".pub"]:
                if os.path.exists(path):
                    os.remove(path)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", KEY)
            release(OUT)
        cls.version = re.search(r"gpuctl-(\d[\d.]*)\.tar\.gz",
                                " ".join(sorted(os.listdir(OUT)))).group(1)

    def file(self, pattern):
        found = glob.glob(os.path.join(OUT, pattern.replace("VERSION", self.version)))
        self.assertEqual(len(found), 1, pattern)
        return found[0]

    def test_digests_are_right_and_signed(self):
        sums = os.path.join(OUT, "SHA256SUMS")
        run("sha256sum", "-c", "--quiet", "SHA256SUMS", cwd=OUT)
        with open(sums, encoding="utf-8") as file:
            text = file.read()
        named = {line.split("  ")[1] for line in text.strip().split("\n")}
        self.assertEqual(named, set(os.listdir(OUT)) - {"SHA256SUMS", "SHA256SUMS.sig"})
        signers = OUT + ".signers"
        with open(os.path.join(SOURCE, "deploy/allowed_signers.example"), encoding="utf-8") as file:
            example = file.read()
        with open(KEY + ".pub", encoding="utf-8") as file:
            key = " ".join(file.read().split()[:2])
        with open(signers, "w", encoding="utf-8") as file:
            file.write(re.sub(r"ssh-ed25519 \S+", key, example))
        verify = ["ssh-keygen", "-Y", "verify", "-f", signers, "-I", "gpuctl-release", "-n",
                  "gpuctl-release", "-s", sums + ".sig"]
        run(*verify, input=text)
        with self.assertRaises(AssertionError):
            run(*verify, input=text.replace("a", "b", 1))

    def test_another_release_of_the_same_sources_is_the_same(self):
        again = OUT + "-again"
        release(again)
        with open(os.path.join(OUT, "SHA256SUMS"), encoding="utf-8") as first, \
             open(os.path.join(again, "SHA256SUMS"), encoding="utf-8") as second:
            self.assertEqual(first.read(), second.read())
        shutil.rmtree(again)

    def test_compiled_elsewhere_and_without_a_cache_the_programs_are_the_same(self):
        # The sources lie in another folder, the build in another, and nothing comes from ccache.
        root = os.path.join(BUILD, "node-root")
        elsewhere = os.path.join(root, "elsewhere")
        shutil.rmtree(elsewhere, ignore_errors=True)
        run("cp", "-a", os.path.join(root, "src"), elsewhere)
        with open(self.file("node-manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        try:
            run("chroot", root, "env", "CCACHE_DISABLE=1", "LC_ALL=C.UTF-8",
                f"SOURCE_DATE_EPOCH={manifest['commit_time_s']}", "bash",
                "/elsewhere/deploy/build_node.sh", "--out", "/elsewhere/out", "--build",
                "/elsewhere/build", "--jobs", "2", "linux-x86_64")
            archive = manifest["platforms"]["linux-x86_64"]
            again = run("sha256sum", os.path.join(elsewhere, "out", archive["archive"])).split()[0]
            self.assertEqual(again, archive["sha256"])
        finally:
            shutil.rmtree(elsewhere)

    def test_the_manifest_describes_the_archives(self):
        with open(self.file("node-manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(sorted(manifest["platforms"]), sorted(PLATFORMS))
        for platform in PLATFORMS:
            about = manifest["platforms"][platform]
            archive = self.file(about["archive"])
            self.assertEqual(run("sha256sum", archive).split()[0], about["sha256"])
            folder = OUT + ".unpacked"
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            run("bash", "-c", 'zstd -qdc "$1" | tar -xf - -C "$2"', "-", archive, folder)
            for name, of in about["files"].items():
                path = os.path.join(folder, platform, name)
                self.assertEqual(run("sha256sum", path).split()[0], of["sha256"])
            self.assertEqual(run("sha256sum", f"{folder}/roots.pem").split()[0],
                             manifest["roots_sha256"])
            programs = [os.path.join(folder, platform, name) for name in about["files"]]
            run(sys.executable, f"{LINT}/hardening_test.py", "readelf", "nm", "objdump", *programs)
            run(sys.executable, f"{LINT}/glibc_versions_test.py", "readelf",
                os.path.join(folder, platform, "gpuctl-cuda-check"))
            machine = {"linux-x86_64": "X86-64", "linux-aarch64": "AArch64"}[platform]
            for path in programs:
                self.assertIn(machine, run("readelf", "-h", path))
            self.runs(folder, platform, manifest["api_level"])
            shutil.rmtree(folder)

    def runs(self, folder, platform, level):
        """Runs the programs; those for arm64 with the page sizes that its kernels have."""
        agent = os.path.join(folder, platform, "gpuctl-agent")
        check = os.path.join(folder, platform, "gpuctl-cuda-check")
        root = os.path.join(BUILD, "node-root")  # has libc for both
        starts = [[]] if platform == f"linux-{os.uname().machine}" else [
            [f"qemu-{platform[6:]}", "-L", root, "-p", size] for size in ("4096", "65536")]
        for start in starts:
            self.assertEqual(run(*start, agent, "api-level"), f"{level}\n")
        done = subprocess.run([*starts[0], check], check=False, capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 3), done)  # 3: no driver here

    def test_the_deb_has_no_errors(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", self.file("*.deb")],
                              check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotRegex(done.stdout, r"(?m)^E:")

    def test_the_deb_installs_runs_and_goes_without_a_trace(self):
        root = bare_root(BUILD, "package-root", "bookworm")
        before = files_in(root)
        shutil.copy(self.file("*.deb"), os.path.join(root, "gpuctl.deb"))
        inside(root, "dpkg -i /gpuctl.deb; rm /gpuctl.deb")
        added = files_in(root) - before
        self.assertIn("usr/bin/gpuctl", added)
        for platform in PLATFORMS:
            self.assertIn(f"usr/libexec/gpuctl/node/{platform}/gpuctl-agent", added)
        self.assertIn("usr/share/man/man1/gpuctl-launch.1.gz", added)
        self.assertFalse([path for path in added if not path.startswith("usr/")])
        self.assertEqual(inside(root, "gpuctl --version"), f"gpuctl {self.version}\n")
        self.assertIn("all is well", inside(root, "gpuctl doctor"))
        node = json.loads(inside(root, "gpuctl node -o json"))
        self.assertEqual({row["platform"]: row["matches_manifest"] for row in node["programs"]},
                         dict.fromkeys(PLATFORMS, True))
        self.assertEqual((node["missing"], node["refused"]), ([], []))
        output = inside(root, RUN.format(gpuctl="gpuctl"))
        self.assertIn("it runs", output)
        self.assertIn("one-1", output)
        inside(root, "dpkg --purge gpuctl")
        self.assertEqual(files_in(root) ^ before, set())
        shutil.rmtree(root)

    def test_the_tarball_runs_in_another_release(self):
        root = bare_root(BUILD, "package-root", "trixie")
        with tarfile.open(self.file("gpuctl-VERSION-linux-*.tar.gz")) as archive:
            archive.extractall(os.path.join(root, "opt"))
        gpuctl = f"/opt/gpuctl-{self.version}-linux-{os.uname().machine}/bin/gpuctl"
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", root + gpuctl))
        self.assertLessEqual(set(needed), {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                                           "ld-linux-aarch64.so.1"})
        self.assertEqual(inside(root, f"{gpuctl} --version"), f"gpuctl {self.version}\n")
        self.assertIn("all is well", inside(root, f"{gpuctl} doctor"))
        self.assertIn("it runs", inside(root, RUN.format(gpuctl=gpuctl)))
        shutil.rmtree(root)

    def pages_in(self, root, gpuctl):
        """Runs the pages' commands with a gpuctl of the root; what it rents comes from the simulator."""
        documents = os.path.join(SOURCE, "tests/end_to_end/documents.py")
        run(sys.executable, documents, program_in(root, gpuctl), "/bin/false",
            os.path.join(BIN, "gpuctl-cloudsim"), *PAGES)

    def first_line_in(self, root, suite, install, gpuctl):
        began = time.monotonic()
        self.assertIn("it runs", inside(root, install + RUN.format(gpuctl=gpuctl)))
        took = time.monotonic() - began
        print(f"{suite}: from nothing to the end of the first job: {took:.1f} s", flush=True)
        self.assertLess(took, MOST_SECONDS_TO_A_FIRST_LINE)

    def test_the_deb_runs_the_first_pages(self):
        for suite in ["bookworm", "noble"]:
            with self.subTest(suite):
                root = bare_root(BUILD, "package-root", suite)
                deb = os.path.basename(self.file("*.deb"))
                shutil.copy(self.file("*.deb"), os.path.join(root, "root"))
                apt = f"cd /root; apt-get -q -y install ./{deb}"
                inside(root, f"apt-get -q update; {apt} --download-only")
                self.first_line_in(root, suite, apt + "; ", "gpuctl")
                self.pages_in(root, "gpuctl")
                inside(root, "apt-get -q -y purge gpuctl")
                self.assertEqual([path for path in files_in(root) if "gpuctl" in path], [])
                shutil.rmtree(root)

    def test_the_tarball_runs_the_first_pages(self):
        root = bare_root(BUILD, "package-root", "trixie")
        inside(root, "apt-get -q update; apt-get -q -y install libcurl4t64")
        tarball = self.file("gpuctl-VERSION-linux-*.tar.gz")
        shutil.copy(tarball, os.path.join(root, "opt"))
        gpuctl = f"/opt/gpuctl-{self.version}-linux-{os.uname().machine}/bin/gpuctl"
        unpack = f"cd /opt; tar xf {os.path.basename(tarball)}; "
        self.first_line_in(root, "trixie", unpack, gpuctl)
        self.pages_in(root, gpuctl)
        shutil.rmtree(root)

    def test_the_source_tarball_has_what_the_commit_has(self):
        with tarfile.open(self.file("gpuctl-VERSION.tar.gz")) as archive:
            names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        tracked = run("git", "-C", SOURCE, "ls-tree", "-r", "--name-only", "HEAD").split("\n")
        self.assertLessEqual({name for name in tracked if name and '"' not in name}, names)
        # Homebrew builds from it without node.
        self.assertIn("client/dashboard/page/dist/page.html.gz", names)

    def test_the_formula_is_ruby(self):
        self.assertEqual(run("ruby", "-c", self.file("gpuctl.rb")), "Syntax OK\n")

    def test_the_sbom_names_what_is_linked(self):
        with open(self.file("gpuctl-VERSION.spdx.json"), encoding="utf-8") as file:
            sbom = json.load(file)
        self.assertEqual(sbom["spdxVersion"], "SPDX-2.3")
        packages = {package["name"]: package for package in sbom["packages"]}
        for name in ["gpuctl", "libgrpc++-dev", "libprotobuf-dev", "libssl-dev", "libssh-dev",
                     "libsqlite3-dev", "libabsl-dev", "libc6-dev", "nlohmann-json3-dev"]:
            self.assertRegex(packages[name]["versionInfo"], r"^[\w.:+~-]+$", name)
        self.assertEqual(packages["libabsl-dev"]["licenseDeclared"], "Apache-2.0")
        self.assertEqual(packages["uplot"]["licenseDeclared"], "MIT")
        ids = {package["SPDXID"] for package in sbom["packages"]}
        self.assertEqual(len(ids), len(sbom["packages"]))
        for relation in sbom["relationships"]:
            self.assertIn(relation["relatedSpdxElement"], ids)

    def test_man_pages_and_completions_are_well_formed(self):
        folder = OUT + ".unpacked"
        shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(self.file("gpuctl-VERSION-linux-*.tar.gz")) as archive:
            archive.extractall(folder)
        share = glob.glob(f"{folder}/*/share")[0]
        pages = glob.glob(f"{share}/man/man1/*.1")
        self.assertGreater(len(pages), 20)
        run("mandoc", "-Tlint", "-W", "warning", *pages)
        run("bash", "-n", f"{share}/bash-completion/completions/gpuctl")
        run("zsh", "-n", f"{share}/zsh/site-functions/_gpuctl")
        run("fish", "-n", f"{share}/fish/vendor_completions.d/gpuctl.fish")
        shutil.rmtree(folder)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])

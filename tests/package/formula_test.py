#!/usr/bin/env python3
"""Installs a release from its Homebrew formula, with libraries as new as Homebrew's: in the root of
newest_libraries_test, by formula.rb, which does what Homebrew does.

  formula_test.py SOURCE     as root, after `./test --label package` and within `--label newest`

GPUCTL_RELEASE=DIR is the release; default: build/release-test. Exits with 77, which is no success,
where it or the root is missing.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys

SOURCE = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(SOURCE, "tests/integration"))
import debian_root  # noqa: E402

RELEASE = os.environ.get("GPUCTL_RELEASE", os.path.join(SOURCE, "build/release-test"))
ROOT = os.path.join(SOURCE, "build/newest-root")
SKIPPED = 77
NODE = "/tmp/formula-node"


def inside(command):
    return debian_root.inside(ROOT, "sh", "-euc", command)


def end_node():
    """Ends what the job left running, and removes what it left in the root."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                if NODE.encode() in file.read().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
    for path in (NODE, "/root/.local", "/root/.cache"):
        shutil.rmtree(ROOT + path, ignore_errors=True)


def main():
    if not os.path.exists(os.path.join(ROOT, "made")) or os.geteuid() != 0:
        print("NOT TESTED: no root in %s; as root, ./test --label newest makes it" % ROOT)
        sys.exit(SKIPPED)
    if not os.path.exists(os.path.join(RELEASE, "gpuctl.rb")):
        print("NOT TESTED: no release in %s; ./test --label package makes it" % RELEASE)
        sys.exit(SKIPPED)
    files = os.path.join(ROOT, "release")
    shutil.rmtree(files, ignore_errors=True)
    shutil.copytree(RELEASE, files)
    shutil.copy(os.path.join(SOURCE, "tests/package/formula.rb"), files)
    subprocess.run(inside("ruby /release/formula.rb /release/gpuctl.rb /release /opt/gpuctl"), check=True)
    # It is whole: its man pages, completions and programs, and a job runs with them.
    done = subprocess.run(inside("""
      gpuctl=/opt/gpuctl/bin/gpuctl
      test -s /opt/gpuctl/share/man/man1/gpuctl-launch.1
      bash -n /opt/gpuctl/etc/bash_completion.d/gpuctl
      zsh=/opt/gpuctl/share/zsh/site-functions/_gpuctl; test -s $zsh
      export GPUCTL_NODE_ROOT=%s
      $gpuctl doctor
      $gpuctl launch --provider local --no-workdir -y --name one -- sh -c 'echo it runs'
    """ % NODE), check=False, capture_output=True, text=True)
    end_node()
    print(done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, done.returncode
    assert "all is well" in done.stdout and "it runs" in done.stdout


if __name__ == "__main__":
    main()

"""Bare systems: root directories of other releases, with no compiler, in which packages are tried."""
import hashlib
import os
import re
import shutil
import stat
import subprocess
import urllib.request

# sshd is for provider local; the job of the README is in Python.
PACKAGES = "openssh-server,python3"
# What debootstrap knows Ubuntu's releases by, and the package with the keys that sign them.
UBUNTU_SCRIPT = "gutsy"
UBUNTU_KEYS = "/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
UBUNTU_KEYS_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
IS_UBUNTU = {"noble"}
# Programs and paths inside are those of the root; the user's files are those outside.
IN_ROOT = r"""#!/bin/sh
exec unshare -m --propagation private sh -euc '
  root=$0 dir=$PWD
  mount --rbind /proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mkdir -p "$root$HOME"
  mount --bind "$HOME" "$root$HOME"
  exec chroot "$root" env -C "$dir" "$@"' 'ROOT' 'PROGRAM' "$@"
"""


def run(*command, **options):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def ubuntu_archive():
    """The address of Ubuntu's archive, which debootstrap's script names after those of old releases."""
    with open("/usr/share/debootstrap/scripts/" + UBUNTU_SCRIPT, encoding="utf-8") as file:
        found = re.findall(r"default_mirror (http\S+)", file.read())
    return next(address for address in found if "old-releases" not in address)


def ubuntu_keys(build):
    """Fetches the keys of Ubuntu's archive, which Debian 12 does not have."""
    folder = os.path.join(build, "ubuntu-keys")
    if not os.path.isdir(folder):
        with urllib.request.urlopen(ubuntu_archive() + UBUNTU_KEYS, timeout=300) as reply:
            package = reply.read()
        digest = hashlib.sha256(package).hexdigest()
        assert digest == UBUNTU_KEYS_SHA256, f"{UBUNTU_KEYS} is another file: sha256 {digest}"
        with open(folder + ".deb", "wb") as file:
            file.write(package)
        run("dpkg-deb", "-x", folder + ".deb", folder)
    return os.path.join(folder, "usr/share/keyrings/ubuntu-archive-keyring.gpg")


def bare_root(build, name, suite):
    """Returns a fresh copy of a bare system, build/NAME."""
    base = os.path.join(build, f"package-root-{suite}")
    if not os.path.exists(os.path.join(base, "made")):
        shutil.rmtree(base, ignore_errors=True)
        place = ["--keyring", ubuntu_keys(build), suite, base, ubuntu_archive(), UBUNTU_SCRIPT] \
            if suite in IS_UBUNTU else [suite, base]
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", *place)
        open(os.path.join(base, "made"), "w", encoding="utf-8").close()
    root = os.path.join(build, name)
    shutil.rmtree(root, ignore_errors=True)
    run("cp", "-a", base, root)
    return root


def inside(root, script):
    """Runs a script in a root directory with /proc and /dev, in a mount and process namespace of its
    own: what the script leaves running ends with it."""
    prepare = ('mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && '
               'exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin '
               'TERM=dumb DEBIAN_FRONTEND=noninteractive GPUCTL_NODE_ROOT=/tmp/n bash -euc "$2"')
    return run("unshare", "--mount", "--pid", "--fork", "--propagation", "private",
               "bash", "-c", prepare, "-", root, script)


def program_in(root, program):
    """Writes a script beside the root that runs the root's program, and returns its path. Its home
    and the files under it are those of the caller, and so is the list of processes: what it starts
    outlives it, as on a computer."""
    path = root + ".program"
    with open(path, "w", encoding="utf-8") as file:
        file.write(IN_ROOT.replace("ROOT", root).replace("PROGRAM", program))
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def files_in(root):
    """What lies in a root directory, without what a package manager and a run write down."""
    found = set()
    for folder, folders, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        if relative == ".":
            folders[:] = [name for name in folders if name not in ("proc", "dev", "sys", "tmp", "run",
                                                                   "root")]
        for name in files + folders:
            path = os.path.normpath(os.path.join(relative, name))
            if not re.match(r"var/(lib/dpkg|log|cache)/", path):
                found.add(path)
    return found

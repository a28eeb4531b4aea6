#!/usr/bin/env python3
"""Checks that what npm brings is what was looked at: each package in tests/npm and of the
dashboard's page has a hash in its
lock file, no script of a package runs, and nothing is installed past the lock files.

  npm_lock_test.py REPOSITORY
"""
import glob
import json
import os
import re
import subprocess
import sys

INSTALLS = re.compile(r"npm\W+(install|ci|i|add|exec)\b|\bnpx\b")


def unlocked(path):
    """Returns what is wrong with a lock file."""
    with open(path, encoding="utf-8") as file:
        packages = json.load(file)["packages"]
    wrong = []
    for name, package in packages.items():
        if name and not package.get("integrity", "").startswith("sha512-"):
            wrong.append(f"{path}: {name} has no hash")
        if "resolved" in package:
            wrong.append(f"{path}: {name} names a host")
    return wrong if len(packages) > 1 else [f"{path}: no package"]


def unsafe(name, text):
    """Returns the commands in a file that install with scripts or past a lock file."""
    lines = text.split("\n")
    wrong = []
    for number, line in enumerate(lines):
        if not INSTALLS.search(line.replace('", "', " ")) or line.lstrip().startswith("#"):
            continue
        if "--ignore-scripts" not in " ".join(lines[number:number + 2]) or "npx" in line:
            wrong.append(f"{name}:{number + 1}: {line.strip()}")
    return wrong


def check(repository):
    locks = glob.glob(os.path.join(repository, "tests/npm/*/package.json"))
    wrong = [] if locks else ["tests/npm: no packages"]
    locks.append(os.path.join(repository, "client/dashboard/page/package.json"))
    for path in locks:
        wrong += unlocked(os.path.join(os.path.dirname(path), "package-lock.json"))
    files = subprocess.run(["git", "-C", repository, "ls-files", "-z", "test", "quickstart", ".ci",
                            "*.py", "*.sh", "*.cmake", "*CMakeLists.txt", "deploy"], check=True,
                           capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, files):
        if name == "tests/lint/npm_lock_test.py":
            continue
        with open(os.path.join(repository, name), encoding="utf-8") as file:
            wrong += unsafe(name, file.read())
    return wrong


def main():
    # What must be found, and what must not.
    assert unsafe("a", 'npm install --prefix x "$p"') and unsafe("a", '["npm", "install", P]')
    assert unsafe("a", "npx prism") and not unsafe("a", "npm ci --ignore-scripts")
    assert not unsafe("a", "install_debian nodejs npm")
    wrong = check(sys.argv[1])
    print("\n".join(wrong) if wrong else "npm: all packages are locked")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

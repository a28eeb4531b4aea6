#!/usr/bin/env python3
"""Checks that clang-format, with the .clang-format of the folder, would change no source.

  format_test.py CLANG_FORMAT ROOT         names the files that are not
  format_test.py CLANG_FORMAT ROOT --fix   formats them
  format_test.py CLANG_FORMAT --self-test  expects a badly formatted file to be found, no other
"""
import os
import re
import subprocess
import sys
import tempfile

SOURCES = (".h", ".cc")
FOLDERS = ("agent", "bench", "client", "common", "provisioning", "tests", "trainer")


def sources(root):
    """Returns everything that git would commit below `root`; without git every source file."""
    listing = subprocess.run(
        ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z",
         "--", *FOLDERS], check=False, capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        files = listing.stdout.split("\0")
    else:
        files = [os.path.relpath(os.path.join(folder, name), root)
                 for top in FOLDERS
                 for folder, _, names in os.walk(os.path.join(root, top)) for name in names]
    return sorted(f for f in files if f.endswith(SOURCES) and os.path.isfile(os.path.join(root, f)))


def unformatted(clang_format, root, files):
    """Returns those of `files` below `root` that clang-format would change."""
    run = subprocess.run([clang_format, "--dry-run", "-Werror", "--style=file", *files], cwd=root,
                         check=False, capture_output=True, text=True)
    found = set(re.findall(r"^([^\s:][^:\n]*):\d+:\d+: ", run.stderr, re.MULTILINE))
    if run.returncode != 0 and not found:
        sys.exit(f"clang-format: {run.stderr.strip()}")
    return sorted(found)


def self_test(clang_format):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in ((".clang-format", "BasedOnStyle: Google\n"),
                           ("good.cc", "int F() { return 1; }\n"),
                           ("bad.cc", "int F( ) {return 1;}\n")):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        found = unformatted(clang_format, folder, ["bad.cc", "good.cc"])
    if found != ["bad.cc"]:
        sys.exit(f"found {found}, not bad.cc alone")


def main():
    clang_format, argument = sys.argv[1:3]
    if argument == "--self-test":
        self_test(clang_format)
        return
    files = sources(argument)
    if not files:
        sys.exit(f"{argument}: no sources")
    found = unformatted(clang_format, argument, files)
    if found and sys.argv[3:] == ["--fix"]:
        subprocess.run([clang_format, "-i", *found], cwd=argument, check=True)
        return
    for path in found:
        print(f"{path}: not formatted; tests/lint/format_test.py {clang_format} . --fix")
    if found:
        sys.exit(1)
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()

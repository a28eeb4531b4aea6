#!/usr/bin/env python3
"""Checks that programs need no glibc newer than 2.17, as readelf sees their symbols' versions.

  glibc_versions_test.py READELF FILE…                  at least one must be dynamic
  glibc_versions_test.py READELF --self-test COMPILER   a program that needs a newer one is found
"""
import os
import re
import subprocess
import sys
import tempfile

NEWEST = (2, 17)


def needed(readelf, path):
    """Returns the versions of glibc that a program's symbols have, as tuples of numbers."""
    listing = subprocess.run([readelf, "-V", "-W", path], check=True, capture_output=True,
                             text=True).stdout
    return {tuple(int(part) for part in version.split("."))
            for version in re.findall(r"Name: GLIBC_([0-9.]+)", listing)}


def check(readelf, paths):
    """Returns (wrong, versions): what is too new, and how many versions were seen in all."""
    wrong, seen = [], 0
    for path in paths:
        versions = needed(readelf, path)
        seen += len(versions)
        newer = sorted(version for version in versions if version > NEWEST)
        wrong += [f"{path}: GLIBC_{'.'.join(map(str, version))}" for version in newer]
    return wrong, seen


def self_test(readelf, compiler):
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "new.cc"), os.path.join(folder, "new")
        with open(source, "w", encoding="utf-8") as file:
            file.write("int main() { return 0; }\n")
        # Its start is the newest, whichever the code's functions are. A machine with an old glibc
        # cannot make such a program.
        subprocess.run([compiler, source, "-o", program], check=True)
        versions = needed(readelf, program)
        wrong, _ = check(readelf, [program])
    if not versions:
        print("no version was read")
        return 1
    expected = any(version > NEWEST for version in versions)
    print(f"newest version {max(versions)}, {'found' if wrong else 'not found'}")
    return 0 if bool(wrong) == expected else 1


def main():
    readelf, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--self-test"]:
        return self_test(readelf, rest[1])
    wrong, seen = check(readelf, rest)
    for line in wrong:
        print(line)
    print(f"{len(rest)} programs, {seen} versions of glibc, {len(wrong)} newer than "
          f"{'.'.join(map(str, NEWEST))}")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks that statically linked code (agent, shim and common) makes no name-service call.

glibc's getaddrinfo, getpw* and similar functions load the machine's own nsswitch modules at run
time, which aborts or crashes a static binary under another distribution. Checks our own objects
only; libraries contain such calls, but they are never made.

  static_symbols_test.py NM FILE…                  archives and objects
  static_symbols_test.py NM --self-test COMPILER   expects a planted call of each to be found
"""
import os
import re
import subprocess
import sys
import tempfile

FORBIDDEN = re.compile(
    r"^_?(getaddrinfo(_a)?|getnameinfo|gethostby\w+|gethostent|getpw(nam|uid|ent)(_r)?"
    r"|getgr(nam|gid|ent)(_r)?|getgrouplist|initgroups|getservby\w+|getservent|getprotoby\w+"
    r"|getnetby\w+|__res_\w+|res_n?(init|query|search))(@.*)?$")
PLANTED = ["getaddrinfo", "gethostbyname", "gethostbyname_r", "getpwnam", "getpwuid_r", "getgrgid",
           "getgrnam_r", "getgrouplist", "initgroups", "getservbyname", "getnameinfo"]


def undefined_symbols(nm, path):
    """Yields (member, symbol) for everything undefined in an object or archive."""
    listing = subprocess.run([nm, "-u", "-A", path], check=False, capture_output=True, text=True)
    if listing.returncode != 0:
        sys.exit(f"nm: {listing.stderr.strip()} (built since it was added?)")
    for line in listing.stdout.splitlines():
        where, _, rest = line.rpartition(": ")
        yield where, rest.split()[-1]


def check(nm, paths):
    symbols, problems = 0, []
    for path in paths:
        for where, symbol in undefined_symbols(nm, path):
            symbols += 1
            if FORBIDDEN.match(symbol):
                problems.append(f"{where}: {symbol}")
    return symbols, problems


def self_test(nm, compiler):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in PLANTED:
            source = os.path.join(folder, "planted.cc")
            with open(source, "w", encoding="utf-8") as file:
                file.write(f'extern "C" int {name}(...);\nint F() {{ return {name}(1); }}\n')
            subprocess.run([compiler, "-c", source, "-o", source + ".o"], check=True)
            if not check(nm, [source + ".o"])[1]:
                print(f"{name} was not found")
                failures += 1
        with open(source, "w", encoding="utf-8") as file:
            file.write('extern "C" int getpid();\nint F() { return getpid(); }\n')
        subprocess.run([compiler, "-c", source, "-o", source + ".o"], check=True)
        if check(nm, [source + ".o"])[1]:
            print("getpid was taken for a name service")
            failures += 1
    print(f"{len(PLANTED)} planted, {failures} judged wrongly")
    return 1 if failures else 0


def main():
    nm, rest = sys.argv[1], sys.argv[2:]
    if rest[:1] == ["--self-test"]:
        return self_test(nm, rest[1])
    symbols, problems = check(nm, rest)
    for problem in problems:
        print(problem)
    print(f"{len(rest)} files, {symbols} undefined symbols, {len(problems)} name-service calls")
    return 1 if problems or symbols == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

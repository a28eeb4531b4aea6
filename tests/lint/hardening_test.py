#!/usr/bin/env python3
"""Checks that programs are hardened, as readelf and objdump see them.

A program is position independent, its stack is not executable, its relocations are read-only once
it runs, its functions have canaries, and the calls of libc in it are checked. On x86-64 the
functions of the program begin with a marked branch target, where it has symbols.

  hardening_test.py READELF NM OBJDUMP FILE…
  hardening_test.py READELF NM OBJDUMP --self-test COMPILER   each missing property must be found
"""
import os
import platform
import re
import subprocess
import sys
import tempfile

# What the compiler calls when a canary is dead, and checked forms of libc's functions.
CANARY = "__stack_chk_fail"
CHECKED = re.compile(r"\b__(memcpy|memmove|memset|strcpy|strcat|snprintf|vsnprintf|sprintf|read|recv"
                     r"|readlink|fprintf|vfprintf|printf|fdelt|poll|realpath|getcwd)_chk\b")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def missing(readelf, nm, objdump, path):
    """Returns what the program lacks."""
    headers = output_of(readelf, "-hlW", path)
    dynamic = output_of(readelf, "-dW", path)
    lacks = []
    if not re.search(r"^\s*Type:\s+DYN", headers, re.MULTILINE):
        lacks.append("position independence")
    stack = re.search(r"^\s*GNU_STACK\s.*?\s(R\w*)\s+0(x\w+)?$", headers, re.MULTILINE)
    if stack is None or "E" in stack.group(1):
        lacks.append("a stack that is not executable")
    if "GNU_RELRO" not in headers:
        lacks.append("read-only relocations")
    if not re.search(r"BIND_NOW|FLAGS_1.*NOW", dynamic):
        lacks.append("binding at the start")
    symbols = output_of(nm, path) + output_of(nm, "-D", path)
    if "NEEDED" not in dynamic and not output_of(nm, path).strip():
        # A stripped static program has no names left. libc's words for a dead canary and for an
        # overflow are in it only when something calls the checks.
        with open(path, "rb") as file:
            content = file.read()
        if b"stack smashing detected" not in content:
            lacks.append("canaries")
        if b"buffer overflow detected" not in content:
            lacks.append("checked calls of libc")
    else:
        if CANARY not in symbols:
            lacks.append("canaries")
        if not CHECKED.search(symbols):
            lacks.append("checked calls of libc")
        if platform.machine() == "x86_64" and re.search(r" T main$", symbols, re.MULTILINE):
            if "endbr64" not in output_of(objdump, "-d", "--no-show-raw-insn",
                                          "--disassemble=main", path):
                lacks.append("marked branch targets")
    return lacks


PROGRAM = """
#include <cstdio>
#include <cstring>
#include <unistd.h>
int main(int argc, char** argv) {
  char text[64];
  const ssize_t got = read(0, text, argc > 1 ? strlen(argv[1]) : 10);
  return printf("%s%zd", text, got);
}
"""
GOOD = ["-O1", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong",
        "-fcf-protection", "-fPIE", "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack"]
# What is left out or turned off, and what must be said then.
BAD = [(["-no-pie", "-fno-pie"], "position independence"),
       (["-Wl,-z,execstack"], "a stack that is not executable"),
       (["-Wl,-z,norelro"], "read-only relocations"),
       (["-Wl,-z,lazy"], "binding at the start"),
       (["-fno-stack-protector"], "canaries"),
       (["-U_FORTIFY_SOURCE"], "checked calls of libc"),
       (["-fcf-protection=none"], "marked branch targets")]


def self_test(tools, compiler):
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "program.cc")
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        x86 = platform.machine() == "x86_64"
        good = [flag for flag in GOOD if x86 or flag != "-fcf-protection"]
        for flags, expected in [([], None)] + BAD:
            if expected == "marked branch targets" and not x86:
                continue
            path = os.path.join(folder, "program")
            subprocess.run([compiler, *good, *flags, "-w", "-o", path, source], check=True)
            found = missing(*tools, path)
            if found != ([expected] if expected else []):
                wrong += 1
                print(f"{flags}: expected {expected}, found {found}")
    print(f"{1 + len(BAD)} planted programs, {wrong} misjudged")
    return 1 if wrong else 0


def main():
    tools, rest = sys.argv[1:4], sys.argv[4:]
    if rest[:1] == ["--self-test"]:
        return self_test(tools, rest[1])
    bad = 0
    for path in rest:
        lacks = missing(*tools, path)
        bad += bool(lacks)
        print(f"{os.path.basename(path)}: {'lacks ' + ', '.join(lacks) if lacks else 'hardened'}")
    return 1 if bad or not rest else 0


if __name__ == "__main__":
    sys.exit(main())

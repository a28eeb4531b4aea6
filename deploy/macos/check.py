#!/usr/bin/env python3
"""Checks programs for macOS as far as that is possible without a Mac.

  check.py --processor arm64|x86_64 --stubs FILE.tbd … [--most MB] PROGRAM…

It reads the Mach-O files itself, and says what a Mac would refuse or miss:
- the processor, the kind of file, the oldest macOS that it is for;
- the shared libraries, of which only those of the system are allowed;
- each symbol that it takes from one, which must be in the stub (.tbd) of that library;
- the segments, whose place in file and memory must fit a Mac's pages;
- the signature: the hash of each page, and the parts that dyld wants to be there.
One line for each program, with its size; exit 1 when one has a fault.
"""
import argparse
import hashlib
import re
import struct
import sys

OLDEST = (13, 0)
LIBRARIES = ("/usr/lib/libSystem.B.dylib", "/usr/lib/libresolv.9.dylib",
             "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation")
PROCESSORS = {"arm64": 0x0100000C, "x86_64": 0x01000007}
PAGE = {"arm64": 0x4000, "x86_64": 0x1000}

MAGIC, EXECUTE = 0xFEEDFACF, 2
NO_UNDEFINED, DYLD_LINK, TWO_LEVEL, ANY_ADDRESS = 0x1, 0x4, 0x80, 0x200000
SYMTAB, LOAD_DYLIB, LOAD_WEAK, REEXPORT = 0x2, 0xC, 0x80000018, 0x8000001F
SEGMENT, UUID, SIGNATURE, DYLINKER, MAIN, BUILD_VERSION = 0x19, 0x1B, 0x1D, 0xE, 0x80000028, 0x32
MACOS = 1


def words(text, at, count, order="<"):
    return struct.unpack_from(f"{order}{count}I", text, at)


def string_at(text, at):
    return text[at:text.index(b"\0", at)].decode()


class Program:
    """What a Mach-O file says about itself."""

    def __init__(self, content):
        self.content = content
        self.magic, self.processor, _, self.kind, count, _, self.flags, _ = words(content, 0, 8)
        if self.magic != MAGIC:
            raise ValueError("no Mach-O file of 64 bits")
        self.commands, at = [], 32
        for _ in range(count):
            kind, size = words(content, at, 2)
            self.commands.append((kind, at, size))
            at += size

    def all(self, *kinds):
        return [(at, size) for kind, at, size in self.commands if kind in kinds]

    def libraries(self):
        return [string_at(self.content, at + words(self.content, at + 8, 1)[0])
                for at, _ in self.all(LOAD_DYLIB, LOAD_WEAK, REEXPORT)]

    def oldest(self):
        """The oldest system as (major, minor), None where it does not say or is for another."""
        for at, _ in self.all(BUILD_VERSION):
            platform, version = words(self.content, at + 8, 2)
            if platform == MACOS:
                return version >> 16, version >> 8 & 0xFF
        return None

    def undefined(self):
        """The symbols that come from shared libraries, as (name, library)."""
        found, libraries = [], self.libraries()
        for at, _ in self.all(SYMTAB):
            symbols, count, strings, _ = words(self.content, at + 8, 4)
            for i in range(count):
                name, kind, _, description, _ = struct.unpack_from(
                    "<IBBHQ", self.content, symbols + 16 * i)
                if kind & 0xE0 or kind & 0x0E or not kind & 0x01:
                    continue  # for a debugger, defined, or not external
                library = description >> 8
                found.append((string_at(self.content, strings + name),
                              libraries[library - 1] if 0 < library <= len(libraries) else None))
        return found

    def segments(self):
        """(name, place and size in memory, place and size in the file)"""
        for at, _ in self.all(SEGMENT):
            name = self.content[at + 8:at + 24].rstrip(b"\0").decode()
            yield (name, *struct.unpack_from("<4Q", self.content, at + 24))


def signature_faults(program):
    places = program.all(SIGNATURE)
    if len(places) != 1:
        return ["it is not signed"]
    start, size = words(program.content, places[0][0] + 8, 2)
    blob = program.content[start:start + size]
    if len(blob) < size or words(blob, 0, 1, ">")[0] != 0xFADE0CC0:
        return ["the signature is cut off"]
    for i in range(words(blob, 8, 1, ">")[0]):
        kind, at = words(blob, 12 + 8 * i, 2, ">")
        if kind == 0:
            return directory_faults(program.content, start, blob[at:])
    return ["the signature has no hashes"]


def directory_faults(content, start, directory):
    (magic, _, _, flags, hashes, _, _, count, limit) = words(directory, 0, 9, ">")
    size, kind, _, page_bits = directory[36:40]
    if magic != 0xFADE0C02 or not flags & 0x2 or (size, kind) != (32, 2):
        return ["the signature is none of hashes alone (SHA-256, ad hoc)"]
    page = 1 << page_bits
    if limit != start or count != -(-limit // page):
        return ["the signature covers another part of the file"]
    bad = [i for i in range(count)
           if hashlib.sha256(content[i * page:min((i + 1) * page, limit)]).digest()
           != directory[hashes + i * size:hashes + (i + 1) * size]]
    return [f"the signature does not fit {len(bad)} of {count} pages"] if bad else []


def faults(content, processor, exported, most=None):
    """Returns what is wrong with a program, one text for each fault."""
    try:
        program = Program(content)
    except (ValueError, struct.error) as error:
        return [str(error)]
    found = []
    if program.processor != PROCESSORS[processor]:
        found.append(f"it is for another processor (0x{program.processor:x})")
    if program.kind != EXECUTE:
        found.append("it is no program")
    for flag, text in [(NO_UNDEFINED, "it has undefined symbols"),
                       (DYLD_LINK, "it is not for dyld"),
                       (TWO_LEVEL, "its symbols do not name their library"),
                       (ANY_ADDRESS, "it runs at one address only")]:
        if not program.flags & flag:
            found.append(text)
    if program.oldest() != OLDEST:
        found.append(f"the oldest macOS is {program.oldest()}, not {OLDEST}")
    for kind, text in [(MAIN, "no beginning"), (DYLINKER, "no dyld"), (UUID, "no UUID")]:
        if len(program.all(kind)) != 1:
            found.append(f"it has {text}")
    for library in program.libraries():
        if library not in LIBRARIES:
            found.append(f"it needs {library}")
    for name, library in program.undefined():
        if name not in exported.get(library, set()):
            found.append(f"{name} is not in {library}")
    for name, address, size, offset, length in program.segments():
        if address % PAGE[processor] or (length and offset % PAGE[processor]):
            found.append(f"segment {name} does not begin with a page")
        if length > size or offset + length > len(content):
            found.append(f"segment {name} is cut off")
    found += signature_faults(program)
    if most is not None and len(content) > most:
        found.append(f"it has {len(content)} bytes, more than {most}")
    return found


def read_stubs(paths, processor):
    """Returns the symbols that libraries have for a processor, by the name of the library. What a
    library has from another one counts as its own."""
    exported, again = {}, {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            documents = re.split(r"^--- .*$", file.read(), flags=re.M)[1:]
        for document in documents:
            name = re.search(r"^install-name:\s*'?([^'\n]*?)'?\s*$", document, re.M).group(1)
            symbols = exported.setdefault(name, set())
            for section, body in re.findall(r"^([\w-]+):[ \t]*\n((?:[ \t]+.*\n?)+)", document, re.M):
                for part in re.split(r"^  - ", body, flags=re.M)[1:]:
                    lists = dict(re.findall(r"([\w-]+):\s*\[(.*?)\]", part, re.S))
                    has = {key: re.findall(r"[^\s,']+", value) for key, value in lists.items()}
                    if f"{processor}-macos" not in has.get("targets", []):
                        continue
                    if section in ("exports", "reexports"):
                        for key in ("symbols", "weak-symbols", "thread-local-symbols"):
                            symbols.update(has.get(key, []))
                    elif section == "reexported-libraries":
                        again.setdefault(name, set()).update(has.get("libraries", []))
    for name, others in again.items():
        seen = set()
        while others:
            other = others.pop()
            if other not in seen:
                seen.add(other)
                exported[name] |= exported.get(other, set())
                others |= again.get(other, set()) - seen
    return exported


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processor", choices=PROCESSORS, required=True)
    parser.add_argument("--stubs", action="append", required=True)
    parser.add_argument("--most", type=float, help="megabytes that a program has at most")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    exported = read_stubs(options.stubs, options.processor)
    bad = 0
    for path in options.programs:
        with open(path, "rb") as file:
            content = file.read()
        found = faults(content, options.processor, exported,
                       options.most and int(options.most * 1e6))
        name = path.rsplit("/", 1)[-1]
        if found:
            bad += 1
            for fault in found[:20]:
                print(f"{name}: {fault}", file=sys.stderr)
        else:
            program = Program(content)
            print(f"  {name}: {len(content) / 1e6:.1f} MB, {len(program.undefined())} symbols of "
                  + ", ".join(library.rsplit("/", 1)[-1] for library in program.libraries()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

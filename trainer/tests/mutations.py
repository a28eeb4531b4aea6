"""Changes files as a hostile or broken program would, for tests: bytes, lengths, values of JSON, and
what a name in a folder stands for. The same seed gives the same changes."""

import json
import os
import struct

# Values of other types, and numbers at the borders of what readers take.
ODD_VALUES = (None, True, False, 0, -1, 1.5, 1e300, -1e300, 2 ** 31, 2 ** 32, 2 ** 53 + 1, 2 ** 63,
              2 ** 64 - 1, 65537, "", "x", "\x00", "../x", "/etc/hostname", "é\u202e\x1b[31m",
              "a" * 70000, "{{ x }}", [], {}, [None], [[]], {"": {}}, {"x": {}})
# What nlohmann or a person may write, and no parser of values makes.
ODD_TEXTS = ("", "{", "[]", "null", "\xff\xfe", "[" * 100000, '{"a":' * 100000, "NaN", "{}}",
             '{"a":NaN}', '{"a":1e999}', '{"a":1,"a":2}', "\ufeff{}", '{"a":"\\ud800"}', "0" * 100000)


def places_in(value, place=()):
    """Returns the place of each value within a document."""
    found = [place] if place else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places_in(inner, (*place, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            found += places_in(inner, (*place, number))
    return found


def changed(value, place, new):
    """Returns a document in which one value is another."""
    copy = json.loads(json.dumps(value))
    at = copy
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = new
    return copy


def nested(depth, inner, chooser):
    for _ in range(depth):
        inner = [inner] if chooser.random() < 0.5 else {"x": inner}
    return inner


def without(document, place):
    copy = json.loads(json.dumps(document))
    at = copy
    for key in place[:-1]:
        at = at[key]
    del at[place[-1]]
    return copy


def a_place(document, chooser):
    """Returns a place: near the root as often as in the longest list."""
    at, place = document, ()
    while isinstance(at, (dict, list)) and at:
        key = chooser.choice(list(at) if isinstance(at, dict) else range(len(at)))
        place, at = (*place, key), at[key]
        if chooser.random() < 0.4:
            break
    return place


def change_json(text, chooser):
    """Returns what was done, and the new text of a document."""
    if chooser.random() < 0.1:
        odd = chooser.choice(ODD_TEXTS)
        return f"all of it is {odd[:20]!r}", odd
    document = json.loads(text)
    done = []
    for _ in range(chooser.choice((1, 1, 1, 2, 4))):
        place = a_place(document, chooser)
        if not place:
            break
        way = chooser.randrange(8)
        if way == 0:
            document = without(document, place)
            done.append(f"without {place}")
        elif way == 1:
            depth = chooser.choice((3, 70, 500))
            document = changed(document, place, nested(depth, 1, chooser))
            done.append(f"{place} is {depth} deep")
        elif way == 2 and isinstance(place[-1], str):
            odd = chooser.choice(("", "a" * 70000, "\x00", "../x", "é\x1b"))
            document = changed(document, (*place[:-1], odd), 1)
            done.append(f"a key {odd[:9]!r} beside {place}")
        elif way == 3:
            # The value of another place.
            other = document
            for key in a_place(document, chooser):
                other = other[key]
            document = changed(document, place, other)
            done.append(f"{place} is another value, {str(other)[:30]}")
        else:
            odd = chooser.choice(ODD_VALUES)
            document = changed(document, place, odd)
            done.append(f"{place} is {str(odd)[:30]!r}")
    return "; ".join(done), json.dumps(document)


def change_bytes(data, chooser):
    """Returns what was done, and the new bytes."""
    data = bytearray(data)
    at = chooser.randrange(len(data) + 1) if data else 0
    if chooser.random() < 0.4:  # in a header
        at = min(at, chooser.randrange(200))
    way = chooser.randrange(6)
    if way == 0 and data:
        for _ in range(chooser.choice((1, 8, 64))):
            data[chooser.randrange(len(data))] ^= 1 << chooser.randrange(8)
        return "flipped bits", bytes(data)
    if way == 1:
        return f"cut off at {at}", bytes(data[:at])
    if way == 2:
        return "longer", bytes(data) + chooser.choice((b"\0", b"x" * 9, bytes(4096)))
    if way == 3 and len(data) >= 8:
        number = chooser.choice((0, 1, 7, 2 ** 31, 2 ** 32 - 1, 2 ** 62, 2 ** 63, 2 ** 64 - 1))
        at = chooser.choice((0, min(at, len(data) - 8)))
        data[at:at + 8] = struct.pack("<Q", number)
        return f"{number} at {at}", bytes(data)
    if way == 4:
        del data[at:at + chooser.choice((1, 8, 100))]
        return f"bytes left out at {at}", bytes(data)
    data[at:at] = data[at:at + chooser.choice((1, 8, 100))] or b"\xff"
    return f"bytes doubled at {at}", bytes(data)


def change_header(data, chooser):
    """Changes the JSON of a safetensors file, which keeps its length's truth."""
    length = struct.unpack("<Q", data[:8])[0]
    done, text = change_json(data[8:8 + length].decode(), chooser)
    text = text.encode("utf-8", "surrogatepass")
    return "header: " + done, struct.pack("<Q", len(text)) + text + data[8 + length:]


def take_place(path, chooser, fifo=True):
    """Puts something else in the place of a file. Returns what."""
    os.remove(path)
    kinds = ("nothing", "folder", "loop", "dangling", "zeros", "memory", "empty", "sparse", "socket")
    kind = chooser.choice(kinds + ("fifo",) if fifo else kinds)
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        os.symlink(os.path.basename(path), path)
    elif kind == "dangling":
        os.symlink("../nothing/here", path)
    elif kind == "zeros":
        os.symlink("/dev/zero", path)
    elif kind == "memory":
        os.symlink("/proc/self/mem", path)
    elif kind in ("empty", "sparse"):
        with open(path, "wb") as file:
            file.truncate(0 if kind == "empty" else 1 << 40)
    elif kind == "socket":
        os.mknod(path, 0o140644)
    return kind

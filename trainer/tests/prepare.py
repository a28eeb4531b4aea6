#!/usr/bin/env python3
"""Compares `gpuctl-trainer prepare` with an independent reading of the same rows.

usage: prepare.py TRAINER_PROGRAM NPM_DIR [ROUNDS [SEED]]

Random conversations, with Qwen2's tokenizer and template of the shared vectors
($GPUCTL_VECTORS_DIR): Python's Jinja renders them, Hugging Face's tokenizers library encodes them
(npm brings it into NPM_DIR, see tokenizer_truth.py; without it only the text of the tokens is
compared), and the template's own marks tell what the assistant said. Hostile rows, a full disk, a
kill and a template that rewrites history follow. Exits with 77 (skipped) without python3-jinja2 or
the vectors.
"""

import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from array import array

from jinja_truth import VECTORS, environment
from tokenizer_truth import install

PROGRAM, NPM = sys.argv[1:3]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 300
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
QWEN = os.path.join(VECTORS, "qwen2")
END = "<|im_end|>"
LEARNED = 1 << 31
ENCODE = """
const path = require('path'), readline = require('readline');
const {Tokenizer} = require(path.join(process.argv[1], 'node_modules/@anush008/tokenizers'));
const tokenizer = Tokenizer.fromFile(process.argv[2]);
(async () => {
  for await (const line of readline.createInterface({input: process.stdin, crlfDelay: Infinity})) {
    const ids = (await tokenizer.encode(JSON.parse(line), null, {addSpecialTokens: false})).getIds();
    console.log(JSON.stringify(Array.from(ids)));
  }
})();
"""

failed = 0


def check(what, good, about=""):
    global failed  # pylint: disable=global-statement
    print("ok    " if good else "FAILED", what, "" if good else about)
    failed += not good
    return good


def run(out, *files, code=0, model=QWEN, flags=(), limits=None):
    command = [PROGRAM, "prepare", "--model", model, "--out", out, "--context", "100000"]
    if "--context" in flags:
        command = command[:-2]
    for file in files:
        command += ["--data", file]
    ended = subprocess.run(command + list(flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=300, check=False, preexec_fn=limits)
    assert ended.returncode == code, (ended.returncode, ended.stderr.decode(errors="replace")[-2000:])
    return ended.stdout.decode(), ended.stderr.decode()


def peak_of(data, out):
    """Returns the most memory that a run needs, in KiB."""
    child = subprocess.Popen([PROGRAM, "prepare", "--model", QWEN, "--context", "4096", "--data", data,
                              "--out", out, "--bad-rows", "skip"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    assert status == 0, status
    return usage.ru_maxrss


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        for row in rows:
            file.write((row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)) + "\n")


def read_part(folder, part):
    """Returns the rows: ids, and whether each is learned."""
    words, ends = array("I"), array("Q")
    assert words.itemsize == 4 and ends.itemsize == 8
    for name, numbers in ((part + ".tokens", words), (part + ".ends", ends)):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            numbers.frombytes(file.read())
    rows, begin = [], 0
    for end in ends:
        rows.append(([word % LEARNED for word in words[begin:end]],
                     [word >= LEARNED for word in words[begin:end]]))
        begin = end
    assert begin == len(words)
    return rows


def read_description(folder):
    with open(os.path.join(folder, "dataset.json"), encoding="utf-8") as file:
        return json.load(file)


def contents(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def byte_of_letter():
    """The letters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain},
            **{chr(0x100 + place): byte for place, byte in enumerate(others)}}


def normal(text):
    """Qwen2's normal form."""
    return unicodedata.normalize("NFC", text)


class Truth:
    """The tokenizer and the template, as others read them."""

    def __init__(self):
        with open(QWEN + "/vocab.json", encoding="utf-8") as file:
            self.words = {number: word for word, number in json.load(file).items()}
        with open(QWEN + "/tokenizer_config.json", encoding="utf-8") as file:
            config = json.load(file)
        self.added = {int(number): token["content"]
                      for number, token in config["added_tokens_decoder"].items()}
        self.eos = config["eos_token"]
        self.config = config
        self.bytes = byte_of_letter()
        self.template = environment().from_string(config["chat_template"])
        self.encoder = None
        if install(NPM):
            self.encoder = subprocess.Popen(
                ["node", "-e", ENCODE, NPM, QWEN + "/tokenizer.json"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE)
        else:
            print("NOT COMPARED: ids; npm could not bring Hugging Face's tokenizers")

    def ids(self, text):
        self.encoder.stdin.write(json.dumps(text).encode() + b"\n")
        self.encoder.stdin.flush()
        return json.loads(self.encoder.stdout.readline())

    def bytes_of(self, number):
        if number in self.added:
            return self.added[number].encode()
        return bytes(self.bytes[letter] for letter in self.words[number])

    def render(self, row, messages, prompt=False):
        return self.template.render(messages=messages, tools=row.get("tools"), documents=None,
                                    add_generation_prompt=prompt, eos_token=self.eos,
                                    pad_token=self.config["pad_token"])

    def pieces(self, row, mask):
        """Returns the text as pieces and whether each is learned."""
        messages = row.get("messages") or row["prompt"] + row["completion"]
        first = 0 if "messages" in row else len(row["prompt"])
        whole = self.render(row, messages)
        if mask == "all":
            return [(whole, True)]
        pieces, at = [], 0
        for number, message in enumerate(messages):
            if message["role"] != "assistant" or number < first:
                continue
            if mask == "last" and number != len(messages) - 1:
                continue
            begin = len(self.render(row, messages[:number], True))
            end = len(self.render(row, messages[:number + 1]))
            text = whole[begin:end]
            assert text.endswith(END + "\n"), text
            pieces += [(whole[at:begin], False), (text[:-1], True)]
            at = end - 1
        return pieces + [(whole[at:], False)]

    def utf8_of(self, ids):
        return b"".join(map(self.bytes_of, ids))

    def check_row(self, row, mask, found):
        """Returns what is wrong, or None."""
        ids, learned = found
        pieces = self.pieces(row, mask)
        text = "".join(piece for piece, _ in pieces)
        crossed = any(piece[:1].isspace() for piece, is_learned in pieces if is_learned)
        apart, whole = [], []
        if self.encoder is not None:
            apart = [number for piece, _ in pieces for number in (self.ids(piece) if piece else [])]
            whole = self.ids(text)
        pieces = [(normal(piece), is_learned) for piece, is_learned in pieces]
        text = "".join(piece for piece, _ in pieces)
        if self.utf8_of(ids) != text.encode():
            return "other text"
        expected = [(byte, is_learned) for piece, is_learned in pieces for byte in piece.encode()]
        marks = [(byte, mark) for number, mark in zip(ids, learned) for byte in self.bytes_of(number)]
        if marks[len(self.bytes_of(ids[0])):] != expected[len(self.bytes_of(ids[0])):]:
            return "other marks"
        if self.encoder is not None and ids != apart:
            return "other ids than those of the pieces"
        # Line ends at the border are one token, and else no token crosses it.
        if self.encoder is not None and not crossed and ids != whole:
            return "other ids than those of the text"
        if mask == "assistant" and "messages" in row and text.count("<|im_start|>") == text.count(
                END) == text.count("\n<|im_start|>") + 1 and "\n" + END not in text:
            said = "".join(re.findall(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", text, re.S))
            if said != "".join(piece for piece, is_learned in pieces if is_learned):
                return "this test disagrees with itself"
        return None


def text_of(r, least=0):
    parts = ["Hello", " ", "\n", "<think>", "\n\n", "naïve", "日本", "🦙", "  ", "\t", "2+2", "'ll",
             '"', "{{ x }}", "\\", "a.b", "A", "e\u0301", " world", "123456", "\u00a0", "\r\n", "<|"]
    if r.random() < 0.05:
        parts += [END, "<|im_start|>", "<|endoftext|>"]
    return "".join(r.choice(parts) for _ in range(r.randrange(least, 25)))


def message_of(r, role):
    message = {"role": role, "content": text_of(r)}
    if role == "assistant" and r.random() < 0.2:
        call = {"name": "f", "arguments": {"x": text_of(r), "y": [1, 2.5, None]}}
        message["tool_calls"] = [r.choice([call, {"type": "function", "function": call}])]
        if r.random() < 0.5:
            message["content"] = None
    return message


def conversation_of(r):
    messages = [message_of(r, "system")] if r.random() < 0.5 else []
    for _ in range(r.randrange(1, 5)):
        messages.append(message_of(r, "user"))
        messages.append(message_of(r, "assistant"))
        if r.random() < 0.3:
            messages.append(message_of(r, "tool"))
            messages.append(message_of(r, "assistant"))
    row = {"messages": messages}
    if r.random() < 0.3:
        row["tools"] = [{"type": "function", "function": {
            "name": "f", "description": text_of(r), "parameters": {"z": 1, "a": [True]}}}]
    if r.random() < 0.2:
        cut = r.randrange(1, len(messages))
        while messages[cut - 1]["role"] == "assistant" or messages[cut]["role"] != "assistant":
            cut = r.randrange(1, len(messages))
        del row["messages"]
        row["prompt"], row["completion"] = messages[:cut], messages[cut:]
    return row


def check_conversations(truth, folder):
    r = random.Random(SEED)
    rows = [conversation_of(r) for _ in range(ROUNDS)]
    data, out = folder + "/talk.jsonl", folder + "/talk"
    write_rows(data, rows)
    write_rows(folder + "/other.jsonl", [{"text": "held out"}])
    for mask in ("assistant", "last", "all"):
        printed, _ = run(out, data, flags=["--mask", mask, "--held-out", folder + "/other.jsonl"])
        found = read_part(out, "train")
        wrong = [(row, why) for row, why in (
            (row, truth.check_row(row, mask, one)) for row, one in zip(rows, found)) if why]
        check("%d conversations, mask %s" % (len(rows), mask),
              len(found) == len(rows) and not wrong, wrong[:1])
        check("the sample shows the mask", "⟦" in printed and "⟧" in printed)
    return rows


def check_texts(truth, folder):
    r = random.Random(SEED + 1)
    texts = ["a" + text_of(r) for _ in range(100)]
    data, out = folder + "/text.jsonl", folder + "/text"
    write_rows(data, [{"text": text} for text in texts])
    write_rows(folder + "/other.jsonl", [{"text": "held out"}])
    for context in (100000, 1, 3, 10):
        run(out, data, flags=["--context", str(context), "--held-out", folder + "/other.jsonl"])
        found = iter(read_part(out, "train"))
        wrong = []
        for text in texts:
            expected = normal(text if text.endswith(truth.eos) else text + truth.eos)
            ids, marks = next(found)
            size = len(ids)
            while size == context + 1 and truth.utf8_of(ids) != expected.encode():
                more, more_marks = next(found)
                size = len(more)
                if ids[-1] != more[0] or more_marks[0]:
                    wrong.append((text, "no overlap"))
                ids, marks = ids + more[1:], marks + more_marks[1:]
            if truth.utf8_of(ids) != expected.encode() or not all(marks[1:]) or marks[0]:
                wrong.append((text, ids))
        check("texts with context %d" % context, not wrong and next(found, None) is None, wrong[:1])
    rows = [(text_of(r), text_of(r, 1)) for _ in range(100)]
    write_rows(data, [{"prompt": prompt, "completion": said} for prompt, said in rows if said])
    for mask in ("assistant", "all"):
        run(out, data, flags=["--held-out", folder + "/other.jsonl", "--mask", mask])
        wrong = []
        for (prompt, said), (ids, marks) in zip([row for row in rows if row[1]],
                                                read_part(out, "train")):
            prompt, said = normal(prompt), normal(said)
            said += "" if said.endswith(truth.eos) else truth.eos
            learned = truth.utf8_of([i for i, mark in zip(ids, marks) if mark])
            expected = (prompt + said if mask == "all" else said).encode()
            if mask == "all" or not prompt:
                expected = expected[len(truth.bytes_of(ids[0])):]
            if truth.utf8_of(ids) != (prompt + said).encode() or learned != expected:
                wrong.append((prompt, said, ids))
        check("prompts and completions, mask " + mask, not wrong, wrong[:1])


def check_threads(folder, rows):
    data = folder + "/many.jsonl"
    r = random.Random(SEED + 2)
    write_rows(data, [r.choice(rows) if r.random() < 0.3 else conversation_of(r)
                      for _ in range(ROUNDS * 5)])
    results = []
    for threads in (1, 2, 7):
        out = folder + "/threads"
        run(out, data, flags=["--threads", str(threads), "--show", "0"])
        results.append(contents(out))
    check("any number of threads makes the same folder", results[0] == results[1] == results[2])
    files = results[0]
    lines = "".join("%s %d %s\n" % (name, len(files[name]), hashlib.sha256(files[name]).hexdigest())
                    for name in sorted(files) if name != "dataset.json")
    description = json.loads(files["dataset.json"])
    check("the digest is that of the files",
          description["digest"] == hashlib.sha256(lines.encode()).hexdigest())
    for part in ("train", "held_out"):
        found = read_part(out, part)
        counts = {"rows": len(found), "tokens": sum(len(ids) for ids, _ in found),
                  "learned": sum(sum(marks) for _, marks in found),
                  "longest": max(len(ids) for ids, _ in found)}
        check("the counts of " + part, description["parts"][part] == counts, counts)
    with open(data, "rb") as file:
        lines = [line.strip() for line in file]
    held = [hashlib.sha256(line).digest() < int(0.05 * 2**64).to_bytes(8, "big") for line in lines]
    check("the share that is held out is chosen by content",
          sum(held) == description["parts"]["held_out"]["rows"])
    check("duplicates", len(lines) - len(set(lines)) == description["report"]["duplicates"])


def hostile_rows():
    yield "not JSON", "no JSON"
    yield "[1, 2]", "no JSON object"
    yield "{}", "no keys"
    yield '{"a": 1}', "none of the known keys"
    yield '{"text": 5}', "is no text"
    yield '{"text": ""}', "is empty"
    yield '{"text": null}', "none of the known keys"
    yield '{"text": "a\x00b"}', "no JSON"
    yield '{"text": "\\ud800"}', "no JSON"
    yield '{"text": 1e999}', "out of range"
    yield '{"text": "a", "n": ' + "9" * 400 + "}", "out of range"
    yield '{"messages": ' + "[" * 10000 + "]" * 10000 + "}", "nested"
    yield "[" * 10000, "nested"
    yield '{"messages": []}', "is empty"
    yield '{"messages": 7}', "no list"
    yield '{"messages": [7]}', "no object"
    yield '{"messages": [{"content": "a"}]}', "no role"
    yield '{"messages": [{"role": "asistant", "content": "a"}]}', 'did you mean "assistant"'
    yield '{"messages": [{"role": "user", "content": "a"}]}', "no message of the assistant"
    yield '{"messages": [{"role": "assistant"}]}', "no content"
    yield '{"messages": [{"role": "assistant", "content": 1}]}', "no text"
    yield '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', '"image"'
    yield ('{"messages": [{"role": "assistant", "content": "a", "tool_calls": 5}]}', "is no")
    yield '{"messages": [{"role": "assistant", "content": "a"}], "tools": {"a": 1}}', "no list"
    yield '{"messages": [{"role": "assistant", "content": "a"}], "tools": "["}', "no JSON"
    yield '{"prompt": "a"}', 'no "completion"'
    yield '{"prompt": "a", "completion": ""}', "is empty"
    yield '{"prompt": "a", "completion": ["b"]}', "neither"
    yield '{"prompt": [], "completion": []}', "is empty"
    yield '{"conversations": [{"from": "alien", "value": "a"}]}', "alien"
    yield '{"conversations": [{"from": "human"}]}', "is no text"
    yield "{" + ", ".join('"%d": 0' % i for i in range(3000)) + "}", "keys"
    yield '{"messages": [' + ", ".join(['{"role": "user", "content": ""}'] * 3000) + "]}", "messages"
    yield "\udcff\udcfe{}", "UTF-8"
    yield '{"a\x1b[31m": 1}', "no JSON"
    yield '{"a\\u001b[31m": 1}', "\\x1b"


def check_hostile(folder):
    data, out = folder + "/hostile.jsonl", folder + "/hostile"
    good = '{"text": "first"}\r\n{"text": "second", "text": "the last one of two counts"}\n\n  \n'
    hostile = list(hostile_rows())
    for begin in range(0, len(hostile), 10):
        rows = hostile[begin:begin + 10]
        with open(data, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write("\ufeff" + good + "\n".join(row for row, _ in rows) + "\n")
        _, error = run(out, data, code=65)
        lines = error.split("\n")[1:]
        for number, (row, why) in enumerate(rows):
            if not lines[number].startswith("  %s:%d: " % (data, number + 5)) or (
                    why not in lines[number]):
                check("the row %.60r is refused" % row, False, lines[number])
        if "--bad-rows skip" not in error or "\x1b" in error or os.path.exists(out):
            check("hostile rows end it", False, error)
    check("hostile rows are refused by file and line", True)
    for mask in ("assistant", "last", "all"):
        with open(data, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(good + "\n".join(row for row, _ in hostile) + "\n")
        run(out, data, flags=["--bad-rows", "skip", "--mask", mask])
        report = read_description(out)["report"]
        # A question can be learned, too.
        learned = 1 if mask == "all" else 0
        check("hostile rows are skipped, mask " + mask,
              (report["rows"], report["bad_rows"]) == (2 + learned, len(hostile) - learned), report)
    with open(data, "wb") as file:
        file.write(b'{"text": "a"}\n{"text": "')
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n{"text": "b"}\n')
    _, error = run(out, data, code=65)
    check("a line of 200 MB is refused", "more than 16 MiB" in error and ":2:" in error, error)
    run(out, data, flags=["--bad-rows", "skip"])
    check("a line of 200 MB is skipped", read_description(out)["report"]["rows"] == 2)
    check("it is not held in memory: %d MiB" % (peak_of(data, out) >> 10),
          peak_of(data, out) < 400 << 10)
    write_rows(data, ["x"] * 12 + ['{"text": "a"}'] * 3)
    _, error = run(out, data, code=65)
    check("ten bad rows are listed", error.count(data) == 10 and "12 rows" in error, error)
    for beginning, what in ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"),
                            (b"PAR1", "Parquet"), (b"\xff\xfe{\0", "UTF-16")):
        with open(data, "wb") as file:
            file.write(beginning + b"rest")
        check("refuses " + what, what in run(out, data, code=65)[1])


def check_documents(truth, folder):
    out, data = folder + "/documents", folder + "/a book.txt"
    r = random.Random(SEED + 3)
    text = "".join(r.choice(["word", " other", ".\n", " 12", "\n\n", " né"]) for _ in range(600000))
    with open(data, "w", encoding="utf-8", newline="") as file:
        file.write("\ufeff" + text.replace("\n", "\r\n"))
    write_rows(folder + "/other.jsonl", [{"text": "held out"}])
    run(out, data, flags=["--held-out", folder + "/other.jsonl", "--context", "1000"])
    rows = read_part(out, "train")
    ids = rows[0][0][:1]
    good = True
    for row, marks in rows:
        good = good and row[0] == ids[-1] and all(marks[1:]) and not marks[0] and len(row) <= 1001
        ids += row[1:]
    expected = text + truth.eos
    check("a document of %d bytes comes back" % len(text),
          good and truth.utf8_of(ids) == expected.encode())
    if truth.encoder is not None:
        check("its tokens are those of the whole", ids == truth.ids(expected))
    check("it is one row", read_description(out)["report"]["rows"] == 2)
    for bad, why in ((b"", "no text"), (b" \n", "no text"), (b"a\0b", "NUL"), (b"\xff", "UTF-8")):
        with open(data, "wb") as file:
            file.write(bad)
        check("refuses the document %r" % bad, why in run(out, data, code=65)[1])


def check_sides(folder):
    data, out = folder + "/few.jsonl", folder + "/few"
    for count in (2, 3, 8):
        for share in ("0.0001", "0.05", "0.9999"):
            write_rows(data, [{"text": "row %d" % i} for i in range(count)] * 2)
            run(out, data, flags=["--held-out", share])
            train, held = read_part(out, "train"), read_part(out, "held_out")
            ids = [{tuple(row) for row, _ in part} for part in (train, held)]
            if not (train and held and len(train) + len(held) == 2 * count and
                    not ids[0] & ids[1]):
                check("%d rows, share %s" % (count, share), False, (train, held))
    for rows in (["one"], ["one", "one"]):
        write_rows(data, [{"text": text} for text in rows])
        _, error = run(out, data, code=65)
        check("%d equal rows cannot be parted" % len(rows), "two different rows" in error, error)
    write_rows(data, [])
    check("no rows", "no rows" in run(out, data, code=65)[1])
    for flags in (["--held-out", "0"], ["--held-out", "1"], ["--held-out", "nan"], ["--mask", "x"],
                  ["--context", "0"], ["--bad-rows", "keep"], ["--threads", "0"]):
        run(out, data, code=64, flags=flags)
    run(out, folder + "/missing", code=65)
    run(out, data, code=65, flags=["--held-out", folder + "/missing"])


def check_qwen3(folder):
    """Its template drops the thoughts of earlier turns."""
    data, out = folder + "/thoughts.jsonl", folder + "/thoughts"
    said = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"}
    ask = {"role": "user", "content": "well?"}
    write_rows(data, [{"messages": [ask, said, ask, dict(said, content=said["content"] + str(i))]}
                      for i in range(2)])
    template = os.path.join(VECTORS, "chat-templates", "Qwen-Qwen3-0.6B.jinja")
    _, error = run(out, data, code=65, flags=["--template", template])
    check("a template that rewrites history is refused",
          data + ":1: message 2: the template" in error and "--mask last" in error, error)
    printed, _ = run(out, data, flags=["--template", template, "--mask", "last"])
    check("its last turn is learned", "⟦<think>\nhm\n</think>\n\nyes" in printed, printed)


def check_old_folder(folder, rows):
    """Whatever happens, there is the old folder or the new one, and nothing else."""
    data, place = folder + "/rows.jsonl", folder + "/place"
    os.mkdir(place)
    out = place + "/out"
    write_rows(data, rows)
    run(out, data, flags=["--threads", "2"])
    old = contents(out)
    write_rows(data, rows * 20 + [{"text": "more"}])
    # A file system that is full: no file may be longer than this.
    for size in (0, 100, 100000):
        def limit(size=size):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        _, error = run(out, data, code=74, limits=limit)
        check("a disk of %d bytes" % size,
              "write" in error and contents(out) == old and os.listdir(place) == ["out"], error)
    r = random.Random(SEED + 4)
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        ended = set()
        for _ in range(6):
            shutil.rmtree(place + "/.out.unfinished", ignore_errors=True)  # of a kill
            child = subprocess.Popen(
                [PROGRAM, "prepare", "--model", QWEN, "--data", data, "--out", out, "--context",
                 "4096"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            # Wait until it writes, then for some of its work.
            while child.poll() is None and not os.path.exists(place + "/.out.unfinished"):
                time.sleep(0.001)
            time.sleep(r.random() * 0.3)
            child.send_signal(number)
            ended.add(child.wait())
            whole = contents(out)
            if ended & {0}:
                break
            if whole != old or (number != signal.SIGKILL and os.listdir(place) != ["out"]):
                check("after signal %d" % number, False, os.listdir(place))
        check("signal %d leaves the old folder: %s" % (number, ended),
              ended <= {-number, 128 + number, 0})
    run(out, data)
    check("what a kill left is cleared", os.listdir(place) == ["out"] and contents(out) != old)
    old = contents(out)
    with open(out + "/mine", "w", encoding="utf-8"):
        pass
    _, error = run(out, data, code=64)
    check("a folder with other files is not replaced", "is not what prepare makes" in error)
    _, error = run(data, data, code=64)
    check("a file is not replaced", "is not what prepare makes" in error)
    os.remove(out + "/mine")
    os.symlink("out", place + "/link")
    run(place + "/link/", data)
    check("a link stays one", os.path.islink(place + "/link") and contents(out) == old)


def main():
    if not os.path.exists(QWEN + "/tokenizer.json"):
        print("skipped: there are no vectors in %s" % VECTORS)
        sys.exit(77)
    truth = Truth()
    with tempfile.TemporaryDirectory() as folder:
        rows = check_conversations(truth, folder)
        check_texts(truth, folder)
        check_documents(truth, folder)
        check_threads(folder, rows)
        check_sides(folder)
        check_hostile(folder)
        check_qwen3(folder)
        check_old_folder(folder, rows)
    if truth.encoder is not None:
        truth.encoder.stdin.close()
        truth.encoder.wait()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

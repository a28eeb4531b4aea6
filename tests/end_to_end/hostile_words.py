"""Texts that would act on a terminal if it got them raw, and the check of a terminal's input."""
import collections
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

DEADLINE_S = 240  # for what takes seconds on a quiet machine
COLUMNS = 2000  # nothing is cut

ESCAPES = [b"\x1b]0;owned\x07", b"\x1b[2J", b"\x1b[31m", b"\x1b[1A", b"\x1bPq\x1b\\", b"\x1b[?25h"]
CONTROLS = [b"\x07", b"\t", b"\x08", b"\x7f", "\u009b2J".encode(), "\u0085HINT: FORGED".encode()]
LINES = [b"\rgpuctl: FORGED", b"\ngpuctl: FORGED", b"\nHINT: FORGED", "\u2028HINT: FORGED".encode()]
HIDDEN = [c.encode() for c in ("\u202e", "\u2066", "\u200f", "\ufeff", "\U000e0041", "\u00ad")]
MALFORMED = [b"\x9b2J", b"\xff\xfe", b"\xc0\x9b", b"\xed\xa0\x80"]
TEXT = ESCAPES + CONTROLS + LINES + HIDDEN  # allowed in JSON and in protobuf strings
ALL = TEXT + MALFORMED
# In a job's own lines above the panel colours stay, and a line may say anything.
LINE = [part for part in ALL if part not in LINES and part != b"\x1b[31m"] + [b"\rover"]

# The sequences that gpuctl itself uses: colours and weights (panel.cc, table.cc), the panel's frame
# and the progress line.
OWN = re.compile(rb"\x1b\[(?:0|1|2|31|32|33|36|90)m|\x1b\[\?(?:25|2026)[hl]|\x1b\[[0-9]+A|"
                 rb"\x1b\[[JK]")
HIDDEN_CHARACTER = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufeff\ufff0-\ufffb\U000e0000-\U000e0fff]")
FORGED = re.compile(rb"(?:\A|[\r\n])(?:gpuctl|HINT): FORGED")


class Words:
    """Hostile texts. Each field with a text has its own mark, so that it can be found again."""

    def __init__(self):
        self.marks = {}

    def mark(self, field):
        return self.marks.setdefault(field, b"Zq%03d" % len(self.marks))

    def bytes(self, field, parts=ALL):
        """Returns a text with the mark before each part and at the end."""
        mark = self.mark(field)
        return b"".join(mark + part for part in parts) + mark

    def text(self, field, parts=TEXT):
        return self.bytes(field, parts).decode()

    def names(self, field, parts=ALL):
        """Returns the same as several file names, none too long."""
        return [self.bytes(field, parts[i:i + 8]) for i in range(0, len(parts), 8)]


class Sheet:
    """A table of verbs by fields: how often a text was shown, and how often it acted."""

    def __init__(self, words):
        self.words = words
        self.shown = collections.Counter()
        self.acted = collections.Counter()
        self.examples = {}
        self.looked_at = 0

    def look(self, verb, data, raw=b"", is_json=False):
        """Checks a terminal's input; `raw` is the job's output, shown unchanged by design."""
        self.looked_at += len(data)
        if raw:
            data = data.replace(raw, b"").replace(raw.replace(b"\n", b"\r\n"), b"")
        for field, mark in self.words.marks.items():
            count = data.count(mark)
            if count:
                self.shown[verb, field] += count
            for part in ALL + LINE[-1:]:
                if mark + part in data or mark + part.replace(b"\n", b"\r\n") in data:
                    self._act(verb, field, data, data.index(mark))
        if FORGED.search(data):
            self._act(verb, "a forged line", data, FORGED.search(data).start())
        self._look_at_rest(verb, data)
        if is_json:
            for line in filter(None, data.split(b"\n")):
                try:
                    json.loads(line)
                except ValueError:
                    self._act(verb, "not JSON", line, 0)

    def _look_at_rest(self, verb, data):
        """Checks text of any origin."""
        rest = OWN.sub(b"", data)
        try:
            text = rest.decode()
        except UnicodeDecodeError as error:
            self._act(verb, "not UTF-8", rest, error.start)
            return
        for number, character in enumerate(text):
            if character in "\r\n":
                continue
            if ord(character) < 32 or 0x7f <= ord(character) < 0xa0 or \
                    HIDDEN_CHARACTER.match(character):
                self._act(verb, "a control or hidden character", text, number)
                return

    def _act(self, verb, field, data, at):
        self.acted[verb, field] += 1
        self.examples.setdefault((verb, field), data[max(0, at - 80):at + 160])

    def print(self):
        verbs = list(dict.fromkeys(verb for verb, _ in [*self.shown, *self.acted]))
        for verb in verbs:
            cells = ["%s %d%s" % (field, self.shown[verb, field],
                                  " ACTED" if self.acted[verb, field] else "")
                     for field in [*self.words.marks, *sorted({f for _, f in self.acted} -
                                                              set(self.words.marks))]
                     if self.shown[verb, field] or self.acted[verb, field]]
            print("  %-28s %s" % (verb, "; ".join(cells)))
        print("  %d verbs and modes, %d cells, %d bytes; %d cells acted" % (
            len(verbs), len(self.shown), self.looked_at, len(self.acted)), flush=True)

    def check(self, hidden=()):
        """Expects that nothing acted, and that each field not in `hidden` was shown somewhere."""
        self.print()
        unseen = set(self.words.marks) - {field for _, field in self.shown} - set(hidden)
        assert not self.acted, "\n".join("%s: %r" % example for example in self.examples.items())
        assert not unseen, "shown nowhere: %s" % sorted(unseen)


class Wide:
    """A command on a wide pseudo-terminal."""

    def __init__(self, laptop, *args, **env):
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.child = subprocess.Popen(
            [laptop.gpuctl, *args], cwd=laptop.work, stdin=slave, stdout=slave, stderr=slave,
            env={**laptop.env, "TERM": "xterm-256color", **env}, start_new_session=True)
        os.close(slave)
        self.text = b""

    def read_some(self):
        if not select.select([self.fd], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self.fd, 1 << 16)
        except OSError:
            return False
        self.text += data
        return bool(data)

    def until(self, wanted, times=1):
        end = time.monotonic() + DEADLINE_S
        while self.text.count(wanted) < times:
            assert time.monotonic() < end, "no %r in %r" % (wanted, self.text[-3000:])
            assert self.read_some(), "ended without %r: %r" % (wanted, self.text[-3000:])

    def finish(self):
        """Returns all of its output."""
        end = time.monotonic() + DEADLINE_S
        try:
            while self.read_some():
                assert time.monotonic() < end, "does not end: %r" % self.text[-3000:]
        finally:
            with contextlib.suppress(OSError):
                self.child.kill()
            self.child.wait()
            os.close(self.fd)
        return self.text


def show(laptop, sheet, *args, raw=b"", modes=("terminal", "pipe", "json"), name="", **env):
    """Runs a verb on a terminal, into a pipe and as JSON, and checks all of its output."""
    verb = name or " ".join(word for word in args if not word.startswith("/"))
    if args[0] == "doctor":  # not the node of the user who tests
        env.setdefault("GPUCTL_NODE_ROOT", laptop.root)
    seen = b""
    for mode in modes:
        if mode == "terminal":
            terminal = Wide(laptop, *args, **env)
            if args[0] == "down":
                os.write(terminal.fd, b"n\n" * 8)
            data = terminal.finish()
            sheet.look(verb + " (terminal)", data, raw)
        else:
            words = [args[0], "--json", *args[1:]] if mode == "json" else args
            done = laptop.run(*words, code=None, **env)
            data = done.stdout + done.stderr
            sheet.look(verb + " (%s)" % mode, done.stdout, raw, is_json=mode == "json")
            sheet.look(verb + " (%s)" % mode, done.stderr, raw)
        seen += data
    return seen

"""The truth about a job of a soak round, which its own journal tells (job.sh)."""
import fcntl
import os
import re
import shlex

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "job.sh")


class Journal:
    """Where the job writes, and what it wrote."""

    def __init__(self, directory, name):
        self.path = os.path.join(directory, name + ".journal")
        os.mkfifo(self.path + ".fifo")

    def command(self, job):
        return ["bash", SCRIPT, self.path, str(job.lines), "%.3f" % job.pause_s, str(job.code),
                job.on_term, str(job.failures)]

    def lines(self):
        if not os.path.exists(self.path):
            return []
        with open(self.path, encoding="utf-8") as file:
            return [line.split() for line in file.read().splitlines()]

    def of(self, word):
        """Returns what follows the word in its lines, as numbers."""
        return [tuple(map(int, line[1:])) for line in self.lines() if line and line[0] == word]

    def starts(self):
        return [attempt for attempt, _ in self.of("start")]

    def ends(self):
        return dict(self.of("end"))

    def is_alive(self):
        """True while a process of the job has the lock that it takes first."""
        if not os.path.exists(self.path + ".lock"):
            return False
        with open(self.path + ".lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def expected(self, torn):
        """Returns a pattern of the whole output. Of attempts in `torn` any beginning may be
        there, because their shim was killed with output in its pipe."""
        pattern = ""
        for attempt in self.starts():
            printed = max([n for a, n in self.of("printed") if a == attempt], default=0)
            lines = ["line %d %d\n" % (attempt, n) for n in range(1, printed + 1)]
            terms = ["saved %d\n" % attempt] if (attempt,) in self.of("term") else []
            more = "line %d %d\n" % (attempt, printed + 1)
            if attempt in torn:
                whole = "".join(lines) + more + "".join(terms)
                part = ""
                for character in reversed(whole):
                    part = "(?:%s%s)?" % (re.escape(character), part)
                pattern += part
            elif attempt in self.ends() and not terms:
                pattern += re.escape("".join(lines))
            else:
                # It was ended between a line and its note.
                pattern += "%s(?:%s)?%s" % (re.escape("".join(lines)), re.escape(more),
                                            re.escape("".join(terms)))
        return re.compile(pattern + r"\Z")

    def __str__(self):
        return "; ".join(shlex.join(line) for line in self.lines() if line[0] != "printed")

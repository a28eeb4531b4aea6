"""The truth about a job of a soak round, which its own journal tells (job.sh)."""
import fcntl
import os
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

    def explains(self, output, torn):
        """True when this is the whole output. Of attempts in `torn` any beginning may be there,
        because their shim was killed with output in its pipe."""
        ends = {0}  # where in `output` the attempts so far may end
        for attempt in self.starts():
            printed = max([n for a, n in self.of("printed") if a == attempt], default=0)
            lines = "".join("line %d %d\n" % (attempt, n) for n in range(1, printed + 1))
            term = "saved %d\n" % attempt if (attempt,) in self.of("term") else ""
            more = "line %d %d\n" % (attempt, printed + 1)
            if attempt in torn:
                whole = lines + more + term
                texts = [whole[:size] for size in range(len(whole) + 1)]
            elif attempt in self.ends() and not term:
                texts = [lines]
            else:
                # It was ended between a line and its note.
                texts = [lines + term, lines + more + term]
            ends = {end + len(text) for end in ends for text in texts
                    if output.startswith(text, end)}
        return len(output) in ends

    def __str__(self):
        return "; ".join(shlex.join(line) for line in self.lines() if line[0] != "printed")

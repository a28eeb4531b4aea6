"""What all soak programs share: rounds with seeds, run side by side, and what becomes of a failure.

Variables of the environment, each also an argument (--rounds, --seed, --jobs, --minutes, --keep):
  GPUCTL_SOAK_ROUNDS   most rounds; without it, as many as fit into the minutes
  GPUCTL_SOAK_MINUTES  no round begins later than this many minutes after the first (default 3)
  GPUCTL_SOAK_SEED     the first round's seed; the next rounds have the next numbers. Default: from
                       the clock
  GPUCTL_SOAK_JOBS     rounds at the same time (default 3)
  GPUCTL_SOAK_KEEP     a directory: the files of failed rounds are moved there
A round's choices follow from its seed alone; when they meet the programs depends on the machine.
"""
import argparse
import concurrent.futures
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback


class RoundFailed(AssertionError):
    pass


def check(condition, what):
    if not condition:
        raise RoundFailed(what() if callable(what) else what)


def eventually(condition, what, seconds=120):
    """Returns the first true result of `condition`. Fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise RoundFailed("never happened: %s" % (what() if callable(what) else what))
        time.sleep(0.03)


class Story:
    """What happened in a round, with times, for the report of a failure."""

    def __init__(self):
        self.began = time.monotonic()
        self.lines = []
        self.lock = threading.Lock()

    def add(self, text):
        with self.lock:
            self.lines.append("%7.3f %s" % (time.monotonic() - self.began, text))

    def __str__(self):
        with self.lock:
            return "\n".join(self.lines)


class Round:
    """One round: its seed, its own random numbers, its story and its directory."""

    def __init__(self, program, seed, keep):
        self.seed, self.keep = seed, keep
        self.name = "%s-%d" % (program, seed)
        self.random = random.Random("%s/%d" % (program, seed))
        self.story = Story()
        self.notes = {}  # what the round did, for the summary: word -> number

    def note(self, word, number=1):
        self.notes[word] = self.notes.get(word, 0) + number

    def close(self, directory, failed):
        """Keeps a failed round's files where that is asked for, and removes them otherwise."""
        if failed and self.keep:
            target = os.path.join(self.keep, self.name)
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(directory, target, symlinks=True, copy_function=copy_plain,
                            ignore_dangling_symlinks=True)
            with open(os.path.join(target, "story"), "w", encoding="utf-8") as file:
                file.write(str(self.story) + "\n")
        shutil.rmtree(directory, ignore_errors=True)


def copy_plain(source, target):
    """Copies a regular file; leaves out FIFOs and sockets."""
    if os.path.isfile(source):
        shutil.copy2(source, target)


def options(count):
    """Returns the command line: `count` words, and the options above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs=count)
    for name, kind, default in (("rounds", int, 0), ("minutes", float, 3.0), ("seed", int, 0),
                                ("jobs", int, 3), ("keep", str, "")):
        parser.add_argument("--" + name, type=kind, default=kind(
            os.environ.get("GPUCTL_SOAK_" + name.upper()) or default))
    wanted = parser.parse_args()
    # Rounds work in directories of their own.
    wanted.words = [os.path.abspath(word) if os.path.exists(word) else word
                    for word in wanted.words]
    return wanted


def run(program, one_round, wanted):
    """Runs `one_round(round)` for each seed. Ends the process, with 1 when a round failed."""
    # A shell starts programs in the background with Ctrl-C ignored, and they pass that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    first = wanted.seed or int(time.time()) % 1_000_000 * 1000
    print("%s: seed %d, %s rounds, at most %g minutes, %d at a time" % (
        program, first, wanted.rounds or "any number of", wanted.minutes, wanted.jobs), flush=True)
    began = time.monotonic()
    if wanted.keep:
        os.makedirs(wanted.keep, exist_ok=True)
    failed, took, notes = [], [], {}
    lock = threading.Lock()
    seeds = iter(range(first, first + wanted.rounds) if wanted.rounds else
                 range(first, first + 10_000_000))

    def work():
        while True:
            with lock:
                late = time.monotonic() - began > wanted.minutes * 60
                seed = None if late else next(seeds, None)
            if seed is None:
                return
            this = Round(program, seed, wanted.keep)
            start, problem = time.monotonic(), None
            try:
                one_round(this)
            except Exception as error:  # an exception in a round is a failure, too
                short = isinstance(error, RoundFailed)
                problem = str(error) if short else traceback.format_exc()
            with lock:
                took.append(time.monotonic() - start)
                for word, number in this.notes.items():
                    notes[word] = notes.get(word, 0) + number
                if problem:
                    failed.append(seed)
                    print("FAILED %s (%.1f s): %s\n%s\nagain: --seed %d --rounds 1\n" % (
                        this.name, took[-1], problem, this.story, seed), flush=True)
                if len(took) % 100 == 0:
                    print("%s: %d rounds, %d failed" % (program, len(took), len(failed)), flush=True)

    with concurrent.futures.ThreadPoolExecutor(wanted.jobs) as pool:
        for each in [pool.submit(work) for _ in range(wanted.jobs)]:
            each.result()
    print("%s: %d rounds from seed %d, %d failed%s; %.0f s, %.1f s a round; %s" % (
        program, len(took), first, len(failed),
        " (%s)" % ", ".join(map(str, failed)) if failed else "", time.monotonic() - began,
        sum(took) / max(1, len(took)),
        ", ".join("%s %d" % each for each in sorted(notes.items()))), flush=True)
    sys.exit(1 if failed else 0)

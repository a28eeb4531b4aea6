#!/usr/bin/env python3
"""P6 for an insertion: 1 KB in front of 500 MB that do not compress, over ssh on this machine, to a
machine with a round trip of 20 ms, and there at 20 Mbit/s; then the same edit in the middle, with
the same bar. Peer: rsync."""

import os
import random

from common import DelayProxy, Laptop, Sshd, emit_race
from sync_subjects import Peers, Places, Runs, make_large_file, race_of_changes, same

ROUNDS = 5
SLOW_ROUNDS = 3
BYTES = 500 << 20
DELAY_MS = 10
SLOW_MBIT = 20


def insert(path, offset, stamp):
    """Inserts 1,000 random bytes, in a new file that takes the old one's name."""
    with open(path, "rb") as old, open(path + ".new", "wb") as new:
        left = offset
        while left:
            data = old.read(min(left, 1 << 20))
            new.write(data)
            left -= len(data)
        new.write(random.Random(stamp).randbytes(1000))
        while data := old.read(1 << 20):
            new.write(data)
    os.rename(path + ".new", path)


def main():
    with Laptop(10 << 30) as laptop, Sshd(laptop.dir) as sshd, \
            DelayProxy(sshd.port, DELAY_MS) as far:
        source = os.path.join(laptop.dir, "large")
        os.mkdir(source)
        file = os.path.join(source, "weights.bin")
        make_large_file(file, BYTES)
        places = Places(laptop.dir)
        target = os.path.join(places.fresh(), "weights.bin")

        def race(name, port, rounds, offset, bar):
            """Brings the file to both places, and returns the function that races."""
            peers, runs = Peers(laptop, sshd, port), Runs(laptop, sshd.gpuctl_flags(port or
                                                                                    sshd.port))
            row = runs.fresh()
            runs.sync(row, source)
            peers.rsync(file, peers.remote(target))
            return lambda: finish(name, rounds, offset, bar, peers, runs, row)

        def finish(name, rounds, offset, bar, peers, runs, row):
            changed = race_of_changes(
                rounds, lambda stamp: insert(file, offset, stamp),
                {"gpuctl": lambda: runs.sync(row, source),
                 "rsync": lambda: peers.rsync(file, peers.remote(target))})
            runs.sync(row, source)
            same(file, os.path.join(runs.work(row), "weights.bin"))
            emit_race("P6 sync, 1 KB inserted %s" % name, changed, bar, rounds)
            runs.end()

        race("in front of 500 MB", None, ROUNDS, 0, 1.0)()
        race("in front of 500 MB, 20 ms", far.port, ROUNDS, 0, 1.0)()
        slow = race("in front of 500 MB, 20 ms, 20 Mbit/s", far.port, SLOW_ROUNDS, 0, 1.0)
        far.limit(SLOW_MBIT)
        slow()
        far.limit(0)
        slow = race("into the middle of 500 MB, 20 ms, 20 Mbit/s", far.port, SLOW_ROUNDS,
                    BYTES // 2 + 12345, 1.0)
        far.limit(SLOW_MBIT)
        slow()
        far.limit(0)


if __name__ == "__main__":
    main()

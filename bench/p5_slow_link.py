#!/usr/bin/env python3
"""P5 for a slow link: 2,000 text files (20 MB) to a machine with a round trip of 20 ms at 20 Mbit/s,
into an empty work directory. Peer: `rsync -az` through the same proxy, which compresses, too."""

import os

from common import DelayProxy, Laptop, Sshd, emit_race, interleave
from sync_subjects import TreeRace, make_small_files, settle

ROUNDS = 5
DELAY_MS = 10
MBIT = 20
FILES, BYTES, FOLDERS = 2000, 20_000_000, 100


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, \
            DelayProxy(sshd.port, DELAY_MS, MBIT) as far:
        source = os.path.join(laptop.dir, "source")
        make_small_files(source, FILES, BYTES, FOLDERS)
        race = TreeRace(laptop, sshd, source, far.port)

        def rsync_cold():
            place = race.places.fresh()
            settle()
            return race.peers.rsync(source + "/", race.peers.remote(place), "-z")

        cold = interleave(ROUNDS, {"gpuctl": race.ours_cold, "rsync": rsync_cold})
        emit_race("P5 cold sync of text, 20 ms, 20 Mbit/s, peer compresses", cold, 0.9, ROUNDS)
        race.runs.end()


if __name__ == "__main__":
    main()

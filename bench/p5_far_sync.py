#!/usr/bin/env python3
"""P5: 500 files (2.7 MB) to a machine with a round trip of 80 ms, into an empty work directory and
again unchanged. Peer: rsync through the same delay; scp, file by file, once."""

import os

from common import DelayProxy, Laptop, Sshd, emit_race, interleave
from sync_subjects import TreeRace, make_small_files

ROUNDS = 7
DELAY_MS = 40
FILES, BYTES, FOLDERS = 500, 2_700_000, 40


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, DelayProxy(sshd.port, DELAY_MS) as far:
        source = os.path.join(laptop.dir, "source")
        make_small_files(source, FILES, BYTES, FOLDERS)
        race = TreeRace(laptop, sshd, source, far.port)
        cold = interleave(ROUNDS, {"gpuctl": race.ours_cold, "rsync": race.rsync_cold})
        emit_race("P5 cold sync at 80 ms, 500 files", cold, 0.6, ROUNDS,
                  scp_s=round(race.scp_cold(), 1))
        again = interleave(ROUNDS, {"gpuctl": race.ours_again, "rsync": race.rsync_again})
        emit_race("P5 no-change sync at 80 ms, 500 files", again, 0.6, ROUNDS)
        race.runs.end()


if __name__ == "__main__":
    main()

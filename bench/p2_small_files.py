#!/usr/bin/env python3
"""P2, P3 and P6 for small files: 10,000 of them (53 MB, 500 folders) sent to an empty work
directory, sent again unchanged, and with every hundredth changed. Over ssh on this machine. The
peers are rsync and scp; all results are on stable storage when the clock stops."""

import os

from common import Laptop, Sshd, emit_race, interleave, on_tmpfs
from sync_subjects import TreeRace, change_some, make_small_files, race_of_changes

ROUNDS = 9
FILES, BYTES, FOLDERS = 10_000, 53_000_000, 500


def main():
    with Laptop(4 << 30) as laptop, Sshd(laptop.dir) as sshd:
        source = os.path.join(laptop.dir, "source")
        make_small_files(source, FILES, BYTES, FOLDERS)
        race = TreeRace(laptop, sshd, source)
        cold = interleave(ROUNDS, {"gpuctl": race.ours_cold, "rsync": race.rsync_cold,
                                   "scp": race.scp_cold})
        bar = 0.5 if on_tmpfs(laptop.dir) else 0.6
        emit_race("P2 cold sync, 10k files", cold, bar, ROUNDS,
                  scp_s=round(cold.median("scp"), 3))
        both = {"gpuctl": race.ours_again, "rsync": race.rsync_again}
        again = interleave(ROUNDS + 4, both)
        emit_race("P3 no-change sync, 10k files", again, 0.25, ROUNDS + 4)
        some = race_of_changes(ROUNDS, lambda stamp: change_some(source, 100, stamp), both)
        race.ours_again()
        race.check()
        emit_race("P6 sync, 1 % of 10k files changed", some, 0.4, ROUNDS)
        race.runs.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""P2, P3 and P6 for small files: 10,000 of them (53 MB, 500 folders) brought into an empty work
directory, brought again unchanged, and with every hundredth changed. Over ssh on this machine. The
peers are rsync and scp; all results are on stable storage when the clock stops."""

import os

from common import Laptop, Sshd, emit, interleave
from sync_subjects import (Peers, Places, Runs, change_some, make_small_files, same, settle)

ROUNDS = 5
FILES, BYTES, FOLDERS = 10_000, 53_000_000, 500


def main():
    with Laptop(4 << 30) as laptop, Sshd(laptop.dir) as sshd:
        source = os.path.join(laptop.dir, "source")
        make_small_files(source, FILES, BYTES, FOLDERS)
        places, peers = Places(laptop.dir), Peers(laptop, sshd)
        runs = Runs(laptop, sshd.gpuctl_flags())
        last = {}

        def ours_cold():
            row = last["row"] = runs.fresh()
            runs.forget_hashes()
            settle()
            took = runs.sync(row, source)
            same(source, runs.work(row))
            return took

        def rsync_cold():
            place = last["place"] = places.fresh()
            settle()
            return peers.rsync(source + "/", peers.remote(place))

        def scp_cold():
            settle()
            return peers.scp(source, peers.remote(places.fresh()))

        cold = interleave(ROUNDS, {"gpuctl": ours_cold, "rsync": rsync_cold, "scp": scp_cold})
        emit("P2 cold sync, 10k files", cold.median("gpuctl"), "s", "rsync -a", cold.median("rsync"),
             "<= 0.6 x", cold.median("gpuctl") <= 0.6 * cold.median("rsync"),
             spread=cold.spread("gpuctl"), rounds=ROUNDS, scp_s=round(cold.median("scp"), 3))

        again = interleave(ROUNDS + 4, {
            "gpuctl": lambda: runs.sync(last["row"], source),
            "rsync": lambda: peers.rsync(source + "/", peers.remote(last["place"]))})
        emit("P3 no-change sync, 10k files", again.median("gpuctl"), "s", "rsync -a",
             again.median("rsync"), "<= 0.4 x",
             again.median("gpuctl") <= 0.4 * again.median("rsync"),
             spread=again.spread("gpuctl"), rounds=ROUNDS + 4)

        stamp = [0]

        # Each brings the changes made since its own last turn: the same files, changed once more.
        def changed(bring):
            stamp[0] += 1
            change_some(source, 100, stamp[0])
            settle()
            return bring()

        some = interleave(ROUNDS, {
            "gpuctl": lambda: changed(lambda: runs.sync(last["row"], source)),
            "rsync": lambda: changed(
                lambda: peers.rsync(source + "/", peers.remote(last["place"])))})
        runs.sync(last["row"], source)
        same(source, runs.work(last["row"]))
        emit("P6 sync, 1 % of 10k files changed", some.median("gpuctl"), "s", "rsync -a",
             some.median("rsync"), "<= 0.7 x", some.median("gpuctl") <= 0.7 * some.median("rsync"),
             spread=some.spread("gpuctl"), rounds=ROUNDS)
        runs.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""P5: 500 files (2.7 MB) to a machine that is 80 ms of round trip away, into an empty work directory
and again unchanged. Peer: rsync through the same delay; scp, file by file, once."""

import os

from common import DelayProxy, Laptop, Sshd, emit, interleave
from sync_subjects import Peers, Places, Runs, make_small_files, same, settle

ROUNDS = 7
DELAY_MS = 40
FILES, BYTES, FOLDERS = 500, 2_700_000, 40


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, DelayProxy(sshd.port, DELAY_MS) as far:
        source = os.path.join(laptop.dir, "source")
        make_small_files(source, FILES, BYTES, FOLDERS)
        places, peers = Places(laptop.dir), Peers(laptop, sshd, far.port)
        runs = Runs(laptop, sshd.gpuctl_flags(far.port))
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

        cold = interleave(ROUNDS, {"gpuctl": ours_cold, "rsync": rsync_cold})
        scp_s = peers.scp(source, peers.remote(places.fresh()))
        emit("P5 cold sync at 80 ms, 500 files", cold.median("gpuctl"), "s", "rsync -a",
             cold.median("rsync"), "<= 0.8 x", cold.median("gpuctl") <= 0.8 * cold.median("rsync"),
             spread=cold.spread("gpuctl"), rounds=ROUNDS, scp_s=round(scp_s, 1))
        again = interleave(ROUNDS, {
            "gpuctl": lambda: runs.sync(last["row"], source),
            "rsync": lambda: peers.rsync(source + "/", peers.remote(last["place"]))})
        emit("P5 no-change sync at 80 ms, 500 files", again.median("gpuctl"), "s", "rsync -a",
             again.median("rsync"), "<= 0.8 x",
             again.median("gpuctl") <= 0.8 * again.median("rsync"),
             spread=again.spread("gpuctl"), rounds=ROUNDS)
        runs.end()


if __name__ == "__main__":
    main()

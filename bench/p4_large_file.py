#!/usr/bin/env python3
"""P4 and P6 for a large file: 1 GiB that does not compress, up and down over ssh on this machine,
in place and on stable storage; then 1 MiB of it overwritten in the middle. Peers: scp and rsync
with their defaults, and with forced AES-GCM. An insertion in the middle is reported without a
bar."""

import os

from common import Laptop, Sshd, emit, emit_race, interleave
from sync_subjects import (FORCED_GCM, Peers, Places, Runs, make_large_file, overwrite_middle,
                           race_of_changes, same, settle)

ROUNDS = 5
BYTES = 1 << 30


BARS = {"up": (0.6, 0.8), "down": (0.7, 0.9)}  # against the peers as they come, with AES-GCM


def report(name, samples, rounds):
    ours = samples.median("gpuctl")
    for kind, bar in zip(("as they come", "AES-GCM"), BARS[name]):
        of = {tool: samples.median("%s, %s" % (tool, kind)) for tool in ("scp", "rsync")}
        best = min(of, key=of.get)
        emit("P4 1 GiB %s, peers %s" % (name, kind), ours, "s", best, of[best], "<= %.1f x" % bar,
             ours <= bar * of[best], spread=samples.spread("gpuctl"), rounds=rounds,
             **{tool + " s": round(value, 3) for tool, value in of.items()})


def main():
    with Laptop(40 << 30) as laptop, Sshd(laptop.dir) as sshd:
        source = os.path.join(laptop.dir, "large")
        os.mkdir(source)
        file = os.path.join(source, "weights.bin")
        make_large_file(file, BYTES)
        places, peers = Places(laptop.dir), Peers(laptop, sshd)
        runs = Runs(laptop, sshd.gpuctl_flags())
        row = runs.fresh()
        far = os.path.join(places.fresh(), "weights.bin")
        count = [0]

        def next_name():
            count[0] += 1
            settle()
            return "weights%03d.bin" % count[0]

        def clean(path, took):
            same(file, path)
            os.unlink(path)
            return took

        def ours_up():
            runs.forget_hashes()
            name = next_name()
            took = runs.cp(file, "%s:%s" % (row["name"], name))
            return clean(os.path.join(runs.work(row), name), took)

        def peer_up(tool, options):
            target = os.path.join(places.parent, next_name())
            return clean(target, tool(file, peers.remote(target), options=options))

        def ours_down():
            target = os.path.join(laptop.work, next_name())
            return clean(target, runs.cp("%s:weights.bin" % row["name"], target))

        # All copy the same file; otherwise only some would find it in the page cache.
        there = os.path.join(runs.work(row), "weights.bin")

        def peer_down(tool, options):
            target = os.path.join(laptop.work, next_name())
            return clean(target, tool(peers.remote(there), target, options=options))

        def takers(ours, peer):
            return {"gpuctl": ours,
                    "scp, as they come": lambda: peer(peers.scp, ()),
                    "rsync, as they come": lambda: peer(peers.rsync, ()),
                    "scp, AES-GCM": lambda: peer(peers.scp, FORCED_GCM),
                    "rsync, AES-GCM": lambda: peer(peers.rsync, FORCED_GCM)}

        report("up", interleave(ROUNDS, takers(ours_up, peer_up)), ROUNDS)
        runs.sync(row, source)
        peers.rsync(file, peers.remote(far))
        report("down", interleave(ROUNDS, takers(ours_down, peer_down)), ROUNDS)

        changed = race_of_changes(
            ROUNDS, lambda stamp: overwrite_middle(file, 1 << 20, stamp),
            {"gpuctl": lambda: runs.sync(row, source),
             "rsync": lambda: peers.rsync(file, peers.remote(far))})
        runs.sync(row, source)
        same(file, os.path.join(runs.work(row), "weights.bin"))
        emit_race("P6 sync, 1 MiB of 1 GiB overwritten", changed, 0.7, ROUNDS)
        runs.end()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""P6 for a pull of what is home: 1 GB of a job's results in 8 files, over ssh on this machine, pulled
again though nothing has changed. Peer: rsync."""

import os

from common import Laptop, Sshd, emit_race, interleave, run_timed
from sync_subjects import Peers, Runs, same

ROUNDS = 9
FILES, MEGABYTES = 8, 125


def main():
    with Laptop(4 << 30) as laptop, Sshd(laptop.dir) as sshd:
        runs, peers = Runs(laptop, sshd.gpuctl_flags()), Peers(laptop, sshd)
        row = laptop.launch(
            "sh", "-c", "mkdir outputs; for n in $(seq %d); do head -c %dM /dev/urandom > "
            "outputs/$n.bin; done" % (FILES, MEGABYTES), flags=runs.flags)
        laptop.run("wait", row["name"])
        home, theirs = (os.path.join(laptop.dir, name) for name in ("home", "theirs"))
        pull = [laptop.gpuctl, "pull", row["name"], "outputs/*", "--to", home]
        there = os.path.join(runs.work(row), "outputs")

        def ours():
            return run_timed(pull, laptop.env)

        def rsync():
            return peers.rsync(peers.remote(there + "/"), theirs)

        ours(), rsync()
        names = sorted(os.listdir(there))
        assert len(names) == FILES, names
        inodes = [os.stat(os.path.join(home, "outputs", name)).st_ino for name in names]
        again = interleave(ROUNDS, {"gpuctl": ours, "rsync": rsync})
        emit_race("P6 pull of 1 GB that is home", again, 1.5, ROUNDS)
        for name, inode in zip(names, inodes):
            mine = os.path.join(home, "outputs", name)
            same(os.path.join(there, name), mine)
            assert os.stat(mine).st_ino == inode, name


if __name__ == "__main__":
    main()

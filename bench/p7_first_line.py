#!/usr/bin/env python3
"""P7: from the exec of `gpuctl launch` until the job's first line is on its stdout: warm node,
unchanged work directory; over the local provider, and by ssh through a proxy that adds 40 ms in
each direction. The peer, `ssh host echo first` over the same path, starts no job."""

import os

from common import DelayProxy, Laptop, Sshd, Timed, emit, interleave

ROUNDS = 11
DELAY_MS = 40
FASTER = ("-o", "KexAlgorithms=curve25519-sha256")


def make_work(directory):
    for number in range(20):
        with open(os.path.join(directory, "file%02d.py" % number), "w") as file:
            file.write("# one of twenty files of ten kilobytes\n" * 256)
    # Make the files older than the cache of hashes, which correctly hashes younger files again.
    for name in os.listdir(directory):
        os.utime(os.path.join(directory, name), (1_700_000_000, 1_700_000_000))


def launch(laptop, flags):
    child = Timed([laptop.gpuctl, "launch", "-y", *flags, "--workdir", laptop.work, "--",
                   "sh", "-c", "echo first; exec sleep 0.2"], laptop.env)
    took = child.until(b"first\n")
    code, _ = child.wait()
    assert code == 0, code
    return took


def ssh_echo(laptop, argv):
    child = Timed(argv, laptop.env)
    took = child.until(b"first\n")
    child.wait()
    return took


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, DelayProxy(sshd.port, DELAY_MS) as far:
        make_work(laptop.work)
        here, there, near = [], sshd.gpuctl_flags(far.port), sshd.gpuctl_flags()
        for flags in (here, there, near) * 2:
            launch(laptop, flags)
        samples = interleave(ROUNDS, {
            "here": lambda: launch(laptop, here),
            "here by ssh": lambda: launch(laptop, near),
            "ssh here": lambda: ssh_echo(laptop, sshd.ssh("echo", "first")),
            "ssh here, curve25519": lambda: ssh_echo(
                laptop, sshd.ssh("echo", "first", options=FASTER)),
            "80 ms": lambda: launch(laptop, there),
            "ssh 80 ms": lambda: ssh_echo(laptop, sshd.ssh("echo", "first", port=far.port)),
            "ssh 80 ms, curve25519": lambda: ssh_echo(
                laptop, sshd.ssh("echo", "first", port=far.port, options=FASTER)),
        })
        for where, ours, bar_s in (("here", "here", 0.1),
                                   ("here, provider ssh", "here by ssh", 0.1),
                                   ("80 ms", "80 ms", 0.65)):
            peer = "ssh 80 ms" if ours == "80 ms" else "ssh here"
            value = samples.median(ours)
            emit("P7 submit to first line, " + where, value, "s",
                 "ssh host echo first (no job); published: dstack 10-15 s",
                 samples.median(peer), "<= %.2f s" % bar_s, value <= bar_s,
                 spread=samples.spread(ours), rounds=ROUNDS, **{
                     "ssh with curve25519 s": round(samples.median(peer + ", curve25519"), 4)})


if __name__ == "__main__":
    main()

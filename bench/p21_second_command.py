#!/usr/bin/env python3
"""P21: a second command to the same machine, 80 ms away: `exec RUN -- true` and `ps -u`, whole
process, over the warm link that an earlier command left. The peer is ssh with ControlMaster: its
second command, over the master of its first one. For scale: both without what they keep."""

import os
import time

from common import DelayProxy, Laptop, Sshd, emit, interleave, run_timed, wait_for

ROUNDS = 11
DELAY_MS = 40


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, DelayProxy(sshd.port, DELAY_MS) as far:
        cold = dict(laptop.env)
        del laptop.env["GPUCTL_WARM_LINK"]
        flags = sshd.gpuctl_flags(far.port)
        row = laptop.launch("sleep", "1000000", flags=flags)
        name, links = row["name"], os.path.join(laptop.state, "links")
        wait_for(lambda: any(file.endswith(".sock") for file in os.listdir(links)), "a warm link")
        # Of an option that is there twice, ssh takes the first.
        ssh = sshd.ssh("true", port=far.port)
        kept = [ssh[0], "-o", "ControlPath=" + os.path.join(laptop.dir, "control")]
        run_timed([*kept, "-o", "ControlMaster=yes", "-o", "ControlPersist=600", *ssh[1:]],
                  laptop.env)
        second = [*kept, *ssh[1:]]

        def ours(*args, env=laptop.env):
            took = run_timed([laptop.gpuctl, *args], env)
            time.sleep(0.5)  # people do not type faster
            return took

        for _ in range(2):
            ours("exec", name, "--", "true")
            ours("ps", "-u")
        samples = interleave(ROUNDS, {
            "exec": lambda: ours("exec", name, "--", "true"),
            "ps -u": lambda: ours("ps", "-u"),
            "exec, no warm link": lambda: ours("exec", name, "--", "true", env=cold),
            "ps -u, no warm link": lambda: ours("ps", "-u", env=cold),
            "ssh": lambda: run_timed(second, laptop.env),
            "ssh, no master": lambda: run_timed(ssh, laptop.env),
        })
        for what, shown in (("exec", "exec RUN -- true"), ("ps -u", "ps -u")):
            value = samples.median(what)
            emit("P21 second command at 80 ms, " + shown, value, "s",
                 "ssh with ControlMaster, second command", samples.median("ssh"), "<= 0.25 s",
                 value <= 0.25, spread=samples.spread(what), rounds=ROUNDS, **{
                     "without a warm link s": round(samples.median(what + ", no warm link"), 4),
                     "ssh without master s": round(samples.median("ssh, no master"), 4)})
        run_timed([*kept, "-O", "exit", *ssh[1:-1]], laptop.env)
        laptop.stop(row)


if __name__ == "__main__":
    main()

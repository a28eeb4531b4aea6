#!/usr/bin/env python3
"""Growth with the machines of live runs: whole-process time of `ps -u`, which asks each of them,
with 1, 16 and 64 machines, and how many it has heard by then; and the processor time and memory
that it takes. Each machine has a root, a guard and a server of its own on this computer. The peer is
a true command on each by ssh, as many at once as gpuctl has links."""

import json
import os
import resource
import subprocess

from common import Laptop, Sshd, emit, interleave, progress, run_timed

MACHINES, ROUNDS, LINKS_AT_ONCE = (1, 16, 64), 7, 16


def make(count):
    """Returns a laptop with a live run on each of so many machines."""
    laptop = Laptop()
    for number in range(count):
        laptop.env["GPUCTL_NODE_ROOT"] = os.path.join(laptop.dir, "node", str(number))
        laptop.run("launch", "-y", "-d", "--no-workdir", "--name", "run%d-" % number, "--", "sleep",
                   "100000")
    return laptop


def main():
    laptops = {}
    with Laptop() as other, Sshd(other.dir) as sshd:
        try:
            for count in MACHINES:
                laptops[count] = make(count)
                progress("  %d machines" % count)
            ssh = " ".join(sshd.ssh("true"))

            def timed(take):
                begin = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds = take()
                end = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu.append(end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime)
                return seconds

            cpu = []
            takers = {}
            for count, laptop in laptops.items():
                takers["ps", count] = (lambda laptop=laptop: run_timed([laptop.gpuctl, "ps", "-u"],
                                                                       laptop.env))
                takers["ssh", count] = (lambda count=count: run_timed(
                    ["/bin/sh", "-c", "seq %d | xargs -P %d -I{} %s" % (count, LINKS_AT_ONCE, ssh)],
                    other.env))
            for take in takers.values():
                take()
            samples = interleave(ROUNDS, takers)
            for count, laptop in laptops.items():
                rows = json.loads(laptop.run("ps", "-u", "--json"))["runs"]
                heard = sum(row["status"] == "running" for row in rows)
                cpu.clear()
                timed(takers["ps", count])
                emit("scale ps -u, %d machines" % count, samples.median(("ps", count)), "s",
                     "ssh host true on each, %d at once" % LINKS_AT_ONCE, samples.median(("ssh", count)),
                     "each heard", heard == count == len(rows), digits=3, heard=heard,
                     cpu_s=round(cpu[0], 3), spread=samples.spread(("ps", count)), rounds=ROUNDS)
        finally:
            for laptop in laptops.values():
                for number in range(len(os.listdir(os.path.join(laptop.dir, "node")))):
                    laptop.root = os.path.join(laptop.dir, "node", str(number))
                    subprocess.run([laptop.gpuctl, "down", "--all", "-y"], env=laptop.env, check=False,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    subprocess.run([os.path.join(laptop.programs, "gpuctl-agent"), "shutdown", "--root",
                                    laptop.root], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, check=False)
                laptop.close()


if __name__ == "__main__":
    main()

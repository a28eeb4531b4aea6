#!/usr/bin/env python3
"""From the exec of `gpuctl launch` until the run's first line is on its stdout, for a run on 1, 2 and
4 machines (namespaces, each with a network of its own and an sshd) that know gpuctl already; and the
bytes that the laptop sends to each machine, at first contact and then. The peer is `ssh host echo
first` on all of them at once, which starts no job. Needs root."""

import json
import os
import shutil
import statistics
import sys
import tempfile

from common import CHECKOUT, Timed, clean_environment, emit, find_programs, progress, run_timed, spread

sys.path.insert(1, os.path.join(CHECKOUT, "tests", "gang"))
import machines  # noqa: E402

SIZES, ROUNDS = (1, 2, 4), 7


def sent_to(machine):
    """Returns the bytes that went from the laptop to the machine so far."""
    (link,) = json.loads(machines.run("ip", "-s", "-j", "link", "show", machine.veth))
    return link["stats64"]["tx"]["bytes"]


def measure(size, gpuctl):
    folder = tempfile.mkdtemp(prefix="gpuctl-bench-")
    work = os.path.join(folder, "work")
    os.mkdir(work)
    with open(os.path.join(work, "train.sh"), "w") as file:
        file.write("echo first; exec sleep 0.2\n")
    os.utime(os.path.join(work, "train.sh"), (1_700_000_000, 1_700_000_000))
    try:
        with machines.Machines(size) as them:
            env = clean_environment(HOME=folder, GPUCTL_STATE_DIR=folder + "/state", GPUCTL_WARM_LINK="off",
                                    GPUCTL_CACHE_DIR=folder + "/cache", GPUCTL_CONFIG_DIR=folder + "/config")
            launch = [gpuctl, "launch", "-y", "--host", them.hosts, "-i", them.dir + "/key", "--workdir", work,
                      "--", "sh", "train.sh"]

            def first_line():
                begin = [sent_to(machine) for machine in them.all]
                child = Timed(launch, env)
                took = child.until(b"first\n")
                code, _ = child.wait()
                assert code == 0, code
                return took, max(sent_to(m) - b for m, b in zip(them.all, begin))

            ssh = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i %s/key" % them.dir
            peer = ["/bin/sh", "-c", " & ".join("%s %s echo first" % (ssh, m.host) for m in them.all) + "; wait"]
            cold_s, cold_bytes = first_line()
            first_line()
            samples = []
            for _ in range(ROUNDS):
                samples.append((*first_line(), run_timed(peer, env)))
                progress("  %d machines: %s" % (size, samples[-1]))
            return {"cold_s": round(cold_s, 3), "cold_bytes": cold_bytes, "warm": [s[0] for s in samples],
                    "bytes": statistics.median(s[1] for s in samples), "peer": [s[2] for s in samples]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    machines.enter()
    gpuctl = os.path.join(find_programs(), "gpuctl")
    results = {size: measure(size, gpuctl) for size in SIZES}
    one = statistics.median(results[1]["warm"])
    for size, result in results.items():
        value = statistics.median(result["warm"])
        emit("scale launch to first line, %d machines, warm" % size, value, "s",
             "ssh host echo first on all at once (no job)", statistics.median(result["peer"]),
             "<= one machine + 0.5 s", value <= one + 0.5, spread=spread(result["warm"]), rounds=ROUNDS,
             first_contact_s=result["cold_s"], first_contact_bytes_a_machine=result["cold_bytes"],
             bytes_a_machine=int(result["bytes"]))


if __name__ == "__main__":
    main()

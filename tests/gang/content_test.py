#!/usr/bin/env python3
"""The content of runs on several machines: a slow line from the laptop carries it once.

  content_test.py GPUCTL [TEST...]
"""
import hashlib
import json
import os
import signal
import subprocess
import sys

import machines
from laptop import SLEEPER, Laptop, Skipped, run_tests, wait_for_end
from machines import Machines, run, wait_until

SHOW = ("--", "sh", "-c", "sha256sum content | cut -c 1-64")


def write_content(laptop, megabytes):
    content = os.urandom(megabytes << 20)
    with open(os.path.join(laptop.work, "content"), "wb") as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


def sent_by_laptop():
    """Returns the bytes that the laptop has sent to machines; what these send each other is not in it."""
    return json.loads(run("ip", "-j", "-s", "link", "show", "bridge"))[0]["stats64"]["tx"]["bytes"]


def slow_laptop(rate):
    if subprocess.run(["tc", "qdisc", "replace", "dev", "bridge", "root", "tbf", "rate", rate, "burst", "64k",
                       "latency", "500ms"], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                      env={**os.environ, "PATH": machines.PATH}).returncode != 0:
        raise Skipped("no tbf")


def check_content(laptop, name, digest, size):
    for rank in range(size):
        assert laptop.ask("logs", name, "--node", str(rank)).stdout.split() == [digest], rank


def test_a_slow_line_carries_large_content_once():
    with Machines(3) as them:
        laptop = Laptop(them)
        # The programs for nodes go first.
        laptop.launch("--name", "first", "--no-workdir", "--", "true")
        slow_laptop("16mbit")
        digest = write_content(laptop, 14)
        before = sent_by_laptop()
        laptop.launch("--name", "large", *SHOW)
        sent = sent_by_laptop() - before
        check_content(laptop, "large-1", digest, 3)
        print("  14 MiB at three machines: %.1f MiB from the laptop" % (sent / (1 << 20)))
        assert sent < 17 << 20, sent
        wait_for_end(them)
        assert not any(machine.processes("gpuctl-agent give") or machine.processes("gpuctl-agent fetch")
                       for machine in them.all)

        # One that cannot reach the first gets it from here. Its part joins when it can.
        digest = write_content(laptop, 12)
        had = len(them.all[2].jobs())
        them.all[2].ip("route", "add", "unreachable", "10.88.0.11")
        process = laptop.start("--name", "alone", *SHOW)
        wait_until(lambda: len(them.all[2].jobs()) > had, "its part is there")
        them.all[2].ip("route", "del", "unreachable", "10.88.0.11")
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert b"but from here" in said and them.all[2].host.encode() in said, said
        check_content(laptop, "alone-1", digest, 3)
        wait_for_end(them)
        laptop.close()


def test_small_content_goes_to_all_at_once():
    """A push that went to one machine after the other would never be at both."""
    with Machines(2) as them:
        if not all(machine.slow("8mbit") for machine in them.all):
            raise Skipped("no tbf")
        laptop = Laptop(them)
        digest = write_content(laptop, 7)
        process = laptop.start("--name", "small", *SLEEPER[1:])
        wait_until(lambda: all(machine.processes("gpuctl-agent receive") for machine in them.all),
                   "content goes to both machines")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
        assert process.returncode == 130 and b"nothing was started" in said, said
        assert json.loads(laptop.ask("ps", "-a", "--json").stdout)["runs"] == []
        assert not any(machine.jobs() for machine in them.all)
        # What was sent is kept, and all of it comes.
        done = laptop.launch("--name", "small", *SHOW)
        assert " to 2 machines in " in done.stderr, done.stderr
        check_content(laptop, "small-1", digest, 2)
        wait_for_end(them)

        # An error names its machine, and the others'.
        them.all[1].link("down")
        done = laptop.launch("--name", "gone", "--", "true", code=None)
        assert done.returncode not in (0, 130) and them.all[1].host in done.stderr, done.stderr
        laptop.close()


if __name__ == "__main__":
    machines.enter()
    sys.exit(run_tests(sys.argv[1:], {name: test for name, test in list(globals().items())
                                      if name.startswith("test_")}))

#!/usr/bin/env python3
"""P10: processor time and memory of guard, server and shim on the node while a job prints 10 lines
per second and telemetry is read once per second, with nobody attached. The peer, in the same
minute: an ssh session with `tail -f` of a file that grows equally."""

import contextlib
import os
import subprocess
import time

from common import Laptop, Sshd, Timed, emit, find_helper, progress, wait_for

SECONDS = 60
TEN_LINES_A_SECOND = ["--bytes", "1000000000", "--rate", "1000", "--chunk", "100"]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
KB = 1024


def cpu_seconds(pid):
    """Returns (by the clock ticks of /proc/PID/stat, with waited-for children; by the scheduler's
    ns)."""
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    ticks = sum(int(fields[index]) for index in (11, 12, 13, 14))
    exact = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(OSError), open(
                "/proc/%d/task/%s/schedstat" % (pid, task)) as file:
            exact += int(file.read().split()[0])
    return ticks * TICK_S, exact / 1e9


def memory_bytes(pid):
    """Returns (resident: RssAnon + RssFile + RssShmem, proportional: Pss)."""
    resident = proportional = 0
    with open("/proc/%d/status" % pid) as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssFile:", "RssShmem:")):
                resident += int(line.split()[1]) * KB
    with open("/proc/%d/smaps_rollup" % pid) as file:
        for line in file:
            if line.startswith("Pss:"):
                proportional += int(line.split()[1]) * KB
    return resident, proportional


class Group:
    """Some processes during an interval. All must live from its beginning to its end."""

    def __init__(self, pids):
        self.pids = sorted(pids)
        self.begin = {pid: cpu_seconds(pid) for pid in self.pids}
        self.peak = 0

    def look(self):
        self.peak = max(self.peak, sum(memory_bytes(pid)[0] for pid in self.pids))

    def result(self, seconds):
        end = {pid: cpu_seconds(pid) for pid in self.pids}
        memory = [memory_bytes(pid) for pid in self.pids]
        used = [sum(end[pid][kind] - self.begin[pid][kind] for pid in self.pids) / seconds * 100
                for kind in (0, 1)]
        return {"cpu": used[0], "cpu_exact": used[1], "rss": sum(m[0] for m in memory) / 1e6,
                "rss_peak": self.peak / 1e6, "pss": sum(m[1] for m in memory) / 1e6}


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        found = [int(word) for word in file.read().split()]
    return found + [grandchild for child in found for grandchild in children_of(child)]


def role(command):
    words = command.split()
    return words[1] if words[0].endswith("gpuctl-agent") and len(words) > 1 else "shim"


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, contextlib.ExitStack() as stack:
        writer = find_helper("bench_writer")
        row = laptop.launch(writer, *TEN_LINES_A_SECOND)
        wait_for(lambda: sorted(map(role, laptop.pids().values())) == ["guard", "server", "shim"],
                 "guard, server and shim, and the bridge's end")
        log = os.path.join(laptop.dir, "log")
        with open(log, "wb") as file:
            plain = subprocess.Popen([writer, *TEN_LINES_A_SECOND], stdout=file)
        stack.callback(plain.wait)
        stack.callback(plain.kill)
        tail = Timed(sshd.ssh("tail", "-f", log), laptop.env)
        stack.callback(tail.end)
        tail.until(b"step")
        # The work of the start must not count.
        time.sleep(5)
        commands = laptop.pids()
        ours, theirs = Group(commands), Group(children_of(sshd.process.pid))
        begin = time.monotonic()
        while time.monotonic() - begin < SECONDS:
            time.sleep(min(1, max(0, begin + SECONDS - time.monotonic())))
            ours.look()
            if not take_what_came(tail):
                break
        seconds = time.monotonic() - begin
        our, their = ours.result(seconds), theirs.result(seconds)
        each = {role(command): {"cpu_percent": round(Group.result(part, seconds)["cpu_exact"], 3),
                                "rss_MB": round(memory_bytes(pid)[0] / 1e6, 2)}
                for pid, command in commands.items()
                for part in [part_of(ours, pid)]}
        progress("  %s" % each)
        laptop.stop(row)
        emit("P10 processor time of guard, server and shim", our["cpu"], "% of a core",
             "an ssh session with tail -f, server's side", their["cpu"], "<= 0.2 %",
             our["cpu"] <= 0.2, digits=3, seconds=round(seconds),
             by_scheduler=round(our["cpu_exact"], 3), peer_by_scheduler=round(their["cpu_exact"], 3),
             each=each)
        emit("P10 memory of guard, server and shim", our["rss"], "MB resident",
             "an ssh session with tail -f, server's side; published: idle gRPC server 7.7 MB",
             their["rss"], "<= 24 MB", our["rss"] <= 24, digits=2,
             peak=round(our["rss_peak"], 2), pss=round(our["pss"], 2),
             peer_pss=round(their["pss"], 2))


def part_of(group, pid):
    part = Group([])
    part.pids, part.begin = [pid], {pid: group.begin[pid]}
    return part


def take_what_came(tail):
    """Reads tail's output, so that tail never waits; returns false when tail has ended."""
    return bool(os.read(tail.fd, 1 << 16))


if __name__ == "__main__":
    main()

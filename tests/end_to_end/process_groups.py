"""Processor time and memory of many short processes together, by Linux's control groups."""
import contextlib
import os
import threading
import time

ROOT = "/sys/fs/cgroup"


class ProcessGroup:
    """The processes that `pid` starts from now on, and `pid` itself. with ProcessGroup(…) as group."""

    def __init__(self, name, pid):
        self.name = name
        self.paths = {kind: "%s/%s/gpuctl-test-%d-%s" % (ROOT, kind, os.getpid(), name)
                      for kind in ("cpuacct", "memory")}
        self.pid = pid
        self.peak_bytes = 0
        self.over = threading.Event()
        self.watch = threading.Thread(target=self._watch, daemon=True)

    @staticmethod
    def available():
        return all(os.access(os.path.join(ROOT, kind), os.W_OK) for kind in ("cpuacct", "memory"))

    def __enter__(self):
        for path in self.paths.values():
            os.mkdir(path)
            with open(path + "/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(self.pid))
        self.watch.start()
        return self

    def _watch(self):
        while not self.over.wait(0.2):
            with open(self.paths["memory"] + "/memory.stat", encoding="ascii") as file:
                stat = dict(line.split() for line in file)
            self.peak_bytes = max(self.peak_bytes, int(stat["total_rss"]))

    def cpu_s(self):
        """Processor time so far, in seconds, of all its processes, also those that have ended."""
        with open(self.paths["cpuacct"] + "/cpuacct.usage", encoding="ascii") as file:
            return int(file.read()) / 1e9

    def __exit__(self, *_):
        self.over.set()
        self.watch.join()
        for kind, path in self.paths.items():
            with open(path + "/cgroup.procs", encoding="ascii") as file:
                left = file.read().split()
            for pid in left:
                with contextlib.suppress(OSError):
                    with open("%s/%s/cgroup.procs" % (ROOT, kind), "w", encoding="ascii") as file:
                        file.write(pid)
            for _ in range(50):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                    break
                time.sleep(0.1)

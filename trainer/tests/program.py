"""Runs the trainer's program for the tests in Python, and counts what is not as it should be."""

import os
import subprocess


# Where runs train: a test on a machine with a GPU says "cuda".
DEVICE = os.environ.get("TRAINER_TEST_DEVICE", "cpu").split(":")[0]


class Program:
    def __init__(self, program):
        self.program, self.failed = program, 0
        self.limits = None  # called in each new process before the program, to limit it

    def check(self, what, right, *facts):
        print(("ok      " if right else "FAILED  ") + what)
        if not right:
            print("        ", *facts)
        self.failed += not right

    def start(self, *words, **variables):
        """Starts it without any GPUCTL_… variable but those given."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("GPUCTL_")}
        environment.update(variables)
        return subprocess.Popen([self.program, *words], stdout=subprocess.PIPE, env=environment,
                                stderr=subprocess.PIPE, universal_newlines=True, errors="replace",
                                preexec_fn=self.limits)

    def bytes_read(self, *words):
        """Returns how many bytes it reads from files and else, and how it ended."""
        process = self.start(*words)
        out = process.stdout.read()  # to its end
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{process.pid}/io", encoding="utf-8") as file:
            count = int(file.readline().split()[1])  # rchar
        error = process.communicate()[1]
        return count, subprocess.CompletedProcess(words, process.returncode, out, error)

    def check_read_once(self, what, plain, checkpoint, tensors):
        """Reading a checkpoint reads hardly more than reading the same folders unverified."""
        if not os.path.exists("/proc/self/io"):
            return print("skipped: bytes read, without /proc/self/io")
        unverified, one = self.bytes_read(*plain)
        verified, other = self.bytes_read(*checkpoint)
        more, size = verified - unverified, os.path.getsize(tensors)
        self.check(f"{what} reads {more} bytes more from a checkpoint, whose tensors have {size}",
                   one.returncode == other.returncode == 0 and one.stdout == other.stdout and
                   0 < more < size / 2, one, other)

    def run(self, *words, **variables):
        process = self.start(*words, **variables)
        out, error = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, error)

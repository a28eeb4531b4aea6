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
                                stderr=subprocess.PIPE, universal_newlines=True,
                                preexec_fn=self.limits)

    def run(self, *words, **variables):
        process = self.start(*words, **variables)
        out, error = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, error)

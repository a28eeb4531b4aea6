#!/usr/bin/env python3
"""P1: the tab key with 10,000 runs and 1,000 leases: gpuctl's answer as a process, and in real
bash, zsh and fish on a terminal, from the key until the completed word is on the screen. The peer
is the same key for a function of the shell that answers from one `echo`, without gpuctl."""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import sqlite3
import struct
import sys
import termios
import time

from common import Laptop, emit, interleave, run_timed
from p1_startup import LIVE, MANY_RUNS, fill_ledger, fill_store

ROUNDS = 21
BAR_MS = 20
NAME = "zebra-finch"

SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], ["source <(gpuctl completion bash)",
             "_near() { COMPREPLY=($(echo %s)); }; complete -F _near near" % NAME]),
    "zsh": (["-f", "-i"], ["autoload -Uz compinit; compinit -u -d $HOME/dump",
            "source <(gpuctl completion zsh)",
            "_near() { compadd $(echo %s) }; compdef _near near" % NAME]),
    "fish": (["--no-config", "-i"], ["gpuctl completion fish | source",
             "complete -c near -f -a '(echo %s)'" % NAME]),
}


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, laptop, name):
        argv, lines = SHELLS[name]
        self.master, slave = os.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        env = {**laptop.env, "PS1": "> ", "HISTFILE": "", "ZDOTDIR": laptop.dir, "INPUTRC": "/dev/null",
               "TERM": "xterm", "PATH": laptop.programs + ":" + os.environ["PATH"]}
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
                   (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
        path = shutil.which(name)
        self.pid = os.posix_spawn(path, [path, *argv], env, file_actions=actions, setsid=True)
        os.close(slave)
        for line in lines + ["echo rea''dy"]:
            self.type(line + "\n")
        self.until(b"ready\r\n")
        self.quiet()

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, wanted):
        text, end = b"", time.monotonic() + 60
        while wanted not in text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            if not ready:
                sys.exit("bench: %r never came; got %r" % (wanted, text[-1500:]))
            text += os.read(self.master, 65536)

    def quiet(self):
        while select.select([self.master], [], [], 0.15)[0]:
            os.read(self.master, 65536)

    def tab(self, command):
        """Returns the milliseconds from the tab until the rest of the name is there."""
        self.type(command + " ze")
        self.quiet()
        begin = time.perf_counter()
        self.type("\t")
        self.until(NAME[2:].encode())
        took = time.perf_counter() - begin
        self.quiet()
        self.type("\x15")
        self.quiet()
        return 1000 * took

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.master)


def main():
    with Laptop() as laptop:
        fill_store(laptop, MANY_RUNS, LIVE)
        fill_ledger(laptop)
        with contextlib.closing(sqlite3.connect(os.path.join(laptop.state, "state.db"))) as store:
            store.execute("UPDATE runs SET name = ? WHERE name = 'amber-fox-100'", (NAME,))
            store.commit()
        shells = {name: Shell(laptop, name) for name in SHELLS if shutil.which(name)}
        try:
            takers = {"words": lambda: 1000 * run_timed(
                [laptop.gpuctl, "completion", "words", "--", "logs", "ze"], laptop.env),
                      "all words": lambda: 1000 * run_timed(
                [laptop.gpuctl, "completion", "words", "--", "logs", ""], laptop.env)}
            for name, shell in shells.items():
                takers[name] = lambda shell=shell: shell.tab("gpuctl logs")
                takers[name + ", no gpuctl"] = lambda shell=shell: shell.tab("near")
            for take in takers.values():
                take()
            samples = interleave(ROUNDS, takers)
        finally:
            for shell in shells.values():
                shell.close()
        for name, what in (("words", "gpuctl's answer, one word"),
                           ("all words", "gpuctl's answer, every name that fits")):
            value = samples.median(name)
            emit("P1 completion, 10,000 runs, 1,000 leases: " + what, value, "ms", None, None,
                 "<= %d ms" % BAR_MS, value <= BAR_MS, digits=2, spread=samples.spread(name),
                 rounds=ROUNDS)
        for name in shells:
            value, alone = samples.median(name), samples.median(name + ", no gpuctl")
            emit("P1 completion, 10,000 runs, 1,000 leases: tab in " + name, value, "ms",
                 "a function of the shell with one echo", alone, "<= %d ms" % BAR_MS,
                 value <= BAR_MS, digits=2, spread=samples.spread(name), rounds=ROUNDS)


if __name__ == "__main__":
    main()

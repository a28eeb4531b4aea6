#!/usr/bin/env python3
"""launch, down, reap, resume and listings are killed or stopped at random while the markets have
faults, clocks jump and disks are full. Afterwards nothing of ours bills.

  chaos_market_rounds.py GPUCTL GPUCTL_CLOUDSIM [--seed N] [--rounds N] [--minutes N] [--jobs N]

Three laptops: two share the accounts of all markets, one has others; each account also has machines
of somebody else. The truth comes from the simulator's books, never from gpuctl. When the markets are
honest again, `down --all` and `reap` must leave nothing of ours and touch nothing of others.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from market_world import CODES, PROVIDERS, MarketWorld
from processes import send
from soak import check, options, run

FAULTS = (
    *(("create", fault, {}) for fault in (
        "timeout", "reset_after", "500_after", "torn", "html", "empty", "error_200", "wrong_shape",
        "wrong_types", "429", "503", "out_of_stock", "offer_gone", "no_funds", "boot_fails",
        "boot_never", "refused_but_made", "no_endpoint", "wrong_gpu")),
    ("create", "list_lag", {"lists": 2}),
    ("create", "preempt", {"after_s": 30}),
    *((route, fault, {}) for route in ("list", "describe") for fault in (
        "500", "429", "torn", "html", "wrong_shape", "wrong_types", "empty", "hang", "reset")),
    *(("terminate", fault, {}) for fault in (
        "500", "500_after", "timeout", "reset", "reset_after", "terminate_ignored", "429", "404")),
    ("terminate", "ended_lag", {"lists": 2}),
    ("offers", "500", {}), ("keys", "500", {}), ("keys", "reset_after", {}))
BALLAST = "ballast"


class Round(MarketWorld):
    def __init__(self, this, gpuctl, program):
        self.has_nodes = this.random.random() < 0.2
        super().__init__(this, gpuctl, program, 5 if self.has_nodes else 20, self.has_nodes)
        self.problems = []

    def __exit__(self, *unused):
        if self.small:
            subprocess.run(["umount", "-l", self.state_of(self.small)], check=False)
        super().__exit__(*unused)

    def state_of(self, state):
        return os.path.join(self.root, state, "state")

    # What a laptop does.

    def act(self, seed, state, number):
        """A few verbs, one after the other. `seed`: numbers of its own, as it is a thread."""
        try:
            for turn in range(seed.randrange(1, 5)):
                time.sleep(seed.expovariate(3))
                self.act_once(seed, state, "%s%d%d" % (state, number, turn))
        except Exception as error:
            self.problems.append(error)

    def act_once(self, seed, state, name):
        provider = seed.choice(PROVIDERS)
        verb = seed.choice(("launch", "launch", "launch", "down", "launch", "reap",
                            "instances", "resume", "ps"))
        words = {"launch": self.launch_words(provider, name, *seed.choice(
                     ((), (), ("-d",), ("--fresh",), ("--down",)))),
                 "down": ("down", "--all", "-y"), "reap": ("reap", "-y"),
                 "instances": ("instances", "--json"), "ps": ("ps", "-u"),
                 "resume": ("resume", "@last", "-y")}[verb]
        troubles = []  # (after so many seconds, what)
        if seed.random() < 0.6:
            troubles.append((seed.expovariate(1.5), seed.choice(("kill", "kill", "stop", "term"))))
        # Its user does not wait for ever either: no machine without a node ever lets anybody in.
        troubles.append((20 if self.has_nodes else seed.uniform(2, 10), "term"))
        done = threading.Event()
        killer = threading.Thread(target=self.hurt, args=(words, troubles, done))
        killer.start()
        try:
            self.gpuctl_run(state, *words, codes=(*CODES, 130, -signal.SIGTERM))
        finally:
            done.set()
            killer.join()
        self.round.note(verb)

    def hurt(self, words, troubles, done):
        for after_s, how in troubles:
            if done.wait(after_s):
                return
            with self.lock:
                pids = [pid for pid, args in self.running.items() if args == words]
                for pid in pids:
                    if how == "kill":
                        self.killed.add(pid)
                    self.story_of.add("%s %d" % (how, pid))
                    send(pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP,
                               "term": signal.SIGTERM}[how])
                    self.round.note("%s %s" % (how, words[0]))
            if how == "stop":
                done.wait(1)
                for pid in pids:
                    send(pid, signal.SIGCONT)

    # What happens to the world.

    def trouble(self, seed, done):
        for _ in range(seed.randrange(1, 8)):
            if done.wait(seed.expovariate(2)):
                return
            what = seed.choice(("fault", "fault", "fault", "fault", "clock", "clear", "disk",
                                "preempt"))
            if what == "fault":
                route, fault, more = seed.choice(FAULTS)
                service = seed.choice(PROVIDERS)
                times = seed.choice((1, 1, 3))
                with contextlib.suppress(AssertionError):  # not every market has every fault
                    self.sim.fault(service, route, fault, times=times, **more)
                self.story_of.add("fault %s %s %s, %d times" % (service, route, fault, times))
                self.markets_lie |= fault == "refused_but_made"
            elif what == "clock":
                self.skew_s += seed.choice((-3600, -60, 60, 3600))
                self.story_of.add("the laptops' clocks jump to %+d s" % self.skew_s)
            elif what == "disk" and self.small:
                self.fill(seed.choice((0, 0, 4096, 40000)))
            elif what == "preempt":
                alive = [book for book in self.ours() if book["alive"]]
                if alive:
                    book = seed.choice(alive)
                    with contextlib.suppress(AssertionError):
                        self.sim.change(book["service"], book["id"], seed.choice(("preempt", "fail")))
                        self.story_of.add("%s is taken away" % book["id"])
            elif what == "clear":
                self.sim.clear_faults()
            self.round.note(what)

    def make_small(self, state):
        """Gives the laptop's state a small disk. Takes root."""
        os.makedirs(self.state_of(state))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none",
                               self.state_of(state)], check=False, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            self.small = state

    def fill(self, left):
        """Leaves so many bytes free there."""
        path = os.path.join(self.state_of(self.small), BALLAST)
        with contextlib.suppress(OSError), open(path, "ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with contextlib.suppress(OSError):
            os.truncate(path, max(0, os.path.getsize(path) - left))
        self.story_of.add("the disk of %s has %d bytes left" % (self.small, left))

    def live(self):
        seed = self.random
        if seed.random() < 0.3 and os.geteuid() == 0:
            self.make_small("a")
        if not self.has_nodes and seed.random() < 0.7:
            for service in PROVIDERS:  # each machine is given back, and the next one tried
                self.sim.fault(service, "create", "boot_fails", times=-1)
        numbers = [type(seed)(seed.random()) for _ in range(6)]
        done = threading.Event()
        trouble = threading.Thread(target=self.trouble, args=(numbers[0], done))
        actors = [threading.Thread(target=self.act, args=(numbers[1 + i], state, i))
                  for i, state in enumerate(("a", "a", "b", "c")[:seed.randrange(1, 5)])]
        for each in [trouble, *actors]:
            each.start()
        for each in actors:
            each.join()
        done.set()
        trouble.join()
        if self.problems:
            raise self.problems[0]
        if self.small:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.state_of(self.small), BALLAST))


def one_round(gpuctl, program):
    def go(this):
        with Round(this, gpuctl, program) as world:
            try:
                world.live()
                world.settle()
                check(world.problems == [], world.problems)
            except Exception:
                this.story.add("books: %s" % "\n  ".join(map(str, world.ours())))
                for state in world.states:
                    this.story.add("ledger of %s: %s" % (state, world.ledger(state)))
                if this.keep:
                    shutil.copytree(world.root, os.path.join(this.keep, this.name),
                                    dirs_exist_ok=True)
                raise
    return go


if __name__ == "__main__":
    # Mounts are this process's own, and gone with it.
    if os.geteuid() == 0 and "GPUCTL_SOAK_UNSHARED" not in os.environ and shutil.which("unshare"):
        os.environ["GPUCTL_SOAK_UNSHARED"] = "yes"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    wanted = options(2)
    run("chaos_market", one_round(*wanted.words), wanted)

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
        self.taken = set()  # ids of machines that the market took away

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

    VERBS = ("launch", "launch", "launch", "down", "launch", "reap", "instances", "resume", "ps")

    def words_of(self, seed, verb, name):
        """Returns the command line of a verb."""
        return {"launch": lambda: self.launch_words(seed.choice(PROVIDERS), name, *seed.choice(
                    ((), (), ("-d",), ("--fresh",), ("--down",)))),
                "down": lambda: ("down", "--all", "-y"), "reap": lambda: ("reap", "-y"),
                "instances": lambda: ("instances", "--json"), "ps": lambda: ("ps", "-u"),
                "resume": lambda: ("resume", "@last", "-y")}[verb]()

    def act_once(self, seed, state, name):
        verb = seed.choice(self.VERBS)
        words = self.words_of(seed, verb, name)
        troubles = []  # (after so many seconds, what)
        if seed.random() < 0.6:
            troubles.append((seed.expovariate(1.5), seed.choice(("kill", "kill", "stop", "term"))))
        # Its user does not wait for ever either: no machine without a node ever lets anybody in.
        troubles.append((20 if self.has_nodes else seed.uniform(2, 10), "term"))
        done = threading.Event()
        killer = threading.Thread(target=self.hurt, args=(words, troubles, done))
        killer.start()
        try:
            self.gpuctl_run(state, *words, codes=(*CODES, 130, 143, -signal.SIGTERM))
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

    # What happens to the world: a word for the summary, how often, and the method.

    TROUBLES = (("fault", 4, "have_fault"), ("clock", 1, "jump_clock"), ("clear", 1, "clear"),
                ("disk", 1, "fill_disk"), ("preempt", 1, "take_away"))
    SKEWS_S = (-3600, -60, 60, 3600)

    def trouble(self, seed, done):
        for _ in range(seed.randrange(1, 8)):
            if done.wait(seed.expovariate(2)):
                return
            what, _, method = seed.choices(
                self.TROUBLES, weights=[weight for _, weight, _ in self.TROUBLES])[0]
            getattr(self, method)(seed)
            self.round.note(what)

    def have_fault(self, seed):
        route, fault, more = seed.choice(FAULTS)
        service = seed.choice(PROVIDERS)
        times = seed.choice((1, 1, 3))
        with contextlib.suppress(AssertionError):  # not every market has every fault
            self.sim.fault(service, route, fault, times=times, **more)
        self.story_of.add("fault %s %s %s, %d times" % (service, route, fault, times))
        self.markets_lie |= fault == "refused_but_made"

    def jump_clock(self, seed):
        self.skew_s += seed.choice(self.SKEWS_S)
        self.story_of.add("the laptops' clocks jump to %+d s" % self.skew_s)

    def clear(self, _):
        self.sim.clear_faults()

    def fill_disk(self, seed):
        if self.small:
            self.fill(seed.choice((0, 0, 4096, 40000)))

    def take_away(self, seed):
        alive = [book for book in self.ours() if book["phase"] in ("booting", "running")]
        if alive:
            book = seed.choice(alive)
            with contextlib.suppress(AssertionError):
                self.taken.add(book["id"])
                self.sim.change(book["service"], book["id"], seed.choice(("preempt", "fail")))
                self.story_of.add("%s is taken away" % book["id"])

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

    def before_storm(self):
        """For other rounds."""

    ACTORS = ("a", "a", "b", "c")

    def storm(self):
        seed = self.random
        if seed.random() < 0.3 and os.geteuid() == 0:
            self.make_small("a")
        if not self.has_nodes and seed.random() < 0.7:
            for service in PROVIDERS:  # each machine is given back, and the next one tried
                self.sim.fault(service, "create", "boot_fails", times=-1)
        self.before_storm()
        numbers = [type(seed)(seed.random()) for _ in range(8)]
        done = threading.Event()
        trouble = threading.Thread(target=self.trouble, args=(numbers[0], done))
        actors = [threading.Thread(target=self.act, args=(numbers[1 + i], state, i))
                  for i, state in enumerate(self.ACTORS[:seed.randrange(1, 1 + len(self.ACTORS))])]
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


def one_round(gpuctl, program, kind=Round):
    def go(this):
        with kind(this, gpuctl, program) as world:
            try:
                world.storm()
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


def own_mounts():
    """Makes the mounts of this process its own, and gone with it."""
    if os.geteuid() == 0 and "GPUCTL_SOAK_UNSHARED" not in os.environ and shutil.which("unshare"):
        os.environ["GPUCTL_SOAK_UNSHARED"] = "yes"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])


if __name__ == "__main__":
    own_mounts()
    wanted = options(2)
    run("chaos_market", one_round(*wanted.words), wanted)

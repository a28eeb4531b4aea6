#!/usr/bin/env python3
"""The rounds of chaos_market_rounds.py, and worse: ledgers are deleted, restored and copied, keys are
those of other accounts, clocks are wrong by a year, markets lie, machines fall silent. Some laptops
have a run that nobody may end.

  books_rounds.py GPUCTL GPUCTL_CLOUDSIM [--seed N] [--rounds N] [--minutes N] [--jobs N]

The truth comes from the simulator's books and from the jobs' processes. Expected:
  no bill is unknown: when the markets are honest again, each laptop can name and end all of its own;
  no live run is ended but by the down that names it;
  nothing of others is touched;
  each sentence of instances, reap and down is true (sentences.py).
"""
import contextlib
import json
import os
import re
import shutil
import sqlite3
import threading

import chaos_market_rounds
from chaos_market_rounds import one_round, own_mounts
from hostile_market_rounds import CHANCES, Liar
from market_world import CODES, PROVIDERS, SECOND_KEY
from sentences import Sentences
from simulator import KEYS
from soak import check, eventually, options, run

YEAR_S = 400 * 86400
COPY = "d"  # a laptop that has a copy of another one's state


class LiveRun:
    """A run that was launched and detached from. `token`: a word of its command line."""

    def __init__(self, state, name, token, instance_id):
        self.state, self.name, self.token, self.instance_id = state, name, token, instance_id


class Round(chaos_market_rounds.Round):
    TROUBLES = (*chaos_market_rounds.Round.TROUBLES, ("lose ledger", 1, "lose_ledger"),
                ("restore ledger", 1, "restore_ledger"), ("copy state", 1, "copy_state"),
                ("back up", 1, "back_up"), ("other key", 2, "use_other_key"), ("lie", 2, "lie"),
                ("silence", 1, "fall_silent"), ("price", 1, "raise_price"))
    SKEWS_S = (-YEAR_S, -3600, -60, 60, 3600, YEAR_S)
    ACTORS = ("a", "b", "c", COPY)
    VERBS = ("launch", "launch", "launch", "reap", "reap", "instances", "ps", "keep")

    def __init__(self, this, gpuctl, program):
        self.keys = {}  # laptop -> the account that it uses now, where that is not its own
        self.harmed = set()  # laptops whose ledger was lost, restored or is a copy
        self.lives = []
        self.backups = 0
        self.stepped_s = 0  # the largest difference between two clocks that were believed
        super().__init__(this, gpuctl, program)
        self.states = ("a", "b", "c", COPY)

    def environment(self, state="a", **more):
        env = super().environment(state, **more)
        for service in PROVIDERS:
            env["GPUCTL_%s_API_KEY" % service.upper()] = {
                "first": KEYS[service], "second": SECOND_KEY, "none": "no-such-key"}[
                    self.account_of(state)]
        return env

    def account_of(self, state):
        return self.keys.get(state) or ("second" if state == "c" else "first")

    def words_of(self, seed, verb, name):
        if verb == "keep":
            return ("keep",)
        return super().words_of(seed, verb, name)

    # Runs that nobody may end.

    def begin_run(self, state, number):
        """Launches a run that lasts, with honest markets, and detaches from it."""
        provider = self.random.choice(PROVIDERS)
        name, token = "live%d" % number, "1%05d%04d" % (os.getpid() % 100000, self.random.randrange(10000))
        words = self.launch_words(provider, name, "-d", "--fresh")[:-1] + ("sleep", token)
        code, _, err = self.gpuctl_run(state, *words)
        check(code == 0, "no run could begin: %d: %s" % (code, err[-2000:]))
        eventually(lambda: self.job_runs(token), "the job of %s runs" % name)
        lease = next(lease for lease in self.ledger(state)
                     if lease["state"] == "rented" and
                     lease["instance_id"] not in {live.instance_id for live in self.lives})
        self.lives.append(LiveRun(state, name + "-1", token, lease["instance_id"]))
        self.round.note("live runs")

    def job_runs(self, token):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open("/proc/%s/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
                if words[:2] == [b"sleep", token.encode()]:
                    return True
        return False

    def untaken(self):
        return [live for live in self.lives if live.instance_id not in self.taken]

    def check_lives(self, when):
        books = {book["id"]: book for book in self.all_books()}
        for live in self.untaken():
            book = books[live.instance_id]
            check(book["alive"] and book["phase"] == "running" and self.job_runs(live.token),
                  "the live run %s of %s was ended %s: %s" % (live.name, live.state, when, book))

    # Worse things than those of chaos_market_rounds.

    def state_dirs(self):
        return [state for state in self.states if os.path.isdir(self.state_of(state))]

    def lose_ledger(self, seed):
        for state in seed.sample(self.state_dirs(), min(1, len(self.state_dirs()))):
            self.harmed.add(state)
            all_of_it = seed.random() < 0.3
            for name in os.listdir(self.state_of(state)):
                path = os.path.join(self.state_of(state), name)
                if name.startswith("ledger.db") or (all_of_it and re.match(r"(state\.db|runs$)", name)):
                    with contextlib.suppress(OSError):
                        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            self.story_of.add("%s loses its %s" % (state, "state" if all_of_it else "ledger"))

    @staticmethod
    def copy_databases(source, target):
        """Copies the ledger and the list of runs as a backup program with snapshots does."""
        os.makedirs(target, exist_ok=True)
        for name in ("ledger.db", "state.db"):
            path = os.path.join(source, name)
            if not os.path.exists(path):
                continue
            with contextlib.closing(sqlite3.connect(path)) as old:
                for ending in ("", "-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(target, name + ending))
                with contextlib.closing(sqlite3.connect(os.path.join(target, name))) as new:
                    old.backup(new)

    def back_up(self, seed):
        for state in self.state_dirs():
            with contextlib.suppress(sqlite3.Error, OSError):
                self.copy_databases(self.state_of(state), os.path.join(
                    self.root, "backup-%d" % self.backups, state))
        self.backups += 1

    def restore_ledger(self, seed):
        if self.backups == 0:
            return
        number = seed.randrange(self.backups)
        where = os.path.join(self.root, "backup-%d" % number)
        for state in sorted(os.listdir(where) if os.path.isdir(where) else ()):
            if not os.path.exists(os.path.join(where, state, "ledger.db")) or seed.random() < 0.5:
                continue
            self.harmed.add(state)
            with contextlib.suppress(sqlite3.Error, OSError):
                self.copy_databases(os.path.join(where, state), self.state_of(state))
            self.story_of.add("%s gets back its state of backup %d" % (state, number))

    def copy_state(self, seed):
        sources = [state for state in self.state_dirs() if state in ("a", "b")]
        if not sources or os.path.exists(self.state_of(COPY)):
            return
        source = seed.choice(sources)
        self.harmed.add(COPY)
        with contextlib.suppress(sqlite3.Error, OSError, shutil.Error):
            # The ssh keys of gpuctl, and the rest, come along.
            shutil.copytree(os.path.join(self.root, source), os.path.join(self.root, COPY),
                            symlinks=True, dirs_exist_ok=True,
                            ignore=lambda folder, names: [
                                name for name in names if name.endswith(("-wal", "-shm", ".sock")) or
                                name == chaos_market_rounds.BALLAST])
            self.copy_databases(self.state_of(source), self.state_of(COPY))
        self.story_of.add("%s is a copy of %s" % (COPY, source))

    def jump_clock(self, seed):
        super().jump_clock(seed)
        if abs(self.skew_s) <= 600:
            self.stepped_s = max(self.stepped_s, 2 * abs(self.skew_s))

    def use_other_key(self, seed):
        state = seed.choice(("a", "b", "c"))
        self.keys[state] = seed.choice((None, None, "first", "second", "none"))
        self.story_of.add("%s has the key of the account %s" % (state, self.account_of(state)))

    def lie(self, seed):
        with Liar(self.sim, seed.random(), seed.choice(CHANCES), self.story_of) as liar:
            self.markets_lie, self.base = True, liar.url
            self.done.wait(seed.uniform(0.5, 3))
            self.base = None
            # A verb that began while the market lied asks it until its end.
            self.wait_for_verbs()

    def wait_for_verbs(self):
        with self.lock:
            running = set(self.running)
        eventually(lambda: not running & set(self.running), "the verbs end", 150)

    def fall_silent(self, seed):
        alive = [book for book in self.ours() if book["alive"] and book["service"] != "runpod"]
        if alive:
            book = seed.choice(alive)
            what = seed.choice(("offline", "online"))
            with contextlib.suppress(AssertionError):
                self.sim.change(book["service"], book["id"], what)
            self.story_of.add("%s is %s" % (book["id"], what))

    def raise_price(self, seed):
        alive = [book for book in self.ours() if book["alive"] and book["service"] == "vast"]
        if alive:
            book = seed.choice(alive)
            with contextlib.suppress(AssertionError):
                self.sim.change("vast", book["id"], "price", factor=1.5)

    def trouble(self, seed, done):
        self.done = done
        try:
            super().trouble(seed, done)
        except Exception as error:
            self.problems.append(error)

    def before_storm(self):
        if self.has_nodes:
            for number in range(self.random.randrange(1, 3)):
                self.begin_run(self.random.choice(("a", "b", "c")), number)
            self.back_up(self.random)

    def storm(self):
        super().storm()
        self.check_lives("in the storm")

    # The end of a round.

    def settle(self):
        self.sim.clear_faults()
        self.skew_s, self.base, self.keys = 0, None, {}
        for book in self.ours():
            if book["alive"] and book["service"] != "runpod":
                with contextlib.suppress(AssertionError):
                    self.sim.change(book["service"], book["id"], "online")
        eventually(lambda: all(r["status"] or r["fault"] for r in self.sim.requests()),
                   "the requests end", 60)
        for state in self.state_dirs():
            self.speak(state, "reap", "-y")
            self.check_lives("by reap of " + state)
            self.check_known_lives(state)
        for live in self.untaken():
            self.end_run(live)
        self.lives = []
        for state in self.state_dirs():
            self.end_of_laptop(state)
        for book in self.all_books():
            others = book["id"] in {one for ids in self.foreign.values() for one in ids}
            check(book["alive"] == others, "%s: %s" % (
                "it was ended" if others else "it bills on", book))
        self.round.note("machines", len(self.ours()))

    def speak(self, state, *words):
        """Runs a verb alone, and checks each of its sentences against the books."""
        before = self.sim.books()
        code, out, err = self.gpuctl_run(state, *words)
        Sentences(self, state, before, self.sim.books()).check(words, code, out, err)
        return code, out, err

    def check_known_lives(self, state):
        """Expects that its laptop knows each live run, and calls none a leak."""
        _, out, _ = self.gpuctl_run(state, "instances", "--json")
        shown = {i["instance_id"]: i for i in json.loads(out)["instances"]}
        for live in self.untaken():
            if live.state != state:
                continue
            check(live.instance_id in shown and
                  shown[live.instance_id]["whose"] in ("ours", "lost"),
                  "instances of %s about %s: %s" % (state, live.instance_id,
                                                    shown.get(live.instance_id)))

    def end_run(self, live):
        (book,) = [book for book in self.ours() if book["id"] == live.instance_id]
        code, _, err = self.gpuctl_run(live.state, "down", "--force", "-y",
                                       "%s/%s" % (book["service"], book["id"]))
        check(code == 0, "down of %s: %d: %s" % (live.name, code, err))

    def end_of_laptop(self, state):
        """Ends everything that the laptop may have rented, in both accounts."""
        for account in ("first", "second") if state == "c" else ("second", "first"):
            self.keys[state] = account
            for words in (("reap", "-y"), ("down", "--all", "--force", "-y"), ("reap", "-y"),
                          ("instances",)):
                for _ in range(6):  # on a busy machine an answer may take longer than this clock allows
                    code, out, err = self.speak(state, *words)
                    if code not in (122, 124):
                        break
            code, out, err = self.gpuctl_run(state, "instances", "--json")
            shown = json.loads(out)
            alive = {book["id"] for book in self.all_books()
                     if book["alive"] and (book["account"] == SECOND_KEY) == (account == "second")}
            shown_ids = {i["instance_id"] for i in shown["instances"]}
            check(shown_ids == alive, "instances of %s with %s: %s, alive: %s" % (
                state, account, shown, alive))
            for seen in shown["instances"]:
                mine = seen["whose"] in ("ours", "launching", "leak")
                check(not mine, "%s of %s is left: %s" % (seen["instance_id"], state, shown))
                # What a lost ledger left, and no node explains, is named and can be ended.
                orphan = seen["whose"] == "lost" or (
                    seen["whose"] == "other-owner" and state in self.harmed and
                    seen["label"] not in self.labels_of_others(state))
                if orphan:
                    self.speak(state, "down", "--force", "-y", "%s/%s" % (
                        seen["provider"], seen["instance_id"]))

    def labels_of_others(self, state):
        foreign = {"gpuctl-deadbeef-0123456789ab"}
        return foreign.union(lease["label"] for other in self.states if other != state
                             for lease in self.ledger(other))


if __name__ == "__main__":
    own_mounts()
    wanted = options(2)
    run("books", one_round(*wanted.words, kind=Round), wanted)

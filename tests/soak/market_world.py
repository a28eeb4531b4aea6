"""Several laptops, three simulated markets and a fast clock for the soak rounds with money."""
import json
import os
import sqlite3
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "cloudsim"), os.path.join(HERE, "..", "fault")]
from rent_cells import GPU, PROVIDERS, Cell  # noqa: E402
from simulator import KEYS, runpod_body  # noqa: E402
from soak import check, eventually  # noqa: E402

SECOND_KEY = "sim-second-key"
SOON_MS = 60_000  # by the markets' clock
# The exit codes with which a verb that talks to a market may end. Never 70, never a signal.
CODES = (0, 1, 2, 117, 119, 120, 121, 122, 123, 124, 125)


def start_options():
    return [word for service in PROVIDERS
            for word in ("--account", "%s:%s:100" % (service, SECOND_KEY))]


class MarketWorld(Cell):
    """Laptops "a" and "b" share the accounts of all markets; "c" has others."""

    markets_lie = False  # True where a market may refuse a machine and make it

    def __init__(self, this, gpuctl, program, speed, nodes=False):
        super().__init__(gpuctl, program, PROVIDERS[0], speed, nodes, start_options())
        self.round, self.random, self.story_of = this, this.random, this.story
        self.lock = threading.Lock()
        self.running = {}  # pid -> words
        self.killed = set()
        self.small = None  # the laptop whose disk is small
        self.states = ("a", "b", "c")
        self.skew_s = 0  # how much later a laptop's wall clock is than the markets'
        self.base = None  # of the markets' addresses, where a proxy stands between
        self.foreign = {service: self.rent_foreign(service) for service in PROVIDERS}

    def environment(self, state="a", **more):
        env = super().environment(state, **more)
        speed, now_ms, boot_ms = self.clock.split("@")
        env["GPUCTL_TEST_CLOCK"] = "%s@%d@%s" % (speed, int(now_ms) + 1000 * self.skew_s, boot_ms)
        for service in PROVIDERS:
            env["GPUCTL_%s_URL" % service.upper()] = "%s/%s" % (self.base or self.sim.url, service)
            env["GPUCTL_%s_API_KEY" % service.upper()] = (
                SECOND_KEY if state == "c" else KEYS[service])
        return env

    def gpuctl_run(self, state, *args, timeout=300, codes=CODES, **more):
        """Runs a verb. Returns its exit code, stdout and stderr; the code is -9 when it was
        killed here."""
        with self.lock:
            child = subprocess.Popen(
                [self.gpuctl, *args], env=self.environment(state, **more), cwd=self.root,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace")
            self.running[child.pid] = args
        self.story_of.add("%d %s$ gpuctl %s" % (child.pid, state, " ".join(args)))
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            self.story_of.add("%d hangs: %s" % (child.pid, err[-1500:]))
            check(False, "gpuctl %s does not end in %d s: %s" % (args, timeout, err[-1500:]))
        finally:
            with self.lock:
                self.running.pop(child.pid, None)
        self.story_of.add("%d %s: %d %s" % (child.pid, state, child.returncode, err[-700:]))
        check(child.returncode == -9 and child.pid in self.killed or child.returncode in codes,
              "gpuctl %s: exit %d\n%s\n%s" % (args, child.returncode, out[-1000:], err[-3000:]))
        return child.returncode, out, err

    def launch_words(self, provider, name, *more):
        return ("launch", "-y", "--provider", provider, "--gpu", GPU[provider], "--name", name,
                "--no-workdir", *more, "--", "true")

    # What others have.

    def rent_foreign(self, service):
        """Rents an instance of another gpuctl and one of nobody's gpuctl. Returns their ids."""
        sim, ids = self.sim, []
        for number, name in enumerate(("gpuctl-deadbeef-0123456789ab", "somebody-else")):
            if service == "runpod":
                ids.append(sim.call("runpod", "POST", "/v2/pods", runpod_body(name=name)).json["id"])
            elif service == "lambda":
                sim.call("lambda", "POST", "/api/v1/ssh-keys",
                         {"name": "k", "public_key": "ssh-x y"})
                ids.append(sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
                    "region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
                    "ssh_key_names": ["k"], "name": name}).json["data"]["instance_ids"][0])
            else:
                ids.append(str(sim.call(
                    "vast", "PUT", "/api/v0/asks/%d/" % (9100004 + number),
                    {"image": "i", "disk": 20, "label": name}).json["new_contract"]))
        return ids

    def all_books(self):
        return self.sim.books()["instances"]

    def ours(self):
        foreign = {one for ids in self.foreign.values() for one in ids}
        return [book for book in self.all_books() if book["id"] not in foreign]

    # The end of a round.

    def settle(self):
        """Ends and reaps everything, with honest markets. Expects the truth in the ledgers."""
        self.sim.clear_faults()
        # Requests of killed clients may still be at work.
        eventually(lambda: all(r["status"] or r["fault"] for r in self.sim.requests()),
                   "the requests end", 60)
        for state in self.states:
            if os.path.exists(os.path.join(self.root, state, "state", "ledger.db")):
                self.end_all(state)
        self.check_end()

    def end_all(self, state):
        for words in (("reap", "-y"), ("down", "--all", "-y"), ("reap", "-y"),
                      ("instances", "--json")):
            for _ in range(6):  # on a busy machine an answer may take longer than this clock allows
                code, out, err = self.gpuctl_run(state, *words)
                if code not in (122, 124):
                    break
            check(code == 0, "%s of %s: %d: %s" % (words[0], state, code, err))
        shown = json.loads(out)
        mine = [i for i in shown["instances"] if i["whose"] in ("ours", "launching", "leak")]
        check(not (mine or shown["unsettled"] or shown["unknown"]), "instances of %s: %s" % (
            state, shown))
        alive = {book["id"] for book in self.all_books()
                 if book["alive"] and (book["account"] == SECOND_KEY) == (state == "c")}
        check({i["instance_id"] for i in shown["instances"]} == alive,
              "instances of %s: %s, alive: %s" % (state, shown, alive))

    def owner(self, state):
        """Returns the owner id of the laptop's ledger; "" where there is none."""
        path = os.path.join(self.root, state, "state", "ledger.db")
        if not os.path.exists(path):
            return ""
        database = sqlite3.connect(path)
        try:
            row = database.execute("SELECT value FROM meta WHERE key = 'owner'").fetchone()
            return row[0] if row else ""
        finally:
            database.close()

    def ledger(self, state):
        path = os.path.join(self.root, state, "state", "ledger.db")
        if not os.path.exists(path):
            return []
        database = sqlite3.connect(path)
        database.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in database.execute("SELECT * FROM leases")]
        finally:
            database.close()

    def check_end(self):
        """Expects that nothing of ours bills, that those of others do, that nothing was rented
        twice, and that ledgers and books agree."""
        foreign = {one for ids in self.foreign.values() for one in ids}
        leases = {lease["label"]: (state, lease) for state in self.states
                  for lease in self.ledger(state)}
        labels = {}
        for book in self.all_books():
            if book["id"] in foreign:
                check(book["alive"], "%s of somebody else was ended by %s" % (
                    book["id"], book["ended_by"]))
                continue
            check(not book["alive"], "%s bills on" % book["id"])
            check(book["label"] not in labels, "%s was rented twice: %s and %s" % (
                book["label"], book["id"], labels.get(book["label"])))
            labels[book["label"]] = book["id"]
            check(book["label"] in leases, "no ledger knows %s" % book["label"])
            state, lease = leases[book["label"]]
            check((book["account"] == SECOND_KEY) == (state == "c"), "the wrong account: %s" % book)
            # Where the disk is full, and where a market refuses and makes a machine nevertheless,
            # it must be ended at once.
            at_once = (lease["state"] == "not_created" and
                       (state == self.small or self.markets_lie) and
                       book["ended_by"] == book["account"] and
                       book["ended_ms"] - book["created_ms"] < SOON_MS)
            # A market that takes a machine away lists it no more: a gpuctl that was killed before it
            # heard of it cannot know that it ever was.
            unseen = (lease["state"] == "not_created" and
                      book["ended_by"].startswith("simulator"))
            check(lease["state"] == "released" or at_once or unseen, "%s: %s, but it was made" % (
                book["id"], lease["state"]))
        for label, (state, lease) in leases.items():
            check(lease["state"] in ("released", "not_created"), "%s: %s" % (label, lease))
            check(lease["state"] != "released" or label in labels, "%s never was: %s" % (
                label, lease))
        self.round.note("leases", len(leases))
        self.round.note("machines", len(labels))

    def check_known(self, state, out):
        """Expects every live machine of ours in the answer of `instances`, or doubt about it."""
        instances = json.loads(out)
        shown = {i["instance_id"] for i in instances["instances"]}
        doubtful = {lease["label"] for lease in instances["unsettled"]}
        unknown = {market["provider"] for market in instances["unknown"]}
        return [book["id"] for book in self.ours()
                if book["alive"] and (book["account"] == SECOND_KEY) == (state == "c") and
                not (book["id"] in shown or book["label"] in doubtful or
                     book["service"] in unknown)]

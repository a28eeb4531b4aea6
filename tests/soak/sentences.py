"""What instances, reap and down say of money, held against the simulator's books.

Each line that such a verb prints must be a known sentence, and must be true. A new sentence needs
its row here.
"""
import re

from soak import check

SECOND_KEY = "sim-second-key"
ID, LABEL, MARKET, USD = r"(?P<id>[\w-]+)", r"(?P<label>gpuctl-[0-9a-f]{8}-[0-9a-f]{12})", \
    r"(?P<market>runpod|lambda|vast)", r"(?P<below><)?\$(?P<low>[\d.]+)(?:-(?P<high>[\d.]+))?"
RATE = r"(?:\$(?P<rate>[\d.]+)|\?)/h"
NAME = r"(?P<market>runpod|lambda|vast)/(?P<id>[\w-]+)"
UNFINISHED = "its release was not finished"
CENTS = 0.006  # what two digits after the point hide


class Sentences:
    """The books before and after a verb that ran alone, on the laptop `state`."""

    def __init__(self, world, state, before, after):
        self.world, self.state = world, state
        self.before, self.after = self.by_id(before), self.by_id(after)
        self.second = world.account_of(state) == "second"
        self.words, self.code, self.text = (), None, ""

    @staticmethod
    def by_id(books):
        return {book["id"]: book for book in books["instances"]}

    def check(self, words, code, out, err):
        self.words, self.code, self.text = words, code, "%s\n%s" % (out, err)
        for line in filter(None, err.split("\n")):
            for pattern, truth in self.RULES:
                match = re.fullmatch(pattern, line.removeprefix("gpuctl: "))
                if match:
                    truth(self, match)
                    break
            else:
                self.fail("an unknown sentence", line)
        if words[0] == "instances":
            self.check_table(out)
        if code == 117:
            self.expect(self.alive(self.after), "117, and nothing bills", "")

    def fail(self, why, line):
        check(False, "%s, of %s on %s: %r\n%s" % (why, " ".join(self.words), self.state, line,
                                                 self.text[-3000:]))

    def expect(self, condition, why, match):
        if not condition:
            self.fail(why, match.group(0) if match else "")

    # What the books say.

    def mine(self, book):
        """True for a machine of an account that the laptop's keys of now belong to."""
        return (book["account"] == SECOND_KEY) == self.second

    def alive(self, books):
        return [book for book in books.values() if book["alive"] and self.mine(book)]

    @staticmethod
    def rate(book):
        return sum(charge["usd_per_hour"] for charge in book["charges"] if not charge["to_ms"])

    def book(self, match):
        book = self.after.get(match["id"])
        self.expect(book is not None, "no such machine ever was", match)
        if "market" in match.re.groupindex:
            self.expect(book["service"] == match["market"], "another market's", match)
        return book

    # The truth of each sentence.

    def is_ended(self, match):
        book = self.book(match)
        self.expect(not book["alive"], "it is alive", match)
        # An earlier verb may have been killed after its request for the end.
        if match.groupdict().get("why", UNFINISHED) != UNFINISHED:
            self.expect(self.before[book["id"]]["alive"], "it had ended before", match)
        if "low" in match.re.groupindex and match["low"]:
            low, high = float(match["low"]), float(match["high"] or match["low"])
            if match["below"]:  # less than a cent
                low = 0
            # A laptop's clock that steps, and is not wrong enough to be distrusted, moves the ends.
            slack = CENTS + self.world.stepped_s / 3600 * max(
                charge["usd_per_hour"] for charge in book["charges"]) * 2
            self.expect(low - slack <= book["billed_usd"] <= high + slack,
                        "it cost %f" % book["billed_usd"], match)

    def is_alive(self, match):
        self.expect(self.before[self.book(match)["id"]]["alive"], "it had ended", match)
        self.has_rate(match)

    def has_rate(self, match):
        if "rate" in match.re.groupindex and match["rate"]:
            rate = self.rate(self.before[match["id"]])
            self.expect(abs(rate - float(match["rate"])) < CENTS, "it costs %f/h" % rate, match)

    def ended_outside(self, match):
        # A market that lies may have answered a request with a name that no machine ever had.
        if match["name"] not in self.after:
            self.never_was(match)
            return
        book = self.after[match["name"]]
        self.expect(not book["alive"], "it is alive", match)
        self.expect(book["service"] == match["market"], "another market's", match)

    def never_was(self, match):
        lies = [lease["label"] for lease in self.world.ledger(self.state)
                if lease["instance_id"] and lease["instance_id"] not in self.after]
        self.expect(lies, "no such machine ever was, and no market said so", match)
        alive = [b for b in self.after.values() if b["label"] in lies and b["alive"]]
        self.expect(not alive, "what was rented for it is there: %s" % alive, match)

    def never_there(self, match):
        alive = [b for b in self.after.values() if b["label"] == match["label"] and b["alive"]]
        self.expect(not alive, "it is there: %s" % alive, match)

    def of_another_account(self, match):
        name = match["name"]
        for book in self.after.values():
            if name in (book["id"], book["label"]):
                self.expect(not self.mine(book) or not book["alive"], "this key does show it", match)

    def of_that_account(self, match):
        for book in self.after.values():
            if match["name"] in (book["id"], book["label"]):
                self.expect(not self.mine(book) or not book["alive"], "this key shows it", match)

    def no_leak(self, match):
        for book in self.alive(self.after):
            owner = book["label"].split("-")[1] if book["label"].startswith("gpuctl-") else ""
            for lease in self.world.ledger(self.state):
                if lease["label"] == book["label"] and owner == self.owner():
                    self.expect(lease["state"] == "rented" and lease["claimed_ms"],
                                "a leak: %s, %s" % (book["id"], lease), match)

    def owner(self):
        return self.world.owner(self.state)

    def nothing_bills(self, match):
        self.expect(not self.alive(self.after), "these bill: %s" % self.alive(self.after), match)

    def nothing_of_ours(self, match):
        owner = self.owner()
        mine = [b for b in self.alive(self.after) if owner and b["label"].startswith(
            "gpuctl-%s-" % owner)]
        self.expect(not mine, "these bill: %s" % mine, match)

    def nothing_in_ledger(self, match):
        open_leases = [lease for lease in self.world.ledger(self.state)
                       if lease["state"] in ("rented", "releasing")]
        self.expect(not open_leases, "these are open: %s" % open_leases, match)

    def price_went(self, match):
        book = self.book(match)
        self.expect(abs(self.rate(book) - float(match["to"])) < CENTS or not book["alive"],
                    "it costs %f/h" % self.rate(book), match)

    def is_in_trouble(self, match):
        book = self.before[self.book(match)["id"]]
        self.expect(book["alive"], "it had ended", match)
        self.expect(book["phase"] != "running", "it runs", match)

    def is_lost(self, match):
        self.is_alive(match)

    def is_of_a_machine(self, match):
        self.book(match)

    def is_so(self, _):
        """It says nothing of money that the books could tell."""

    def is_no_success(self, match):
        self.expect(self.code != 0, "and it exits with 0", match)

    RULES = (
        (ID + " at " + MARKET + ", " + RATE + r": (?P<why>.*): ended(?:; it cost " + USD + ")?", is_ended),
        (ID + " at " + MARKET + r" is gone; it cost " + USD + " in .*", is_ended),
        (NAME + " is gone; the ledger does not know what it cost", is_ended),
        (ID + " at " + MARKET + ", " + RATE + r": .*: NOT ended: .*", is_alive),
        ("(?P<name>.*) at " + MARKET + " ended by itself or by somebody else's hand", ended_outside),
        ("(?P<name>.*) at " + MARKET + " is gone: nothing ran on it for longer than its idle limit",
         ended_outside),
        (ID + " at " + MARKET + " is in the ledger again: .*", is_alive),
        ("the machine asked for as " + LABEL + " at " + MARKET +
         " is not there: it was never created, or ended before gpuctl saw it", never_there),
        ("leak: " + ID + " at " + MARKET + ", " + RATE + ": .*", is_alive),
        ("UNKNOWN: " + ID + " at " + MARKET + ", " + RATE + ": .*; gpuctl down .* ends it", is_lost),
        ("it is not known what is rented at " + MARKET + r": (?P<name>\S+) was rented with another key of \w+, .*",
         of_another_account),
        (r"(?P<name>\S+) was rented with another key of \w+, .*", of_another_account),
        (r"(?P<name>\S+) may bill there, " + r"(?:\$[\d.]+|\?)/h", of_that_account),
        ("the price of " + ID + " at " + MARKET + r" went from \S+ to \$(?P<to>[\d.]+)/h", price_went),
        (NAME + r" of .* is .*, seen .* ago for the first time, and bills, .*", is_in_trouble),
        (MARKET + " does not know " + ID + " yet, which is new; asking for its end again for up to .*",
         is_of_a_machine),
        (ID + " at " + MARKET + " was rented .* ago and is not listed yet; it bills, " + RATE +
         "(?:; reap again in two minutes)?", is_alive),
        (ID + " at " + MARKET + " was in use and is not listed any more: .*", is_so),
        (ID + " stays, and bills on, " + RATE + ": not at home: .*", is_alive),
        ("something was asked for as " + LABEL + " at .*", is_so),
        ("no leaks", no_leak),
        ("(?:nothing|no machine) bills at .*", nothing_bills),
        ("nothing of this gpuctl bills at .*", nothing_of_ours),
        ("the ledger knows nothing that is rented", nothing_in_ledger),
        ("nothing is rented, by the ledger.*", nothing_in_ledger),
        ("what bills is over for the ledger: gpuctl reap ends it", nothing_in_ledger),
        ("nothing is rented for that.*", is_so),
        (ID + " at " + MARKET + " is there after all, with .*: the ledger knows it again", is_alive),
        ("what was asked for last may not be listed yet: looking again for two minutes", is_so),
        (r"the ledger: .*; it was set aside as .*", is_so),
        (NAME + ", " + RATE + ": it is UNKNOWN whether its job runs, .*", is_alive),
        (r"only \d+ MiB are free on this disk; .*", is_so),
        (r"first contact with " + NAME + ": its host key is .*", is_so),
        (r"HINT: .*", is_so),
        ("nothing was ended|this is so, but could not be written down: .*", is_so),
        ("volumes at " + MARKET + ": UNKNOWN: .*", is_so),
        ("registry logins that " + MARKET + " keeps were not removed: .*; gpuctl reap tries again", is_so),
        # Of jobs and results, which the books do not have.
        (r"reach \S+: the machine was given back .*", is_so),
        (r"reach \S+: connect to \S+ port \d+: .*", is_no_success),
        (r"[\w-]+ is over, and " + NAME + " stays: .* uses it now; .*", is_alive),
        (r"[\w-]+ could not be stopped first: .*", is_so),
        (r"Its results are at home\.|Complete checkpoints are at home; all else is lost, also .*", is_so),
        (r"Not at home, and lost then: .*|Results that were not pulled are lost then.*", is_so),
        (r"it is not known whether .*", is_so),
        (r"[\w/-]+ could not be told that .*", is_so),
        (r"[\w-]+ never started: its launch ended before the node had accepted it", is_so),
        (r"[\w-]+ (?:is over|lost|exited|was stopped|was taken for lost|finished|failed|ended|stopped).*",
         is_so),
        (r"not at home, and lost with the machine: .*", is_so),
    )

    def check_table(self, out):
        """Expects a row for each machine of the account that bills, and for no other."""
        ids = {book["id"] for book in self.alive(self.after)}
        head, *rows = [line for line in out.split("\n\n")[0].split("\n") if line]
        self.expect(head.startswith("PROVIDER"), "no table", None)
        shown = {row.split()[1]: row for row in rows}
        self.expect(set(shown) == ids, "instances shows %s, and %s bill" % (set(shown), ids), None)
        for instance_id, row in shown.items():
            book = self.after[instance_id]
            self.expect(row.split()[0] == book["service"], "another market: " + row, None)
            ours = book["label"].startswith("gpuctl-%s-" % self.owner())
            others = row.rstrip().endswith(("other-owner", "not-gpuctl")) or "other-owner:" in row
            self.expect(ours != others, "whose it is: %s, %s" % (row, book["label"]), None)
            prices = re.findall(r"\$(\d+\.\d+)", row)
            if prices:
                rate = self.rate(book)
                self.expect(abs(float(prices[0]) - rate) < CENTS, "%s costs %f/h: %s" % (
                    instance_id, rate, row), None)

#!/usr/bin/env python3
"""Verbs against markets that lie at random, and then are honest again.

  hostile_market_rounds.py GPUCTL GPUCTL_CLOUDSIM [--seed N] [--rounds N] [--minutes N] [--jobs N]

A proxy before the simulated markets changes their answers: other types, cut or doubled JSON, HTML,
errors with status 200, huge numbers, doubled and missing entries, storms of 429 and 500, silence.
gpuctl must not crash, must not show "nothing" where it does not know, and must not rent twice.
When the markets are honest again, `reap` leaves nothing of ours and touches nothing of others.
"""
import io
import json
import os
import random
import shutil
import socket
import sys
import time

from market_world import PROVIDERS, MarketWorld
from soak import check, options, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "end_to_end"))
from hostile_market import HostileMarket  # noqa: E402

# With this probability an answer is changed.
CHANCES = (0.05, 0.2, 0.5, 1.0)
VALUES = (None, True, False, 0, -1, 1, 3.5, 1e308, -1e308, 2 ** 31, 2 ** 63, 2 ** 64, 10 ** 40, "",
          "x", "0", "running", "RUNNING", "\u001b[2J", "\u202e", "../..", "z" * 70000, [], {},
          [[]], [None], {"": None}, {"id": {}}, "1970-01-01T00:00:00Z", "gpuctl-deadbeef-0123")
BODIES = (b"", b"null", b"[]", b"{}", b"0", b"\"\"", b"{", b"[[[[", b"<html><body>502</body></html>",
          b"\xff\xfe\x00", b"{\"error\":\"no\"}", b"{\"success\":false,\"msg\":\"no\"}",
          b"[" * 100000, b"{\"a\":" * 5000, b" " * 300000, b"{\"data\":[]}", b"{\"instances\":null}",
          b"{\"instances\":[]}extra", b"NaN", b"{\"errors\":[{\"message\":\"no\"}]}")
STATUSES = (200, 201, 202, 204, 301, 400, 401, 403, 404, 409, 410, 418, 422, 429, 429, 429, 500, 500,
            502, 503, 504, 599)


class Liar(HostileMarket):
    """A proxy that changes answers. `chance`: how often, per answer."""

    def __init__(self, sim, seed, chance, story):
        super().__init__(sim, None)
        self.random, self.chance, self.story = random.Random(seed), chance, story
        self.storm = 0  # so many more answers are refused

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        how = self.choose()
        if how == "refuse unsent":
            return self.send(request, self.random.choice((429, 500, 503)), "text/plain", b"busy")
        if how == "cut unsent":
            return self.cut(request)
        status, kind, data = self.ask(request, body)
        lied, shown = data, how
        if how == "values":
            try:
                lied = json.dumps(self.changed(json.loads(data))).encode()
            except ValueError:
                shown = "honest"
        elif how == "body":
            lied = self.random.choice(BODIES)
        elif how == "status":
            status = self.random.choice(STATUSES)
        elif how == "torn":
            lied = data[:self.random.randrange(len(data) + 1)]
        elif how == "doubled":
            lied = data + data
        elif how == "html":
            status, kind = self.random.choice((200, 502)), "text/html"
            lied = b"<html>no</html>"
        elif how == "silent":
            time.sleep(1.5)
        elif how == "cut":
            self.story.add("%s %s: cut" % (request.command, request.path[:60]))
            return self.cut(request)
        if shown != "honest":
            self.story.add("%s %s: %s, %d %s" % (request.command, request.path[:60], shown, status,
                                                 lied[:160]))
        return self.send(request, status, kind, lied)

    def choose(self):
        if self.storm > 0:
            self.storm -= 1
            return "refuse unsent"
        if self.random.random() > self.chance:
            return "honest"
        how = self.random.choice(("values", "values", "values", "values", "body", "status", "torn",
                                  "doubled", "html", "silent", "cut", "cut unsent", "storm"))
        if how == "storm":
            self.storm = self.random.choice((1, 3, 20))
            return "refuse unsent"
        return how

    def ask(self, request, body):
        headers = {k: v for k, v in request.headers.items()
                   if k.lower() not in ("host", "content-length", "connection", "accept-encoding")}
        answer = self.sim.request(request.command, request.path, None, headers,
                                  raw=body or None)
        return answer.status, answer.headers.get("content-type", "application/json"), \
            answer.text.encode()

    @staticmethod
    def send(request, status, kind, data):
        try:
            request.send_response(status)
            request.send_header("Content-Type", kind)
            if status == 429:
                request.send_header("Retry-After", "2")
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            if request.command != "HEAD" and status not in (204, 304):
                request.wfile.write(data)
        except OSError:
            pass

    @staticmethod
    def cut(request):
        request.close_connection = True
        request.wfile.flush()
        request.connection.shutdown(socket.SHUT_RDWR)
        request.wfile = io.BytesIO()  # the handler flushes it

    def changed(self, value):
        """Returns the JSON with some of its values changed."""
        choose = self.random.random
        if choose() < 0.03:
            return self.random.choice(VALUES)
        if isinstance(value, dict):
            return {key: self.changed(each) for key, each in value.items() if choose() > 0.02}
        if isinstance(value, list):
            kept = [self.changed(each) for each in value if choose() > 0.05]
            if kept and choose() < 0.1:
                kept.append(self.random.choice(kept))
            return kept
        return value


class Round(MarketWorld):
    markets_lie = True

    def verb(self, number):
        seed = self.random
        provider = seed.choice(PROVIDERS)
        verb = seed.choice(("launch", "launch", "launch", "offers", "instances", "instances",
                            "reap", "down", "volumes", "price", "ps"))
        words = {"launch": self.launch_words(provider, "r%d" % number),
                 "offers": ("offers", "--gpu", "RTX4090", "--json"),
                 "instances": ("instances", "--json"), "reap": ("reap", "-y"),
                 "down": ("down", "--all", "-y"), "volumes": ("volumes", "--json"),
                 "price": ("price", "--json"), "ps": ("ps", "-u", "--json")}[verb]
        code, out, _ = self.gpuctl_run("a", *words)
        self.round.note(verb)
        if verb == "instances" and out.startswith('{"schema_version":1,"instances"'):
            self.note_unknown("a", out)

    def note_unknown(self, state, out):
        """A market may leave out a machine in a list that looks whole. All that gpuctl itself knows
        must be there all the same."""
        missing = self.check_known(state, out)
        rented = {lease["instance_id"] for lease in self.ledger(state)
                  if lease["state"] in ("rented", "releasing")}
        check(not rented.intersection(missing), "instances shows nothing of %s: %s" % (
            missing, out[-2000:]))


def one_round(gpuctl, program):
    def go(this):
        with Round(this, gpuctl, program, 20) as world:
            try:
                seed = this.random.random()
                with Liar(world.sim, seed, this.random.choice(CHANCES), this.story) as liar:
                    world.base = liar.url
                    # Machines that come up and have no ssh would keep each launch busy.
                    for service in PROVIDERS:
                        world.sim.fault(service, "create", "boot_fails",
                                        times=this.random.choice((1, 3, -1)))
                    for number in range(this.random.randrange(2, 6)):
                        world.verb(number)
                    world.base = None
                world.settle()
            except Exception:
                this.story.add("books: %s" % "\n  ".join(map(str, world.ours())))
                this.story.add("ledger: %s" % world.ledger("a"))
                if this.keep:
                    shutil.copytree(world.root, os.path.join(this.keep, this.name),
                                    dirs_exist_ok=True)
                raise
    return go


if __name__ == "__main__":
    wanted = options(2)
    run("hostile_market", one_round(*wanted.words), wanted)

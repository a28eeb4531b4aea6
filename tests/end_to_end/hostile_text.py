#!/usr/bin/env python3
"""Text from a job, a node or a market must not act on a terminal or forge a line of ours.

  hostile_text.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

Every text that gpuctl gets from elsewhere is hostile here. Every verb that may show it runs on a
terminal, into a pipe and as JSON. Without a panel a job's own output is shown raw, by design.
"""
import contextlib
import json
import os
import shutil
import sqlite3
import sys
import time
import traceback

from hostile_market import FREE, HostileMarket
from hostile_words import LINE, MALFORMED, TEXT, Sheet, Wide, Words, show
from rent_world import SERVICES, RentWorld
from runs import Laptop, open_gate

JOB = rb"""
import hashlib, json, os, sys
out = %(output)r
os.write(1, out)
with open(os.environ["GPUCTL_METRICS"], "w") as metrics:
    for step in (1, 2):
        metrics.write(json.dumps({"type": "step", "step": step, "loss": 0.5, %(metric)r: 1.0,
                                  "message": %(message)r}) + "\n")
os.makedirs(b"out")
for name in %(artifacts)r:
    open(b"out/" + name, "w").write("one")
for name in %(checkpoints)r:
    os.makedirs(b"ck/" + name)
    open(b"ck/" + name + b"/weights", "w").write("two")
root = os.environ["GPUCTL_CHECKPOINT_DIR"]
os.makedirs(root + "/.tmp")
for name in %(weights)r:
    open(os.fsencode(root) + b"/.tmp/" + name, "w").write("three")
sha = hashlib.sha256(b"three").hexdigest()
json.dump({"format": 1, "step": 2, "files": [
    {"path": name.decode("utf-8", "replace"), "size": 5, "sha256": sha}
    for name in %(weights)r]}, open(root + "/.tmp/manifest.json", "w"))
os.rename(root + "/.tmp", root + "/step-00000002")
if len(sys.argv) > 1:
    open(sys.argv[1]).read()
sys.exit(3)
"""


def write_job(laptop, words):
    """Writes a job that gives hostile text wherever a job can. Returns its work directory."""
    home = os.path.join(laptop.dir, "project")
    os.mkdir(home)
    with open(os.path.join(home, "job.py"), "wb") as file:
        file.write(JOB % {
            b"output": output(words), b"metric": words.text("metric name"),
            b"message": words.text("metric text"), b"artifacts": words.names("artifact name"),
            b"checkpoints": words.names("checkpoint name"),
            b"weights": words.names("checkpoint's file", TEXT)})
    return home


def output(words):
    mark = words.mark("output")
    return b"".join(mark + part + mark + b"\n" for part in LINE)


def change(path, *statements):
    """Executes each SQL statement with its values, all in one transaction."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for sql, *values in statements:
            database.execute(sql, values)


@contextlib.contextmanager
def kept(*folders):
    """Undoes a verb's changes in them."""
    for folder in folders:
        shutil.copytree(folder, folder + ".kept", symlinks=True)
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder)
            os.rename(folder + ".kept", folder)


def launch_job(l, words, name, *args, code=3):
    home = os.path.join(l.dir, "project")
    if not os.path.isdir(home):
        write_job(l, words)
    return ["launch", *(["-d"] if args else []), "-y", "--workdir", home, "--name", name,
            "--checkpoints", "ck/*", "--artifacts", "out/**", "--", sys.executable, "job.py", *args]


def run_dir(l, name):
    runs = l.json("ps", "-a")["runs"]
    (run,) = [run["run_id"] for run in runs if run["name"] == name]
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "runs", run)


def test_what_a_job_writes(l, words, sheet):
    raw = output(words)
    show(l, sheet, *launch_job(l, words, "odd"), raw=raw, name="launch")
    gate = os.path.join(l.dir, "gate")
    os.mkfifo(gate)
    l.run(*launch_job(l, words, "held", gate))
    attach = Wide(l, "attach", "held")
    attach.until(b"Ctrl-C detaches", times=4)
    attach.until(words.mark("output"))
    open_gate(gate)
    sheet.look("attach (panel)", attach.finish())
    for args in (["logs", "odd"], ["attach", "odd"], ["debug", "replay", "odd"]):
        show(l, sheet, *args, raw=raw)
    work, state = l.work, l.env["GPUCTL_STATE_DIR"]
    for args in (["ps"], ["ps", "-a"], ["metrics", "odd"], ["metrics", "odd", "held"],
                 ["wait", "odd"], ["stop", "odd"], ["debug", "job", "odd"], ["verify", "odd"],
                 ["doctor"], ["down", "odd", "-y"], ["resume", "odd", "-y", "--dry-run"],
                 ["pull", "odd", "no-such-thing"], ["pull", "odd", "--checkpoint", "77"],
                 ["cp", "odd:out", "copied"], ["cp", "odd:nothing", "copied"],
                 ["sync", "odd"], ["sync", "--dry-run", "--workdir", "copied"]):
        show(l, sheet, *args)
    for mode in ("terminal", "pipe", "json"):
        with kept(work, state):
            for args in (["pull", "odd", "--to", "home"], ["pull", "odd", "--to", "home"],
                         ["pull", "odd", "**", "--to", "home"], ["verify", "odd", "--read-data"]):
                show(l, sheet, *args, modes=[mode])
            damage(os.path.join(work, "home"))
            for args in (["verify", "odd"], ["verify", "odd", "--read-data"],
                         ["pull", "odd", "--to", "home"], ["prune", "--dry-run"],
                         ["rm", "odd", "--dry-run"], ["rm", "odd"]):
                show(l, sheet, *args, modes=[mode])
    show(l, sheet, "rm", "odd", "--force", modes=["terminal"])
    show(l, sheet, "prune", "-y", modes=["terminal"])
    return ["metric name", "metric text"]


def damage(folder):
    for parent, _, names in os.walk(os.fsencode(folder)):
        for number, name in enumerate(sorted(names)):
            path = os.path.join(parent, name)
            if number % 2:
                os.unlink(path)
            else:
                with open(path, "ab") as file:
                    file.write(b"more")


def row_of(l, name):
    path = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT run_id, target, job_id FROM runs WHERE name = ?",
                                [name]).fetchone()


def alter_runs(l, words):
    """Puts hostile texts of nodes into the laptop's files, in another way for each run."""
    database = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    for name in ("by-row", "by-lines", "by-error", "far", "unheard"):
        l.run("launch", "--no-workdir", "--name", name, "--", "bash", "-c", "exit 3", code=3)
    text = "UPDATE runs SET %s = CAST(? AS TEXT) WHERE name = ?"
    change(database, *[
        (text % column, words.bytes("runs." + column), "by-row")
        for column in ("end_reason", "node_id", "command", "workdir", "end_state", "end_source")])
    change(database, ("UPDATE runs SET exit_code = 119, end_source = 'gpuctl' WHERE name = ?",
                      "by-row"))
    open_again = "UPDATE runs SET end_state = NULL, exit_code = NULL, ended_ms = NULL, " \
                 "end_source = NULL, end_reason = NULL, job_code = NULL WHERE name = ?"
    change(database, (open_again, "by-lines"), (open_again, "by-error"), (open_again, "unheard"))
    for name, key in (("by-lines", "reason"), ("by-error", "error")):
        path = os.path.join(run_dir(l, name), "lifecycle.jsonl")
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        lines[0]["boot_id"] = words.text("lifecycle boot_id")
        lines[-1][key] = words.text("lifecycle " + key)
        if key == "error":
            lines[-1]["exit_code"] = 127
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    target = json.loads(row_of(l, "far")[1])
    target.update(name=words.text("target name"), provider="ssh", host=words.text("target host"),
                  user=words.text("target user"))
    change(database, ("UPDATE runs SET target = ?, target_name = ? WHERE name = ?",
                      json.dumps(target), target["name"], "far"))
    folder = run_dir(l, "by-lines")
    with open(folder + "/metrics.jsonl", "w", encoding="utf-8") as file:
        for step in (1, 2):
            file.write(json.dumps({words.text("mirrored metric"): 1.0, "step": step,
                                   "loss": 0.5, "type": words.text("mirrored type")}) + "\n")
    gpu = {"index": 0, "name": words.text("telemetry GPU"), "busy_percent": 7,
           "memory_used_bytes": 1 << 30, "memory_total_bytes": 1 << 34}
    with open(folder + "/telemetry/00000000000000000000", "w", encoding="utf-8") as file:
        file.write(json.dumps({"time_ms": int(time.time() * 1000), "gpus": [gpu]}) + "\n")
    with open(folder + "/pulled.jsonl", "w", encoding="utf-8") as file:
        for kind in ("trainer", "foreign", "files"):
            file.write("\n" + json.dumps({
                "kind": kind, "step": 2, "time_ms": 1, "node_modified_ms": 1, "ours": True,
                "path": l.work + "/" + octal(words.bytes("pulled path")),
                "from": octal(words.bytes("pulled from")),
                "files": [{"path": octal(words.bytes("pulled file")), "size": 3, "sha256": "0" * 64,
                           "modified_ns": 1}]}) + "\n")


def octal(path):
    """Returns a path's bytes as pulled.jsonl writes them."""
    return "".join("\\%03o" % byte if byte < 32 or byte > 126 or byte == 92 else chr(byte)
                   for byte in path)


def test_what_the_laptop_has_stored(l, words, sheet):
    alter_runs(l, words)
    state = l.env["GPUCTL_STATE_DIR"]
    names = ["by-row", "by-lines", "by-error", "far", "unheard"]
    offline = [["ps"], ["ps", "-a"], ["doctor"], ["prune", "--dry-run"],
               ["metrics", "--offline", *names[:2]], ["instances"], ["reap", "--dry-run"]]
    each = [["wait"], ["verify"], ["verify", "--read-data"], ["attach"], ["debug", "job"],
            ["debug", "replay"], ["logs"], ["stop"], ["pull"], ["metrics"], ["down", "-y"],
            ["resume", "--dry-run"], ["rm", "--dry-run"], ["rm"], ["exec"]]
    for args in offline + [[*verb, name] for name in names for verb in each]:
        if args[0] == "exec":
            args = [*args, "--", "true"]
        if args[0] in ("wait", "attach") and args[-1] == "far":
            continue
        for mode in ("terminal", "pipe", "json"):
            with kept(state):
                show(l, sheet, *args, modes=[mode])
    # Stored and never shown.
    return ["lifecycle boot_id", "mirrored metric", "mirrored type", "pulled from",
            "runs.end_source", "runs.end_state", "runs.workdir", "target user", "telemetry GPU"]


# Replaces the agent on the node. The server's messages to the laptop pass through it, and some
# become hostile. Lengths stay, so that every frame and message stays whole.
BRIDGE = """#!%(python)s
import json, os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
agent = os.path.join(here, "gpuctl-agent-real")
with open(%(plan)r) as file:
    plan = json.load(file)
if sys.argv[1] != "bridge" or not plan:
    os.execv(agent, [agent] + sys.argv[1:])
if plan.get("instead") is not None:
    os.write(plan["descriptor"], bytes.fromhex(plan["instead"]))
    sys.exit(plan["code"])
child = subprocess.Popen([agent] + sys.argv[1:], stdout=subprocess.PIPE)
while True:
    data = os.read(child.stdout.fileno(), 1 << 20)
    if not data:
        break
    for true, false in plan["texts"]:
        data = data.replace(bytes.fromhex(true), bytes.fromhex(false))
    while data:
        data = data[os.write(1, data):]
sys.exit(child.wait())
"""


def fitting(words, field, size, parts, percent=False):
    """Returns hostile text of exactly that many bytes, with as many parts as fit."""
    mark = words.mark(field)
    text = mark
    for part in parts:
        if percent:
            part = b"".join(b"%%%02X" % byte if byte < 32 or byte > 126 else bytes([byte])
                            for byte in part)
        if len(text + part + mark) <= size:
            text += part + mark
    assert len(text) > len(mark), (field, size)
    return text + b"z" * (size - len(text))


class HostileNode:
    def __init__(self, l):
        self.plan = os.path.join(l.dir, "plan.json")
        self.tell({})
        folder = os.path.realpath(l.root + "/bin/current")
        os.rename(folder + "/gpuctl-agent", folder + "/gpuctl-agent-real")
        with open(folder + "/gpuctl-agent", "w", encoding="utf-8") as file:
            file.write(BRIDGE % {"python": sys.executable, "plan": self.plan})
        os.chmod(folder + "/gpuctl-agent", 0o700)

    def tell(self, plan):
        with open(self.plan, "w", encoding="utf-8") as file:
            json.dump(plan, file)

    def replace(self, *pairs):
        for true, false in pairs:
            assert len(true) == len(false), (true, false)
        self.tell({"texts": [[true.hex(), false.hex()] for true, false in pairs]})

    def say(self, descriptor, text, code):
        self.tell({"instead": text.hex(), "descriptor": descriptor, "code": code})


NODE_VERBS = [["doctor"], ["ps"], ["ps", "-a"], ["debug", "job", "ended"], ["debug", "job", "held"],
              ["pull", "ended", "--to", "home"], ["pull", "ended", "x*", "--to", "home"],
              ["pull", "ended", "--checkpoint", "77"], ["verify", "ended"], ["metrics", "ended"],
              ["cp", "ended:nothing", "copy"], ["cp", "ended:out", "copy"],
              ["cp", "copy", "held:there"], ["sync", "held"], ["prune", "--dry-run"],
              ["rm", "--dry-run", "ended"], ["rm", "ended"], ["wait", "ended"],
              ["attach", "ended"], ["wait", "held", "--timeout", "1s"], ["logs", "held"],
              ["launch", "--no-workdir", "--", "true"],
              ["resume", "--dry-run", "ended"]]
NODE_ERRORS = [["pull", "gone"], ["cp", "gone:a", "copy"], ["sync", "gone"], ["rm", "gone"],
               ["cp", "ended:nothing", "copy"]]


def test_what_a_node_answers(l, words, sheet):
    l.root = l.env["GPUCTL_NODE_ROOT"] = os.path.join(l.dir, "n" * 220)
    work = os.path.join(l.dir, "sent")
    os.mkdir(work)
    l.run("launch", "-y", "--workdir", work, "--name", "ended", "--checkpoints", "ck/*",
          "--artifacts", "out/*", "--", "bash", "-c",
          "mkdir -p out ck/%s; echo a > out/%s; echo b > ck/%s/w" % ("c" * 220, "a" * 220, "c" * 220))
    gate = os.path.join(l.dir, "gate")
    os.mkfifo(gate)
    l.run("launch", "--no-workdir", "--name", "gone", "--", "true")
    shutil.rmtree(os.path.join(l.root, "jobs", row_of(l, "gone")[2]))
    l.run("launch", "-d", "-y", "--workdir", work, "--name", "held", "--", "bash", "-c",
          "read line < " + gate)
    run = next(r for r in l.json("ps", "-a")["runs"] if r["name"] == "held")
    node = HostileNode(l)
    boot = open("/proc/sys/kernel/random/boot_id", "rb").read().strip()
    why = b"shim.lock free, last lifecycle line exited"
    unknown = b"the node has no such job"

    def pairs(turn):
        parts = TEXT[turn:] + TEXT[:turn]
        return [(b"a" * 220, fitting(words, "node's artifact", 220, parts)),
                (b"c" * 220, fitting(words, "node's checkpoint", 220, parts)),
                (l.root.encode(), fitting(words, "node's root", len(l.root), parts)),
                (why, fitting(words, "job's why", len(why), parts)),
                (b"shim.lock held", fitting(words, "job's why, running", 14, parts[:1] + TEXT)),
                (unknown, fitting(words, "call's error", len(unknown), parts, percent=True))]

    state = l.env["GPUCTL_STATE_DIR"]
    def go(modes, verbs):
        for args in verbs:
            for mode in modes:
                with kept(state, l.work):
                    show(l, sheet, *args, modes=[mode])

    for turn in range(0, len(TEXT), 12):
        node.replace(*pairs(turn))
        go(("terminal", "json") if turn == 0 else ("terminal",),
           NODE_ERRORS + (NODE_VERBS if turn == 0 else NODE_VERBS[3:6]))
    few = [v for v in NODE_VERBS if v[0] in ("doctor", "debug", "pull", "attach", "launch")]
    node.replace((run["node_id"].encode(), fitting(words, "node id", 18, TEXT)))
    go(("terminal",), few)
    node.replace((boot, fitting(words, "boot id", 36, TEXT)))
    go(("terminal",), few[:3])
    # Not UTF-8: no message may contain it.
    node.replace((b"a" * 220, fitting(words, "node's artifact", 220, MALFORMED)),
                 (b"c" * 220, fitting(words, "node's checkpoint", 220, MALFORMED)),
                 (l.root.encode(), fitting(words, "node's root", len(l.root), MALFORMED)))
    go(("terminal", "json"), few)
    # A node's shell output in exec is the command's own output; the bridge's output is not.
    once = [v for v in few if v[0] not in ("attach", "launch")] + [["exec", "held", "--", "true"]]
    for descriptor in (1, 2):
        node.say(descriptor, words.bytes("bridge's words") + b"\n" + words.bytes("bridge's words"), 1)
        go(("terminal",), once)
    node.say(1, b"\nGPUCTL-BRIDGE 1 " + b" ".join(words.names("bridge's banner")) + b"\n", 0)
    go(("terminal",), once)
    node.tell({})
    open_gate(gate)
    l.run("wait", "held")
    return ["boot id", "bridge's banner"]


def stored_by_the_market(w, words):
    """Puts hostile texts of markets into the ledger."""
    change(os.path.join(w.env["GPUCTL_STATE_DIR"], "ledger.db"), *[
        ("UPDATE %s SET %s = CAST(? AS TEXT)" % (table, column),
         words.bytes("%s.%s" % (table, column)))
        for table, columns in (
            ("leases", ("gpu_name", "region", "place", "how_ended", "host", "purpose")),
            ("listed", ("status", "gpu_name", "region", "place", "why")),
            ("uses", ("run_name",)), ("places", ("reason",)), ("price_rises", ("also", "rise_id")))
        for column in columns])


GPU = ["--gpu", "RTX-4090"]
MARKET_VERBS = [["offers", *GPU], ["offers", "--explain", *GPU], ["instances"], ["volumes"], ["price"],
                ["reap", "--dry-run"], ["doctor"], ["ps", "-a"], ["ps", "-u"],
                ["launch", "--dry-run", *GPU, "--no-workdir", "--", "true"],
                ["launch", "--dry-run", *GPU, "--volume", "sets", "--no-workdir", "--", "true"]]


def test_what_a_market_says(w, words, sheet):
    for service, path, body in (
            ("runpod", "/v2/network-volumes", {"name": "sets", "size": 50, "dataCenter": "US-TX-3"}),
            ("lambda", "/api/v1/filesystems", {"name": "sets", "region": "us-west-1"})):
        w.sim.call(service, "POST", path, body)
    with HostileMarket(w.sim, words) as market:
        for service in SERVICES:
            w.env["GPUCTL_%s_URL" % service.upper()] = market.url + "/" + service
        # Machines that fail, and one that runs.
        w.sim.fault("vast", "create", "out_of_stock")
        w.sim.fault("vast", "create", "boot_fails", after=1)
        w.sim.fault("runpod", "create", "wrong_gpu", gpu=words.text("machine's GPU"))
        launch = ["launch", "-y", "-d", *GPU, "--no-workdir", "--name", "rented", "--", "sleep", "99"]
        show(w, sheet, *launch, modes=["terminal"])
        show(w, sheet, *launch, modes=["pipe"])
        if w.alive():
            instance = w.alive()[0]
            if instance["service"] == "vast":
                w.sim.change("vast", instance["id"], "announce_price", factor=2, in_s=86400)
        for args in MARKET_VERBS:
            show(w, sheet, *args, modes=["terminal", "json"])
        ledger = os.path.join(w.env["GPUCTL_STATE_DIR"])
        with kept(ledger):
            market.keys = None
            for args in MARKET_VERBS:
                show(w, sheet, *args, name="all: " + " ".join(args), modes=["terminal"])
            show(w, sheet, "down", "--all", modes=["terminal"], name="all: down --all")
        market.keys = FREE
        for args in MARKET_VERBS[:10] + [["down", "rented"], ["down", "--all"]]:
            with kept(ledger):
                stored_by_the_market(w, words)
                show(w, sheet, *args, name="stored: " + " ".join(args), modes=["terminal", "json"])
        for status, kind in ((200, "text/html"), (400, "text/plain"), (401, "application/json"),
                             (500, "text/html")):
            market.instead = (status, kind, words.bytes("body of a %d" % status))
            for args in MARKET_VERBS[:7] if status < 500 else MARKET_VERBS[:1]:
                with kept(ledger):
                    show(w, sheet, *args, modes=["terminal"], name="%d: %s" % (
                        status, " ".join(args)))
        market.instead = None
        show(w, sheet, "down", "--all", "-y", modes=["terminal"])
        for service in SERVICES:
            w.env["GPUCTL_%s_URL" % service.upper()] = w.sim.url + "/" + service
    w.check_nothing_left()


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    for name in sys.argv[4:] or list(tests):
        begin = time.monotonic()
        words = Words()
        sheet = Sheet(words)
        if "market" in name:
            laptop = RentWorld(*sys.argv[1:4])
        else:
            laptop = Laptop(*sys.argv[1:3])
        try:
            hidden = tests[name](laptop, words, sheet)
            sheet.check(hidden or ())
            print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:
            failed.append(name)
            print("FAILED %s (%.1f s)\n%s" % (name, time.monotonic() - begin,
                                              traceback.format_exc()), flush=True)
        finally:
            if "market" in name:
                laptop.__exit__(True)
            else:
                laptop.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

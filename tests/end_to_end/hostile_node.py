#!/usr/bin/env python3
"""Text that a node answers must not act on a terminal or forge a line of ours.

  hostile_node.py GPUCTL FAKE_JOB

A program in the agent's place makes texts in the server's messages hostile.
"""
import contextlib
import json
import os
import shutil
import sys

from hostile_words import MALFORMED, TEXT, show
from hostile_world import kept, row_of, run
from runs import Laptop, open_gate

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


NODE_VERBS = [["doctor"], ["ps"], ["ps", "-a"], ["debug", "job", "ended-1"], ["debug", "job", "held-1"],
              ["pull", "ended-1", "--to", "home"], ["pull", "ended-1", "x*", "--to", "home"],
              ["pull", "ended-1", "--checkpoint", "77"], ["verify", "ended-1"], ["metrics", "ended-1"],
              ["cp", "ended-1:nothing", "copy"], ["cp", "ended-1:out", "copy"],
              ["cp", "copy", "held-1:there"], ["sync", "-y", "held-1"], ["prune", "--dry-run"],
              ["rm", "--dry-run", "ended-1"], ["rm", "ended-1"], ["wait", "ended-1"],
              ["attach", "ended-1"], ["wait", "held-1", "--timeout", "1s"], ["logs", "held-1"],
              ["launch", "--no-workdir", "--", "true"],
              ["resume", "--dry-run", "ended-1"]]
NODE_ERRORS = [["pull", "gone-1"], ["cp", "gone-1:a", "copy"], ["sync", "gone-1"], ["rm", "gone-1"],
               ["cp", "ended-1:nothing", "copy"]]


def test_what_a_node_answers(l, words, sheet):
    l.root = l.env["GPUCTL_NODE_ROOT"] = os.path.join(l.dir, "n" * 220)
    work = os.path.join(l.dir, "sent")
    os.mkdir(work)
    l.run("launch", "-y", "--workdir", work, "--name", "ended-1", "--checkpoints", "ck/*",
          "--artifacts", "out/*", "--", "bash", "-c",
          "mkdir -p out ck/%s; echo a > out/%s; echo b > ck/%s/w" % ("c" * 220, "a" * 220, "c" * 220))
    gate = os.path.join(l.dir, "gate")
    os.mkfifo(gate)
    l.run("launch", "--no-workdir", "--name", "gone-1", "--", "true")
    shutil.rmtree(os.path.join(l.root, "jobs", row_of(l, "gone-1")[2]))
    l.run("launch", "-d", "-y", "--workdir", work, "--name", "held-1", "--", "bash", "-c",
          "read line < " + gate)
    run = next(r for r in l.json("ps", "-a")["runs"] if r["name"] == "held-1")
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
    once = [v for v in few if v[0] not in ("attach", "launch")] + [["exec", "held-1", "--", "true"]]
    for descriptor in (1, 2):
        node.say(descriptor, words.bytes("bridge's words") + b"\n" + words.bytes("bridge's words"), 1)
        go(("terminal",), once)
    node.say(1, b"\nGPUCTL-BRIDGE 1 " + b" ".join(words.names("bridge's banner")) + b"\n", 0)
    go(("terminal",), once)
    node.tell({})
    open_gate(gate)
    l.run("wait", "held-1")
    return ["boot id", "bridge's banner"]


if __name__ == "__main__":
    with contextlib.closing(Laptop(*sys.argv[1:3])) as laptop:
        run(test_what_a_node_answers, laptop)

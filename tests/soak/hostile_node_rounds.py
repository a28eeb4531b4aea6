#!/usr/bin/env python3
"""Verbs against a node that lies at random.

  hostile_node_rounds.py GPUCTL FAKE_JOB HOSTILE_AGENT [--seed N] [--rounds N] [--minutes N] …

The node is real, but hostile_agent stands in the place of its agent and changes what it answers,
with a probability of its own in each round. Whatever it says: gpuctl ends with a code of its own,
takes little memory, writes only where it was asked to, shows nothing that acts on a terminal, and
hears SIGTERM and Ctrl-C within two seconds; a launch, which asks the node to end its job, the
second signal.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "end_to_end"))
from hostile_words import Sheet, Words  # noqa: E402
from runs import Laptop  # noqa: E402
from processes import Processes  # noqa: E402
from soak import check, options, run  # noqa: E402

CHANCES = (0.002, 0.01, 0.03, 0.1, 0.3)
MOST_RSS_KB = 400 << 10
MOST_DISK = 600 << 20
HEARS_S = 2
HANGS_S = 60
ENDS_JOBS = ("launch", "resume")
# The output of these is the job's, unchanged; for the others nothing may act on a terminal.
RAW = ("attach", "logs", "launch", "exec")
VERBS = (
    ["doctor"], ["ps"], ["ps", "-a", "-u"], ["debug", "job", "ended"], ["debug", "job", "held"],
    ["pull", "ended", "--to", "home"], ["pull", "ended", "out/*", "--to", "home"],
    ["pull", "ended", "**/*", "--to", "home-all"], ["pull", "held", "--watch", "--to", "home-held"],
    ["pull", "ended", "--checkpoint", "1", "--to", "home"], ["verify", "ended"],
    ["metrics", "ended"], ["metrics", "held"], ["cp", "ended:out/result", "copy"],
    ["cp", "ended:out", "copy-out"], ["cp", "mine", "held:there"], ["sync", "held"],
    ["prune", "--dry-run"], ["rm", "--dry-run", "ended"], ["wait", "ended"],
    ["attach", "ended"], ["attach", "held"], ["attach", "held", "--pull"],
    ["wait", "held", "--timeout", "1s"], ["wait", "held", "--for", "checkpoint"],
    ["logs", "held", "-f"], ["logs", "ended"], ["logs", "held", "--since", "1s"],
    ["launch", "--no-workdir", "--", "echo", "more"],
    ["launch", "-d", "--workdir", "sent", "--", "sleep", "0.1"],
    ["resume", "ended", "-y", "-d"], ["exec", "held", "--", "echo", "in"], ["stop", "held"],
    ["rm", "ended"], ["down", "--all", "-y"])


class World:
    def __init__(self, this, gpuctl, fake_job, liar):
        self.round, self.random, self.story = this, this.random, this.story
        self.l = Laptop(gpuctl, fake_job)
        self.processes = Processes(self.l.root)
        self.sheet = Sheet(Words())
        self.liar = os.path.abspath(liar)
        self.lies = None

    def prepare(self):
        """Makes an ended run, one that goes on, and files that no verb may change. Then the node
        begins to lie."""
        l = self.l
        for path in ("mine", "sent/a", "home/mine"):
            path = os.path.join(l.work, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write("the user's own\n")
        publish = ("mkdir -p out $GPUCTL_CHECKPOINT_DIR/.t; echo a > out/result; cd "
                   "$GPUCTL_CHECKPOINT_DIR; printf w > .t/w; printf '{\"format\":1,\"step\":1,"
                   "\"files\":[{\"path\":\"w\",\"size\":1,\"sha256\":\"%s\"}]}' "
                   "$(sha256sum < .t/w | cut -d' ' -f1) > .t/manifest.json; mv .t step-00000001; "
                   "echo '{\"step\":1,\"loss\":2}' > $GPUCTL_METRICS; echo line; ")
        self.gate = os.path.join(l.dir, "gate")
        os.mkfifo(self.gate)
        l.run("launch", "-y", "--workdir", "sent", "--name", "ended", "--artifacts", "out/*", "--",
              "bash", "-c", publish)
        l.run("launch", "-d", "-y", "--workdir", "sent", "--name", "held", "--", "bash", "-c",
              publish + "exec 8<>%s; while ! read -t 0.2 -u 8 x; do echo more; done" % self.gate)
        folder = os.path.realpath(l.root + "/bin/current")
        os.rename(folder + "/gpuctl-agent", folder + "/gpuctl-agent-real")
        shutil.copy2(self.liar, folder + "/gpuctl-agent")
        self.lies = folder + "/lies"
        self.lie(self.random.choice(CHANCES))
        self.before = self.files_of_the_user()

    def lie(self, chance):
        self.story.add("lies with probability %g" % chance)
        with open(self.lies, "w", encoding="utf-8") as file:
            file.write("%d %g\n" % (self.round.seed, chance))

    def files_of_the_user(self):
        found = {}
        for path in ("mine", "sent/a", "home/mine"):
            with open(os.path.join(self.l.work, path), "rb") as file:
                found[path] = file.read()
        found["sent"] = sorted(os.listdir(os.path.join(self.l.work, "sent")))
        return found

    def verb(self):
        words = list(self.random.choice(VERBS))
        as_json = words[0] not in ("exec", "logs") and self.random.random() < 0.3
        if as_json:
            words.insert(1, "--json")
        patience_s = self.random.choice((0.3, 1, 3))
        how = self.random.choice((signal.SIGTERM, signal.SIGINT))
        self.story.add("gpuctl " + " ".join(words))
        out_path, err_path = os.path.join(self.l.dir, "stdout"), os.path.join(self.l.dir, "stderr")
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            child = subprocess.Popen(
                [self.l.gpuctl, *words], cwd=self.l.work, env=self.l.env, stdout=out, stderr=err,
                stdin=subprocess.DEVNULL)
        code, rss_kb, took_s = self.end(words, child, patience_s, how)
        with open(out_path, "rb") as out, open(err_path, "rb") as err:
            out, err = out.read(64 << 20), err.read(64 << 20)
        told = "gpuctl %s: exit %s, %d kB, %.1f s\n%r\n%r" % (
            " ".join(words), code, rss_kb, took_s, out[-600:], err[-1500:])
        self.story.add(told)
        check(code >= 0 and code != 70 and code < 132 or code in (137, 143) or
              code in (-signal.SIGTERM, -signal.SIGINT), told)
        check(b"AddressSanitizer" not in err and b"runtime error" not in err, told)
        check(rss_kb < MOST_RSS_KB or "GPUCTL_SOAK_SANITIZED" in os.environ,
              "much memory. " + told)
        check(took_s < HEARS_S, "it hears no signal. " + told)
        if words[0] != "exec":  # whose shell says what it likes
            self.sheet.look(words[0], err)
        if as_json or words[0] not in RAW and words[:2] != ["debug", "replay"]:
            self.sheet.look(words[0], out, is_json=as_json and code >= 0)
        check(not self.sheet.acted, "%s\n%s" % (self.sheet.examples, told))
        self.round.note(words[0])

    def end(self, words, child, patience_s, how):
        """Waits, and after a while sends a signal. Returns the exit code, the most memory, and how
        long the verb lived after the signal."""
        result = {}

        def wait():
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = result["code"] = os.waitstatus_to_exitcode(status)
            result["rss"] = usage.ru_maxrss

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(patience_s)
        told = time.monotonic()
        if waiting.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, how)
            self.round.note("signals")
            self.story.add(how.name)
            if words[0] in ENDS_JOBS:
                # It asks the node for a few seconds to end the job. A second signal ends that.
                waiting.join(HEARS_S)
                told = time.monotonic()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, how)
            waiting.join(HANGS_S)
            if waiting.is_alive():
                os.kill(child.pid, signal.SIGABRT)
                waiting.join()
        return result["code"], result["rss"], time.monotonic() - told

    def check_files(self):
        check(self.files_of_the_user() == self.before, "a file of the user changed: %s" %
              self.files_of_the_user())
        size = 0
        for top in (self.l.env["GPUCTL_STATE_DIR"], self.l.work):
            for path, _, files in os.walk(top):
                for name in files:
                    with contextlib.suppress(OSError):
                        size += os.lstat(os.path.join(path, name)).st_size
        check(size < MOST_DISK, "%d bytes on the disk" % size)
        check(sorted(set(os.listdir(self.l.dir)) - {"cache"}) == [
            "gate", "node", "state", "stderr", "stdout", "work"], os.listdir(self.l.dir))
        names = set(os.listdir(self.l.work)) - {"mine", "sent", "home"}
        # A pull without --to has the run's name; attach --pull, too.
        check(names <= {"home-all", "home-held", "copy", "copy-out", "held-1", "ended-1"} or
              all(name.startswith(".gpuctl-partial-") for name in names -
                  {"home-all", "home-held", "copy", "copy-out", "held-1", "ended-1"}), names)
        check(not os.path.lexists("/tmp/lied"), "/tmp/lied is there")
        # Symlinks of a lying node may lead nowhere else.
        for path, folders, files in os.walk(self.l.work):
            for name in folders + files:
                each = os.path.join(path, name)
                if os.path.islink(each):
                    target = os.path.realpath(each)
                    check(target.startswith(os.path.realpath(self.l.work)), "%s leads to %s" % (
                        each, target))

    def check_honest_again(self):
        self.lie(0)
        with contextlib.suppress(OSError):
            os.unlink(self.lies)
        done = self.l.run("ps", "-a", "--json", code=None)
        check(done.returncode == 0, "ps: %s" % done)
        for row in json.loads(done.stdout)["runs"]:
            for verb in ("stop", "wait"):
                done = self.l.run(verb, row["run_id"], code=None)
                check(0 <= done.returncode != 70, "%s: %s" % (verb, done))

    def close(self, failed):
        with contextlib.suppress(OSError):
            os.close(os.open(self.gate, os.O_WRONLY | os.O_NONBLOCK))
        self.processes.end()
        self.l.close()


def one_round(gpuctl, fake_job, liar):
    def go(this):
        world = World(this, gpuctl, fake_job, liar)
        failed = True
        try:
            world.prepare()
            for _ in range(world.random.randrange(4, 10)):
                world.verb()
                world.check_files()
            world.check_honest_again()
            failed = False
        finally:
            if failed and this.keep:
                this.close(world.l.dir, True)
            world.close(failed)
    return go


if __name__ == "__main__":
    wanted = options(3)
    run("hostile_node", one_round(*wanted.words), wanted)

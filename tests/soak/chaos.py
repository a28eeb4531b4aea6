#!/usr/bin/env python3
"""Every process of gpuctl is killed or stopped at random while its verbs run.

  chaos.py local|ssh GPUCTL FAKE_JOB [--seed N] [--rounds N] [--minutes N] [--jobs N] [--keep DIR]

A round has a laptop and a node of its own, and up to three jobs at once. For each job somebody
launches it and then uses other verbs on it. Meanwhile clients, sshd, bridges, guard, server and
shims die (SIGKILL) or stand still for a while (SIGSTOP). The truth comes from each job's own
journal (job.sh), never from gpuctl. When all has settled, gpuctl must tell that truth.
"""
import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "end_to_end"))
from runs import Laptop, ssh_server  # noqa: E402
from journal import Journal  # noqa: E402
from processes import Processes, send, status_of, words_of  # noqa: E402
from soak import RoundFailed, check, eventually, options, run  # noqa: E402

VICTIMS = {"client": 30, "server": 20, "bridge": 12, "sshd": 12, "guard": 10, "shim": 6,
           "receive": 5, "send": 5}
VERB_S = 90  # a verb that takes longer hangs
# gpuctl's own exit codes that a broken link, a lost job or an early end may cause.
CODES = {0, 1, 2, 3, 5, 75, 123, 124, 125, 126, 130, 137, 143}


class Job:
    """What a round wants of a job, and what happened to it."""

    def __init__(self, random, number, directory):
        self.name = "job-%d" % (number + 1)  # as it is: a name with its number
        self.lines = random.choice((4, 20, 60))
        self.pause_s = random.uniform(0.001, 0.06)
        self.code = random.choice((0, 0, 0, 5))
        self.on_term = random.choice(("save", "ignore", "default"))
        self.failures = random.choice((0, 0, 0, 1))
        self.retry_lost = random.random() < 0.3
        self.has_workdir = random.random() < 0.5
        self.detached = random.random() < 0.4
        self.verbs = [random.choice((
            "attach", "attach", "logs -f", "logs", "ps -u", "wait", "pull", "pull", "cp", "exec",
            "sync", "sync", "stop", "rm")) for _ in range(random.randrange(1, 6))]
        self.pauses_s = [random.expovariate(4) for _ in range(len(self.verbs) + 2)]
        self.random_bytes = random.randbytes(random.choice((10, 5000, 300000)))
        self.journal = Journal(directory, self.name)
        self.home = os.path.join(directory, self.name)
        self.row = None         # what ps says of it, once it is there
        self.was_stopped = False  # somebody asked it to stop
        self.stopped_at = None  # how often it had started when `stop` was answered with 0
        self.removed = False    # by rm, or an rm was killed that may have done so
        self.shown = []         # (verb, output, whether it came to its end)

    def launch(self):
        retry = (["exit:75"] if self.failures else []) + (["lost"] if self.retry_lost else [])
        args = ["launch", "--name", self.name, "--grace", "1s", "-y"]
        args += ["-d"] if self.detached else []
        if retry:
            args += ["--retry-max", "2", "--retry-backoff", "10ms"]
            args += [word for each in retry for word in ("--retry-on", each)]
        args += ["--workdir", self.home] if self.has_workdir else ["--no-workdir"]
        args += ["--artifacts", "out/*"]
        return [*args, "--", *self.journal.command(self)]


class World:
    """A round's laptop, node and jobs."""

    def __init__(self, this, laptop, host):
        self.round, self.random, self.story = this, this.random, this.story
        self.laptop, self.host = laptop, host
        self.processes = Processes(laptop.root)
        self.clients = {}  # pid -> verb
        self.hurt = set()  # the pids of clients that were killed
        self.stopped = set()
        self.shims_killed = {}  # job's directory -> the attempts whose shim was killed
        self.lock = threading.Lock()
        self.jobs = [Job(self.random, n, laptop.dir) for n in range(self.random.randrange(1, 4))]
        self.problems = []

    # Verbs.

    def gpuctl(self, *args, codes=None):
        """Runs a verb. Returns its exit code, stdout and stderr; the code is -9 when it was
        killed here."""
        with self.lock:
            child = subprocess.Popen(
                [self.laptop.gpuctl, "--trace", *args], cwd=self.laptop.work, env=self.laptop.env,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.clients[child.pid] = args[0]
        self.story.add("%d: gpuctl %s" % (child.pid, " ".join(args[:4])))
        try:
            out, err = child.communicate(timeout=VERB_S)
        except subprocess.TimeoutExpired:
            self.story.add("%d hangs: %s" % (child.pid, self.processes.agents()))
            child.send_signal(signal.SIGABRT)
            out, err = child.communicate()
            raise RoundFailed("gpuctl %s does not end: %s" % (
                " ".join(args), err[-2000:].decode(errors="replace"))) from None
        finally:
            with self.lock:
                self.clients.pop(child.pid, None)
        code = child.returncode
        self.story.add("%d: %d %r" % (child.pid, code, err[-600:].decode(errors="replace")))
        check(code == -signal.SIGKILL and child.pid in self.hurt or
              code in (CODES if codes is None else codes),
              "gpuctl %s: exit %d\n%s\n%s" % (
                  " ".join(args), code, out[-1000:].decode(errors="replace"),
                  err[-2000:].decode(errors="replace")))
        return code, out, err

    def rows(self):
        code, out, _ = self.gpuctl("ps", "-a", "--json", codes={0})
        return {row["name"]: row for row in json.loads(out)["runs"]} if code == 0 else {}

    # Somebody who uses a job.

    def use(self, job):
        try:
            if job.has_workdir:
                os.makedirs(job.home)
                self.change(job, 0)
            time.sleep(min(1, job.pauses_s[-1]))
            attached = threading.Thread(target=self.guarded, args=(self.launch, job))
            attached.start()
            if job.detached:
                attached.join()
            for verb, pause_s in zip(job.verbs, job.pauses_s):
                time.sleep(min(1, pause_s))
                self.use_verb(job, verb)
            attached.join()
        except Exception as error:
            self.problems.append(error)

    def guarded(self, function, *args):
        try:
            function(*args)
        except Exception as error:
            self.problems.append(error)

    def launch(self, job):
        where = ["--host", self.host[0], "-i", self.host[1]] if self.host else []
        words = job.launch()
        code, out, _ = self.gpuctl(*words[:1], *where, *words[1:])
        job.launched = code
        if not job.detached:
            job.shown.append(("launch", out, code >= 0))

    def change(self, job, version):
        with open(os.path.join(job.home, "input"), "wb") as file:
            file.write(b"%d" % version + job.random_bytes)

    def use_verb(self, job, verb):
        name = job.name
        if verb == "stop":
            job.was_stopped = True
        words = {"logs -f": ["logs", "-f", name], "ps -u": ["ps", "-u"],
                 "wait": ["wait", name, "--timeout", "2s"],
                 "pull": ["pull", name, "--to", "home-" + name],
                 "cp": ["cp", name + ":out/result", "result-" + name],
                 "exec": ["exec", name, "--", "cat", "out/result"],
                 "sync": ["sync", name]}.get(verb, [verb, name])
        if verb == "sync":
            if not job.has_workdir:
                return
            self.change(job, self.random.randrange(1000))
        code, out, err = self.gpuctl(*words)
        self.round.note(words[0])
        if code < 0:
            # Its node may have removed the job before it was killed; then it was at home.
            job.removed |= verb == "rm"
            return
        if verb in ("attach", "logs -f", "logs"):
            job.shown.append((verb, out, code == 0))
        if code != 0:
            return
        if verb == "stop":
            job.stopped_at = len(job.journal.starts())
            check(not job.journal.is_alive(), "%s lives after stop: %s" % (name, job.journal))
        elif verb == "pull":
            self.check_pulled(job)
        elif verb in ("cp", "exec"):
            if verb == "cp":
                with open(os.path.join(self.laptop.work, "result-" + name), "rb") as file:
                    out = file.read()
            # The job may be writing it again in a second attempt.
            check(b"".join(self.result(1))[:20].startswith(out[:10]) or len(job.journal.starts()) > 1,
                  "%s: %r" % (verb, out))
        elif verb == "sync":
            with open(os.path.join(job.home, "input"), "rb") as file:
                here = file.read()
            with contextlib.suppress(FileNotFoundError):  # removed since
                with open(self.directory(job) + "/work/input", "rb") as file:
                    check(file.read() == here, "%s: sync sent something else" % name)
        elif verb == "rm":
            job.removed = True
            check(not job.journal.is_alive(), "%s lives after rm" % name)

    @staticmethod
    def result(attempt):
        return [b"artifact %d of attempt %d\n" % (n, attempt) for n in (1, 2, 3)]

    def directory(self, job):
        if job.row is None:
            job.row = self.rows()[job.name]
        return os.path.join(self.laptop.root, "jobs", job.row["job_id"])

    def check_pulled(self, job):
        home = os.path.join(self.laptop.work, "home-" + job.name)
        for entry in os.listdir(home):
            if entry.startswith("step-"):
                with open(os.path.join(home, entry, "w"), encoding="utf-8") as file:
                    check(file.read() == "weights %d\n" % int(entry[5:]), "a wrong checkpoint")

    # Chaos.

    def hurt_one(self):
        role = self.random.choices(list(VICTIMS), VICTIMS.values())[0]
        kill = self.random.random() < 0.6
        stand_s = self.random.choice((0.05, 0.3, 1.5))
        chance = self.random.random()
        with self.lock:
            pids = self.processes.of(role, dict(self.clients))
            if not pids:
                return
            pid = pids[int(chance * len(pids))]
            if role == "client" and self.clients.get(pid) == "ps":
                return
            words = words_of(pid)
            if role == "shim" and kill and len(words) > 2:
                self.shims_killed.setdefault(os.path.basename(words[1].decode()), set()).add(
                    int(words[2]))
            if role == "client" and kill:
                self.hurt.add(pid)
            self.story.add("%s %s %d" % ("kill" if kill else "stop for %g s" % stand_s, role, pid))
            send(pid, signal.SIGKILL if kill else signal.SIGSTOP)
            if not kill:
                self.stopped.add(pid)
        self.round.note(("killed " if kill else "stopped ") + role)
        if not kill:
            time.sleep(stand_s)
            self.go_on(pid)

    def go_on(self, pid):
        with self.lock:
            self.stopped.discard(pid)
            send(pid, signal.SIGCONT)

    def chaos(self, done):
        pauses = iter(lambda: self.random.expovariate(5), None)
        for _ in range(self.random.randrange(3, 14)):
            if done.wait(next(pauses)):
                break
            self.hurt_one()

    # The round.

    def live(self):
        done = threading.Event()
        chaos = threading.Thread(target=self.guarded, args=(self.chaos, done))
        users = [threading.Thread(target=self.use, args=(job,)) for job in self.jobs]
        for each in [chaos, *users]:
            each.start()
        for each in users:
            each.join()
        done.set()
        chaos.join()
        for pid in list(self.stopped):
            self.go_on(pid)
        if self.problems:
            raise self.problems[0]

    def settle(self):
        rows = self.rows()
        for job in self.jobs:
            job.row = rows.get(job.name)
            if job.row is None:
                check(job.launched != 0 and not job.journal.starts(),
                      "%s is not listed: %s" % (job.name, job.journal))
                continue
            job.waited, _, _ = self.gpuctl("wait", job.name, "--timeout", "60s")
        rows = self.rows()
        for job in self.jobs:
            if job.row is not None:
                job.row = rows[job.name]
                self.check_truth(job)
                self.check_output(job)
                self.check_results(job)

    def check_truth(self, job):
        """Expects that what ps and wait say is what the journal says."""
        row, journal = job.row, job.journal
        said = "%s: ps says %s, %s, code %s; wait %d; journal: %s" % (
            job.name, row["status"], row["reason"], row["exit_code"], job.waited, journal)
        self.story.add(said)
        starts, ends = journal.starts(), journal.ends()
        torn = self.shims_killed.get(row["job_id"], set())
        check(not journal.of("overlap"), said)
        check(not journal.is_alive(), "it lives. " + said)
        check(starts == sorted(set(starts)), "an attempt started twice. " + said)
        for before, attempt in zip(starts, starts[1:]):
            may = job.retry_lost and before in torn or job.failures and ends.get(before) == 75
            check(attempt == before + 1 and may, "it should not start again. " + said)
        check(job.waited == row["exit_code"], "wait and ps differ. " + said)
        check(job.stopped_at is None or len(starts) == job.stopped_at,
              "it started after stop. " + said)
        status, code = row["status"], row["exit_code"]
        if not starts:
            check(status in ("failed", "stopped") or status == "lost" and 1 in torn, said)
            check(job.launched != 0 or job.was_stopped or torn, "it never started. " + said)
            return
        last = starts[-1]
        # The shim of one attempt more may have died before its job wrote a word.
        again = job.failures and ends.get(last) == 75 or job.retry_lost and last in torn
        truth = set()
        if last in ends:
            truth.add(("succeeded" if ends[last] == 0 else "failed", ends[last]))
        if job.was_stopped:
            # Between two attempts there is nothing that a code could come from but the stop.
            truth.update(("stopped", each) for each in
                         ([ends[last]] if last in ends else [143, 137]) + [143] * bool(again))
        if last in torn or again and last + 1 in torn:
            truth.add(("lost", 125))
        check((status, code) in truth, "the truth is one of %s. %s" % (sorted(truth), said))
        self.round.note(status)

    def check_output(self, job):
        """Expects the same bytes in the job's words, on the node, at home and in all that verbs
        showed."""
        code, out, _ = self.gpuctl("logs", job.name, codes={0, 1})
        if not job.journal.starts():
            return
        check(code == 0, "logs %s: %d" % (job.name, code))
        torn = self.shims_killed.get(job.row["job_id"], set())
        check(job.journal.explains(out.decode(), torn),
              lambda: "output of %s: %r; %s" % (job.name, out, job.journal))
        folder = self.directory(job) + "/output"
        if os.path.isdir(folder):
            there = b""
            for name in sorted(os.listdir(folder)):
                with open(os.path.join(folder, name), "rb") as file:
                    there += file.read()
            check(there == out, lambda: "%s: %r on the node, %r here" % (job.name, there, out))
        for verb, shown, whole in job.shown:
            check(shown in out, lambda: "%s showed %r of %r" % (verb, shown, out))
            if verb == "launch" and whole:
                check(out.startswith(shown), "launch began later")

    def check_results(self, job):
        """Pulls once more and expects the newest checkpoint and the artifact, then removes the
        job. Neither may fail now."""
        saved = [attempt for attempt, in job.journal.of("saved")]
        there = os.path.isdir(self.directory(job))
        check(there or job.removed or not job.journal.starts() or job.row["status"] != "succeeded",
              "%s is gone from the node" % job.name)
        if not there:
            return
        code, out, err = self.gpuctl("pull", job.name, "--to", "home-" + job.name, codes={0, 1})
        if saved:
            check(code == 0, "pull %s: %s" % (job.name, err))
            home = os.path.join(self.laptop.work, "home-" + job.name)
            check(os.path.isdir(os.path.join(home, "step-%08d" % saved[-1])),
                  "the newest checkpoint is not home: %s" % os.listdir(home))
            self.check_pulled(job)
            with open(self.directory(job) + "/work/out/result", "rb") as file:
                there = file.read()
            with open(os.path.join(home, "out/result"), "rb") as file:
                check(file.read() == there, "the artifact differs")
            check(sorted(os.listdir(home + "/out")) == ["result"], os.listdir(home + "/out"))
        self.gpuctl("rm", job.name, "--force", codes={0})
        check(not os.path.exists(self.directory(job)), "%s is there after rm" % job.name)
        code, again, _ = self.gpuctl("logs", job.name, codes={0, 1})
        self.round.note("jobs")

    def check_nothing_left(self):
        def left():
            return [(role, pid) for role, pid in self.processes.agents()
                    if role not in ("guard", "server")] + self.processes.left_sshds()
        eventually(lambda: not left(), lambda: "processes are left: %s" % left(), 20)
        kills = sum(self.round.notes.get("killed " + role, 0) for role in VICTIMS)
        torn, parts = [], []
        for folder in (self.laptop.env["GPUCTL_STATE_DIR"], self.laptop.root, self.laptop.work):
            for path, folders, files in os.walk(folder):
                # The next delivery, or the next push, removes the remains there.
                if path in (self.laptop.root + "/bin", self.laptop.root + "/blobs/trees"):
                    continue
                for name in [*folders, *files]:
                    if path.startswith(self.laptop.work) and name.startswith(".gpuctl-partial-"):
                        parts.append(os.path.join(path, name))
                        continue
                    check("partial" not in name and ".old" not in name,
                          "%s/%s is left" % (path, name))
                    if ".tmp-" in name:
                        torn.append(os.path.join(path, name))
        # What a killed cp or pull had received: the next one there goes on with it.
        check(len(parts) <= self.round.notes.get("killed client", 0), "these are left: %s" % parts)
        # A small file that was being replaced when its writer was killed.
        check(len(torn) <= kills, "these are left: %s" % torn)


def one_round(mode, gpuctl, fake_job):
    def go(this):
        laptop = Laptop(gpuctl, fake_job)
        failed = True
        processes = Processes(laptop.root)
        try:
            with contextlib.ExitStack() as stack:
                host = None
                if mode == "ssh":
                    port, folder, _ = stack.enter_context(ssh_server(laptop))
                    host = ("%s@127.0.0.1:%d" % (pwd.getpwuid(os.geteuid()).pw_name, port),
                            os.path.join(folder, "user"))
                # Else most of a round is the first delivery of the agent.
                if this.random.random() < (0.85 if host else 0.5):
                    laptop.run("launch", "--no-workdir", "--", "true")
                world = World(this, laptop, host)
                processes = world.processes
                world.live()
                world.settle()
                world.check_nothing_left()
                failed = False
        finally:
            processes.end()
            this.close(laptop.dir, failed)
    return go


if __name__ == "__main__":
    wanted = options(3)
    run("chaos_" + wanted.words[0], one_round(*wanted.words), wanted)

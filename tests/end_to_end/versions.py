#!/usr/bin/env python3
"""Laptops with different builds at one node, over the real path.

  versions.py GPUCTL FAKE_JOB NEWER [TEST...]

NEWER is the directory of a gpuctl and a gpuctl-agent with a higher protocol level.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from runs import DEADLINE_S, Laptop, open_gate, run_tests
from slots import give_gpus, held
from sync import eventually, project, read, write

NEWER = os.path.abspath(sys.argv.pop(3)) if __name__ == "__main__" else None


def level_of(folder):
    return int(subprocess.check_output([os.path.join(folder, "gpuctl-agent"), "api-level"]))


class Other(Laptop):
    """Another laptop, with its own programs, at the node of `laptop`."""

    def __init__(self, laptop, name, gpuctl_from=None, agent_from=None):
        built = os.path.dirname(laptop.gpuctl)
        self.dir = os.path.join(laptop.dir, name)
        self.bin = os.path.join(self.dir, "bin")
        self.work = os.path.join(self.dir, "work")
        os.makedirs(self.bin)
        os.mkdir(self.work)
        for program, folder in (("gpuctl", gpuctl_from), ("gpuctl-agent", agent_from),
                                ("gpuctl-shim", None)):
            shutil.copy2(os.path.join(folder or built, program), self.bin)
        self.gpuctl = os.path.join(self.bin, "gpuctl")
        self.fake_job = laptop.fake_job
        self.root = laptop.root
        self.env = {**laptop.env, "GPUCTL_STATE_DIR": os.path.join(self.dir, "state"),
                    "GPUCTL_CACHE_DIR": os.path.join(self.dir, "cache")}

    def built_at(self, time_s):
        for program in os.listdir(self.bin):
            os.utime(os.path.join(self.bin, program), (time_s, time_s))


def newer_laptop(l, name):
    """Makes a laptop with a future build whose files have an old date."""
    other = Other(l, name, NEWER, NEWER)
    other.built_at(1_000_000_000)
    return other


def agents(l, command):
    """Returns the node's processes that run this command of the agent: {pid: bundle}."""
    found = {}
    for pid in l.node_pids():
        with contextlib.suppress(OSError):
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            if words[1:2] == [command.encode()] and b"--detach" not in words:
                found[pid] = os.path.dirname(os.readlink("/proc/%d/exe" % pid))
    return found


def current(l):
    return os.path.realpath(l.root + "/bin/current")


def one_agent_of(l, bundle):
    return all(list(agents(l, command).values()) == [bundle] for command in ("guard", "server"))


def use(l, name, home, work):
    """Uses a run with all verbs for existing runs."""
    write(home + "/a", "second")
    assert l.json("sync", name)["written"] == 1 and read(work + "/a") == "second"
    assert l.run("exec", name, "--", "cat", "a").stdout == b"second"
    l.run("cp", name + ":a", os.path.join(l.work, "copy"))
    l.run("pull", name, "a", "--to", "home")
    assert read(l.work + "/home/a") == "second"
    assert l.run("launch", "-y", "--no-workdir", "--", "echo", "on").stdout == b"on\n"
    assert json.loads(l.run("doctor", "--json", code=None).stdout)["checks"]


def test_an_older_gpuctl_works_on_and_takes_nothing_back(l):
    home, work, gate = project(l, "elder", a="first")
    shown = l.start("attach", "elder")
    old = current(l)
    newer = newer_laptop(l, "tomorrow")
    # Its files are older, but its level is higher, and that decides.
    assert newer.run("launch", "-y", "--no-workdir", "--", "echo", "new").stdout == b"new\n"
    new = current(l)
    assert new != old and read(new + "/api_level") == "1000\n", new
    eventually(lambda: one_agent_of(l, new), "guard and server of the newer build")
    took_over = agents(l, "guard"), agents(l, "server")
    # A third laptop, with an older build that was installed just now.
    late = Other(l, "late")
    with open(late.bin + "/gpuctl-agent", "ab") as file:
        file.write(b"another build")
    assert late.run("launch", "-y", "--no-workdir", "--", "echo", "late").stdout == b"late\n"
    use(l, "elder", home, work)
    checks = {check["name"]: check for check in l.json("doctor", code=None)["checks"]}
    assert checks["link to local"]["ok"], checks
    assert "newer than this gpuctl: api level 1000 to" in checks["link to local"]["found"], checks
    newer.run("launch", "-y", "--no-workdir", "--", "true")
    assert current(l) == new
    assert (agents(l, "guard"), agents(l, "server")) == took_over
    open_gate(gate)
    assert shown.wait(timeout=DEADLINE_S) == 0, shown.stderr.read()


def test_an_upgrade_keeps_the_secrets_of_queued_runs(l):
    own = Other(l, "queued")
    own.root = own.env["GPUCTL_NODE_ROOT"] = os.path.join(own.dir, "node")
    own.env["UPGRADE_TOKEN"] = "s3cret-value"
    give_gpus(own, 1)
    gate = held(own, "first-1", "--gpus", "1")
    seen = os.path.join(own.dir, "token")
    own.run("launch", "-d", "--no-workdir", "--name", "second-1", "--gpus", "1", "--secret",
            "UPGRADE_TOKEN", "--", "bash", "-c", "echo $UPGRADE_TOKEN > " + seen)
    newer = newer_laptop(own, "tomorrow-with-queue")
    newer.run("launch", "-y", "--no-workdir", "--gpus", "0", "--", "true")
    new = current(own)
    eventually(lambda: one_agent_of(own, new), "guard and server of the newer build")
    assert subprocess.run(["grep", "-rqs", "s3cret-value", own.root]).returncode == 1
    assert not own.json("show", "second-1")["queue"]["needs_secrets"]
    open_gate(gate)
    assert newer.run("doctor", code=None) and own.run("wait", "second-1").returncode == 0
    assert read(seen) == "s3cret-value\n"
    own.close()


def test_what_dies_comes_back_as_the_newer_build(l):
    home, work, gate = project(l, "orphan", a="first")
    newer = newer_laptop(l, "tomorrow-again")
    newer.run("launch", "-y", "--no-workdir", "--", "true")
    new = current(l)
    eventually(lambda: one_agent_of(l, new), "guard and server of the newer build")
    for victims in (["guard"], ["server"], ["guard", "server"]):
        for victim in [pid for command in victims for pid in agents(l, command)]:
            os.kill(victim, signal.SIGKILL)
        assert l.run("exec", "orphan", "--", "cat", "a").stdout == b"first"
        eventually(lambda: one_agent_of(l, new), "the newer build after %s died" % victims)
    open_gate(gate)
    l.run("wait", "orphan")


def test_a_gpuctl_with_an_older_agent_beside_it_says_so(l):
    mixed = Other(l, "mixed", gpuctl_from=NEWER)
    level = level_of(mixed.bin)
    mixed.env["GPUCTL_NODE_ROOT"] = mixed.root = os.path.join(l.dir, "node of mixed")
    try:
        for verb in (["launch", "-y", "--no-workdir", "--", "true"], ["doctor"]):
            done = mixed.run(*verb, code=None)
            said = (done.stdout + done.stderr).decode()
            assert done.returncode == 1 and "(api level %d, 1000 is needed)" % level in said, done
            assert "HINT: the gpuctl-agent of this gpuctl (%s/gpuctl-agent)" % mixed.bin in said
    finally:
        for pid in list(mixed.node_pids()):
            os.kill(pid, signal.SIGKILL)


def test_an_older_server_that_hangs_is_named(l):
    stuck = Laptop(l.gpuctl, l.fake_job)
    frozen = []
    try:
        home, work, gate = project(stuck, "stuck", a="first")
        job = [pid for pid in stuck.node_pids()
               if pid not in agents(stuck, "guard") and pid not in agents(stuck, "server")]
        frozen = [*agents(stuck, "guard"), *agents(stuck, "server")]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        newer = newer_laptop(stuck, "tomorrow")
        done = newer.run("doctor", code=1)
        older = "older (api level %d, this gpuctl needs 1000) and has not made way"
        assert older % level_of(os.path.dirname(l.gpuctl)) in done.stdout.decode(), done
        hint = "pkill -KILL -f '[g]puctl-agent (guard|server) --root %s'" % stuck.root
        assert hint in done.stdout.decode(), done
        pattern = hint.split("'")[1]
        named = subprocess.run(["pgrep", "-f", pattern], stdout=subprocess.PIPE).stdout.split()
        assert sorted(map(int, named)) == sorted(frozen), (named, frozen)
        for pid in frozen:
            os.kill(pid, signal.SIGKILL)
        assert b"1000" not in newer.run("launch", "-y", "--no-workdir", "--", "true").stderr
        assert all(os.path.exists("/proc/%d" % pid) for pid in job), job
        open_gate(gate)
        stuck.run("wait", "stuck")
    finally:
        stuck.close()


def test_programs_for_nodes_say_what_they_are(l):
    built = os.path.dirname(l.gpuctl)
    platform = "linux-" + os.uname().machine
    version = l.run("--version").stdout.decode().split()[1]
    for folder, level in ((built, level_of(built)), (NEWER, 1000)):
        said = subprocess.check_output([folder + "/gpuctl-agent", "--version"]).decode()
        assert said == "gpuctl-agent %s %s, api level %d\n" % (version, platform, level), said
    said = subprocess.check_output([built + "/gpuctl-shim", "--version"]).decode()
    assert said == "gpuctl-shim %s %s, api level %d\n" % (version, platform, level_of(built)), said
    said = subprocess.check_output([built + "/gpuctl-cuda-check", "--version"]).decode()
    assert said == "gpuctl-cuda-check %s %s\n" % (version, platform), said


def test_a_server_says_its_level_before_it_listens(l):
    l.run("launch", "-y", "--no-workdir", "--", "true")
    note = json.loads(read(l.root + "/node/server.json"))
    (pid, bundle), = agents(l, "server").items()
    assert (note["pid"], note["bundle"]) == (pid, bundle), (note, pid, bundle)
    assert note["api_level"] == level_of(bundle), note


def test_bundles_that_nothing_needs_go_with_an_upgrade(l):
    first = Laptop(l.gpuctl, l.fake_job)
    bundles = lambda: {name for name in os.listdir(first.root + "/bin") if len(name) == 32}
    try:
        home, work, gate = project(first, "long", a="first")
        names = [os.path.basename(current(first))]
        builds = []
        for number in range(1, 5):
            builds.append(Other(first, "build%d" % number))
            with open(builds[-1].bin + "/gpuctl-agent", "ab") as file:
                file.write(b"build %d" % number)
            builds[-1].built_at(time.time() + 1000 * number)
            if number == 4:
                # The others were delivered and used days ago.
                for name in bundles():
                    os.utime(os.path.join(first.root, "bin", name), (1_000_000_000, 1_000_000_000))
            builds[-1].run("launch", "-y", "--no-workdir", "--", "true")
            names.append(os.path.basename(current(first)))
        assert len(set(names)) == 5, names
        # The newest two stay, and that of the running shim.
        eventually(lambda: bundles() == {names[0], names[3], names[4]}, "the sweep")
        # A laptop whose build was removed delivers it again, and does not make it current.
        for _ in range(2):
            done = builds[0].run("launch", "-y", "--no-workdir", "--", "echo", "here")
            assert done.stdout == b"here\n", done
        assert os.path.basename(current(first)) == names[4] and names[1] in bundles()
        assert first.run("exec", "long", "--", "cat", "a").stdout == b"first"
        open_gate(gate)
        first.run("wait", "long")
    finally:
        first.close()


if __name__ == "__main__":
    run_tests(globals())

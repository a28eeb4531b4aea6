#!/usr/bin/env python3
"""The agent's directory is removed under a running agent, or there are two of them.

  removed_root.py GPUCTL FAKE_JOB [TEST...]
"""
import json
import os
import shutil
import signal
import subprocess
import time

from runs import cmdline, is_locked, open_gate, run_tests, wait_until


def agents(root, command):
    """Returns the pids of a root's guards, or servers."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            words = cmdline(int(name)).split(b"\0")
            if words[1:2] == [command] and root.encode() in words and b"--detach" not in words:
                found.append(int(name))
    return found


def remove(root):
    """Removes it, although its agent may write there meanwhile."""
    while os.path.exists(root):
        shutil.rmtree(root, ignore_errors=True)


def test_a_launch_after_its_removal_gets_a_fresh_one(l):
    assert l.run("launch", "--no-workdir", "--", "echo", "one").stdout == b"one\n"
    (guard,), (server,) = agents(l.root, b"guard"), agents(l.root, b"server")
    remove(l.root)
    # At once, while the old ones may still live.
    done = l.run("launch", "--no-workdir", "--", "echo", "two")
    assert done.stdout == b"two\n" and b"HINT" not in done.stderr, done
    # The old ones end, and the new ones stay; or the old guard has seen the new root first, and
    # guards it.
    lock = os.path.join(l.root, "guard.lock")

    def fresh():
        guards, servers = agents(l.root, b"guard"), agents(l.root, b"server")
        return (len(guards) == len(servers) == 1 and server not in servers and
                (guard not in guards or os.path.exists(lock) and is_locked(lock)))
    wait_until(fresh, "only the new root has an agent")
    assert l.run("launch", "--no-workdir", "--", "echo", "three").stdout == b"three\n"


def test_what_is_removed_for_good_comes_not_back(l):
    l.run("launch", "--no-workdir", "--", "true")
    remove(l.root)
    wait_until(lambda: not agents(l.root, b"guard") and not agents(l.root, b"server"),
               "guard and server end")
    assert not os.path.exists(l.root)


def test_an_agent_that_nobody_needs_ends_and_comes_back(l):
    gate = os.path.join(l.dir, "gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "kept", "--", "bash", "-c", "read x < " + gate)
    # A guard that waits for a second, not for an hour.
    for pid in agents(l.root, b"server") + agents(l.root, b"guard"):
        os.kill(pid, signal.SIGKILL)
    program = os.path.join(l.root, "bin", "current", "gpuctl-agent")

    def other_guard():
        for pid in agents(l.root, b"guard"):
            os.kill(pid, signal.SIGKILL)  # the job's shim has started one
        subprocess.Popen([program, "guard", "--root", l.root], env={**l.env, "GPUCTL_IDLE_END": "1"},
                         stdin=subprocess.DEVNULL, start_new_session=True)
        time.sleep(0.5)
        return [b"GPUCTL_IDLE_END=1" in open("/proc/%d/environ" % pid, "rb").read()
                for pid in agents(l.root, b"guard")] == [True]
    wait_until(other_guard, "that guard has the lock")
    (guard,) = agents(l.root, b"guard")
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() - begin > 4, "nobody is here for long")
    assert agents(l.root, b"guard") == [guard], "a job is there"
    open_gate(gate)
    wait_until(lambda: not agents(l.root, b"guard") and not agents(l.root, b"server"),
               "guard and server end by themselves")
    assert "it ends" in open(os.path.join(l.root, "node", "agent.log")).read()
    # Whoever comes finds all, and starts them again.
    assert l.run("wait", "kept", code=0).returncode == 0
    assert l.run("launch", "--no-workdir", "--", "echo", "two").stdout == b"two\n"


def test_a_guard_without_its_lock_takes_it_again(l):
    l.run("launch", "--no-workdir", "--", "true")
    (guard,) = agents(l.root, b"guard")
    lock = os.path.join(l.root, "guard.lock")
    os.unlink(lock)
    wait_until(lambda: os.path.exists(lock) and is_locked(lock), "a guard has the lock again")
    wait_until(lambda: len(agents(l.root, b"guard")) == 1, "there is one guard")
    assert l.run("launch", "--no-workdir", "--", "echo", "on").stdout == b"on\n"


def test_the_limits_of_a_rented_machine_outlive_its_root(l):
    """It bills on, so the guard puts them back."""
    l.run("launch", "--no-workdir", "--", "true")
    limits, clock = os.path.join(l.root, "limits.json"), os.path.join(l.root, "clock.json")
    wait_until(lambda: os.path.exists(clock), "the guard has noted the time")
    with open(clock) as file:
        now = json.load(file)
    accepted = {key: now[key] for key in ("boot_id", "since_boot_ms", "time_ms")}

    def seen(revision):
        with open(clock) as file:
            return json.load(file).get("revision") == revision

    # Twice, so that the guard has seen the first one in a whole turn of its loop.
    for revision in (1, 2):
        with open(limits + ".new", "w") as file:
            json.dump({"accepted": accepted, "limits": {
                "revision": revision, "rate_usd_per_hour": 1, "idle_s": 100000}}, file)
        os.rename(limits + ".new", limits)
        wait_until(lambda: seen(revision), "the guard has seen the limits")
    (guard,) = agents(l.root, b"guard")
    remove(l.root)
    wait_until(lambda: os.path.exists(limits), "the limits are back")
    with open(limits) as file:
        assert json.load(file)["limits"]["rate_usd_per_hour"] == 1
    wait_until(lambda: os.path.exists(l.root + "/guard.lock") and
               agents(l.root, b"guard") == [guard] and is_locked(os.path.join(l.root, "guard.lock")), "the same process guards them")
    assert l.run("launch", "--no-workdir", "--", "echo", "on").stdout == b"on\n"
    assert agents(l.root, b"guard") == [guard]


def test_two_roots_with_one_list_of_runs(l):
    other = os.path.join(l.dir, "other-node")
    gates = {}
    for name, root in (("here-1", l.root), ("there-1", other)):
        gates[name] = os.path.join(l.dir, name + ".gate")
        os.mkfifo(gates[name])
        l.run("launch", "-d", "--no-workdir", "--name", name, "--", "bash", "-c",
              "echo in %s; read line < %s" % (name, gates[name]), GPUCTL_NODE_ROOT=root)
    for root in (l.root, other):
        runs = {run["name"]: run["status"] for run in l.json("ps", GPUCTL_NODE_ROOT=root)["runs"]}
        assert runs == {"here-1": "running", "there-1": "running"}, runs
        for name in gates:
            assert l.run("exec", name, "--", "echo", "x", GPUCTL_NODE_ROOT=root).stdout == b"x\n"
    for name, gate in gates.items():
        open_gate(gate)
        assert l.run("wait", name, GPUCTL_NODE_ROOT=l.root).returncode == 0
        assert l.run("logs", name).stdout == b"in %s\n" % name.encode()
    end(other)


def end(root):
    for pid in agents(root, b"guard") + agents(root, b"server"):
        os.kill(pid, signal.SIGKILL)


def test_another_node_answers_and_takes_newer_programs_in_that_moment(l):
    other = os.path.join(l.dir, "other-node")
    l.run("launch", "--no-workdir", "--", "true")
    # Its agent comes from another place than a client's bundle, so the next link replaces it: the
    # StartJob, which is for the node before, has no answer.
    subprocess.run([os.path.join(os.path.dirname(l.gpuctl), "gpuctl-agent"), "guard", "--root", other,
                    "--detach"], check=True)
    wait_until(lambda: agents(other, b"server"), "an agent on the other node")
    done = l.run("launch", "--no-workdir", "--", "echo", "there", GPUCTL_NODE_ROOT=other)
    assert done.stdout == b"there\n", done
    end(other)


if __name__ == "__main__":
    run_tests(globals(), apart=True)

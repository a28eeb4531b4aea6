#!/usr/bin/env python3
"""Runs that share the GPUs of a machine: the node's own queue.

  slots.py GPUCTL FAKE_JOB [TEST...]
"""
import os
import signal
import stat
import subprocess
import time

from runs import Terminal, cmdline, open_gate, run_tests, wait_until

SMI = """#!/bin/sh
# Stands in for nvidia-smi: lists GPUs once a second, as long as the agent reads.
while :; do
  echo "index, name, uuid, memory.total [MiB], utilization.gpu [%%]"
  i=0
  while [ $i -lt %d ]; do
    sleep %s
    echo "$i, NVIDIA H100 80GB HBM3, GPU-0000-$i, 81559, 0"
    i=$((i + 1))
  done
  sleep 1 || exit
done
"""


def uuid(index):
    return "GPU-0000-%d" % index


def give_gpus(l, count, pause="0", **env):
    """Starts an agent that finds `count` GPUs; -1: no driver. Jobs of an earlier one are over."""
    path = os.path.join(l.dir, "nvidia-smi")
    with open(path, "w") as file:
        file.write(SMI % (max(count, 0), pause))
    os.chmod(path, stat.S_IRWXU)
    start_agent(l, {**l.env, "GPUCTL_NVIDIA_SMI": path if count >= 0 else "", **env})


def start_agent(l, env, root=None):
    """Starts a guard with this environment, which an agent that comes by ssh would not have."""
    agent = os.path.join(os.path.dirname(l.gpuctl), "gpuctl-agent")
    subprocess.run([agent, "guard", "--root", root or l.root, "--detach"], env=env, check=True, timeout=300)


def held(l, name, *more):
    """Launches a run that notes its GPUs and ends when its gate is opened."""
    gate, seen = (os.path.join(l.dir, name + end) for end in (".gate", ".seen"))
    os.mkfifo(gate)
    script = 'echo "${CUDA_VISIBLE_DEVICES-all}" > %s.new && mv %s.new %s; read x < %s' % (
        seen, seen, seen, gate)
    l.run("launch", "-d", "--no-workdir", "--name", name, *more, "--", "bash", "-c", script)
    return gate


def gpus_of(l, name):
    path = os.path.join(l.dir, name + ".seen")
    wait_until(lambda: os.path.exists(path), name + " has begun")
    with open(path) as file:
        return file.read().strip()


def begun(l, name):
    return os.path.exists(os.path.join(l.dir, name + ".seen"))


def run_of(l, name):
    return next(run for run in l.json("ps", "-a")["runs"] if run["name"] == name)


def server_pid(l):
    return next(pid for pid in l.node_pids() if b"server" in cmdline(pid).split(b"\0"))


def kill_server(l):
    old = server_pid(l)
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: any(b"server" in cmdline(pid).split(b"\0") and pid != old
                           for pid in l.node_pids()), "another server")


def test_runs_get_gpus_of_their_own_and_wait_for_them(l):
    give_gpus(l, 4)
    first = held(l, "first-1", "--gpus", "1")
    second = held(l, "second-1", "--gpus", "2")
    assert {gpus_of(l, "first-1"), gpus_of(l, "second-1")} == {
        uuid(0), "%s,%s" % (uuid(1), uuid(2))}
    third = held(l, "third-1", "--gpus", "2")
    run = run_of(l, "third-1")
    assert (run["state"], run["status"]) == ("JOB_STATE_QUEUED", "queued"), run
    assert {key: run["queue"][key] for key in ("gpus", "free", "place", "needs_secrets")} == {
        "gpus": 2, "free": 1, "place": 1, "needs_secrets": False}, run
    assert b"queued: waits for 2 GPUs, 1 free, 1st" in l.run("ps").stdout
    assert b"waits for 2 GPUs, 1 free, 1st" in l.run("show", "third-1").stdout
    waiting = l.start("wait", "third-1", "--for", "running")
    said = waiting.stderr.readline()  # before the next run takes the free GPU
    assert b"third-1 waits for 2 GPUs, 1 free, 1st" in said, said
    t = Terminal(l, "top", columns=120)
    t.until(b"waits for 2 GPUs, 1 free, 1st")
    t.type(b"q")
    assert t.finish() == 0
    # A smaller one passes.
    small = held(l, "small-1", "--gpus", "1")
    assert gpus_of(l, "small-1") == uuid(3)
    fifth = held(l, "fifth-1", "--gpus", "1")
    assert run_of(l, "fifth-1")["queue"]["place"] == 2
    # Without any client, and after the death of the server.
    kill_server(l)
    assert not begun(l, "third-1")
    open_gate(second)
    assert gpus_of(l, "third-1") == "%s,%s" % (uuid(1), uuid(2))
    _, said = waiting.communicate(timeout=300)
    assert waiting.returncode == 0, said
    assert b"2: %s %s" % (uuid(1).encode(), uuid(2).encode()) in l.run("show", "third-1").stdout
    assert not begun(l, "fifth-1")
    open_gate(first)
    assert gpus_of(l, "fifth-1") == uuid(0)
    run = run_of(l, "third-1")
    assert run["status"] == "running" and run["queue"] is None, run
    assert run["gpu_ids"] == [uuid(1), uuid(2)], run
    for gate in (third, small, fifth):
        open_gate(gate)
    for name in ("first-1", "second-1", "third-1", "small-1", "fifth-1"):
        assert l.run("wait", name).returncode == 0


def test_more_than_the_node_has_is_refused_at_once(l):
    give_gpus(l, 2)
    done = l.run("launch", "-d", "--no-workdir", "--gpus", "3", "--", "true", code=121)
    assert b"it asks for 3 GPUs, and the node has 2 GPUs to give" in done.stderr, done.stderr
    assert os.listdir(os.path.join(l.root, "jobs")) == []
    assert l.json("ps")["runs"] == []


def test_a_driver_that_lists_one_gpu_after_the_other(l):
    give_gpus(l, 4, pause="0.4")
    gate = held(l, "first-1", "--gpus", "4")
    assert gpus_of(l, "first-1") == ",".join(uuid(i) for i in range(4))
    open_gate(gate)


def test_a_node_without_gpus(l):
    give_gpus(l, -1)
    done = l.run("launch", "-d", "--no-workdir", "--gpus", "1", "--", "true", code=121)
    assert b"the node has no GPU to give" in done.stderr, done.stderr
    none = held(l, "none-1", "--gpus", "0")
    assert gpus_of(l, "none-1") == ""
    open_gate(none)
    every = held(l, "every-1")
    assert gpus_of(l, "every-1") == "all"
    open_gate(every)


def test_a_run_without_a_number_has_all(l):
    give_gpus(l, 2)
    every = held(l, "every-1")
    assert gpus_of(l, "every-1") == "all"
    none = held(l, "none-1", "--gpus", "0")  # waits for nothing
    assert gpus_of(l, "none-1") == ""
    one = held(l, "one-1", "--gpus", "1")
    queue = run_of(l, "one-1")["queue"]
    assert queue["held_by"] == run_of(l, "every-1")["job_id"] and queue["free"] == 0, queue
    # One that says no number waits for nobody, as ever.
    other = held(l, "other-1")
    assert gpus_of(l, "other-1") == "all"
    open_gate(every)
    open_gate(other)
    assert gpus_of(l, "one-1") == uuid(0)
    open_gate(one)
    open_gate(none)


def test_only_the_gpus_that_the_agent_was_given(l):
    give_gpus(l, 4, CUDA_VISIBLE_DEVICES="2,GPU-0000-1")
    both = held(l, "both-1", "--gpus", "2")
    assert gpus_of(l, "both-1") == "%s,%s" % (uuid(2), uuid(1))
    done = l.run("launch", "-d", "--no-workdir", "--gpus", "3", "--", "true", code=121)
    assert b"the node has 2 GPUs to give" in done.stderr, done.stderr
    open_gate(both)


def test_a_waiting_run_is_stopped(l):
    give_gpus(l, 1)
    first = held(l, "first-1", "--gpus", "1")
    held(l, "second-1", "--gpus", "1")
    third = held(l, "third-1", "--gpus", "1")
    l.run("stop", "second-1")
    run = run_of(l, "second-1")
    assert run["status"] == "stopped" and run["queue"] is None, run
    assert run_of(l, "third-1")["queue"]["place"] == 1
    open_gate(first)
    assert gpus_of(l, "third-1") == uuid(0)
    assert not begun(l, "second-1")
    open_gate(third)


def test_attach_shows_the_wait_and_goes_live(l):
    give_gpus(l, 1)
    first = held(l, "first-1", "--gpus", "1")
    gate = held(l, "second-1", "--gpus", "1")
    t = Terminal(l, "attach", "second-1", columns=120)
    t.until(b"waits for 1 GPU, 0 free, 1st")
    open_gate(first)
    t.until(b"second-1 has its GPUs and runs")
    open_gate(gate)
    assert t.finish() == 0, t.text[-2000:]
    # Not on a terminal either.
    first = held(l, "third-1", "--gpus", "1")
    gate = held(l, "fourth-1", "--gpus", "1")
    attached = l.start("attach", "fourth-1")
    # Once the GPU is free, nothing is told of the wait.
    said = next(line for line in attached.stderr if b"waits for" in line)
    assert b"fourth-1 waits for 1 GPU, 0 free, 1st on local" in said, said
    open_gate(first)
    gpus_of(l, "fourth-1")
    open_gate(gate)
    _, rest = attached.communicate(timeout=300)
    assert attached.returncode == 0, rest


def test_secrets_wait_in_memory_only(l):
    give_gpus(l, 1)
    l.env["SLOT_TOKEN"] = "s3cret-value"
    first = held(l, "first-1", "--gpus", "1")
    seen = os.path.join(l.dir, "token")
    script = "echo $SLOT_TOKEN > %s.new && mv %s.new %s" % (seen, seen, seen)
    l.run("launch", "-d", "--no-workdir", "--name", "second-1", "--gpus", "1", "--secret",
          "SLOT_TOKEN", "--", "bash", "-c", script)
    open_gate(first)
    assert l.run("wait", "second-1").returncode == 0
    with open(seen) as file:
        assert file.read() == "s3cret-value\n"
    # A server that ends, as in an upgrade, hands them over to the next one.
    os.unlink(seen)
    first = held(l, "passed-1", "--gpus", "1")
    l.run("launch", "-d", "--no-workdir", "--name", "passed-2", "--gpus", "1", "--secret",
          "SLOT_TOKEN", "--", "bash", "-c", script)
    for _ in range(2):
        old = server_pid(l)
        os.kill(old, signal.SIGTERM)
        wait_until(lambda: any(b"server" in cmdline(pid).split(b"\0") and pid != old
                               for pid in l.node_pids()), "the guard starts another server")
        l.run("ps")
    assert not run_of(l, "passed-2")["queue"]["needs_secrets"]
    open_gate(first)
    assert l.run("wait", "passed-2").returncode == 0
    with open(seen) as file:
        assert file.read() == "s3cret-value\n"
    # One that is killed loses them, and the run says so until a client brings them.
    os.unlink(seen)
    first = held(l, "third-1", "--gpus", "1")
    l.run("launch", "-d", "--no-workdir", "--name", "fourth-1", "--gpus", "1", "--secret",
          "SLOT_TOKEN", "--", "bash", "-c", script)
    assert subprocess.run(["grep", "-rqs", "s3cret-value", l.root]).returncode == 1
    kill_server(l)
    wait_until(lambda: run_of(l, "fourth-1")["queue"]["needs_secrets"], "it says so")
    assert b"waits for the values of its secrets" in l.run("ps").stdout
    passes = held(l, "fifth-1", "--gpus", "1")
    open_gate(first)
    assert gpus_of(l, "fifth-1") == uuid(0)
    without = {**l.env}
    without.pop("SLOT_TOKEN")
    attached = subprocess.Popen([l.gpuctl, "attach", "fourth-1"], env=without, cwd=l.work,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT)
    said = b""
    while b"once they are here" not in said:
        said += attached.stdout.readline()
    assert b"SLOT_TOKEN" in said, said
    attached.send_signal(signal.SIGINT)
    attached.communicate(timeout=300)
    attached = l.start("attach", "fourth-1")
    wait_until(lambda: not run_of(l, "fourth-1")["queue"]["needs_secrets"], "they are there")
    open_gate(passes)
    attached.communicate(timeout=300)
    assert attached.returncode == 0
    with open(seen) as file:
        assert file.read() == "s3cret-value\n"


def test_a_run_joins_the_machine_of_another(l):
    give_gpus(l, 2)
    first = held(l, "first-1", "--gpus", "1")
    second = held(l, "second-1", "--on", "first-1", "--gpus", "1")
    assert gpus_of(l, "second-1") == uuid(1)
    third = held(l, "third-1", "--on", "local", "--gpus", "0")
    assert run_of(l, "third-1")["node"] == "local"
    for gate in (first, second, third):
        open_gate(gate)
    done = l.run("launch", "--on", "nowhere", "--no-workdir", "--", "true", code=1)
    assert b'there is no run and no machine "nowhere"' in done.stderr, done.stderr
    done = l.run("launch", "--on", "first-1", "--host", "box", "--no-workdir", "--", "true", code=2)
    assert b"--host does not go with it" in done.stderr, done.stderr


def test_the_time_limit_counts_from_the_start(l):
    give_gpus(l, 1)
    first = held(l, "first-1", "--gpus", "1")
    held(l, "second-1", "--gpus", "1", "--time", "2s")
    wait_until(lambda: l.json("debug", "job", "second-1"), "an answer")
    time.sleep(3)
    assert run_of(l, "second-1")["status"] == "queued"
    open_gate(first)
    assert l.run("wait", "second-1", code=119)
    assert gpus_of(l, "second-1") == uuid(0)


if __name__ == "__main__":
    run_tests(globals(), apart=True)

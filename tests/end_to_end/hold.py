#!/usr/bin/env python3
"""The node's side of a Slurm allocation: its batch script, the holder and the jobs, without Slurm.

  hold.py GPUCTL FAKE_JOB START_SCRIPT_TEXT [TEST...]

START_SCRIPT_TEXT prints the script, which sh runs as Slurm would. The root is below a directory
that stands for the node's disk, and another one stands for /.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from removed_root import agents
from runs import Patience, is_locked, open_gate, processes_with, run_tests, wait_until

START_SCRIPT_TEXT = os.path.abspath(sys.argv.pop(3)) if __name__ == "__main__" else None

# Jobs end within this time when nobody holds their allocation any more.
GONE_WITHIN_S = 20


class Allocation:
    def __init__(self, l, allowance=3600, grace=30, restart=None, results=None):
        self.l = l
        self.disk = os.path.join(l.dir, "disk")
        self.system = os.path.join(l.dir, "system")
        for folder in (self.disk, self.system + "/tmp"):
            os.makedirs(folder, exist_ok=True)
        self.own = "gpuctl-%d" % os.getuid()
        name = "4711-%d" % (restart or 0)
        self.root = os.path.join(self.disk, self.own, name)
        self.root_file = os.path.join(self.system, "tmp", self.own, name + ".root")
        text = subprocess.check_output([START_SCRIPT_TEXT, self.disk, str(allowance), str(grace)])
        path = os.path.join(l.dir, "batch")
        with open(path, "wb") as file:
            file.write(text)
        env = {**os.environ, "HOME": l.dir, "SLURM_JOB_ID": "4711", "SLURM_CPUS_ON_NODE": "3",
               "CUDA_VISIBLE_DEVICES": "5,7", "GPUCTL_SYSTEM_ROOT": self.system}
        # What the machine's first process was given is not for jobs.
        env["GPUCTL_PID1_ENVIRON"] = os.path.join(l.dir, "pid1")
        with open(env["GPUCTL_PID1_ENVIRON"], "wb") as file:
            file.write(b"PATH=/usr/bin:/bin\0CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\0")
        if results is not None:
            env.update(GPUCTL_RESULTS=results, GPUCTL_RESULTS_TOKEN="t0ken",
                       PATH=os.path.join(l.dir, "slurm") + ":" + env["PATH"])
        if restart is not None:
            env["SLURM_RESTART_COUNT"] = str(restart)
        with open(os.path.join(l.dir, "batch.out"), "ab") as out:
            self.script = subprocess.Popen(["/bin/sh", path], env=env, stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=out, start_new_session=True)

    def ready(self):
        wait_until(lambda: os.path.exists(self.root_file) or self.script.poll() is not None,
                   "the root's path")
        with open(self.root_file) as file:
            assert file.read() == self.root + "\n"
        assert os.stat(self.root_file).st_mode & 0o777 == 0o600
        self.l.root = self.root
        self.l.env["GPUCTL_NODE_ROOT"] = self.root
        return self

    def said(self):
        with open(os.path.join(self.l.dir, "batch.out")) as file:
            return file.read()

    def log(self):
        with open(os.path.join(self.root, "node", "agent.log")) as file:
            return file.read()

    def ends(self, code=0):
        """The script has ended, and has left nothing."""
        wait_until(lambda: self.script.poll() is not None, "the script ends")
        assert self.script.returncode == code, (self.script.returncode, self.said())
        assert not os.path.exists(self.root), os.listdir(self.root)
        assert os.listdir(os.path.dirname(self.root_file)) == []
        # The client's own processes are not the node's.
        left = {pid: text for pid, text in processes_with(self.root.encode()).items()
                if b"gpuctl\0launch" not in text and b"sshd" not in text}
        assert not left, left

    def holder(self):
        wait_until(lambda: len(agents(self.root, b"hold")) == 1 and
                   is_locked(os.path.join(self.root, "guard.lock")), "there is a holder")
        return agents(self.root, b"hold")[0]

    def bring(self, name="b1", version=1):
        """Does what a client does first, without its bridge: the programs are there."""
        bundle = os.path.join(self.root, "bin", name)
        os.makedirs(bundle)
        for program in ("gpuctl-agent", "gpuctl-shim"):
            shutil.copy2(os.path.join(os.path.dirname(self.l.gpuctl), program), bundle)
        level = subprocess.check_output([os.path.join(bundle, "gpuctl-agent"), "api-level"])
        for file, text in (("version", b"%d\n" % version), ("api_level", level)):
            with open(os.path.join(bundle, file), "wb") as out:
                out.write(text)
        return bundle

    def bridge(self, bundle):
        return subprocess.Popen([os.path.join(bundle, "gpuctl-agent"), "bridge", "--root", self.root],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)


def greeted(bridge):
    return bridge.stdout.readline() == b"\n" and bridge.stdout.readline().startswith(b"GPUCTL-BRIDGE")


def launch(l, name, *script):
    """Starts a job that writes its processes' ids to NAME.pid, and waits for that file."""
    l.run("launch", "-d", "--no-workdir", "--name", name, "--", "bash", "-c",
          "".join(script) % {"dir": l.dir, "name": name})
    path = os.path.join(l.dir, name + ".pid")
    wait_until(lambda: os.path.exists(path) and open(path).read().endswith("\n"), "the job began")
    with open(path) as file:
        return [int(word) for word in file.read().split()]


# A job with a child that has left its session, and one that nobody waits for.
PIDS = ("setsid sleep 600 & a=$!; (setsid sleep 600 & echo $! > %(dir)s/%(name)s.second); "
        "read b < %(dir)s/%(name)s.second; echo $$ $a $b > %(dir)s/%(name)s.pid; ")


def alive(pids):
    found = []
    for pid in pids:
        try:
            with open("/proc/%d/stat" % pid) as file:
                if file.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append(pid)
        except OSError:
            pass
    return found


def gone_in_time(pids):
    begin = time.monotonic()
    patience = Patience(GONE_WITHIN_S)
    while alive(pids):
        assert patience.lasts(), "they live longer than %d s: %s" % (GONE_WITHIN_S, alive(pids))
        time.sleep(0.05)
    print("     gone after %.1f s" % (time.monotonic() - begin))


def test_its_end_reaches_the_jobs(l):
    a = Allocation(l).ready()
    follower = l.start("launch", "--no-workdir", "--name", "saves", "--", "bash", "-c",
                       "trap 'mkdir -p $GPUCTL_CHECKPOINT_DIR; echo state > "
                       "$GPUCTL_CHECKPOINT_DIR/a; echo saved; exit 3' TERM; %s"
                       "echo $SLURM_JOB_ID $SLURM_CPUS_ON_NODE $CUDA_VISIBLE_DEVICES; wait $a" %
                       (PIDS % {"dir": l.dir, "name": "saves"}))
    wait_until(lambda: os.path.exists(l.dir + "/saves.pid"), "the job began")
    a.script.send_signal(signal.SIGTERM)
    out, err = follower.communicate(timeout=300)
    # The environment is that of the batch script, and the handler has saved something.
    assert b"4711 3 5,7\n" in out and b"saved\n" in out, (out, err)
    a.ends()
    with open(l.dir + "/saves.pid") as file:
        assert not alive([int(pid) for pid in file.read().split()])
    run = l.json("show", "saves")
    assert run["reason"] == "the allocation ends" and run["exit_code"] == 3, run


def test_a_job_that_does_not_end_is_killed_after_the_grace(l):
    a = Allocation(l, grace=1).ready()
    pids = launch(l, "deaf", "trap '' TERM; ", PIDS, "while :; do sleep 1; done")
    a.script.send_signal(signal.SIGTERM)
    a.ends()
    assert not alive(pids)


def test_a_holder_that_dies_is_started_again(l):
    a = Allocation(l).ready()
    gate = l.dir + "/lives.gate"
    os.mkfifo(gate)
    launch(l, "lives", PIDS, "kill $a $b; read x < %(dir)s/lives.gate; echo went on")
    first = a.holder()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: agents(a.root, b"hold") not in ([], [first]), "there is another one")
    assert a.holder() != first
    open_gate(gate)
    assert l.run("wait", "lives").returncode == 0
    assert b"went on\n" in l.run("logs", "lives").stdout
    # The new one did not start this server, and is not the parent of this shim.
    pids = launch(l, "next", "trap 'echo saved; exit 3' TERM; ", PIDS, "wait $a")
    a.script.send_signal(signal.SIGTERM)
    a.ends()
    assert not alive(pids)


def test_without_script_and_holder_all_ends(l):
    a = Allocation(l).ready()
    pids = launch(l, "left", "trap '' TERM; ", PIDS, "while :; do sleep 1; done")
    holder = a.holder()
    # The script first: it would start another.
    a.script.kill()
    os.kill(holder, signal.SIGKILL)
    a.script.wait()
    gone_in_time(pids)
    wait_until(lambda: not processes_with(a.root.encode()), lambda: processes_with(a.root.encode()))


def test_without_its_script_the_holder_ends_all(l):
    a = Allocation(l, grace=3600).ready()
    pids = launch(l, "left", "trap '' TERM; ", PIDS, "while :; do sleep 1; done")
    a.holder()
    a.script.kill()
    a.script.wait()
    gone_in_time(pids)
    wait_until(lambda: not processes_with(a.root.encode()), lambda: processes_with(a.root.encode()))


def test_a_dead_shim_leaves_nothing_either(l):
    a = Allocation(l).ready()
    pids = launch(l, "left", "trap '' TERM; ", PIDS, "while :; do sleep 1; done")
    holder = a.holder()
    a.script.kill()
    for pid in [holder] + [pid for pid in processes_with(b"gpuctl-shim\0" + a.root.encode())]:
        os.kill(pid, signal.SIGKILL)
    a.script.wait()
    gone_in_time(pids)
    wait_until(lambda: not processes_with(a.root.encode()), lambda: processes_with(a.root.encode()))


def test_it_ends_when_nobody_comes(l):
    Allocation(l, allowance=1).ends()
    # Somebody brought the programs and no job, and set no limits.
    a = Allocation(l, allowance=8, restart=0).ready()
    a.script.send_signal(signal.SIGSTOP)
    os.symlink(a.bring(), os.path.join(a.root, "bin", "current"))
    a.script.send_signal(signal.SIGCONT)
    a.ends()
    assert "the allocation ends, nobody has claimed it" in a.said(), a.said()


def shared(l):
    """A directory that nodes and login node share, and a scontrol that notes what it is told."""
    results = os.path.join(l.dir, "results")
    os.makedirs(results)
    with open(os.path.join(results, "token"), "w") as file:
        file.write("t0ken\n")
    os.makedirs(os.path.join(l.dir, "slurm"))
    said = os.path.join(l.dir, "scontrol.said")
    program = os.path.join(l.dir, "slurm", "scontrol")
    with open(program, "w") as file:
        file.write("#!/bin/sh\necho \"$*\" >> %s\n" % said)
    os.chmod(program, 0o755)
    return results, said


def last_line(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        # A file that has just been made is empty before it has its first line.
        lines = file.read().splitlines()
        return lines[-1] if lines else ""


def output_of(root):
    text = ""
    for folder, _, files in os.walk(os.path.join(root, "jobs")):
        if os.path.basename(folder) == "output":
            for name in sorted(files):
                with open(os.path.join(folder, name)) as file:
                    text += file.read()
    return text


def test_its_next_start_goes_on_without_a_client(l):
    results, said = shared(l)
    a = Allocation(l, results=results).ready()
    os.makedirs(l.work, exist_ok=True)
    with open(os.path.join(l.work, "mine.txt"), "w") as file:
        file.write("mine")
    l.run("launch", "-d", "--name", "again", "--retry-max", "1", "--retry-on", "lost", "--", "bash", "-c",
          "trap 'echo saved by $GPUCTL_ATTEMPT > $GPUCTL_CHECKPOINT_DIR/state; exit 0' TERM; "
          "echo attempt $GPUCTL_ATTEMPT has $(cat mine.txt), $(cat $GPUCTL_CHECKPOINT_DIR/state); "
          "while :; do sleep 0.1; done")
    wait_until(lambda: last_line(said) == "update JobId=4711 Requeue=1", "Slurm may start it again")
    wait_until(lambda: last_line(os.path.join(a.root, "goes_on")), "the job goes on")
    wait_until(lambda: "attempt 1 has mine," in output_of(a.root), "it works")
    a.script.send_signal(signal.SIGTERM)
    a.ends()
    b = Allocation(l, restart=1, results=results).ready()
    wait_until(lambda: "attempt 2 has mine, saved by 1" in output_of(b.root),
               lambda: "the second attempt works: " + output_of(b.root) + b.said())
    # Its one retry is used up.
    wait_until(lambda: last_line(said) == "update JobId=4711 Requeue=0", "Slurm is told so")
    # What the first start printed is there, too, once.
    lines = [line for line in output_of(b.root).splitlines() if line.startswith("attempt")]
    assert lines == ["attempt 1 has mine,", "attempt 2 has mine, saved by 1"], lines
    b.script.send_signal(signal.SIGTERM)
    b.ends()
    # A start for nothing costs nothing.
    c = Allocation(l, restart=2, results=results)
    c.ends(1)
    assert "no job is left that goes on" in c.said() and "nothing to go on with" in c.said(), c.said()


def test_a_damaged_run_keeps_no_other_from_going_on(l):
    results, _ = shared(l)
    a = Allocation(l, results=results).ready()
    ids = {}
    for name in ("whole", "cut"):
        l.run("launch", "-d", "--no-workdir", "--name", name, "--retry-max", "2", "--retry-on", "lost", "--",
              "bash", "-c", "trap 'exit 0' TERM; echo attempt $GPUCTL_ATTEMPT of %s; "
              "while :; do sleep 0.1; done" % name)
        ids[name] = l.json("show", name)["job_id"]
    goes_on = os.path.join(a.root, "goes_on")
    wait_until(lambda: os.path.exists(goes_on) and
               all(one in open(goes_on).read() for one in ids.values()), "both go on")
    wait_until(lambda: all("attempt 1 of " + name in output_of(a.root) for name in ids), "both work")
    a.script.send_signal(signal.SIGTERM)
    a.ends()
    damaged = os.path.join(results, "4711-0", "jobs", ids["cut"], "spec.json")
    os.truncate(damaged, 20)
    b = Allocation(l, restart=1, results=results).ready()
    wait_until(lambda: "attempt 2 of whole" in output_of(b.root),
               lambda: "the whole one goes on: " + output_of(b.root) + b.said())
    # It is over there, with the reason, and with what it had printed.
    assert "attempt 1 of cut" in output_of(b.root) and "attempt 2 of cut" not in output_of(b.root)
    end = json.loads(last_line(os.path.join(b.root, "jobs", ids["cut"], "lifecycle.jsonl")))
    assert end["event"] == "lost" and end["reason"].startswith("not started again: "), end
    assert "spec.json" in end["reason"], end
    assert os.path.getsize(damaged) == 20
    b.script.send_signal(signal.SIGTERM)
    b.ends()


def test_a_place_of_somebody_else_is_refused(l):
    os.makedirs(l.dir + "/system/tmp")
    os.symlink(l.dir, l.dir + "/system/tmp/gpuctl-%d" % os.getuid())
    a = Allocation(l)
    assert a.script.wait(60) == 1
    assert "somebody else made it" in a.said(), a.said()
    assert not os.path.exists(a.root) and not os.path.exists(l.dir + "/4711-0.root")


def test_a_bridge_waits_for_the_holder(l):
    a = Allocation(l).ready()
    a.script.send_signal(signal.SIGSTOP)
    bundle = a.bring()
    bridge = a.bridge(bundle)
    wait_until(lambda: os.path.exists(os.path.join(a.root, "bin", "current")), "it is adopted")
    assert not agents(a.root, b"guard") and not agents(a.root, b"hold")
    assert bridge.poll() is None
    a.script.send_signal(signal.SIGCONT)
    assert greeted(bridge)
    assert not agents(a.root, b"guard")
    bridge.stdin.close()
    bridge.wait()
    # Nobody else starts a guard.
    done = subprocess.run([os.path.join(bundle, "gpuctl-agent"), "guard", "--root", a.root],
                          stderr=subprocess.PIPE)
    assert done.returncode == 1 and b"only the batch script" in done.stderr, done
    a.script.send_signal(signal.SIGTERM)
    a.ends()


def test_a_bridge_without_a_holder_fails(l):
    a = Allocation(l).ready()
    a.script.kill()
    a.script.wait()
    bridge = a.bridge(a.bring())
    out, err = bridge.communicate(timeout=300)
    assert bridge.returncode == 1 and out == b"", out
    assert b"the allocation's holder does not run: the allocation has ended" in err, err
    assert not agents(a.root, b"guard")


def test_an_upgrade_keeps_the_holder(l):
    a = Allocation(l).ready()
    old = a.bridge(a.bring("old", 1))
    assert greeted(old)
    holder = a.holder()
    new = a.bridge(a.bring("new", 2))
    assert greeted(new)
    program = os.path.join(a.root, "bin", "new", "gpuctl-agent")
    wait_until(lambda: os.readlink("/proc/%d/exe" % holder) == program, "it has become the new one")
    assert a.holder() == holder
    for bridge in (old, new):
        bridge.stdin.close()
        bridge.wait()
    # The allowance is still known, and the end works as before.
    with open("/proc/%d/cmdline" % holder, "rb") as file:
        words = file.read().split(b"\0")
    assert words[1] == b"hold" and words[words.index(b"--claim-until") + 1].isdigit(), words
    a.script.send_signal(signal.SIGTERM)
    a.ends()


def test_it_ends_when_it_is_released(l):
    a = Allocation(l).ready()
    assert l.run("launch", "--no-workdir", "--", "echo", "one").stdout == b"one\n"
    with open(os.path.join(a.root, "boot.json")) as file:
        assert json.load(file)["tool"] == "exit"
    # The limits of its lease: it is idle, and was claimed.
    now = {"boot_id": "another", "since_boot_ms": 0, "time_ms": 0}
    limits = {"revision": "1", "provider": "slurm", "instance_id": "4711", "self_release": True,
              "idle_s": "1", "salvage_s": "1"}
    for name, content in (("claimed", ""),
                          ("limits.json", json.dumps({"accepted": now, "limits": limits}))):
        with open(os.path.join(a.root, name + ".new"), "w") as file:
            file.write(content)
        os.rename(os.path.join(a.root, name + ".new"), os.path.join(a.root, name))
    a.ends()
    assert "the allocation ends, it was released" in a.said(), a.said()


def test_it_ends_when_its_root_is_removed(l):
    a = Allocation(l).ready()
    pids = launch(l, "left", "trap '' TERM; ", PIDS, "while :; do sleep 1; done")
    a.holder()
    os.rename(a.root, a.root + ".removed")
    shutil.rmtree(a.root + ".removed", ignore_errors=True)
    gone_in_time(pids)
    a.ends()


if __name__ == "__main__":
    run_tests(globals(), apart=True)

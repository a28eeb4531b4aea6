#!/usr/bin/env python3
"""Batches over real machines: submit, queue, cancel, wait --batch and keep.

  batches.py GPUCTL FAKE_JOB [TEST...]

Each of the two machines is an sshd of its own with a home of its own. Every job notes when it begins
and ends, so that what ran twice, or too much at once, is seen whatever gpuctl says.
"""
import contextlib
import csv
import glob
import io
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time

from held_proxy import HeldProxy
from runs import (DEADLINE_S, Laptop, Patience, Terminal, cmdline, open_gate, processes_with, run_tests, ssh_server,
                  wait_until)
from slots import give_gpus

# Notes "begin VALUE RUN" and "end VALUE RUN"; appending so little is one write.
JOB = 'echo "begin {v} $GPUCTL_RUN_ID" >> %s; sleep %s; echo "end {v} $GPUCTL_RUN_ID" >> %s'


@contextlib.contextmanager
def two_hosts(l):
    """Yields the flags that name two machines."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    root = l.env.pop("GPUCTL_NODE_ROOT")
    with contextlib.ExitStack() as stack:
        flags = ["-i", os.path.join(l.dir, "sshd", "user")]
        for name in ("a", "b"):
            home = os.path.join(l.dir, "home-" + name)
            os.makedirs(home, exist_ok=True)
            port, _, _ = stack.enter_context(ssh_server(l, "-o", "SetEnv=HOME=" + home))
            flags += ["--host", "%s@127.0.0.1:%d" % (user, port)]
        try:
            yield flags
        finally:
            l.env["GPUCTL_NODE_ROOT"] = root


def notes(l, name):
    path = os.path.join(l.dir, name)
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [line.split() for line in file]


def job(l, name, seconds="0.2"):
    path = os.path.join(l.dir, name)
    return ["--no-workdir", "--", "bash", "-c", JOB % (path, seconds, path)]


def gated_job(l, name, gate="go"):
    """A job that waits until the file `gate` is there."""
    path = os.path.join(l.dir, name)
    script = ('echo "begin {v} $GPUCTL_RUN_ID" >> %s; while [ ! -e %s ]; do sleep 0.05; done; '
              'echo "end {v} $GPUCTL_RUN_ID" >> %s' % (path, os.path.join(l.dir, gate), path))
    return ["--no-workdir", "--", "bash", "-c", script]


def most_at_once(l, name):
    most = now = 0
    for what, _, _ in notes(l, name):
        now += 1 if what == "begin" else -1
        most = max(most, now)
    return most


def check_ran_once_of(l, name, times):
    """Each value began and ended as often as `times` says."""
    check_ran_once(l, name, [value for value, count in times.items() for _ in range(count)])


def check_ran_once(l, name, values):
    begun = sorted(value for what, value, _ in notes(l, name) if what == "begin")
    ended = sorted(value for what, value, _ in notes(l, name) if what == "end")
    assert begun == sorted(values), (begun, values)
    assert ended == sorted(values), (ended, values)


def batch(l, name, *flags):
    (found,) = l.json("queue", name, *flags)["batches"]
    return found


def submit_json(l, *args):
    return json.loads(l.run("submit", "--json", *args).stdout)


def starters(l):
    """Returns the processes of gpuctl that start entries."""
    return [pid for pid, text in processes_with(l.dir.encode()).items() if b"--start-entry" in text]


def test_a_batch_is_not_taken_for_its_newest_run(l):
    l.run("submit", "--name", "many", "--host", "local", "--sweep", "v=1,2", "--no-workdir", "--",
          "bash", "-c", "echo '{\"step\":{v},\"loss\":2}' > $GPUCTL_METRICS")
    done = l.run("wait", "--batch", "many")
    assert b"gpuctl queue many --results" in done.stderr, done
    for verb in ("wait", "stop", "pull", "down", "logs", "attach", "show", "diff", "tag", "verify", "resume",
                 "ssh", "exec", "sync", "cp", "forward"):
        words = {"exec": ["many", "--", "true"], "cp": ["many:out", "."], "forward": ["many", "6006"]}
        done = l.run(verb, *words.get(verb, ["many"]), code=2)
        assert b"many is a batch of several runs" in done.stderr and b"HINT: gpuctl " in done.stderr, done
        assert b"many" in done.stderr.split(b"HINT: ")[1], done
    done = l.run("diff", "many", "many-2", code=2)
    assert b"HINT: gpuctl diff many-1 many-2 compares two of its runs" in done.stderr, done
    # Numbers are shown of all its runs.
    found = [run["name"] for run in l.json("metrics", "many")["runs"]]
    assert found == ["many-1", "many-2"], found
    shown = l.run("metrics", "many").stdout
    assert b"many-1" in shown and b"many-2" in shown, shown
    assert l.run("wait", "many-2").returncode == 0
    removed = [run["name"] for run in l.json("rm", "many", "--dry-run")["runs"]]
    assert removed == ["many-1", "many-2"], removed
    # What is nearly its name, or the name of a run that it does not have, is told.
    for name in ("mnay", "many-9"):
        done = l.run("attach", name, code=2)
        assert b"(did you mean \"many-2\" or \"many-1\"?)" in done.stderr, done
        assert b"HINT: gpuctl queue many shows the runs of batch many" in done.stderr, done


def test_a_batch_of_one_run_stands_for_that_run(l):
    l.run("submit", "--name", "alone", "--host", "local", "--no-workdir", "--", "echo", "of one")
    l.run("wait", "--batch", "alone")
    assert l.run("logs", "alone").stdout == b"of one\n"
    l.run("wait", "alone")
    l.run("tag", "alone", "found")
    assert l.run("ps", "-q", "--tag", "found").stdout == b"alone-1\n"


def test_a_batch_that_is_over_is_forgotten(l):
    args = ["--name", "gone", "--host", "local", "--sweep", "v=1,2", *gated_job(l, "gone.ran", "gone.go")]
    l.run("submit", *args)
    wait_until(lambda: notes(l, "gone.ran"), "the first run begins")
    done = l.run("rm", "--forget", "gone", code=1)
    assert b"forget batch gone: gone-1 is not over" in done.stderr, done
    assert b"HINT: gpuctl cancel --running gone" in done.stderr, done
    assert (batch(l, "gone")["running"], batch(l, "gone")["waiting"]) == (1, 1), batch(l, "gone")
    with open(os.path.join(l.dir, "gone.go"), "w", encoding="utf-8"):
        pass
    l.run("wait", "--batch", "gone", "--timeout", "40s")
    assert l.run("rm", "--forget", "--dry-run", "-q", "gone").stdout == b"gone-1\ngone-2\n"
    told = l.json("rm", "--forget", "--dry-run", "gone")
    assert [one["action"] for one in told["batches"]] == ["would_forget"], told
    assert batch(l, "gone")["done"] == 2
    # Nobody is asked without a terminal; on one the answer counts.
    done = l.run("rm", "--forget", "gone", code=2)
    assert b"rm asks before it forgets a batch" in done.stderr and b"HINT: add -y" in done.stderr, done
    for answer, code in (b"\n", 1), (b"n\n", 1):
        terminal = Terminal(l, "rm", "--forget", "gone")
        terminal.until(b"[y/N]")
        assert b"Forget batch gone, its 2 runs and the copies of their output here?" in terminal.text, terminal.text
        terminal.type(answer)
        assert terminal.finish() == code and b"nothing was removed" in terminal.text, terminal.text
    assert batch(l, "gone")["done"] == 2
    done = l.run("rm", "--forget", "-y", "gone")
    assert b"batch gone is forgotten" in done.stderr, done
    assert b"gone" not in l.run("queue", "-aq").stdout and b"gone" not in l.run("ps", "-aq").stdout
    for _ in range(2):
        done = l.run("rm", "--forget", "-y", "gone", code=2)
        assert b"no run \"gone\"" in done.stderr, done
    # The same again is another batch, with the first names.
    assert submit_json(l, *args)["submitted"]["submitted_before"] is False
    l.run("wait", "--batch", "gone", "--timeout", "40s")
    check_ran_once_of(l, "gone.ran", {"1": 2, "2": 2})
    assert l.run("queue", "-q", "gone").stdout == b"gone-1\ngone-2\n"
    # What is not at home keeps it.
    l.run("submit", "--name", "kept", "--host", "local", "--artifacts", "out", "--sweep", "v=1,2", "--no-workdir", "--",
          "bash", "-c", "[ {v} = 1 ] || echo words > out")
    l.run("wait", "--batch", "kept", "--timeout", "40s")
    told = l.json("rm", "--forget", "--dry-run", "kept", code=1)
    assert told["batches"][0]["why"] == "its run kept-2 stays in the list", told
    done = l.run("rm", "--forget", "-y", "kept", code=1)
    assert b"kept-2 stays: not at home" in done.stderr, done
    assert b"batch kept stays: its run kept-2 stays in the list" in done.stderr, done
    assert b"gpuctl rm --forget --force kept does without what is not at home" in done.stderr, done
    # What helps is said once, however many stay.
    l.run("submit", "--name", "both", "--host", "local", "--artifacts", "out", "--sweep", "v=1,2", "--no-workdir", "--",
          "bash", "-c", "echo {v} > out")
    l.run("wait", "--batch", "both", "--timeout", "40s")
    done = l.run("rm", "both", code=1)
    assert done.stderr.count(b"HINT: ") == 1 and b"gpuctl rm --force RUN does without them" in done.stderr, done
    l.run("rm", "--forget", "--force", "both")
    assert l.run("queue", "-q", "kept").stdout == b"kept-1\nkept-2\n"
    told = l.json("rm", "--forget", "--force", "kept", "gone", "gone-1")
    assert [one["action"] for one in told["batches"]] == ["forgotten"] * 2, told
    assert [run["name"] for run in told["runs"]] == ["gone-1", "kept-2", "gone-2"], told
    # Nothing of it ever ran.
    l.run("submit", "--name", "never", "--host", "no-such-host.invalid", "--no-workdir", "--", "true")
    l.run("cancel", "never")
    l.run("rm", "--forget", "-y", "never")
    assert b"never" not in l.run("queue", "-aq").stdout


def test_a_batch_is_forgotten_while_others_look(l):
    """However many look at it, start it and forget it at once, it is whole or gone."""
    for number in range(2):
        name = "race%d" % number
        l.run("submit", "--name", name, "--host", "local", "--sweep", "v=1,2,3", *job(l, name + ".ran", "0"))
        looking = [l.start("queue", "-a") for _ in range(2)]
        patience = Patience()
        while l.run("rm", "--forget", "-qy", name, code=None).returncode != 0:
            assert patience.lasts(), batch(l, name)
            looking.append(l.start("queue"))
        for one in looking:
            assert one.wait(timeout=DEADLINE_S) == 0, one.args
        check_ran_once(l, name + ".ran", ["1", "2", "3"])
        left = l.run("queue", "-aq").stdout.split() + l.run("ps", "-aq").stdout.split()
        assert not [word for word in left if word.startswith(name.encode())], left


def test_a_reason_is_told_once(l):
    l.run("submit", "--name", "reason", "--host", "local", "--sweep", "v=1,2,3",
          *gated_job(l, "reason.ran", "reason.go"))
    rows = l.run("queue", "--offline", "reason").stdout.decode().splitlines()
    waiting = [row for row in rows if " waiting " in row]
    assert len(waiting) == 2, rows
    assert not waiting[0].rstrip().endswith("as reason-2"), rows
    assert all(row.rstrip().endswith(" as reason-2") for row in waiting[1:]), rows
    # A program gets each.
    reasons = {entry["why"] for entry in batch(l, "reason", "--offline")["entries"][1:]}
    assert len(reasons) == 1 and waiting[0].rstrip().endswith(reasons.pop()), rows
    with open(os.path.join(l.dir, "reason.go"), "w", encoding="utf-8"):
        pass
    l.run("wait", "--batch", "reason", "--timeout", "40s")


def test_a_submit_that_starts_nothing_says_why(l):
    l.run("submit", "--name", "held", "--host", "local", *gated_job(l, "held.ran", "held.go"))
    done = l.run("submit", "--name", "behind", "--host", "local", "--after", "held", "--no-workdir", "--", "true")
    assert b"behind-1 waits: " in done.stderr and b"held-1" in done.stderr.split(b"waits: ")[1], done
    l.run("cancel", "--running", "held")


def test_the_queue_shows_how_far_its_runs_are(l):
    gate = os.path.join(l.dir, "far.gate")
    os.mkfifo(gate)
    script = ("echo '{\"type\":\"step\",\"step\":7,\"total_steps\":9,\"loss\":1.25}' > "
              "$GPUCTL_METRICS; read x < " + gate)
    l.run("submit", "--name", "far", "--host", "local", "--no-workdir", "--", "bash", "-c", script)
    wait_until(lambda: batch(l, "far")["entries"][0]["step"] == 7, "its step is shown")
    assert batch(l, "far")["entries"][0]["loss"] == 1.25, batch(l, "far")
    assert b"1.25" in l.run("queue", "far").stdout
    open_gate(gate)
    l.run("wait", "--batch", "far")


def test_words_of_other_tools_are_named(l):
    for words, ours in ((["sbatch", "job.sh"], b"gpuctl submit"), (["download", "x"], b"gpuctl pull"),
                        (["notebook"], b"jupyter lab --ip 127.0.0.1 --no-browser --allow-root"),
                        (["tensorboard", "x"], b"gpuctl ssh RUN -L 6006 -- tensorboard"),
                        (["best", "x"], b"gpuctl pull --best BATCH"),
                        (["launch", "--gres=gpu:1", "--", "true"], b"--gpus 1"),
                        (["submit", "--array=0-5", "--", "true"], b"--sweep"),
                        (["launch", "--resume", "x", "--", "true"], b"gpuctl resume RUN"),
                        (["launch", "-t", "60", "--", "true"], b"it is --time"),
                        (["launch", "-N2", "--", "true"], b"--host A,B,C"),
                        (["launch", "--ntasks=4", "--", "true"], b"--processes N"),
                        (["submit", "--account=lab", "--", "true"], b"slurm: {account: NAME}"),
                        (["submit", "--wrap", "true"], b"the command behind --"),
                        (["submit", "--exclusive", "--", "true"], b"a machine for itself"),
                        (["launch", "--mail-type=END", "--", "true"], b"notify: in the run file")):
        done = l.run(*words, code=2)
        assert b"; it is " in done.stderr and ours in done.stderr, done
        assert b"--yes" not in done.stderr and b"\"down\"" not in done.stderr, done
    for name, program in (("train.py", b"python3 train.py"), ("job.sh", b"bash job.sh")):
        with open(os.path.join(l.work, name), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        for verb in ("launch", "submit"):
            done = l.run(verb, name, code=2)
            assert b"is a script, no run file" in done.stderr, done
            assert ("gpuctl %s -- " % verb).encode() + program in done.stderr, done


def test_a_batch_script_of_slurm_runs_as_it_is(l):
    with open(os.path.join(l.work, "array.sh"), "w", encoding="utf-8") as file:
        file.write("#!/bin/bash\n#SBATCH --array=0-2\n#SBATCH --time=01:00:00\necho task $SLURM_ARRAY_TASK_ID\n")
    ignored = b"count for nothing here: --array=0-2, --time=01:00:00; "
    args = ["--name", "array", "--host", "local", "--sweep", "SLURM_ARRAY_TASK_ID=0..2", "--", "bash", "array.sh"]
    assert ignored in l.run("submit", "--dry-run", *args).stdout
    assert ignored in l.run("submit", *args).stderr
    l.run("wait", "--batch", "array")
    assert [l.run("logs", "array-%d" % n).stdout for n in (1, 2, 3)] == [b"task %d\n" % n for n in (0, 1, 2)]
    done = l.run("launch", "--provider", "local", "--", "bash", "array.sh")
    assert ignored in done.stderr and b"SBATCH" not in done.stdout, done
    os.remove(os.path.join(l.work, "array.sh"))


def test_ranges_and_dependencies_of_slurm_are_named(l):
    done = l.run("submit", "--name", "ranged", "--host", "local", "--sweep", "i=0-5", "--no-workdir",
                 "--", "true", code=2)
    assert b'"0-5" is one value and no range; 0..5 stands for all' in done.stderr, done
    out = l.run("submit", "--name", "ranged", "--host", "local", "--sweep", "i=3..5", "--no-workdir",
                "--dry-run", "--json", "--", "true").stdout
    assert json.loads(out)["plan"]["runs"] == 3, out
    for word, ours in (("afterok:ranged", b"--after ranged alone"),
                       ("afterany:ranged", b"waits for its success")):
        done = l.run("submit", "--host", "local", "--after", word, "--no-workdir", "--", "true", code=2)
        assert b"is Slurm's" in done.stderr and ours in done.stderr, done
    for word, why in (("lr=log(1e-5,1e-3)", b"there are no distributions"),
                      ("lr", b'"lr" is not NAME=VALUE,VALUE')):
        done = l.run("submit", "--host", "local", "--no-workdir", "--sweep", word, "--", "true",
                     code=2)
        assert b"--sweep: " in done.stderr and why in done.stderr, done
    out = l.run("submit", "--name", "ranged", "--host", "local", "--sweep", "i=1,2", "--no-workdir",
                "--dry-run", "--", "train", "--rank={rnk}", "{i}", "${HOME}").stdout
    assert b"{rnk} is no parameter and stays in the command" in b" ".join(out.split()), out
    assert b"HOME" not in out[out.index(b"warning"):out.index(b"each run")], out
    for time, ours in (("60", b"write 60s, 60m or 60h; Slurm means 1h by it"),
                       ("01:30:00", b"Slurm means 1h30m by it"), ("1-12", b"Slurm means 1d12h by it")):
        done = l.run("launch", "--provider", "local", "--time", time, "--", "true", code=2)
        assert b"--time: " in done.stderr and ours in done.stderr, done
    # The second name behind a flag is no run file.
    done = l.run("submit", "--host", "local", "--after", "ranged", "other", "--", "true", code=2)
    assert b'"other" is taken for a run file' in done.stderr, done
    assert b"HINT: --after takes one name, and may come again: --after other" in done.stderr, done


def test_parameters_that_no_command_has_are_told(l):
    # IPython makes "--lr 0.5" of "--lr {lr}" in a notebook that has a variable lr.
    def text_of(*words):
        flags = ["--host", "local", "--no-workdir", "--sweep", "lr=1,2", "batch-size=8", "SEED=1"]
        return " ".join(l.run("submit", *flags, *words).stdout.decode().split()
                        + l.run("submit", *flags, *words).stderr.decode().split())
    said = text_of("--dry-run", "--", "train.py", "--lr", "0.5", "-b", "{batch-size}")
    assert "warning {lr} is not in the command: only the variable LR has the value; in a " \
        "notebook's line with ! write {{lr}}" in said, said
    said = text_of("--dry-run", "--", "train.py", "--lr", "0.5", "-b", "8")
    assert "{lr}, {batch-size} are not in the command: only the variables LR, BATCH_SIZE have" in said
    for used in (["sh", "-c", "train --lr $LR -b $BATCH_SIZE"], ["train", "{lr}", "{batch-size}"]):
        assert "warning" not in text_of("--dry-run", "--", *used), used
    # It is told without a question, too.
    said = l.run("submit", "-y", "--name", "unused", "--host", "local", "--no-workdir", "--sweep",
                 "lr=1", "--", "true").stderr
    assert b"{lr} is not in the command" in said, said
    l.run("wait", "--batch", "unused")


def test_a_pattern_without_quotes_is_told(l):
    for name in ("a.pt", "b.pt", "c.pt"):
        with open(os.path.join(l.work, name), "w", encoding="utf-8"):
            pass
    for files in (["a.pt", "b.pt"], ["a.pt", "b.pt", "c.pt"]):
        done = l.run("launch", "--provider", "local", "--checkpoints", *files, "--", "true", code=2)
        assert b"pattern needs quotes, as in --checkpoints '*.pt'" in done.stderr, done


def test_a_sweep_goes_on_when_its_client_is_killed(l):
    values = [str(i) for i in range(6)]
    with two_hosts(l) as hosts:
        child = l.start("submit", "--name", "sweep", "--max-parallel", "2", *hosts, "--sweep",
                        "v=" + ",".join(values), *job(l, "sweep.ran"))
        assert child.stdout.readline() == b"sweep-1\n"
        child.kill()
        child.communicate()
        patience = Patience()
        while not batch(l, "sweep", "--offline")["over"]:
            assert patience.lasts(), batch(l, "sweep")
            l.run("keep")
        check_ran_once(l, "sweep.ran", values)
        assert most_at_once(l, "sweep.ran") <= 2
        found = batch(l, "sweep")
        assert found["done"] == 6, found
        # Both machines had their share.
        assert len({entry["node"] for entry in found["entries"]}) == 2, found
        with open(os.path.join(l.env["GPUCTL_STATE_DIR"], "keep.log"), encoding="utf-8") as file:
            assert "start sweep-" in file.read()
        runs = l.json("ps", "-a", "--tag", "batch:sweep")["runs"]
        assert len(runs) == 6 and {run["status"] for run in runs} == {"succeeded"}, runs


def kill_at_random(l, rounds, seed):
    """Passes that are killed, and the processes that start entries with them."""
    rng = random.Random(seed)
    for _ in range(rounds):
        child = l.start("queue", "--pass", "--patience", "1")
        time.sleep(rng.uniform(0, 0.6))
        for pid in [child.pid] if rng.random() < 0.3 else [child.pid, *starters(l)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.communicate()


def test_none_is_lost_or_doubled_when_all_is_killed_at_any_moment(l):
    count = int(os.environ.get("BATCH_SIZE", "10"))
    seed = int(os.environ.get("BATCH_SEED", str(random.randrange(10_000))))
    print("BATCH_SEED=%d" % seed, flush=True)
    values = [str(i) for i in range(count)]
    with two_hosts(l) as hosts:
        l.start("submit", "--name", "killed", *hosts, "--sweep", "v=" + ",".join(values),
                *job(l, "killed.ran", "0.05")).communicate(timeout=DEADLINE_S)
        for turn in range(10 * count):
            kill_at_random(l, 2, seed + turn)
            if batch(l, "killed", "--offline")["over"]:
                break
        l.run("wait", "--batch", "killed", "--timeout", "60s")
        check_ran_once(l, "killed.ran", values)
        assert batch(l, "killed")["done"] == count
    assert starters(l) == []


def test_two_passes_at_once_start_each_entry_once(l):
    values = [str(i) for i in range(8)]
    # What killed starters of an earlier test left.
    wait_until(lambda: starters(l) == [], "no starters")
    state = l.env["GPUCTL_STATE_DIR"]
    for left in glob.glob(state + "/batches/*") + glob.glob(state + "/locks/entry-*"):
        os.unlink(left)
    l.run("submit", "--name", "twice", "--host", "local", "--sweep", "v=" + ",".join(values),
          *job(l, "twice.ran", "0.01"))
    for _ in range(30):
        children = [l.start("queue", "--pass", "--patience", "5") for _ in range(4)]
        for child in children:
            _, err = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0, err
        if batch(l, "twice", "--offline")["over"]:
            break
    check_ran_once(l, "twice.ran", values)
    assert most_at_once(l, "twice.ran") == 1
    # What is over leaves no locks and no logs. Starters may outlive their pass.
    locks = lambda: [n for n in os.listdir(state + "/locks") if n.startswith("entry-")]
    wait_until(lambda: locks() == [], lambda: "no locks: %s" % locks())
    logs = state + "/batches"
    wait_until(lambda: os.listdir(logs) == [],
               lambda: subprocess.run(["tail", "-v", "-n", "+1", *os.listdir(logs)], cwd=logs,
                                      stdout=subprocess.PIPE).stdout)
    # A pass removes the logs of processes that were killed, but none of one that has just begun.
    over = batch(l, "twice", "--offline")["entries"][0]["entry_id"]
    for name in (over + ".log", "e-000000000000.log"):
        with open(os.path.join(state, "batches", name), "w") as file:
            file.write("an error\n")
    os.utime(os.path.join(state, "batches", over + ".log"), (0, 0))
    l.run("queue", "--pass")
    assert os.listdir(state + "/batches") == ["e-000000000000.log"]


def catches_interrupts(t, l):
    """Returns whether gpuctl itself, and no longer what started it, catches SIGINT."""
    if not cmdline(t.pid).startswith(l.gpuctl.encode()):
        return False
    with open("/proc/%d/status" % t.pid, encoding="ascii") as file:
        caught = next(line.split()[1] for line in file if line.startswith("SigCgt:"))
    return bool(int(caught, 16) & 1 << (signal.SIGINT - 1))


def test_an_interrupted_queue_says_that_it_started_nothing(l):
    l.run("submit", "--name", "halted", "--host", "local", "--sweep", "v=1,2",
          *gated_job(l, "halted.ran", "halted.go"))
    servers = [pid for pid in l.node_pids() if b"server" in cmdline(pid).split(b"\0")]
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        # Its states may be old, and the user is told.
        assert b"halted-1: local did not answer within 3s" in l.run("queue", "halted").stderr
        t = Terminal(l, "queue")
        wait_until(lambda: t.read_some() and catches_interrupts(t, l), "it asks the machine")
        t.type(b"\x03")
        assert t.finish() in (130, -signal.SIGINT), t.text
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    assert b"gpuctl: interrupted; nothing was started\r\n" in t.text, t.text
    open(os.path.join(l.dir, "halted.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "halted")
    check_ran_once(l, "halted.ran", ["1", "2"])


def test_an_interrupted_wait_says_how_its_batch_goes_on(l):
    l.run("submit", "--name", "waited", "--host", "local", "--max-parallel", "1", "--sweep", "v=1,2",
          *gated_job(l, "waited.ran", "waited.go"))
    t = Terminal(l, "wait", "--batch", "waited", columns=120)
    t.until(b"waited: 1 waiting, 1 running")
    t.type(b"\x03")
    assert t.finish() == 130, t.text
    assert b"gpuctl: interrupted, and waited goes on: 1 waiting, 1 running" in t.text, t.text
    assert b"HINT: gpuctl wait --batch waited goes on with the rest" in t.text, t.text
    t = Terminal(l, "wait", "waited-2", columns=120)
    t.until(b"waited-2 ")
    t.type(b"\x03")
    assert t.finish() == 130 and b"gpuctl: interrupted, and waited-2 waits" in t.text, t.text
    open(os.path.join(l.dir, "waited.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "waited")
    check_ran_once(l, "waited.ran", ["1", "2"])


def test_legends_name_the_parameters(l):
    script = 'echo "{\\"step\\": 1, \\"loss\\": {v}, \\"alpha\\": {v}}" > $GPUCTL_METRICS'
    l.run("submit", "--name", "legend", "--host", "local", "--sweep", "v=1,2", "--no-workdir", "--",
          "bash", "-c", script)
    l.run("wait", "--batch", "legend")
    assert b"1 legend-1 v=1  2 legend-2 v=2" in l.run("metrics", "legend").stdout
    l.run("metrics", "legend", "--plot", "legend.svg")
    with open(os.path.join(l.work, "legend.svg"), encoding="utf-8") as file:
        assert ">legend-2 v=2<" in file.read()
    # Nobody knows which values of it are the better ones.
    for verb in (["queue", "legend", "--results"], ["pull", "--best", "legend"]):
        done = l.run(*verb, "--metric", "alpha", code=2)
        assert b"HINT: --goal max takes the highest value" in done.stderr, done.stderr
    found = l.json("queue", "legend", "--results", "--metric", "alpha", "--goal", "max")["results"]
    assert [row["best_run"] for row in found] == [False, True], found
    # What is the same for all of them is told once.
    said = l.run("pull", "--batch", "legend", code=None).stderr
    assert said.count(b"it has no checkpoint") == 2 and said.count(b"HINT:") == 1, said


def test_a_gpu_that_no_machine_has_is_refused_at_once(l):
    if shutil.which("nvidia-smi"):
        return  # the batch then waits for this computer's own
    done = l.run("submit", "--name", "nokey", "--gpu", "RTX4090", "--sweep", "v=1,2", "--no-workdir", "--",
                 "true", code=121)
    assert b"the run asks for RTX4090" in done.stderr and b"HINT: gpuctl login PROVIDER" in done.stderr, done
    assert b"no batch" in l.run("queue", "nokey", code=2).stderr


def test_the_same_batch_is_submitted_once(l):
    args = ["--host", "local", "--sweep", "v=1,2", *gated_job(l, "same.ran", "same.go")]
    first = submit_json(l, "--name", "same", *args)["submitted"]
    assert first["submitted_before"] is False and len(first["entries"]) == 2, first
    done = l.run("submit", "--name", "same", *args)
    assert done.stdout == b"same-1\nsame-2\n" and b"nothing is submitted again" in done.stderr, done
    again = submit_json(l, "--name", "same", "--max-parallel", "7", *args)["submitted"]
    assert again["submitted_before"] and again["batch_id"] == first["batch_id"], again
    assert again["digest"] == first["digest"] and batch(l, "same")["max_parallel"] == 7
    done = l.run("submit", "--name", "same", "--host", "local", "--sweep", "v=1,3",
                 *gated_job(l, "same.ran", "same.go"), code=2)
    assert b"HINT: choose another --name, such as --name same2; --replace takes that name" in b" ".join(
        done.stderr.split()), done
    open(os.path.join(l.dir, "same.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "same")
    check_ran_once(l, "same.ran", ["1", "2"])
    # Also when it is over, and its runs are not in the list any more.
    l.run("rm", "same-1", "--force", "--forget")
    assert batch(l, "same")["done"] == 2, batch(l, "same")
    l.run("submit", "--name", "same", *args)
    check_ran_once(l, "same.ran", ["1", "2"])


def test_another_batch_takes_the_place_of_one(l):
    def args(values, gate="put.go"):
        return ["--name", "put", "--host", "local", "--sweep", "v=" + values, *gated_job(l, "put.ran", gate)]

    first = submit_json(l, *args("1,2,3"))["submitted"]
    assert first["replaced"] is None, first
    assert b"HINT: choose another --name" in l.run("submit", *args("1,4"), code=2).stderr
    plan = submit_json(l, "--replace", "--dry-run", *args("1,4"))["plan"]
    assert plan["replaces"] and [e["entry"] for e in plan["entries"]] == ["put-4", "put-5"], plan
    shown = l.run("submit", "--replace", "--dry-run", *args("1,4")).stdout
    assert b"replaces  the batch of that name: 2 waiting, 1 running; what waits" in b" ".join(
        shown.split()).replace(b"replaces the", b"replaces  the"), shown
    assert batch(l, "put")["batch_id"] == first["batch_id"]
    done = l.run("submit", "--replace", *args("1,4"))
    assert done.stdout == b"put-4\nput-5\n", done
    said = b" ".join(done.stderr.split())
    assert b"put is put.old now: 2 called off, 1 running on" in said, done
    assert b"HINT: gpuctl cancel --running put.old stops those" in said, done
    old = batch(l, "put.old")
    assert old["batch_id"] == first["batch_id"], old
    assert [e["state"] for e in old["entries"]] == ["running", "cancelled", "cancelled"], old
    assert old["entries"][1]["why"] == "another batch took its place", old
    # The same once more is the same batch, while it is not over.
    again = submit_json(l, "--replace", *args("1,4"))["submitted"]
    assert again["submitted_before"] and again["replaced"] is None, again
    assert [e["entry"] for e in again["entries"]] == ["put-4", "put-5"], again
    open(os.path.join(l.dir, "put.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "put.old", code=1)
    l.run("wait", "--batch", "put")
    check_ran_once_of(l, "put.ran", {"1": 2, "4": 1})
    # One that is over runs again, and is compared with itself alone.
    assert b"HINT: --replace, or another --name, runs it again" in l.run("submit", *args("1,4")).stderr
    third = submit_json(l, "--replace", *args("1,4"))["submitted"]
    assert third["replaced"] == "put.old2" and not third["submitted_before"], third
    l.run("wait", "--batch", "put")
    check_ran_once_of(l, "put.ran", {"1": 3, "4": 2})
    entries = batch(l, "put")["entries"]
    assert [e["run"] for e in entries] == ["put-6", "put-7"], entries
    # A schedule is replaced by itself alone.
    done = l.run("submit", "--replace", "--every", "@daily", "--name", "put", "--host", "local", "--no-workdir", "--",
                 "true", code=2)
    assert b"it runs something else" in done.stderr and b"gpuctl cancel put" in done.stderr, done


def test_many_replacements_at_once_make_one_batch(l):
    args = ["--name", "swap", "--host", "local", "--sweep"]
    l.run("submit", *args, "v=1,2", *gated_job(l, "swap.ran", "swap.go"))
    children = [l.start("submit", "--replace", *args, "v=1,3", *gated_job(l, "swap.ran", "swap.go"))
                for _ in range(5)]
    outputs = [child.communicate(timeout=DEADLINE_S) for child in children]
    assert [child.returncode for child in children] == 5 * [0], outputs
    assert {out for out, _ in outputs} == {b"swap-3\nswap-4\n"}, outputs
    names = [b["batch"] for b in l.json("queue", "-a")["batches"] if b["batch"].startswith("swap")]
    assert sorted(names) == ["swap", "swap.old"], names
    open(os.path.join(l.dir, "swap.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "swap")
    check_ran_once_of(l, "swap.ran", {"1": 2, "3": 1})


def test_cancel_takes_out_what_waits_and_with_running_the_rest(l):
    l.run("submit", "--name", "off", "--host", "local", "--sweep", "v=1,2,3",
          *job(l, "off.ran", "600"))
    assert [e["state"] for e in batch(l, "off")["entries"]] == ["running", "waiting", "waiting"]
    l.run("cancel", "off-3")
    assert [e["state"] for e in batch(l, "off")["entries"]] == ["running", "waiting", "cancelled"]
    done = l.run("cancel", "off")
    assert b"HINT: --running" in done.stderr, done
    assert [e["state"] for e in batch(l, "off")["entries"]] == ["running"] + 2 * ["cancelled"]
    l.run("wait", "--batch", "off", "--timeout", "100ms", code=124)
    entries = l.json("cancel", "off", "--running")["entries"]
    assert [e["state"] for e in entries] == 3 * ["cancelled"], entries
    assert [what for what, _, _ in notes(l, "off.ran")] == ["begin"]
    l.run("wait", "--batch", "off", code=143)
    l.run("cancel", "nobody", code=2)
    # By its own stop a run is cancelled, too.
    assert b"off " not in l.run("queue").stdout and b"off " in l.run("queue", "-a").stdout


def test_one_that_has_not_started_answers_to_its_name(l):
    done = l.run("submit", "--name", "a b", "--host", "local", "--no-workdir", "--", "true", code=2)
    assert b"--name: " in done.stderr and b"--tag" not in done.stderr, done
    l.run("submit", "--name", "turn", "--host", "local", "--sweep", "v=" + ",".join(str(i + 1) for i in range(11)),
          *gated_job(l, "turn.ran"))
    for verb in ("logs", "attach", "show", "pull", "metrics", "down"):
        # turn-1 is no beginning of turn-10 here, nor the other way round.
        done = l.run(verb, "turn-10", code=1)
        assert b"turn-10 waits in its batch" in done.stderr, done
        assert b"gpuctl wait turn-10" in done.stderr, done
    done = l.run("stop", "turn-3", "turn-4")
    assert b"turn-3 did not start: cancelled by you" in done.stderr, done
    assert [e["state"] for e in batch(l, "turn")["entries"]][:4] == [
        "running", "waiting", "cancelled", "cancelled"]
    assert b"turn-3 did not start" in l.run("logs", "turn-3", code=1).stderr
    stopped = l.json("stop", "turn-5")
    assert stopped["runs"] == [] and stopped["entries"][0]["state"] == "cancelled", stopped
    # A wrong name beside it cancels nothing.
    l.run("stop", "turn-6", "nobody", code=2)
    assert batch(l, "turn")["entries"][5]["state"] == "waiting"
    l.run("wait", "turn-2", "--timeout", "100ms", code=124)
    child = l.start("wait", "turn-2", "turn-3")
    open(os.path.join(l.dir, "go"), "w", encoding="utf-8").close()
    _, errors = child.communicate(timeout=300)
    assert child.returncode == 1 and b"turn-2 exited with code 0" in errors, errors
    assert b"turn-3 did not start: cancelled by you" in errors, errors
    check_ran = [what for what, value, _ in notes(l, "turn.ran") if value == "1"]
    assert check_ran == ["begin", "end"], notes(l, "turn.ran")
    l.run("cancel", "turn", "--running")


def test_what_comes_after_another_waits_for_its_success(l):
    for name, after, script in (("prep", "", "echo prep"), ("train", "after: [prep]\n", "echo {v}"),
                                ("bad", "", "exit 3")):
        with open(os.path.join(l.work, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write("name: %s\n%srun: '%s'\n" % (name, after, script))
    l.run("submit", "prep.yaml", "train.yaml", "--name", "chain", "--no-workdir", "--host", "local",
          "--max-parallel", "4")
    first, second = batch(l, "chain", "--offline")["entries"]
    assert second["after"] == ["entry:" + first["entry_id"]], second
    l.run("wait", "--batch", "chain")
    runs = {run["name"]: run for run in l.json("ps", "-a", "--tag", "batch:chain")["runs"]}
    assert runs["chain-2"]["created"] > runs["chain-1"]["ended"], runs
    # launch does not wait.
    done = l.run("launch", "train.yaml", "--no-workdir", code=2)
    assert b"HINT: gpuctl submit" in done.stderr, done
    # After a failure the other one is given up, and what comes after that one.
    l.run("submit", "bad.yaml", "--name", "fails", "--no-workdir", "--host", "local")
    l.run("wait", "--batch", "fails", code=3)
    done = l.run("submit", "--name", "later", "--after", "fails", "--host", "local",
                 *job(l, "later.ran", "0"), code=1)
    assert b"later-1 is cancelled: it comes after fails-1" in done.stderr and done.stdout == b"later-1\n", done
    l.run("submit", "--json", "--name", "last", "--after", "later-1", "--host", "local",
          *job(l, "later.ran", "0"), code=1)
    l.run("wait", "--batch", "later", code=1)
    l.run("wait", "--batch", "last", code=1)
    (entry,) = batch(l, "last")["entries"]
    assert entry["state"] == "cancelled" and "later-1" in entry["why"], entry
    assert notes(l, "later.ran") == []
    l.run("submit", "--after", "nothing-like-it", "--host", "local", "--", "true", code=2)


def test_shares_of_a_machine_wait_in_its_own_queue(l):
    other = Laptop(l.gpuctl, l.fake_job)  # its agent finds GPUs
    try:
        give_gpus(other, 2)
        other.run("submit", "--name", "shares", "--host", "local", "--gpus", "1", "--sweep",
                  "v=" + ",".join(str(i) for i in range(6)), *gated_job(other, "shares.ran"))
        wait_until(lambda: len(notes(other, "shares.ran")) == 2, "two run")
        found = batch(other, "shares")
        assert (found["running"], found["queued"], found["waiting"]) == (2, 4, 0), found
        queued = [entry for entry in found["entries"] if entry["state"] == "queued"]
        assert all("which starts it" in entry["why"] for entry in queued), found
        # From here on no gpuctl of the laptop does anything.
        open(os.path.join(other.dir, "go"), "w", encoding="utf-8").close()
        wait_until(lambda: len(notes(other, "shares.ran")) == 12, "all have ended")
        assert most_at_once(other, "shares.ran") == 2
        other.run("wait", "--batch", "shares")
        check_ran_once(other, "shares.ran", [str(i) for i in range(6)])
    finally:
        other.close()


def test_the_order_of_a_batch_is_the_order_of_its_starts(l):
    other = Laptop(l.gpuctl, l.fake_job)  # its agent finds a GPU
    try:
        give_gpus(other, 1)
        values = [str(i) for i in range(12)]
        other.run("submit", "--name", "line", "--host", "local", "--gpus", "1", "--sweep",
                  "v=" + ",".join(values), *job(other, "line.ran", "0"))
        other.run("wait", "--batch", "line")
        begun = [value for what, value, _ in notes(other, "line.ran") if what == "begin"]
        assert begun == values, begun
    finally:
        other.close()


def test_what_is_submitted_shows_what_has_started(l):
    found = submit_json(l, "--name", "now", "--host", "local", *gated_job(l, "now.ran", "now.go"))["submitted"]
    assert (found["waiting"], found["running"]) == (0, 1), found
    assert found["entries"][0]["state"] == "running", found
    open(os.path.join(l.dir, "now.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "now")


def test_a_plan_of_several_files_shows_each(l):
    for name, after in (("first", ""), ("second", "after: [first]\n")):
        with open(os.path.join(l.work, name + ".yaml"), "w", encoding="utf-8") as file:
            file.write("name: %s\n%srun: echo %s\n" % (name, after, name))
    args = ["first.yaml", "second.yaml", "--name", "two", "--no-workdir", "--host", "local"]
    text = l.run("submit", "--dry-run", *args).stdout.decode()
    for line in ("          two-1  first.yaml", "          two-2  second.yaml  after first",
                 "each run of first.yaml:", "each run of second.yaml:", "  command   echo first",
                 "  command   echo second"):
        assert line in text.splitlines(), text
    plan = json.loads(l.run("submit", "--dry-run", "--json", *args).stdout)["plan"]
    assert [(e["file"], e["after"], e["command"]) for e in plan["entries"]] == [
        ("first.yaml", [], "echo first"), ("second.yaml", ["first"], "echo second")], plan
    l.run("submit", *args)
    shown = l.run("queue", "two", "--offline").stdout
    assert b"FILE" in shown and b"second.yaml" in shown, shown
    assert [entry["file"] for entry in batch(l, "two")["entries"]] == ["first.yaml", "second.yaml"]
    l.run("wait", "--batch", "two")
    # What waits for a whole batch says so.
    l.run("submit", "--name", "whole", "--host", "local", *gated_job(l, "whole.ran", "whole.go"))
    l.run("submit", "--name", "next", "--after", "whole", "--host", "local", *job(l, "next.ran", "0"))
    (entry,) = batch(l, "next", "--offline")["entries"]
    assert entry["why"] == "after whole: whole-1 is not over", entry
    open(os.path.join(l.dir, "whole.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "next")


def test_stop_without_a_wait_of_what_is_being_started(l):
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(l) as (port, folder, _), HeldProxy(port) as held:
        held.hold_after(0)
        host = ["--host", "%s@127.0.0.1:%d" % (user, held.port), "-i", os.path.join(folder, "user")]
        child = l.start("submit", "--name", "slow", *host, *job(l, "slow.ran", "600"))
        wait_until(lambda: batch(l, "slow", "--offline")["starting"] == 1 if
                   l.run("queue", "slow", "--offline", code=None).returncode == 0 else False,
                   "it is being started")
        done = l.run("stop", "--no-wait", "slow-1")
        assert b"slow-1 is being started, and is stopped as soon as it has started" in done.stderr, done
        assert batch(l, "slow", "--offline")["starting"] == 1, "nothing was waited for"
        held.release()
        wait_until(lambda: batch(l, "slow")["cancelled"] == 1, "it was stopped")
        child.communicate(timeout=DEADLINE_S)
        assert [what for what, _, _ in notes(l, "slow.ran")] in ([], ["begin"])
        assert batch(l, "slow")["entries"][0]["state"] == "cancelled"


def test_a_higher_priority_goes_first(l):
    l.run("submit", "--name", "hold", "--host", "local",
          *gated_job(l, "hold.ran", "hold.go"))
    l.run("submit", "--name", "low", "--host", "local", *job(l, "order.ran", "0"))
    l.run("submit", "--name", "high", "--priority", "5", "--host", "local",
          *job(l, "order2.ran", "0"))
    for name in ("low", "high"):
        (entry,) = batch(l, name, "--offline")["entries"]
        assert entry["state"] == "waiting" and entry["why"] == "local has hold-1", entry
    open(os.path.join(l.dir, "hold.go"), "w", encoding="utf-8").close()
    l.run("wait", "--batch", "low")
    runs = {run["name"]: run for run in l.json("ps", "-a")["runs"]}
    assert runs["high-1"]["created"] < runs["low-1"]["created"], runs


def test_results_name_the_best_run(l):
    script = ("for s in 1 2; do echo '{\"type\":\"step\",\"step\":'$s',\"loss\":'$V',"
              "\"eval\":{\"accuracy\":'$V'}}' >> $GPUCTL_METRICS; done; exit $(( V == 9 ))")
    with open(os.path.join(l.dir, "p.csv"), "w", encoding="utf-8") as file:
        file.write('v,text\n5,"a, b"\n2,plain\n9,last\n')
    l.run("submit", "--name", "scored", "--host", "local", "--from-csv",
          os.path.join(l.dir, "p.csv"), "--no-workdir", "--", "bash", "-c", script)
    l.run("wait", "--batch", "scored", code=1)
    rows = l.json("queue", "scored", "--results")["results"]
    assert [(r["parameters"]["v"], r["last"], r["best_run"], r["state"]) for r in rows] == [
        ("5", 5, False, "done"), ("2", 2, True, "done"), ("9", 9, False, "failed")], rows
    out = l.run("queue", "scored", "--results", "--metric", "eval/accuracy", "--csv").stdout
    table = list(csv.DictReader(io.StringIO(out.decode())))
    # One that failed is not the best, whatever its numbers say.
    assert [row["best"] for row in table] == ["true", "false", "false"], table
    assert table[0]["text"] == "a, b" and float(table[0]["eval/accuracy_best"]) == 5, table
    out = l.run("queue", "scored", "--results", "--metric", "eval/accuracy", "--goal", "min")
    assert b"*  scored-2" in out.stdout and b"gpuctl pull scored-2" in out.stderr, out
    assert b"* scored-2 has the lowest eval/accuracy, 2 at step 1, of the runs that are done" in out.stderr
    assert l.json("queue", "scored", "--results")["results"][1]["best_step"] == 1
    assert b"exited with code 1" in l.run("queue", "scored").stdout
    said = l.run("queue", "scored", "--results", "--metric", "nothing").stderr
    assert b"no run here has a value" in said, said
    assert b"HINT: the numbers that they have are loss, eval/accuracy" in said, said
    # A script's printed val_loss is eval_loss here, and answers to both names.
    l.run("submit", "--name", "printed", "--host", "local", "--sweep", "v=3,2", "--no-workdir", "--",
          "sh", "-c", "for s in 1 2; do echo \"Epoch $s/2 - loss=1 val_loss=$V\"; done")
    l.run("wait", "--batch", "printed")
    for name in ("eval_loss", "val_loss"):
        rows = l.json("queue", "printed", "--results", "--metric", name)["results"]
        assert [(row["best"], row["best_run"]) for row in rows] == [(3, False), (2, True)], rows


def test_runs_that_got_other_files_are_marked(l):
    work = os.path.join(l.dir, "drift")
    os.mkdir(work)
    script = os.path.join(work, "train.sh")

    def write_script(line):
        with open(script, "w", encoding="utf-8") as file:
            file.write("while [ ! -e %s/$1 ]; do sleep 0.05; done\n%s\n" % (l.dir, line))

    write_script("echo first")
    args = ["--name", "drift", "--host", "local", "--workdir", work, "--sweep", "v=1,2,3",
            "--", "bash", "train.sh", "{v}"]
    l.run("submit", *args)
    done = l.run("queue", "drift")
    assert b"other files" not in done.stdout + done.stderr, done
    write_script("echo second")
    for name in "123":
        with open(os.path.join(l.dir, name), "w", encoding="utf-8"):
            pass
    l.run("wait", "--batch", "drift")
    for flags in ([], ["--results"]):
        done = l.run("queue", "drift", *flags)
        assert b"drift-2 (other files)" in done.stdout and b"drift-1 (" not in done.stdout, done
        said = b"drift-2, drift-3 got other files of %s than the first run" % work.encode()
        assert said in done.stderr and b"gpuctl diff drift-1 drift-2" in done.stderr, done
    found = [entry["other_content"] for entry in batch(l, "drift")["entries"]]
    assert found == [False, True, True], found
    rows = l.json("queue", "drift", "--results")["results"]
    assert [row["other_content"] for row in rows] == [False, True, True], rows
    done = l.run("diff", "drift-1", "drift-2")
    assert b"which files differ is not known: not in a git repository" in done.stderr, done
    # The same batch again runs nothing, and says so.
    done = l.run("submit", *args)
    assert b"nothing is left to do, and nothing was run" in done.stderr, done
    assert b"the files of the work directory differ from those that it ran with" in done.stderr, done
    assert b"HINT: --replace, or another --name, runs it again" in done.stderr, done
    write_script("echo first")
    done = l.run("submit", *args)
    assert b"nothing was run" in done.stderr and b"differ" not in done.stderr, done


def test_the_best_run_is_one_that_finished_or_went_on(l):
    """The first run saves and ends with 0 when it is stopped, the third one is only stopped."""
    script = ("put() { echo '{\"type\":\"step\",\"step\":1,\"loss\":'$1'}' >> $GPUCTL_METRICS; }; "
              "[ $V = 2 ] && { put 5; exit 0; }; "
              "[ -e %s ] && { put 1; exit 0; }; "
              "trap 'exit 0' TERM; put $((4 - V)); sleep 600 & wait" % os.path.join(l.dir, "again"))
    l.run("submit", "--name", "best", "--host", "local", "--max-parallel", "1", "--sweep", "v=1,2,3",
          "--no-workdir", "--", "bash", "-c", script)
    # While nothing is done, a live run may be the best one.
    wait_until(lambda: l.json("queue", "best", "--results")["results"][0]["best"] == 3, "its loss")
    assert l.json("queue", "best", "--results")["results"][0]["best_run"]
    l.run("stop", "best-1")

    def third_tells():
        return l.json("queue", "best", "--results")["results"][2]["best"] == 1
    wait_until(third_tells, "the loss of the third")
    l.run("stop", "best-3")
    rows = l.json("queue", "best", "--results")["results"]
    assert [(r["state"], r["best"], r["best_run"]) for r in rows] == [
        ("cancelled", 3, False), ("done", 5, True), ("cancelled", 1, False)], rows
    said = l.run("queue", "best", "--results").stderr
    assert b"best-3 has a better value of loss, 1, and is cancelled, not done" in said, said
    with open(os.path.join(l.dir, "again"), "w", encoding="utf-8"):
        pass
    l.run("resume", "best-1", "--anew")
    rows = l.json("queue", "best", "--results")["results"]
    assert [(r["run"], r["state"], r["best"], r["best_run"]) for r in rows] == [
        ("best-1-2", "done", 1, True), ("best-2", "done", 5, False),
        ("best-3", "cancelled", 1, False)], rows
    # An equal value of a run that was stopped is not worth a word.
    done = l.run("pull", "--best", "best", code=None)
    assert b"the best run of best is best-1-2" in done.stderr and b"better" not in done.stderr, done


def test_the_best_so_far_may_yet_lose(l):
    script = ("echo '{\"type\":\"step\",\"step\":1,\"loss\":'$V'}' > $GPUCTL_METRICS; echo > out.txt; "
              "while [ $V != 1 ] && [ ! -e %s ]; do sleep 0.05; done" % os.path.join(l.dir, "go"))
    l.run("submit", "--name", "race", "--host", "local", "--sweep", "v=1,2,3", "--no-workdir",
          "--artifacts", "*.txt", "--", "bash", "-c", script)
    l.run("wait", "race-1")
    for command in (["queue", "race", "--results"], ["pull", "--best", "race"]):
        said = l.run(*command).stderr
        assert b"2 of 3 runs are not over: the best one may yet be another" in said, said
    l.run("cancel", "race", "--running")
    assert b"not over" not in l.run("queue", "race", "--results").stderr


def test_pull_brings_several_runs_each_into_its_own_directory(l):
    script = ("echo '{\"type\":\"step\",\"step\":1,\"loss\":'$V',\"f1\":'$V'}' > $GPUCTL_METRICS; "
              "[ $V = 3 ] || echo $V > result.txt")
    l.run("submit", "--name", "homes", "--host", "local", "--sweep", "v=1,2,3", "--no-workdir",
          "--artifacts", "*.txt", "--", "bash", "-c", script)
    l.run("wait", "--batch", "homes")

    def brought(folder):
        path = os.path.join(l.work, folder, "result.txt")
        with open(path, encoding="utf-8") as file:
            return file.read()

    # One that has nothing holds no other up, and the exit code tells.
    runs = l.json("pull", "homes-3", "homes-1", "homes-2", "homes-1", code=1)["runs"]
    assert [run["name"] for run in runs] == ["homes-3", "homes-1", "homes-2"], runs
    assert [run["error"] is None for run in runs] == [False, True, True], runs
    assert runs[0]["error"]["cause"] == "nothing-to-bring", runs[0]
    assert (brought("homes-1"), brought("homes-2")) == ("1\n", "2\n")
    said = l.run("pull", "--batch", "homes", "--to", "all", code=1).stderr
    assert b"2 of 3 runs came" in said and b"pull homes-3: " in said, said
    assert (brought("all/homes-1"), brought("all/homes-2")) == ("1\n", "2\n")
    l.run("pull", "--batch", "homes", "res*", "--to", "few", code=1)
    assert (brought("few/homes-1"), brought("few/homes-2")) == ("1\n", "2\n")
    said = l.run("pull", "--batch", "homes", "other*", "--to", "few", code=1).stderr
    assert b'no file matches "other*"' in said, said
    # Whatever is no whole name of a run is a pattern, of each run.
    l.run("pull", "homes-1", "homes-2", "res*", "--to", "some")
    assert (brought("some/homes-1"), brought("some/homes-2")) == ("1\n", "2\n")
    # A whole name stays that of its run when it is launched again under a longer one.
    l.run("resume", "homes-2", "--anew")
    runs = l.json("pull", "homes-1", "homes-2", "homes-2-2", "--to", "again")["runs"]
    assert [run["name"] for run in runs] == ["homes-1", "homes-2", "homes-2-2"], runs
    assert len({run["run_id"] for run in runs}) == 3, runs
    said = l.run("pull", "homes-1", "homes-", code=1).stderr
    assert b'no file matches "homes-"' in said, said

    best = l.run("pull", "--best", "homes", "--to", "best")
    assert b"the best run of homes is homes-1" in best.stderr, best
    assert brought("best") == "1\n"
    best = l.json("pull", "--best", "homes", "--metric", "f1", code=1)
    assert best["error"]["cause"] == "nothing-to-bring" and "homes-3" in best["error"]["message"], best
    assert b"has a value of none" in l.run("pull", "--best", "homes", "--metric", "none", code=1).stderr
    for wrong in (["--best", "homes", "homes-1"], ["--batch", "homes", "homes"], ["--best", "homes", "--batch", "homes"],
                  ["homes-1", "--metric", "f1"], ["homes-1", "homes-2", "--watch"],
                  ["--best", "homes", "--goal", "most"], ["--batch", "nothing"], ["homes"]):
        l.run("pull", *wrong, code=2)


CHECKPOINTS = r"""cd "$GPUCTL_CHECKPOINT_DIR"
for s in 1 2 3; do
  echo "{\"step\": $s, \"loss\": $s, \"accuracy\": 0.$((s == 2 ? 9 : s))}" > $GPUCTL_METRICS
  mkdir .tmp-$s; echo $s > .tmp-$s/weights
  printf '{"format":1,"step":%d,"files":[{"path":"weights","size":2,"sha256":"%s"}]}' $s \
    "$(sha256sum .tmp-$s/weights | cut -c -64)" > .tmp-$s/manifest.json
  mv .tmp-$s step-$s
done
echo '{"step": 4, "f2": 0.9}' > $GPUCTL_METRICS
"""


def test_the_best_checkpoint_is_that_of_any_number(l):
    l.run("launch", "--no-workdir", "--name", "chosen", "--", "bash", "-c", CHECKPOINTS)

    def comes(*flags):
        brought = l.json("pull", "chosen-1", "--to", "chosen", "--checkpoint", "best", *flags)
        return brought["checkpoints"][0]["step"]
    assert comes("--metric", "accuracy") == 2
    assert comes("--metric", "accuracy", "--goal", "min") == 1
    assert comes("--metric", "loss") == 1
    # An earlier step without a checkpoint was only as good.
    l.run("launch", "--no-workdir", "--name", "shared", "--", "bash", "-c",
          "echo '{\"step\": 0, \"accuracy\": 0.9}' > $GPUCTL_METRICS\n" + CHECKPOINTS)
    said = l.run("pull", "shared-1", "--to", "shared", "--checkpoint", "best", "--metric", "accuracy").stderr
    assert b"was best at step" not in said, said
    # No checkpoint is of the step at which the number was best.
    l.run("launch", "--no-workdir", "--name", "unsaved", "--", "bash", "-c",
          CHECKPOINTS.replace('"f2": 0.9', '"accuracy": 0.99'))
    said = l.run("pull", "unsaved-1", "--to", "unsaved", "--checkpoint", "best", "--metric", "accuracy").stderr
    assert b"accuracy was best at step 4, which no checkpoint has; that of step 2 is the best one that" in said, said
    done = l.run("pull", "chosen-1", "--checkpoint", "best", "--metric", "f1", code=1)
    assert b"chosen-1 has no value of f1 with a step" in done.stderr, done
    l.run("pull", "chosen-1", "--checkpoint", "latest", "--metric", "accuracy", code=2)


def test_a_machine_that_does_not_answer_leaves_its_runs_to_the_other(l):
    with socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))
        dead = "ada@127.0.0.1:%d" % gone.getsockname()[1]
    done = l.run("submit", "--name", "spare", "--host", dead, "--host", "local", "--sweep",
                 "v=1,2,3", *job(l, "spare.ran", "0"), code=None)
    assert done.stdout.startswith(b"spare-1\n"), done
    l.run("wait", "--batch", "spare")
    check_ran_once(l, "spare.ran", ["1", "2", "3"])
    l.run("submit", "--name", "none", "--host", dead, *job(l, "none.ran", "0"))
    (entry,) = batch(l, "none")["entries"]
    assert entry["state"] == "waiting" and "tried again in" in entry["why"], entry
    l.run("cancel", "none")


def test_wrong_words_submit_nothing(l):
    before = l.json("queue", "-a", "--offline")["batches"]
    write = os.path.join(l.dir, "bad.csv")
    for content in (b"", b"lr\n", b"lr,rank\n1\n", b"lr\n\x1b[31m\n", b"path\n/bin\n", b"lr\n\"1\n"):
        with open(write, "wb") as file:
            file.write(content)
        l.run("submit", "--host", "local", "--from-csv", write, "--", "true", code=2)
    for words in (["--sweep", "lr"], ["--sweep", "lr="], ["--sweep", "lr=1,1"], ["--seed", "3"],
                  ["--sweep", "a=1", "a=2"], ["--sample", "5", "--sweep", "a=1,2"],
                  ["--max-parallel", "0"], ["--max-cost", "20"], ["--name", "x" * 60],
                  ["--name", "-x"], ["--name", "a/b"], ["--sweep", "trainer.optimizer.lr=1"],
                  ["--from-csv", "/nowhere.csv"], ["--from-csv", l.dir], ["/nowhere.yaml"],
                  ["--tag", "a b"], ["--host", "x y"], ["--after", "nobody"]):
        l.run("submit", *words, *([] if "--host" in words else ["--host", "local"]), "--", "true",
              code=2)
    l.run("submit", "--host", "local", code=2)
    assert l.json("queue", "-a", "--offline")["batches"] == before
    big = ",".join(str(i) for i in range(200))
    done = l.run("submit", "--host", "local", "--sweep", "a=" + big, "b=" + big, "--", "true", code=2)
    assert b"--sample" in done.stderr, done
    plan = submit_json(l, "--host", "local", "--sample", "3", "--dry-run", "--sweep", "a=" + big,
                  "b=" + big, "--", "echo", "{a}")["plan"]
    assert plan["runs"] == 3 and plan["entries"][0]["parameters"], plan
    assert l.json("queue", "-a", "--offline")["batches"] == before


def test_an_entry_that_can_never_start_fails_and_holds_nothing_up(l):
    l.run("submit", "--name", "wants", "--host", "local", "--secret", "BATCH_TOKEN", "--sweep",
          "v=1,2", *job(l, "wants.ran", "0"), code=2)  # there is no such secret
    done = l.run("submit", "--name", "wants", "--host", "local", "--secret", "BATCH_TOKEN",
                 "--sweep", "v=1,2", *job(l, "wants.ran", "1"), BATCH_TOKEN="canary-90210")
    assert b"gpuctl login --secret BATCH_TOKEN" in done.stderr, done
    l.run("wait", "--batch", "wants", "--timeout", "60s", code=1)
    first, second = batch(l, "wants")["entries"]
    assert first["state"] == "done" and second["state"] == "failed", (first, second)
    assert "BATCH_TOKEN" in second["why"], second
    for folder, _, names in os.walk(l.env["GPUCTL_STATE_DIR"]):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                assert b"canary-90210" not in file.read(), name


if __name__ == "__main__":
    run_tests(globals())

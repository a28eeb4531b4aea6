#!/usr/bin/env python3
"""Runs of several processes: ranks, their lines, their ends.

  ranks.py GPUCTL FAKE_JOB [TEST...]
"""
import json
import os
import re
import stat
import subprocess
import sys
import time

from runs import Skipped, processes_with, run_tests, wait_until
from slots import start_agent

MARK = re.compile(rb"^(gpuctl|0|[1-9][0-9]{0,4})(>?)([|+]) ")


def taken_apart(output):
    """Returns what each process printed, by its rank (-1: the launcher): the rules of the marks,
    written anew here."""
    texts, zero_newline = {}, b""
    lines = output.split(b"\n")
    for i, line in enumerate(lines):
        last = i == len(lines) - 1
        mark = MARK.match(line)
        if mark and not last:
            rank = -1 if mark[1] == b"gpuctl" else int(mark[1])
            if not mark[2]:
                texts[0] = texts.get(0, b"") + zero_newline
            zero_newline = b""
            text = line[mark.end():]
            if rank == 0:
                texts[0] = texts.get(0, b"") + text
                zero_newline = b"\n"
            else:
                texts[rank] = texts.get(rank, b"") + text + (b"\n" if mark[3] == b"|" else b"")
            continue
        if mark:
            line = line[mark.end():]
        texts[0] = texts.get(0, b"") + zero_newline + line
        zero_newline = b"" if last else b"\n"
    return {rank: text for rank, text in texts.items() if text}


def output_of(l, name):
    """The output as the node has it, and as it is here: they are equal, byte for byte."""
    show = l.json("show", name)
    texts = []
    for directory in (show["files"]["output"],
                      os.path.join(l.root, "jobs", show["job_id"], "output")):
        texts.append(b"")
        for part in sorted(os.listdir(directory)):
            with open(os.path.join(directory, part), "rb") as file:
                texts[-1] += file.read()
    assert texts[0] == texts[1], (len(texts[0]), len(texts[1]))
    return texts[0]


def none_left(job_id):
    wait_until(lambda: not processes_with(b"GPUCTL_JOB_ID=" + job_id.encode()), "no process is left")


def test_run_file_and_flag(l):
    with open(l.work + "/two.yaml", "w") as file:
        file.write("name: two\nprocesses: 2\nrun: |\n  echo rank $RANK of $WORLD_SIZE\n")
    plan = l.json("launch", "two.yaml", "--dry-run")["plan"]
    assert plan["processes"] == 2, plan
    assert b"processes 2, each with its RANK" in l.run("launch", "two.yaml", "--dry-run").stdout
    done = l.run("launch", "two.yaml", "--no-workdir")
    assert sorted(done.stdout.splitlines()) == [b"1| rank 1 of 2", b"rank 0 of 2"], done
    done = l.run("launch", "two.yaml", "--no-workdir", "--processes", "3")
    assert b"2| rank 2 of 3\n" in done.stdout, done
    assert taken_apart(output_of(l, "two-2")) == {
        0: b"rank 0 of 3\n", 1: b"rank 1 of 3\n", 2: b"rank 2 of 3\n"}
    assert l.json("show", "two-2")["spec"]["processes"] == 3
    assert b"processes" in l.run("show", "two-2").stdout
    again = l.run("launch", "--like", "two-2", "--name", "like")
    assert b"2| rank 2 of 3\n" in again.stdout, again
    wrong = l.run("launch", "--processes", "some", "--no-workdir", "--", "true", code=2)
    assert b"--processes" in wrong.stderr, wrong


def test_logs_of_a_rank(l):
    script = ("for i in 1 2 3; do echo \"$RANK| line $i\"; printf '%s%%\\r' $i; done; "
              "[ $RANK = 0 ] || printf 'half'")
    l.run("launch", "--no-workdir", "--name", "ranked", "--processes", "3", "--", "bash", "-c", script)
    output = output_of(l, "ranked-1")
    zero = b"".join(b"0| line %d\n%d%%\r" % (i, i) for i in (1, 2, 3))
    two = b"2| line 1\n2| line 2\n2| line 3\nhalf"
    assert taken_apart(output)[0] == zero, output
    # logs ends a last line that has no end.
    assert l.run("logs", "ranked-1", "--rank", "0").stdout == zero + b"\n"
    assert taken_apart(output)[2] == two, output
    assert l.run("logs", "ranked-1", "--rank", "2").stdout == two + b"\n"
    assert l.run("logs", "ranked-1", "--rank", "2", "-n", "2").stdout == b"2| line 3\nhalf\n"
    assert l.run("logs", "ranked-1", "--rank", "1", "--grep", "line 2").stdout == b"1| line 2\n"
    timed = l.run("logs", "ranked-1", "--rank", "1", "--timestamps").stdout
    assert len(timed.splitlines()) == 4 and b" 1| line 1" in timed, timed
    assert l.run("logs", "ranked-1", "--rank", "9").stdout == b""
    assert l.run("logs", "ranked-1").stdout == output
    # It is over: nothing follows.
    assert l.run("logs", "-f", "ranked-1", "--rank", "2", "-n", "1").stdout == b"half\n"
    assert l.run("logs", "-f", "ranked-1", "--grep", "nothing like it", code=1).stdout == b""
    wrong = l.run("logs", "-f", "ranked-1", "--rank", "2", "--timestamps", code=2)
    assert b"--timestamps is for what is there" in wrong.stderr, wrong
    l.run("launch", "--no-workdir", "--name", "plain", "--", "echo", "1| hello")
    assert l.run("logs", "plain-1").stdout == b"1| hello\n"
    wrong = l.run("logs", "plain-1", "--rank", "0", code=2)
    assert b"has no ranks" in wrong.stderr, wrong


def test_a_rank_is_followed(l):
    """logs -f --rank shows the lines of one rank as they come, to the end of the run."""
    script = ("echo first of $RANK; echo second of $RANK; while [ ! -e %s/go ]; do sleep 0.05; done; "
              "for i in 1 2 3; do echo $i of $RANK; done; printf 'last of %%s' $RANK" % l.dir)
    l.run("launch", "-d", "--no-workdir", "--name", "followed", "--processes", "3", "--setup",
          "echo 2\\| of the setup", "--", "bash", "-c", script)
    wait_until(lambda: l.run("logs", "followed-1").stdout.count(b"second of") == 3, "all have begun")
    followers = {}
    for words in (("--rank", "2"), ("--rank", "0"), ("--rank", "1", "-n", "1"),
                  ("--rank", "2", "--grep", "^[12] of"), ("--grep", "of 1$")):
        followers[words] = subprocess.Popen([l.gpuctl, "logs", "-f", "followed-1", *words],
                                            env=l.env, stdout=subprocess.PIPE)
    # What is there comes at once, while the run goes on.
    assert followers["--rank", "2"].stdout.readline() == b"first of 2\n"
    assert followers["--rank", "1", "-n", "1"].stdout.readline() == b"second of 1\n"
    with open(l.dir + "/go", "w"):
        pass
    printed = {words: follower.communicate()[0] for words, follower in followers.items()}
    assert printed["--rank", "2"] == b"second of 2\n1 of 2\n2 of 2\n3 of 2\nlast of 2\n", printed
    assert printed["--rank", "0"] == (b"first of 0\nsecond of 0\n1 of 0\n2 of 0\n3 of 0\n"
                                      b"last of 0\n"), printed
    assert printed["--rank", "1", "-n", "1"] == b"1 of 1\n2 of 1\n3 of 1\nlast of 1\n", printed
    assert printed["--rank", "2", "--grep", "^[12] of"] == b"1 of 2\n2 of 2\n", printed
    marked = printed["--grep", "of 1$"].splitlines()
    assert len(marked) == 6 and all(b"of 1" in line for line in marked), marked
    assert all(follower.returncode == 0 for follower in followers.values())


def test_cores_are_divided(l):
    script = "echo threads ${OMP_NUM_THREADS-all}"
    cores = len(os.sched_getaffinity(0))
    for words, said in ((["--processes", "2"], max(1, cores // 2)), (["--processes", "1"], "all"),
                        ([], "all"), (["--processes", "2", "--env", "OMP_NUM_THREADS=7"], 7)):
        environment = {name: value for name, value in l.env.items() if name != "OMP_NUM_THREADS"}
        done = subprocess.run([l.gpuctl, "launch", "--no-workdir", *words, "--", "bash", "-c", script],
                              env=environment, stdout=subprocess.PIPE, check=True)
        lines = [line.split(b"| ")[-1] for line in done.stdout.splitlines()]
        assert set(lines) == {b"threads %s" % str(said).encode()}, (words, lines)


def test_only_rank_zeros_numbers_count(l):
    l.run("launch", "--no-workdir", "--name", "printed", "--processes", "2", "--", "bash", "-c",
          "for i in 1 2 3; do echo step $((i + RANK * 100)) loss $((RANK * 50 + 4 - i)); done")
    run = next(run for run in l.json("ps", "-a")["runs"] if run["name"] == "printed-1")
    assert (run["step"], run["loss"]) == (3, 1), run
    l.run("launch", "--no-workdir", "--name", "metric", "--processes", "2", "--", "bash", "-c",
          "echo '{\"step\":'$((7 + RANK))',\"loss\":0.5}' > $GPUCTL_METRICS; sleep 0.2")
    run = next(run for run in l.json("ps", "-a")["runs"] if run["name"] == "metric-1")
    assert run["step"] == 7, run


def test_the_first_that_fails_is_told(l):
    done = l.run("launch", "--no-workdir", "--name", "fails", "--processes", "3", "--", "bash", "-c",
                 "if [ $RANK = 1 ]; then sleep 0.3; echo 'ValueError: a bad value' >&2; exit 9; fi; "
                 "exec sleep 1000", code=9)
    assert b"exited with code 9 (rank 1: exit code 9: ValueError: a bad value)" in done.stderr, done
    assert b"gpuctl| rank 1 ended first, with exit code 9" in done.stdout, done
    run = next(run for run in l.json("ps", "-a")["runs"] if run["name"] == "fails-1")
    assert run["job_exit_code"] == 9 and run["status"] == "failed", run
    assert run["reason"] == "rank 1: exit code 9: ValueError: a bad value", run
    none_left(run["job_id"])


def test_a_stop_reaches_all(l):
    l.run("launch", "-d", "--no-workdir", "--name", "stopped", "--processes", "3", "--", "bash", "-c",
          "trap 'echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05 || :; done")
    wait_until(lambda: l.run("logs", "stopped-1").stdout.count(b"ready") == 3, "all are ready")
    l.run("stop", "stopped-1")
    run = next(run for run in l.json("ps", "-a")["runs"] if run["name"] == "stopped-1")
    assert run["job_exit_code"] == 75 and run["reason"] == "user", run
    assert l.run("logs", "stopped-1").stdout.count(b"saved") == 3
    none_left(run["job_id"])


def test_one_process_a_gpu(l):
    smi = os.path.join(l.dir, "nvidia-smi")
    with open(smi, "w") as file:
        file.write("#!/bin/sh\nif [ \"$1\" = -L ]; then\n  for i in 0 1 2; do echo \"GPU $i: X (UUID: G-$i)\";"
                   " done\n  exit\nfi\nwhile sleep 1; do\n  echo 'index, name, utilization.gpu [%], uuid'\n"
                   "  for i in 0 1 2; do echo \"$i, X, $((i * 40)), G-$i\"; done\ndone\n")
    os.chmod(smi, stat.S_IRWXU)
    # An agent that gpuctl starts would look for the machine's own nvidia-smi.
    for root, program in ((l.root + "-gpus", smi), (l.root + "-none", "")):
        start_agent(l, {**l.env, "GPUCTL_NVIDIA_SMI": program}, root)
    # Each with a list of runs of its own: no other node has answered for this machine before.
    own = os.path.join(l.dir, "state-")
    done = l.run("launch", "--no-workdir", "--name", "each", "--processes", "gpus", "--", "bash", "-c",
                 "echo $LOCAL_RANK/$LOCAL_WORLD_SIZE; sleep 3", GPUCTL_NODE_ROOT=l.root + "-gpus",
                 GPUCTL_STATE_DIR=own + "gpus")
    assert sorted(done.stdout.splitlines()) == [b"0/3", b"1| 1/3", b"2| 2/3"], done
    gpus = l.json("show", "each-1", GPUCTL_STATE_DIR=own + "gpus")["gpus"]
    assert [gpu["utilization_percent"] for gpu in gpus] == [0, 40, 80], gpus
    none = l.run("launch", "--no-workdir", "--processes", "gpus", "--", "true", code=126,
                 GPUCTL_NODE_ROOT=l.root + "-none", GPUCTL_STATE_DIR=own + "none")
    assert b"could not run: processes: gpus, and the job sees no GPU here" in none.stderr, none


# What each process prints is also in a file of its own.
NOISE = r"""
import os, random, sys
rank = int(os.environ["RANK"])
source = random.Random(1000 * int(os.environ["SEED"]) + rank)
with open("printed-%d" % rank, "wb") as own:
    for _ in range(400):
        size = source.choice([0, 5, 40, 200, 3000, 70000 if source.random() < 0.1 else 80])
        piece = bytes(source.choice(b"ab\0|+> 0123\xff") for _ in range(min(size, 64))) * (size // 64 + 1)
        piece = piece[:size] + (b"\n" if source.random() < 0.8 else b"")
        own.write(piece)
        while piece:
            count = source.randint(1, len(piece))
            os.write(source.choice([1, 2]), piece[:count])
            piece = piece[count:]
"""


def test_no_line_is_lost_or_torn(l):
    for seed in range(3):
        name = "noise%d" % seed
        l.run("launch", "--no-workdir", "--name", name, "--processes", "8", "--env", "SEED=%d" % seed,
              "--", sys.executable, "-c", NOISE)
        show = l.json("show", name + "-1")
        texts = taken_apart(output_of(l, name + "-1"))
        work = os.path.join(l.root, "jobs", show["job_id"], "work")
        for rank in range(8):
            with open(os.path.join(work, "printed-%d" % rank), "rb") as file:
                printed = file.read()
            assert texts[rank] == printed, (seed, rank, len(texts[rank]), len(printed))


def cpu_seconds(pid):
    with open("/proc/%d/schedstat" % pid) as file:
        return int(file.read().split()[0]) / 1e9


CHATTER = r"""
import os, time
begin, sent = time.monotonic(), 0
while time.monotonic() < begin + 6:
    due = int((time.monotonic() - begin) * 1250)
    while sent < due:
        os.write(1, b"rank %s step %d loss 1.2345 lr 0.0003 and some more text\n" % (os.environ["RANK"].encode(), sent))
        sent += 1
    time.sleep(0.004)
"""


def test_the_launcher_costs_little(l):
    l.run("launch", "-d", "--no-workdir", "--name", "chatter", "--processes", "8", "--",
          sys.executable, "-c", CHATTER)
    job = l.json("show", "chatter-1")["job_id"]
    lifecycle = os.path.join(l.root, "jobs", job, "lifecycle.jsonl")
    wait_until(lambda: os.path.exists(lifecycle) and b'"started"' in open(lifecycle, "rb").read(), "it began")
    with open(lifecycle) as file:
        launcher = next(json.loads(line)["pid"] for line in file if '"started"' in line)
    time.sleep(2)
    before, begin = cpu_seconds(launcher), time.monotonic()
    time.sleep(3)
    share = (cpu_seconds(launcher) - before) / (time.monotonic() - begin)
    print("the launcher takes %.2f %% of a processor" % (100 * share), flush=True)
    # A third of a percent here. Sanitizers, and machines that are busy with others, take more.
    assert share < 0.05, share
    l.run("wait", "chatter-1")
    texts = taken_apart(output_of(l, "chatter-1"))
    for rank in range(8):
        numbers = [int(line.split()[3]) for line in texts[rank].splitlines()]
        assert numbers == list(range(len(numbers))) and len(numbers) > 1000, rank


TORCH = r"""
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.manual_seed(0)
torch.set_num_threads(1)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
if world > 1:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
inputs = torch.randn(32, 8, dtype=torch.double)
targets = inputs.sum(1, keepdim=True).sin()
own = slice(rank * 32 // world, (rank + 1) * 32 // world)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 21):
    optimizer.zero_grad()
    loss = ((model(inputs[own]) - targets[own]) ** 2).mean()
    loss.backward()
    optimizer.step()
    whole = loss.detach().clone()
    if world > 1:
        dist.all_reduce(whole)
        whole /= world
    print("step %d loss %.12f" % (step, whole.item()), flush=True)
if world > 1:
    dist.destroy_process_group()
"""


def test_two_processes_train_as_one(l):
    python = "/usr/bin/python3"
    found = subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                           stderr=subprocess.DEVNULL)
    if found.returncode != 0:
        raise Skipped("%s has no torch with Gloo" % python)
    with open(l.work + "/ddp.py", "w") as file:
        file.write(TORCH)
    one = l.run("launch", "--name", "one", "--", python, "ddp.py").stdout
    l.run("launch", "--name", "both", "--processes", "2", "--", python, "ddp.py")
    zero = l.run("logs", "both-1", "--rank", "0").stdout
    other = l.run("logs", "both-1", "--rank", "1").stdout

    def losses(text):
        return [float(loss) for loss in re.findall(rb"^step \d+ loss (\S+)$", text, re.M)]
    assert len(losses(one)) == 20 and losses(one)[-1] < losses(one)[0], one
    assert losses(zero) == losses(other), (zero, other)
    assert all(abs(a - b) < 1e-9 for a, b in zip(losses(one), losses(zero), strict=True)), (one, zero)


# It needs what is not everywhere.
BY_NAME = ("test_two_processes_train_as_one",)

if __name__ == "__main__":
    run_tests(globals(), by_name=BY_NAME)

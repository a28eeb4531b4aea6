#!/usr/bin/env python3
"""Checks training on prepared data with the whole program: packing, epochs, early stop, the best
checkpoint, recomputed activations, and that a run that is killed at any time goes on to the same
bits.

usage: prepared_runs.py TRAINER_PROGRAM [KILLS]
"""

import json
import os
import random
import re
import signal
import struct
import sys
import tempfile
import time

from kills import Timing, kill_and_resume
from program import DEVICE, Program

LEARNED = 1 << 31
TERMINATED = 128 + signal.SIGTERM


def sum_row(chooser, right=True):
    """A row that says "1 a + b = sum", with digits as tokens; only the sum is learned."""
    a, b = chooser.randrange(50), chooser.randrange(50)
    total = a + b if right else chooser.randrange(100)
    asked = [1, 10 + a // 10, 10 + a % 10, 2, 10 + b // 10, 10 + b % 10, 3]
    told = [10 + total // 10, 10 + total % 10, 4]
    return asked + [token | LEARNED for token in told]


def write_part(folder, part, rows):
    ends, end = [], 0
    with open(f"{folder}/{part}.tokens", "wb") as file:
        for row in rows:
            file.write(struct.pack(f"<{len(row)}I", *row))
            end += len(row)
            ends.append(end)
    with open(f"{folder}/{part}.ends", "wb") as file:
        file.write(struct.pack(f"<{len(ends)}Q", *ends))
    return {"rows": len(rows), "tokens": end}


def write_prepared(folder, train, held_out):
    os.makedirs(folder)
    parts = {"train": write_part(folder, "train", train),
             "held_out": write_part(folder, "held_out", held_out)}
    with open(folder + "/dataset.json", "w") as file:
        json.dump({"format": 1, "digest": folder, "tokenizer_sha256": "none", "id_end": 20,
                   "parts": parts}, file)


class Test(Program):
    def __init__(self, program, directory):
        super().__init__(program)
        self.directory, self.runs = directory, 0

    def words(self, data, settings):
        """Returns the command of a new run, its checkpoint directory and its metrics."""
        self.runs += 1
        name = f"{self.directory}/run{self.runs}"
        config = {"model": {"layers": 1, "d_model": 32, "heads": 2, "kv_heads": 1, "ffn": 64,
                            "context": 40},
                  "optimizer": {"lr": 3e-3, "warmup_ratio": 0.1},
                  "train": {"batch": 4, "micro_batch": 2, "threads": 2, "device": DEVICE}}
        for key, value in settings.items():
            section, key = key.split(".")
            config.setdefault(section, {})[key] = value
        with open(name + ".json", "w") as file:
            json.dump(config, file)
        words = ["train", "--config", name + ".json", "--data", data, "--checkpoint-dir",
                 name + ".checkpoints"]
        return words, name + ".checkpoints", name + ".metrics"

    def train(self, what, data, settings):
        words, checkpoints, metrics = self.words(data, settings)
        ended = self.run(*words, GPUCTL_METRICS=metrics)
        self.check(what + " ends well", ended.returncode == 0, ended.returncode, ended.stderr)
        return checkpoints, read_metrics(metrics), ended.stdout


def read_metrics(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def of_type(lines, kind):
    return [line for line in lines if line["type"] == kind]


def newest(checkpoints):
    return sorted(name for name in os.listdir(checkpoints) if name.startswith("step-"))[-1]


def content(checkpoints):
    """Returns the name of the newest checkpoint, and the files of tensors in it."""
    step = newest(checkpoints)
    found = {"step": step}
    for name in os.listdir(f"{checkpoints}/{step}"):
        if name.endswith(".safetensors"):
            with open(f"{checkpoints}/{step}/{name}", "rb") as file:
                found[name] = file.read()
    return found


def check_learning(test, data):
    checkpoints, lines, out = test.train("a run of 12 epochs", data,
                                         {"train.epochs": 12, "train.eval_every": 0,
                                          "optimizer.lr": 0.01})
    losses = [line["loss"] for line in of_type(lines, "step")]
    # 4 rows of 9 places in a window of 40, 4 windows a step: 400 rows are 25 steps.
    test.check("12 epochs are 300 steps", len(losses) == 300, len(losses))
    test.check("the line about the data says what is there",
               "400 rows with 4000 tokens in 100 windows, 90.0 % filled; 40 held-out rows" in out,
               out)
    first, last = losses[0], of_type(lines, "eval")[-1]["loss"]
    test.check("sums are learned", first > 4 and last < 0.3 * first, first, last)
    command = ["eval", "--checkpoint", f"{checkpoints}/{newest(checkpoints)}", "--data", data]
    found = test.run(*command, "--context", "40", "--as", "json")
    test.check("eval finds the same loss", found.returncode == 0 and
               abs(json.loads(found.stdout)["loss"] - last) < 1e-6, found)
    found = test.run(*command, "--context", "1000000")
    test.check("eval refuses windows beyond the model's", found.returncode == 64, found)
    test.check("only what is learned counts", of_type(lines, "eval")[-1]["tokens"] == 40 * 3,
               of_type(lines, "eval")[-1])


def check_preflight(test, data):
    words, checkpoints, _ = test.words(data, {"train.epochs": 2})
    words = ["preflight"] + words[1:5]
    temporary = tempfile.mkdtemp(dir=test.directory)
    ended = test.run(*words, TMPDIR=temporary)
    found = ended.stdout.splitlines()
    test.check("preflight makes its five checks", ended.returncode == 0 and
               sum(line.startswith("ok  ") for line in found) == 5, ended)
    test.check("it counts the steps", any("50 steps of 4 windows of 40 tokens" in line
                                          for line in found), found)
    test.check("it tells memory, a GPU and a verdict",
               [line.split()[0] for line in found if line[:1] in "hgv"] ==
               ["here", "gpu", "verdict"], found)
    large = test.run(*words, "--set", "train.batch=1000000", "--set", "train.micro_batch=1000000")
    test.check("a run that this machine has no memory for is not for this machine",
               large.returncode == 0 and "there is too little: about" in large.stdout and
               "too little memory here" in large.stdout and "is enough" not in large.stdout, large)
    test.check("it leaves nothing behind", not os.path.exists(checkpoints) and
               os.listdir(temporary) == [])
    ended = test.run(*words, "--set", "optimizer.lr=100000")
    test.check("preflight finds a learning rate that is far too high",
               ended.returncode == 125 and "optimizer.lr" in ended.stderr, ended)
    ended = test.run(*words, "--gpu", "H1000")
    test.check("preflight names the GPUs that it knows", ended.returncode == 64 and
               "H100" in ended.stderr, ended)


def check_early_stop(test, data):
    """Sums that are wrong at random are learned by heart, so the held-out loss rises."""
    settings = {"train.steps": 4000, "train.eval_every": 10, "train.patience": 3,
                "checkpoint.every": 1000, "checkpoint.keep_last": 1, "optimizer.lr": 0.01}
    checkpoints, lines, out = test.train("a run that gets worse", data, settings)
    done, evaluations = lines[-1], of_type(lines, "eval")
    losses = [line["loss"] for line in evaluations]
    best = min(range(len(losses)), key=losses.__getitem__)
    test.check("a run that gets worse stops early",
               done["outcome"] == "early_stop" and done["step"] < 4000, done)
    test.check("it stops after three evaluations without a better one",
               len(losses) == best + 4, losses)
    test.check("the best is told", done["best"] == {"held_out_loss": losses[best],
                                                    "step": evaluations[best]["step"]}, done)
    test.check("the best checkpoint is kept",
               sorted(os.listdir(checkpoints)) == [f"step-{evaluations[best]['step']:08}",
                                                   f"step-{done['step']:08}"],
               os.listdir(checkpoints))
    test.check("people read it, too", "early_stop at step" in out and "the best was" in out, out)


def check_recomputing(test, data):
    ends = []
    for recompute in (False, True):
        checkpoints, _, _ = test.train(f"a run with recompute {recompute}", data,
                                       {"train.steps": 6, "train.recompute": recompute})
        ends.append(content(checkpoints))
    test.check("recomputed activations change no bit", ends[0] == ends[1])


def check_kills(test, data, kills):
    """Kills a run at random times until it is through; the end must be as without."""
    settings = {"train.steps": 24 + 2 * kills, "train.batch": 6, "checkpoint.every": 3,
                "train.eval_every": 5, "train.patience": 1000, "train.recompute": True,
                "checkpoint.keep_last": 3}
    whole, _, _ = test.train("a run without kills", data, settings)
    words, checkpoints, metrics = test.words(data, settings)
    if not kill_and_resume(test, "prepared data", words, metrics, kills,
                           Timing(test, words, settings)):
        return
    test.check("a run that was killed ends in the same bits", content(whole) == content(checkpoints))
    ends = [of_type(read_metrics(path), "done")[-1] for path in (metrics, whole[:-11] + "metrics")]
    test.check("and in the same losses", ends[0]["loss"] == ends[1]["loss"] and
               ends[0]["best"] == ends[1]["best"], ends)


def check_term_while_evaluating(test, data):
    """A signal that breaks off an evaluation costs nothing of it."""
    settings = {"train.steps": 30, "train.eval_every": 1, "checkpoint.every": 0,
                "train.patience": 1000}
    whole, lines, _ = test.train("a run that evaluates at each step", data, settings)
    words, checkpoints, metrics = test.words(data, settings)
    chooser = random.Random(5)
    stops = 0
    while True:
        process = test.start(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
        if stops < 6:
            time.sleep(chooser.uniform(0.1, 1.0))
            process.terminate()
            if stops % 2:  # people press again
                process.terminate()
                process.send_signal(signal.SIGINT)
        _, error = process.communicate()
        if process.returncode == 0:
            break
        stops += 1
        # Before it listens for the signal, the program dies of it.
        if process.returncode not in (TERMINATED, -signal.SIGTERM):
            test.check("a stopped run saves and leaves", False, process.returncode, error)
            return
    found = {line["step"]: line["loss"] for line in of_type(read_metrics(metrics), "eval")}
    test.check(f"{stops} stopped runs evaluate every step all the same",
               found == {line["step"]: line["loss"] for line in of_type(lines, "eval")}, found)
    test.check("a run that was stopped ends in the same bits",
               content(whole) == content(checkpoints))


def check_memory(test, directory):
    """The estimate against the highest resident memory of runs."""
    context = 512
    data = directory + "/long"
    chooser = random.Random(3)
    rows = [[chooser.randrange(250) | LEARNED for _ in range(context)] for _ in range(16)]
    write_prepared(data, rows, rows[:2])
    most = []
    for more in ({}, {"train.recompute": True}, {"optimizer.state": "int8"}):
        words, _, _ = test.words(data, {
            "model.layers": 6, "model.d_model": 384, "model.heads": 6, "model.kv_heads": 2,
            "model.ffn": 1024, "model.context": context, "model.vocab_size": 8192,
            "train.steps": 3, "train.eval_every": 0, "checkpoint.every": 1, **more})
        process = test.start(*words)
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        estimate = re.search(r"memory  about ([0-9.]+) GB", out)
        estimated, needed = float(estimate[1]) * 1e9 if estimate else 0, usage.ru_maxrss * 1024
        most.append(needed)
        test.check(f"a run {more} needs {needed * 1e-9:.2f} GB, estimated at "
                   f"{estimated * 1e-9:.2f} GB", status == 0 and
                   abs(estimated / needed - 1) < 0.15, out)
    # 12.6 M weights; the moments are there twice while a checkpoint is written.
    saved, expected = most[0] - most[2], 2 * 12.59e6 * (8 - 2.03)
    test.check(f"moments in 8 bits save {saved * 1e-6:.0f} MB of {expected * 1e-6:.0f} MB",
               saved > 0.7 * expected, most)
    check_estimates(test)


def check_resumed_memory(test, directory):
    """What a run reads to go on is not there twice: it goes on where it has just begun."""
    data = directory + "/short"
    write_prepared(data, [[20 | LEARNED] * 32] * 8, [[20 | LEARNED] * 32])
    settings = {"model.layers": 6, "model.d_model": 512, "model.heads": 8, "model.kv_heads": 4,
                "model.ffn": 1536, "model.context": 32, "model.vocab_size": 16384, "train.steps": 2,
                "train.batch": 1, "train.micro_batch": 1, "train.threads": 1, "train.eval_every": 0,
                "train.recompute": True}
    words, checkpoints, _ = test.words(data, {**settings, "train.steps": 1})
    test.run(*words)
    step = f"{checkpoints}/{newest(checkpoints)}"
    words, _, _ = test.words(data, settings)
    at = words.index("--checkpoint-dir")
    del words[at:at + 2]
    most = []
    for more in ([], ["--resume", step]):
        process = test.start(*words, *more)
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        most.append(usage.ru_maxrss * 1024 if status == 0 else 0)
    read = sum(os.path.getsize(f"{step}/{name}") for name in os.listdir(step))
    test.check(f"a run needs {most[0] * 1e-6:.0f} MB, resumed {most[1] * 1e-6:.0f} MB after reading {read * 1e-6:.0f} MB",
               0 < most[1] < most[0] + 0.15 * read, most)


def memory_group():
    """Returns a new control group of memory and the file of its limit; None where none can be made."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        paths = dict(line.rstrip("\n").split(":", 2)[1:] for line in file)
    old = "memory" in paths
    group = "/sys/fs/cgroup" + ("/memory" + paths["memory"] if old else paths.get("", "/"))
    group = f"{group.rstrip('/')}/gpuctl-test-{os.getpid()}"
    limit = group + ("/memory.limit_in_bytes" if old else "/memory.max")
    try:
        os.mkdir(group)
        if os.path.exists(limit):
            return group, limit
        os.rmdir(group)
    except OSError:
        pass
    return None


def check_group(test, data):
    """The limit of a group counts that is above the process's own."""
    made = memory_group()
    if made is None:
        return print("skipped: a control group of memory, which this process may not make")
    group, limit = made
    inner = group + "/inner"
    os.mkdir(inner)

    def enter():
        with open(inner + "/cgroup.procs", "w", encoding="utf-8") as file:
            file.write("0")
    try:
        with open(limit, "w", encoding="utf-8") as file:
            file.write(str(300 << 20))
        words, checkpoints, _ = test.words(data, {"model.layers": 6, "model.d_model": 384, "model.context": 512,
                                                  "model.vocab_size": 8192, "train.batch": 8, "train.micro_batch": 8})
        test.limits = enter
        ended = test.run(*words)
        said = re.search(r"there is too little: about [0-9.]+ GB of ([0-9.]+) GB", ended.stderr)
        test.check("a run that a group above has no memory for is refused", ended.returncode == 64 and said and
                   float(said[1]) < 0.6 and not os.path.exists(checkpoints), ended)
    finally:
        test.limits = None
        os.rmdir(inner)
        os.rmdir(group)


def check_estimates(test):
    """The same for steps alone, of all kinds of tuning."""
    lora = {"lora.rank": 16}
    for more in ({}, {"train.recompute": "true"}, lora, {**lora, "train.recompute": "true"},
                 {**lora, "lora.dora": "true", "lora.rank_scaled": "true"},
                 {**lora, "lora.dora": "true", "lora.dropout": 0.1},
                 {**lora, "lora.base_dtype": "nf4"}):
        for batch in (1, 8):
            keys = {"train.micro_batch": 0, "train.device": DEVICE, "train.threads": 2,
                    "train.batch": batch, **more}
            words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
            ended = test.run("bench", "--warmup", "0", "--steps", "2", *words)
            line = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {}
            ratio = line.get("estimated_bytes", 0) / line.get("peak_bytes", 1)
            test.check(f"steps with {batch} windows, {more}: the estimate is {ratio:.2f} of the "
                       "highest memory", abs(ratio - 1) <= 0.1, ended.stdout, ended.stderr)


def check_refusals(test, data):
    for key, value, words in (("train.epochs", 2, "train.steps and train.epochs"),
                              ("optimizer.warmup_steps", 3, "warmup_ratio")):
        command, _, _ = test.words(data, {"train.steps": 4, key: value})
        ended = test.run(*command)
        test.check(f"{key} beside its twin is refused", ended.returncode == 64 and
                   words in ended.stderr, ended.stderr)


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    chooser = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        test = Test(sys.argv[1], directory)
        sums, noise = directory + "/sums", directory + "/noise"
        write_prepared(sums, [sum_row(chooser) for _ in range(400)],
                       [sum_row(chooser) for _ in range(40)])
        write_prepared(noise, [sum_row(chooser, right=False) for _ in range(40)],
                       [sum_row(chooser, right=False) for _ in range(40)])
        check_learning(test, sums)
        check_preflight(test, sums)
        check_early_stop(test, noise)
        check_recomputing(test, sums)
        check_term_while_evaluating(test, sums)
        check_refusals(test, sums)
        if DEVICE == "cpu":
            check_memory(test, directory)
            check_resumed_memory(test, directory)
            check_group(test, directory + "/long")
        check_kills(test, sums, kills)
        print(f"\n{test.failed} failed")
        sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

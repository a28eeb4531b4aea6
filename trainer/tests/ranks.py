#!/usr/bin/env python3
"""Checks runs of several processes: they compute what one process computes, decide the same, go on in
another number, and end when one of them dies.

usage: ranks.py TRAINER_PROGRAM [KILLS [SEED]]

Needs no torch in Python; with it, and with stories260K in $GPUCTL_MODELS_DIR (default:
../shared/models beside the project), that model is tuned in several processes, too. More than three
KILLS (default: 3) ask for more ways of training and more numbers of processes.
"""

import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from prepared_runs import content, newest, of_type, read_metrics, sum_row, write_prepared
from program import Program

TRY_AGAIN, BAD_CONFIG, TERMINATED = 75, 64, 128 + signal.SIGTERM
# Sums in another order: a few units in the last place of fp32, which steps make larger.
ROUNDING = 2e-6
PATIENCE = 60  # seconds; machines that run tests may be slow
MODEL = {"layers": 2, "d_model": 64, "heads": 4, "kv_heads": 2, "ffn": 160, "context": 40}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read_tensors(path):
    """Returns the numbers of each fp32 tensor of a safetensors file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def largest_difference(ones, others):
    """Of all tensors, relative to the largest number of each."""
    most = 0
    for name, numbers in ones.items():
        scale = max(1e-6, max(map(abs, numbers)))
        most = max(most, max(abs(a - b) for a, b in zip(numbers, others[name])) / scale)
    return most


class Ended:
    def __init__(self, codes, outs, errors):
        self.codes, self.outs, self.errors = codes, outs, errors

    def __str__(self):
        return f"{self.codes} {self.errors} {self.outs[0][-600:]}"


class Run:
    """The processes of a run, of which each prints to files."""

    def __init__(self, test, words, ranks, metrics, more=None, limits=None, port=None, **variables):
        """`limits`: of some ranks, what is called in the process before the program."""
        self.port, self.directory = port or free_port(), tempfile.mkdtemp(dir=test.directory)
        self.processes = []
        for rank in range(ranks):
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith("GPUCTL_")}
            environment.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(self.port), GPUCTL_METRICS=metrics, **variables)
            with open(f"{self.directory}/{rank}.out", "w") as out, \
                    open(f"{self.directory}/{rank}.err", "w") as error:
                own = more(rank) if more else []
                self.processes.append(subprocess.Popen(
                    [test.program, *words, *own], stdout=out, stderr=error, env=environment,
                    preexec_fn=(limits or {}).get(rank)))

    def text(self, rank, kind):
        with open(f"{self.directory}/{rank}.{kind}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def joined(self):
        return "ranks   " in self.text(0, "out")

    def alive(self):
        return [rank for rank, process in enumerate(self.processes) if process.poll() is None]

    def wait(self, condition, patience=PATIENCE):
        end = time.monotonic() + patience
        while time.monotonic() < end and not condition():
            time.sleep(0.005)
        return condition()

    def end(self, patience=PATIENCE):
        """Waits for all; those that do not end in time are killed."""
        self.wait(lambda: not self.alive(), patience)
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        ranks = range(len(self.processes))
        return Ended([process.returncode for process in self.processes],
                     [self.text(rank, "out") for rank in ranks],
                     [self.text(rank, "err") for rank in ranks])


class Test(Program):
    def __init__(self, program, directory):
        super().__init__(program)
        self.directory, self.runs = directory, 0

    def words(self, data, settings):
        self.runs += 1
        name = f"{self.directory}/run{self.runs}"
        config = {"model": dict(MODEL), "optimizer": {"lr": 3e-3, "warmup_ratio": 0.1},
                  "train": {"steps": 10, "batch": 12, "micro_batch": 2, "threads": 1, "device": "cpu",
                            "eval_every": 5}, "checkpoint": {"every": 5}}
        for key, value in settings.items():
            section, key = key.split(".")
            config.setdefault(section, {})[key] = value
        if "init" in config["model"]:
            config["model"] = {key: config["model"][key] for key in ("init", "context")}
        with open(name + ".json", "w") as file:
            json.dump(config, file)
        return (["train", "--config", name + ".json", "--data", data, "--checkpoint-dir",
                 name + ".checkpoints"], name + ".checkpoints", name + ".metrics")

    def train(self, what, data, settings, ranks, words=None):
        """Returns the checkpoint directory, and the metrics of all steps and evaluations."""
        own = words or self.words(data, settings)
        ended = Run(self, own[0], ranks, own[2]).end(5 * PATIENCE)
        self.check(f"{what}, {ranks} processes: ends well", ended.codes == [0] * ranks, ended)
        return own[1], read_metrics(own[2]) if os.path.exists(own[2]) else []

    def compare(self, what, one, other, rounding=ROUNDING):
        """Compares losses, gradients and weights of two runs."""
        losses = [[line["loss"] for line in of_type(lines, "step") + of_type(lines, "eval")]
                  for _, lines in (one, other)]
        norms = [[line["grad_norm"] for line in of_type(lines, "step")] for _, lines in (one, other)]
        worst = max((abs(a - b) / max(abs(a), 1e-3) for a, b in zip(*losses)), default=9)
        norm = max((abs(a - b) / max(abs(a), 1e-3) for a, b in zip(*norms)), default=9)
        self.check(f"{what}: {len(losses[0])} losses are within {worst:.1e}, gradients within "
                   f"{norm:.1e}", len(losses[0]) == len(losses[1]) > 5 and worst < rounding and
                   norm < 50 * rounding, losses)
        tensors = []
        for root, _ in (one, other):
            folder = f"{root}/{newest(root)}"
            name = "adapter_model" if os.path.exists(folder + "/adapter_model.safetensors") else "model"
            tensors.append({**read_tensors(f"{folder}/{name}.safetensors"),
                            **read_tensors(folder + "/optimizer.safetensors")})
        # AdamW divides by the root of what may be nearly 0.
        weights = largest_difference(*tensors)
        self.check(f"{what}: weights and moments are within {weights:.1e}",
                   tensors[0].keys() == tensors[1].keys() and weights < 500 * rounding)


def rows(count, seed):
    chooser = random.Random(seed)
    return [sum_row(chooser) for _ in range(count)]


def check_same_as_one(test, data, long):
    ways = {"full": {}, "no accumulation": {"train.micro_batch": 12},
            "moments in parts": {"optimizer.zero": 1},
            "moments of 8 bits in parts": {"optimizer.zero": 1, "optimizer.state": "int8"},
            "activations again": {"train.recompute": True, "train.threads": 2},
            "frozen weights": {"train.freeze": ["model.layers.0.*"], "optimizer.zero": 1}}
    for what, settings in ways.items():
        if not long and what not in ("full", "moments of 8 bits in parts", "activations again"):
            continue
        one = test.train(what, data, {**settings, "optimizer.zero": 0}, 1)
        for ranks in (2, 3, 4) if long and what in ("full", "moments in parts") else (3,):
            own = test.train(what, data, settings, ranks)
            # With codes one unit of rounding is a step of the code.
            test.compare(f"{what}, {ranks} processes", one, own,
                         1e-4 if "8 bits" in what else ROUNDING)
            saved = os.listdir(own[0])
            test.check("one checkpoint each", sorted(saved) == ["step-00000005", "step-00000010"],
                       saved)


def check_bits(test, data):
    """The same number of processes gives the same bits, divided moments or not, resumed or not."""
    settings = {"train.steps": 10}
    one, _ = test.train("a run", data, settings, 3)
    again, _ = test.train("the same run", data, settings, 3)
    test.check("the same run has the same bits", content(one) == content(again))
    parts, _ = test.train("moments in parts", data, {**settings, "optimizer.zero": 1}, 3)
    same = all(read_tensors(f"{one}/step-00000010/{name}.safetensors") ==
               read_tensors(f"{parts}/step-00000010/{name}.safetensors")
               for name in ("model", "optimizer"))
    test.check("moments in parts give the bits of whole ones", same)
    for zero in (0, 1):
        words = test.words(data, {**settings, "optimizer.zero": zero, "train.steps": 10})
        shutil.copytree(f"{one}/step-00000005", f"{words[1]}/step-00000005")
        own = (words[0] + ["--resume", "auto"], *words[1:])
        test.train(f"goes on, zero {zero}", data, settings, 3, own)
        test.check("to the same bits", read_tensors(f"{words[1]}/step-00000010/model.safetensors") ==
                   read_tensors(f"{one}/step-00000010/model.safetensors"))


def check_other_number(test, data, long):
    """A checkpoint of some processes goes on in more, in fewer and in one."""
    for before, after in ((3, 1), (3, 2), (2, 4), (1, 3), (4, 3)) if long else ((3, 1), (2, 3)):
        whole = test.train("whole", data, {"train.steps": 10, "optimizer.zero": 1}, before)
        words = test.words(data, {"train.steps": 10, "optimizer.zero": 1})
        shutil.copytree(f"{whole[0]}/step-00000005", f"{words[1]}/step-00000005")
        own = test.train(f"from {before} on", data, {}, after,
                         (words[0] + ["--resume", "auto"], *words[1:]))
        steps = [line for line in whole[1] if line.get("step", 0) > 5]
        test.compare(f"a checkpoint of {before} goes on in {after}", (whole[0], steps), own)


def check_decisions(test, data):
    """All processes decide the same: early stop, a signal to one of them, shares by speed."""
    settings = {"train.steps": 400, "train.eval_every": 2, "train.patience": 2, "optimizer.lr": 0.05}
    one, two = (test.train("early stop", data, settings, ranks) for ranks in (1, 2))
    ends = [of_type(lines, "done")[-1] for _, lines in (one, two)]
    test.check("an early stop comes in the same step", ends[0]["outcome"] == "early_stop" and
               ends[0]["step"] == ends[1]["step"] and ends[0]["outcome"] == ends[1]["outcome"], ends)
    words, checkpoints, metrics = test.words(data, {"train.steps": 100000, "checkpoint.every": 0})
    run = Run(test, words, 3, metrics)
    run.wait(lambda: os.path.exists(metrics) and '"step":3,' in open(metrics).read())
    run.processes[2].send_signal(signal.SIGTERM)
    ended = run.end()
    done = of_type(read_metrics(metrics), "done")
    test.check("a signal to one of them stops all, with a checkpoint",
               ended.codes == [TERMINATED] * 3 and done and done[-1]["outcome"] == "stopped" and
               newest(checkpoints) == f"step-{done[-1]['step']:08}", ended)
    own = test.words(data, {"train.heterogeneous": True, "train.steps": 10})
    shared = test.train("shares by speed", data, {}, 3, own)
    with open(f"{shared[0]}/step-00000010/state.json") as file:
        state = json.load(file)
    test.check(f"shares by speed: {state.get('shares')}", state["processes"] == 3 and
               len(state["shares"]) == 3 and sum(state["shares"]) == 12 and min(state["shares"]) > 0)
    test.compare("shares by speed", test.train("plain", data, {}, 1), shared)


def check_slow_rank(test, data):
    """A process that shares its core with others takes less of each batch."""
    words, checkpoints, metrics = test.words(data, {
        "train.heterogeneous": True, "train.steps": 8, "train.batch": 40, "train.micro_batch": 5,
        "model.d_model": 128, "model.ffn": 512, "model.layers": 4, "train.eval_every": 0})
    run = Run(test, words, 2, metrics)
    # Rank 1 stands still four fifths of the time, as if others used its core.
    while run.alive():
        if 1 in run.alive() and run.joined():
            run.processes[1].send_signal(signal.SIGSTOP)
            time.sleep(0.04)
            run.processes[1].send_signal(signal.SIGCONT)
        time.sleep(0.01)
    ended = run.end()
    shares = []
    if ended.codes == [0, 0]:
        with open(f"{checkpoints}/step-00000008/state.json") as file:
            shares = json.load(file)["shares"]
    test.check(f"the slow one takes fewer rows: {shares}", len(shares) == 2 and sum(shares) == 40 and
               0 < shares[1] < shares[0], ended)


def check_refusals(test, data, other):
    words, _, metrics = test.words(data, {})
    for what, more, said in (
            ("another batch", ["--set", "train.batch=6"], "train.batch is 6, not 12"),
            ("another dtype", ["--set", "train.dtype=bf16"], "train in bf16, not in fp32")):
        began = time.monotonic()
        ended = Run(test, words, 2, metrics, lambda rank, more=more: more if rank else []).end()
        test.check(f"{what} is refused in {time.monotonic() - began:.1f} s", ended.codes[1] ==
                   BAD_CONFIG and said in ended.errors[1] and "rank 1 differs" in ended.errors[1] and
                   ended.codes[0] == TRY_AGAIN and "rank 1 ended: " in ended.errors[0] and
                   said in ended.errors[0], ended)
    moved = [other if word == data else word for word in words]
    run = Run(test, words[:3], 2, metrics, lambda rank: (moved if rank else words)[3:])
    ended = run.end()
    test.check("other data is refused", ended.codes == [TRY_AGAIN, BAD_CONFIG] and
               "rank 1 differs from rank 0: other data" in ended.errors[1], ended)
    ended = Run(test, words, 3, metrics, lambda rank: ["--set", "train.batch=2"]).end()
    test.check("too small a batch is refused", ended.codes == [BAD_CONFIG] * 3 and
               "less than the 3 processes" in ended.errors[0], ended)
    for variable, value in (("RANK", "2"), ("MASTER_PORT", ""), ("WORLD_SIZE", "x"),
                            ("MASTER_ADDR", "")):
        ended = test.run(*words, **{"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                                    "MASTER_PORT": "1", variable: value})
        test.check(f"{variable}={value} is refused by name", ended.returncode == BAD_CONFIG and
                   variable in ended.stderr, ended.returncode, ended.stderr)


def check_overlap(test):
    """Sums are on their way while the backward pass works; a step has one sum of each gradient."""
    run = Run(test, ["bench", "--steps", "2", "--warmup", "1", "--set", "train.threads=1", "--set",
                     "train.device=cpu", "--set", "model.context=32", "--set", "train.micro_batch=1"],
              2, "")
    ended = run.end()
    line = json.loads(ended.outs[0].splitlines()[-1]) if ended.codes == [0, 0] else {}
    test.check(f"{line.get('buckets_sent_early')} of {line.get('buckets')} sums begin in the backward "
               "pass", line.get("buckets", 0) > 2 and line["processes"] == 2 and
               line["buckets_sent_early"] == line["buckets"], ended)


def check_dead(test, data, long):
    """A rank that is killed, or stands still, ends the others in seconds, by its name."""
    ways = ((3, 0, signal.SIGKILL), (3, 1, signal.SIGSTOP))
    more = ((2, 1, signal.SIGKILL), (3, 2, signal.SIGKILL), (2, 0, signal.SIGSTOP))
    for ranks, dead, how in ways + more if long else ways:
        words, checkpoints, metrics = test.words(data, {
            "train.steps": 100000, "checkpoint.every": 3, "train.peer_timeout": 4})
        run = Run(test, words, ranks, metrics)
        run.wait(lambda: newest_or_none(checkpoints) is not None)
        run.processes[dead].send_signal(how)
        began = time.monotonic()
        run.wait(lambda: set(run.alive()) <= {dead})
        took = time.monotonic() - began
        run.processes[dead].kill()
        ended = run.end()
        others = [rank for rank in range(ranks) if rank != dead]
        test.check(f"rank {dead} of {ranks} gets {how.name}: the others end after {took:.1f} s",
                   took < 15 and all(ended.codes[rank] == TRY_AGAIN for rank in others), ended)
        test.check("and say which one is gone", all(f"rank {dead} is gone" in ended.errors[rank]
                                                    for rank in others), ended.errors)
        last = f"{checkpoints}/{newest(checkpoints)}"
        test.check("the last checkpoint is whole", test.run("inspect", last).returncode == 0)


def newest_or_none(root):
    names = os.listdir(root) if os.path.isdir(root) else []
    return max((name for name in names if name.startswith("step-")), default=None)


def check_kills(test, data, kills, seed):
    """Kills one rank at random moments, many times; the run goes on to the bits of a whole one."""
    settings = {"train.steps": 40, "checkpoint.every": 1, "checkpoint.keep_last": 3,
                "optimizer.zero": 1, "train.eval_every": 7}
    ranks, chooser = 2, random.Random(seed)
    began = time.monotonic()
    whole, _ = test.train("undisturbed", data, settings, ranks)
    length = time.monotonic() - began
    words, checkpoints, metrics = test.words(data, settings)
    words += ["--resume", "auto"]
    killed = finished = writing = early = 0
    slowest = 0.0
    while killed < kills:
        run = Run(test, words, ranks, metrics)
        victim, wanted = chooser.randrange(ranks), chooser.random()
        if wanted < 0.4:  # in the writing of a checkpoint
            run.wait(lambda: run.joined() or not run.alive())
            run.wait(lambda: not run.alive() or os.path.isdir(checkpoints) and any(
                name.startswith(".tmp") for name in os.listdir(checkpoints)))
        else:
            run.wait(lambda: not run.alive(), chooser.uniform(0.1, 1.2) * length)
        joined = run.joined()
        in_writing = os.path.isdir(checkpoints) and any(
            name.startswith(".tmp") for name in os.listdir(checkpoints))
        run.processes[victim].kill()
        hit, at = run.processes[victim].wait() == -signal.SIGKILL, time.monotonic()
        # One that has not come yet is waited for, as it may still be on its way.
        run.wait(lambda: not run.alive(), 20 if joined else 1)
        took, left = time.monotonic() - at, run.alive()
        ended = run.end(0)
        name = newest_or_none(checkpoints)
        if name and test.run("inspect", f"{checkpoints}/{name}").returncode != 0:
            test.check(f"kill {killed}: the newest checkpoint is whole", False, name, ended)
            return
        if hit and joined:
            killed, writing, slowest = killed + 1, writing + in_writing, max(slowest, took)
            bad = left or ended.codes[1 - victim] not in (0, TRY_AGAIN)
            if bad:
                test.check(f"kill {killed}: the other one ends by itself", False, took, ended)
                return
        early += hit and not joined
        if ended.codes == [0, 0]:
            finished += 1
            if content(checkpoints) != content(whole):
                test.check("a run that was killed ends in the same bits", False, finished, killed)
                return
            shutil.rmtree(checkpoints)
    for _ in range(3):
        ended = Run(test, words, ranks, metrics).end()
        if ended.codes == [0, 0]:
            break
    finished += ended.codes == [0, 0]
    test.check(f"{killed} kills, {writing} of them in the writing of a checkpoint, {early} more before "
               f"all had come; the other one ended after {slowest:.1f} s at most; {finished} runs came "
               "to their end, with the bits of one that nobody disturbed", slowest < 15 and
               finished > 0 and content(checkpoints) == content(whole), ended)


def check_stories(test, long):
    """stories260K, tuned on a few sentences: 1 and 3 processes, or 1, 2, 3 and 4."""
    try:
        import stories
        from folders import write_folder
    except (ImportError, SystemExit):
        print("        left out: this python3 has no torch")
        return
    source = os.path.join(stories.MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"        left out: {source} does not have the model")
        return
    config, _, weights = stories.read_checkpoint(source + "/stories260K.bin")
    base, data = test.directory + "/stories", test.directory + "/stories-tokens"
    write_folder(base, config, weights)
    chooser = random.Random(7)
    # Rows with masks of different length, so that ranks have different numbers of learned tokens.
    learned = [[1] + [chooser.randrange(3, 512) | (1 << 31 if place > skip else 0)
                      for place in range(chooser.randrange(20, 90))]
               for skip in (chooser.randrange(1, 19) for _ in range(80))]
    write_prepared(data, learned[:60], learned[60:])
    with open(data + "/dataset.json") as file:
        about = json.load(file)
    with open(data + "/dataset.json", "w") as file:
        json.dump({**about, "id_end": 512}, file)
    settings = {"model.init": base, "model.context": 128, "optimizer.lr": 5e-4, "train.steps": 20,
                "data.pack": False, "train.eval_every": 10, "checkpoint.every": 10}
    for what, more in (("stories260K", {}), ("stories260K, LoRA", {"lora.rank": 8})):
        one = test.train(what, data, {**settings, **more}, 1)
        for ranks in (2, 3, 4) if long else (3,):
            test.compare(f"{what}, {ranks} processes", one,
                         test.train(what, data, {**settings, **more}, ranks))


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    long = kills > 3
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    with tempfile.TemporaryDirectory() as directory:
        test = Test(sys.argv[1], directory)
        data, other = directory + "/tokens", directory + "/other"
        write_prepared(data, rows(120, 1), rows(20, 2))
        write_prepared(other, rows(120, 3), rows(20, 4))
        check_same_as_one(test, data, long)
        check_bits(test, data)
        check_other_number(test, data, long)
        check_decisions(test, data)
        check_slow_rank(test, data)
        check_refusals(test, data, other)
        check_overlap(test)
        check_dead(test, data, long)
        check_stories(test, long)
        check_kills(test, data, kills, seed)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

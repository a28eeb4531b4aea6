#!/usr/bin/env python3
"""Checks what is tuned in several processes: adapters, a base in 4 bits, pairs of answers. They
compute what one process computes, go on in another number, and decide together when memory is short.

usage: ranks_tuning.py TRAINER_PROGRAM [long]

"long" tries more ways and more numbers of processes. Needs no torch in Python.
"""

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from pair_runs import pairs, write_pairs
from prepared_runs import newest, of_type, read_metrics, write_prepared
from ranks import BAD_CONFIG, PATIENCE, ROUNDING, TRY_AGAIN, Run, Test, newest_or_none, rows

DIVERGED, IO = 125, 74
STEPS = {"train.steps": 10, "checkpoint.every": 5, "checkpoint.keep_last": 9, "optimizer.zero": 1}
LORA = {"lora.rank": 4, "lora.dropout": 0.2}


def ways(base, long):
    """What is tuned, by name: settings, and whether the data are pairs."""
    found = {"LoRA with dropout on a base in 4 bits": ({**LORA, "lora.base_dtype": "nf4"}, False),
             "pairs and LoRA with dropout": ({**LORA, "optimizer.lr": 5e-3}, True)}
    if long:
        found["LoRA with dropout"] = ({**LORA}, False)
        found["pairs"] = ({"optimizer.lr": 1e-3}, True)
        found["DoRA with whole modules"] = (
            {**LORA, "lora.dora": True, "lora.modules_to_save": ["embed_tokens", "model.norm"]}, False)
        found["pairs on a base in 4 bits"] = ({**LORA, "lora.base_dtype": "nf4"}, True)
        found["LoRA, activations again"] = ({**LORA, "train.recompute": True}, False)
        found["LoRA with moments of 8 bits"] = ({**LORA, "optimizer.state": "int8"}, False)
        found["LoRA, shares by speed"] = ({**LORA, "train.heterogeneous": True}, False)
    return {what: ({**STEPS, "model.init": base, **settings}, of_pairs)
            for what, (settings, of_pairs) in found.items()}


def check_same_as_one(test, what, data, settings, numbers, long):
    one = test.train(what, data, {**settings, "optimizer.zero": 0, "train.heterogeneous": False}, 1)
    if settings.get("lora.dropout") and long:
        # Otherwise nothing would be said of what is dropped.
        dry = test.train(what + ", nothing dropped", data, {**settings, "lora.dropout": 0}, 1)
        first, other = (of_type(lines, "step")[-1]["loss"] for _, lines in (one, dry))
        test.check(f"{what}: dropout matters", abs(first - other) > 100 * ROUNDING * abs(first),
                   first, other)
    # With codes one unit of rounding is a step of the code.
    rounding = 1e-4 if settings.get("optimizer.state") == "int8" else ROUNDING
    for ranks in numbers:
        test.compare(f"{what}, {ranks} processes", one, test.train(what, data, settings, ranks),
                     rounding)
    return one


def check_resume(test, what, data, settings, before, after):
    whole = test.train(what, data, settings, before)
    words = test.words(data, settings)
    shutil.copytree(f"{whole[0]}/step-00000005", f"{words[1]}/step-00000005")
    own = test.train(f"{what}, from {before} on", data, {}, after,
                     (words[0] + ["--resume", "auto"], *words[1:]))
    steps = [line for line in whole[1] if line.get("step", 0) > 5]
    test.compare(f"{what}: a checkpoint of {before} goes on in {after}", (whole[0], steps), own)


def peak_of(test, data, settings, ranks, rank):
    """Returns the largest address space that one of the processes ever had, in bytes."""
    words = test.words(data, settings)
    run, most = Run(test, words[0], ranks, words[2]), 0
    while run.alive():
        try:
            with open(f"/proc/{run.processes[rank].pid}/status", encoding="utf-8") as file:
                for line in file:
                    if line.startswith("VmPeak"):
                        most = max(most, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.01)
    ended = run.end()
    test.check("a run to measure ends well", ended.codes == [0] * ranks, ended)
    return most


def blas_waits(test):
    """OpenBLAS asks again and again for memory that it does not get."""
    ended = test.run("bench", "--warmup", "0", "--steps", "1", "--set", "train.device=cpu", "--set",
                     "train.batch=1")
    if not json.loads(ended.stdout.splitlines()[-1])["blas_kernels"]:
        return False
    print("        left out: OpenBLAS is here, and waits for memory without an end")
    return True


def check_short_memory(test, directory, ranks, short, of_pairs, more):
    """Where one process has too little memory, all halve the micro-batch, and learn the same."""
    chooser, data = random.Random(9), f"{directory}/wide{ranks}{short}{len(more)}{of_pairs}"
    answers = [[1, 2] + [10 + chooser.randrange(8) | (1 << 31) for _ in range(760)]
               for _ in range(32)]
    (write_pairs if of_pairs else write_prepared)(data, answers, answers[:2])
    at_once = 4 if of_pairs else 8
    wide = {"model.layers": 3, "model.d_model": 128, "model.heads": 8, "model.kv_heads": 4,
            "model.ffn": 384, "model.context": 768, "train.batch": at_once * ranks,
            "train.steps": 3, "train.eval_every": 0, "checkpoint.every": 0, "data.pack": False, **more}
    large, small = (peak_of(test, data, {**wide, "train.micro_batch": windows, "train.steps": 1},
                            ranks, short) for windows in (at_once, at_once // 2))
    test.check(f"{at_once} at once need more than half of them", large - small > 60e6, large, small)
    plain = test.train("half of them without a limit", data,
                       {**wide, "train.micro_batch": at_once // 2}, ranks)
    what = "pairs" if of_pairs else "windows"
    said = f"a worker runs {at_once // 2} instead of {at_once} {what} at once"
    for limit in range(small, small - int(200e6), -int(40e6)):
        words = test.words(data, {**wide, "train.micro_batch": at_once})
        run = Run(test, words[0], ranks, words[2], limits={short: lambda limit=limit: resource.
                                                           setrlimit(resource.RLIMIT_AS,
                                                                     (limit, limit))})
        ended = run.end()
        if "out of memory" in ended.errors[0] or ended.codes != [0] * ranks:
            break
    test.check(f"rank {short} of {ranks} within {limit * 1e-9:.2f} GB, {what} {more}: all halve the "
               "micro-batch and go on", ended.codes == [0] * ranks and said in ended.errors[0], ended)
    if ended.codes == [0] * ranks:
        lines = read_metrics(words[2])
        found = [[line["loss"] for line in of_type(of_run, "step")] for of_run in (plain[1], lines)]
        test.check("they learn the same, to the last bit", len(found[0]) == 3 and
                   found[0] == found[1], found)
        with open(f"{words[1]}/{newest(words[1])}/state.json") as file:
            test.check("and the checkpoint says how many ran at once",
                       json.load(file).get("micro_batch") == at_once // 2)


def check_no_memory(test, directory):
    """One process that has too little memory for a single window ends all of them, by its words."""
    data = directory + "/narrow"
    row = [1, 2] + [10 | (1 << 31)] * 760
    write_prepared(data, [row] * 32, [row] * 2)
    wide = {"model.layers": 3, "model.d_model": 256, "model.heads": 8, "model.kv_heads": 4,
            "model.ffn": 1024, "model.context": 768, "train.batch": 2, "train.steps": 3,
            "train.micro_batch": 1, "train.eval_every": 0, "data.pack": False}
    most = peak_of(test, data, {**wide, "train.steps": 1}, 2, 1)
    for limit in range(most - int(40e6), most - int(400e6), -int(40e6)):
        words = test.words(data, wide)
        run = Run(test, words[0], 2, words[2], limits={1: lambda limit=limit: resource.setrlimit(
            resource.RLIMIT_AS, (limit, limit))})
        ended = run.end()
        if ended.codes != [0, 0]:
            break
    test.check(f"too little memory for one window on rank 1 ends both: {ended.codes}",
               ended.codes == [TRY_AGAIN, TRY_AGAIN] and "memory" in ended.errors[0] and
               "memory" in ended.errors[1], ended)


def check_other_base(test, base, other, data, long):
    """Weights that stay come from each machine's own folder: another model there is refused."""
    ways_to_keep = [("a base in 4 bits", {**LORA, "lora.base_dtype": "nf4"}),
                    ("frozen weights", {"train.freeze": ["model.layers.0.*"]})]
    for what, more in ways_to_keep + ([("LoRA", LORA)] if long else []):
        words, _, metrics = test.words(data, {**STEPS, "model.init": base, **more})
        ended = Run(test, words, 2, metrics,
                    lambda rank: ["--set", "model.init=" + json.dumps(other)] if rank else []).end()
        test.check(f"{what}: another model on rank 1 is refused", ended.codes == [
            TRY_AGAIN, BAD_CONFIG] and "other weights in model.init" in ended.errors[1], ended)


def check_full_disk(test, data, base, long):
    """Rank 0 cannot write checkpoints: the run goes on, and its end is an error on all."""
    for what, more in [("LoRA", {"model.init": base, **LORA})] + long * [("the whole model", {})]:
        words, checkpoints, metrics = test.words(data, {"train.steps": 12, "checkpoint.every": 3,
                                                        "optimizer.zero": 1, **more})

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
        ended = Run(test, words, 3, metrics, limits={0: limit}).end()
        lines = read_metrics(metrics)
        test.check(f"{what}: without room for checkpoints all steps are done, and the end is an error",
                   ended.codes == [IO, TRY_AGAIN, TRY_AGAIN] and "File too large" in ended.errors[0] and
                   "rank 0 ended: " in ended.errors[1] and "File too large" in ended.errors[2] and
                   of_type(lines, "step")[-1]["step"] == 12 and
                   len(of_type(lines, "checkpoint_failed")) >= 4, ended)
        test.check("and nothing is left of them", os.listdir(checkpoints) == [],
                   os.listdir(checkpoints))


def check_diverged(test, data):
    words, _, metrics = test.words(data, {"optimizer.lr": 1e30, "optimizer.warmup_ratio": 0,
                                          "optimizer.grad_clip": 0})
    ended = Run(test, words, 3, metrics).end()
    test.check("a loss that is no number ends all with the same word", ended.codes == [DIVERGED] * 3
               and all("is not finite" in error for error in ended.errors), ended)


def check_stopped_for_long(test, data):
    """A rank that stands still, and goes on when the others have ended, ends by itself."""
    for ranks, stopped in ((2, 1), (3, 0)):
        words, checkpoints, metrics = test.words(data, {
            "train.steps": 100000, "checkpoint.every": 3, "train.peer_timeout": 3})
        run = Run(test, words, ranks, metrics)
        run.wait(lambda: newest_or_none(checkpoints) is not None)
        run.processes[stopped].send_signal(signal.SIGSTOP)
        run.wait(lambda: run.alive() == [stopped])
        run.processes[stopped].send_signal(signal.SIGCONT)
        began = time.monotonic()
        run.wait(lambda: not run.alive(), 30)
        took = time.monotonic() - began
        left = run.alive()
        ended = run.end()
        test.check(f"rank {stopped} of {ranks} stood still, and ends {took:.1f} s after it went on",
                   not left and ended.codes == [TRY_AGAIN] * ranks, ended)
        test.check("its last checkpoint is whole", test.run(
            "inspect", f"{checkpoints}/{newest(checkpoints)}").returncode == 0)


def check_other_run(test, data):
    """Processes that find a run which is not theirs, or something else, at the port."""
    words, _, metrics = test.words(data, {"train.steps": 200, "checkpoint.every": 0, "train.eval_every": 0})
    run = Run(test, words, 2, metrics)
    run.wait(run.joined)
    # The same port: a second run, whose rank 1 is one too many.
    began = time.monotonic()
    second = Run(test, test.words(data, {})[0], 2, metrics + "2", port=run.port).end()
    test.check(f"a second run at the same port ends after {time.monotonic() - began:.1f} s, and says "
               "why", second.codes == [TRY_AGAIN, TRY_AGAIN] and
               "set MASTER_PORT to a free port" in second.errors[0] and
               "there is a rank 1 already" in second.errors[1], second)
    ended = run.end(3 * PATIENCE)
    test.check("the first one goes on to its end", ended.codes == [0, 0], ended)


def check_silent_port(test, data):
    """Something else listens at the port, and says nothing: a process that is told to stop does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(5)
        process = test.start(*test.words(data, {})[0], RANK="1", WORLD_SIZE="2",
                             MASTER_ADDR="127.0.0.1", MASTER_PORT=str(listener.getsockname()[1]))
        connection, _ = listener.accept()
        time.sleep(0.5)  # it asks now, or will find the signal before it does
        process.send_signal(signal.SIGTERM)
        try:
            _, error = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            error = process.communicate()[1]
        connection.close()
    test.check("a process that gets no answer from its port stops when it is told to",
               process.returncode == TRY_AGAIN and "MASTER_PORT" in error,
               process.returncode, error)


def main():
    long = sys.argv[2:] == ["long"]
    with tempfile.TemporaryDirectory() as directory:
        test = Test(sys.argv[1], directory)
        plain, other, preferred = (directory + name for name in ("/plain", "/other", "/pairs"))
        write_prepared(plain, rows(120, 1), rows(20, 2))
        write_prepared(other, rows(120, 3), rows(20, 4))
        chooser = random.Random(1)
        write_pairs(preferred, pairs(chooser, 120), pairs(chooser, 20))
        bases = []
        for data in (plain, other):
            checkpoints, _ = test.train("a model to tune", data, {"train.steps": 20}, 1)
            bases.append(f"{checkpoints}/{newest(checkpoints)}")
        for what, (settings, of_pairs) in ways(bases[0], long).items():
            data = preferred if of_pairs else plain
            check_same_as_one(test, what, data, settings, (2, 3, 4) if long else (2,), long)
            for before, after in ((2, 1), (4, 3), (1, 2)) if long else ((2, 3),):
                check_resume(test, what, data, settings, before, after)
        check_other_base(test, *bases, plain, long)
        check_diverged(test, plain)
        check_full_disk(test, plain, bases[0], long)
        check_other_run(test, plain)
        check_silent_port(test, plain)
        if long:
            check_stopped_for_long(test, plain)
            if not blas_waits(test):
                for of_pairs, more in ((False, {}), (True, {}), (False, {"train.threads": 2})):
                    for ranks, short in ((2, 1), (2, 0), (3, 1)):
                        check_short_memory(test, directory, ranks, short, of_pairs, more)
                check_no_memory(test, directory)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

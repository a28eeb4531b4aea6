#!/usr/bin/env python3
"""Kills runs from a model folder at random instants, where memory or disk is short, too: what they
leave in the end must have the bits of a run that nobody disturbed.

usage: killed_runs.py TRAINER_PROGRAM [KILLS [SEED]]

Full tuning, LoRA, QLoRA, gradients that add up over micro-batches; a limit of the address space, so
that the first micro-batch does not fit and a smaller one does; a limit of the size of files, so that
checkpoints fail; limits at which nothing works. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from arithmetic import Test, in_chat, sums_below
from chat_model import write_chat_model
from kills import Timing, kill_and_resume, without_checkpoints
from prepared_runs import content, newest, of_type, read_metrics

BAD_DATA, IO, TRY_AGAIN = 65, 74, 75
COMMON = {"train.steps": 24, "train.batch": 6, "train.micro_batch": 3, "checkpoint.every": 2,
          "checkpoint.keep_last": 3, "train.eval_every": 5, "train.patience": 1000}
LORA = {"lora.rank": 4, "lora.dropout": 0.1}
WAYS = {"full tuning": {}, "LoRA": LORA, "QLoRA": {**LORA, "lora.base_dtype": "nf4"},
        "moments in 8 bits": {"optimizer.state": "int8"},
        "accumulation": {"train.micro_batch": 1, "train.batch": 7}}


def micro_batch_of(checkpoints):
    with open(f"{checkpoints}/{newest(checkpoints)}/state.json", encoding="utf-8") as file:
        return json.load(file)["micro_batch"]


def check_kills(test, what, base, data, settings, kills, seed):
    whole, lines, _ = test.train(what, base, data, settings)
    words, checkpoints, metrics = test.words(base, data, settings)
    timing = Timing(test, words, settings)
    if not kill_and_resume(test, what, words, metrics, kills, timing, seed):
        return whole
    test.check(f"{what}: a run that was killed ends in the same bits",
               content(whole) == content(checkpoints))
    done = read_metrics(metrics)[-1]
    test.check(f"{what}: and in the same losses",
               all(done[key] == lines[-1][key] for key in ("loss", "held_out_loss", "best")),
               done, lines[-1])
    return whole


# --- too little memory

WIDE = {"train.steps": 4, "train.batch": 8, "checkpoint.every": 1, "model.context": 768,
        "train.eval_every": 2, "train.threads": 1, "train.patience": 1000, "data.pack": False}
NO_LIMIT = 1 << 40  # bytes, which no run takes


def most_address_space(test, words):
    """Returns the largest size that a run ever had, in bytes."""
    # Where addresses are limited, the heap of tensors takes no more of them than it needs.
    test.limits = limit_to(NO_LIMIT)
    process, most = test.start(*words), 0
    test.limits = None
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                for line in file:
                    if line.startswith("VmPeak"):
                        most = max(most, int(line.split()[1]) * 1024)
        except OSError:
            pass
        time.sleep(0.01)
    process.communicate()
    return most


def check_short_memory(test, rows, held_out, kills, seed):
    base = test.directory + "/wide"
    write_chat_model(base, layers=4, d=128, heads=8, kv_heads=4, ffn=384, context=768)
    data = test.prepare("wide-rows", base, rows, held_out)
    large, small = (most_address_space(test, test.words(base, data, {
        **WIDE, "train.micro_batch": windows, "train.steps": 2, "checkpoint.every": 0})[0])
                    for windows in (8, 4))
    if large - small < 100e6:
        test.check("8 windows need more than 4", False, large, small)
        return
    settings = {**WIDE, "train.micro_batch": 8, "train.steps": 4 + kills}
    plain, _, _ = test.train("4 windows at once without a limit", base, data,
                             {**settings, "train.micro_batch": 4})
    # The allocator takes more than a run needs, in its own steps. The largest limit that makes a run
    # halve leaves most for those that resume, which need more than it.
    for limit in range(large, small - int(240e6), -int(40e6)):
        test.limits = limit_to(limit)
        words, _, metrics = test.words(base, data, settings)
        ended = test.run(*words, GPUCTL_METRICS=metrics)
        if "from step 1 on" in ended.stderr:
            break
    test.check(f"within {limit * 1e-9:.2f} GB a run halves its micro-batch and goes on",
               ended.returncode == 0 and "a worker runs 4 instead of 8 windows" in ended.stderr,
               ended.returncode, ended.stderr)
    whole = check_kills(test, "halved micro-batches", base, data, settings, kills, seed)
    test.limits = None
    test.check("state.json says how many windows ran at once", micro_batch_of(whole) == 4)
    test.check("a halved micro-batch gives the bits of one that was set",
               content(plain) == content(whole))


def waits_for_memory(test):
    """OpenBLAS asks again and again for memory that it does not get."""
    ended = test.run("bench", "--warmup", "0", "--steps", "1", "--set", "train.device=cpu", "--set",
                     "train.batch=1")
    if not json.loads(ended.stdout.splitlines()[-1])["blas_kernels"]:
        return False
    print("        left out: OpenBLAS is here, and waits for memory without an end")
    return True


def limit_to(size):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))


def check_no_memory(test, base, data):
    """Limits at which a run does not get far, or just so."""
    settings = {**COMMON, "train.steps": 2, "checkpoint.every": 1}
    most = most_address_space(test, test.words(base, data, settings)[0])
    # Before main, libraries that find no memory end the program.
    least = most
    while least > most // 4:
        test.limits = limit_to(least - 20_000_000)
        if test.run("inspect", "/nothing").returncode != BAD_DATA:
            break
        least -= 20_000_000
    ends = []
    for size in range(least + 10_000_000, most, max(10_000_000, (most - least) // 12)):
        words, checkpoints, _ = test.words(base, data, settings)
        test.limits = limit_to(size)
        ended = test.run(*words)
        test.limits = None
        ends.append(ended.returncode)
        names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
        whole = all(test.run("inspect", f"{checkpoints}/{name}").returncode == 0 for name in names)
        if ended.returncode not in (0, TRY_AGAIN) or not whole:
            test.check(f"a run within {size * 1e-9:.2f} GB", False, ended.returncode, ended.stderr,
                       names)
    test.check(f"runs within {least * 1e-9:.2f} to {most * 1e-9:.2f} GB end well, or ask for "
               f"another try: {ends}", set(ends) <= {0, TRY_AGAIN} and TRY_AGAIN in ends)


def check_no_memory_for_copies(test, rows, held_out):
    """Without memory for a second copy of weights and moments, a checkpoint is written from them."""
    base = test.directory + "/large"
    write_chat_model(base, layers=3, d=512, heads=8, kv_heads=4, ffn=2048)
    data = test.prepare("few-rows", base, rows, held_out)
    settings = {"train.steps": 3, "train.batch": 2, "train.micro_batch": 1, "train.threads": 1,
                "checkpoint.every": 1, "checkpoint.keep_last": 1}
    whole, _, _ = test.train("a run with memory for copies", base, data, settings)
    words, checkpoints, _ = test.words(base, data, settings)
    test.limits = limit_to(most_address_space(test, without_checkpoints(words)) + 50_000_000)
    ended = test.run(*words)
    test.limits = None
    test.check("a run without memory for copies saves all the same", ended.returncode == 0 and
               "no memory to copy the weights" in ended.stderr and
               content(checkpoints) == content(whole), ended.returncode, ended.stderr)


# --- a full disk

def limit_files(size):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return limit


def check_full_disk(test, base, data):
    settings = {**COMMON, "train.micro_batch": 3}
    whole, _, _ = test.train("a run with room", base, data, settings)
    # No tensors fit, all else does.
    words, checkpoints, metrics = test.words(base, data, settings)
    test.limits = limit_files(100_000)
    ended = test.run(*words, GPUCTL_METRICS=metrics)
    lines = read_metrics(metrics)
    failed = of_type(lines, "checkpoint_failed")
    test.check("without room for any checkpoint a run ends with its last step, as an error",
               ended.returncode == IO and "File too large" in ended.stderr and
               of_type(lines, "step")[-1]["step"] == 24, ended.returncode, ended.stderr)
    test.check(f"and tells {len(failed)} times that a checkpoint failed", len(failed) >= 12)
    test.check("nothing is left of them", os.listdir(checkpoints) == [], os.listdir(checkpoints))
    # Room appears while the run goes on.
    words, checkpoints, metrics = test.words(base, data, settings)
    process = test.start(*words, GPUCTL_METRICS=metrics)
    while process.poll() is None and not (os.path.exists(metrics) and of_type(
            read_whole_lines(metrics), "checkpoint_failed")):
        time.sleep(0.01)
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE,
                         (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _, error = process.communicate()
    test.limits = None
    test.check("a run saves again when there is room, with the same bits",
               process.returncode == 0 and content(checkpoints) == content(whole),
               process.returncode, error)


def read_whole_lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file.read().split("\n")[:-1]]


def main():
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    learned, asked = sums_below(50)
    with tempfile.TemporaryDirectory() as directory:
        test = Test(sys.argv[1], directory)
        base = directory + "/base"
        write_chat_model(base)
        data = test.prepare("rows", base, in_chat(learned[:300]), in_chat(asked[:20]))
        for what, settings in WAYS.items():
            check_kills(test, what, base, data,
                        {**COMMON, "train.steps": 24 + 2 * kills, **settings}, kills, seed)
        check_full_disk(test, base, data)
        check_no_memory_for_copies(test, in_chat(learned[:10]), in_chat(asked[:4]))
        if waits_for_memory(test):
            print(f"{test.failed} failed")
            sys.exit(1 if test.failed else 0)
        check_no_memory(test, base, data)
        check_short_memory(test, in_chat(learned[:40]), in_chat(asked[:4]), kills, seed)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

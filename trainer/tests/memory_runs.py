#!/usr/bin/env python3
"""Compares the planned memory with the highest that steps need, over families and ways of tuning.

usage: memory_runs.py TRAINER_PROGRAM [all|soak]

Without a word it tries a few of them: each family, way, batch and number of workers is there.
Several steps show what the heap leaves empty, which grows at first. "soak" takes more steps.

Exits with 77 (skipped) when there is no torch.
"""
import itertools
import json
import subprocess
import sys
import tempfile

from program import Program

SHAPE = (6, 384, 6, 2, 1024, 8192)
FAMILIES = ("llama", "qwen3", "gemma3")
LORA = {"lora.rank": 16}
TUNING = {"full": {}, "LoRA": LORA, "QLoRA": {**LORA, "lora.base_dtype": "nf4"}}
MOST = 0.1


def write_families(directory):
    """Runs in a process of its own: the highest memory of a program begins with that of the process
    that started it."""
    try:
        import torch
    except ImportError:
        print("skipped: this python3 has no torch")
        sys.exit(77)
    import families
    from folders import write_folder
    makers = {"llama": families.smollm2, "qwen3": families.qwen3(False), "gemma3": families.gemma3_v4}
    for name in FAMILIES:
        config, decoder = makers[name](SHAPE)
        write_folder(f"{directory}/{name}", {**config, "max_position_embeddings": 256},
                     decoder.random_weights(torch.bfloat16))


# (family, way, recompute, windows, threads)
SOME = (("llama", "LoRA", True, 8, 2), ("qwen3", "QLoRA", True, 8, 2), ("gemma3", "full", True, 2, 2),
        ("qwen3", "LoRA", True, 2, 2), ("llama", "QLoRA", False, 1, 1), ("gemma3", "LoRA", False, 1, 2))
ALL = tuple(itertools.product(FAMILIES, TUNING, (False, True), (1, 8), (2,)))
ONE_WORKER = tuple(itertools.product(FAMILIES, TUNING, (False, True), (1, 8), (1,)))
# The cases, and how many steps each of them takes. The most memory is that of a step in which the workers
# are at their peaks together; a few steps may have none.
SELECTIONS = {"some": (SOME, 16), "all": (ALL, 6), "soak": (ALL + ONE_WORKER, 12)}


def check(test, folder, case, steps):
    family, way, recompute, batch, threads = case
    keys = {"model.init": folder, "model.context": 256, "train.micro_batch": 0, "train.device": "cpu",
            "train.threads": threads, "train.batch": batch, "train.recompute": str(recompute).lower(),
            **TUNING[way]}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    ended = test.run("bench", "--warmup", "0", "--steps", str(steps), *words)
    line = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {}
    ratio = line.get("estimated_bytes", 0) / line.get("peak_bytes", 1)
    test.check(f"{family}, {way}{', recomputed' if recompute else ''}, windows {batch}, threads {threads}: "
               f"the estimate is {ratio:.3f} of {line.get('peak_bytes', 0) * 1e-6:.0f} MB",
               abs(ratio - 1) <= MOST, ended)


def main():
    if sys.argv[1] == "--write":
        return write_families(sys.argv[2])
    program, selection = (*sys.argv[1:], "some")[:2]
    cases, steps = SELECTIONS[selection]
    with tempfile.TemporaryDirectory() as directory:
        test = Program(program)
        written = subprocess.run([sys.executable, __file__, "--write", directory], check=False)
        if written.returncode != 0:
            sys.exit(written.returncode)
        for case in cases:
            check(test, f"{directory}/{case[0]}", case, steps)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

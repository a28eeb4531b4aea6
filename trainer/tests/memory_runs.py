#!/usr/bin/env python3
"""Compares the planned memory with the highest that steps need, over families and ways of tuning.

usage: memory_runs.py TRAINER_PROGRAM

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


def check(test, folder, family, way, recompute, batch):
    keys = {"model.init": folder, "model.context": 256, "train.micro_batch": 0, "train.device": "cpu",
            "train.threads": 2, "train.batch": batch, "train.recompute": str(recompute).lower(),
            **TUNING[way]}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    ended = test.run("bench", "--warmup", "0", "--steps", "2", *words)
    line = json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {}
    ratio = line.get("estimated_bytes", 0) / line.get("peak_bytes", 1)
    test.check(f"{family}, {way}{', recomputed' if recompute else ''}, {batch} windows: the estimate is "
               f"{ratio:.3f} of {line.get('peak_bytes', 0) * 1e-6:.0f} MB", abs(ratio - 1) <= MOST, ended)


def main():
    if sys.argv[1] == "--write":
        return write_families(sys.argv[2])
    program, = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        test = Program(program)
        written = subprocess.run([sys.executable, __file__, "--write", directory], check=False)
        if written.returncode != 0:
            sys.exit(written.returncode)
        for family, way, recompute, batch in itertools.product(FAMILIES, TUNING, (False, True), (1, 8)):
            check(test, f"{directory}/{family}", family, way, recompute, batch)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

"""The check of gpu_check that additions on the device keep their order.

Windows are longer than a block of attention, so that its backward pass adds in many blocks. What
adds in any order ends in other bits sooner or later.
"""

import random
import time

import prepared_runs
from learning import Runs

CONTEXT, ROWS = 1024, 96
MODEL = {"model.layers": 4, "model.d_model": 512, "model.heads": 8, "model.kv_heads": 2,
         "model.ffn": 1536, "model.context": CONTEXT}
SMALL_MODEL = {"model.layers": 1, "model.d_model": 32, "model.heads": 2, "model.kv_heads": 1,
               "model.ffn": 64, "model.context": 256}
# Name, tokens of a row, settings. Packed rows are documents of a window.
CASES = (
    ("whole windows, bf16", CONTEXT + 1, {"data.pack": False, "train.dtype": "bf16"}),
    ("packed documents, bf16", 300, {"train.dtype": "bf16"}),
    ("whole windows, fp16", CONTEXT + 1, {"data.pack": False, "train.dtype": "fp16"}),
    ("whole windows, fp32", CONTEXT + 1, {"data.pack": False, "train.dtype": "fp32"}),
)


def write_data(folder, tokens):
    chooser = random.Random(tokens)
    rows = [[chooser.randrange(250) | prepared_runs.LEARNED for _ in range(tokens)]
            for _ in range(ROWS * CONTEXT // tokens)]
    prepared_runs.write_prepared(folder, rows, rows[:2])
    return folder


def check_order(session):
    for number, (name, tokens, more) in enumerate(CASES):
        on_cpu = session.device == "cpu"
        if session.left() < 20 or (on_cpu and more["train.dtype"] != "fp32"):
            session.report("order", None, of=name,
                           why="the CPU trains in fp32" if on_cpu else "no time is left")
            continue
        began = time.monotonic()
        runs = Runs(session, f"order-{number}-runs")
        model = SMALL_MODEL if session.small else MODEL
        tokens = min(tokens, model["model.context"] + 1)
        data = write_data(f"{session.directory}/order-{number}", tokens)
        settings = {**model, **more, "train.steps": 16, "train.batch": 16, "train.micro_batch": 8,
                    "train.eval_every": 0, "checkpoint.every": 8, "checkpoint.keep_last": 2,
                    "train.log_every": 1, "optimizer.schedule": "constant",
                    "optimizer.warmup_ratio": 0}
        whole, lines, _ = runs.train(name, data, settings)
        again, _, _ = runs.train(name + " again", data, settings)
        facts = {"of": name}
        if not runs.wrong:
            runs.check("two runs end in the same bits",
                       prepared_runs.content(whole) == prepared_runs.content(again))
            check_going_on(runs, data, settings, whole)
            facts["last"] = prepared_runs.of_type(lines, "step")[-1]["loss"]
        if runs.wrong:
            facts["why"] = "; ".join(runs.wrong)[-2000:]
        session.report("order", not runs.wrong, seconds=round(time.monotonic() - began, 1), **facts)


def check_going_on(runs, data, settings, whole):
    """A run that ends after half of the steps and goes on ends in the bits of one that does not."""
    words, checkpoints, metrics = runs.words(data, settings)
    half = runs.run(*words, "--set", "train.steps=8", GPUCTL_METRICS=metrics)
    runs.check("half of it ends well", half.returncode == 0, half)
    ended = runs.run(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
    runs.check("it goes on", ended.returncode == 0 and "resume " in ended.stdout, ended)
    if not runs.wrong:
        runs.check("it ends in the same bits",
                   prepared_runs.content(checkpoints) == prepared_runs.content(whole))

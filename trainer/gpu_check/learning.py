"""The check of gpu_check that trains small models until they have learned something.

Each way to tune learns sums, or which of two answers is chosen. Then its checkpoint is evaluated,
and a run that is stopped in its middle goes on.
"""

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pair_runs
import prepared_runs
from prepared_runs import newest, of_type

CONTEXT = 40
FULL = {"optimizer.lr": 0.01}
ADAPTERS = {"lora.rank": 8, "lora.modules_to_save": ["embed_tokens"], "optimizer.lr": 0.003}
# Name, settings, and whether it learns from pairs of answers.
CASES = (
    ("full", FULL, False),
    ("full, fp32", {**FULL, "train.dtype": "fp32"}, False),
    ("full, recomputed activations", {**FULL, "train.recompute": True}, False),
    ("full, moments in 8 bits", {**FULL, "optimizer.state": "int8"}, False),
    ("LoRA", ADAPTERS, False),
    ("DoRA with dropout", {**ADAPTERS, "lora.dora": True, "lora.dropout": 0.05}, False),
    ("QLoRA", {**ADAPTERS, "lora.base_dtype": "nf4"}, False),
    ("pairs, full", {"optimizer.lr": 0.005}, True),
    ("pairs, LoRA", {**ADAPTERS, "optimizer.lr": 0.01}, True),
    ("full, fp16", {**FULL, "train.dtype": "fp16"}, False),
)


class Runs(pair_runs.PairTest):
    """Runs on the device that is checked. What is not as it should be is kept, not printed."""

    def __init__(self, session, name):
        directory = f"{session.directory}/{name}"
        os.makedirs(directory)
        super().__init__(session.trainer, directory)
        self.device, self.wrong = session.device, []

    def check(self, what, right, *facts):
        if not right:
            self.wrong.append(" ".join([what, *(str(fact)[-500:] for fact in facts)]))

    def words(self, data, settings):
        return super().words(data, {**settings, "train.device": self.device})


def write_data(directory):
    """Returns the folders of the sums and of the pairs."""
    chooser = random.Random(1)
    sums, pairs = directory + "/learn-sums", directory + "/learn-pairs"
    prepared_runs.write_prepared(sums, [prepared_runs.sum_row(chooser) for _ in range(400)],
                                 [prepared_runs.sum_row(chooser) for _ in range(40)])
    pair_runs.write_pairs(pairs, pair_runs.pairs(chooser, 300), pair_runs.pairs(chooser, 40))
    return sums, pairs


def loss_of_checkpoint(runs, data, settings, base, checkpoint):
    """What eval says of a checkpoint."""
    words = ["eval", "--data", data, "--context", str(CONTEXT), "--as", "json", "--device",
             runs.device]
    if "lora.rank" in settings:
        words += ["--model", base, "--adapter", checkpoint]
    else:
        words += ["--checkpoint", checkpoint]
    ended = runs.run(*words)
    runs.check("eval ends well", ended.returncode == 0, ended)
    return json.loads(ended.stdout)["loss"] if ended.returncode == 0 else float("nan")


def check_going_on(runs, data, settings, steps, whole):
    """Stopped in its middle by SIGTERM, a run ends with the bits of one that is not."""
    words, checkpoints, metrics = runs.words(data, settings)
    process = runs.start(*words, GPUCTL_METRICS=metrics)
    for line in process.stdout:
        if line.startswith(f"step {steps // 3}/"):
            process.terminate()
            break
    process.communicate()
    runs.check("SIGTERM saves and leaves", process.returncode == prepared_runs.TERMINATED,
               process.returncode)
    ended = runs.run(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
    runs.check("it goes on", ended.returncode == 0 and "resume " in ended.stdout, ended)
    if ended.returncode == 0:
        runs.check("it ends in the same bits",
                   prepared_runs.content(checkpoints) == prepared_runs.content(whole))


# Runs at a time. Most of a small run's time passes before its first step.
AT_ONCE = 4


def check_learning(session):
    sums, pairs = write_data(session.directory)
    base = base_model(Runs(session, "learn-base"), sums)

    def check(number):
        name, more, of_pairs = CASES[number]
        if session.left() < 20:
            return session.report("learning", None, of=name, why="no time is left")
        return check_case(session, Runs(session, f"learn-{number}"), CASES[number],
                          pairs if of_pairs else sums, base if "lora.rank" in more else None)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(check, range(0, len(CASES), 4 if session.small else 1)))


def check_case(session, runs, case, data, base):
    name, more, of_pairs = case
    began = time.monotonic()
    steps = 150 if of_pairs else 300
    settings = {"train.steps": steps, "train.eval_every": 0, "checkpoint.every": 0,
                "train.log_every": 1, "train.batch": 8 if of_pairs else 4, **more}
    if base is not None:
        settings["model.init"] = base
    checkpoints, lines, _ = runs.train(name, data, settings)
    facts = {"of": name}
    if not runs.wrong:
        first, last = of_type(lines, "step")[0]["loss"], of_type(lines, "eval")[-1]["loss"]
        facts.update(first=first, last=last)
        runs.check("it learns", last < 0.5 * first, first, last)
        if not of_pairs:
            found = loss_of_checkpoint(runs, data, settings, base,
                                       f"{checkpoints}/{newest(checkpoints)}")
            facts["eval"] = found
            runs.check("eval finds the same loss", abs(found - last) <= 0.02 * last + 0.002)
        check_going_on(runs, data, settings, steps, checkpoints)
    if runs.wrong:
        facts["why"] = "; ".join(runs.wrong)[-2000:]
    session.report("learning", not runs.wrong, seconds=round(time.monotonic() - began, 1), **facts)


def base_model(runs, data):
    """A model that has not learned the sums yet, for adapters."""
    checkpoints, _, _ = runs.train("a base model", data, {
        "train.steps": 5, "train.eval_every": 0, "checkpoint.every": 0, **FULL})
    return f"{checkpoints}/{newest(checkpoints)}"

#!/usr/bin/env python3
"""Teaches small random models to add, from conversations in a file to answers in a chat.

usage: arithmetic.py TRAINER_PROGRAM [LARGEST]

The loss and the length of the gradient are what PyTorch has for the same rows, in shared windows and
in windows of their own; what is not learned has no gradient; the best checkpoint is the best one.
With LARGEST a model of Qwen2's shape learns sums of two numbers below it by full tuning, and another
one, which was trained on sums in another form before, by LoRA. The sums that are asked were never
trained on. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import random
import shutil
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from chat_model import chat_row, token_id, write_chat_model, write_rows
from folders import read_safetensors
from prepared_runs import LEARNED, content, newest, of_type, read_metrics, write_part
from program import Program

ASKED = 40  # sums that are not trained on
CONTEXT = 64


class Test(Program):
    def __init__(self, program, directory):
        super().__init__(program)
        self.directory, self.runs = directory, 0

    def prepare(self, name, model, rows, held_out):
        """Returns the folder of the tokens."""
        path = f"{self.directory}/{name}"
        write_rows(path + ".jsonl", rows)
        write_rows(path + "-held-out.jsonl", held_out)
        ended = self.run("prepare", "--model", model, "--data", path + ".jsonl", "--held-out",
                         path + "-held-out.jsonl", "--out", path + "-tokens", "--context",
                         str(CONTEXT), "--show", "0")
        self.check(f"{name}: rows become tokens", ended.returncode == 0, ended.stderr)
        return path + "-tokens"

    def words(self, model, data, settings):
        """Returns the command of a new run, its checkpoint directory and the file of its metrics."""
        self.runs += 1
        name = f"{self.directory}/run{self.runs}"
        config = {"model": {"context": CONTEXT}, "optimizer": {"lr": 5e-3, "warmup_ratio": 0.05},
                  "train": {"batch": 16, "micro_batch": 8, "threads": 2, "device": "cpu",
                            "eval_every": 0, "log_every": 1},
                  "checkpoint": {"every": 0}}
        for key, value in settings.items():
            section, key = key.split(".")
            config.setdefault(section, {})[key] = value
        with open(name + ".json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        words = ["train", "--config", name + ".json", "--init", model, "--data", data,
                 "--checkpoint-dir", name + ".checkpoints"]
        return words, name + ".checkpoints", name + ".metrics"

    def train(self, what, model, data, settings):
        """Returns the checkpoint directory, the metrics and what was printed."""
        words, checkpoints, metrics = self.words(model, data, settings)
        ended = self.run(*words, GPUCTL_METRICS=metrics)
        self.check(what + " ends well", ended.returncode == 0, ended.returncode, ended.stderr)
        return checkpoints, read_metrics(metrics), ended.stdout

    def right_answers(self, sums, *model):
        """Returns the share of the sums that a model answers in a chat, digit by digit."""
        right = 0
        for a, b in sums:
            ended = self.run("generate", *model, "--chat", f"{a}+{b}", "--temperature", "0",
                             "--tokens", "8")
            if ended.returncode != 0:
                self.check(f"{a}+{b} is answered", False, ended.stderr)
            right += ended.stdout == f"{a + b}\n"
        return right / len(sums)


def sums_below(largest):
    """Returns sums to learn and sums to ask."""
    pairs = [(a, b) for a in range(largest) for b in range(largest)]
    random.Random(1).shuffle(pairs)
    return pairs[ASKED:], pairs[:ASKED]


def in_chat(pairs):
    return [chat_row(f"{a}+{b}", str(a + b)) for a, b in pairs]


def in_text(pairs):
    return [{"text": f"{a}+{b}={a + b}"} for a, b in pairs]


def check_full_tuning(test, learned, asked, steps):
    base = test.directory + "/random"
    write_chat_model(base)
    before = test.right_answers(asked[:10], "--model", base)
    test.check(f"a random model knows {before:.0%} of the sums", before < 0.2)
    data = test.prepare("full", base, in_chat(learned), in_chat(asked))
    checkpoints, lines, _ = test.train("full tuning", base, data, {"train.steps": steps})
    after = test.right_answers(asked, "--checkpoint", f"{checkpoints}/{newest(checkpoints)}")
    test.check(f"full tuning teaches {after:.0%} of sums that it never saw, loss "
               f"{lines[-1]['held_out_loss']:.3f}", after > 0.9)


def check_lora(test, learned, asked, steps):
    random_base, base = test.directory + "/random2", test.directory + "/knows-text"
    write_chat_model(random_base, seed=2)
    data = test.prepare("text", random_base, in_text(learned), in_text(asked))
    checkpoints, _, _ = test.train("training on sums as texts", random_base, data,
                                   {"train.steps": steps})
    shutil.copytree(f"{checkpoints}/{newest(checkpoints)}", base)
    for name in ("manifest.json", "state.json", "optimizer.safetensors"):
        os.remove(f"{base}/{name}")
    before = test.right_answers(asked[:10], "--model", base)
    test.check(f"who knows sums as texts answers {before:.0%} in a chat", before < 0.2)
    data = test.prepare("lora", base, in_chat(learned), in_chat(asked))
    checkpoints, lines, _ = test.train("LoRA", base, data, {
        "train.steps": steps * 3 // 2, "lora.rank": 32, "lora.alpha": 32, "optimizer.lr": 5e-3})
    after = test.right_answers(asked, "--model", base, "--checkpoint",
                               f"{checkpoints}/{newest(checkpoints)}")
    test.check(f"LoRA teaches {after:.0%} of sums that it never saw, loss "
               f"{lines[-1]['held_out_loss']:.3f}", after > 0.9)


# --- what is learned, by PyTorch

def read_rows(folder, part):
    """Returns the rows as words: tokens, with the bit LEARNED."""
    def numbers(name, size):
        with open(f"{folder}/{part}.{name}", "rb") as file:
            raw = file.read()
        return [int.from_bytes(raw[at:at + size], "little") for at in range(0, len(raw), size)]
    words, begin, rows = numbers("tokens", 4), 0, []
    for end in numbers("ends", 8):
        rows.append(words[begin:end])
        begin = end
    return rows


def mean_loss(decoder, weights, rows):
    """The mean over all learned tokens of all rows, each row by itself alone."""
    sums, count = 0, 0
    for row in rows:
        tokens = torch.tensor([word % LEARNED for word in row])
        kept = torch.tensor([word >= LEARNED for word in row[1:]])
        logits = decoder.logits(weights, tokens[None, :-1])[0]
        losses = -torch.log_softmax(logits, -1).gather(1, tokens[1:, None])[:, 0]
        sums, count = sums + losses[kept].sum(), count + int(kept.sum())
    return sums / count, count


def check_gradients(test, learned, asked):
    """Steps that each see all rows: what a window holds must change neither loss nor gradient."""
    base = test.directory + "/gradients"
    decoder, weights = write_chat_model(base, layers=1, seed=3)
    data = test.prepare("gradients", base, in_chat(learned[:40]) + [
        {"prompt": "9+", "completion": "9=18"}, {"text": "1+1=2"}], in_chat(asked[:20]))
    rows = read_rows(data, "train")
    leaves = {name: weight.double().requires_grad_() for name, weight in weights.items()}
    loss, count = mean_loss(decoder, leaves, rows)
    loss.backward()
    length = float(sum(leaf.grad.pow(2).sum() for leaf in leaves.values()).sqrt())
    runs = {}
    for packed in (True, False):
        # One more step than an epoch has windows would not be a step over all rows.
        windows = len(rows)
        if packed:
            out = test.train("a run that counts windows", base, data, {"train.steps": 1})[2]
            windows = int(out.split(" windows,")[0].rsplit(" ", 1)[1])
            test.check(f"{len(rows)} rows share {windows} windows", windows < len(rows) / 2)
        checkpoints, lines, _ = test.train(f"a run with pack {packed}", base, data, {
            "train.steps": 6, "train.batch": windows, "data.pack": packed})
        runs[packed] = of_type(lines, "step"), read_safetensors(
            f"{checkpoints}/{newest(checkpoints)}/model.safetensors")
        first = runs[packed][0][0]
        test.check(f"PyTorch has the same loss and gradient with pack {packed}",
                   abs(first["loss"] / float(loss) - 1) < 1e-5 and
                   abs(first["grad_norm"] / length - 1) < 1e-4 and first["tokens"] == count,
                   first, float(loss), length, count)
    off = max(abs(one[key] / other[key] - 1) for one, other in zip(runs[True][0], runs[False][0])
              for key in ("loss", "grad_norm"))
    test.check(f"six steps with rows packed or not differ by {off:.0e} in loss and gradient",
               off < 1e-3)
    far = max(float((runs[True][1][name] - runs[False][1][name]).abs().max()) for name in weights)
    test.check(f"and by {far:.0e} in the weights", far < 1e-4)
    return base, data, rows


def check_masked(test, base, data, rows):
    """Changes what is no target in all rows, then what is one."""
    def bits_after(name, change):
        folder = f"{test.directory}/masked-{name}"
        shutil.copytree(data, folder)
        changed = [change(list(row)) for row in rows]
        write_part(folder, "train", changed)
        found = content(test.train(f"a run with {name}", base, folder, {"train.steps": 3})[0])
        return found["model.safetensors"]

    def other_end(row):
        """The last token of a row is only a target."""
        if row[-1] < LEARNED:
            row[-1] = (row[-1] + 1) % 256
        return row

    def learned_begin(row):
        """Nothing is before the first token."""
        row[0] |= LEARNED
        return row

    def learned_less(row):
        row[-2] %= LEARNED
        return row

    def other_answer(row):
        row[-1] = row[-1] if row[-1] < LEARNED else 7 | LEARNED
        row[-2] = row[-2] if row[-2] < LEARNED else 7 | LEARNED
        return row

    plain = bits_after("the rows as they are", lambda row: row)
    unlearned = sum(row[-1] < LEARNED for row in rows)
    test.check(f"{unlearned} of {len(rows)} rows end in what is not learned", unlearned >= 40)
    test.check("another token that is not learned changes no bit",
               bits_after("other ends", other_end) == plain)
    test.check("a first token is never learned",
               bits_after("learned begins", learned_begin) == plain)
    test.check("less that is learned changes the weights",
               bits_after("less learned", learned_less) != plain)
    test.check("another token that is learned changes the weights",
               bits_after("other answers", other_answer) != plain)


def check_best(test, learned, asked):
    """A few sums are learned by heart, so that the held-out loss rises."""
    base = test.directory + "/by-heart"
    decoder, _ = write_chat_model(base, layers=1, seed=4)
    data = test.prepare("few", base, in_chat(learned[:24]), in_chat(asked))
    checkpoints, lines, _ = test.train("learning by heart", base, data, {
        "train.steps": 3000, "train.eval_every": 5, "train.patience": 3, "train.batch": 4,
        "checkpoint.keep_last": 1, "optimizer.schedule": "constant"})
    done = lines[-1]
    test.check("learning by heart stops early",
               done["outcome"] == "early_stop" and done["best"]["step"] < done["step"] < 3000, done)
    rows, losses = read_rows(data, "held_out"), []
    for step in (done["best"]["step"], done["step"]):
        folder = f"{checkpoints}/step-{step:08}"
        weights = read_safetensors(folder + "/model.safetensors")
        losses.append(float(mean_loss(decoder, {name: w.double() for name, w in weights.items()},
                                      rows)[0]))
    test.check("PyTorch finds the same loss in the best checkpoint",
               abs(losses[0] / done["best"]["held_out_loss"] - 1) < 1e-5, losses, done)
    test.check("and a higher one in the last", losses[1] > losses[0], losses)


def main():
    program = sys.argv[1]
    learns = len(sys.argv) > 2
    largest = int(sys.argv[2]) if learns else 50
    learned, asked = sums_below(largest)
    steps = 900 * max(1, largest // 50)
    assert token_id("<|im_end|>") > 255
    with tempfile.TemporaryDirectory() as directory:
        test = Test(program, directory)
        check_best(test, learned, asked)
        check_masked(test, *check_gradients(test, learned, asked))
        if learns:
            check_full_tuning(test, learned, asked, steps)
            check_lora(test, learned, asked, steps)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

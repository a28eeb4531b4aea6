#!/usr/bin/env python3
"""Checks AdamW's moments in 8 bits: the numbers against the lists of the bitsandbytes library, updates
against the formulas, and whole runs against those with moments in fp32.

usage: moments.py DUMP_PROGRAM TRAINER_PROGRAM

Runs that stop and go on, with the other kind of moments, too; checkpoints that cannot be right. One
comparison reads stories260K/ in $GPUCTL_MODELS_DIR (default: ../shared/models beside the project), and
is left out without it. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import stories
from arithmetic import Test, in_chat, sums_below
from chat_model import write_chat_model
from folders import read_safetensors, write_safetensors
from hostile_runs import seal
from prepared_runs import newest, of_type
from stories_tuning import Test as StoriesTest

BAD_DATA = 65
BLOCK = 256
LORA = {"lora.rank": 32, "lora.alpha": 32}
KINDS = {"mean": True, "square": False}  # whether it has a sign


def values_of(signed):
    """Returns the 256 numbers: create_dynamic_map(signed) of bitsandbytes, from its definition."""
    found = [0.0, 1.0]
    for exponent in range(7):
        count = 2 ** exponent if signed else 2 ** (exponent + 1)
        edges = torch.linspace(0.1, 1, count + 1, dtype=torch.float64)
        means = ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (exponent - 6)).tolist()
        found += means + ([-mean for mean in means] if signed else [])
    assert len(found) == 256
    return torch.tensor(sorted(found), dtype=torch.float64).float().double()


VALUES = {kind: values_of(signed) for kind, signed in KINDS.items()}


def encode(flat, kind):
    """Returns codes and magnitudes of fp32 numbers; every code by looking at all 256."""
    codes, magnitudes = [], []
    for block in flat.split(BLOCK):
        largest = block.abs().max()
        unit = (block / largest if largest > 0 else block).double()
        away = (unit[:, None] - VALUES[kind]).abs()
        # Of two that are as near, the one nearer to 0.
        away = away + VALUES[kind].abs() * 1e-14
        code = away.argmin(1)
        if kind == "square":
            code = torch.where((unit > 0) & (code == 0), torch.ones_like(code), code)
        codes.append(code)
        magnitudes.append(largest[None])
    return torch.cat(codes), torch.cat(magnitudes)


def decode(codes, magnitudes, kind):
    wide = magnitudes.double().repeat_interleave(BLOCK)[:codes.numel()]
    return VALUES[kind][codes.long().flatten()] * wide


# --- numbers and updates

def numbers_of(generator):
    """Numbers of many sizes, for both kinds."""
    found = {}
    for place, count in enumerate((1, 255, 256, 257, 5000)):
        spread = torch.exp(4 * torch.randn(count, generator=generator))
        found[f"square.{place}"] = spread
        found[f"mean.{place}"] = spread * torch.randn(count, generator=generator)
    gradient = torch.randn(20000, generator=generator) * 1e-3
    found["mean.normal"], found["square.normal"] = gradient, gradient ** 2
    found["mean.zero"], found["square.zero"] = torch.zeros(300), torch.zeros(300)
    found["square.holes"] = gradient[:1000] ** 2 * (torch.arange(1000) % 3 > 0)
    found["mean.tiny"], found["square.tiny"] = gradient[:700] * 1e-32, gradient[:700] ** 2 * 1e-30
    return found


def check_numbers(test, directory, numbers):
    found = read_safetensors(directory + "/codes.safetensors")
    equal, errors = True, {}
    for name, given in numbers.items():
        kind = name.split(".")[0]
        codes, magnitudes = encode(given, kind)
        back = decode(codes, magnitudes, kind)
        equal &= torch.equal(found["codes." + name].long(), codes)
        equal &= torch.equal(found["absmax." + name], magnitudes)
        equal &= torch.allclose(found["back." + name].double(), back, rtol=1e-6, atol=1e-44)
        if name.endswith("normal"):
            errors[kind] = float((back - given).abs().mean() / given.double().abs().mean())
    test.check("all codes are those of the nearest of the library's values", equal)
    test.check("normal numbers come back with an error of about a hundredth: " +
               ", ".join(f"{kind} {error:.4f}" for kind, error in errors.items()),
               max(errors.values()) < 0.02, errors)


def check_updates(test, directory, gradients, start):
    """Each step from the state that the program had before it."""
    found = read_safetensors(directory + "/steps.safetensors")
    cut = start.shape[0] // 3
    slices = {"a": slice(0, cut), "b": slice(cut, None)}
    for way in ("loops", "tensors"):
        largest, away, codes_seen = 0.0, 0, 0
        for t in range(1, len(gradients) + 1):
            for name, rows in slices.items():
                def state(key, step):
                    return found[f"{way}.{step}.{key}.{name}"]

                gradient = gradients[str(t)][rows].double().flatten() * 0.5
                master = (start if t == 1 else found[f"{way}.{t - 1}.master"])[rows]
                master = master.double().flatten()
                moments = {}
                for key, kind, beta, new in (("exp_avg", "mean", 0.9, gradient),
                                             ("exp_avg_sq", "square", 0.95, gradient ** 2)):
                    old = torch.zeros_like(new) if t == 1 else decode(
                        state(key, t - 1), state(key + "_absmax", t - 1), kind)
                    moments[kind] = beta * old + (1 - beta) * new
                    codes, _ = encode(moments[kind].float(), kind)
                    difference = (codes - state(key, t).long().flatten()).abs()
                    away += int(difference.sum())
                    codes_seen += codes.numel()
                    largest = max(largest, float(difference.max()))
                root = (moments["square"] / (1 - 0.95 ** t)).sqrt() + 1e-8
                master = master * (1 - 1e-2 * 0.1) - 1e-2 / (1 - 0.9 ** t) * moments["mean"] / root
                error = (found[f"{way}.{t}.master"][rows].double().flatten() - master).abs().max()
                if error > 1e-6:
                    test.check(f"{way}, step {t}, {name}: weights", False, float(error))
        test.check(f"{way}: {len(gradients)} updates are those of the formulas, {away} of {codes_seen} "
                   "codes are beside theirs", largest <= 1 and away < 1e-3 * codes_seen, largest)


def check_dump(test, dump, directory):
    generator = torch.Generator().manual_seed(4)
    numbers = numbers_of(generator)
    write_safetensors(directory + "/numbers.safetensors", numbers)
    shape = (100, 77)
    start = torch.randn(shape, generator=generator)
    gradients = {str(t): torch.randn(shape, generator=generator) *
                 torch.exp(2 * torch.randn(shape, generator=generator)) for t in range(1, 7)}
    write_safetensors(directory + "/gradients.safetensors", {"master": start, **gradients})
    subprocess.run([dump, directory], check=True)
    check_numbers(test, directory, numbers)
    check_updates(test, directory, gradients, start)


# --- runs

def check_losses(test, directory):
    """The same runs of a trained model with both kinds of moments."""
    source = os.path.join(stories.MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"        left out: {source} does not have the model")
        return
    base = StoriesTest(test.program, directory + "/stories", None)
    os.makedirs(base.work)
    base.write_base(source)
    text = directory + "/text.txt"
    words = ""
    for page in ("../README.md", "../docs/commands.md", "../docs/data.md", "../docs/models.md"):
        with open(os.path.join(os.path.dirname(__file__), page), encoding="utf-8") as file:
            words += file.read()
    with open(text, "w", encoding="utf-8") as file:
        file.write(words)
    rows = [{"text": part} for part in words.split("\n\n") if len(part) > 40]
    data = test.prepare("stories-rows", base.base, rows[::2] + rows[1::4], rows[3::4])
    for what, more in (("full", {"optimizer.lr": 1e-3}), ("LoRA", LORA),
                       ("QLoRA", {**LORA, "lora.base_dtype": "nf4"})):
        losses = {}
        for state in ("fp32", "int8"):
            _, lines, _ = test.train(f"{what} with {state}", base.base, data, {
                "train.steps": 60, "train.batch": 8, "train.micro_batch": 4,
                "optimizer.state": state, **more})
            losses[state] = (of_type(lines, "step")[0]["loss"], lines[-1]["held_out_loss"],
                             of_type(lines, "step")[-1]["loss"])
        (first, wide, _), (_, small, _) = losses["fp32"], losses["int8"]
        test.check(f"{what}: a loss of {first:.3f} falls to {wide:.4f} with fp32, {small:.4f} with int8",
                   wide < 0.9 * first and abs(small / wide - 1) < 0.01 and small != wide, losses)


def coded_names(checkpoint):
    found = read_safetensors(checkpoint + "/optimizer.safetensors")
    return {name for name, tensor in found.items() if tensor.dtype == torch.uint8}, found


def check_resuming(test, base, data):
    settings = {"train.steps": 6, "train.batch": 4, "checkpoint.every": 3,
                "checkpoint.keep_last": 5}
    for what, more in (("full", {}), ("QLoRA", {**LORA, "lora.base_dtype": "nf4"})):
        for state, other in (("int8", "fp32"), ("fp32", "int8")):
            given = {**settings, **more, "optimizer.state": state}
            checkpoints, _, _ = test.train(f"{what} with {state}", base, data, given)
            whole = read_safetensors(f"{checkpoints}/step-00000006/optimizer.safetensors")
            coded, _ = coded_names(f"{checkpoints}/step-00000006")
            test.check(f"{what} with {state}: {len(coded)} of {len(whole)} tensors are codes",
                       (len(coded) > 0) == (state == "int8"))
            shutil.rmtree(checkpoints + "/step-00000006")
            words = ["train", "--config", checkpoints.replace(".checkpoints", ".json"), "--init",
                     base, "--data", data, "--checkpoint-dir", checkpoints, "--resume", "auto"]
            ended = test.run(*words)
            again = read_safetensors(f"{checkpoints}/step-00000006/optimizer.safetensors")
            test.check(f"{what} with {state}: resuming gives the same bits",
                       ended.returncode == 0 and ended.stderr == "" and set(again) == set(whole) and
                       all(torch.equal(whole[name], again[name]) for name in whole), ended.stderr)
            shutil.rmtree(checkpoints + "/step-00000006")
            ended = test.run(*words, "--set", "optimizer.state=" + other)
            coded, _ = coded_names(f"{checkpoints}/step-00000006")
            test.check(f"{what}: {state} becomes {other}, and the run says so",
                       ended.returncode == 0 and (len(coded) > 0) == (other == "int8") and
                       f"optimizer.state was \"{state}\", is \"{other}\"" in ended.stderr,
                       ended.returncode, ended.stderr)


def check_hostile(test, base, data):
    """Checkpoints whose manifest fits and whose moments cannot be right."""
    checkpoints, _, _ = test.train("a run to change", base, data, {
        "train.steps": 2, "train.batch": 2, "checkpoint.every": 2, "optimizer.state": "int8"})
    step = f"{checkpoints}/{newest(checkpoints)}"
    coded, good = coded_names(step)
    name = sorted(name for name in coded if name.startswith("exp_avg_sq."))[0]
    blocks = name.replace("exp_avg_sq.", "exp_avg_sq_absmax.")
    norm = "exp_avg.model.norm.weight"

    def with_value(key, value):
        tensor = good[key].clone()
        tensor.view(-1)[0] = value
        return {key: tensor}

    cases = {
        "a magnitude that is no number": (with_value(blocks, float("nan")), blocks),
        "an infinite magnitude": (with_value(blocks, float("inf")), blocks),
        "a negative magnitude": (with_value(blocks, -1.0), blocks),
        "too few magnitudes": ({blocks: good[blocks][1:]}, blocks + " has another shape"),
        "too few codes": ({name: good[name][1:]}, name + " has another shape"),
        "integers": ({name: good[name].long()}, name + " has another dtype"),
        "no magnitudes": ({blocks: None}, blocks + " is missing"),
        "an infinite moment in fp32": (with_value(norm, float("inf")), norm),
    }
    words = ["train", "--config", checkpoints.replace(".checkpoints", ".json"), "--init", base,
             "--data", data, "--checkpoint-dir", checkpoints, "--resume", step]
    for what, (change, part) in cases.items():
        bad = {key: tensor for key, tensor in {**good, **change}.items() if tensor is not None}
        write_safetensors(step + "/optimizer.safetensors", bad)
        seal(step)
        for state in ("int8", "fp32"):
            ended = test.run(*words, "--set", "optimizer.state=" + state)
            test.check(f"{what} is refused, with {state}", ended.returncode == BAD_DATA and
                       part in ended.stderr, ended.returncode, ended.stderr)
    every = {key: torch.randint(0, 256, tensor.shape, dtype=torch.uint8)
             if tensor.dtype == torch.uint8 else tensor for key, tensor in good.items()}
    write_safetensors(step + "/optimizer.safetensors", every)
    seal(step)
    ended = test.run(*words, "--set", "train.steps=4")
    test.check("any codes are borne", ended.returncode in (0, 125), ended.returncode, ended.stderr)


def main():
    dump, program = sys.argv[1:]
    learned, asked = sums_below(50)
    with tempfile.TemporaryDirectory() as directory:
        test = Test(program, directory)
        check_dump(test, dump, directory)
        base = directory + "/base"
        write_chat_model(base)
        data = test.prepare("rows", base, in_chat(learned[:100]), in_chat(asked[:10]))
        check_resuming(test, base, data)
        check_hostile(test, base, data)
        check_losses(test, directory)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

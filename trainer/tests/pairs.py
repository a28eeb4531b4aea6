#!/usr/bin/env python3
"""Checks the loss of pairs of answers (DPO) and all its gradients against a decoder in fp64, for the
whole model and for adapters.

usage: pairs.py DUMP_PROGRAM WORK_DIRECTORY

The decoder reads each answer alone, without the places behind it, and the loss is written here from
Rafailov et al., arXiv 2305.18290. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import shutil
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import families
import lora
from folders import read_safetensors, write_folder, write_safetensors

SHORT, LONG = (10, 11), (4, 150)  # rows, tokens
WORDS = (3, 48, 6, 1, 56, 97)

# family, its maker, rows and tokens, beta, label smoothing, targets of adapters, their keys
CASES = [
    ("llama with biases", families.llama_biased, SHORT, 0.1, 0.0, None, {}),
    ("gemma3, version 4", families.gemma3_v4, LONG, 0.3, 0.0, None, {}),
    ("smollm2", families.smollm2, LONG, 0.05, 0.2, None, {}),
    ("llama with biases", families.llama_biased, LONG, 0.1, 0.0, lora.LINEARS, {}),
    ("qwen2", families.qwen2, SHORT, 0.5, 0.1, lora.ATTENTION,
     {"use_dora": True, "lora_dropout": 0.2}),
    ("smollm2", families.smollm2, SHORT, 0.2, 0.0, lora.LINEARS, {"nf4": True}),
]


def make_pairs(vocab, rows, length, generator):
    """Two answers of different lengths to one prompt in turn; places behind them hold no token."""
    inputs = torch.zeros(rows, length, dtype=torch.int64)
    targets = torch.full((rows, length), -1)
    starts = torch.zeros(rows, length, dtype=torch.int64)
    sizes = []
    for row in range(rows):
        if row % 2 == 0:
            prompt = torch.randint(vocab, (1 + length // 4,), generator=generator)
        answer = torch.randint(1, length - len(prompt) + 1, (1,), generator=generator).item()
        tokens = torch.cat([prompt, torch.randint(vocab, (answer,), generator=generator)])
        size = len(tokens) - 1
        inputs[row, :size] = tokens[:-1]
        targets[row, len(prompt) - 1:size] = tokens[len(prompt):]
        starts[row, size:] = size
        sizes.append(size)
    return inputs, targets, starts, sizes


def write_case(directory, number, case):
    name, make, (rows, length), beta, smoothing, adapted, keys = case
    config, decoder = make(WORDS)
    weights = decoder.random_weights(torch.float32, seed=number)
    folder = f"{directory}/{number:02}"
    write_folder(folder, config, weights)
    generator = torch.Generator().manual_seed(number)
    trained, adapter = weights, None
    keys = dict(keys)
    if keys.pop("nf4", False):
        open(folder + "/nf4", "w").close()
    if adapted is not None:
        dropout = keys.pop("lora_dropout", 0)
        settings = lora.adapter_config(3, 5, dropout, list(adapted), **keys)
        trained = lora.random_adapter(settings, weights, [], torch.float32, number)
        adapter = lora.Adapted(decoder, settings, weights)
        os.makedirs(folder + "/adapter")
        write_safetensors(folder + "/adapter/adapter_model.safetensors", trained)
        with open(folder + "/adapter/adapter_config.json", "w") as file:
            json.dump(settings, file)
    inputs, targets, starts, sizes = make_pairs(decoder.vocab, rows, length, generator)
    # As if the first model had been near this one: of each two pairs one is right, the other wrong.
    wide = {name: tensor.double() for name, tensor in trained.items()}
    near = row_values(decoder, adapter, wide, folder, inputs, targets, sizes, {})
    gains = torch.randn(rows, generator=generator)
    gains[0::4], gains[2::4] = gains[0::4] + 6, gains[2::4] - 6
    reference = (near.detach() - gains).float()
    write_safetensors(folder + "/batch.safetensors", {
        "inputs": inputs, "targets": targets, "starts": starts, "reference": reference,
        "dpo": torch.tensor([beta, smoothing], dtype=torch.float64)})
    return folder, decoder, adapter, trained, inputs, targets, sizes, reference


def row_values(decoder, adapter, wide, folder, inputs, targets, sizes, factors):
    """Returns the log-probability of each row's answer."""
    values = []
    for row, size in enumerate(sizes):
        asked, told = inputs[row:row + 1, :size], targets[row:row + 1, :size]
        scored = int((told >= 0).sum())
        if adapter is None:
            mean = decoder.loss(wide, asked, told)
        else:
            length = inputs.size(1)
            of_row = {name: tensor.view(inputs.size(0), length, -1)[row:row + 1, :size]
                      for name, tensor in factors.items()}
            mean = adapter.loss(wide, asked, told, of_row, os.path.exists(folder + "/nf4"))
        values.append(-scored * mean)
    return torch.stack(values)


def check_case(what, beta, smoothing, folder, decoder, adapter, trained, inputs, targets, sizes,
               reference):
    factors = {}
    if os.path.exists(folder + "/dropout.safetensors"):
        factors = {name: tensor.double() for name, tensor in
                   read_safetensors(folder + "/dropout.safetensors").items()}
    wide = {name: tensor.double().requires_grad_(True) for name, tensor in trained.items()}
    values = row_values(decoder, adapter, wide, folder, inputs, targets, sizes, factors)
    gains = values - reference.double()
    margins = beta * (gains[0::2] - gains[1::2])
    loss = (-(1 - smoothing) * torch.log(torch.sigmoid(margins))
            - smoothing * torch.log(torch.sigmoid(-margins))).mean()
    loss.backward()
    with open(folder + "/loss.json") as file:
        found = json.load(file)
    plain = row_values(decoder, adapter, wide, folder, inputs, targets, sizes, {}).detach()
    read = torch.tensor(found["log_probabilities"], dtype=torch.float64)
    differences = {
        "loss": abs(found["loss"] - float(loss)) / float(loss),
        "log-probabilities": float((read - plain).norm() / plain.norm())}
    wrong = []
    # The difference of numbers in fp32 that are much larger.
    rounding = 1e-6 * beta * float(values.abs().sum())
    if not abs(found["margin"] - float(margins.sum())) <= rounding:
        wrong.append(f"the margin is {found['margin']}, not {float(margins.sum())}")
    right = int((margins > 0).sum())
    if found["right"] != right:
        wrong.append(f"{found['right']} pairs are right, not {right}")
    if not 0 < right < len(margins):
        wrong.append("this case has margins of one sign")
    if families.ON_CPU and not found["recomputes_alike"]:
        wrong.append("recomputed activations give other bits")
    gradients = read_safetensors(folder + "/gradients.safetensors")
    if set(gradients) != set(trained):
        wrong.append(f"gradients of other weights: {set(gradients) ^ set(trained)}")
    whole = torch.cat([tensor.grad.flatten() for tensor in wide.values()]).norm()
    for name, tensor in wide.items():
        size = families.size_of(tensor.grad, whole)
        differences["gradient of " + name] = float(
            (gradients[name].double() - tensor.grad).norm() / size)
    for name, value in differences.items():
        if not value <= families.TOLERANCE:
            wrong.append(f"{name}: relative difference {value:.2e}")
    for line in wrong:
        print(f"FAILED {what}: {line}")
    return max(differences.values()), wrong


def main():
    dump, directory = sys.argv[1:]
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    cases = [write_case(directory, number, case) for number, case in enumerate(CASES)]
    subprocess.run([dump] + [case[0] for case in cases], check=True)
    failed = 0
    for (name, _, batch, beta, smoothing, adapted, keys), case in zip(CASES, cases):
        what = (f"{name}, {batch}, beta {beta}, smoothing {smoothing}, "
                f"{'the whole model' if adapted is None else ' '.join(adapted)} {keys or ''}")
        worst, wrong = check_case(what, beta, smoothing, *case)
        failed += bool(wrong)
        print(f"{worst:.1e}  {what}")
    print(f"{len(CASES)} models, {failed} wrong")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

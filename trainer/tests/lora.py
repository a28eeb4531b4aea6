#!/usr/bin/env python3
"""Checks loss and gradients of adapters against a decoder that computes them as PEFT does, in fp64.

usage: lora.py DUMP_PROGRAM WORK_DIRECTORY

The adapters are written here in PEFT's layout. The decoder of folders.py gets them in its linears,
each module by itself, with the norm of W + scale B A computed from this matrix. What dropout leaves
out is read from the program, once it is shown to be a plausible draw. On the CPU recomputed
activations must give the same bits. Exits with 77 (skipped) when there is no torch.
"""

import copy
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
import nf4
from folders import read_safetensors, write_folder, write_safetensors

PREFIX = "base_model.model."
HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"


def adapter_config(rank, alpha, dropout, targets, **more):
    """Returns what PEFT 0.17 writes."""
    return {"alpha_pattern": {}, "auto_mapping": None, "base_model_name_or_path": "a/model",
            "bias": "none", "corda_config": None, "eva_config": None, "exclude_modules": None,
            "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True,
            "layer_replication": None, "layers_pattern": None, "layers_to_transform": None,
            "loftq_config": {}, "lora_alpha": alpha, "lora_bias": False, "lora_dropout": dropout,
            "megatron_config": None, "megatron_core": "megatron.core", "modules_to_save": None,
            "peft_type": "LORA", "qalora_group_size": 16, "r": rank, "rank_pattern": {},
            "revision": None, "target_modules": targets, "target_parameters": None,
            "task_type": "CAUSAL_LM", "trainable_token_indices": None, "use_dora": False,
            "use_qalora": False, "use_rslora": False, **more}


class Adapted:
    """Wraps a decoder: its linears have adapters."""

    def __init__(self, decoder, config, weights):
        self.decoder = copy.copy(decoder)
        self.decoder.linear = self.linear
        self.weights = weights
        self.config = config
        rank = config["r"]
        self.scale = config["lora_alpha"] / (rank ** 0.5 if config["use_rslora"] else rank)
        self.factors = {}

    def linear(self, w, x, name):
        base = {key: w[name + key] for key in (".weight", ".bias") if name + key in w}
        result = x @ base[".weight"].T + base.get(".bias", 0)
        a, b = w.get(name + ".lora_A.weight"), w.get(name + ".lora_B.weight")
        if a is None:
            return result
        dropped = x * self.factors[name].view(x.shape) if name in self.factors else x
        if not self.config["use_dora"]:
            return result + self.scale * (dropped @ a.T @ b.T)
        length = (base[".weight"] + self.scale * b @ a).detach().norm(dim=1)
        factor = w[name + ".lora_magnitude_vector"] / length
        return (result + (factor - 1) * (dropped @ base[".weight"].T)
                + factor * self.scale * (dropped @ a.T @ b.T))

    def loss(self, adapter, inputs, targets, factors, packed):
        """`adapter`: the trained tensors by their names in PEFT."""
        self.factors = factors
        wide = {name: tensor.double() for name, tensor in self.weights.items()}
        for name in self.weights if packed else ():
            if name.endswith("_proj.weight"):
                wide[name] = nf4.round_trip(self.weights[name]).double()
        wide.update({name[len(PREFIX):]: tensor for name, tensor in adapter.items()})
        return self.decoder.loss(wide, inputs, targets)


LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ATTENTION = ("q_proj", "v_proj")

# Its matrices have more than 256 blocks of 64 values.
WIDE = ((1, 160, 4, 2, 240, 61), (3, 11))

# family, its maker, sizes, targets, keys of adapter_config.json, weights that are trained in full
CASES = [
    ("llama with biases", families.llama_biased, families.SMALL, LINEARS, {}, []),
    ("llama with biases", families.llama_biased, families.LONG, LINEARS,
     {"use_rslora": True, "lora_dropout": 0.3}, ["model.norm.weight"]),
    ("llama with biases", families.llama_biased, families.LONG, LINEARS, {"use_dora": True}, []),
    ("llama with biases", families.llama_biased, families.SMALL, ("k_proj", "up_proj"),
     {"use_dora": True, "lora_dropout": 0.25}, [HEAD, EMBEDDING]),
    ("smollm2", families.smollm2, families.SMALL, ATTENTION, {}, [EMBEDDING, HEAD]),
    ("smollm2", families.smollm2, families.LONG, ("down_proj",), {"lora_dropout": 0.5}, []),
    ("llama3, version 5", families.llama3_v5, families.LONG, ("o_proj", "gate_proj"), {}, []),
    ("mistral", families.mistral(5), families.SMALL, LINEARS, {"r": 1}, []),
    ("qwen2", families.qwen2, families.SMALL, ATTENTION, {"use_dora": True}, []),
    ("qwen2", families.qwen2, families.LONG, LINEARS, {"lora_dropout": 0.1}, []),
    ("qwen2, one layer", families.qwen2, families.LONG, ("layers.1.mlp.up_proj", "v_proj"), {}, []),
    ("qwen3", families.qwen3(False), families.SMALL, LINEARS, {"use_rslora": True},
     ["model.layers.1.self_attn.q_norm.weight", "model.layers.0.input_layernorm.weight"]),
    ("qwen3 with biases", families.qwen3(True), families.EQUAL, LINEARS,
     {"use_dora": True, "lora_dropout": 0.2}, []),
    ("gemma3, version 4", families.gemma3_v4, families.SMALL, LINEARS, {"use_dora": True}, []),
    ("gemma3, version 5", families.gemma3_v5, families.LONG, ATTENTION + ("down_proj",),
     {"lora_dropout": 0.15}, []),
    # The model's matrices in 4 bits; those without adapters, too.
    ("llama with biases", families.llama_biased, families.LONG, LINEARS, {"nf4": True}, []),
    ("qwen2", families.qwen2, WIDE, ATTENTION, {"nf4": True, "use_dora": True}, []),
    ("qwen3 with biases", families.qwen3(True), families.EQUAL, ("up_proj",),
     {"nf4": True, "use_dora": True, "lora_dropout": 0.2}, [HEAD]),
    ("gemma3, version 4", families.gemma3_v4, families.SMALL, ("o_proj", "k_proj"),
     {"nf4": True, "lora_dropout": 0.3}, [EMBEDDING, HEAD]),
]


def random_adapter(config, weights, saved, dtype, seed):
    """Returns an adapter as training leaves it, with B that is not zero."""
    generator = torch.Generator().manual_seed(seed)
    adapter = {}
    for name, weight in weights.items():
        module = name[:-len(".weight")]
        wanted = any(module.endswith("." + target) for target in config["target_modules"])
        if not name.endswith(".weight") or len(weight.shape) != 2 or not wanted:
            continue
        rank, (rows, inputs) = config["r"], weight.shape
        a = torch.randn(rank, inputs, generator=generator) / inputs ** 0.5
        b = torch.randn(rows, rank, generator=generator) * 0.15
        adapter[f"{PREFIX}{module}.lora_A.weight"] = a
        adapter[f"{PREFIX}{module}.lora_B.weight"] = b
        if config["use_dora"]:
            length = weight.float().norm(dim=1)
            factor = 1 + 0.2 * torch.randn(rows, generator=generator)
            adapter[f"{PREFIX}{module}.lora_magnitude_vector"] = length * factor
    for name in saved:
        source = weights[EMBEDDING if name == HEAD and HEAD not in weights else name].float()
        noise = torch.randn(source.shape, generator=torch.Generator().manual_seed(seed))
        adapter[PREFIX + name] = source + 0.1 * noise
    return {name: tensor.to(dtype) for name, tensor in adapter.items()}


def write_case(directory, number, case):
    name, make, (shape, (rows, length)), targets, keys, saved = case
    base, decoder = make(shape)
    weights = decoder.random_weights(torch.float32, seed=number)
    folder = f"{directory}/{number:02}"
    write_folder(folder, base, weights)
    keys = {"rank": 3, "alpha": 5, "dropout": 0, **keys}
    if keys.pop("nf4", False):
        open(folder + "/nf4", "w").close()
    config = adapter_config(keys.pop("r", keys.pop("rank")), keys.pop("alpha"),
                            keys.pop("lora_dropout", keys.pop("dropout")), list(targets), **keys)
    if saved:
        config["modules_to_save"] = [weight.split(".")[-2] for weight in saved]
    adapter = random_adapter(config, weights, saved, [torch.float32, torch.bfloat16][number % 2],
                             number)
    os.makedirs(folder + "/adapter")
    write_safetensors(folder + "/adapter/adapter_model.safetensors", adapter)
    with open(folder + "/adapter/adapter_config.json", "w") as file:
        json.dump(config, file)
    generator = torch.Generator().manual_seed(100 + number)
    inputs = torch.randint(decoder.vocab, (rows, length), generator=generator)
    targets = torch.randint(decoder.vocab, (rows, length), generator=generator)
    targets[0, -1] = -1
    write_safetensors(folder + "/batch.safetensors", {"inputs": inputs, "targets": targets})
    return folder, Adapted(decoder, config, weights), adapter, inputs, targets


def check_factors(factors, share, wrong):
    """Dropout must look like one: two values, the right share, no two modules alike."""
    kept = round(share * 65536) / 65536
    for name, tensor in factors.items():
        count, zeros = tensor.numel(), int((tensor == 0).sum())
        spread = (share * (1 - share) / count) ** 0.5
        if abs(zeros / count - share) > 5 * spread:
            wrong.append(f"{name} leaves out {zeros} of {count}")
        if not torch.all((tensor == 0) | ((tensor - 1 / (1 - kept)).abs() < 1e-6)):
            wrong.append(f"{name} has other factors")
    seen = [tuple(tensor.flatten()[:64].tolist()) for tensor in factors.values()
            if tensor.numel() >= 64]
    if len(set(seen)) != len(seen):
        wrong.append("two modules leave out the same")


def check_case(what, folder, adapted, adapter, inputs, targets):
    """Returns the largest relative difference, and what is wrong."""
    wrong, factors = [], {}
    share = adapted.config["lora_dropout"]
    if share > 0:
        factors = {name: tensor.double()
                   for name, tensor in read_safetensors(folder + "/dropout.safetensors").items()}
        check_factors(factors, share, wrong)
    wide = {name: tensor.double().requires_grad_(True) for name, tensor in adapter.items()}
    tied = adapted.decoder.tied and PREFIX + HEAD in wide
    if tied:
        wide[PREFIX + HEAD] = wide[PREFIX + EMBEDDING]
    packed = os.path.exists(folder + "/nf4")
    loss = adapted.loss(wide, inputs, targets, factors, packed)
    loss.backward()
    plain = float(adapted.loss(wide, inputs, targets, {}, packed))
    merged = float(adapted.loss(wide, inputs, targets, {}, False))  # into the model of the folder
    with open(folder + "/loss.json") as file:
        found = json.load(file)
    differences = {"loss": abs(found["loss"] - float(loss)) / float(loss),
                   "loss without dropout": abs(found["loss_without_dropout"] - plain) / plain,
                   "loss of the merged weights": abs(found["merged"] - merged) / merged}
    if families.ON_CPU and not found["recomputes_alike"]:
        wrong.append("recomputed activations give other bits")
    gradients = read_safetensors(folder + "/gradients.safetensors")
    if set(gradients) != set(adapter):
        wrong.append(f"gradients of other weights: {set(gradients) ^ set(adapter)}")
    whole = torch.cat([tensor.grad.flatten() for tensor in wide.values()]).norm()
    for name, tensor in wide.items():
        difference = (gradients[name].double() - tensor.grad).norm()
        differences["gradient of " + name] = float(
            difference / families.size_of(tensor.grad, whole))
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
    for (name, _, (shape, batch), targets, keys, saved), case in zip(CASES, cases):
        what = f"{name}, shape {shape}, batch {batch}, {' '.join(targets)} {keys or ''} {saved or ''}"
        worst, wrong = check_case(what, *case)
        failed += bool(wrong)
        print(f"{worst:.1e}  {what}")
    print(f"{len(CASES)} adapters, {failed} wrong")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

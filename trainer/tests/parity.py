#!/usr/bin/env python3
"""Checks the trainer's loss, gradients and AdamW against PyTorch on the same weights.

usage: parity.py DUMP_PROGRAM WORK_DIRECTORY

The model here is written from its definition, with no attention blocks, no chunks and no fused
projections, and runs in fp64. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import struct
import subprocess
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

TOLERANCE = 1e-5  # relative, in norm
DTYPES = {"F32": torch.float32, "I64": torch.int64}


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x, theta):
    """x: [B, heads, T, E]; rotate-half by position."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) * 2 / x.shape[-1])
    angle = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequency
    cos, sin = torch.cos(angle), torch.sin(angle)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def loss_of(w, config, inputs, targets):
    batch, length = inputs.shape
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // heads
    eps, theta = config["rms_norm_eps"], config["rope_theta"]
    mask = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)
    x = w["model.embed_tokens.weight"][inputs]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."

        def project(y, which, count):
            return (y @ w[f"{name}self_attn.{which}_proj.weight"].T) \
                .view(batch, length, count, head_dim).transpose(1, 2)

        y = rms_norm(x, w[name + "input_layernorm.weight"], eps)
        q = rotate(project(y, "q", heads), theta)
        k = rotate(project(y, "k", kv_heads), theta).repeat_interleave(heads // kv_heads, 1)
        v = project(y, "v", kv_heads).repeat_interleave(heads // kv_heads, 1)
        scores = q @ k.transpose(2, 3) / head_dim ** 0.5 + mask
        mixed = (F.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + mixed @ w[name + "self_attn.o_proj.weight"].T
        y = rms_norm(x, w[name + "post_attention_layernorm.weight"], eps)
        gate = F.silu(y @ w[name + "mlp.gate_proj.weight"].T)
        x = x + (gate * (y @ w[name + "mlp.up_proj.weight"].T)) @ w[name + "mlp.down_proj.weight"].T
    logits = rms_norm(x, w["model.norm.weight"], eps) @ w["model.embed_tokens.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


class Check:
    def __init__(self):
        self.worst = {}
        self.failed = False

    def near(self, what, found, expected):
        found, expected = torch.as_tensor(found).double(), torch.as_tensor(expected).double()
        difference = float((found - expected).norm() / expected.norm())
        kind = what.split(" ")[0]
        self.worst[kind] = max(self.worst.get(kind, 0.0), difference)
        if not difference <= TOLERANCE:
            self.failed = True
            print(f"FAILED {what}: relative difference {difference:.2e}")


def part(tensors, prefix):
    return {name[len(prefix):]: tensor for name, tensor in tensors.items()
            if name.startswith(prefix)}


def main():
    dump, directory = sys.argv[1:]
    os.makedirs(directory, exist_ok=True)
    subprocess.run([dump, directory], check=True)
    with open(directory + "/parity.json") as file:
        facts = json.load(file)
    tensors = read_safetensors(directory + "/parity.safetensors")
    settings, check = facts["optimizer"], Check()

    names = list(part(tensors, "1.before."))
    parameters = {n: tensors["1.before." + n].clone().requires_grad_(True) for n in names}
    optimizer = torch.optim.AdamW(
        [{"params": [parameters[n] for n in names if "norm" not in n],
          "weight_decay": settings["weight_decay"]},
         {"params": [parameters[n] for n in names if "norm" in n], "weight_decay": 0.0}],
        betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"])

    for number, step in enumerate(facts["steps"], 1):
        weights = {n: t.double().requires_grad_(True)
                   for n, t in part(tensors, f"{number}.before.").items()}
        loss = loss_of(weights, facts["model"], tensors["inputs"], tensors["targets"])
        loss.backward()
        check.near(f"loss of step {number}", step["loss"], loss.detach())
        gradients = part(tensors, f"{number}.gradient.")
        for name in names:
            check.near(f"gradient of step {number}, {name}", gradients[name], weights[name].grad)
        norm = torch.cat([w.grad.flatten() for w in weights.values()]).norm()
        check.near(f"norm of step {number}", step["norm"], norm)
        # The optimizer by itself: the trainer's own gradients, clipped and applied by PyTorch.
        for group in optimizer.param_groups:
            group["lr"] = step["lr"]
        for name in names:
            parameters[name].grad = gradients[name].clone()
        torch.nn.utils.clip_grad_norm_(parameters.values(), settings["grad_clip"])
        optimizer.step()
        for name in names:
            check.near(f"weight after step {number}, {name}", tensors[f"{number}.after.{name}"],
                       parameters[name].detach())
    print("largest relative differences:",
          ", ".join(f"{kind} {value:.1e}" for kind, value in check.worst.items()))
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()

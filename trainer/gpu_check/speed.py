"""Speed, memory and checkpoint stalls for gpu_check.

speed.py '{"layers": …}' as a program measures the same training step in Python, in a process of its
own, so that the GPU is empty while the trainer runs.
"""

import importlib.util
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

import programs

# The shapes of Qwen2.5-0.5B and -1.5B, with their vocabulary; random weights.
SIZES = {
    "0.5b": {"layers": 24, "d_model": 896, "heads": 14, "kv_heads": 2, "ffn": 4864,
             "vocab_size": 151936, "context": 1024, "batch": 32, "micro_batch": 32},
    "1.5b": {"layers": 28, "d_model": 1536, "heads": 12, "kv_heads": 2, "ffn": 8960,
             "vocab_size": 151936, "context": 1024, "batch": 16, "micro_batch": 16},
    "small": {"layers": 2, "d_model": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab_size": 300,
              "context": 64, "batch": 4, "micro_batch": 2},
}
# Dense bf16, as the makers' data sheets give them, in TFLOP/s.
PEAKS = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "4090": 165, "B200": 2250}


def sizes_of(session):
    names = session.options.sizes or ("small" if session.small else "0.5b,1.5b")
    return [(name, SIZES[name]) for name in names.split(",")]


def peak_tflops(session):
    if session.device == "cpu":
        return None
    name = torch.cuda.get_device_name(0)
    return next((peak for key, peak in PEAKS.items() if key in name), None)


def flops_per_token(size):
    """6 N + 6 L d T: causal attention, the tied head counted once."""
    d, kv = size["d_model"], size["d_model"] // size["heads"] * size["kv_heads"]
    block = 2 * d * d + 2 * d * kv + 3 * d * size["ffn"] + 2 * d
    weights = size["layers"] * block + size["vocab_size"] * d + d
    return 6 * weights + 6 * size["layers"] * d * size["context"]


def facts_of(session, size, tokens_per_s, memory_bytes):
    peak = peak_tflops(session)
    facts = {"tokens_per_s": round(tokens_per_s, 1), "memory_bytes": memory_bytes}
    if peak is not None:
        facts["mfu"] = round(tokens_per_s * flops_per_token(size) / (peak * 1e12), 4)
    return facts


def check_speed(session):
    for name, size in sizes_of(session):
        words = [session.trainer, "bench", "--steps", "3" if session.small else "10"]
        for key, value in size.items():
            section = "train" if key in ("batch", "micro_batch") else "model"
            words += ["--set", f"{section}.{key}={value}"]
        words += ["--set", f"train.device={session.device}"]
        line = json.loads(programs.run(session, words).splitlines()[-1])
        ours = facts_of(session, size, line["tokens_per_s"], line["memory_bytes"])
        any_order = json.loads(programs.run(
            session, words + ["--set", "train.deterministic=false"]).splitlines()[-1])
        ours["tokens_per_s_in_any_order"] = round(any_order["tokens_per_s"], 1)
        session.report("speed", True, size=name, of="gpuctl-trainer", loss=line["loss"],
                       micro_batch=line["micro_batch"],
                       estimate_of_memory=round(line["estimated_bytes"] / line["memory_bytes"], 3),
                       **ours)
        for kind in ("transformers", "plain torch"):
            if kind == "transformers" and importlib.util.find_spec("transformers") is None:
                session.report("speed", None, size=name, of=kind, why="it is not installed")
                continue
            if session.left() < 20:
                session.report("speed", None, size=name, of=kind, why="no time is left")
                continue
            task = {**size, "kind": kind, "device": session.device,
                    "steps": 2 if session.small else 6}
            said = programs.run(session, [sys.executable, os.path.abspath(__file__),
                                          json.dumps(task)])
            line = json.loads(said.splitlines()[-1])
            if "why" in line:
                session.report("speed", None, size=name, of=kind, **line)
                continue
            theirs = facts_of(session, size, line["tokens_per_s"], line["memory_bytes"])
            session.report("speed", True, size=name, of=kind, loss=line["loss"],
                           trainer_is_faster_by=round(ours["tokens_per_s"]
                                                      / theirs["tokens_per_s"], 3), **theirs)


def check_stall(session):
    for name, size in sizes_of(session)[:1]:
        text = session.directory + "/text"
        if not os.path.isdir(text):
            os.makedirs(text)
            with open(text + "/numbers.txt", "w") as file:
                file.write("".join(f"{n} times {n} is {n * n}.\n" for n in range(60000)))
        model = {key: value for key, value in size.items() if "batch" not in key}
        config = {"model": model, "data": {"paths": [text]},
                  "train": {"batch": size["batch"], "micro_batch": size["micro_batch"],
                            "steps": 15, "eval_every": 0, "eval_windows": 1, "log_every": 1,
                            "device": session.device},
                  "checkpoint": {"every": 5, "keep_last": 1}}
        lines, checkpoint = programs.train(session, "stall-" + name, config)
        stalls = [line["stall_seconds"] for line in lines["checkpoint"]]
        state = sum(os.path.getsize(f"{checkpoint}/{file}") for file in os.listdir(checkpoint))
        steps = lines["step"][1:]
        # The first one also makes its buffers.
        session.report("stall", len(stalls) >= 3, size=name, stall_seconds=stalls,
                       write_seconds=[line["seconds"] for line in lines["checkpoint"]],
                       checkpoint_bytes=state,
                       **facts_of(session, size,
                                  sorted(line["tokens_per_s"] for line in steps)[len(steps) // 2],
                                  max(line["memory_bytes"] for line in steps)))


class PlainModel(torch.nn.Module):
    """The same network by torch's own operators, as one would write it."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        d, kv = size["d_model"], size["d_model"] // size["heads"] * size["kv_heads"]
        self.embedding = torch.nn.Embedding(size["vocab_size"], d)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)
        shapes = {"q": (d, d), "k": (d, kv), "v": (d, kv), "out": (d, d), "gate": (d, size["ffn"]),
                  "up": (d, size["ffn"]), "down": (size["ffn"], d)}
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleDict({name: torch.nn.Linear(*shape, bias=False)
                                 for name, shape in shapes.items()})
            for _ in range(size["layers"]))
        self.norms = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(d))
                                            for _ in range(2 * size["layers"] + 1))

    def norm(self, x, index):
        wide = x.float()
        unit = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (unit * self.norms[index]).to(x.dtype)

    def forward(self, tokens):
        size = self.size
        batch, length = tokens.shape
        head_dim = size["d_model"] // size["heads"]
        half = torch.arange(0, head_dim, 2, device=tokens.device).float() / head_dim
        angle = torch.arange(length, device=tokens.device)[:, None] * 10000.0 ** -half
        cos, sin = angle.cos(), angle.sin()
        x = self.embedding(tokens)

        def heads(y, count, turned):
            y = y.view(batch, length, count, head_dim).transpose(1, 2)
            if turned:
                a, b = y[..., :head_dim // 2], y[..., head_dim // 2:]
                y = torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(y.dtype)
            if count < size["heads"]:
                y = y.repeat_interleave(size["heads"] // count, 1)
            return y

        for index, block in enumerate(self.blocks):
            y = self.norm(x, 2 * index)
            mixed = attention(heads(block["q"](y), size["heads"], True),
                              heads(block["k"](y), size["kv_heads"], True),
                              heads(block["v"](y), size["kv_heads"], False))
            x = x + block["out"](mixed.transpose(1, 2).reshape(batch, length, -1))
            y = self.norm(x, 2 * index + 1)
            x = x + block["down"](F.silu(block["gate"](y)) * block["up"](y))
        return F.linear(self.norm(x, -1), self.embedding.weight)


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.size(2)
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3)) / math.sqrt(q.size(3))
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v


def model_of(task):
    if task["kind"] == "plain torch":
        return PlainModel(task)
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(
        hidden_size=task["d_model"], intermediate_size=task["ffn"], vocab_size=task["vocab_size"],
        num_hidden_layers=task["layers"], num_attention_heads=task["heads"],
        num_key_value_heads=task["kv_heads"], max_position_embeddings=task["context"],
        tie_word_embeddings=True, attn_implementation="sdpa", use_cache=False)
    return Logits(LlamaForCausalLM(config))


class Logits(torch.nn.Module):
    """Gives the logits of transformers' model, like PlainModel."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits


def measure(task):
    """fp32 weights, bf16 by autocast on CUDA, fused AdamW; halves the micro-batch without memory."""
    torch.manual_seed(1)
    cuda = task["device"] == "cuda"
    model = model_of(task).to(task["device"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({"fused": True} if cuda else {}))
    shape = (task["batch"], task["context"])
    inputs = torch.randint(task["vocab_size"], shape, device=task["device"])
    targets = torch.randint(task["vocab_size"], shape, device=task["device"])
    at_once = task["micro_batch"]

    def step():
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for first in range(0, task["batch"], at_once):
            rows = slice(first, first + at_once)
            with torch.autocast(task["device"], dtype=torch.bfloat16, enabled=cuda):
                logits = model(inputs[rows])
            loss = F.cross_entropy(logits.float().flatten(0, 1), targets[rows].flatten(),
                                   reduction="sum") / targets.numel()
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(total)

    def timed_steps():
        """Returns the seconds of each step after the first, and the last loss."""
        seconds = []
        for _ in range(task["steps"] + 1):
            began = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - began)
        return seconds[1:], loss

    while True:
        try:
            seconds, loss = timed_steps()
            break
        except RuntimeError as error:
            if "out of memory" not in str(error) or at_once == 1:
                raise
            at_once = (at_once + 1) // 2
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
    memory = torch.cuda.max_memory_reserved() if cuda else resident_bytes()
    return {"tokens_per_s": shape[0] * shape[1] / sorted(seconds)[len(seconds) // 2], "loss": loss,
            "memory_bytes": memory, "micro_batch": at_once}


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    try:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    except ImportError as missing:
        print(json.dumps({"why": str(missing)}))

#!/usr/bin/env python3
"""P13: gpuctl-trainer against python3-torch on the same model, side by side on the same CPU.

The model: 6 blocks, d 384, 6 query and 2 key heads, SwiGLU 1024, vocabulary 8192 with a tied head,
windows of 256 tokens, 8 windows a step; fp32; forward, backward, clipping at 1.0 and AdamW.

Each side runs in a separate process, in turn, ROUNDS times. Python gets its best settings: one
thread per core, an allocator that keeps its memory, OpenMP threads that do not spin, and PyTorch's
own fastest form of the model. The result of a process is its median step, the result of a side its
median process. One JSON line goes to standard output; everything else to standard error.

usage: p13_trainer.py [--trainer PATH] [--rounds N] [--steps N] [--python PATH]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

LAYERS, D, HEADS, KV_HEADS, FFN, VOCAB, T, B = 6, 384, 6, 2, 1024, 8192, 256, 8

PEER_ENVIRONMENT = {
    "GOMP_SPINCOUNT": "0",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def peer_step_seconds(threads, warmup, steps):
    """Returns the median seconds of one optimizer step of the same model in PyTorch."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    head = D // HEADS
    kv = KV_HEADS * head

    def weight(*shape):
        return torch.nn.Parameter(torch.randn(*shape) * 0.02)

    embedding = weight(VOCAB, D)
    final_norm = torch.nn.Parameter(torch.ones(D))
    blocks = [
        dict(n1=torch.nn.Parameter(torch.ones(D)), qkv=weight(D + 2 * kv, D), out=weight(D, D),
             n2=torch.nn.Parameter(torch.ones(D)), gate_up=weight(2 * FFN, D), down=weight(D, FFN))
        for _ in range(LAYERS)
    ]
    parameters = [embedding, final_norm] + [p for block in blocks for p in block.values()]
    frequency = 10000.0 ** (-torch.arange(0, head, 2).double() / head)
    angle = torch.outer(torch.arange(T).double(), frequency)
    cos = torch.cat([angle.cos()] * 2, -1).float()
    sin = torch.cat([-angle.sin(), angle.sin()], -1).float()
    mask = torch.full((T, T), float("-inf")).triu(1)

    def norm(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def rotate(x):
        return x * cos + x.roll(head // 2, -1) * sin

    def attention(x, block):
        q, k, v = (x @ block["qkv"].t()).view(B, T, HEADS + 2 * KV_HEADS, head).transpose(1, 2) \
            .split([HEADS, KV_HEADS, KV_HEADS], 1)
        # The query heads of one key head are rows of one product, so nothing is repeated.
        q = (rotate(q) * head ** -0.5).reshape(B, KV_HEADS, -1, head)
        scores = q @ rotate(k).transpose(2, 3)
        weights = F.softmax(scores.view(B, KV_HEADS, -1, T, T) + mask, -1)
        mixed = (weights.view(B, KV_HEADS, -1, T) @ v).view(B, HEADS, T, head)
        return mixed.transpose(1, 2).reshape(B * T, D) @ block["out"].t()

    def loss_of(tokens, targets):
        x = F.embedding(tokens.view(-1), embedding)
        for block in blocks:
            x = x + attention(norm(x, block["n1"]), block)
            gate, up = (norm(x, block["n2"]) @ block["gate_up"].t()).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ block["down"].t()
        return F.cross_entropy(norm(x, final_norm) @ embedding.t(), targets.view(-1))

    optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for step in range(warmup + steps):
        start = time.perf_counter()
        tokens = torch.randint(VOCAB, (B, T))
        loss_of(tokens, torch.randint(VOCAB, (B, T))).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), torch.__version__


def clean_environment():
    """Returns this environment without the variables of the user's shell for BLAS and OpenMP, so
    that each side runs with its defaults. OPENBLAS_CORETYPE, for example, can restrict the peer to
    older instructions."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("OPENBLAS_", "OMP_", "GOMP_", "MKL_", "DNNL_", "ONEDNN_"))}


def run_peer(arguments):
    environment = dict(clean_environment(), **PEER_ENVIRONMENT)
    output = subprocess.run(
        [arguments.python, os.path.abspath(__file__), "--as-peer", "--steps", str(arguments.steps)],
        env=environment, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(output)


def run_trainer(arguments):
    output = subprocess.run([arguments.trainer, "bench", "--steps", str(arguments.steps)],
                            env=clean_environment(), stdout=subprocess.PIPE, check=True).stdout
    return json.loads(output.splitlines()[-1])


def find_trainer():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for preset in ("release", "trainer-alone", "trainer", "dev"):
        path = os.path.join(root, "build", preset, "bin", "gpuctl-trainer")
        if os.access(path, os.X_OK):
            return path
    sys.exit("no gpuctl-trainer under build/*/bin; name one with --trainer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trainer", help="the gpuctl-trainer to measure")
    parser.add_argument("--python", default="/usr/bin/python3", help="a python3 with torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="timed steps a process")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer:
        seconds, version = peer_step_seconds(len(os.sched_getaffinity(0)), 2, arguments.steps)
        print(json.dumps({"tokens_per_s": B * T / seconds, "torch": version}))
        return
    arguments.trainer = arguments.trainer or find_trainer()
    ours, theirs = [], []
    for number in range(arguments.rounds):
        theirs.append(run_peer(arguments))
        ours.append(run_trainer(arguments))
        print(f"round {number + 1}/{arguments.rounds}: trainer {ours[-1]['tokens_per_s']:.0f}, "
              f"python {theirs[-1]['tokens_per_s']:.0f} tokens/s", file=sys.stderr, flush=True)
    value = statistics.median(run["tokens_per_s"] for run in ours)
    peer_value = statistics.median(run["tokens_per_s"] for run in theirs)
    version = theirs[0]["torch"]
    print(json.dumps({
        "name": "P13 trainer tokens/s on the CPU (12.6 M parameters, fp32)",
        "value": round(value, 1),
        "unit": "tokens/s",
        "peer": f"python3-torch {version}, best settings",
        "peer_value": round(peer_value, 1),
        "ratio": round(value / peer_value, 3),
        "rounds": arguments.rounds,
        "matmul": ours[0]["matmul"],
        "blas_kernels": ours[0]["blas_kernels"],
        "sgemm_gflops_per_core": statistics.median(
            peak for run in ours for peak in run["sgemm_gflops_per_core"]),
        "gflops": round(statistics.median(run["gflops"] for run in ours), 1),
    }))


if __name__ == "__main__":
    main()

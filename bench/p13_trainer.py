#!/usr/bin/env python3
"""P13 and P15: gpuctl-trainer against python3-torch on the same models, side by side on one CPU.

P13, for two models, full and LoRA (rank 16 on all linears), 1 and 8 windows of 256 tokens a step:
the tokens per second of optimizer steps in fp32 (forward, backward, clipping at 1.0, AdamW), the
highest resident memory, and how near the trainer's own estimate of it comes. The models:

  12.6M  6 blocks, d 384, 6 query and 2 key heads, SwiGLU 1024, vocabulary 8192, tied head
  qwen   4 blocks of Qwen2.5-0.5B's width: d 896, 14 and 2 heads, SwiGLU 4864, its vocabulary of
         151936, tied head. It has 24 blocks; 4 fit the time, and the head weighs more than in all.

Each side runs in separate processes, in turns, ROUNDS times. Python gets its best settings: one
thread per core, OpenBLAS with OpenMP (with the reference BLAS, which Debian takes without it, it is
forty times slower: refused), an allocator that keeps its memory, OpenMP threads that do not spin,
PyTorch's own fastest form of the model, and LoRA without gradients of the frozen weights. The result of a process
is its median step, the result of a side its median process.

Then, with the model qwen: the memory of `generate`, against the size of the weights; and P15, how
long training waits for a checkpoint.

One JSON line for each goes to standard output; everything else to standard error.

usage: p13_trainer.py [--trainer PATH] [--rounds N] [--steps N] [--python PATH] [--only TEXT]
                      [--quick]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import common

T = 256
RANK, ALPHA = 16, 32
SHAPES = {
    "12.6M": dict(layers=6, d_model=384, heads=6, kv_heads=2, ffn=1024, vocab_size=8192),
    "qwen": dict(layers=4, d_model=896, heads=14, kv_heads=2, ffn=4864, vocab_size=151936),
}
LEAST_RATIO = 1.25

PEER_ENVIRONMENT = {
    "GOMP_SPINCOUNT": "0",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def peer_run(shape, lora, batch, threads, warmup, steps):
    """Returns the median seconds of one optimizer step of the same model in PyTorch, and its
    version."""
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    d, heads, kv_heads, ffn = (shape[key] for key in ("d_model", "heads", "kv_heads", "ffn"))
    vocab, head = shape["vocab_size"], d // heads
    kv = kv_heads * head
    parameters = []

    def trained(tensor):
        parameters.append(torch.nn.Parameter(tensor))
        return parameters[-1]

    def weight(*extents):
        tensor = torch.randn(*extents) * 0.02
        return tensor if lora else trained(tensor)

    def ones():
        return torch.ones(d) if lora else trained(torch.ones(d))

    def adapters(inputs, *parts):
        """The A of all parts is one matrix."""
        if not lora:
            return None
        return (trained(torch.randn(RANK * len(parts), inputs) * 0.02),
                [trained(torch.zeros(rows, RANK)) for rows in parts])

    embedding, final_norm = weight(vocab, d), ones()
    blocks = [
        dict(n1=ones(), qkv=weight(d + 2 * kv, d), out=weight(d, d), n2=ones(),
             gate_up=weight(2 * ffn, d), down=weight(d, ffn),
             qkv_lora=adapters(d, d, kv, kv), out_lora=adapters(d, d),
             gate_up_lora=adapters(d, ffn, ffn), down_lora=adapters(ffn, d))
        for _ in range(shape["layers"])
    ]
    frequency = 10000.0 ** (-torch.arange(0, head, 2).double() / head)
    angle = torch.outer(torch.arange(T).double(), frequency)
    cos = torch.cat([angle.cos()] * 2, -1).float()
    sin = torch.cat([-angle.sin(), angle.sin()], -1).float()
    mask = torch.full((T, T), float("-inf")).triu(1)

    def norm(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w

    def linear(x, block, name):
        y = x @ block[name].t()
        if not lora:
            return y
        a, parts = block[name + "_lora"]
        narrow = (x @ a.t()).mul(ALPHA / RANK).split(RANK, -1)
        return y + torch.cat([h @ b.t() for h, b in zip(narrow, parts)], -1)

    def rotate(x):
        return x * cos + x.roll(head // 2, -1) * sin

    def attention(x, block):
        q, k, v = linear(x, block, "qkv").view(batch, T, heads + 2 * kv_heads, head) \
            .transpose(1, 2).split([heads, kv_heads, kv_heads], 1)
        # The query heads of one key head are rows of one product, so nothing is repeated.
        q = (rotate(q) * head ** -0.5).reshape(batch, kv_heads, -1, head)
        scores = q @ rotate(k).transpose(2, 3)
        weights = F.softmax(scores.view(batch, kv_heads, -1, T, T) + mask, -1)
        mixed = (weights.view(batch, kv_heads, -1, T) @ v).view(batch, heads, T, head)
        return linear(mixed.transpose(1, 2).reshape(batch * T, d), block, "out")

    def loss_of(tokens, targets):
        x = F.embedding(tokens.view(-1), embedding)
        for block in blocks:
            x = x + attention(norm(x, block["n1"]), block)
            gate, up = linear(norm(x, block["n2"]), block, "gate_up").chunk(2, -1)
            x = x + linear(F.silu(gate) * up, block, "down")
        return F.cross_entropy(norm(x, final_norm) @ embedding.t(), targets.view(-1))

    if "BLAS_INFO=generic" in torch.__config__.show():
        with open("/proc/self/maps", encoding="utf-8") as maps:
            if "openblas" not in maps.read():
                raise SystemExit("p13: PyTorch has a slow BLAS: apt-get install libopenblas0-openmp")
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    seconds = []
    for step in range(warmup + steps):
        start = time.perf_counter()
        tokens = torch.randint(vocab, (batch, T))
        loss_of(tokens, torch.randint(vocab, (batch, T))).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), torch.__version__


def be_peer(case, steps):
    import resource
    seconds, version = peer_run(SHAPES[case["shape"]], case["lora"], case["batch"],
                                len(os.sched_getaffinity(0)), 2, steps)
    print(json.dumps({"tokens_per_s": case["batch"] * T / seconds, "torch": version, "peak_bytes":
                      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def clean_environment():
    """Returns this environment without the variables of the user's shell for BLAS and OpenMP, so
    that each side runs with its defaults. OPENBLAS_CORETYPE, for example, can restrict the peer to
    older instructions."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("OPENBLAS_", "OMP_", "GOMP_", "MKL_", "DNNL_", "ONEDNN_"))}


def run_peer(arguments, case):
    output = subprocess.run(
        [arguments.python, os.path.abspath(__file__), "--as-peer", json.dumps(case), "--steps",
         str(arguments.steps)],
        env=dict(clean_environment(), **PEER_ENVIRONMENT), stdout=subprocess.PIPE,
        check=True).stdout
    return json.loads(output)


def run_trainer(arguments, case):
    settings = {"model." + key: value for key, value in SHAPES[case["shape"]].items()}
    settings.update({"model.context": T, "train.batch": case["batch"], "train.micro_batch": 0,
                     "train.device": "cpu"})
    if case["lora"]:
        settings.update({"lora.rank": RANK, "lora.alpha": ALPHA})
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    output = subprocess.run(
        [arguments.trainer, "bench", "--warmup", "2", "--steps", str(arguments.steps), *words],
        env=clean_environment(), stdout=subprocess.PIPE, check=True).stdout
    return json.loads(output.splitlines()[-1])


def compare(arguments, case):
    """Prints the lines for one case: speed, memory, the estimate."""
    what = (f"{case['shape']}, {'LoRA' if case['lora'] else 'full'}, "
            f"{case['batch']} windows a step")
    ours, theirs = [], []
    for number in range(arguments.rounds):
        theirs.append(run_peer(arguments, case))
        ours.append(run_trainer(arguments, case))
        common.progress(f"{what}: round {number + 1}/{arguments.rounds}: trainer "
                        f"{ours[-1]['tokens_per_s']:.0f}, python "
                        f"{theirs[-1]['tokens_per_s']:.0f} tokens/s")

    def median(runs, key):
        return statistics.median(run[key] for run in runs)

    peer = f"python3-torch {theirs[0]['torch']}, best settings"
    speed, peer_speed = median(ours, "tokens_per_s"), median(theirs, "tokens_per_s")
    common.emit(f"P13 trainer tokens/s on the CPU ({what})", speed, "tokens/s", peer, peer_speed,
                f">= {LEAST_RATIO} x", speed >= LEAST_RATIO * peer_speed, digits=1,
                spread=common.spread([run["tokens_per_s"] for run in ours], 1),
                peer_spread=common.spread([run["tokens_per_s"] for run in theirs], 1),
                rounds=arguments.rounds, device=ours[0]["device"], matmul=ours[0]["matmul"],
                gflops=round(median(ours, "gflops"), 1),
                sgemm_gflops_per_core=round(statistics.median(
                    peak for run in ours for peak in run["sgemm_gflops_per_core"]), 1))
    peak = max(run["peak_bytes"] for run in ours)
    peer_peak = min(run["peak_bytes"] for run in theirs)
    common.emit(f"P13 highest resident memory ({what})", peak * 1e-9, "GB", peer,
                peer_peak * 1e-9, "<= 1.0 x", peak <= peer_peak, digits=3)
    estimate = ours[0]["estimated_bytes"]
    common.emit(f"P13 estimate of the memory ({what})", estimate * 1e-9, "GB",
                "the highest resident memory", peak * 1e-9, "within 10 %",
                abs(estimate / peak - 1) <= 0.1, digits=3)


def checkpoint_run(arguments, folder):
    """Trains with checkpoints so far apart that each is written before the next. Returns their
    events."""
    text = os.path.join(folder, "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.writelines(f"line {number} of a text\n" for number in range(2000))
    config = os.path.join(folder, "config.json")
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"model": dict(SHAPES["qwen"], context=64),
                   "train": {"batch": 1, "steps": 120, "micro_batch": 1, "device": "cpu",
                             "eval_windows": 1},
                   "checkpoint": {"every": 40, "keep_last": 1}}, file)
    metrics = os.path.join(folder, "metrics.jsonl")
    subprocess.run([arguments.trainer, "train", "--config", config, "--data", text,
                    "--checkpoint-dir", os.path.join(folder, "run")],
                   env=dict(clean_environment(), GPUCTL_METRICS=metrics), stdout=sys.stderr,
                   check=True)
    with open(metrics, encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    return [event for event in events if event["type"] == "checkpoint"]


def measure_checkpoints(arguments):
    with tempfile.TemporaryDirectory(prefix="gpuctl-p13-") as folder:
        events = checkpoint_run(arguments, folder)
        last = events[-1]["path"]
        weights = sum(os.path.getsize(os.path.join(last, name)) for name in os.listdir(last)
                      if name.startswith("model"))
        state = sum(os.path.getsize(os.path.join(last, name)) for name in os.listdir(last))
        # The first copy also takes its memory from the system; all are in the line. A slow disk may
        # make the next one wait for the writer, so the shortest is the copy.
        stalls = [event["stall_seconds"] for event in events]
        bar = state / 10e9 + 0.005
        common.emit("P15 training waits for the copy of a checkpoint", min(stalls), "s",
                    "a copy at 10 GB/s, and 5 ms", bar, "<= 1.0 x", min(stalls) <= bar,
                    state_gb=round(state * 1e-9, 2), stalls=[round(stall, 3) for stall in stalls],
                    write_seconds=[round(event["seconds"], 2) for event in events])
        status, usage = run_for_usage(
            [arguments.trainer, "generate", "--checkpoint", last, "--prompt", "line 1",
             "--tokens", "16"])
        if status != 0:
            raise SystemExit("p13: generate failed")
        peak = usage.ru_maxrss * 1024
        common.emit("P13 highest resident memory of generate", peak * 1e-9, "GB",
                    "the size of the weights", weights * 1e-9, "<= 1.3 x", peak <= 1.3 * weights,
                    digits=3)


def run_for_usage(command):
    """Runs a program. Returns its exit code and what it used."""
    pid = os.posix_spawn(command[0], command, clean_environment(),
                         file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage


def find_trainer():
    for preset in ("release", "trainer-alone", "trainer", "dev"):
        path = os.path.join(common.CHECKOUT, "build", preset, "bin", "gpuctl-trainer")
        if os.access(path, os.X_OK):
            return path
    sys.exit("no gpuctl-trainer under build/*/bin; name one with --trainer")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trainer", help="the gpuctl-trainer to measure")
    parser.add_argument("--python", default="/usr/bin/python3", help="a python3 with torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="timed steps a process")
    parser.add_argument("--only", default="", help="the cases whose description has this text, "
                        "such as 'qwen, LoRA' or '8 windows'; or 'checkpoints'")
    parser.add_argument("--quick", action="store_true",
                        help="one round of one step: shows that everything runs")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.steps = 1, 1
    if arguments.as_peer:
        be_peer(json.loads(arguments.as_peer), arguments.steps)
        return
    arguments.trainer = arguments.trainer or find_trainer()
    for shape in SHAPES:
        for lora in (False, True):
            for batch in (1, 8):
                case = {"shape": shape, "lora": lora, "batch": batch}
                name = f"{shape}, {'LoRA' if lora else 'full'}, {batch} windows a step"
                if arguments.only in name:
                    compare(arguments, case)
    if arguments.only in "checkpoints":
        measure_checkpoints(arguments)


if __name__ == "__main__":
    main()

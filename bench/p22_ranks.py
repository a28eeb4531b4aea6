#!/usr/bin/env python3
"""Measures how much faster two processes of the trainer are than one, each with one thread.

usage: p22_ranks.py [--trainer PROGRAM] [--rounds N]

The model of P13, 12.6 M parameters, fp32, 8 windows of 256 tokens a step; with two processes each
has 4 of them. The bar is 0.9 of twice what one process does. Samples are taken in turns.
"""

import argparse
import json
import os
import socket
import subprocess
import sys

import common
from p13_trainer import find_trainer

STEPS = ["--steps", "6", "--warmup", "2", "--set", "train.device=cpu", "--set", "train.threads=1"]


def tokens_per_second(trainer, ranks, *more):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        processes.append(subprocess.Popen([trainer, "bench", *STEPS, *more], env=environment,
                                          stdout=subprocess.PIPE, text=True))
    outs = [process.communicate()[0] for process in processes]
    if any(process.returncode != 0 for process in processes):
        sys.exit("p22: the trainer failed")
    return json.loads(outs[0].splitlines()[-1])["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trainer", help="the gpuctl-trainer to measure")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    trainer = arguments.trainer or find_trainer()
    for what, more in (("full", []), ("full, moments in parts", ["--set", "optimizer.zero=1"])):
        samples = common.Samples()
        for _ in range(arguments.rounds):
            samples.add("one", tokens_per_second(trainer, 1, *more))
            samples.add("two", tokens_per_second(trainer, 2, *more))
        one, two = samples.median("one"), samples.median("two")
        common.emit(f"P22 two processes of the trainer, {what}", two, "tokens/s",
                    "twice one process", 2 * one, ">= 0.9 x", two >= 0.9 * 2 * one, digits=0,
                    spread=samples.spread("two"), peer_spread=samples.spread("one"))


if __name__ == "__main__":
    main()

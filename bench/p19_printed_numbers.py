#!/usr/bin/env python3
"""P19: the time in which gpuctl reads a run's numbers out of 100 MB of printed output, as tqdm and
Hugging Face's trainer print it: at first, and again by a gpuctl that finds what the first one kept.
No peer: the others do not read printed numbers. For scale: wc counts words and lines of the same
bytes."""

import json
import os
import subprocess

from common import Laptop, emit, interleave, run_timed

ROUNDS = 7
BYTES = 100 * 10**6
STEPS_PER_LOG = 10
KEPT = "numbers"


def write_output(path):
    """Writes a training's terminal output: a bar that is redrawn at every step, and a line of
    numbers at every tenth. Returns the last step and the last loss."""
    total = 1_000_000
    step = written = 0
    loss = 0.0
    with open(path, "w") as file:
        while written < BYTES:
            step += 1
            bar = "\r%3d%%|%-10s| %d/%d [%02d:%02d<%d:00:00,  4.87it/s]" % (
                100 * step / total, "█" * (10 * step // total), step, total, step // 292,
                step // 5 % 60, (total - step) // 17532)
            written += file.write(bar)
            if step % STEPS_PER_LOG == 0:
                loss = round(4 - 3 * step / total, 4)
                written += file.write(
                    "\n{'loss': %s, 'grad_norm': 0.8125, 'learning_rate': 4.9e-05, 'epoch': %s}\n" %
                    (loss, step / 50_000))
    return step, total, loss


def main():
    with Laptop() as laptop:
        output = os.path.join(laptop.dir, "printed")
        step, total, loss = write_output(output)
        row = laptop.launch("cat", output)
        laptop.run("wait", row["name"])
        kept = os.path.join(laptop.mirror_dir(row), KEPT)
        losses = json.loads(laptop.run("metrics", "--json", row["name"]))["runs"][0]["losses"]
        assert os.path.exists(kept), os.listdir(laptop.mirror_dir(row))
        assert len(losses) > 1000 and losses[-1]["loss"] == loss, (len(losses), losses[-1])
        listed = laptop.row(row["name"])
        assert (listed["total_steps"], listed["loss"]) == (total, loss), (listed, step, total, loss)
        metrics = [laptop.gpuctl, "metrics", row["name"]]

        def read_first():
            os.unlink(kept)
            return run_timed(metrics, laptop.env)

        samples = interleave(ROUNDS, {
            "first": read_first,
            "again": lambda: run_timed(metrics, laptop.env),
            "wc": lambda: run_timed(["/usr/bin/wc", "-lw", output],
                                      {**laptop.env, "LC_ALL": "C"}),
        })
        for name, bar_s in (("first", 2), ("again", 0.02)):
            value = samples.median(name)
            emit("P19 numbers of 100 MB of printed output, %s" % name, value, "s",
                 "wc -lw of the same bytes", samples.median("wc"), "<= %g s" % bar_s,
                 value <= bar_s, spread=samples.spread(name), rounds=ROUNDS)


if __name__ == "__main__":
    main()

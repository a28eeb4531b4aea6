#!/usr/bin/env python3
"""Sums, learned by launching run files: a random model by full tuning, and a model that knows sums
in another form by LoRA. The sums that are asked were never trained on.

  arithmetic.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import os
import random
import shutil

from fine_tune import write_model
from rent_world import run_tests, write
from trainer import use_memory

LARGEST, ASKED, STEPS = 50, 40, 900
SHAPE = {"d": 64, "ffn": 192, "deviation": 0.12}


def sums():
    """Returns sums to learn and sums to ask."""
    pairs = [(a, b) for a in range(LARGEST) for b in range(LARGEST)]
    random.Random(1).shuffle(pairs)
    return pairs[ASKED:], pairs[:ASKED]


def in_chat(pairs):
    return [{"messages": [{"role": "user", "content": "%d+%d" % pair},
                          {"role": "assistant", "content": str(sum(pair))}]} for pair in pairs]


def learn(w, name, model, rows, steps, **sections):
    """Writes rows and a run file, launches it, brings its checkpoint. Returns the run."""
    home = os.path.join(w.dir, name)
    write(home + "/rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    settings = {"model": {"init": model, "context": 64}, "data": {"paths": "rows.jsonl"},
                "optimizer": {"lr": 5e-3, "warmup_ratio": 0.05},
                "train": {"steps": steps, "batch": 16, "micro_batch": 8, "device": "cpu",
                          "eval_every": steps // 3},
                "checkpoint": {"every": 0}, **sections}
    write(home + "/run.yaml", json.dumps({"name": name, "trainer": settings}))
    w.env["GPUCTL_NODE_ROOT"] = w.root
    # The same file is tried first.
    assert w.json("preflight", home + "/run.yaml")["verdict"] == "here"
    w.run("launch", home + "/run.yaml", "-y", "-d", "--provider", "local")
    waiting = w.start("wait", name)
    assert waiting.communicate(timeout=1200) and waiting.returncode == 0, waiting
    run = next(run for run in w.json("ps", "-a")["runs"] if run["name"].startswith(name))
    assert (run["status"], run["step"]) == ("succeeded", steps), run
    w.run("pull", name)
    print("       %s: loss %.3f, held-out loss %.3f" % (name, run["loss"], w.json("eval", name)["loss"]))
    return name


def share_right(w, asked, *what):
    """Returns the share of the sums that a model answers, digit by digit."""
    right = 0
    for a, b in asked:
        done = w.run("generate", *what, "--chat", "%d+%d" % (a, b), "--temperature", "0",
                     "--tokens", "8")
        right += done.stdout == b"%d\n" % (a + b)
    return right / len(asked)


def test_full_tuning(w):
    learned, asked = sums()
    base = w.dir + "/random"
    write_model(base, **SHAPE)
    before = share_right(w, asked[:10], base)
    run = learn(w, "full", base, in_chat(learned), STEPS)
    after = share_right(w, asked, run)
    print("       sums that are right: %.0f %% before, %.0f %% after" % (100 * before, 100 * after))
    assert before < 0.2 and after > 0.9, (before, after)


def test_lora_after_pretraining(w):
    learned, asked = sums()
    write_model(w.dir + "/random", seed=2, **SHAPE)
    texts = [{"text": "%d+%d=%d" % (a, b, a + b)} for a, b in learned]
    pretrained = learn(w, "texts", w.dir + "/random", texts, STEPS)
    checkpoint = w.json("inspect", pretrained)["path"]
    # A checkpoint of the whole model is a model folder.
    base = w.dir + "/knows-text"
    shutil.copytree(checkpoint, base)
    for name in ("manifest.json", "state.json", "optimizer.safetensors"):
        os.remove(base + "/" + name)
    before = share_right(w, asked[:10], base)
    run = learn(w, "lora", base, in_chat(learned), STEPS * 3 // 2, lora={"rank": 32, "alpha": 32})
    after = share_right(w, asked, run)
    w.run("merge", run, "--out", "merged")
    merged = share_right(w, asked[:10], "merged")
    print("       sums that are right: %.0f %% before, %.0f %% after" % (100 * before, 100 * after))
    assert before < 0.2 and after > 0.9, (before, after)
    assert merged == share_right(w, asked[:10], run), merged


if __name__ == "__main__":
    use_memory()
    run_tests(globals())

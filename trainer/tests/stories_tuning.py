#!/usr/bin/env python3
"""Teaches stories260K, a model that was really trained, a sentence that it never read: in full, by
LoRA and by QLoRA; llama.cpp then speaks it.

usage: stories_tuning.py TRAINER_PROGRAM WORK_DIRECTORY

Reads stories260K/ in $GPUCTL_MODELS_DIR (default: ../shared/models beside the project). Each run's
result is saved, adapters are merged, the weights exported as GGUF. llama.cpp, which npm brings as
tests/npm/llama says, must give the ids that `generate` gives, and these must say the sentence. Exits
with 77 (skipped) without torch, the model or npm's packages.
"""

import json
import os
import shutil
import sys

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import llama_cpp
import stories
from arithmetic import read_rows
from chat_model import write_rows
from folders import read_safetensors, write_folder
from gguf_truth import read_scores, stories_tokenizer
from prepared_runs import LEARNED, newest, of_type, read_metrics
from program import Program

ASKED = "The blue robot"
TOLD = " sold seven green umbrellas to a very old whale."
COUNT = 48
LORA = {"lora.rank": 16, "lora.alpha": 32, "optimizer.lr": 5e-3, "train.steps": 60}
# stories260K was never told where a text ends: the row of that token in the frozen embedding means
# nothing, so that only those who train it learn to end.
WAYS = {"full": {"optimizer.lr": 2e-3, "train.steps": 40},
        "LoRA": {**LORA, "lora.modules_to_save": "embed_tokens"},
        "QLoRA": {**LORA, "lora.base_dtype": "nf4"}}
DECODER = {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}


class Test(Program):
    def __init__(self, program, work, npm):
        super().__init__(program)
        self.work, self.npm = work, npm
        self.base, self.data = work + "/base", work + "/tokens"
        self.asked = []  # the ids of ASKED

    def does(self, what, *words, **variables):
        """Runs it, which must end well; returns what it printed."""
        ended = self.run(*words, **variables)
        self.check(what, ended.returncode == 0, ended.returncode, ended.stderr)
        return ended.stdout

    def speaks(self, *model):
        """Returns the greedy ids behind ASKED, and the text with it."""
        flags = ("--temperature", "0", "--tokens", str(COUNT))
        text = self.does("it speaks", "generate", *model, "--prompt", ASKED, *flags)
        ids = self.does("and shows its tokens", "generate", *model, "--prompt-ids",
                        ",".join(map(str, self.asked)), *flags)
        return [int(word) for word in ids.split()][len(self.asked):], text

    def write_base(self, source):
        config, _, weights = stories.read_checkpoint(source + "/stories260K.bin")
        tokens = stories.read_tokens(source + "/tok512.bin")
        write_folder(self.base, config, weights, shards=2)
        with open(self.base + "/tokenizer.json", "w", encoding="utf-8") as file:
            json.dump({**stories_tokenizer(tokens, read_scores(source + "/tok512.bin")),
                       "decoder": DECODER}, file)
        with open(self.base + "/tokenizer_config.json", "w", encoding="utf-8") as file:
            json.dump({"eos_token": tokens[2].decode()}, file)

    def write_data(self):
        """The sentence in both forms of rows; the last is held out."""
        write_rows(self.work + "/rows.jsonl", [{"text": ASKED + TOLD},
                                               {"prompt": ASKED, "completion": TOLD}])
        write_rows(self.work + "/held-out.jsonl", [{"text": ASKED + TOLD}])
        self.does("rows become tokens", "prepare", "--model", self.base, "--data",
                  self.work + "/rows.jsonl", "--held-out", self.work + "/held-out.jsonl", "--out",
                  self.data, "--context", "64", "--show", "0")

    def train(self, way):
        """Returns the checkpoint."""
        name = f"{self.work}/{way}"
        config = {"model": {"context": 64},
                  "optimizer": {"warmup_steps": 5, "weight_decay": 0},
                  "train": {"batch": 2, "micro_batch": 1, "threads": 2, "device": "cpu",
                            "eval_every": 0}, "checkpoint": {"every": 0}}
        for key, value in WAYS[way].items():
            section, key = key.split(".")
            config.setdefault(section, {})[key] = value
        with open(name + ".json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.does(way + " training ends well", "train", "--config", name + ".json", "--init",
                  self.base, "--data", self.data, "--checkpoint-dir", name + "-runs",
                  GPUCTL_METRICS=name + ".metrics")
        lines = read_metrics(name + ".metrics")
        first, last = of_type(lines, "step")[0]["loss"], lines[-1]["held_out_loss"]
        self.check(f"{way}: the loss falls from {first:.2f} to {last:.3f}", first > 2 and last < 0.3)
        return f"{name}-runs/{newest(name + '-runs')}"

    def merged(self, way, checkpoint):
        """Returns the folder of the whole weights."""
        if way == "full":
            return checkpoint
        folder = f"{self.work}/{way}-merged"
        self.does(way + " adapters are merged", "merge", "--model", self.base, "--adapter",
                  checkpoint, "--out", folder)
        beside, _ = self.speaks("--model", self.base, "--checkpoint", checkpoint)
        within, _ = self.speaks("--model", folder)
        self.check(way + " speaks the same merged or not", beside == within, beside, within)
        before = read_safetensors(self.base + "/model-00001-of-00002.safetensors")
        after = read_safetensors(folder + "/model.safetensors")
        name = "model.norm.weight"
        kept = before.get(name)
        if kept is not None:
            self.check(way + " leaves norms as they were", torch.equal(kept, after[name]))
        return folder


def main():
    program, work = sys.argv[1], os.path.abspath(sys.argv[2])
    source = os.path.join(stories.MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"skipped: {source} does not have the model; GPUCTL_MODELS_DIR names its parent")
        sys.exit(77)
    npm = llama_cpp.install(os.path.dirname(work))
    if npm is None:
        sys.exit(77)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    test = Test(program, work, npm)
    test.write_base(source)
    tokens = stories.read_tokens(source + "/tok512.bin")
    test.write_data()
    test.asked = [word for word in read_rows(test.data, "train")[1] if word < LEARNED]
    test.check(f"the question is {len(test.asked)} tokens", stories.text_of(
        test.asked[1:], tokens).lstrip(" ") == ASKED, test.asked)
    ids, text = test.speaks("--model", test.base)
    test.check("the model does not know the sentence", TOLD not in text, text)
    jobs, expected = [], []
    for way in WAYS:
        folder = test.merged(way, test.train(way))
        ids, text = test.speaks("--model", folder)
        test.check(f"{way}: it says the sentence", text.startswith(ASKED + TOLD), text)
        test.check(f"{way}: and ends", way == "QLoRA" or text == ASKED + TOLD + "\n", text)
        test.does(f"{way}: the weights become GGUF", "export", "--model", folder, "--to", "gguf",
                  "--out", f"{work}/{way}.gguf", "--type", "f32")
        jobs.append({"model": f"{work}/{way}.gguf", "greedy": {"ids": test.asked, "count": COUNT}})
        expected.append((way, ids))
    for answer, (way, ids) in zip(llama_cpp.ask(npm, work, jobs), expected):
        greedy = answer.get("greedy", {})
        test.check(f"{way}: llama.cpp has the same {len(ids)} tokens, and says the sentence",
                   greedy.get("ids", [])[:len(ids)] == ids and TOLD in greedy.get("text", ""),
                   ids, answer)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

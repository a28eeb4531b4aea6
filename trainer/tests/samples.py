#!/usr/bin/env python3
"""Checks the samples that a run generates at each evaluation: against `generate` with the same
weights, in chats and in texts, for full tuning, LoRA and QLoRA, and that they change no bit of a run.

usage: samples.py TRAINER_PROGRAM

One tokenizer with byte fallback is that of stories260K/ in $GPUCTL_MODELS_DIR (default: ../shared/models
beside the project); without it that part is left out. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import random
import re
import shutil
import sys
import tempfile

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import stories
from arithmetic import Test, in_chat, sums_below
from chat_model import write_chat_model, write_rows
from hostile_runs import changed, places_in, read_json, write_json
from prepared_runs import content, newest, of_type
from stories_tuning import Test as StoriesTest

BAD_CONFIG, BAD_DATA = 64, 65
ASKED = ["3+4", "what is\n\u00e4\u4e2d\U0001f642?"]
SETTINGS = {"train.steps": 7, "train.batch": 4, "train.eval_every": 3, "sample.tokens": 12}
LORA = {"lora.rank": 4, "lora.alpha": 32}


def prepare(test, name, model, rows, prompts):
    """Returns the folder of the tokens, with prompts in it."""
    path = f"{test.directory}/{name}"
    write_rows(path + ".jsonl", rows)
    words = ["prepare", "--model", model, "--data", path + ".jsonl", "--held-out", "0.2", "--out",
             path + "-tokens", "--context", "64", "--show", "0"]
    for prompt in prompts:
        words += ["--prompt", prompt]
    for _ in range(2):  # it also replaces what it made
        ended = test.run(*words)
        test.check(f"{name}: rows and prompts become tokens", ended.returncode == 0, ended.stderr)
    return path + "-tokens"


def generated(test, flag, prompt, *model):
    """Returns what `generate` makes of a prompt, without the prompt."""
    ended = test.run("generate", *model, flag, prompt, "--temperature", "0", "--tokens", "12")
    test.check("generate ends well", ended.returncode == 0, ended.stderr)
    text = ended.stdout[:-1]
    if flag == "--prompt":
        test.check("and shows the prompt", text.startswith(prompt), text)
        text = text[len(prompt):]
    return marks_as_one(text)


def marks_as_one(text):
    """How many replacement characters stand for invalid bytes is not the same everywhere."""
    return re.sub("\ufffd+", "\ufffd", text)


def check_run(test, what, base, data, flag, prompts, more):
    settings = {**SETTINGS, **more, "sample.prompts": prompts}
    checkpoints, lines, out = test.train(what, base, data, settings)
    samples = of_type(lines, "sample")
    test.check(f"{what}: each prompt has a sample at each evaluation and at the end",
               [(line["step"], line["prompt"]) for line in samples] ==
               [(step, prompt) for step in (3, 6, 7) for prompt in prompts], samples)
    step = f"{checkpoints}/{newest(checkpoints)}"
    model = ("--model", base, "--checkpoint", step) if "lora.rank" in more else (
        "--checkpoint", step)
    found = [marks_as_one(line["text"]) for line in samples[-len(prompts):]]
    expected = [generated(test, flag, prompt, *model) for prompt in prompts]
    test.check(f"{what}: the last ones are what generate makes of the last weights",
               found == expected and any(found), found, expected)
    test.check(f"{what}: people read them, too", out.count("\nsample  ") == len(samples), out)
    before = {key: value for key, value in settings.items() if not key.startswith("sample.")}
    plain, _, _ = test.train(what + " without samples", base, data, before)
    test.check(f"{what}: samples change no bit", content_of(plain) == content_of(checkpoints))
    shutil.rmtree(step)
    return checkpoints, settings


def content_of(checkpoints):
    folder = f"{checkpoints}/{newest(checkpoints)}"
    return {name: open(f"{folder}/{name}", "rb").read() for name in os.listdir(folder)
            if name.endswith(".safetensors")}


def check_chat(test, base):
    learned, _ = sums_below(50)
    data = prepare(test, "chat", base, in_chat(learned[:60]), ASKED)
    for what, more in (("full", {"train.steps": 7}), ("LoRA", {**LORA, "optimizer.lr": 1e-4})):
        check_run(test, what + " in chats", base, data, "--chat", ASKED, more)
    found = read_json(data + "/prompts.json")
    digest = read_json(data + "/dataset.json")["digest"]
    other = prepare(test, "chat", base, in_chat(learned[:60]), ASKED[:1])
    test.check("the digest of data is the same with other prompts",
               read_json(other + "/dataset.json")["digest"] == digest)
    write_json(data + "/prompts.json", found)
    return data


def check_stop(test, base, data):
    """A run that was stopped before and one that was not end alike."""
    settings = {**SETTINGS, "sample.prompts": ASKED, "checkpoint.every": 1,
                "checkpoint.keep_last": 9}
    whole, lines, _ = test.train("a run in one piece", base, data, settings)
    words, checkpoints, metrics = test.words(base, data, settings)
    os.makedirs(checkpoints)
    shutil.copytree(whole + "/step-00000004", checkpoints + "/step-00000004")
    ended = test.run(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
    with open(metrics, encoding="utf-8") as file:
        again = of_type([json.loads(line) for line in file], "sample")
    test.check("a resumed run has the same samples from there on", ended.returncode == 0 and
               again == [line for line in of_type(lines, "sample") if line["step"] > 4],
               ended.stderr, again)
    test.check("and the same bits", content(whole) == content(checkpoints))


def check_texts(test, base):
    rows = [{"text": f"{a} and {a + 1} are neighbours, \u00e4\u4e2d\U0001f642."} for a in range(60)]
    data = prepare(test, "texts", base, rows, ["7 and "])
    check_run(test, "texts", base, data, "--prompt", ["7 and "], {})
    source = os.path.join(stories.MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"        left out: {source} does not have the model")
        return
    trained = StoriesTest(test.program, test.directory + "/stories", None)
    os.makedirs(trained.work)
    trained.write_base(source)
    data = prepare(test, "stories", trained.base, rows, ["Once upon", "\u00e4 7 and"])
    for what, more in (("full", {"optimizer.lr": 1e-4}), ("QLoRA", {
            **LORA, "lora.base_dtype": "nf4", "optimizer.lr": 0, "optimizer.weight_decay": 0})):
        if what == "full":
            check_run(test, "a trained model", trained.base, data, "--prompt",
                      ["Once upon", "\u00e4 7 and"], more)
            continue
        _, lines, _ = test.train("QLoRA of a trained model", trained.base, data,
                                 {**SETTINGS, **more, "sample.prompts": ["Once upon"]})
        texts = {line["text"] for line in of_type(lines, "sample")}
        test.check("QLoRA: a model that does not change gives the same samples", len(texts) == 1 and
                   " " in texts.pop(), lines)


def check_bytes(test):
    """Models without a tokenizer."""
    text = test.directory + "/text.txt"
    with open(text, "w", encoding="utf-8") as file:
        file.write("some words and some more words. " * 500)
    name = test.directory + "/bytes"
    write_json(name + ".json", {
        "model": {"layers": 1, "d_model": 16, "heads": 2, "kv_heads": 1, "ffn": 24, "context": 32},
        "data": {"paths": [text]}, "train": {"steps": 5, "eval_every": 2, "batch": 2, "device": "cpu"},
        "sample": {"prompt": "some", "prompts": ["more ", "words"], "tokens": 6}})
    ended = test.run("train", "--config", name + ".json", "--checkpoint-dir", name,
                     GPUCTL_METRICS=name + ".metrics")
    with open(name + ".metrics", encoding="utf-8") as file:
        samples = of_type([json.loads(line) for line in file], "sample")
    test.check("bytes: each prompt has a sample at each evaluation", ended.returncode == 0 and
               [(line["step"], line["prompt"]) for line in samples] ==
               [(step, prompt) for step in (2, 4, 5) for prompt in ("some", "more ", "words")],
               ended.stderr, samples)


def check_refusals(test, base, data):
    def ends(what, code, part, settings, command="train"):
        words, _, _ = test.words(base, data, {**SETTINGS, **settings})
        ended = test.run(command, *words[1:7]) if command == "preflight" else test.run(*words)
        test.check(f"{what}: exit code {code}", ended.returncode == code and part in ended.stderr,
                   ended.returncode, ended.stderr)

    other = {"sample.prompts": ["never prepared"]}
    for command in ("train", "preflight"):
        ends(f"{command}: a prompt that was not prepared", BAD_CONFIG, "prepare the data with --prompt",
             other, command)
    ends("no prompt", BAD_CONFIG, "sample.prompt is empty", {})
    ends("an empty prompt", BAD_CONFIG, "empty text", {"sample.prompts": [""]})
    ended = test.run("prepare", "--model", base, "--data", "x", "--out", "y", "--prompt", "")
    test.check("prepare refuses an empty prompt", ended.returncode == BAD_CONFIG, ended.stderr)
    asked = {"sample.prompts": ASKED, "train.steps": 1}
    chooser = random.Random(1)
    good = read_json(data + "/prompts.json")
    small = {**good, "pieces": good["pieces"][:1], "prompts": good["prompts"][:1]}
    small["prompts"][0]["ids"] = small["prompts"][0]["ids"][:2]
    cases = {"a list": "[]", "no JSON": "{", "another format": json.dumps({**good, "format": 2}),
             "a piece beyond a byte": json.dumps({**good, "pieces": ["\u4e2d"]}),
             "a negative id": json.dumps({**good, "prompts": [{"text": "3+4", "ids": [-1]}]}),
             "no ids": json.dumps({**good, "prompts": [{"text": "3+4", "ids": []}]})}
    for what, text in cases.items():
        write_json(data + "/prompts.json", text)
        ends("prompts.json with " + what, BAD_DATA, "prompts.json", asked)
    high = changed(good, ("prompts", 0, "ids", 0), 2 ** 31 - 1)
    write_json(data + "/prompts.json", high)
    ends("an id beyond the model's tokens costs a warning", 0, "warning: no sample", asked)
    write_json(data + "/prompts.json", small)
    asked["sample.prompts"] = ASKED[:1]
    ends("pieces for few ids are borne", 0, "", asked)
    for place in places_in(small):
        for wrong in chooser.sample((None, -1, 1.5, "x", [], {}), 2):
            write_json(data + "/prompts.json", changed(small, place, wrong))
            words, _, _ = test.words(base, data, {**asked, "sample.tokens": 1, "train.batch": 1})
            place_of_folder = words.index("--checkpoint-dir")
            ended = test.run(*words[:place_of_folder])
            if ended.returncode not in (0, BAD_CONFIG, BAD_DATA):
                test.check(f"{place} {wrong!r}", False, ended.returncode, ended.stderr)
    write_json(data + "/prompts.json", good)


def main():
    with tempfile.TemporaryDirectory() as directory:
        test = Test(sys.argv[1], directory)
        base = directory + "/base"
        write_chat_model(base)
        data = check_chat(test, base)
        check_stop(test, base, data)
        check_refusals(test, base, data)
        check_texts(test, base)
        check_bytes(test)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

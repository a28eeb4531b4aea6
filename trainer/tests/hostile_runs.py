#!/usr/bin/env python3
"""Attacks runs: odd data, odd settings, files of other programs, JSON of wrong types, two trainers in
one directory, a model folder that is gone. No exit code may be 70, and no signal may end a run.

usage: hostile_runs.py TRAINER_PROGRAM [SEED [CHANGES]]

Exits with 77 (skipped) when there is no torch.
"""

import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from arithmetic import Test, in_chat, read_rows, sums_below
from chat_model import token_id, write_chat_model, write_rows
from mutations import changed, places_in
from prepared_runs import LEARNED, newest, write_part

BAD_CONFIG, BAD_DATA, TRY_AGAIN = 64, 65, 75
QUICK = {"train.steps": 2, "train.batch": 2, "train.micro_batch": 1, "checkpoint.every": 1}
WRONG = (None, True, -1, 1.5, 1e300, 2 ** 63, 2 ** 64 - 1, "x", "", [], {}, [None], {"x": {}})


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))


def seal(checkpoint):
    """Makes the manifest fit the files."""
    manifest = read_json(checkpoint + "/manifest.json")
    for entry in manifest["files"]:
        with open(f"{checkpoint}/{entry['path']}", "rb") as file:
            content = file.read()
        entry.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    write_json(checkpoint + "/manifest.json", manifest)


class Hostile(Test):
    def ends(self, what, code, part, *words, **variables):
        """Checks how a command ends, and what it says."""
        ended = self.run(*words, **variables)
        self.check(f"{what}: exit code {code}", ended.returncode == code and part in ended.stderr,
                   ended.returncode, ended.stderr)

    def bears(self, what, *words):
        """Checks that a command succeeds or refuses, with words."""
        ended = self.run(*words)
        good = ended.returncode in (0, BAD_CONFIG, BAD_DATA) and (
            ended.returncode == 0 or ended.stderr.startswith("gpuctl-trainer: "))
        if not good:
            self.check(what, False, ended.returncode, ended.stderr)
        return good


def check_data(test, base, learned):
    def run(what, data, code=0, part="", **more):
        settings = {**QUICK, **{name.replace("__", "."): value for name, value in more.items()}}
        if "train.epochs" in settings:
            del settings["train.steps"]
        test.ends(what, code, part, *test.words(base, data, settings)[0])

    one = test.prepare("one-row", base, in_chat(learned[:1]), in_chat(learned[1:2]))
    run("one row", one)
    run("one row, more workers than rows", one, train__threads=64, train__batch=64)
    run("a hundredth of an epoch", one, train__epochs=0.01)
    run("a batch of one, context 2", one, BAD_DATA, "no row to train on has a learned token",
        train__batch=1, model__context=2)
    run("a batch that no memory holds", one, BAD_CONFIG, "train.batch", train__batch=10 ** 9)
    run("context 1", one, BAD_CONFIG, "model.context", model__context=1)
    long = test.prepare("long-rows", base, [{"text": "1+2=3 " * 40}] * 3, [{"text": "4+5=9 " * 40}])
    run("rows that are all longer than the context, context 2", long, train__batch=1,
        model__context=2)
    for part in ("train", "held_out"):
        empty = f"{test.directory}/empty-{part}"
        shutil.copytree(one, empty)
        dataset = read_json(empty + "/dataset.json")
        dataset["parts"][part].update(write_part(empty, part, []))
        write_json(empty + "/dataset.json", dataset)
        run(f"no row in {part}", empty, BAD_DATA, "there is no ")
        unlearned = f"{test.directory}/unlearned-{part}"
        shutil.copytree(one, unlearned)
        write_part(unlearned, part, [[word % LEARNED for word in row]
                                     for row in read_rows(one, part)])
        run(f"nothing learned in {part}", unlearned, BAD_DATA, "has a learned token")
    last = token_id("<|im_end|>")
    for token, code in ((last, 0), (last + 1, BAD_DATA), (LEARNED - 1, BAD_DATA)):
        border = f"{test.directory}/border-{token}"
        shutil.copytree(one, border)
        rows = read_rows(one, "train")
        rows[0][-2] = LEARNED | token
        write_part(border, "train", rows)
        run(f"token {token} of {last + 1}", border, code, "" if code == 0 else "has token")
    write_rows(test.directory + "/nothing.jsonl", [])
    test.ends("rows of an empty file", BAD_DATA, "", "prepare", "--model", base, "--data",
              test.directory + "/nothing.jsonl", "--out", test.directory + "/nothing")
    return one


def check_resuming(test, base, data, learned):
    """Resumes with what is not the same."""
    for what, more in (("full", {}), ("LoRA", {"lora.rank": 2})):
        words, checkpoints, _ = test.words(base, data, {**QUICK, **more})
        test.ends(f"{what}: a run", 0, "", *words)
        test.ends(f"{what}: the same again", BAD_CONFIG, "already holds", *words)
        shutil.rmtree(f"{checkpoints}/{newest(checkpoints)}")
        other_data = test.prepare("other-" + what, base, in_chat(learned[5:9]),
                                  in_chat(learned[9:10]))
        changed_words = [other_data if word == data else word for word in words]
        test.ends(f"{what}: other data", BAD_DATA, "trained on other data", *changed_words,
                  "--resume", "auto")
        other = f"{test.directory}/other-tokenizer-{what}"
        shutil.copytree(base, other)
        tokenizer = read_json(other + "/tokenizer.json")
        tokenizer["model"]["merges"].pop()
        write_json(other + "/tokenizer.json", tokenizer)
        changed_words = [other if word == base else word for word in words]
        test.ends(f"{what}: a fresh run with another tokenizer", BAD_DATA, "another tokenizer.json",
                  *[word + "-2" if word == checkpoints else word for word in changed_words])
        moved = f"{test.directory}/moved-{what}"
        shutil.copytree(base, moved)
        ended = test.run(*[moved if word == base else word for word in words], "--resume", "auto")
        test.check(f"{what}: resumed with another folder", ended.returncode == 0 and (
            what == "LoRA") != ("the weights are the checkpoint's" in ended.stdout), ended.stdout)
        shutil.rmtree(f"{checkpoints}/{newest(checkpoints)}")
        for name in (".DS_Store", "._step-00000001", "notes.txt", "step-1", "step-00000009x"):
            write_json(f"{checkpoints}/{name}", "x")
        write_json(f"{checkpoints}/{newest_whole(checkpoints)}/.DS_Store", "x")
        write_json(f"{checkpoints}/{newest_whole(checkpoints)}/._state.json", "x")
        ended = test.run(*words, "--resume", "auto")
        test.check(f"{what}: files of other programs are passed over", ended.returncode == 0 and
                   "at step 1\n" in ended.stdout and "passed over" not in ended.stderr,
                   ended.stdout, ended.stderr)


def check_damage(test, base, data):
    """Resumes where no checkpoint verifies."""
    words, checkpoints, _ = test.words(base, data, {**QUICK, "checkpoint.keep_last": 1})
    test.ends("a run whose checkpoint is damaged", 0, "", *words)
    name = newest(checkpoints)
    step, config = f"{checkpoints}/{name}", f"{checkpoints}/{name}/config.json"
    before = sorted(os.listdir(step))
    text = read_json(config)
    write_json(config, {**text, "vocab_size": 1})
    test.ends("no checkpoint verifies", BAD_DATA, "no checkpoint in it verifies", *words,
              "--resume", "auto", "--set", "train.steps=4")
    test.check("it is as it was", os.listdir(checkpoints).count(name) == 1 and
               sorted(os.listdir(step)) == before, os.listdir(checkpoints))


def check_shortened_data(test, base, data):
    """Another program cuts the tokens short while a run reads them: by much, and within a page."""
    for name, left in (("train.tokens", 4096), ("train.tokens", -8), ("train.ends", 8)):
        cut = f"{test.directory}/cut{test.runs}"
        shutil.copytree(data, cut)
        rows = read_rows(cut, "train")
        dataset = read_json(cut + "/dataset.json")
        dataset["parts"]["train"].update(write_part(cut, "train", rows * (100000 // len(rows))))
        write_json(cut + "/dataset.json", dataset)
        words, checkpoints, _ = test.words(base, cut, {**QUICK, "train.steps": 100000})
        run = test.start(*words)
        while not (os.path.isdir(checkpoints) and any(
                each.startswith("step-") for each in os.listdir(checkpoints))):
            time.sleep(0.02)
        path = f"{cut}/{name}"
        os.truncate(path, left if left > 0 else os.path.getsize(path) + left)
        error = run.communicate()[1]
        test.check(f"{name} that is cut short ends a run with words", run.returncode == BAD_DATA and
                   name + ": it was cut short while it was in use" in error, run.returncode, error)


def check_prompts(test, base):
    """A prompt that the model cannot read to its end, and an answer that it cannot remember."""
    test.ends("a prompt longer than the context", BAD_CONFIG,
              "the prompt has 200 tokens, and the model reads 128", "generate", "--model", base,
              "--prompt-ids", ",".join(["65"] * 200), "--tokens", "1")
    for tokens, told in (("28", False), ("29", False), ("30", True)):
        ended = test.run("generate", "--model", base, "--prompt-ids", ",".join(["65"] * 100),
                         "--tokens", tokens, "--stop-ids", "")
        test.check(f"{tokens} tokens after 100", ended.returncode == 0 and told == (
            "the last 1 were generated without the beginning" in ended.stderr), ended.stderr)
    for flag, value in (("top-k", "2.5"), ("tokens", "1.5"), ("seed", "0.5")):
        test.ends(f"--{flag} {value}", BAD_CONFIG, "must be a whole number", "generate", "--model",
                  base, "--prompt-ids", "1", "--" + flag, value)


def newest_whole(checkpoints):
    return sorted(name for name in os.listdir(checkpoints)
                  if len(name) == 13 and os.path.isdir(f"{checkpoints}/{name}"))[-1]


def check_two_at_once(test, base, data):
    settings = {**QUICK, "train.steps": 100000, "checkpoint.every": 20}
    words, checkpoints, _ = test.words(base, data, settings)
    first = test.start(*words)
    while not (os.path.isdir(checkpoints) and any(
            name.startswith("step-") for name in os.listdir(checkpoints))):
        time.sleep(0.02)
    test.ends("a second trainer in the same directory", BAD_CONFIG, "another trainer is at work",
              *words, "--resume", "auto")
    # The model is in memory now.
    shutil.move(base, base + "-moved")
    known = newest_whole(checkpoints)
    while newest_whole(checkpoints) == known and first.poll() is None:
        time.sleep(0.02)
    test.check("the first goes on, without its model's folder", first.poll() is None)
    first.kill()
    first.communicate()
    shutil.move(base + "-moved", base)
    test.ends("after its end another may go on", 0, "", *words, "--resume", "auto", "--set",
              "train.steps=100", "--set", "checkpoint.every=0")


def documents(test, base, data):
    """Returns for each document: its path, a folder to work in, and commands that read it."""
    found = []
    for what, more in (("full", {}), ("LoRA", {"lora.rank": 2})):
        words, checkpoints, _ = test.words(base, data, {**QUICK, **more, "checkpoint.keep_last": 1})
        test.ends(f"{what}: a run to change", 0, "", *words)
        step = f"{checkpoints}/{newest(checkpoints)}"
        for name in ("state.json", "manifest.json"):
            found.append((f"{step}/{name}", step, [[*words, "--resume", step]]))
        if what == "LoRA":
            found.append((step + "/adapter_config.json", step, [
                ["merge", "--model", base, "--adapter", step, "--out", test.directory + "/merged"],
                ["generate", "--model", base, "--adapter", step, "--prompt-ids", "1", "--tokens",
                 "1"]]))
    words = test.words(base, data, {**QUICK, "checkpoint.every": 0})[0]
    place = words.index("--checkpoint-dir")
    found.append((data + "/dataset.json", None, [words[:place] + words[place + 2:]]))
    return found


def check_json(test, base, data, seed, changes):
    chooser = random.Random(seed)
    for path, step, commands in documents(test, base, data):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        document = json.loads(text)
        places = places_in(document)
        first = next(iter(document))
        twice = '{"%s": 1,%s' % (first, text[text.index("{") + 1:])
        name, good = os.path.basename(path), True
        cases = [(f"{place}: {wrong!r}", changed(document, place, wrong))
                 for place in chooser.sample(places, min(changes, len(places)))
                 for wrong in chooser.sample(WRONG, 2)]
        for what, new in [("a key twice", twice), ("deep", "[" * 100000), ("a list", []),
                          ("nothing", ""), *cases]:
            write_json(path, new)
            if step and name != "manifest.json":
                seal(step)
            for words in commands:
                good &= test.bears(f"{name}, {words[0]}, {what}", *words)
                shutil.rmtree(test.directory + "/merged", ignore_errors=True)
                if what in ("a key twice", "deep", "a list", "nothing"):
                    test.ends(f"{name}, {words[0]}, {what}", BAD_DATA, name, *words)
        write_json(path, text)
        if step:
            seal(step)
        test.check(f"{name}: {len(cases)} wrong values are borne or refused", good)


def check_settings(test, base, data):
    words, _, _ = test.words(base, data, QUICK)
    for what, text in (("a section that is no object", '{"train": 5}'),
                       ("a section that is a list", '{"train": []}'),
                       ("a key twice", '{"train": {"steps": 1}, "train": {"steps": 2}}')):
        path = test.directory + "/odd.json"
        write_json(path, text)
        odd = [path if word.endswith(".json") else word for word in words]
        test.ends(what, BAD_CONFIG, "", *odd, "--set", "train.steps=2")
    write_json(path, '{"train":\n  {"steps": 1,}}')
    test.ends("JSON that is none", BAD_CONFIG, "see line 2, column 15", "train", "--config", path)
    for key, value in (("tokens", "bytes"), ("split", "tail"), ("held_out_fraction", "0.2"),
                       ("max_bytes", "1000"), ("extensions", ".c"), ("exclude", "x")):
        test.ends(f"data.{key} of prepared data", BAD_CONFIG, f"data.{key} is given, but",
                  *words, "--set", f"data.{key}={value}")
    test.ends("two folders to begin with", BAD_CONFIG, "--init and --set model.init=x", *words,
              "--set", "model.init=x")
    for flag in ("--init", "--data", "--checkpoint-dir"):
        place = words.index(flag) + 1
        test.ends(f"{flag} that is no UTF-8", BAD_CONFIG, "is no valid UTF-8", *words[:place],
                  os.fsdecode(b"/tmp/x\xff"), *words[place + 1:])
    test.ends("a beta of 1", BAD_CONFIG, "1 is outside 0 .. 0.9999999", *words, "--set",
              "optimizer.beta2=1")
    test.ends("metrics that lead nowhere", 0, "no metrics are written to /nowhere/x", *words,
              GPUCTL_METRICS="/nowhere/x")


def check_few_threads(test):
    """A user, or a container, may have so few threads. LibTorch would wait for more without an end."""
    def limit(threads):
        resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
        if os.geteuid() == 0:  # who has no such limit
            os.setgroups([])
            os.setuid(54321)

    for threads in (1, 2, 3, 6):
        test.limits = lambda threads=threads: limit(threads)
        try:
            test.ends(f"no more than {threads} threads", TRY_AGAIN, "start a thread: ", "bench",
                      "--steps", "1", "--set", "train.device=cpu", "--set", "train.batch=1",
                      "--set", "train.threads=8")
        except PermissionError:
            print("        left out: another user cannot start the program where it is")
            break
    test.limits = None


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    changes = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    learned, _ = sums_below(50)
    with tempfile.TemporaryDirectory() as directory:
        test = Hostile(sys.argv[1], directory)
        base = directory + "/base"
        write_chat_model(base, layers=1, d=32, heads=2, kv_heads=1, ffn=64)
        data = check_data(test, base, learned)
        check_settings(test, base, data)
        check_few_threads(test)
        check_resuming(test, base, data, learned)
        check_damage(test, base, data)
        check_shortened_data(test, base, data)
        check_prompts(test, base)
        check_two_at_once(test, base, data)
        check_json(test, base, data, seed, changes)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

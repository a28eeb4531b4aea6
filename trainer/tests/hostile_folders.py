#!/usr/bin/env python3
"""Gives every reader of the trainer files that are wrong, by seeded changes of good ones: safetensors
and their index, config.json, generation_config.json, tokenizer.json, tokenizer_config.json, chat
templates, PEFT adapters, prepared data, checkpoints, rows of text, configurations.

usage: hostile_folders.py TRAINER_PROGRAM [ROUNDS [SEED [ONLY]]]

Each round changes one file and runs one command that reads it, within 2 GB of address space. It may
succeed, or refuse the file with exit code 64, 65 or 74 and a message that names it; no other exit
code, no signal, no waiting. ROUNDS (40) are for each file; ONLY is one of them, as FILE:NUMBER.
Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from arithmetic import Test, in_chat, sums_below
from chat_model import TEMPLATE, write_chat_model
from folders import read_safetensors, write_safetensors
from hostile_runs import seal
from mutations import change_bytes, change_header, change_json, take_place
from prepared_runs import newest

MEMORY = 2_000_000_000
SECONDS = 120  # of a machine that does other things, too; a reader needs 2
CODES = (0, 64, 65, 74)
DIVERGED = 125  # of weights that are large now
STEPS = {"train.steps": 1, "train.batch": 2, "train.micro_batch": 1, "checkpoint.every": 1,
         "train.threads": 1}


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Reader:
    """A folder, the files in it to change, and commands that read them; FOLDER and OUT in their
    words stand for the changed folder and a new place."""

    def __init__(self, folder, files, commands, sealed=False):
        self.folder, self.files, self.commands, self.sealed = folder, files, commands, sealed


def change(path, name, chooser):
    """Changes the file. Returns what was done."""
    with open(path, "rb") as file:
        data = file.read()
    way = chooser.random()
    if way < 0.12:
        # A configuration may come from a FIFO.
        return take_place(path, chooser, fifo=name != "run.json")
    if way < 0.35:
        done, data = change_bytes(data, chooser)
    elif name.endswith(".safetensors"):
        done, data = change_header(data, chooser)
    elif name.endswith(".jsonl"):
        lines = data.decode().splitlines()
        place = chooser.randrange(len(lines))
        done, lines[place] = change_json(lines[place], chooser)
        done, data = f"line {place + 1}: {done}", "\n".join(lines).encode("utf-8", "surrogatepass")
    elif name.endswith(".json"):
        done, text = change_json(data.decode(), chooser)
        data = text.encode("utf-8", "surrogatepass")
    elif name.endswith(".jinja"):
        done, data = change_template(data.decode(), chooser)
    else:
        done, data = change_bytes(data, chooser)
    with open(path, "wb") as file:
        file.write(data)
    return done


PIECES = ("{% for i in range(1000000000) %}x{% endfor %}", "{{ 'x' * 1000000000 }}", "{{", "%}",
          "{% set x = [1] %}{% for i in range(60) %}{% set x = x + x %}{% endfor %}", "{% if %}",
          "{{ " + "(" * 50000, "{{ " + "not " * 50000 + "1 }}", "{{ x" + ".y" * 50000 + " }}",
          "{{ x" + "|trim" * 50000 + " }}", "{% if 1 %}" * 50000, "{{ [" * 3000, "{{ messages }}",
          "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{{ raise_exception('no') }}",
          "{{ 2 ** 1000000 }}", "{{ -9223372036854775808 // -1 }}", "{{ 1 % 0 }}", "{{ 1 / 0 }}",
          "{{ 9223372036854775807 + 1 }}", "{{ 'a'[9223372036854775807:] }}", "{{ [1][::0] }}",
          "{{ 'x'.join(['y'] * 100000000) }}", "{{ ' ' | indent(1000000000) }}",
          "{{ strftime_now('%' * 99) }}", "{{ strftime_now('x' * 10000000) }}",
          "{{ '%s' % 'x' }}", "{{ '{:>999999999}'.format(1) }}", "{{ messages | tojson(indent=999999999) }}",
          "{{ range(-9223372036854775808, 9223372036854775807) | list }}", "{% generation %}", "\xff",
          "{{ 'x'.replace('', 'y' * 100000) * 100000 }}", "{# ", "{% raw %}", "{{ '\\ud800' }}",
          "{{ 'x' | center(2000000000) }}", "{{ ('x' * 60000) | wordwrap(1) | length }}",
          "{{ 1e999 | int }}", "{{ 'nan' | float | int }}", "{{ 1e308 * 10 | round(400) }}",
          "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ ns | tojson }}",
          "{% set x = messages %}{% for i in range(9999999) %}{% set _ = x %}{% endfor %}")


def change_template(text, chooser):
    at = chooser.randrange(len(text) + 1)
    if chooser.random() < 0.7:
        piece = chooser.choice(PIECES)
        text = chooser.choice((piece, text[:at] + piece + text[at:], piece + text))
        return f"with {piece[:40]!r}", text.encode("utf-8", "surrogatepass")
    return change_bytes(text.encode(), chooser)


class Hostile(Test):
    def fails(self, words):
        """Returns why a command ended as none may, or None."""
        try:
            ended = subprocess.run([self.program, *words], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   timeout=SECONDS, check=False, preexec_fn=limit,
                                   env={name: value for name, value in os.environ.items()
                                        if not name.startswith("GPUCTL_")})
        except subprocess.TimeoutExpired:
            return f"no end after {SECONDS} s"
        error = ended.stderr.decode("utf-8", "replace")
        if ended.returncode not in CODES and (ended.returncode, words[0]) != (DIVERGED, "train"):
            return f"exit code {ended.returncode}: {error[:600]}"
        if ended.returncode == 0 or (ended.returncode == DIVERGED and words[0] == "train"):
            return None
        if not error.startswith("gpuctl-trainer: ") and "\ngpuctl-trainer: " not in error:
            return f"exit code {ended.returncode} without a reason: {error[:600]}"
        # Of a run's settings it names the key.
        if self.directory not in error and " configuration" not in error:
            return f"the message names no file: {error[:600]}"
        if any(ord(letter) < 32 and letter != "\n" for letter in error) or len(error) > 20000:
            return f"the message is not fit to print: {error[:600]!r}"
        return None

    def round(self, reader, name, number, seed):
        """Changes a file, and runs a command. Returns whether it ended well."""
        chooser = random.Random(f"{seed} {name} {number}")
        copy, out = self.directory + "/changed", self.directory + "/out"
        shutil.copytree(reader.folder, copy)
        done = change(f"{copy}/{name}", name, chooser)
        path = f"{copy}/{name}"
        plain = os.path.isfile(path) and not os.path.islink(path) and \
            os.path.getsize(path) < 1 << 30
        if reader.sealed and plain and name != "manifest.json":
            seal(copy)
        words = [word.replace("FOLDER", copy).replace("OUT", out)
                 for word in chooser.choice(reader.commands)]
        why = self.fails(words)
        if why:
            self.check(f"{name}, round {number}, {words[0]}: {done}", False, why)
        shutil.rmtree(copy)
        for left in os.listdir(self.directory):
            if left.startswith("out"):
                path = f"{self.directory}/{left}"
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)
        return not why


def model_readers(test, base):
    """Readers of a model folder, whole and in shards."""
    generate = [["generate", "--model", "FOLDER", "--prompt-ids", "1,2", "--tokens", "2"],
                ["generate", "--model", "FOLDER", "--prompt", "user 1", "--tokens", "2"],
                ["generate", "--model", "FOLDER", "--chat", "1+1", "--tokens", "2"]]
    export = [["export", "--model", "FOLDER", "--to", "gguf", "--out", "OUT.gguf"]]
    prepare = [["prepare", "--model", "FOLDER", "--data", test.directory + "/rows.jsonl", "--out",
                "OUT", "--show", "1", "--threads", "2"]]
    template = test.directory + "/with-template"
    shutil.copytree(base, template)
    with open(template + "/chat_template.jinja", "w", encoding="utf-8") as file:
        file.write(TEMPLATE)
    shards = test.directory + "/shards"
    shutil.copytree(base, shards)
    tensors = read_safetensors(shards + "/model.safetensors")
    os.remove(shards + "/model.safetensors")
    names, index = sorted(tensors), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        write_safetensors(f"{shards}/{file}", {name: tensors[name] for name in part})
        index.update(dict.fromkeys(part, file))
    with open(shards + "/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": index}, file)
    train = test.words("FOLDER", test.directory + "/tokens", STEPS)[0]
    train[train.index("--checkpoint-dir") + 1] = "OUT"
    return [Reader(base, ["config.json"], [*generate[:1], *export, *prepare, train]),
            Reader(base, ["generation_config.json"], [*generate, *export, train]),
            Reader(base, ["tokenizer.json"], [*generate[1:], *export, *prepare]),
            Reader(base, ["tokenizer_config.json"], [*generate[1:], *export, *prepare]),
            Reader(template, ["chat_template.jinja"], [*generate[2:], *export, *prepare]),
            Reader(base, ["model.safetensors"], [*generate[:1], *export, train]),
            Reader(shards, ["model.safetensors.index.json",
                            "model-00001-of-00002.safetensors"],
                   [*generate[:1], *export, train])]


def run_readers(test, base):
    """Readers of what training leaves and takes."""
    tokens = test.directory + "/tokens"
    lora = {**STEPS, "lora.rank": 2}
    found = []
    for what, settings in (("full", STEPS), ("LoRA", lora)):
        words, checkpoints, _ = test.words(base, tokens, settings)
        ended = test.run(*words)
        test.check(f"{what}: a run to change", ended.returncode == 0, ended.stderr)
        step = f"{checkpoints}/{newest(checkpoints)}"
        resume = [*test.words(base, tokens, settings)[0], "--resume", "FOLDER"]
        resume[resume.index("--checkpoint-dir") + 1] = "OUT"
        files = ["manifest.json", "state.json", "optimizer.safetensors"]
        commands = [["inspect", "FOLDER"], resume]
        if what == "full":
            found.append(Reader(step, [*files, "config.json", "model.safetensors"],
                                [*commands, ["generate", "--checkpoint", "FOLDER",
                                             "--prompt-ids", "1", "--tokens", "1"]], sealed=True))
            continue
        found.append(Reader(step, files, commands, sealed=True))
        begin = [*test.words(base, tokens, {**STEPS, "lora.init": "FOLDER"})[0]]
        begin[begin.index("--checkpoint-dir") + 1] = "OUT"
        config = begin[begin.index("--config") + 1]
        with open(config, encoding="utf-8") as file:
            text = file.read()
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace("FOLDER", test.directory + "/changed"))
        adapter = ["--model", base, "--adapter", "FOLDER"]
        found.append(Reader(step, ["adapter_config.json", "adapter_model.safetensors"], [
            ["merge", *adapter, "--out", "OUT"], begin,
            ["generate", *adapter, "--prompt-ids", "1", "--tokens", "1"],
            ["export", "--adapter", "FOLDER", "--model", base, "--to", "gguf-lora", "--out",
             "OUT.gguf"],
            ["export", "--adapter", "FOLDER", "--model", base, "--to", "mlx", "--out", "OUT"]]))
    train = test.words(base, "FOLDER", STEPS)[0]
    train[train.index("--checkpoint-dir") + 1] = "OUT"
    found.append(Reader(tokens, ["dataset.json", "train.tokens", "train.ends", "held_out.ends"], [
        train, ["eval", "--model", base, "--data", "FOLDER", "--context", "64"]]))
    return found


def row_readers(test, base):
    rows = test.directory + "/rows"
    os.mkdir(rows)
    shutil.copy(test.directory + "/rows.jsonl", rows + "/rows.jsonl")
    prepare = ["prepare", "--model", base, "--data", "FOLDER", "--out", "OUT", "--show", "2"]
    configs = test.directory + "/configs"
    os.mkdir(configs)
    words = test.words(base, test.directory + "/tokens", STEPS)[0]
    shutil.move(words[words.index("--config") + 1], configs + "/run.json")
    words[words.index("--config") + 1] = "FOLDER/run.json"
    words[words.index("--checkpoint-dir") + 1] = "OUT"
    return [Reader(rows, ["rows.jsonl"], [prepare, [*prepare, "--bad-rows", "skip"]]),
            Reader(configs, ["run.json"], [[*words, "--set", "train.steps=1"]])]


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    only = sys.argv[4] if len(sys.argv) > 4 else None
    learned, asked = sums_below(20)
    with tempfile.TemporaryDirectory() as directory:
        test = Hostile(sys.argv[1], directory)
        base = directory + "/base"
        write_chat_model(base, layers=1, d=32, heads=2, kv_heads=1, ffn=64)
        with open(directory + "/rows.jsonl", "w", encoding="utf-8") as file:
            for row in [*in_chat(learned[:10]), {"text": "user plus"},
                        {"prompt": "1+2=", "completion": "3"},
                        {"conversations": [{"from": "human", "value": "1"},
                                           {"from": "gpt", "value": "2"}]},
                        {**in_chat(learned[:1])[0], "tools": [{"type": "function"}]}]:
                file.write(json.dumps(row) + "\n")
        os.rename(test.prepare("some", base, in_chat(learned[:10]), in_chat(asked[:4])),
                  directory + "/tokens")
        readers = model_readers(test, base) + run_readers(test, base) + row_readers(test, base)
        for reader in readers:
            for name in reader.files:
                numbers = range(rounds) if only is None else [int(only.split(":")[1])]
                if only is not None and only.split(":")[0] != name:
                    continue
                good = [test.round(reader, name, number, seed) for number in numbers]
                test.check(f"{name}: {len(good)} changes are borne or refused", all(good),
                           f"{good.count(False)} are not")
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

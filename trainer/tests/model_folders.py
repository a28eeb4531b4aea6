#!/usr/bin/env python3
"""Checks training from a model folder, and that folders which are not right are refused by name.

usage: model_folders.py TRAINER_PROGRAM

Runs the whole program on small random models. Exits with 77 (skipped) when there is no torch.
"""

import hashlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from folders import Decoder, plain_frequencies, read_safetensors, write_folder, write_safetensors
from program import Program

BAD_CONFIG, BAD_DATA, DIVERGED = 64, 65, 125

KEPT = {"tokenizer.json": '{"version": "1.0"}', "tokenizer_config.json": '{"chat_template": "x"}',
        "special_tokens_map.json": "{}", "chat_template.jinja": "{{ messages }}",
        "generation_config.json": '{"eos_token_id": [7, 260], "do_sample": true}',
        "vocab.json": "{}", "merges.txt": "#version", "tokenizer.model": "\x0a\x0b"}


def qwen2_folder(directory, dtype=torch.bfloat16, shards=2):
    """A model with biases, windows in its last layer, and keys that the trainer does not know."""
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "vocab_size": 270,
              "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
              "max_position_embeddings": 256, "rope_theta": 1e6, "use_sliding_window": True,
              "sliding_window": 9, "max_window_layers": 1, "tie_word_embeddings": False,
              "torch_dtype": "bfloat16", "eos_token_id": 3, "my_own_key": {"deep": [1, None]}}
    decoder = Decoder(2, 32, 4, 2, 48, 270, qkv_bias=True, tied=False, windows=[None, 9],
                      frequencies=[plain_frequencies(1e6)] * 2)
    weights = decoder.random_weights(dtype)
    write_folder(directory, config, weights, shards)
    for name, text in KEPT.items():
        with open(f"{directory}/{name}", "w") as file:
            file.write(text)
    return config, decoder, weights


class Test(Program):
    def __init__(self, program, directory):
        super().__init__(program)
        self.directory = directory
        with open(directory + "/text.txt", "w") as file:
            chooser = random.Random(1)
            words = ["node ", "job ", "runs\n", "a "]
            file.write("".join(chooser.choice(words) for _ in range(5000)))
        self.config = directory + "/run.json"
        with open(self.config, "w") as file:
            json.dump({"model": {"context": 32}, "data": {"paths": [directory + "/text.txt"]},
                       "optimizer": {"lr": 1e-3, "warmup_steps": 0},
                       "train": {"steps": 6, "batch": 4, "micro_batch": 2, "threads": 2,
                                 "eval_every": 0, "eval_windows": 2, "device": "cpu"},
                       "checkpoint": {"every": 3}}, file)

    def train(self, folder, checkpoints, *more):
        return self.run("train", "--config", self.config, "--set", "data.tokens=bytes", "--init",
                        folder, "--checkpoint-dir", checkpoints, *more)

    def refused(self, what, folder, part, code=BAD_DATA):
        """Both commands must refuse the folder and say `part`."""
        generated = self.run("generate", "--model", folder, "--prompt-ids", "1", "--tokens", "1")
        trained = self.train(folder, self.directory + "/refused")
        for verb, ended in (("generate", generated), ("train", trained)):
            self.check(f"{verb} refuses {what}", ended.returncode == code and part in ended.stderr,
                       ended.returncode, ended.stderr)


def read_json(path):
    with open(path) as file:
        return json.load(file)


def check_training(test):
    folder, runs = test.directory + "/base", test.directory + "/runs"
    config, decoder, weights = qwen2_folder(folder)
    ended = test.train(folder, runs)
    test.check("training from a folder ends well", ended.returncode == 0, ended.stderr)
    step = runs + "/step-00000006"
    expected = dict(config, torch_dtype="float32")
    test.check("config.json keeps all keys but the dtype",
               read_json(step + "/config.json") == expected)
    for name, text in KEPT.items():
        with open(f"{step}/{name}") as file:
            test.check(f"{name} is kept", file.read() == text)
    trained = read_safetensors(step + "/model.safetensors")
    test.check("the weights have the folder's names and shapes",
               {name: list(t.shape) for name, t in trained.items()} == decoder.shapes())
    moved = {name: float((trained[name] - weights[name].float()).abs().max()) for name in weights}
    # AdamW moves each element by about lr in a step; it starts from the folder's weights.
    test.check("the weights are those of the folder, moved by six small steps",
               all(0 < most < 0.02 for most in moved.values()), moved)
    ids = torch.tensor([[int(token) for token in
                         test.run("generate", "--checkpoint", step, "--prompt-ids", "5,6,7",
                                  "--tokens", "30", "--temperature", "0", "--stop-ids", "")
                         .stdout.split()]])
    wide = {name: tensor.double() for name, tensor in trained.items()}
    best = decoder.logits(wide, ids)[0].argmax(-1)
    test.check("generate reads the checkpoint", ids.shape == (1, 33) and
               torch.equal(best[2:-1], ids[0, 3:]), ids)
    return folder, runs


def check_resume(test, folder, runs):
    parted = test.directory + "/parted"
    os.makedirs(parted)
    shutil.copytree(runs + "/step-00000003", parted + "/step-00000003")
    moved = test.directory + "/elsewhere"
    other = test.directory + "/other"
    qwen2_folder(other)
    with open(other + "/config.json") as file:
        changed = dict(json.load(file), sliding_window=8)
    with open(other + "/config.json", "w") as file:
        json.dump(changed, file)
    ended = test.train(other, parted, "--resume", "auto")
    test.check("resume refuses another model", ended.returncode == BAD_CONFIG and
               "another model" in ended.stderr, ended.returncode, ended.stderr)
    ended = test.run("train", "--config", test.config, "--checkpoint-dir", parted,
                     "--resume", "auto")
    test.check("resume refuses a model from scratch", ended.returncode == BAD_CONFIG and
               "another model" in ended.stderr, ended.returncode, ended.stderr)
    ended = test.train(moved, parted, "--resume", "auto")  # the folder is gone by now
    test.check("resume needs only the checkpoint", ended.returncode == 0 and ended.stderr == "",
               ended.returncode, ended.stderr)
    for name in ["config.json", "model.safetensors", "optimizer.safetensors"] + list(KEPT):
        with open(f"{runs}/step-00000006/{name}", "rb") as straight:
            with open(f"{parted}/step-00000006/{name}", "rb") as resumed:
                test.check(f"{name} of the resumed run is the same to the last byte",
                           straight.read() == resumed.read())


def check_texts_and_lengths(test, folder):
    ended = test.run("generate", "--model", folder, "--prompt", "text")
    test.check("text for a model whose tokenizer is none is refused",
               ended.returncode == BAD_DATA and "tokenizer.json" in ended.stderr, ended.stderr)
    for ids in ("1,270", "1,,2", "-1", "x", "1 2", "99999999999999999999"):
        ended = test.run("generate", "--model", folder, "--prompt-ids", ids)
        test.check(f"the prompt {ids} is refused", ended.returncode == BAD_CONFIG, ended.stderr)
    ended = test.train(folder, test.directory + "/refused", "--set", "model.context=257")
    test.check("longer windows than the model has are refused",
               ended.returncode == BAD_CONFIG and "model.context 257" in ended.stderr, ended.stderr)
    ended = test.train(folder, test.directory + "/refused", "--set", "model.layers=2")
    test.check("a shape beside the folder's is refused",
               ended.returncode == BAD_CONFIG and "model.layers" in ended.stderr, ended.stderr)
    ended = test.train(folder, test.directory + "/refused", "--set", "data.tokens=auto")
    test.check("bytes for a model with a tokenizer are refused, unless they are asked for",
               ended.returncode == BAD_CONFIG and "data.tokens=bytes" in ended.stderr, ended.stderr)
    small = test.directory + "/small"
    make_llama(small, vocab=256)
    ended = test.train(small, test.directory + "/refused")
    test.check("bytes need 257 tokens", ended.returncode == BAD_CONFIG and "257" in ended.stderr,
               ended.stderr)


def make_llama(directory, vocab=260, change=None, config_change=None, shards=1):
    config = {"model_type": "llama", "vocab_size": vocab, "hidden_size": 16,
              "intermediate_size": 24, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 1,
              "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_theta": 1e4,
              "tie_word_embeddings": True}
    config.update(config_change or {})
    weights = Decoder(1, 16, 2, 1, 24, vocab).random_weights()
    if change:
        change(weights)
    write_folder(directory, config, weights, shards)
    return weights


def truncate(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


Q = "model.layers.0.self_attn.q_proj.weight"


def check_bad_tensors(test):
    def case(what, part, change, code=BAD_DATA):
        folder = test.directory + "/bad"
        shutil.rmtree(folder, ignore_errors=True)
        make_llama(folder, change=change)
        test.refused(what, folder, part, code)

    case("a missing tensor", "missing: " + Q, lambda w: w.pop(Q))
    case("a tensor too many", "not a part of this model: model.extra",
         lambda w: w.update({"model.extra": torch.ones(2)}))
    case("biases that config.json does not have", "self_attn.q_proj.bias",
         lambda w: w.update({Q.replace("weight", "bias"): torch.ones(16)}))
    case("another shape", f"{Q} is [16, 15], not [16, 16]",
         lambda w: w.update({Q: torch.ones(16, 15)}))
    case("a scalar", f"{Q} is []", lambda w: w.update({Q: torch.tensor(1.0)}))
    case("another dtype", "dtype F64", lambda w: w.update({Q: w[Q].double()}))
    case("whole numbers", "dtype I64", lambda w: w.update({Q: w[Q].long()}))


def check_bad_files(test):
    def case(what, part, break_it, shards=1, config_change=None):
        folder = test.directory + "/bad"
        shutil.rmtree(folder, ignore_errors=True)
        make_llama(folder, shards=shards, config_change=config_change)
        break_it(folder)
        test.refused(what, folder, part)

    def write(name, text):
        def put(folder):
            with open(f"{folder}/{name}", "wb") as file:
                file.write(text)
        return put

    def index(**changes):
        def put(folder):
            path = folder + "/model.safetensors.index.json"
            content = read_json(path)
            content["weight_map"].update(changes)
            with open(path, "w") as file:
                json.dump(content, file)
        return put

    def header(entry):
        text = json.dumps({"w": entry}).encode()
        return write("model.safetensors", struct.pack("<Q", len(text)) + text)

    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    names = "model.safetensors.index.json"
    case("a folder without weights", "neither", lambda f: os.remove(f + "/model.safetensors"))
    case("a folder without config.json", "config.json", lambda f: os.remove(f + "/config.json"))
    case("a config.json that is none", "not valid JSON", write("config.json", b"[1"))
    case("a truncated file", "shorter", lambda f: truncate(f + "/model.safetensors", 5000))
    case("a file that ends in its header", "header",
         lambda f: truncate(f + "/model.safetensors", 50))
    case("an empty file", "8 bytes", lambda f: truncate(f + "/model.safetensors", 0))
    case("a tensor beyond all memory", "offsets",
         header({"dtype": "F32", "shape": [2 ** 40], "data_offsets": [0, 4]}))
    case("a shape that overflows", "overflows",
         header({"dtype": "F32", "shape": [2 ** 62, 2 ** 62], "data_offsets": [0, 0]}))
    case("an empty shape that overflows", "overflows",
         header({"dtype": "F32", "shape": [0, 2 ** 62, 2 ** 62], "data_offsets": [0, 0]}))
    case("a model beyond all memory", "another shape", lambda f: None,
         config_change={"hidden_size": 65536, "intermediate_size": 262144, "vocab_size": 10000000,
                        "num_hidden_layers": 1000})
    case("a missing shard", second, lambda f: os.remove(f"{f}/{second}"), 2)
    case("a truncated shard", "shorter", lambda f: truncate(f"{f}/{second}", 3000), 2)
    for outside in ("../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", ".hidden"):
        case(f"an index that names \"{outside}\"", "is no name of a file in the folder",
             index(**{Q: outside}), 2)
    case("an index that names no text", "no name of a file", index(**{Q: 3}), 2)
    case("an index with a tensor in the wrong shard", "is not", index(
        **{Q: first, "model.embed_tokens.weight": second}), 2)
    case("an index with a tensor that is not there", "model.more is not in",
         index(**{"model.more": first}), 2)
    case("a tensor in two shards", "is in another file",
         lambda f: shutil.copy(f"{f}/{first}", f"{f}/{second}"), 2)
    case("an index without a map", "weight_map", write(names, b"{}"), 2)
    case("an index with a name twice", "twice",
         write(names, b'{"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}}'), 2)


def check_frozen(test, folder):
    runs = test.directory + "/frozen-runs"
    freeze = ("--set", 'train.freeze=["model.layers.*", "lm_head.weight"]')
    ended = test.train(folder, runs, *freeze)
    test.check("training with frozen weights ends well", ended.returncode == 0, ended.stderr)
    step = runs + "/step-00000006"
    before = {}
    for shard in range(1, 3):
        before.update(read_safetensors(f"{folder}/model-{shard:05}-of-00002.safetensors"))
    after = read_safetensors(step + "/model.safetensors")
    changed = {name for name in after if not torch.equal(after[name], before[name].float())}
    trained = {"model.embed_tokens.weight", "model.norm.weight"}
    test.check("only the other weights change", changed == trained, changed)
    moments = {f"{kind}.{name}" for kind in ("exp_avg", "exp_avg_sq") for name in trained}
    test.check("only they have moments",
               set(read_safetensors(step + "/optimizer.safetensors")) == moments)
    ended = test.train(folder, runs, "--resume", "auto")
    test.check("resume refuses other frozen weights", ended.returncode == BAD_CONFIG and
               "train.freeze" in ended.stderr, ended.stderr)
    ended = test.train(folder, test.directory + "/refused", "--set", "train.freeze=model.layer.*")
    test.check("a pattern without a weight is refused", ended.returncode == BAD_CONFIG and
               "matches no weight" in ended.stderr, ended.stderr)


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte, = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x41]))


def check_checkpoint(test):
    """Generating and scoring verify what they read of a checkpoint, while they read it."""
    folder, runs = test.directory + "/verified", test.directory + "/verified-runs"
    make_llama(folder)
    ended = test.train(folder, runs)
    step = runs + "/step-00000006"
    test.check("a run for checkpoints ends well", ended.returncode == 0, ended.stderr)
    verbs = {"generate": ("--prompt-ids", "1", "--tokens", "4"),
             "eval": ("--data", test.directory + "/text.txt", "--context", "16", "--windows", "2",
                      "--device", "cpu")}
    for verb, words in verbs.items():
        test.check_read_once(verb, (verb, "--model", step, *words),
                             (verb, "--checkpoint", step, *words), step + "/model.safetensors")

    def damaged(what, part, name, change, code=BAD_DATA):
        for verb, words in verbs.items():
            copy = test.directory + "/damaged"
            shutil.copytree(step, copy)
            change(f"{copy}/{name}")
            ended = test.run(verb, "--checkpoint", copy, *words)
            test.check(f"{verb}: {what}", ended.returncode == code and part in ended.stderr and
                       (code == 0) == (ended.stdout != ""), ended)
            shutil.rmtree(copy)

    weights, size = "model.safetensors", os.path.getsize(step + "/model.safetensors")
    other = "model.safetensors has another digest"
    damaged("one bit of a weight is refused", other, weights, lambda path: flip(path, size - 4))
    damaged("a weight that became NaN is", other, weights, lambda path: set_nan(path, size))
    damaged("a header of another length is", other, weights, lambda path: flip(path, 0))
    damaged("a header that is no JSON is", other, weights, lambda path: flip(path, 8))
    damaged("a shorter file is", f"has {size - 1} bytes, not {size}", weights,
            lambda path: os.truncate(path, size - 1))
    damaged("a missing file is", "model.safetensors is missing", weights, os.remove)
    damaged("another config.json is", "config.json has another digest", "config.json",
            lambda path: flip(path, 0))
    damaged("moments of another size are", "optimizer.safetensors has 9 bytes",
            "optimizer.safetensors", lambda path: os.truncate(path, 9))
    damaged("damaged moments are not read", "", "optimizer.safetensors",
            lambda path: flip(path, os.path.getsize(path) - 4), code=0)


def set_nan(path, size):
    with open(path, "r+b") as file:
        file.seek(size - 4)
        file.write(struct.pack("<f", float("nan")))


def write_manifest(folder):
    """Makes a checkpoint of a model folder."""
    files = []
    for name in sorted(os.listdir(folder)):
        with open(f"{folder}/{name}", "rb") as file:
            data = file.read()
        files.append({"path": name, "size": len(data),
                      "sha256": hashlib.sha256(data).hexdigest()})
    with open(folder + "/manifest.json", "w") as file:
        json.dump({"format": 1, "step": 0, "files": files}, file)


def peak_bytes(test, flag, folder):
    """Returns the largest resident size of a generation, after some tokens."""
    with subprocess.Popen([test.program, "generate", flag, folder, "--prompt-ids", "1,2",
                           "--tokens", "100000", "--temperature", "0"],
                          stdout=subprocess.PIPE) as child:
        child.stdout.read(40)
        with open(f"/proc/{child.pid}/status") as file:
            peak, = (line.split()[1] for line in file if line.startswith("VmHWM"))
        child.kill()
    return int(peak) * 1024


def check_memory(test):
    """What generation needs beyond a tiny model's is mostly the weights."""
    if not os.path.exists("/proc/self/status"):
        return print("skipped: the memory of generation, without /proc")
    tiny, large = test.directory + "/tiny", test.directory + "/large"
    make_llama(tiny)
    config = {"model_type": "llama", "vocab_size": 16000, "hidden_size": 512,
              "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8,
              "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "max_position_embeddings": 64,
              "tie_word_embeddings": True}
    weights = Decoder(4, 512, 8, 2, 1536, 16000).random_weights()
    write_folder(large, config, weights)
    size = sum(tensor.numel() * 4 for tensor in weights.values())
    write_manifest(large)
    for flag in ("--model", "--checkpoint"):
        ratio = (peak_bytes(test, flag, large) - peak_bytes(test, "--model", tiny)) / size
        facts = f"{ratio:.2f} times its {size / 1e6:.0f} MB of weights"
        test.check(f"generation with {flag} holds {facts}, at most 1.3 times",
                   0.9 <= ratio <= 1.3)


def check_not_finite(test):
    for value in ("nan", "inf"):
        folder = f"{test.directory}/{value}"
        make_llama(folder, change=lambda w, v=float(value): w[Q].view(-1).__setitem__(3, v))
        test.refused(f"{value} in a weight", folder, Q + " has a value that is not finite")
    # Numbers that are finite, and whose product is not.
    folder = test.directory + "/huge"
    make_llama(folder, change=lambda w: w[Q].fill_(3e38))
    ended = test.train(folder, test.directory + "/huge-runs")
    test.check("numbers that become infinite stop training, and a tensor is named",
               ended.returncode == DIVERGED and "and so is the gradient of model." in ended.stderr,
               ended.returncode, ended.stderr)
    ended = test.run("generate", "--model", folder, "--prompt-ids", "1")
    test.check("NaN in the weights stops generation", ended.returncode == BAD_DATA and
               "not finite" in ended.stderr, ended.stderr)


def main():
    program, = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        test = Test(program, directory)
        folder, runs = check_training(test)
        check_resume(test, folder, runs)
        check_texts_and_lengths(test, folder)
        check_bad_tensors(test)
        check_bad_files(test)
        check_not_finite(test)
        check_frozen(test, folder)
        check_checkpoint(test)
        check_memory(test)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks that `generate` takes text and messages for a model with a tokenizer.

usage: text_generation.py TRAINER_PROGRAM

A small random model has Qwen2's tokenizer and chat template, of the shared vectors
($GPUCTL_VECTORS_DIR). Ids that Hugging Face's library gave for texts, and texts that Jinja rendered,
tell what it must read; the vocabulary tells what it must write. Exits with 77 (skipped) without
torch or the vectors.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from folders import Decoder, write_folder

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.environ.get("GPUCTL_VECTORS_DIR") or os.path.join(
    HERE, "..", "..", "..", "shared", "tokenizer-vectors")
VOCABULARY = 151936


def byte_of_letter():
    """The letters that stand for bytes in a byte-level vocabulary: printable Latin-1 for itself, the
    others from U+0100 on."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{chr(byte): byte for byte in plain},
            **{chr(0x100 + place): byte for place, byte in enumerate(others)}}


def make_folder(directory):
    config = {"model_type": "qwen2", "vocab_size": VOCABULARY, "hidden_size": 16,
              "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
              "rope_theta": 1e6, "tie_word_embeddings": True}
    decoder = Decoder(1, 16, 2, 1, 24, VOCABULARY, qkv_bias=True)
    write_folder(directory, config, decoder.random_weights())
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(VECTORS, "qwen2", name), directory)


class Test:
    def __init__(self, program, folder):
        self.program, self.folder, self.failed = program, folder, 0
        with open(VECTORS + "/qwen2/vocab.json", encoding="utf-8") as file:
            self.words = {number: word for word, number in json.load(file).items()}
        self.bytes = byte_of_letter()

    def generate(self, *flags, code=0, folder=None):
        ended = subprocess.run(
            [self.program, "generate", "--model", folder or self.folder, "--tokens", "12",
             "--temperature", "0", "--stop-ids", "", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=120, check=False)
        assert ended.returncode == code, (flags, ended)
        return ended.stdout.decode() if code == 0 else ended.stderr.decode()

    def text_of(self, ids):
        """Special tokens are not in the vocabulary."""
        letters = "".join(self.words.get(number, "") for number in ids)
        return bytes(self.bytes[letter] for letter in letters).decode(errors="replace")

    def check(self, what, found, expected):
        good = found == expected
        print("ok    " if good else "FAILED", what)
        if not good:
            print("  expected %r\n  found    %r" % (expected, found))
            self.failed += 1


def check_texts(test):
    with open(VECTORS + "/qwen2/multilingual_inputs.json", encoding="utf-8") as file:
        texts = {entry["id"]: entry["text"] for entry in json.load(file)}
    with open(VECTORS + "/qwen2/multilingual_qwen2_5.json", encoding="utf-8") as file:
        entries = json.load(file)["entries"]
    for entry in entries[::12]:
        ids = ",".join(map(str, entry["input_ids"]))
        all_ids = [int(word) for word in test.generate("--prompt-ids", ids).split()]
        assert all_ids[:len(entry["input_ids"])] == entry["input_ids"]
        assert len(all_ids) == len(entry["input_ids"]) + 12
        test.check("continues " + entry["id"], test.generate("--prompt", texts[entry["id"]]),
                   test.text_of(all_ids) + "\n")


def check_chat(test):
    with open(VECTORS + "/chat-templates/expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    for conversation, system in (("user_only", []), ("system_user", ["--system", "You are terse."])):
        message = expected["conversations"][conversation][-1]["content"]
        case, = [case for case in expected["cases"] if case["conversation"] == conversation and
                 case["add_generation_prompt"] and not case["tools"] and not case["extra"] and
                 "Qwen2.5" in case["template"]]
        rendered = test.generate("--prompt", case["expected"])
        shown = case["expected"].replace("<|im_start|>", "").replace("<|im_end|>", "")
        assert rendered.startswith(shown), rendered
        test.check("answers " + conversation, test.generate("--chat", message, *system),
                   rendered[len(shown):])


def check_refusals(test):
    for flags in (["--prompt", "a", "--chat", "b"], ["--prompt", "a", "--system", "b"], []):
        test.check("refuses %s" % flags, "generate:" in test.generate(*flags, code=64), True)
    os.remove(test.folder + "/tokenizer_config.json")
    test.check("says that there is no template",
               "no chat template" in test.generate("--chat", "a", code=65), True)


def check_memory(test):
    """A model that no machine has memory for; its file is one long hole."""
    width, layers = 65536, 50
    config = {"model_type": "llama", "vocab_size": 512, "hidden_size": width,
              "intermediate_size": width, "num_hidden_layers": layers, "num_attention_heads": 512,
              "num_key_value_heads": 512, "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
              "rope_theta": 1e4, "tie_word_embeddings": True}
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        layer = {"input_layernorm": [width], "post_attention_layernorm": [width],
                 **{"self_attn.%s_proj" % name: [width, width] for name in "qkvo"},
                 **{"mlp.%s_proj" % name: [width, width] for name in ("gate", "up", "down")}}
        shapes = {"model.embed_tokens": [512, width], "model.norm": [width],
                  **{"model.layers.%d.%s" % (i, name): shape for i in range(layers)
                     for name, shape in layer.items()}}
        header, end = {}, 0
        for name, shape in shapes.items():
            begin, end = end, end + 2 * math.prod(shape)
            header[name + ".weight"] = {"dtype": "BF16", "shape": shape,
                                        "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(folder + "/model.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        for device in ("cpu", "auto"):
            said = test.generate("--prompt-ids", "1", "--device", device, code=64,
                                 folder=folder)
            test.check("refuses what does not fit on " + device,
                       "its weights need" in said and "of memory are free" in said, True)


def main():
    if not os.path.exists(VECTORS + "/qwen2/tokenizer.json"):
        print("skipped: there are no vectors in %s" % VECTORS)
        sys.exit(77)
    with tempfile.TemporaryDirectory() as directory:
        make_folder(directory)
        test = Test(sys.argv[1], directory)
        check_texts(test)
        check_chat(test)
        check_refusals(test)
        check_memory(test)
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

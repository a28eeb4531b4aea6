#!/usr/bin/env python3
"""Checks generation with a model that was really trained: stories260K of llama2.c.

usage: stories.py TRAINER_PROGRAM

Reads stories260K/ in $GPUCTL_MODELS_DIR (default: ../shared/models beside the project), converts it
to a model folder, and compares the greedy text with the published one, which SOURCE.md there
quotes; and the tokens with a decoder that computes everything again for each of them. Exits with 77
(skipped) when there is no torch or no model.
"""

import os
import struct
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from folders import Decoder, write_folder

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.environ.get("GPUCTL_MODELS_DIR", os.path.join(ROOT, "..", "shared", "models"))
BEGIN = 1  # the token before each text
COUNT = "260"  # tokens to generate: more than the published text has


def interleaved_to_halves(weight, heads):
    """llama2.c turns neighbouring rows of a head together, Hugging Face rows half a head apart."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def read_checkpoint(path):
    """Returns config.json, the decoder's facts, and the weights under Hugging Face's names."""
    with open(path, "rb") as file:
        content = file.read()
    d, ffn, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", content[:28])
    values = torch.frombuffer(bytearray(content[28:]), dtype=torch.float32)
    taken = 0

    def take(*shape):
        nonlocal taken
        count = torch.Size(shape).numel()
        taken += count
        return values[taken - count:taken].view(shape)

    kv = d // heads * kv_heads
    weights = {"model.embed_tokens.weight": take(vocab, d)}
    shapes = [("input_layernorm", (d,)), ("self_attn.q_proj", (d, d)),
              ("self_attn.k_proj", (kv, d)), ("self_attn.v_proj", (kv, d)),
              ("self_attn.o_proj", (d, d)), ("post_attention_layernorm", (d,)),
              ("mlp.gate_proj", (ffn, d)), ("mlp.down_proj", (d, ffn)), ("mlp.up_proj", (ffn, d))]
    for name, shape in shapes:
        for layer, weight in enumerate(take(layers, *shape)):
            if "q_proj" in name or "k_proj" in name:
                weight = interleaved_to_halves(weight, heads if "q_proj" in name else kv_heads)
            weights[f"model.layers.{layer}.{name}.weight"] = weight
    weights["model.norm.weight"] = take(d)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": d,
              "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "vocab_size": vocab, "rms_norm_eps": 1e-5,
              "max_position_embeddings": context, "rope_theta": 10000.0,
              "tie_word_embeddings": True, "bos_token_id": BEGIN, "eos_token_id": 2}
    return config, Decoder(layers, d, heads, kv_heads, ffn, vocab, eps=1e-5), weights


def read_tokens(path):
    """Returns the bytes of each token."""
    with open(path, "rb") as file:
        content = file.read()
    tokens, at = [], 4
    while at < len(content):
        _, length = struct.unpack("<fi", content[at:at + 8])
        tokens.append(content[at + 8:at + 8 + length])
        at += 8 + length
    return tokens


def text_of(ids, tokens):
    parts = []
    for token in ids:
        piece = tokens[token]
        if len(piece) == 6 and piece.startswith(b"<0x"):
            piece = bytes([int(piece[3:5], 16)])
        parts.append(piece)
    return b"".join(parts).decode()


def published_text(path):
    with open(path) as file:
        lines = [line[2:].rstrip("\n") for line in file if line.startswith("> ")]
    return "\n".join(lines)


def generate(program, folder, *more):
    command = [program, "generate", "--model", folder, "--prompt-ids", str(BEGIN), *more]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return [int(word) for word in run.stdout.split()]


def greedy(decoder, weights, count):
    """Returns the likeliest tokens after BEGIN; every one looks at the whole text again."""
    wide = {name: weight.double() for name, weight in weights.items()}
    ids = [BEGIN]
    while len(ids) <= count:
        ids.append(int(decoder.logits(wide, torch.tensor([ids]))[0, -1].argmax()))
    return ids


def check(what, right):
    print(("ok      " if right else "FAILED  ") + what)
    return bool(right)


def main():
    program, = sys.argv[1:]
    source = os.path.join(MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"skipped: {source} does not have the model; GPUCTL_MODELS_DIR names its parent")
        sys.exit(77)
    config, decoder, weights = read_checkpoint(source + "/stories260K.bin")
    tokens, published = read_tokens(source + "/tok512.bin"), published_text(source + "/SOURCE.md")
    assert len(published) > 200, "SOURCE.md quotes no text"
    with tempfile.TemporaryDirectory() as directory:
        write_folder(directory, config, weights, shards=2)
        ids = generate(program, directory, "--temperature", "0", "--tokens", COUNT)
        text = text_of(ids[1:], tokens).lstrip(" ")
        same = text.startswith(published)
        good = check(f"the published text, {len(published)} characters", same)
        if not same:
            print(f"published: {published!r}\nfound:     {text!r}")
        good &= check(f"the tokens of full recomputation, {COUNT}",
                      ids == greedy(decoder, weights, int(COUNT)))
        stop = ids[40]
        first = ids.index(stop, 1)
        stopped = generate(program, directory, "--temperature", "0", "--tokens", COUNT,
                           "--stop-ids", f"511,{stop}")
        good &= check("a stop token ends the text before itself", stopped == ids[:first])
        narrow = generate(program, directory, "--temperature", "3", "--top-k", "1",
                          "--tokens", "50")
        good &= check("top-k 1 is greedy", narrow == ids[:51])
        tiny = generate(program, directory, "--temperature", "3", "--top-p", "0", "--tokens", "50")
        good &= check("top-p 0 is greedy", tiny == ids[:51])
        hot = generate(program, directory, "--temperature", "3", "--tokens", "50")
        good &= check("a high temperature is not", hot != ids[:51])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

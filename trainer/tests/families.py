#!/usr/bin/env python3
"""Checks loss and gradients of each family of models against a decoder by its formulas, in fp64,
with whole windows and with packed ones, whose documents the decoder reads one by one. On the CPU
recomputed activations must give the same bits, and kept keys and values the decoder's logits.

usage: families.py DUMP_PROGRAM WORK_DIRECTORY

Each case states twice what it is: in the words of config.json, for the trainer, and as facts, for
the decoder of folders.py. Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import shutil
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from folders import (Decoder, llama3_frequencies, plain_frequencies, read_safetensors,
                     write_folder, write_safetensors)

# Relative, in norm. Other devices multiply in another order.
ON_CPU = "TRAINER_TEST_DEVICE" not in os.environ
TOLERANCE = 1e-5 if ON_CPU else 5e-5

# layers, d, heads, kv heads, ffn, vocabulary; then windows, tokens of each
SMALL = ((2, 32, 4, 2, 40, 61), (3, 11))
LONG = ((3, 48, 6, 1, 56, 97), (2, 150))  # longer than one attention block
EQUAL = ((2, 24, 3, 3, 17, 50), (4, 1))   # a key head for each query head; windows of one token


def sizes(shape, **more):
    layers, d, heads, kv_heads, ffn, vocab = shape
    config = {"hidden_size": d, "intermediate_size": ffn, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6}
    config.update(more)
    return config


def llama_biased(shape):
    return (sizes(shape, model_type="llama", architectures=["LlamaForCausalLM"],
                  attention_bias=True, mlp_bias=True, rope_theta=500.0, rope_scaling=None,
                  tie_word_embeddings=False, hidden_act="silu", torch_dtype="float32"),
            Decoder(*shape, qkv_bias=True, out_bias=True, mlp_bias=True, tied=False,
                    frequencies=[plain_frequencies(500.0)] * shape[0]))


def smollm2(shape):
    config = sizes(shape, model_type="llama", tie_word_embeddings=True, rms_norm_eps=1e-5,
                   rope_theta=100000, torch_dtype="bfloat16")
    return config, Decoder(*shape, eps=1e-5, frequencies=[plain_frequencies(1e5)] * shape[0])


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def llama3_v4(shape):
    config = sizes(shape, model_type="llama", tie_word_embeddings=True, rope_theta=1000.0,
                   rope_scaling={"rope_type": "llama3", **LLAMA3}, head_dim=16)
    frequencies = llama3_frequencies(1000.0, 8.0, 1.0, 4.0, 64)
    return config, Decoder(*shape, head_dim=16, frequencies=[frequencies] * shape[0])


def llama3_v5(shape):
    config, decoder = llama3_v4(shape)
    del config["rope_theta"], config["rope_scaling"]
    config.update(rope_parameters={"rope_theta": 1000.0, "rope_type": "llama3", **LLAMA3},
                  dtype="float32")
    return config, decoder


def llama_linear(shape):
    layers, d, heads, _, ffn, vocab = shape
    config = sizes(shape, model_type="llama", tie_word_embeddings=False,
                   rope_scaling={"type": "linear", "factor": 4.0}, rope_theta=10000.0)
    config["num_key_value_heads"] = None
    return config, Decoder(layers, d, heads, heads, ffn, vocab, tied=False,
                           frequencies=[plain_frequencies(10000.0, 4.0)] * layers)


def mistral(window):
    def make(shape):
        config = sizes(shape, model_type="mistral", sliding_window=window, head_dim=10,
                       rope_theta=10000.0)
        return config, Decoder(*shape, head_dim=10, tied=False, windows=[window] * shape[0])
    return make


def qwen2(shape):
    config = sizes(shape, model_type="qwen2", tie_word_embeddings=True, use_sliding_window=False,
                   sliding_window=3, max_window_layers=0, rope_theta=1e6)
    return config, Decoder(*shape, qkv_bias=True,
                           frequencies=[plain_frequencies(1e6)] * shape[0])


def qwen2_windows(shape):
    config = sizes(shape, model_type="qwen2", use_sliding_window=True, sliding_window=5,
                   max_window_layers=1, rope_theta=1e6)
    return config, Decoder(*shape, qkv_bias=True, tied=False,
                           windows=[None] + [5] * (shape[0] - 1),
                           frequencies=[plain_frequencies(1e6)] * shape[0])


def qwen3(bias):
    def make(shape):
        config = sizes(shape, model_type="qwen3", head_dim=12, attention_bias=bias,
                       tie_word_embeddings=not bias, rope_theta=1e6,
                       layer_types=["full_attention"] * shape[0])
        return config, Decoder(*shape, head_dim=12, qk_norm=True, qkv_bias=bias, out_bias=bias,
                               tied=not bias, frequencies=[plain_frequencies(1e6)] * shape[0])
    return make


def gemma3(config, shape, window, wide_layers, far):
    config.update(model_type="gemma3_text", head_dim=8, sliding_window=window,
                  hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24)
    wide = [layer in wide_layers for layer in range(shape[0])]
    return config, Decoder(
        *shape, head_dim=8, gemma=True, qk_norm=True, score_scale=24 ** -0.5,
        windows=[None if w else window for w in wide],
        frequencies=[far if w else plain_frequencies(10000.0) for w in wide])


def gemma3_v4(shape):
    config = sizes(shape, rope_theta=1e6, rope_local_base_freq=10000.0, sliding_window_pattern=2,
                   rope_scaling={"rope_type": "linear", "factor": 8.0})
    return gemma3(config, shape, 4, [1], plain_frequencies(1e6, 8.0))


def gemma3_v5(shape):
    types = ["full_attention"] + ["sliding_attention"] * (shape[0] - 1)
    config = sizes(shape, layer_types=types, dtype="float32", tie_word_embeddings=True,
                   rope_parameters={
                       "full_attention": {"rope_type": "default", "rope_theta": 1e6},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    return gemma3(config, shape, 140, [0], plain_frequencies(1e6))


# family, its maker, sizes, dtype of the files, shards
CASES = [
    ("llama with biases", llama_biased, SMALL, torch.float32, 1),
    ("llama with biases", llama_biased, LONG, torch.float16, 3),
    ("smollm2", smollm2, SMALL, torch.bfloat16, 1),
    ("smollm2", smollm2, LONG, torch.float32, 1),
    ("llama3, version 4", llama3_v4, SMALL, torch.float32, 2),
    ("llama3, version 4", llama3_v4, LONG, torch.float32, 1),
    ("llama3, version 5", llama3_v5, LONG, torch.bfloat16, 2),
    ("llama linear", llama_linear, SMALL, torch.float16, 1),
    ("llama linear", llama_linear, EQUAL, torch.float32, 1),
    ("mistral", mistral(5), SMALL, torch.float32, 1),
    ("mistral", mistral(40), LONG, torch.float32, 1),
    ("mistral", mistral(1), SMALL, torch.float32, 1),
    ("mistral", mistral(5), EQUAL, torch.float32, 1),
    ("mistral without windows", mistral(None), LONG, torch.float32, 1),
    ("qwen2", qwen2, SMALL, torch.float32, 1),
    ("qwen2", qwen2, LONG, torch.bfloat16, 1),
    ("qwen2 with windows", qwen2_windows, LONG, torch.float32, 1),
    ("qwen3", qwen3(False), SMALL, torch.float32, 1),
    ("qwen3", qwen3(False), LONG, torch.float32, 1),
    ("qwen3 with biases", qwen3(True), EQUAL, torch.float32, 1),
    ("gemma3, version 4", gemma3_v4, SMALL, torch.float32, 1),
    ("gemma3, version 4", gemma3_v4, LONG, torch.bfloat16, 2),
    ("gemma3, version 5", gemma3_v5, LONG, torch.float32, 1),
    ("gemma3, version 5", gemma3_v5, EQUAL, torch.float16, 1),
]


def random_starts(rows, length, generator):
    """Cuts each window into documents of random lengths, down to one token."""
    starts = torch.zeros(rows, length, dtype=torch.int64)
    for row in range(rows):
        begin = 0
        while begin < length:
            size = int(torch.randint(1, max(2, length * 2 // 3), (1,), generator=generator))
            starts[row, begin:begin + size] = begin
            begin += size
    return starts


def loss_of_documents(decoder, weights, inputs, targets, starts):
    """The mean loss of the batch, with each document read alone."""
    total = 0
    for row in range(inputs.size(0)):
        begins = sorted(set(starts[row].tolist()))
        for begin, end in zip(begins, begins[1:] + [inputs.size(1)]):
            scored = int((targets[row, begin:end] >= 0).sum())
            if scored:
                total = total + scored * decoder.loss(weights, inputs[row:row + 1, begin:end],
                                                      targets[row:row + 1, begin:end])
    return total / int((targets >= 0).sum())


def write_case(directory, number, case, packed=False):
    """Writes the folder of one case, and returns it with the decoder, weights and batch."""
    _, make, (shape, (rows, length)), dtype, shards = case
    config, decoder = make(shape)
    weights = decoder.random_weights(dtype, seed=number)
    folder = f"{directory}/{number:02}"
    # Leftovers of older versions, which are not read.
    stored = dict(weights)
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    if decoder.tied:
        stored["lm_head.weight"] = weights["model.embed_tokens.weight"]
    write_folder(folder, config, stored, shards)
    generator = torch.Generator().manual_seed(100 + number)
    inputs = torch.randint(decoder.vocab, (rows, length), generator=generator)
    targets = torch.randint(decoder.vocab, (rows, length), generator=generator)
    targets[0, -1] = -1
    batch = {"inputs": inputs, "targets": targets}
    if packed:
        batch["starts"] = random_starts(rows, length, generator)
        # Mostly not learned, as in conversations.
        targets[torch.rand(rows, length, generator=generator) < 0.6] = -1
        targets[0, 0] = 0
    write_safetensors(folder + "/batch.safetensors", batch)
    return folder, decoder, weights, inputs, targets, batch.get("starts")


def size_of(gradient, whole):
    """Returns what differences of a gradient are compared with; `whole`: the size of all of them.

    Where one token looks only at itself, queries and keys change nothing: their gradients are 0 but
    for rounding, which is larger in fp32.
    """
    least = 1e-2 if gradient.norm() < 1e-12 * whole else 1e-3
    return max(gradient.norm(), whole * least)


def difference_of_next(folder, decoder, weights, window):
    """Compares the logits after each beginning of the window."""
    found = read_safetensors(folder + "/next.safetensors")["logits"].double()
    with torch.no_grad():
        expected = decoder.logits(weights, window)[0]
    return float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max())


def check_case(what, folder, decoder, weights, inputs, targets, starts):
    """Returns the largest relative difference, and the names of those beyond the tolerance."""
    wide = {name: tensor.double().requires_grad_(True) for name, tensor in weights.items()}
    loss = (decoder.loss(wide, inputs, targets) if starts is None else
            loss_of_documents(decoder, wide, inputs, targets, starts))
    loss.backward()
    with open(folder + "/loss.json") as file:
        facts = json.load(file)
    differences = {"loss": abs(facts["loss"] - float(loss)) / abs(float(loss))}
    gradients = read_safetensors(folder + "/gradients.safetensors")
    if set(gradients) != set(weights):
        print(f"FAILED {what}: gradients of other weights: {set(gradients) ^ set(weights)}")
        return 0.0, ["names"]
    whole = torch.cat([tensor.grad.flatten() for tensor in wide.values()]).norm()
    for name, tensor in wide.items():
        difference = (gradients[name].double() - tensor.grad).norm()
        differences["gradient of " + name] = float(difference / size_of(tensor.grad, whole))
    if ON_CPU and starts is None:
        differences["logits with kept keys"] = difference_of_next(folder, decoder, wide, inputs[:1])
    if ON_CPU and not facts["recomputes_alike"]:
        differences["recomputed activations"] = float("inf")
    failed = [name for name, value in differences.items() if not value <= TOLERANCE]
    for name in failed:
        print(f"FAILED {what}: {name}: relative difference {differences[name]:.2e}")
    return max(differences.values()), failed


def main():
    dump, directory = sys.argv[1:]
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    # Each model with whole windows, and with several documents in each.
    kinds = [(case, packed) for case in CASES for packed in (False, True) if
             not packed or case[2][1][1] > 1]
    cases = [write_case(directory, number, *kind) for number, kind in enumerate(kinds)]
    subprocess.run([dump] + [case[0] for case in cases], check=True)
    failed = 0
    for ((name, _, (shape, batch), dtype, shards), packed), case in zip(kinds, cases):
        what = (f"{name}, shape {shape}, batch {batch}, {str(dtype)[6:]}, {shards} files"
                f"{', packed' if packed else ''}")
        worst, wrong = check_case(what, *case)
        failed += bool(wrong)
        print(f"{worst:.1e}  {what}")
    print(f"{len(kinds)} models, {failed} wrong")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

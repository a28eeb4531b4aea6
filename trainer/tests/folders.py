"""Model folders for the tests in Python: safetensors files, config.json, a decoder by its formulas.

The decoder is written from the papers, in fp64 and without any code of the trainer: rotation by
complex numbers, one mask for the whole window, no fused projections, no blocks, no cache.
"""

import json
import math
import os
import struct

import torch
import torch.nn.functional as F

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16,
          "BF16": torch.bfloat16, "I64": torch.int64, "U8": torch.uint8}


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
            continue
        flat = torch.frombuffer(bytearray(content[begin:end]), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    """`tensors`: name to tensor; each is written in its own dtype."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name, tensor in tensors.items():
        raw = bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_folder(directory, config, weights, shards=1):
    """Writes a model folder; with several shards, also their index."""
    os.makedirs(directory, exist_ok=True)
    with open(directory + "/config.json", "w") as file:
        json.dump(config, file, indent=2)
    if shards == 1:
        write_safetensors(directory + "/model.safetensors", weights)
        return
    names, where = list(weights), {}
    for shard in range(shards):
        file_name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        write_safetensors(f"{directory}/{file_name}", {name: weights[name] for name in part})
        where.update({name: file_name for name in part})
    total = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    with open(directory + "/model.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)


class Decoder:
    """The facts of a model, which a test states itself beside config.json."""

    def __init__(self, layers, d, heads, kv_heads, ffn, vocab, **more):
        self.layers, self.d, self.heads, self.kv_heads = layers, d, heads, kv_heads
        self.ffn, self.vocab = ffn, vocab
        self.head_dim = d // heads
        self.eps = 1e-6
        self.qkv_bias = self.out_bias = self.mlp_bias = self.qk_norm = self.gemma = False
        self.tied = True
        self.windows = [None] * layers
        self.score_scale = None
        self.frequencies = [plain_frequencies(10000.0)] * layers
        for name, value in more.items():
            assert hasattr(self, name), name
            setattr(self, name, value)

    def shapes(self):
        """Returns the name and shape of each weight."""
        d, q, kv = self.d, self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = {"model.embed_tokens.weight": [self.vocab, d], "model.norm.weight": [d]}
        if not self.tied:
            shapes["lm_head.weight"] = [self.vocab, d]
        for layer in range(self.layers):
            block = {"input_layernorm.weight": [d], "post_attention_layernorm.weight": [d],
                     "self_attn.q_proj.weight": [q, d], "self_attn.k_proj.weight": [kv, d],
                     "self_attn.v_proj.weight": [kv, d], "self_attn.o_proj.weight": [d, q],
                     "mlp.gate_proj.weight": [self.ffn, d], "mlp.up_proj.weight": [self.ffn, d],
                     "mlp.down_proj.weight": [d, self.ffn]}
            if self.qkv_bias:
                block.update({"self_attn.q_proj.bias": [q], "self_attn.k_proj.bias": [kv],
                              "self_attn.v_proj.bias": [kv]})
            if self.out_bias:
                block["self_attn.o_proj.bias"] = [d]
            if self.mlp_bias:
                block.update({"mlp.gate_proj.bias": [self.ffn], "mlp.up_proj.bias": [self.ffn],
                              "mlp.down_proj.bias": [d]})
            if self.qk_norm:
                block.update({"self_attn.q_norm.weight": [self.head_dim],
                              "self_attn.k_norm.weight": [self.head_dim]})
            if self.gemma:
                block.update({"pre_feedforward_layernorm.weight": [d],
                              "post_feedforward_layernorm.weight": [d]})
            shapes.update({f"model.layers.{layer}.{name}": shape for name, shape in block.items()})
        return shapes

    def random_weights(self, dtype=torch.float32, seed=1):
        generator = torch.Generator().manual_seed(seed)
        weights = {}
        for name, shape in self.shapes().items():
            values = torch.randn(shape, generator=generator)
            if "norm" in name:
                values = 0.3 * values + (0.0 if self.gemma else 1.0)
            elif len(shape) == 1:
                values = 0.3 * values
            else:
                values = values * (0.5 if "embed" in name else 1.2 / math.sqrt(shape[1]))
            weights[name] = values.to(dtype)
        return weights

    def linear(self, w, x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def logits(self, w, tokens_bt):
        """Returns the logits [B, T, V] by weights `w` in fp64."""
        def linear(x, name):
            return self.linear(w, x, name)

        def norm(x, name):
            unit = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
            return unit * (1 + w[name + ".weight"] if self.gemma else w[name + ".weight"])

        x = w["model.embed_tokens.weight"][tokens_bt]
        if self.gemma:  # the factor is rounded to the dtype of the weights
            x = x * torch.tensor(self.d ** 0.5, dtype=torch.float32).double()
        for layer in range(self.layers):
            name = f"model.layers.{layer}."
            y = self.attention(norm(x, name + "input_layernorm"), layer, linear, norm)
            if self.gemma:
                x = x + norm(y, name + "post_attention_layernorm")
                y = self.feed_forward(norm(x, name + "pre_feedforward_layernorm"), name, linear)
                x = x + norm(y, name + "post_feedforward_layernorm")
            else:
                x = x + y
                x = x + self.feed_forward(norm(x, name + "post_attention_layernorm"), name, linear)
        head = w["model.embed_tokens.weight" if self.tied else "lm_head.weight"]
        return norm(x, "model.norm") @ head.T

    def feed_forward(self, x, name, linear):
        gate = linear(x, name + "mlp.gate_proj")
        if self.gemma:
            inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)
            gate = 0.5 * gate * (1 + torch.tanh(inner))
        else:
            gate = gate / (1 + torch.exp(-gate))
        return linear(gate * linear(x, name + "mlp.up_proj"), name + "mlp.down_proj")

    def attention(self, x, layer, linear, norm):
        name = f"model.layers.{layer}.self_attn."
        batch, length, _ = x.shape
        position = torch.arange(length)

        def heads_of(which, count):
            return linear(x, f"{name}{which}_proj").view(batch, length, count, self.head_dim)

        q, k = heads_of("q", self.heads), heads_of("k", self.kv_heads)
        v = heads_of("v", self.kv_heads)
        if self.qk_norm:
            q, k = norm(q, name + "q_norm"), norm(k, name + "k_norm")
        angle = position[:, None].double() * self.frequencies[layer](self.head_dim)
        turn = torch.polar(torch.ones_like(angle), angle)[:, None, :]

        def rotate(y):
            half = self.head_dim // 2
            turned = torch.complex(y[..., :half], y[..., half:]) * turn
            return torch.cat([turned.real, turned.imag], -1)

        q, k = rotate(q), rotate(k)
        distance = position[:, None] - position[None, :]
        seen = distance >= 0
        if self.windows[layer] is not None:
            seen = seen & (distance < self.windows[layer])
        scale = self.score_scale or self.head_dim ** -0.5
        mixed = []
        for head in range(self.heads):
            mate = head * self.kv_heads // self.heads
            scores = q[:, :, head] @ k[:, :, mate].transpose(1, 2) * scale
            weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1)
            mixed.append(weights @ v[:, :, mate])
        return linear(torch.cat(mixed, -1), name + "o_proj")

    def loss(self, w, inputs, targets):
        return F.cross_entropy(self.logits(w, inputs).flatten(0, 1), targets.flatten(),
                               ignore_index=-1)


def plain_frequencies(theta, factor=1.0):
    """Rotary frequencies, all divided by `factor`."""
    return lambda head_dim: theta ** (-torch.arange(0, head_dim, 2).double() / head_dim) / factor


def llama3_frequencies(theta, factor, low, high, original):
    """Llama 3.1's: by the wave length in tokens, as in its published code."""
    def frequencies(head_dim):
        changed = []
        for frequency in plain_frequencies(theta)(head_dim).tolist():
            wave = 2 * math.pi / frequency
            if wave > original / low:
                changed.append(frequency / factor)
            elif wave < original / high:
                changed.append(frequency)
            else:
                smooth = (original / wave - low) / (high - low)
                changed.append((1 - smooth) * frequency / factor + smooth * frequency)
        return torch.tensor(changed, dtype=torch.float64)
    return frequencies


def reference(decoder, weights, prompt):
    """Returns the log-probabilities of a prompt, computed in fp64."""
    wide = {name: weight.double() for name, weight in weights.items()}
    return torch.log_softmax(decoder.logits(wide, torch.tensor([prompt]))[0], -1)

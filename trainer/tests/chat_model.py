"""A small random model of Qwen2's shape for tests, with its own tokenizer and chat template.

Its tokens are the bytes, four words, and three special tokens, which have the last ids: the
embedding has no row more.
"""

import json

import torch

from folders import Decoder, write_folder
from llama_cpp import byte_letters

WORDS = ("user", "assistant", "system", "plus")
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tokenizer():
    """Returns tokenizer.json. A word is made from its first letter on."""
    letters = byte_letters()
    vocabulary = {letters[byte]: byte for byte in range(256)}
    merges = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append(f"{word[:end - 1]} {word[end - 1]}")
    added = [{"id": len(vocabulary) + place, "content": content, "special": True,
              "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
             for place, content in enumerate(SPECIAL)]
    return {"version": "1.0", "added_tokens": added, "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocabulary, "merges": merges}}


def token_id(content):
    """Returns the id of a special token."""
    return {token["content"]: token["id"] for token in tokenizer()["added_tokens"]}[content]


def write_chat_model(folder, layers=2, d=64, heads=4, kv_heads=2, ffn=192, context=128, seed=1):
    """Writes the folder; returns its decoder and weights."""
    words = tokenizer()
    end = token_id("<|im_end|>")
    vocabulary = end + 1
    decoder = Decoder(layers, d, heads, kv_heads, ffn, vocabulary, qkv_bias=True)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in decoder.shapes().items():
        if "norm" in name:
            weights[name] = torch.ones(shape)
        elif len(shape) == 1:
            weights[name] = torch.zeros(shape)
        else:
            weights[name] = torch.randn(shape, generator=generator) * shape[1] ** -0.5
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "vocab_size": vocabulary, "hidden_size": d, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "rms_norm_eps": 1e-6,
              "max_position_embeddings": context, "rope_theta": 10000.0,
              "use_sliding_window": False, "tie_word_embeddings": True, "torch_dtype": "float32",
              "bos_token_id": None, "eos_token_id": end}
    write_folder(folder, config, weights)
    for name, content in (("tokenizer.json", words),
                          ("tokenizer_config.json", {"eos_token": "<|im_end|>",
                                                     "chat_template": TEMPLATE}),
                          ("generation_config.json", {"eos_token_id": [end]})):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            json.dump(content, file)
    return decoder, weights


def chat_row(question, answer):
    return {"messages": [{"role": "user", "content": question},
                         {"role": "assistant", "content": answer}]}


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")

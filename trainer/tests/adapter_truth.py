#!/usr/bin/env python3
"""Checks `merge` and the export of adapters with torch, llama.cpp and formulas.

usage: adapter_truth.py TRAINER_PROGRAM WORK_DIRECTORY

Random adapters in PEFT's files, of random models: the merged weights must be those that torch
computes in fp64; llama.cpp must say the same with the adapter's GGUF as the decoder of folders.py
with these weights; and mlx_lm's formula, W + scale (lora_a lora_b)^T, must give these weights
again. Exits with 77 (skipped) without torch. What needs llama.cpp is left out where npm cannot bring
it.
"""

import json
import math
import os
import shutil
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

import families
import llama_cpp
from folders import read_safetensors, reference, write_folder, write_safetensors

BAD_CONFIG, BAD_DATA = 64, 65
PREFIX = "base_model.model."
LINEAR = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
KEPT = {"tokenizer.json": "{}", "tokenizer_config.json": '{"eos_token": "!"}',
        "chat_template.jinja": "{{ messages }}", "generation_config.json": '{"eos_token_id": 1}',
        "special_tokens_map.json": "{}"}


def modules_of(decoder, ends):
    return [f"model.layers.{layer}.{end}" for layer in range(decoder.layers)
            for end in ends if "." in end] + [end for end in ends if "." not in end]


def write_adapter(folder, decoder, modules, seed=1, dtype=torch.float32, saved=(), **config):
    """Writes PEFT's two files, and returns the tensors by their names in it."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return (0.15 * torch.randn(*shape, generator=generator)).to(dtype)

    rank, ranks, shapes, tensors = config["r"], config.get("rank_pattern", {}), decoder.shapes(), {}
    for module in modules:
        rows, columns = shapes[module + ".weight"]
        r = next((r for end, r in ranks.items() if module.endswith(end)), rank)
        tensors[f"{PREFIX}{module}.lora_A.weight"] = random(r, columns)
        tensors[f"{PREFIX}{module}.lora_B.weight"] = random(rows, r)
        if config.get("use_dora"):
            tensors[f"{PREFIX}{module}.lora_magnitude_vector"] = random(rows).abs() + 0.5
    for name in saved:
        tensors[PREFIX + name] = random(*shapes[name])
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    write_safetensors(folder + "/adapter_model.safetensors", tensors)
    full = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none", "fan_in_fan_out": False,
            "base_model_name_or_path": "org/base", "inference_mode": True, "lora_dropout": 0.05,
            "init_lora_weights": True, "layers_to_transform": None, "use_rslora": False,
            "target_modules": sorted({module.rsplit(".", 1)[-1] for module in modules}), **config}
    with open(folder + "/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump(full, file)
    return tensors, full


def scale_of(config, module):
    """PEFT's rule: the pattern that the end of the name matches, else the general value."""
    r = next((r for end, r in config.get("rank_pattern", {}).items() if module.endswith(end)), config["r"])
    alpha = next((a for end, a in config.get("alpha_pattern", {}).items() if module.endswith(end)),
                 config["lora_alpha"])
    return alpha / (math.sqrt(r) if config["use_rslora"] else r)


def merged_weights(weights, tensors, config):
    """Returns the weights in fp64, before they are cast."""
    merged = {name: weight.double() for name, weight in weights.items()}
    for name, a in tensors.items():
        if not name.endswith(".lora_A.weight"):
            if "lora_" not in name:
                merged[name[len(PREFIX):]] = a.double()
            continue
        module = name[len(PREFIX):-len(".lora_A.weight")]
        b = tensors[name.replace("lora_A", "lora_B")].double()
        new = merged[module + ".weight"] + scale_of(config, module) * (b @ a.double())
        if config.get("use_dora"):
            lengths = tensors[f"{PREFIX}{module}.lora_magnitude_vector"].double()
            new = new * (lengths / new.norm(dim=1))[:, None]
        merged[module + ".weight"] = new
    return merged


class Test:
    def __init__(self, program, work, npm):
        self.program, self.work, self.npm, self.failed = program, work, npm, 0

    def check(self, what, right, *facts):
        print(("ok      " if right else "FAILED  ") + what)
        if not right:
            print("        ", *facts)
        self.failed += not right

    def run(self, *words):
        return subprocess.run([self.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=300, check=False)


# family, sizes, dtype of the model, shards, modules, configuration, whole weights
CASES = [
    ("llama", families.smollm2, families.LONG, torch.float32, 1, LINEAR, {"r": 4, "lora_alpha": 8}, ()),
    ("llama in bf16", families.llama_biased, families.SMALL, torch.bfloat16, 2, LINEAR[:2],
     {"r": 8, "lora_alpha": 4, "use_rslora": True, "modules_to_save": ["lm_head"]},
     ("lm_head.weight",)),
    ("llama with patterns", families.llama3_v4, families.SMALL, torch.float32, 1, LINEAR[:4],
     {"r": 4, "lora_alpha": 8, "rank_pattern": {"k_proj": 2, "layers.1.self_attn.v_proj": 6},
      "alpha_pattern": {"v_proj": 3}}, ()),
    ("qwen2", families.qwen2, families.LONG, torch.float16, 3, LINEAR, {"r": 3, "lora_alpha": 1}, ()),
    ("qwen3 with DoRA", families.qwen3(False), families.SMALL, torch.float32, 1, LINEAR,
     {"r": 4, "lora_alpha": 8, "use_dora": True}, ()),
    ("qwen2 with DoRA in bf16", families.qwen2_windows, families.SMALL, torch.bfloat16, 1, LINEAR[4:],
     {"r": 2, "lora_alpha": 8, "use_dora": True, "target_modules": ".*_proj"}, ()),
    ("gemma3", families.gemma3_v4, families.SMALL, torch.float32, 1, LINEAR,
     {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}, ()),
    ("a head of its own", families.llama_linear, families.SMALL, torch.float32, 2, LINEAR + ["lm_head"],
     {"r": 4, "lora_alpha": 8, "alpha_pattern": {"lm_head": 2, "v_proj": 5}}, ()),
    ("a rank as large as the matrix", families.smollm2, families.SMALL, torch.float32, 1, LINEAR[1:2],
     {"r": 64, "lora_alpha": 64}, ()),
]


def check_merged(test, what, out, weights, exact):
    """Each number must be one of the two of its dtype that lie around the exact one, or off by what
    fp32 leaves of the sums."""
    worst = 0.0
    found = {}
    for file in sorted(os.listdir(out)):
        if file.endswith(".safetensors"):
            found.update(read_safetensors(f"{out}/{file}"))
    test.check(f"{what}: names, shapes and dtypes of the weights",
               {n: (t.shape, t.dtype) for n, t in found.items()} ==
               {n: (t.shape, t.dtype) for n, t in weights.items()})
    for name, tensor in found.items():
        unit = torch.finfo(tensor.dtype).eps / 2
        off = (tensor.double() - exact[name]).abs()
        bound = unit * exact[name].abs() + 1e-6 * exact[name].abs().max()
        worst = max(worst, float((off / bound).max()))
        if not bool((off <= bound).all()):
            test.check(f"{what}: {name}", False, float((off / bound).max()))
    test.check(f"{what}: the numbers of {len(found)} weights, at {worst:.2f} of the bound", worst <= 1)
    return found


def check_merging(test):
    for number, (what, make, shape, dtype, shards, ends, config, saved) in enumerate(CASES):
        model_config, decoder = make(shape[0])
        weights = decoder.random_weights(dtype, seed=number)
        model, adapter, out = (f"{test.work}/{kind}-{number}" for kind in ("model", "adapter", "merged"))
        write_folder(model, model_config, weights, shards)
        for name, text in KEPT.items():
            with open(f"{model}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
        tensors, full = write_adapter(adapter, decoder, modules_of(decoder, ends), seed=number,
                                      dtype=torch.float32 if number % 2 else torch.bfloat16, saved=saved,
                                      **config)
        ended = test.run("merge", "--model", model, "--adapter", adapter, "--out", out)
        test.check(f"{what} is merged", ended.returncode == 0, ended)
        exact = merged_weights(weights, tensors, full)
        found = check_merged(test, what, out, weights, exact)
        same = [name for name in weights if name + "" in found and torch.equal(found[name], weights[name])]
        changed = len([n for n in tensors if n.endswith("lora_A.weight")]) + len(saved)
        test.check(f"{what}: {changed} weights are others", len(weights) - len(same) == changed)
        expected = {**KEPT, "config.json": open(model + "/config.json", encoding="utf-8").read()}
        right = all(open(f"{out}/{name}", encoding="utf-8").read() == text for name, text in expected.items())
        test.check(f"{what}: the other files are kept", right and
                   set(os.listdir(out)) == {*expected, "model.safetensors"}, os.listdir(out))


def check_shards(test):
    out = test.work + "/shards"
    ended = test.run("merge", "--model", test.work + "/model-0", "--adapter", test.work + "/adapter-0",
                     "--out", out + "/", "--shard-gb", "0.00004")
    test.check("merging into shards", ended.returncode == 0, ended)
    with open(out + "/model.safetensors.index.json", encoding="utf-8") as file:
        index = json.load(file)
    whole = read_safetensors(test.work + "/merged-0/model.safetensors")
    names = sorted(set(index["weight_map"].values()))
    parts = {name: read_safetensors(f"{out}/{name}") for name in names}
    count = len(names)
    test.check(f"{count} shards, numbered", count > 3 and names == [
        f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)], names)
    test.check("the index tells where each weight is", set(index["weight_map"]) == set(whole) and all(
        torch.equal(parts[file][name], whole[name]) for name, file in index["weight_map"].items()) and
        sum(len(part) for part in parts.values()) == len(whole))
    total = sum(t.numel() * t.element_size() for t in whole.values())
    test.check("and their size", index["metadata"]["total_size"] == total)
    small = all(len(part) == 1 or sum(t.numel() * t.element_size() for t in part.values()) <= 40000
                for part in parts.values())
    test.check("no shard is too large", small)
    generated = test.run("generate", "--model", out, "--prompt-ids", "1,2,3", "--tokens", "3",
                         "--temperature", "0", "--stop-ids", "")
    test.check("the folder is a model", generated.returncode == 0 and
               len(generated.stdout.split()) == 6, generated)
    again = test.run("merge", "--model", test.work + "/model-0", "--adapter",
                     test.work + "/adapter-0", "--out", out)
    test.check("a folder that is there is not written over", again.returncode == BAD_CONFIG, again)


# --- llama.cpp

# Of CASES: those without DoRA and whole weights. Gemma 3 by Vulkan, see llama_cpp.ask.
GGUF_CASES, GGUF_BY_VULKAN = [0, 2, 3, 7], [6]


def check_llama_cpp(test, numbers, vulkan=False):
    if test.npm is None:
        return
    jobs, facts = [], []
    for number in numbers:
        what, make, shape = CASES[number][:3]
        _, decoder = make(shape[0])
        model, adapter, out = (f"{test.work}/{kind}-{number}" for kind in ("model", "adapter", "gguf"))
        llama_cpp.write_letters(model, decoder.vocab)
        base = test.run("export", "--model", model, "--to", "gguf", "--out", out + ".gguf", "--type", "f32")
        ended = test.run("export", "--adapter", adapter, "--model", model, "--to", "gguf-lora", "--out",
                         out + "-lora.gguf")
        test.check(f"{what}: the adapter is written", base.returncode == 0 and ended.returncode == 0,
                   base, ended)
        prompt = torch.randint(decoder.vocab, (30,), generator=torch.Generator().manual_seed(3)).tolist()
        jobs.append({"model": out + ".gguf", "lora": out + "-lora.gguf", "prompts": [prompt]})
        jobs.append({"model": out + ".gguf", "prompts": [prompt]})
        with open(adapter + "/adapter_config.json", encoding="utf-8") as file:
            config = json.load(file)
        exact = merged_weights(decoder.random_weights(CASES[number][3], seed=number),
                               read_safetensors(adapter + "/adapter_model.safetensors"), config)
        facts.append((what, decoder, exact, prompt))
    answers = llama_cpp.ask(test.npm, test.work, jobs, vulkan)
    for (what, decoder, weights, prompt), answer, plain in zip(facts, answers[::2], answers[1::2]):
        if "error" in answer or "error" in plain:
            test.check(what, False, answer, plain)
            continue
        found, bare = (torch.log_softmax(torch.tensor(rows["logits"][0], dtype=torch.float64), -1)
                       for rows in (answer, plain))
        expected = reference(decoder, weights, prompt)
        off, bare_off = float((found - expected).abs().max()), float((bare - expected).abs().max())
        test.check(f"{what}: llama.cpp with the adapter is the merged model, off by {off:.1e}; "
                   f"without it, {bare_off:.1e}", off < 1e-4 and bare_off > 0.1)


# --- MLX

def check_mlx(test):
    for number, case in enumerate(CASES):
        what, make, shape, _, _, _, _, saved = case
        _, decoder = make(shape[0])
        model, adapter, out = (f"{test.work}/{kind}-{number}" for kind in ("model", "adapter", "mlx"))
        ended = test.run("export", "--adapter", adapter, "--model", model, "--to", "mlx", "--out", out)
        if saved:
            test.check(f"{what}: weights that are stored whole are refused", ended.returncode == BAD_DATA
                       and "stored whole" in ended.stderr and not os.path.exists(out), ended)
            continue
        test.check(f"{what}: MLX's adapter is written", ended.returncode == 0, ended)
        tensors = read_safetensors(out + "/adapters.safetensors")
        with open(out + "/adapter_config.json", encoding="utf-8") as file:
            config = json.load(file)
        with open(adapter + "/adapter_config.json", encoding="utf-8") as file:
            peft_config = json.load(file)
        weights = decoder.random_weights(case[3], seed=number)
        exact = merged_weights(weights, read_safetensors(adapter + "/adapter_model.safetensors"),
                               peft_config)
        parameters, worst, modules = config["lora_parameters"], 0.0, set()
        for name, lora_a in tensors.items():
            if not name.endswith(".lora_a"):
                continue
            module = name[:-len(".lora_a")]
            modules.add(module)
            lora_b = tensors[module + ".lora_b"].double()
            assert lora_a.shape[1] == lora_b.shape[0] == parameters["rank"], name
            # As mlx_lm computes: x W^T + scale (x lora_a) lora_b; DoRA divides by the new lengths.
            new = weights[module + ".weight"].double() + parameters["scale"] * (lora_a.double() @ lora_b).T
            if config["fine_tune_type"] == "dora":
                new = new * (tensors[module + ".m"].double() / new.norm(dim=1))[:, None]
            worst = max(worst, float((new - exact[module + ".weight"]).abs().max()))
        layers = range(decoder.layers - config["num_layers"], decoder.layers)
        chosen = {name for key in parameters["keys"] for name in (
            [f"model.layers.{layer}.{key}" for layer in layers] if "." in key else [key])}
        test.check(f"{what}: MLX's formula gives the merged weights, off by {worst:.1e}",
                   worst < 1e-5 and chosen == modules, chosen ^ modules)


# --- refusals

def check_refusals(test):
    _, decoder = CASES[0][1](CASES[0][2][0])
    model, adapter, out = test.work + "/model-0", test.work + "/bad", test.work + "/refused"
    modules = modules_of(decoder, LINEAR[:2])

    def refused(what, part, *words, code=BAD_DATA):
        before = set(os.listdir(test.work))
        ended = test.run(*words)
        test.check(f"refused: {what}", ended.returncode == code and part in ended.stderr and
                   set(os.listdir(test.work)) == before, ended)

    merge = ("merge", "--model", model, "--adapter", adapter, "--out", out)
    lora = ("export", "--adapter", adapter, "--model", model, "--to", "gguf-lora", "--out", out)
    write_adapter(adapter, decoder, modules, r=4, lora_alpha=8, use_dora=True)
    refused("DoRA for llama.cpp", "llama.cpp has no DoRA", *lora)
    write_adapter(adapter, decoder, modules, r=4, lora_alpha=8)
    refused("an adapter without its base model", "is no folder here", "export", "--adapter", adapter,
            "--to", "gguf-lora", "--out", out, code=BAD_CONFIG)
    refused("--type of an adapter", "--type belongs to", *lora, "--type", "f16", code=BAD_CONFIG)
    refused("an unknown format", "did you mean", "export", "--to", "ggu", "--out", out, code=BAD_CONFIG)
    refused("an adapter in --to gguf", "takes no --adapter", "export", "--to", "gguf", "--out", out,
            "--model", model, "--adapter", adapter, code=BAD_CONFIG)
    _, larger = CASES[0][1](families.SMALL[0])
    write_adapter(adapter, larger, modules_of(larger, LINEAR[:1]), r=4, lora_alpha=8)
    refused("an adapter of another model", "has another shape in the model", *merge)
    refused("the same for llama.cpp", "has another shape in the model", *lora)
    decoder.layers += 1
    write_adapter(adapter, decoder, modules_of(decoder, LINEAR[:1]), r=4, lora_alpha=8)
    refused("more layers", "the model has no model.layers.3.self_attn.q_proj", *merge)
    decoder.layers -= 1
    write_adapter(adapter, decoder, modules, r=4, lora_alpha=8, modules_to_save=["embed_tokens"],
                  saved=("model.embed_tokens.weight",))
    refused("an embedding that is also the head", "cannot change alone", *merge)
    tensors, _ = write_adapter(adapter, decoder, modules, r=4, lora_alpha=8,
                               modules_to_save=["embed_tokens", "lm_head"],
                               saved=("model.embed_tokens.weight",))
    embedding = tensors[PREFIX + "model.embed_tokens.weight"]
    write_safetensors(adapter + "/adapter_model.safetensors",
                      {**tensors, PREFIX + "lm_head.weight": embedding * 2})
    refused("two that differ", "differ, but are one matrix", *merge)
    tensors, _ = write_adapter(adapter, decoder, modules, r=4, lora_alpha=8)
    stopped = subprocess.run(["env", "--block-signal=TERM", "sh", "-c", 'kill -TERM $$; exec "$0" "$@"',
                              test.program, *merge], stderr=subprocess.PIPE, text=True, check=False)
    test.check("SIGTERM ends a merge, and nothing is left", stopped.returncode == 143 and
               not [name for name in os.listdir(test.work) if name.startswith("refused")], stopped)
    path = adapter + "/adapter_model.safetensors"
    write_safetensors(path, {**tensors, PREFIX + modules[0] + ".lora_E.weight": torch.ones(2, 2)})
    refused("an unknown tensor", "lora_E.weight: it is neither", *merge)
    broken = dict(tensors)
    broken[PREFIX + modules[0] + ".lora_A.weight"] = tensors[PREFIX + modules[0] + ".lora_A.weight"] * math.inf
    write_safetensors(path, broken)
    refused("infinite numbers", "q_proj.lora_A.weight has a number that is not finite", *merge)
    write_safetensors(path, {name: tensor.long() for name, tensor in tensors.items()})
    refused("whole numbers", "dtype I64", *merge)
    with open(path, "rb") as file:
        content = file.read()
    for size in (0, 7, 8, 100, len(content) - 1):
        with open(path, "wb") as file:
            file.write(content[:size])
        refused(f"a file that ends at {size}", "adapter_model.safetensors", *merge)
    os.remove(path)
    refused("an adapter without weights", "no such file", *merge)
    with open(adapter + "/adapter_config.json", "w", encoding="utf-8") as file:
        file.write('{"r": 4, "r": 8}')
    refused("a key twice", '"r" is there twice', *merge)
    os.remove(adapter + "/adapter_config.json")
    refused("an adapter without configuration", "no such file", *merge)
    refused("no adapter", "no such file", "merge", "--model", model, "--adapter", "/none", "--out", out)


HOSTILE = [None, -1, 0, 10 ** 18, 2 ** 63, 1e308, "x", "../..", [], [None], {"a": {}}, True]


def check_hostile(test):
    """Any value under any key is taken or refused; nothing is left of what is refused."""
    adapter, out = test.work + "/hostile", test.work + "/hostile-out"
    shutil.rmtree(adapter, ignore_errors=True)
    shutil.copytree(test.work + "/adapter-2", adapter)
    with open(adapter + "/adapter_config.json", encoding="utf-8") as file:
        config = json.load(file)
    wrong = []
    for number, key in enumerate(sorted(config)):
        for value in (HOSTILE[number % len(HOSTILE)], HOSTILE[(number + 5) % len(HOSTILE)]):
            with open(adapter + "/adapter_config.json", "w", encoding="utf-8") as file:
                json.dump({**config, key: value}, file)
            ended = test.run("merge", "--model", test.work + "/model-2", "--adapter", adapter, "--out", out)
            left = [name for name in os.listdir(test.work) if name.startswith("hostile-out")]
            if ended.returncode not in (0, BAD_DATA) or (ended.returncode != 0 and left):
                wrong.append((key, value, ended, left))
            shutil.rmtree(out, ignore_errors=True)
    test.check(f"hostile values under {len(config)} keys", not wrong, wrong)


def main():
    program, work = sys.argv[1:]
    work = os.path.abspath(work)
    npm = llama_cpp.install(os.path.dirname(work))
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    test = Test(program, work, npm)
    check_merging(test)
    check_shards(test)
    check_llama_cpp(test, GGUF_CASES)
    check_llama_cpp(test, GGUF_BY_VULKAN, vulkan=True)
    check_mlx(test)
    check_refusals(test)
    check_hostile(test)
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Checks runs that train adapters: files, resuming, kills, generation, and what is refused.

usage: lora_runs.py TRAINER_PROGRAM

Runs the whole program on small random models. Exits with 77 (skipped) when there is no torch.
"""

import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from folders import Decoder, read_safetensors, write_folder, write_safetensors
from lora import LINEARS, PREFIX, Adapted, adapter_config, random_adapter
from model_folders import BAD_CONFIG, BAD_DATA, DIVERGED, KEPT, Test, make_llama, qwen2_folder, read_json

STEP = "/step-00000006"
LORA = ("--set", "lora.rank=4", "--set", "lora.dropout=0.2", "--set", "lora.dora=true",
        "--set", 'lora.modules_to_save=["embed_tokens", "model.norm"]')
FILES = ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"]


def same(test, what, one, other):
    for name in FILES + list(KEPT):
        with open(f"{one}/{name}", "rb") as first, open(f"{other}/{name}", "rb") as second:
            test.check(f"{what}: {name} is the same to the last byte",
                       first.read() == second.read())


def digest_of(folder):
    """Returns the digest of a base as its definition says."""
    lines = ""
    for name in sorted(os.listdir(folder)):
        if name == "config.json" or name.endswith(".safetensors"):
            with open(f"{folder}/{name}", "rb") as file:
                lines += f"{hashlib.sha256(file.read()).hexdigest()} {name}\n"
    return hashlib.sha256(lines.encode()).hexdigest()


def merged_weights(weights, config, adapter):
    """Returns the model's weights with the adapter's in them, in fp64."""
    merged = {name: tensor.double() for name, tensor in weights.items()}
    scale = config["lora_alpha"] / config["r"]
    for name, tensor in adapter.items():
        name = name[len(PREFIX):]
        if name.endswith(".lora_A.weight"):
            module = name[:-len(".lora_A.weight")]
            b = adapter[f"{PREFIX}{module}.lora_B.weight"].double()
            changed = merged[module + ".weight"] + scale * b @ tensor.double()
            length = adapter.get(f"{PREFIX}{module}.lora_magnitude_vector")
            if length is not None:
                changed *= (length.double() / changed.norm(dim=1))[:, None]
            merged[module + ".weight"] = changed
        elif "lora_" not in name:
            merged[name] = tensor.double()
    return merged


def check_training(test):
    folder, runs = test.directory + "/base", test.directory + "/runs"
    _, decoder, weights = qwen2_folder(folder)
    ended = test.train(folder, runs, *LORA)
    test.check("training adapters ends well", ended.returncode == 0, ended.stderr)
    step = runs + STEP
    test.check("the checkpoint holds no weights of the model", set(os.listdir(step)) == {
        *FILES, *KEPT, "state.json", "manifest.json"}, os.listdir(step))
    config = read_json(step + "/adapter_config.json")
    wanted = adapter_config(4, 16, 0.2, list(LINEARS), use_dora=True,
                            modules_to_save=["embed_tokens", "model.norm"],
                            base_model_name_or_path=folder)
    test.check("adapter_config.json is PEFT's",
               all(wanted.get(key) == value for key, value in config.items()), config)
    adapter = read_safetensors(step + "/adapter_model.safetensors")
    config["target_modules"] = LINEARS
    saved = ["model.embed_tokens.weight", "model.norm.weight"]
    expected = random_adapter(config, weights, saved, torch.float32, 1)
    test.check("the adapter has PEFT's names and shapes",
               {name: (t.shape, t.dtype) for name, t in adapter.items()} ==
               {name: (t.shape, t.dtype) for name, t in expected.items()})
    moved = [float(t.abs().max()) for name, t in adapter.items() if "lora_B" in name]
    test.check("B has moved from zero by six small steps", all(0 < most < 0.02 for most in moved))
    moments = {f"{kind}.{name[len(PREFIX):]}" for kind in ("exp_avg", "exp_avg_sq")
               for name in adapter}
    test.check("only what is trained has moments",
               set(read_safetensors(step + "/optimizer.safetensors")) == moments)
    test.check("state.json has the digest of the model",
               read_json(step + "/state.json")["base_digest"] == digest_of(folder))
    ended = test.run("inspect", step)
    test.check("inspect shows the adapter", ended.returncode == 0 and
               "layers.1.mlp.up_proj.lora_magnitude_vector" in ended.stdout, ended.stderr)
    return folder, runs, decoder, weights


def check_generation(test, folder, runs, decoder, weights):
    # A few small steps change no text. This adapter does.
    config = adapter_config(4, 8, 0.2, list(LINEARS), use_dora=True)
    adapter = random_adapter(config, weights, ["lm_head.weight"], torch.float32, 5)
    made = test.directory + "/made"
    os.makedirs(made)
    write_safetensors(made + "/adapter_model.safetensors", adapter)
    with open(made + "/adapter_config.json", "w") as file:
        json.dump(config, file)
    prompt = ("--prompt-ids", "5,6,7", "--tokens", "30", "--temperature", "0", "--stop-ids", "")

    def generate(*words):
        return test.run("generate", *words, *prompt)

    ended = generate("--model", folder, "--adapter", made)
    test.check("generate reads an adapter", ended.returncode == 0, ended.stderr)
    ids = torch.tensor([[int(token) for token in ended.stdout.split()]])
    wide = {name: tensor.double() for name, tensor in weights.items()}
    wide.update({name[len(PREFIX):]: tensor.double() for name, tensor in adapter.items()})
    best = Adapted(decoder, config, weights).decoder.logits(wide, ids)[0].argmax(-1)
    test.check("its text is that of the model with adapters", ids.shape == (1, 33) and
               torch.equal(best[2:-1], ids[0, 3:]), ids)
    merged = test.directory + "/merged"
    shutil.copytree(folder, merged)
    for name in os.listdir(merged):
        if "safetensors" in name:
            os.remove(f"{merged}/{name}")
    write_safetensors(merged + "/model.safetensors", {
        name: tensor.float() for name, tensor in merged_weights(weights, config, adapter).items()})
    test.check("and that of merged weights", generate("--model", merged).stdout == ended.stdout)
    test.check("and not that of the model", generate("--model", folder).stdout != ended.stdout)
    one = generate("--checkpoint", runs + STEP, "--model", folder)
    other = generate("--model", folder, "--adapter", runs + STEP)
    test.check("a checkpoint is an adapter", one.returncode == 0 and one.stdout == other.stdout,
               one.stderr)

    def refused(what, part, *words, code=BAD_CONFIG):
        ended = generate(*words)
        test.check(f"generate refuses {what}", ended.returncode == code and part in ended.stderr,
                   ended.returncode, ended.stderr)

    refused("adapters without their model", "--model", "--checkpoint", runs + STEP)
    refused("another model", "another model", "--checkpoint", runs + STEP, "--model", merged)
    words = ("--prompt-ids", "5,6,7", "--tokens", "4", "--temperature", "0")
    test.check_read_once("generate", ("generate", "--model", folder, "--adapter", runs + STEP,
                                      *words),
                         ("generate", "--model", folder, "--checkpoint", runs + STEP, *words),
                         runs + STEP + "/adapter_model.safetensors")
    damaged = test.directory + "/damaged"
    shutil.copytree(runs + STEP, damaged)
    with open(damaged + "/adapter_model.safetensors", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\xff\xff\xff\xff")  # not a number
    refused("a damaged adapter", "adapter_model.safetensors has another digest", "--checkpoint",
            damaged, "--model", folder, code=BAD_DATA)
    small = test.directory + "/another-shape"
    make_llama(small)
    refused("a model of another shape", "another model", "--checkpoint", runs + STEP, "--model",
            small)
    refused("an adapter without a model", "give one of", "--adapter", made)
    refused("two adapters", "--adapter", "--checkpoint", runs + STEP, "--model", folder,
            "--adapter", made)
    refused("a model as an adapter", "adapter_config.json", "--model", folder, "--adapter", merged,
            code=BAD_DATA)
    refused("an empty name", "names no folder", "--model", folder, "--adapter", "")
    refused("no folder", "no such directory", "--model", folder, "--adapter", made + "/none",
            code=BAD_DATA)
    return made


def check_resume(test, folder, runs):
    parted = test.directory + "/parted"
    os.makedirs(parted)
    shutil.copytree(runs + "/step-00000003", parted + "/step-00000003")

    def refused(what, part, *words, base=folder, code=BAD_CONFIG):
        ended = test.train(base, parted, "--resume", "auto", *words)
        test.check(f"resume refuses {what}", ended.returncode == code and part in ended.stderr,
                   ended.returncode, ended.stderr)

    other = test.directory + "/other-base"
    shutil.copytree(folder, other)
    with open(other + "/model-00002-of-00002.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    refused("a model that differs in one bit", "another model", *LORA, base=other)
    refused("a model that is gone", "no such directory", *LORA, base=test.directory + "/gone",
            code=BAD_DATA)
    refused("another rank", "lora.rank was 4, is 5", *LORA, "--set", "lora.rank=5")
    refused("other targets", "lora.targets was", *LORA, "--set", "lora.targets=q_proj")
    refused("training the whole model", "it holds adapters")
    ended = test.train(folder, parted, *LORA, "--resume", "auto")
    test.check("resume goes on", ended.returncode == 0 and ended.stderr == "", ended.stderr)
    same(test, "the resumed run", parted + STEP, runs + STEP)
    whole = test.directory + "/whole"
    ended = test.train(folder, whole)
    test.check("the whole model is trained as before", ended.returncode == 0, ended.stderr)
    ended = test.train(folder, whole, *LORA, "--resume", "auto")
    test.check("adapters refuse the checkpoint of a whole model",
               ended.returncode == BAD_CONFIG and "it holds a whole model" in ended.stderr,
               ended.stderr)
    moved = test.directory + "/moved-base"
    shutil.copytree(folder, moved)
    shutil.rmtree(parted + STEP)
    ended = test.train(moved, parted, *LORA, "--resume", "auto")
    test.check("the model may lie elsewhere", ended.returncode == 0 and ended.stderr == "",
               ended.stderr)


def check_kills(test, folder):
    """Kills a run again and again, wherever it is, and lets it go on."""
    more = (*LORA, "--set", "train.steps=40", "--set", "checkpoint.every=1", "--set",
            "train.eval_windows=1")
    straight, killed = test.directory + "/straight", test.directory + "/killed"
    ended = test.train(folder, straight, *more)
    test.check("the straight run ends well", ended.returncode == 0, ended.stderr)
    chooser, kills = random.Random(7), 0
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("GPUCTL_")}
    words = [test.program, "train", "--config", test.config, "--set", "data.tokens=bytes",
             "--init", folder, "--checkpoint-dir", killed, *more, "--resume", "auto"]
    for _ in range(12):
        with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as child:
            try:
                child.wait(timeout=chooser.uniform(0.05, 1.0))
            except subprocess.TimeoutExpired:
                child.kill()
                kills += 1
    ended = test.train(folder, killed, *more, "--resume", "auto")
    test.check(f"after {kills} kills the run still ends", ended.returncode == 0, ended.stderr)
    same(test, "the killed run", killed + "/step-00000040", straight + "/step-00000040")


def check_start_from_adapter(test, folder, made, weights):
    """Starts from adapters made elsewhere. With lr 0 the run saves what it has read."""
    given = read_safetensors(made + "/adapter_model.safetensors")

    def start(adapter, runs, *more):
        return test.train(folder, test.directory + runs, "--set", "lora.init=" + adapter,
                          "--set", "optimizer.lr=0", "--set", "optimizer.weight_decay=0", *more)

    ended = start(made, "/from-adapter")
    test.check("training starts from an adapter", ended.returncode == 0, ended.stderr)
    step = test.directory + "/from-adapter" + STEP
    kept = read_safetensors(step + "/adapter_model.safetensors")
    test.check("with its values", set(kept) == set(given) and
               all(torch.equal(kept[name], given[name]) for name in given))
    config = read_json(step + "/adapter_config.json")
    test.check("and its settings",
               (config["r"], config["lora_alpha"], config["lora_dropout"], config["use_dora"],
                config["target_modules"], config["modules_to_save"]) ==
               (4, 8, 0.2, True, list(LINEARS), ["lm_head"]), config)
    moved = test.directory + "/moved-adapter"
    shutil.copytree(test.directory + "/from-adapter/step-00000003",
                    moved + "/step-00000003")
    ended = start(test.directory + "/gone", "/moved-adapter", "--resume", "auto")
    test.check("resuming does not need the adapter", ended.returncode == 0 and ended.stderr == "",
               ended.stderr)
    same(test, "the resumed one", moved + STEP, step)
    part = test.directory + "/part"
    os.makedirs(part)
    few = {name: t.bfloat16() for name, t in given.items() if "layers.1.mlp.up_proj" in name}
    write_safetensors(part + "/adapter_model.safetensors", few)
    with open(part + "/adapter_config.json", "w") as file:
        json.dump(adapter_config(4, 8, 0, r".*\.1\..*up_proj", use_dora=True), file)
    ended = start(part, "/from-part")
    config = read_json(test.directory + "/from-part" + STEP + "/adapter_config.json")
    test.check("modules by a regular expression are those of the tensors", ended.returncode == 0 and
               config["target_modules"] == ["model.layers.1.mlp.up_proj"], config, ended.stderr)


def check_dropout_changes(test, folder, made):
    """Where all windows are alike and nothing is learned, only dropout tells steps apart."""
    text = test.directory + "/alike.txt"
    with open(text, "w") as file:
        file.write("a" * 20000)

    def losses(adapter):
        ended = test.run("train", "--config", test.config, "--init", folder, "--data", text,
                         "--set", "data.tokens=bytes", "--set", "lora.init=" + adapter,
                         "--set", "optimizer.lr=0")
        return {line.split()[3] for line in ended.stdout.splitlines() if line.startswith("step ")}

    without = test.directory + "/without-dropout"
    shutil.copytree(made, without)
    with open(without + "/adapter_config.json", "w") as file:
        json.dump(dict(read_json(made + "/adapter_config.json"), lora_dropout=0), file)
    test.check("without dropout all steps are alike", len(losses(without)) == 1, losses(without))
    test.check("with it no two steps are", len(losses(made)) == 6, losses(made))


def check_bad_adapters(test, folder, made):
    def case(what, part, change=None, keys=None, break_it=None, base=folder):
        bad = test.directory + "/bad-adapter"
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(made, bad)
        if change:
            tensors = read_safetensors(bad + "/adapter_model.safetensors")
            change(tensors)
            write_safetensors(bad + "/adapter_model.safetensors", tensors)
        config = dict(read_json(bad + "/adapter_config.json"), **(keys or {}))
        with open(bad + "/adapter_config.json", "w") as file:
            json.dump(config, file)
        if break_it:
            break_it(bad)
        trained = test.train(base, test.directory + "/refused", "--set", "lora.init=" + bad)
        generated = test.run("generate", "--model", base, "--adapter", bad, "--prompt-ids", "1")
        for verb, ended in (("train", trained), ("generate", generated)):
            test.check(f"{verb} refuses {what}",
                       ended.returncode == BAD_DATA and part in ended.stderr,
                       ended.returncode, ended.stderr)

    q = PREFIX + "model.layers.0.self_attn.q_proj.lora_A.weight"
    case("a missing tensor", "missing: " + q, lambda t: t.pop(q))
    case("another shape", q + " is [4, 31], not [4, 32]", lambda t: t.update({q: t[q][:, 1:]}))
    case("another rank than its own", "not [5, 32]", keys={"r": 5})
    case("another dtype", "dtype F64", lambda t: t.update({q: t[q].double()}))
    case("an adapter of the embedding", "lora_embedding_A belongs to nothing",
         lambda t: t.update({PREFIX + "model.embed_tokens.lora_embedding_A": torch.ones(4, 270)}))
    case("an adapter of the head", "\"lm_head\" means no module",
         lambda t: t.update({PREFIX + "lm_head.lora_A.weight": torch.ones(4, 32)}))
    case("a layer too many", "layers.7", lambda t: t.update({q.replace("0", "7"): t[q]}))
    case("a name without the prefix", "belongs to nothing", lambda t: t.update({"x": t[q]}))
    case("names with a pattern", "belongs to nothing",
         lambda t: t.update({PREFIX + "*.lora_A.weight": t[q]}))
    case("no adapter in it", "it has no lora_A", lambda t: [
        t.pop(name) for name in list(t) if "lora_" in name])
    case("magnitudes without DoRA", "not a part", keys={"use_dora": False})
    case("another kind", "peft_type: IA3", keys={"peft_type": "IA3"})
    case("other ranks", "rank_pattern: modules differ", keys={"rank_pattern": {"q_proj": 2}})
    case("a file of the old kind", "adapter_model.safetensors: no such file",
         break_it=lambda f: os.rename(f + "/adapter_model.safetensors",
                                      f + "/adapter_model.bin"))
    case("no settings", "adapter_config.json: no such file",
         break_it=lambda f: os.remove(f + "/adapter_config.json"))

    def write(text):
        def put(bad):
            with open(bad + "/adapter_config.json", "wb") as file:
                file.write(text)
        return put

    case("settings that are no object", "JSON object", break_it=write(b"[]"))
    case("deep settings", "nested too deeply", break_it=write(b"[" * 100000))
    case("a truncated file", "shorter",
         break_it=lambda f: os.truncate(f + "/adapter_model.safetensors", 20000))
    tied = test.directory + "/tied"
    make_llama(tied)
    for only in ("model.embed_tokens.weight", "lm_head.weight"):
        case(f"only {only} of a tied head", "only one of",
             lambda t: (t.clear(), t.update({
                 q: torch.ones(4, 16), q.replace("_A", "_B"): torch.ones(16, 4),
                 PREFIX + only: torch.ones(260, 16)})), {"use_dora": False}, base=tied)
    case("two different tied heads", "differ", lambda t: (t.clear(), t.update({
        q: torch.ones(4, 16), q.replace("_A", "_B"): torch.ones(16, 4),
        PREFIX + "lm_head.weight": torch.ones(260, 16),
        PREFIX + "model.embed_tokens.weight": torch.zeros(260, 16)})), {"use_dora": False},
         base=tied)


def check_bad_settings(test, folder):
    def refused(what, part, *words, init=folder):
        ended = test.train(init, test.directory + "/refused", *words)
        test.check(f"training refuses {what}", ended.returncode == BAD_CONFIG and
                   part in ended.stderr, ended.returncode, ended.stderr)

    rank = ("--set", "lora.rank=4")
    refused("targets that mean nothing", "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
            "down_proj", *rank, "--set", "lora.targets=query")
    refused("frozen weights beside adapters", "train.freeze and adapters", *rank, "--set",
            "train.freeze=model.norm.weight")
    refused("a part of one matrix", "one matrix", *rank, "--set", "lora.targets=o_proj", "--set",
            "lora.modules_to_save=q_proj")
    refused("settings without a rank", "lora.rank is 0", "--set", "lora.alpha=3")
    ended = test.run("train", "--config", test.config, *rank)
    test.check("training refuses adapters without a model", ended.returncode == BAD_CONFIG and
               "model.init" in ended.stderr, ended.stderr)


def check_packed(test, folder):
    """The model's matrices in 4 bits."""
    runs, parted = test.directory + "/packed", test.directory + "/packed-parted"
    packed = ("--set", "lora.rank=4", "--set", "lora.targets=q_proj", "--set",
              "lora.base_dtype=nf4")
    ended = test.train(folder, runs, *packed)
    test.check("training beside packed matrices ends well", ended.returncode == 0, ended.stderr)
    os.makedirs(parted)
    shutil.copytree(runs + "/step-00000003", parted + "/step-00000003")
    ended = test.train(folder, parted, *packed[:-2], "--resume", "auto")
    test.check("resume refuses dense ones", ended.returncode == BAD_CONFIG and
               "lora.base_dtype was" in ended.stderr, ended.stderr)
    ended = test.train(folder, parted, *packed, "--resume", "auto")
    test.check("resume goes on with packed ones", ended.returncode == 0 and ended.stderr == "",
               ended.stderr)
    same(test, "the packed one", parted + STEP, runs + STEP)
    plain = test.directory + "/plain"
    test.train(folder, plain, *packed[:-2])
    test.check("packing changes what is trained", not torch.equal(*(
        read_safetensors(where + STEP + "/adapter_model.safetensors")[
            PREFIX + "model.layers.0.self_attn.q_proj.lora_B.weight"] for where in (runs, plain))))
    bad = test.directory + "/packed-nan"
    make_llama(bad, change=lambda w: w["model.layers.0.mlp.up_proj.weight"].view(-1).__setitem__(
        3, float("inf")))
    ended = test.train(bad, test.directory + "/refused", *packed)
    test.check("weights that are not finite are refused", ended.returncode == BAD_DATA and
               "mlp.up_proj.weight has a value" in ended.stderr, ended.returncode, ended.stderr)


def check_tied(test):
    """A tied embedding is saved as PEFT has it, twice, and stays one."""
    folder, runs = test.directory + "/tied-base", test.directory + "/tied-runs"
    make_llama(folder)
    more = ("--set", "lora.rank=2", "--set", "lora.modules_to_save=embed_tokens")
    ended = test.train(folder, runs, *more)
    test.check("a tied embedding is trained", ended.returncode == 0, ended.stderr)
    adapter = read_safetensors(runs + STEP + "/adapter_model.safetensors")
    test.check("and saved under both names",
               torch.equal(adapter[PREFIX + "lm_head.weight"],
                           adapter[PREFIX + "model.embed_tokens.weight"]) and
               read_json(runs + STEP + "/adapter_config.json")["modules_to_save"] ==
               ["embed_tokens", "lm_head"])
    shutil.rmtree(runs + STEP)
    ended = test.train(folder, runs, *more, "--resume", "auto")
    test.check("and resumed", ended.returncode == 0 and ended.stderr == "", ended.stderr)


def check_divergence(test, folder):
    """A step that is not finite is not taken, and the checkpoints before it stay as they are."""
    huge = test.directory + "/huge-base"
    make_llama(huge, change=lambda w: w["model.layers.0.self_attn.q_proj.weight"].fill_(3e38))
    for way, *flags in (["LoRA"], ["QLoRA", "--set", "lora.base_dtype=nf4"]):
        flags = ("--set", "lora.rank=4", *flags, "--set", "checkpoint.every=1", "--set",
                 "checkpoint.keep_last=20")
        whole, runs, none = (f"{test.directory}/{way}-{name}" for name in ("whole", "bad", "none"))
        test.train(folder, whole, *flags)
        os.makedirs(runs)
        for step in (1, 2, 3):
            shutil.copytree(f"{whole}/step-0000000{step}", f"{runs}/step-0000000{step}")
        ended = test.train(folder, runs, *flags, "--resume", "auto", "--set", "optimizer.lr=1e30",
                           "--set", "optimizer.grad_clip=0")
        found = re.search(r"step (\d): .* is not finite .*and so is the gradient of .*lora_.* "
                          r"the weights are those after step (\d)", ended.stderr)
        test.check(f"{way}: weights that become infinite end a run, and name a tensor",
                   ended.returncode == DIVERGED and found, ended)
        step, last = (int(number) for number in found.groups()) if found else (0, 0)
        test.check(f"{way}: the step {step} is not taken", last == step - 1 > 3 and
                   max(os.listdir(runs)) == f"step-0000000{last}", os.listdir(runs))
        ended = test.run("inspect", f"{runs}/step-0000000{last}")
        test.check(f"{way}: the last checkpoint is whole", ended.returncode == 0, ended)
        for left in range(4, last + 1):
            shutil.rmtree(f"{runs}/step-0000000{left}")
        ended = test.train(folder, runs, *flags, "--resume", "auto")
        test.check(f"{way}: an earlier one goes on", ended.returncode == 0, ended)
        same(test, f"{way}: as if nothing had been", runs + STEP, whole + STEP)
        ended = test.train(huge, none, *flags)
        test.check(f"{way}: a model whose products are infinite ends before its first step",
                   ended.returncode == DIVERGED and "step 1: the loss is not finite" in ended.stderr and
                   not any("step" in name for name in os.listdir(none)), ended, os.listdir(none))


def wide_folder(folder):
    """A model of some MB in two files, with a head that is not its own. Returns the bytes of the head, which only
    a digest needs, and of all."""
    config = {"model_type": "llama", "vocab_size": 4000, "hidden_size": 256, "intermediate_size": 512,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_theta": 1e4,
              "tie_word_embeddings": True}
    weights = Decoder(2, 256, 4, 2, 512, 4000).random_weights()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    write_folder(folder, config, weights, 2)
    return 4 * 4000 * 256, sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder))


def check_one_pass(test):
    """A run that starts afresh hashes the base beside the training; what resumes reads it once, for all."""
    if not os.path.exists("/proc/self/io"):
        return print("skipped: bytes read, without /proc/self/io")
    base, runs, bare = (f"{test.directory}/wide-{name}" for name in ("base", "runs", "bare"))
    head, size = wide_folder(base)
    for way, *flags in (["LoRA"], ["QLoRA", "--set", "lora.base_dtype=nf4"]):
        shutil.rmtree(runs, ignore_errors=True)
        train = ("train", "--config", test.config, "--set", "data.tokens=bytes", "--init", base,
                 "--set", "lora.rank=8", "--set", "lora.targets=q_proj", *flags)
        plain, first = test.bytes_read(*train)
        saved, second = test.bytes_read(*train, "--checkpoint-dir", runs)
        more = saved - plain
        test.check(f"{way}: with checkpoints a run reads {more} bytes more, of a base of {size}",
                   first.returncode == second.returncode == 0 and abs(more - size) < size / 100,
                   first.stderr, second.stderr)
        state = read_json(runs + STEP + "/state.json")
        test.check(f"{way}: they have the digest of the base", state["base_digest"] == digest_of(base))
        shutil.rmtree(runs + STEP)
        again, third = test.bytes_read(*train, "--checkpoint-dir", runs, "--resume", "auto")
        more = again - plain - head
        test.check(f"{way}: to resume reads {more} bytes more, with the checkpoint",
                   third.returncode == 0 and abs(more) < size / 50, third.stderr)
    shutil.copytree(runs + STEP, bare)
    os.remove(bare + "/manifest.json")
    check_merge_reads_once(test, base, bare, runs + STEP)


def check_merge_reads_once(test, base, bare, step):
    def merge(adapter, out, model=base):
        return ("merge", "--model", model, "--adapter", adapter, "--out", out)

    plain, first = test.bytes_read(*merge(bare, bare + "-merged"))
    checked, second = test.bytes_read(*merge(step, step + "-merged"))
    adapter = os.path.getsize(step + "/adapter_model.safetensors")
    test.check(f"merge reads {checked - plain} bytes more of a checkpoint, whose adapter has {adapter}",
               first.returncode == second.returncode == 0 and checked - plain < adapter / 2,
               first.stderr, second.stderr)
    with open(bare + "-merged/model.safetensors", "rb") as one, \
            open(step + "-merged/model.safetensors", "rb") as other:
        test.check("to the same model", one.read() == other.read())
    other = base + "-other"
    for name, change in (("an unchanged", "lm_head.weight"), ("a changed", "q_proj.weight")):
        shutil.copytree(base, other)
        for shard in (1, 2):
            path = f"{other}/model-0000{shard}-of-00002.safetensors"
            tensors = read_safetensors(path)
            for found in [found for found in tensors if change in found]:
                tensors[found][-1, -1] += 1
            write_safetensors(path, tensors)
        ended = test.run(*merge(step, other + "-merged", other))
        left = [left for left in os.listdir(test.directory) if "wide-base-other-merged" in left]
        test.check(f"merge refuses a base with {name} weight of another, and leaves nothing",
                   ended.returncode == BAD_CONFIG and "another model" in ended.stderr and not left,
                   ended, left)
        shutil.rmtree(other)
    with open(step + "/adapter_model.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x42")
    for ended in (test.run(*merge(step, other)), test.run(
            "export", "--model", base, "--adapter", step, "--to", "gguf-lora", "--out", other)):
        test.check("a damaged adapter is refused", ended.returncode == BAD_DATA and
                   "adapter_model.safetensors has another digest" in ended.stderr and
                   not os.path.exists(other), ended)


def main():
    program, = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        test = Test(program, directory)
        folder, runs, decoder, weights = check_training(test)
        made = check_generation(test, folder, runs, decoder, weights)
        check_resume(test, folder, runs)
        check_start_from_adapter(test, folder, made, weights)
        check_dropout_changes(test, folder, made)
        check_bad_adapters(test, folder, made)
        check_bad_settings(test, folder)
        check_packed(test, folder)
        check_tied(test)
        check_divergence(test, folder)
        check_one_pass(test)
        check_kills(test, folder)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

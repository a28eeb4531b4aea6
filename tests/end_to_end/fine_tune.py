#!/usr/bin/env python3
"""A model folder and rows of text, fine-tuned: what gpuctl prepares here, sends, checks and brings
home.

  fine_tune.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import array
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess

from rent_world import run_tests, write
from trainer import jobs, ssh_machine, use_memory

LAYERS, HEADS, KV_HEADS, VOCABULARY = 2, 4, 2, 260
START, END = 256, 257
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SENT = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json"]


def byte_letters():
    """The letter of each byte in a byte-level vocabulary (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain},
            **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def write_tokenizer(folder, swapped=False):
    """Each byte is a token. `swapped`: another tokenizer, with two of them exchanged."""
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    if swapped:
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    added = [{"id": i, "content": text, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}
             for i, text in ((START, "<|im_start|>"), (END, "<|im_end|>"))]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
             "use_regex": True}
    write(folder + "/tokenizer.json", json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))
    write(folder + "/tokenizer_config.json", json.dumps(
        {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))


def shapes(d, ffn):
    kv = d // HEADS * KV_HEADS
    yield "model.embed_tokens.weight", [VOCABULARY, d]
    yield "model.norm.weight", [d]
    for layer in range(LAYERS):
        block = {"input_layernorm.weight": [d], "post_attention_layernorm.weight": [d],
                 "self_attn.q_proj.weight": [d, d], "self_attn.q_proj.bias": [d],
                 "self_attn.k_proj.weight": [kv, d], "self_attn.k_proj.bias": [kv],
                 "self_attn.v_proj.weight": [kv, d], "self_attn.v_proj.bias": [kv],
                 "self_attn.o_proj.weight": [d, d], "mlp.gate_proj.weight": [ffn, d],
                 "mlp.up_proj.weight": [ffn, d], "mlp.down_proj.weight": [d, ffn]}
        for name, shape in block.items():
            yield "model.layers.%d.%s" % (layer, name), shape


def write_model(folder, d=32, ffn=64, deviation=0.2, seed=1, **config):
    """A random model of the shape of Qwen2, with files beside it that nobody reads."""
    chooser = random.Random(seed)
    header, data = {}, b""
    for name, shape in shapes(d, ffn):
        values = [1.0 if "norm" in name else chooser.gauss(0, deviation)
                  for _ in range(math.prod(shape))]
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(folder)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    write(folder + "/config.json", json.dumps({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": d,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "rope_theta": 10000.0,
        "num_key_value_heads": KV_HEADS, "intermediate_size": ffn, "vocab_size": VOCABULARY,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
        "hidden_act": "silu", "torch_dtype": "float32", "eos_token_id": END, **config}))
    write(folder + "/generation_config.json", json.dumps({"eos_token_id": END}))
    write_tokenizer(folder)
    write(folder + "/pytorch_model.bin", "the same weights in another format")
    write(folder + "/original/consolidated.00.pth", "and once more")
    write(folder + "/.gpuctlignore", "*\n")  # as merge leaves it: a run gets its model all the same


def write_rows(path, count=60, seed=1):
    chooser = random.Random(seed)
    lines = []
    for _ in range(count):
        a, b = chooser.randrange(10), chooser.randrange(10)
        lines.append(json.dumps({"messages": [
            {"role": "user", "content": "%d and %d" % (a, b)},
            {"role": "assistant", "content": "make %d" % (a + b)}]}))
    write(path, "\n".join(lines) + "\n")


def project(w, model="base", data="rows.jsonl", **sections):
    """A work directory with a model folder, rows and a run file. Returns the run file's path."""
    home = os.path.join(w.dir, "project")
    if not os.path.exists(home):
        write_model(home + "/base")
        write_rows(home + "/rows.jsonl")
    settings = {"model": {"init": model, "context": 64}, "data": {"paths": data},
                "lora": {"rank": 4}, "optimizer": {"lr": 0.02, "warmup_steps": 1},
                "train": {"steps": 12, "batch": 4, "threads": 1, "device": "cpu", "eval_every": 6},
                "checkpoint": {"every": 6}}
    if str(data).endswith(".jsonl"):
        settings["data"]["held_out_fraction"] = 0.1
    for section, keys in sections.items():
        settings[section] = {**settings.get(section, {}), **keys}
    write(home + "/run.yaml", json.dumps({"trainer": settings}))
    return home + "/run.yaml"


def launch(w, run_file, name, *flags):
    done = w.run("launch", run_file, "-y", "--name", name, *flags)
    run = next(r for r in w.json("ps", "-a")["runs"] if r["name"] == name)
    assert (run["status"], run["step"]) == ("succeeded", 12), (run, done)
    return done


def trainer(w, *words):
    program = os.path.join(os.path.dirname(w.gpuctl), "gpuctl-trainer")
    done = subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=300, check=False)
    assert done.returncode == 0, (words, done)
    return done.stdout.decode()


def job_of(w):
    """The work directory of the newest job."""
    return max(jobs(w), key=lambda path: os.stat(path).st_ctime)


def test_a_model_is_fine_tuned_and_answers(w):
    run_file = project(w, sample={"prompts": ["1 and 2"], "tokens": 8})
    home = os.path.dirname(run_file)
    w.env["GPUCTL_NODE_ROOT"] = w.root
    done = launch(w, run_file, "tuned-1", "--provider", "local")
    assert b"preparing the rows of rows.jsonl with the tokenizer of base" in done.stderr, done
    assert b"tokens, of which" in done.stderr, done
    # Only what the trainer reads is there, and nothing of it twice.
    work = job_of(w)
    assert sorted(os.listdir(work + "/base")) == SENT, os.listdir(work + "/base")
    assert sorted(os.listdir(work)) == [".gpuctl", "base", "run.yaml"], os.listdir(work)
    assert sorted(os.listdir(work + "/.gpuctl/data")) == [
        "dataset.json", "held_out.ends", "held_out.tokens", "prompts.json", "train.ends",
        "train.tokens"]
    (checkpoint,) = w.json("pull", "tuned-1")["checkpoints"]
    path = os.path.join(w.work, checkpoint["path"])
    assert checkpoint["verified"], checkpoint
    check_checkpoint_of_adapter(path)
    merged = os.path.join(w.dir, "merged")
    trainer(w, "merge", "--model", home + "/base", "--adapter", path, "--out", merged)
    answers = [trainer(w, "generate", *model, "--chat", "1 and 2", "--temperature", "0",
                       "--tokens", "8")
               for model in (["--model", merged], ["--model", home + "/base", "--adapter", path],
                             ["--model", home + "/base"])]
    assert answers[0] == answers[1] != answers[2] and answers[0].strip(), answers
    # The job, which has no tokenizer, showed the same answer.
    shown = [line for line in w.run("logs", "tuned-1").stdout.decode().splitlines()
             if line.startswith("sample  1 and 2 → ")]
    assert len(shown) == 2 and shown[-1].endswith(" → " + answers[0].splitlines()[0]), (shown, answers)
    # It goes on from the adapter, also as a new run.
    run_file = project(w, lora={"init": path})
    settings = json.load(open(run_file, encoding="utf-8"))
    del settings["trainer"]["lora"]["rank"]
    write(run_file, json.dumps(settings))
    launch(w, run_file, "more-1", "--provider", "local")
    assert os.path.exists(job_of(w) + "/.gpuctl/adapter/adapter_model.safetensors")


def test_pairs_of_answers_are_learned(w):
    """DPO: the right sums are preferred, by launch as by preflight."""
    w.env["GPUCTL_NODE_ROOT"] = w.root
    run_file = project(w, data="pairs.jsonl", train={"steps": 12, "batch": 4})
    home = os.path.dirname(run_file)
    chooser = random.Random(3)
    write(home + "/pairs.jsonl", "".join(
        json.dumps({"prompt": "%d and %d" % (a, b), "chosen": "make %d" % (a + b),
                    "rejected": "are %d" % (a + b + 1)}) + "\n"
        for a, b in ((chooser.randrange(10), chooser.randrange(10)) for _ in range(60))))
    done = w.run("preflight", run_file)
    assert b"pairs of windows" in done.stdout, done
    launch(w, run_file, "pairs-1", "--provider", "local")
    lines = w.run("logs", "pairs-1").stdout.decode().splitlines()
    losses = [float(found[1]) for found in (re.search(r"^step .* loss ([0-9.]+)  accuracy ", line)
                                            for line in lines) if found]
    assert len(losses) == 12 and losses[0] > 0.69 and sum(losses[-3:]) / 3 < 0.4, lines
    (checkpoint,) = w.json("pull", "pairs-1")["checkpoints"]
    check_checkpoint_of_adapter(os.path.join(w.work, checkpoint["path"]))


def check_checkpoint_of_adapter(path):
    names = os.listdir(path)
    assert "adapter_config.json" in names and "adapter_model.safetensors" in names, names


def test_mfu_counts_the_head_for_tokens_that_are_learned(w):
    w.env["GPUCTL_NODE_ROOT"] = w.root
    operations, learned = {}, {}
    for mask in ("all", "last"):
        run_file = project(w, data="rows.jsonl", train={"log_every": 12, "peak_tflops": 1})
        launch(w, run_file, mask + "-1", "--provider", "local", "--set", "data.mask=" + mask)
        with open(os.path.dirname(job_of(w)) + "/metrics.jsonl", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        line, = [line for line in lines if "mfu" in line]
        operations[mask] = line["mfu"] * 1e12 / line["tokens_per_s"]
        learned[mask] = line["tokens"]
    assert 0 < 2 * learned["last"] < learned["all"], learned
    # The head is the frozen embedding: forward and backward, but no gradient of its own. With "all"
    # nearly every token has a target; how many there are is an estimate.
    head = 4 * VOCABULARY * 32
    saved = (operations["all"] - operations["last"]) / head
    assert 0.9 < saved / (1 - learned["last"] / learned["all"]) < 1.1, (operations, learned)


def test_rows_are_prepared_once(w):
    run_file = project(w)
    home = os.path.dirname(run_file)
    kept = os.path.join(w.env["GPUCTL_STATE_DIR"], "prepared")

    def prepares(*flags):
        done = w.run("launch", run_file, "--dry-run", "--provider", "local", *flags)
        return b"preparing the rows" in done.stderr

    assert prepares() and not prepares()
    # Rows that lose their end are told of each time.
    for _ in range(2):
        done = w.run("launch", run_file, "--dry-run", "--provider", "local", "--set",
                     "model.context=28")
        assert re.search(rb"\d+ of \d+ rows are longer than model.context \(28\) and lose their "
                         rb"end, \d+ tokens", done.stderr), done
    # The name of a file means nothing, its rows do; so do the tokenizer and the settings.
    os.rename(home + "/rows.jsonl", home + "/others.jsonl")
    run_file = project(w, data="others.jsonl")
    assert not prepares()
    for option in ("data.mask=last", "data.mask=all", "data.held_out_fraction=0.3",
                   "model.context=32"):
        assert prepares("--trainer", option) and not prepares("--trainer", option), option
    asked = ("--trainer", "sample.tokens=8", "--trainer", "sample.prompts=[\"1 and 2\"]")
    assert prepares(*asked) and not prepares(*asked) and not prepares()
    write(home + "/short.jinja", TEMPLATE.replace("\n", " "))
    option = "data.template=short.jinja"
    assert prepares("--trainer", option) and not prepares("--trainer", option)
    write(home + "/short.jinja", TEMPLATE.replace("\n", "  "))
    assert prepares("--trainer", option)
    write_rows(home + "/others.jsonl", seed=2)
    assert prepares() and not prepares()
    write_tokenizer(home + "/base", swapped=True)
    assert prepares() and not prepares()
    # What was prepared and is damaged is made again.
    for path in glob.glob(kept + "/*/train.ends"):
        write(path, "")
    assert prepares() and not prepares()


def test_runs_that_start_together_prepare_once(w):
    run_file = project(w)
    write_rows(os.path.dirname(run_file) + "/rows.jsonl", count=30000)
    started = [w.start("launch", run_file, "--dry-run", "--provider", "local") for _ in range(4)]
    said = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said
    assert sum(b"gpuctl: prepared " in text for text in said) == 1, said


def test_prepare_is_that_of_the_trainer(w):
    home = os.path.dirname(project(w))
    ours, theirs = os.path.join(w.dir, "ours"), os.path.join(w.dir, "theirs")
    flags = ["--model", home + "/base", "--held-out", "0.2", "--context", "32"]
    flags += ["--prompt", "1 and 2", "--prompt", "3"]
    done = w.run("prepare", home + "/rows.jsonl", "--out", ours, "--mask", "last", *flags)
    trainer(w, "prepare", "--data", home + "/rows.jsonl", "--out", theirs, "--mask", "last", *flags)
    assert "prompts.json" in os.listdir(theirs)
    for name in os.listdir(theirs):
        with open(ours + "/" + name, "rb") as one, open(theirs + "/" + name, "rb") as other:
            assert one.read() == other.read(), name
    assert "\u27e6make ".encode() in done.stdout and b"\x1b" not in done.stdout, done
    report = w.json("prepare", "--data", home + "/rows.jsonl", "--out", ours, *flags)
    assert report["folder"] == ours and report["report"], report
    # Bad rows are named, each on its line, and change nothing.
    with open(home + "/rows.jsonl", "a", encoding="utf-8") as file:
        file.write("no JSON\n{}\n")
    before = os.stat(ours + "/dataset.json").st_mtime_ns
    done = w.run("prepare", home + "/rows.jsonl", "--out", ours, *flags, code=1)
    assert b"prepare: 2 rows cannot be used" in done.stderr, done
    assert ("\n  %s/rows.jsonl:62: " % home).encode() in done.stderr, done
    assert os.stat(ours + "/dataset.json").st_mtime_ns == before
    w.run("prepare", home + "/rows.jsonl", "--out", ours, *flags, "--bad-rows", "skip")
    for words in (["--mask", "some"], ["--held-out", "2"], ["--context", "0"], ["--show", "x"]):
        w.run("prepare", home + "/rows.jsonl", "--out", ours, *flags, *words, code=2)
    w.run("prepare", home + "/rows.jsonl", "--model", home + "/base", code=2)


def refused(w, run_file, *says):
    """Expects that the launch is refused before anything is rented."""
    for target in (["--provider", "vast"], ["--provider", "local"]):
        done = w.run("launch", run_file, "-y", *target, code=2)
        for text in says:
            assert text in done.stderr, (text, done)
    assert w.creates() == [] and w.json("ps", "-a")["runs"] == []


def test_what_cannot_be_trained_is_refused_before_anything_is_rented(w):
    home = os.path.dirname(project(w))
    refused(w, project(w, model="missing"), b"model.init: there is no missing",
            b"relative to the work directory")
    refused(w, project(w, model="/missing"), b"model.init: there is no /missing")
    refused(w, project(w, model="Some/Model"), b"hf download Some/Model --local-dir Model")
    refused(w, project(w, model="~/model"), b"nothing stands for ~")
    refused(w, project(w, data="missing.jsonl"), b"data.paths: there is no missing.jsonl")
    refused(w, project(w, lora={"init": "missing", "rank": 0}), b"lora.init: there is no missing")
    refused(w, project(w, lora={"init": "base", "rank": 0}), b"adapter_config.json: no such file")
    refused(w, project(w, model="."), b"config.json: no such file")
    write_model(home + "/other", model_type="gpt2")
    refused(w, project(w, model="other"), b"model_type")
    shutil.rmtree(home + "/other")
    write_model(home + "/other")
    # Without the tokenizer, rows would be learned as the bytes of their JSON.
    os.rename(home + "/other/tokenizer.json", home + "/other/vocab.json")
    refused(w, project(w, model="other"), b"it has tokenizer_config.json, and no tokenizer.json")
    for name in ("vocab.json", "tokenizer_config.json"):
        os.remove(home + "/other/" + name)
    for mask in ({}, {"mask": "last"}):
        run_file = project(w, model="other")
        with open(run_file, encoding="utf-8") as file:
            settings = json.load(file)
        settings["trainer"]["data"].update(mask)
        write(run_file, json.dumps(settings))
        refused(w, run_file, b"no tokenizer.json to make tokens of", b"rows.jsonl with")
    with open(home + "/other/model.safetensors", "r+b") as file:
        file.truncate(5000)
    refused(w, project(w, model="other"), b"model.safetensors")
    # Neither of two values may win silently.
    run_file = project(w)
    for twice in ("lora: {rank: 4, rank: 8}", "train: {steps: 1}\n  train: {steps: 2}"):
        write(run_file, "trainer:\n  model: {init: base}\n  data: {paths: rows.jsonl}\n  %s\n"
              % twice)
        refused(w, run_file, b"is given twice", b"run.yaml:")
    # Tokens of another tokenizer.
    shutil.rmtree(home + "/other")
    write_model(home + "/other")
    write_tokenizer(home + "/other", swapped=True)
    w.run("prepare", home + "/rows.jsonl", "--model", home + "/other", "--out", home + "/tokens")
    refused(w, project(w, data="tokens"), b"it has the tokens of another tokenizer.json")
    refused(w, project(w, data=["tokens", "rows.jsonl"]), b"stands beside other paths")
    refused(w, project(w, data="tokens", model="other", sample={"prompts": ["1"], "tokens": 8}),
            b"the prompt \"1\", which is not in", b"prepare the data with --prompt")
    run_file = project(w, data="tokens", model="other")
    w.run("launch", run_file, "--dry-run", "--provider", "local")
    done = w.run("launch", run_file, "-y", "--provider", "local", "--trainer", "data.mask=last",
                 code=2)
    assert b"data.mask is for rows that are prepared here" in done.stderr, done
    done = w.run("launch", project(w), "-y", "--provider", "local", "--trainer",
                 "model.context=1000", code=2)
    assert b"longer than the model's 256" in done.stderr, done
    done = w.run("launch", project(w), "-y", "--provider", "local", "--trainer", "data.split=tail",
                 code=2)
    assert b"data.split is given, but the data is prepared" in done.stderr, done
    done = w.run("launch", project(w), "-y", "--provider", "local", "--trainer", "data.mask=some",
                 code=2)
    assert b'data.mask: "some" is none of assistant, last, all' in done.stderr, done
    write(home + "/rows.jsonl", "no JSON\n")
    refused(w, project(w), b"one row cannot be used", b"rows.jsonl:1: ",
            b"HINT: gpuctl prepare with --bad-rows skip makes data without them")
    os.remove(home + "/rows.jsonl")
    os.mkfifo(home + "/rows.jsonl")
    refused(w, project(w), b"rows.jsonl: it is no file")


def test_places_on_the_machine(w):
    """In the settings' own place where that is free, else below .gpuctl; never twice."""
    run_file = project(w)
    home = os.path.dirname(run_file)
    elsewhere = os.path.join(w.dir, "elsewhere")
    shutil.copytree(home + "/base", elsewhere)

    def data(*flags, target=("--provider", "local")):
        shown = w.run("launch", run_file, "--dry-run", *target, *flags)
        lines = shown.stdout.decode().splitlines()
        return [line[10:].rsplit(": ", 1)[0] for line in lines
                if line.startswith("data ") and "/prepared/" not in line], shown.stderr

    assert data()[0] == [home + "/base at base"]
    assert data("--trainer", "model.init=./base/")[0] == [home + "/base at base"]
    assert data("--trainer", "model.init=" + home + "/base")[0] == [home + "/base at .gpuctl/model"]
    assert data("--trainer", "model.init=../elsewhere")[0] == [elsewhere + " at .gpuctl/model"]
    # data: has the first word.
    assert data("--data", elsewhere + "=m", "--trainer", "model.init=m")[0] == [elsewhere + " at m"]
    assert data("--data", home + "/base=m")[0] == [home + "/base at m"]
    assert data("--data", elsewhere + "=base/x")[0] == [
        elsewhere + " at base/x", home + "/base at .gpuctl/model"]
    # What is not here may be on a machine of one's own.
    shown, said = data("--trainer", "model.init=/nowhere", target=("--host", "me@127.0.0.1"))
    assert shown == [] and b"/nowhere is not on this computer; the machine must have it" in said


def linked_model(w):
    """A model in a folder outside of the work directory that has links only, as caches have."""
    cache = os.path.join(w.dir, "cache")
    write_model(cache + "/blobs")
    os.makedirs(cache + "/snapshot")
    for name in os.listdir(cache + "/blobs"):
        os.symlink("../blobs/" + name, cache + "/snapshot/" + name)
    return cache + "/snapshot"


def test_links_are_followed_and_a_run_goes_on(w):
    run_file = project(w, model=linked_model(w))
    with ssh_machine(w) as host:
        host += ["--trainer", "build=kit"]
        done = launch(w, run_file, "sent-1", *host)
        work = job_of(w)
        assert sorted(os.listdir(work + "/.gpuctl/model")) == SENT
        assert not any(os.path.islink(work + "/.gpuctl/model/" + name) for name in SENT)
        with open(work + "/.gpuctl/trainer.json", encoding="utf-8") as file:
            settings = json.load(file)
        assert settings["model"]["init"] == ".gpuctl/model", settings
        assert settings["data"]["paths"] == [".gpuctl/data"], settings
        done = launch(w, run_file, "sent-2", *host)
        assert b"preparing" not in done.stderr, done
        w.run("pull", "sent-1")
        # The rows and the model are those of the run, wherever they lie.
        done = w.run("resume", "sent-1", "-y")
        assert b"goes on from" in done.stderr, done
        run = w.json("ps", "-a")["runs"][0]
        assert run["status"] == "succeeded", run
        assert not os.path.exists(job_of(w) + "/rows.jsonl")
        shutil.rmtree(os.path.join(w.env["GPUCTL_STATE_DIR"], "prepared"))
        done = w.run("resume", "sent-1", "-y", code=2)
        assert b", which goes to .gpuctl/data" in done.stderr, done


if __name__ == "__main__":
    use_memory()
    run_tests(globals())

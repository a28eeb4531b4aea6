"""The checks of gpu_check that compare the trainer with models in Python.

The models are those of tests/folders.py, in fp64, and transformers and peft where they are there.
"""

import contextlib
import importlib.util
import io
import json
import os
import sys

import torch
import torch.nn.functional as F

import families
import lora
import own_tests
import prepared_runs
import programs
from folders import read_safetensors, write_folder

STEPS = 50
SHAPE = (2, 64, 4, 2, 96, 101)  # layers, d, heads, kv heads, ffn, vocabulary
ROWS, LENGTH = 8, 24
FAMILIES = [("llama", families.llama3_v5), ("mistral", families.mistral(5)),
            ("qwen2", families.qwen2), ("qwen3", families.qwen3(False)),
            ("gemma3", families.gemma3_v5)]
OPTIMIZER = {"lr": 1e-3, "schedule": "constant", "warmup_steps": 0, "beta1": 0.9, "beta2": 0.95,
             "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 1.0}
# Largest relative difference of a step's loss.
FP32_LOSS, BF16_LOSS = 1e-4, 3e-2


def steps_of(session):
    return 20 if session.small else STEPS


def families_of(session):
    return FAMILIES[::2] if session.small else FAMILIES


def check_gradients(session):
    if session.dump is None:
        return session.report("gradients", None, why="give --dump PROGRAM, or let it be built")
    for module in ("families",) if session.small else ("families", "lora", "pairs"):
        said = programs.run(session, [sys.executable,
                                      os.path.dirname(families.__file__) + f"/{module}.py",
                                      session.dump, f"{session.directory}/{module}"],
                            **own_tests.variables_of(session))
        worst = max(float(line.split()[0]) for line in said.splitlines() if "e-" in line.split()[0])
        session.report("gradients", True, of=module, said=said.splitlines()[-1], worst=worst)


def check_transformers(session):
    if importlib.util.find_spec("transformers") is None or session.dump is None:
        return session.report("transformers", None, why="transformers is not installed"
                              if session.dump else "there is no dump program")
    for number, (name, make) in enumerate(FAMILIES):
        case = (name, make, (SHAPE, (3, 20)), torch.float32, 1)
        folder, _, weights, inputs, targets, _ = families.write_case(
            session.directory + "/hf", number, case)
        programs.run(session, [session.dump, folder], **own_tests.variables_of(session))
        model = load_model(folder)
        # Gemma 3's table would have no gradient for the id that its config calls padding, 0.
        model.get_input_embeddings().padding_idx = None
        loss = F.cross_entropy(model(inputs).logits.flatten(0, 1), targets.flatten(),
                               ignore_index=-1)
        loss.backward()
        with open(folder + "/loss.json") as file:
            found = json.load(file)["loss"]
        gradients = read_safetensors(folder + "/gradients.safetensors")
        theirs = {key: value.grad for key, value in model.named_parameters()}
        worst = max(relative(gradients[key], theirs[key]) for key in weights if key in theirs)
        difference = abs(found - float(loss)) / float(loss)
        session.report("transformers", difference < 1e-4 and worst < 1e-3, family=name,
                       loss=difference, gradients=worst)


def load_model(folder):
    """Returns the model of transformers, in fp32 whatever its config says."""
    from transformers import AutoModelForCausalLM
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                    attn_implementation="eager")
    except TypeError:  # before 4.56
        return AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32,
                                                    attn_implementation="eager")


def relative(found, expected):
    expected = expected.detach().double().cpu()
    return float((found.double().cpu() - expected).norm() / max(1e-12, float(expected.norm())))


def write_rows(session, number):
    """Writes prepared data whose rows are one batch; returns its folder and the rows."""
    generator = torch.Generator().manual_seed(number)
    rows = torch.randint(SHAPE[-1], (ROWS, LENGTH + 1), generator=generator)
    words = [[token | prepared_runs.LEARNED for token in row] for row in rows.tolist()]
    folder = f"{session.directory}/rows{number}"
    if not os.path.exists(folder):
        prepared_runs.write_prepared(folder, words, words[:2])
    return folder, rows


def run_config(session, folder, data, **more):
    config = {"model": {"init": folder, "context": LENGTH}, "data": {"paths": [data], "pack": False},
              "optimizer": dict(OPTIMIZER),
              "train": {"steps": steps_of(session), "batch": ROWS, "micro_batch": 3, "device": session.device,
                        "dtype": "fp32", "log_every": 1, "eval_every": 0},
              "checkpoint": {"every": 0}}
    for key, value in more.items():
        section, key = key.split("__")
        config.setdefault(section, {})[key] = value
    return config


def python_losses(loss_of, trained, steps):
    """Trains with torch.optim.AdamW; returns the loss of each step."""
    torch.set_num_threads(1)  # these models are small
    decayed = [tensor for tensor in trained if tensor.dim() > 1]
    others = [tensor for tensor in trained if tensor.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]},
         {"params": others, "weight_decay": 0.0}], lr=OPTIMIZER["lr"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["eps"])
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, OPTIMIZER["grad_clip"])
        optimizer.step()
        losses.append(float(loss))
    return losses


def worst_of(found, expected):
    if len(found) != len(expected):
        raise RuntimeError(f"{len(found)} steps instead of {len(expected)}")
    return max(abs(a - b) / b for a, b in zip(found, expected))


def check_losses(session):
    for number, (name, make) in enumerate(families_of(session)):
        if session.left() < 5:
            return session.report("losses", None, family=name, why="no time is left")
        config, decoder = make(SHAPE)
        weights = decoder.random_weights(seed=number)
        folder = f"{session.directory}/losses-{name}"
        write_folder(folder, config, weights)
        data, rows = write_rows(session, number)
        wide = {key: value.double().requires_grad_(True) for key, value in weights.items()}
        expected = python_losses(lambda: decoder.loss(wide, rows[:, :-1], rows[:, 1:]),
                                 list(wide.values()), steps_of(session))
        kinds = {"fp32": {}, "packed fp32": {"data__pack": True, "model__context": 2 * LENGTH,
                                             "train__batch": ROWS // 2}}
        kinds["packed bf16"] = {**kinds["packed fp32"], "train__dtype": "bf16"}
        for kind, more in kinds.items():
            lines, _ = programs.train(session, f"{name}-{kind.replace(' ', '-')}",
                                      run_config(session, folder, data, **more))
            worst = worst_of([line["loss"] for line in lines["step"]], expected)
            limit = BF16_LOSS if "bf16" in kind else FP32_LOSS
            session.report("losses", worst < limit and expected[-1] < 0.95 * expected[0],
                           family=name, kind=kind, worst=worst, first=expected[0],
                           last=expected[-1])


def check_adapters(session):
    for number, (name, make) in enumerate(families_of(session)):
        if session.left() < 5:
            return session.report("adapters", None, family=name, why="no time is left")
        base, decoder = make(SHAPE)
        weights = decoder.random_weights(seed=10 + number)
        folder = f"{session.directory}/adapters-{name}"
        write_folder(folder, base, weights)
        config = lora.adapter_config(4, 8, 0, list(lora.LINEARS))
        adapter = lora.random_adapter(config, weights, [], torch.float32, number)
        os.makedirs(folder + "/adapter")
        lora.write_safetensors(folder + "/adapter/adapter_model.safetensors", adapter)
        with open(folder + "/adapter/adapter_config.json", "w") as file:
            json.dump(config, file)
        data, rows = write_rows(session, number)
        adapted = lora.Adapted(decoder, config, weights)
        wide = {key: value.double().requires_grad_(True) for key, value in adapter.items()}
        expected = python_losses(
            lambda: adapted.loss(wide, rows[:, :-1], rows[:, 1:], {}, False), list(wide.values()),
            steps_of(session))
        lines, checkpoint = programs.train(
            session, f"adapter-{name}",
            run_config(session, folder, data, lora__init=folder + "/adapter"))
        found = read_safetensors(checkpoint + "/adapter_model.safetensors")
        worst = worst_of([line["loss"] for line in lines["step"]], expected)
        difference = max(relative(found[key], wide[key]) for key in wide)
        facts = {"family": name, "worst": worst, "adapters": difference}
        ok = worst < FP32_LOSS and difference < 5e-3 and set(found) == set(wide)
        peft_loss = loss_by_peft(folder, checkpoint, rows)
        if peft_loss is not None:
            last = float(adapted.loss(wide, rows[:, :-1], rows[:, 1:], {}, False))
            facts["peft"] = abs(peft_loss - last) / last
            ok = ok and facts["peft"] < 1e-3
        session.report("adapters", ok, **facts)


def loss_by_peft(folder, checkpoint, rows):
    """Returns the loss that peft computes with the adapter of a checkpoint, or None without it."""
    if importlib.util.find_spec("peft") is None:
        return None
    from peft import PeftModel
    with contextlib.redirect_stdout(io.StringIO()):
        model = PeftModel.from_pretrained(load_model(folder), checkpoint).merge_and_unload()
    with torch.no_grad():
        return float(F.cross_entropy(model(rows[:, :-1]).logits.flatten(0, 1),
                                     rows[:, 1:].flatten()))

#!/usr/bin/env python3
"""Runs the commands of examples/fine-tune/README.md, as they stand there, with a small random model.

usage: fine_tune_example.py TRAINER_PROGRAM

Exits with 77 (skipped) when there is no torch.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from chat_model import write_chat_model
from program import Program

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(ROOT, "examples", "fine-tune")


def check_settings(test):
    """run.yaml must say what train.json says."""
    try:
        import yaml
    except ImportError:
        print("left out: run.yaml, because this python3 has no yaml")
        return
    with open(EXAMPLE + "/train.json", encoding="utf-8") as file:
        settings = json.loads("".join(line for line in file if not line.startswith("//")))
    with open(EXAMPLE + "/run.yaml", encoding="utf-8") as file:
        # YAML 1.1 takes 1e-3 for a text.
        told = json.loads(json.dumps(yaml.safe_load(file)["trainer"]).replace('"1e-3"', "0.001"))
    test.check("run.yaml has the settings of train.json", told == settings, told, settings)


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        test = Program(program)
        work, programs = directory + "/fine-tune", directory + "/bin"
        shutil.copytree(EXAMPLE, work)
        os.makedirs(programs)
        os.symlink(program, programs + "/gpuctl-trainer")
        write_chat_model(directory + "/small", context=512)
        with open(work + "/README.md", encoding="utf-8") as file:
            block, = re.findall(r"^```\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        lines = block.splitlines()
        test.check("the page has five commands", len(lines) == 5, lines)
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("GPUCTL_")}
        environment["PATH"] = programs + ":" + environment["PATH"]
        for line in lines:
            ended = subprocess.run(["sh", "-c", line.replace("path/to/model", directory + "/small")],
                                   cwd=work, env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True, check=False,
                                   errors="replace")
            test.check(line, ended.returncode == 0,
                       ended.returncode, ended.stdout, ended.stderr)
            if " train " in line:
                losses = [float(loss) for loss in re.findall(r"held-out loss ([0-9.]+)",
                                                             ended.stdout)]
                test.check("the held-out loss falls", losses and losses[-1] < losses[0], losses)
        test.check("the new model is a whole one", {"config.json", "model.safetensors",
                                                    "tokenizer.json"} <= set(os.listdir(work + "/tuned")))
        check_settings(test)
    print(f"{test.failed} failed")
    sys.exit(1 if test.failed else 0)


if __name__ == "__main__":
    main()

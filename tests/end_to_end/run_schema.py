#!/usr/bin/env python3
"""gpuctl run-schema: says of run files what gpuctl itself says of them.

  run_schema.py GPUCTL FAKE_JOB [TEST...]

An independent validator reads the schema. It is skipped where python3-jsonschema or python3-yaml is
not installed.
"""
import glob
import json
import os
import re
import sys

from runs import run_tests

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print("not tried: %s" % missing)
    sys.exit(77)

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

GOOD = """
name: a-1
name: 5
run: echo
run: "true"
workdir: src
resources: {gpu: H100:1}
resources: {gpu: [H100:1, "24GB..80GB:2"]}
resources: {gpu: 4090}
resources: {gpus: 0}
resources: {gpus: 2}
resources: {provider: slurm, slurm: {partition: gpu, time: 12h, flags: [--mem=64G]}}
resources: {provider: local}
resources: {provider: [runpod, vast]}
resources: {disk: 100GB}
resources: {disk: 1.5 TiB}
resources: {disk: 4096}
resources: {max_price: 3}
resources: {max_price: $3.50}
resources: {on_price_rise: stop}
resources: {spot: true, region: [US, EU]}
resources: {image: ghcr.io/me/x:1, registry: {username: me, password: SECRET}}
resources: {volume: sets}
resources: {volume: {name: sets, path: /workspace}}
data: {./sets: data}
env: {A: 1, B: yes, C: 1.5, D: text}
secrets: [HF_TOKEN]
secrets: HF_TOKEN
checkpoints: out/*
artifacts: [a, b]
limits: {time: 1h30m, cost: 20, idle: 10min, salvage: 2d, lease: 1w}
grace: 500ms
output_limit: 4GiB
retry: {max: 3, on: [lost, "exit:75"], backoff: 10s}
stop_if: loss is nan
setup: pip install x
stop_if: [loss is nan, "lr < 1e-9"]
plateau: {steps: 500}
plateau: [{metric: loss, steps: 5}, {metric: eval_loss, steps: 9, min_delta: 0.01}]
notify: {desktop: true, command: "echo done", webhook: SLACK_WEBHOOK}
trainer: {build: node, model: {layers: 2}, data: {paths: rows.jsonl, mask: last}, lora: {rank: 8}}
trainer: {data: {paths: [a, b]}, optimizer: {lr: 3e-4, schedule: linear}}
"""
BAD = """
nmae: x
name: a b
name: [x]
name: -x
run: [a, b]
run: {a: b}
resources: H100
resources: {gpus: H100}
resources: {slurm: {partitoin: gpu}}
resources: {gpus: -1}
resources: {gpus: 1025}
resources: {gpus: 1.5}
resources: {gpu: {H100: 1}}
resources: {provider: aws}
resources: {provider: [runpod, aws]}
resources: {disk: large}
resources: {disk: 1XB}
resources: {max_price: cheap}
resources: {max_price: -1}
resources: {max_price: 0}
resources: {on_price_rise: pay}
resources: {spot: perhaps}
resources: {volume: {nmae: sets}}
resources: {registry: {user: me}}
data: [a, b]
data: {a: [b]}
env: [A=1]
env: {A-B: 1}
env: {A: [1]}
secrets: [A-B]
limits: {time: 6}
limits: {time: 6 parsecs}
limits: {tiem: 6h}
limits: 6h
grace: soon
output_limit: much
retry: {max: 1.5}
retry: {max: 1001}
retry: {max: -1}
retry: {on: [never]}
setup: [pip, install, x]
accelerators: H100
plateau: {metric: loss}
plateau: {metric: accuracy, steps: 5}
plateau: {steps: many}
plateau: {steps: 5, min_delta: -1}
plateau: 500
notify: {desktop: perhaps}
notify: {webhook: "https://hooks.example/x"}
notify: {mail: me}
trainer: {build: somewhere}
trainer: {modle: {}}
trainer: {model: {layers: many}}
trainer: {model: {layers: 0}}
trainer: {optimizer: {schedule: square}}
trainer: {train: {recompute: 1}}
trainer: {data: {mask: first}}
"""


class Loader(yaml.SafeLoader):
    """YAML 1.2, as gpuctl reads it: "on" and "yes" are words, 3e-4 is a number."""


Loader.yaml_implicit_resolvers = {}
for tag, pattern, first in (
        ("bool", "true|True|false|False", "tTfF"), ("null", "null|~|", "n~"),
        ("int", "[-+]?[0-9]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789")):
    Loader.add_implicit_resolver("tag:yaml.org,2002:" + tag, re.compile("^(?:%s)$" % pattern),
                                 list(first))


def validator(l):
    schema = json.loads(l.run("run-schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def refused(l, text):
    """Returns what gpuctl says against a run file; "" when it takes it."""
    with open(l.work + "/run.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    # Without --host and keys nothing goes further than to the plan.
    done = l.run("launch", "run.yaml", "--dry-run", code=None)
    said = done.stderr.decode()
    return said if re.search(r"^gpuctl: run\.yaml(:|: )", said, re.MULTILINE) else ""


def test_every_line_is_judged_as_gpuctl_judges_it(l):
    check = validator(l)
    for wanted, lines in ((True, GOOD), (False, BAD)):
        for line in lines.strip().splitlines():
            # yaml-cpp takes any text as a value, so both get the same one.
            valid = check.is_valid(yaml.load(line, Loader))
            said = refused(l, line + "\n")
            assert valid == wanted, "%s: the schema says %s" % (line, valid)
            assert (said == "") == wanted, "%s: gpuctl says %s" % (line, said)


def test_examples_and_pages(l):
    """The run files of the repository are valid."""
    check = validator(l)
    files = sorted(glob.glob(SOURCE + "/examples/*/run.yaml"))
    assert len(files) >= 5, files
    for path in files:
        with open(path, encoding="utf-8") as file:
            errors = list(check.iter_errors(yaml.load(file, Loader)))
        assert not errors, (path, errors[0])
    with open(SOURCE + "/docs/run-file.md", encoding="utf-8") as file:
        blocks = re.findall(r"^```yaml\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        errors = list(check.iter_errors(yaml.load(block, Loader)))
        assert not errors, (block, errors[0])


def test_run_and_trainer_exclude_each_other(l):
    check = validator(l)
    assert not check.is_valid({"run": "x", "trainer": {}})
    assert check.is_valid({"run": "x"}) and check.is_valid({})


def test_an_error_shows_the_line(l):
    said = refused(l, "name: x\nresources:\n  accelerators: A100:8\n")
    assert said == ("gpuctl: run.yaml:3:3: unknown field \"resources.accelerators\"; it is "
                    "resources.gpu here, like gpu: A100-80GB:8\n"
                    "  3 |   accelerators: A100:8\n    |   ^\n"
                    "HINT: correct run.yaml there\n"), said


if __name__ == "__main__":
    run_tests(globals())

#!/usr/bin/env python3
"""Compares the adapters' requests to rental markets with the markets' own descriptions.

  provisioning_schema_test.py TEST_BINARY SHARED_DIR

Runs the adapters' tests, which write every request into a folder, and validates each body by the
description of its route. Start scripts in them are run, in a folder instead of a machine. Exits
with 77 when the descriptions are missing.
"""
import copy
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

import jsonschema
import yaml

SKIPPED = 77
# The requests that every run of the tests must make at least once: (market, method, route's path).
EXPECTED = {
    ("runpod", "POST", "/v2/pods"),
    ("runpod", "GET", "/v2/pods"),
    ("runpod", "GET", "/v2/pods/{id}"),
    ("runpod", "DELETE", "/v2/pods/{id}"),
    ("runpod", "GET", "/v2/catalog/gpus"),
    ("runpod", "POST", "/graphql"),
    ("runpod", "GET", "/v2/registries"),
    ("runpod", "POST", "/v2/registries"),
    ("runpod", "DELETE", "/v2/registries/{id}"),
    ("runpod", "GET", "/v2/pods/{id}/logs"),
    ("lambda", "GET", "/api/v1/instance-types"),
    ("lambda", "GET", "/api/v1/ssh-keys"),
    ("lambda", "POST", "/api/v1/ssh-keys"),
    ("lambda", "POST", "/api/v1/instance-operations/launch"),
    ("lambda", "POST", "/api/v1/instance-operations/terminate"),
    ("lambda", "GET", "/api/v1/instances"),
    ("lambda", "GET", "/api/v1/instances/{id}"),
    ("vast", "POST", "/api/v0/bundles/"),
    ("vast", "PUT", "/api/v0/asks/{id}/"),
    ("vast", "GET", "/api/v0/ssh/"),
    ("vast", "POST", "/api/v0/ssh/"),
    ("vast", "GET", "/api/v0/instances/{id}/"),
    ("vast", "DELETE", "/api/v0/instances/{id}/"),
    ("vast", "GET", "/api/v1/instances/"),
    ("vast", "GET", "/api/v0/charges/"),
    ("vast", "POST", "/api/v0/instances/{id}/ssh/"),
    ("vast", "GET", "/api/v0/instances/pending-price-increases/"),
    ("vast", "PUT", "/api/v0/instances/accept-price-increase/"),
    ("vast", "PUT", "/api/v0/instances/reject-price-increase/"),
    ("digitalocean", "GET", "/v2/sizes"),
    ("digitalocean", "GET", "/v2/account"),
    ("digitalocean", "GET", "/v2/account/keys"),
    ("digitalocean", "POST", "/v2/account/keys"),
    ("digitalocean", "POST", "/v2/droplets"),
    ("digitalocean", "GET", "/v2/droplets"),
    ("digitalocean", "GET", "/v2/droplets/{droplet_id}"),
    ("digitalocean", "DELETE", "/v2/droplets/{droplet_id}"),
    ("shadeform", "GET", "/v1/instances/types"),
    ("shadeform", "GET", "/v1/sshkeys"),
    ("shadeform", "POST", "/v1/sshkeys/add"),
    ("shadeform", "POST", "/v1/instances/create"),
    ("shadeform", "GET", "/v1/instances"),
    ("shadeform", "GET", "/v1/instances/{id}/info"),
    ("shadeform", "POST", "/v1/instances/{id}/update"),
    ("shadeform", "POST", "/v1/instances/{id}/delete"),
    ("huggingface", "GET", "/api/whoami-v2"),
    ("huggingface", "GET", "/api/jobs/hardware"),
    ("huggingface", "POST", "/api/jobs/{namespace}"),
    ("huggingface", "GET", "/api/jobs/{namespace}"),
    ("huggingface", "GET", "/api/jobs/{namespace}/{jobId}"),
    ("huggingface", "POST", "/api/jobs/{namespace}/{jobId}/cancel"),
}


def closed(schema):
    """Returns `schema` with no additional fields allowed in any object."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema:
        schema.setdefault("unevaluatedProperties", False)
    return schema


def patched_vast(document):
    """Returns the published description, changed where the service is known to differ."""
    document = copy.deepcopy(document)
    document["paths"] = {path + "/": item for path, item in document["paths"].items()}
    create = document["paths"]["/api/v0/asks/{id}/"]["put"]
    create = create["requestBody"]["content"]["application/json"]["schema"]
    create["properties"]["env"] = {
        "type": "object", "additionalProperties": {"type": "string"}}
    create["properties"]["client_id"] = {"const": "me"}
    create["properties"]["disk"] = {"type": "number", "minimum": 8}
    create["properties"]["label"]["maxLength"] = 256
    create["properties"]["onstart"]["maxLength"] = 4096
    search = document["paths"]["/api/v0/bundles/"]["post"]
    search = search["requestBody"]["content"]["application/json"]["schema"]
    search["properties"]["order"] = {
        "type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}}
    for schema in search["properties"].values():
        # All operators, not only the description's examples.
        if schema.get("type") == "object":
            schema.clear()
            schema.update({"type": "object", "minProperties": 1, "propertyNames": {
                "enum": ["eq", "neq", "gt", "lt", "gte", "lte", "in", "notin"]}})
    # These are not described. They come from the service's own command line.
    number = {"type": "object", "required": ["pending_price_increase_id"],
              "properties": {"pending_price_increase_id": {"type": "integer"}},
              "additionalProperties": False}
    answer = {"put": {"requestBody": {"content": {"application/json": {"schema": number}}}}}
    document["paths"]["/api/v0/instances/accept-price-increase/"] = answer
    document["paths"]["/api/v0/instances/reject-price-increase/"] = answer
    document["paths"]["/api/v0/instances/pending-price-increases/"] = {"get": {}}
    for schema in (create, search):
        schema.update(closed({"properties": schema["properties"]}))
    return document


def patched_runpod(document):
    """Adds the one GraphQL request, with the inputs of public clients."""
    document = copy.deepcopy(document)
    types = {"string": ["name", "imageName", "gpuTypeId", "ports", "dockerArgs",
                        "networkVolumeId", "volumeMountPath", "containerRegistryAuthId"],
             "integer": ["gpuCount", "containerDiskInGb", "volumeInGb"], "number": ["bidPerGpu"],
             "boolean": ["startSsh", "supportPublicIp"]}
    fields = {name: {"type": kind} for kind, names in types.items() for name in names}
    fields["cloudType"] = {"enum": ["SECURE", "COMMUNITY", "ALL"]}
    text = {"type": "string"}
    fields["env"] = {"type": "array", "items": closed({
        "type": "object", "properties": {"key": text, "value": text},
        "required": ["key", "value"]})}
    schema = closed({"type": "object", "required": ["query"], "properties": {
        "query": text, "variables": {"type": "object", "properties": {
            "input": {"type": "object", "properties": fields,
                      "required": ["gpuTypeId", "bidPerGpu"]}}}}})
    document["paths"]["/graphql"] = {
        "post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}
    return document


def patched_shadeform(document):
    """Moves the version from the server's address into the paths, and adds the field for spot
    machines, which only a later edition has."""
    document = copy.deepcopy(document)
    document["servers"] = [{"url": "https://api.shadeform.ai"}]
    document["paths"] = {"/v1" + path: item for path, item in document["paths"].items()}
    create = document["components"]["schemas"]["CreateRequest"]
    create["properties"]["rental_type"] = {"enum": ["on_demand", "spot"]}
    return document


def patched_lambda(document):
    """Forbids unknown fields in requests, which the description allows; ours have none."""
    document = copy.deepcopy(document)
    for item in document["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict) and "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                content["schema"] = closed(content["schema"])
    return document


def load(shared):
    """Returns market -> description; None when one is missing."""
    names = {"runpod": "runpod/rest-v2.openapi.json",
             "lambda": "lambda/cloud-api-1.10.0.openapi.json",
             "vast": "vast/openapi.yaml",
             "digitalocean": "digitalocean/droplets-2026-08.openapi.json",
             "shadeform": "shadeform/shadeform-2026-04.openapi.json",
             "huggingface": "huggingface/hub-jobs.openapi.json"}
    documents = {}
    for market, name in names.items():
        path = os.path.join(shared, "providers", name)
        if not os.path.exists(path):
            print(f"SKIPPED: no {path}")
            return None
        with open(path, encoding="utf-8") as file:
            documents[market] = yaml.safe_load(file) if path.endswith("yaml") else json.load(file)
    documents["vast"] = patched_vast(documents["vast"])
    documents["runpod"] = patched_runpod(documents["runpod"])
    documents["lambda"] = patched_lambda(documents["lambda"])
    documents["shadeform"] = closed(patched_shadeform(documents["shadeform"]))
    create = documents["huggingface"]["paths"]["/api/jobs/{namespace}"]["post"]["requestBody"]
    create = create["content"]["application/json"]
    create["schema"] = closed(create["schema"])
    return documents


def route_of(document, path):
    """Returns the route of `path` without its query. Literal routes come before those with
    parameters."""
    for route in sorted(document["paths"], key=lambda route: route.count("{")):
        if re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", route), path):
            return route
    return None


def resolve(document, node):
    while "$ref" in node:
        target = document
        for part in node["$ref"][2:].split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node


def check(market, document, request):
    """Returns (route or None, problems)."""
    path, _, query = request["path"].partition("?")
    route = route_of(document, path)
    if route is None or request["method"].lower() not in document["paths"][route]:
        return None, [f"no such route: {request['method']} {path}"]
    operation = document["paths"][route][request["method"].lower()]
    problems = []
    known = {resolve(document, parameter)["name"]
             for parameter in operation.get("parameters", [])}
    for pair in filter(None, query.split("&")):
        name = pair.split("=")[0]
        # The next page, when an answer names one. The description has no pages.
        if name not in known and (market, name) != ("runpod", "cursor"):
            problems.append(f"unknown query parameter {name}")
    body = operation.get("requestBody")
    if body is None:
        return route, problems + ([f"a body: {request['body']}"] if request["body"] else [])
    schema = resolve(document, body)["content"]["application/json"]["schema"]
    # The whole document is needed for its references.
    root = dict(document, **schema) if "$ref" not in schema else dict(document, allOf=[schema])
    validator = jsonschema.Draft202012Validator(root)
    for error in validator.iter_errors(json.loads(request["body"])):
        problems.append(f"{error.json_path}: {error.message[:200]}")
    return route, problems


def self_check(documents):
    """Checks requests that must be refused, to detect a validator that accepts everything."""
    create = {"name": "x", "image": "i", "gpu": {"id": "g", "count": 1}, "cloud": "SECURE"}
    shade = {"cloud": "c", "region": "r", "shade_instance_type": "t", "shade_cloud": True,
             "name": "n"}
    request = {"method": "POST", "path": "/v1/instances/create", "body": json.dumps(shade)}
    if check("shadeform", documents["shadeform"], request)[1]:
        return f"refused although it is right: {check('shadeform', documents['shadeform'], request)}"
    wrong = [
        ("runpod", "POST", "/v2/pods", dict(create, imageName="i")),
        ("runpod", "POST", "/v2/pods", {"image": "i"}),
        ("runpod", "POST", "/graphql", {"query": "q", "variables": {"input": {
            "gpuTypeId": "g", "bidPerGpu": 1, "interruptible": True}}}),
        ("runpod", "POST", "/v2/pods", dict(create, gpu={"id": "g", "count": 1, "bid": 2})),
        ("lambda", "POST", "/api/v1/instance-operations/launch",
         {"region_name": "r", "instance_type_name": "t", "ssh_key_names": ["k"], "quantity": 1}),
        ("lambda", "POST", "/api/v1/instance-operations/launch", {"region_name": "r"}),
        ("vast", "PUT", "/api/v0/asks/1/", {"image": "i", "env": "-e A=1"}),
        ("vast", "PUT", "/api/v0/asks/1/", {"image": "i", "imageName": "i"}),
        ("digitalocean", "POST", "/v2/droplets", {"name": "a b", "size": "s", "image": "i"}),
        ("digitalocean", "POST", "/v2/droplets", {"name": "a", "image": "i"}),
        ("shadeform", "POST", "/v1/instances/create", dict(shade, image="i")),
        ("shadeform", "POST", "/v1/instances/create", dict(shade, shade_cloud="yes")),
        ("shadeform", "POST", "/v1/instances/create", {"cloud": "c"}),
        ("shadeform", "POST", "/v1/instances/i/update", {"auto_delete": "now"}),
        ("huggingface", "POST", "/api/jobs/ada", {"dockerImage": "i"}),
        ("huggingface", "POST", "/api/jobs/ada", {"flavor": "h200", "timeout": 60}),
        ("huggingface", "POST", "/api/jobs/ada", {"flavor": "h200", "labels": {"a": "b c"}}),
        ("vast", "POST", "/api/v0/bundles/", {"num_gpus": 1}),
        ("vast", "POST", "/api/v0/bundles", {}),
    ]
    for market, method, path, body in wrong:
        request = {"method": method, "path": path, "body": json.dumps(body)}
        if not check(market, documents[market], request)[1]:
            return f"taken although it is wrong: {market} {method} {path} {body}"
    return None


def run_scripts(bodies):
    """Runs a packed start script of Runpod and one of Vast. Returns the problems."""
    args = next(body["args"] for body in bodies if "echo" in body.get("args", ""))
    onstart = next(body["onstart"] for body in bodies if "base64" in body.get("onstart", ""))
    with tempfile.TemporaryDirectory() as folder:
        def here(text):
            for path in ("/root/", "/var/log/", "/start.sh"):
                text = text.replace(path, folder + "/" + os.path.basename(path))
            return text

        # The image's own program ends after the start script's output.
        start = os.path.join(folder, "start.sh")
        with open(start, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\nuntil grep -q hello {folder}/gpuctl-start.log; do :; done\n"
                       "echo image\n")
        os.chmod(start, 0o755)
        words = shlex.split(here(args))
        if words[:2] != ["bash", "-c"] or len(words) != 3:
            return [f"args are no three words: {words}"]
        home = dict(os.environ, HOME=folder)
        ran = subprocess.run(words, check=False, capture_output=True, timeout=300, env=home)
        if ran.stdout != b"image\n":
            return [f"the image's own program did not run: {ran}"]
        ran = subprocess.run(["bash", "-c", here(onstart)], check=False, capture_output=True,
                             timeout=300)
        if ran.stdout != b"echo the same line again\n".replace(b"echo ", b"") * 400:
            return [f"a packed script did something else: {ran.stdout[:200]} {ran.stderr[:200]}"]
    problems = []
    for body in bodies:
        script = body.get("user_data") or body.get("onstart") or "true"
        if subprocess.run(["bash", "-n", "-c", script], check=False).returncode != 0:
            problems.append(f"bash does not take {script[:200]}")
    return problems


def main():
    binary, shared = sys.argv[1:3]
    documents = load(shared)
    if documents is None:
        return SKIPPED
    problem = self_check(documents)
    if problem:
        print(problem)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, GPUCTL_REQUESTS_DIR=folder, GPUCTL_SHARED_DIR=shared)
        run = subprocess.run([binary], env=environment, check=False, capture_output=True)
        if run.returncode != 0:
            print(run.stdout.decode()[-3000:])
            return 1
        requests = []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                requests.append(json.load(file))
    asked, failed = set(), 0
    for request in requests:
        market = re.fullmatch(r"http://(\w+)\.test", request["base_url"]).group(1)
        route, problems = check(market, documents[market], request)
        asked.add((market, request["method"], route))
        for problem in problems:
            failed += 1
            print(f"{market} {request['method']} {request['path']}: {problem}")
    for problem in run_scripts([json.loads(request["body"]) for request in requests
                                if request["body"]]):
        failed += 1
        print(problem)
    for missing in sorted(EXPECTED - asked):
        failed += 1
        print("never asked:", *missing)
    print(f"{len(requests)} requests on {len(asked)} routes, {failed} problems")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

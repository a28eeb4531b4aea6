#!/usr/bin/env python3
"""Every route of the simulator against the published specifications: its answers must validate.

  schemas_test.py GPUCTL_CLOUDSIM SHARED_DIR
"""
import contextlib
import copy
import http.client
import json
import os
import re
import sys
import time
import unittest

import jsonschema
import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "lint")]
import provisioning_schema_test as described  # noqa: E402
from simulator import KEYS, Simulator, eventually, runpod_body  # noqa: E402

PROGRAM, SHARED = "", ""
FILES = {"runpod": "runpod/rest-v2.openapi.json", "lambda": "lambda/cloud-api-1.10.0.openapi.json",
         "vast": "vast/openapi.yaml",
         "digitalocean": "digitalocean/droplets-2026-08.openapi.json",
         "shadeform": "shadeform/shadeform-2026-04.openapi.json",
         "huggingface": "huggingface/hub-jobs.openapi.json"}


def load(service):
    with open(os.path.join(SHARED, "providers", FILES[service]), encoding="utf-8") as file:
        return json.load(file) if FILES[service].endswith("json") else yaml.safe_load(file)


def patch_vast(spec):
    """Changes the bundle where the service is known to differ."""
    properties = spec["components"]["schemas"]["Instance"]["properties"]
    properties.pop("ports", None)
    for value in properties.values():
        # null means not known (yet).
        if isinstance(value.get("type"), str):
            value["type"] = [value["type"], "null"]
    # Its own command line reads pairs of a name and a value.
    properties["extra_env"] = {"type": "array", "items": {"type": "array"}}
    body = spec["paths"]["/api/v0/instances/{id}"]["get"]["responses"]["200"]
    schema = body["content"]["application/json"]["schema"]["properties"]
    schema["instances"] = {"anyOf": [schema["instances"], {"type": "null"}]}
    ask = spec["paths"]["/api/v0/asks/{id}"]["put"]["responses"]
    errors = ask["400"]["content"]["application/json"]["schema"]["properties"]["error"]
    errors["enum"].append("insufficient_credit")


def patch_huggingface(spec):
    """Adds the errors, which the description leaves out."""
    said = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    for item in spec["paths"].values():
        for method in {"get", "post", "put"} & set(item):
            item[method].setdefault("responses", {})["default"] = {
                "description": "a refusal", "content": {"application/json": {"schema": said}}}


def with_null(node):
    """Returns a description of OpenAPI 3.0 with null where it says nullable, as newer ones do."""
    if isinstance(node, list):
        return [with_null(one) for one in node]
    if not isinstance(node, dict):
        return node
    node = {name: with_null(value) for name, value in node.items()}
    parts = node.get("allOf", [])
    if node.pop("nullable", False) or any("null" in part.get("type", []) for part in parts
                                          if isinstance(part.get("type"), list)):
        if "type" in node:
            node["type"] = [node["type"], "null"]
        elif parts:
            return {"anyOf": [node, {"type": "null"}]}
    return node


class Spec:
    def __init__(self, service):
        self.spec = load(service)
        if service == "digitalocean":
            self.spec = with_null(self.spec)
        if service == "vast":
            patch_vast(self.spec)
        if service == "shadeform":
            self.spec = described.patched_shadeform(self.spec)
        if service == "huggingface":
            patch_huggingface(self.spec)
        self.covered = set()
        self.paths = []
        for path, item in self.spec["paths"].items():
            pattern = re.compile("^" + re.sub(r"\{[^}]+\}", "[^/]+", path) + "/?$")
            self.paths.append((path.count("{"), path, pattern, item))
        self.paths.sort(key=lambda entry: entry[0])

    def resolve(self, value):
        while isinstance(value, dict) and "$ref" in value:
            node = self.spec
            for part in value["$ref"][2:].split("/"):
                node = node[part]
            value = node
        return value

    def schema(self, value):
        root = copy.copy(value)
        root["components"] = self.spec.get("components", {})
        return root

    def check(self, method, path, answer):
        path = path.split("?")[0]
        for _, name, pattern, item in self.paths:
            if not pattern.match(path) or method.lower() not in item:
                continue
            operation = item[method.lower()]
            responses = operation["responses"]
            response = responses.get(str(answer.status), responses.get("default"))
            if response is None:
                raise AssertionError(f"{method} {name}: status {answer.status} is not documented")
            self.covered.add((method, name, answer.status))
            content = self.resolve(response).get("content", {})
            if not content:
                return
            kind = answer.headers.get("content-type", "").split(";")[0]
            if kind not in content:
                raise AssertionError(f"{method} {name}: {answer.status} is {kind}")
            schema = content[kind].get("schema")
            if schema:
                jsonschema.Draft202012Validator(self.schema(schema)).validate(answer.json)
            return
        raise AssertionError(f"{method} {path} is not in the specification")


class SchemasTest(unittest.TestCase):
    def go(self, service, method, path, want, body=None, key=None):
        answer = self.sim.call(service, method, path, body, key)
        self.assertEqual(answer.status, want, f"{method} {path}: {answer.text}")
        self.specs[service].check(method, path, answer)
        return answer.json

    def setUp(self):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0", "--no-nodes")
        self.addCleanup(self.sim.stop)
        self.sim.freeze()
        self.specs = {name: Spec(name) for name in FILES}

    def test_runpod(self):
        def go(*arguments, **more):
            return self.go("runpod", *arguments, **more)
        gpus = go("GET", "/v2/catalog/gpus?include=AVAILABILITY&product=POD", 200)["gpus"]
        self.assertIn("NVIDIA GeForce RTX 4090", [gpu["id"] for gpu in gpus])
        go("GET", "/v2/catalog/gpus", 200)
        go("GET", "/v2/catalog/gpus/NVIDIA%20H200", 200)
        go("GET", "/v2/catalog/gpus/none", 404)
        go("GET", "/v2/catalog/cpus?include=AVAILABILITY&product=POD", 200)
        go("GET", "/v2/catalog/datacenters?include=GPU_AVAILABILITY,CPU_AVAILABILITY", 200)
        go("GET", "/v2/catalog/datacenters/EU-RO-1", 200)
        go("GET", "/v2/catalog/templates", 200)
        for empty in ("clusters", "serverless"):
            go("GET", "/v2/" + empty, 200)
        go("PUT", "/v2/account/ssh-keys", 200, {"keys": ["ssh-ed25519 AAAA me"]})
        go("PUT", "/v2/account/ssh-keys", 422, {"keys": ["no key"]})
        go("GET", "/v2/account/ssh-keys", 200)
        volume = go("POST", "/v2/network-volumes", 201,
                    {"name": "data", "size": 50, "dataCenter": "EU-RO-1"})
        go("POST", "/v2/network-volumes", 422, {"name": "data", "size": 5, "dataCenter": "EU-RO-1"})
        go("GET", "/v2/network-volumes", 200)
        go("GET", "/v2/network-volumes/" + volume["id"], 200)
        go("PATCH", "/v2/network-volumes/" + volume["id"], 200, {"size": 60})
        template = go("POST", "/v2/templates", 201, {"name": "t", "image": "i"})
        go("GET", "/v2/templates", 200)
        go("PATCH", "/v2/templates/" + template["id"], 200, {"disk": 40})
        go("GET", "/v2/templates/" + template["id"], 200)
        pod = go("POST", "/v2/pods", 201, runpod_body(mounts={
            "network": [{"volumeId": volume["id"], "path": "/workspace"}]}))
        self.assertEqual(pod["dataCenterId"], "EU-RO-1")
        at = "/v2/pods/" + pod["id"]
        go("GET", "/v2/pods", 200)
        eventually(lambda: go("GET", at, 200)["status"] == "RUNNING", "the pod runs")
        go("PATCH", at, 200, {"name": "renamed"})
        go("PATCH", at, 422, {"imageName": "x"})
        self.assertEqual(go("POST", at + "/action", 200, {"action": "stop"})["status"], "EXITED")
        go("POST", at + "/action", 409, {"action": "stop"})
        go("POST", at + "/action", 422, {"action": "explode"})
        go("POST", at + "/action", 200, {"action": "start"})
        go("POST", at + "/action", 204, {"action": "terminate"})
        go("GET", at, 404)
        go("DELETE", at, 404)
        go("GET", "/v2/billing/pods?bucketSize=hour&lastN=3", 200)
        go("DELETE", "/v2/templates/" + template["id"], 204)
        go("DELETE", "/v2/network-volumes/" + volume["id"], 204)
        go("POST", "/v2/pods", 422, runpod_body(imageName="x", cloudType="SECURE"))
        answer = self.sim.call("runpod", "POST", "/v2/pods", runpod_body(imageName="x"))
        self.assertEqual(answer.json["errors"], ["$: additional properties 'imageName' not allowed"])
        go("POST", "/v2/pods", 422, {"image": "i", "gpu": {"id": "x", "count": 1}})
        go("POST", "/v2/pods", 400, runpod_body(gpu={"id": "NVIDIA H100 NVL", "count": 1}))
        go("POST", "/v2/pods", 400, runpod_body(gpu={"id": "NVIDIA GeForce RTX 4090"}))
        go("GET", "/v2/pods", 401, key="wrong")
        go("GET", "/v2/pods", 401, key="")
        self.assertEqual(self.sim.call("runpod", "GET", "/v1/pods").status, 410)
        answer = self.sim.call("runpod", "POST", "/graphql", {"query": "{myself{clientBalance}}"})
        self.assertGreater(answer.json["data"]["myself"]["clientBalance"], 99)
        unknown = self.sim.call("runpod", "POST", "/graphql", {"query": "{myself{wealth}}"})
        self.assertEqual((unknown.status, unknown.json["errors"][0]["extensions"]["code"]),
                         (400, "GRAPHQL_VALIDATION_FAILED"))
        answer = self.sim.call("runpod", "POST", "/graphql", {"query": "{gpuTypes{id}}"})
        self.assertEqual(len(answer.json["data"]["gpuTypes"]), len(gpus))

    def test_registries(self):
        def go(*arguments, **more):
            return self.go("runpod", *arguments, **more)
        at = "/v2/registries"
        self.assertEqual(go("GET", at, 200), {"registries": []})
        made = go("POST", at, 201, {"name": "n", "username": "ada", "password": "s3cret"})
        self.assertEqual(set(made), {"id", "name"})
        at_one = at + "/" + made["id"]
        self.assertEqual(go("GET", at_one, 200), made)
        self.assertEqual(go("GET", at, 200), {"registries": [made]})
        go("POST", at, 422, {"name": "n", "username": "ada"})
        go("POST", at, 422, {"name": "n", "username": "ada", "password": "p", "server": "s"})
        # Each account has its own.
        self.sim.account(service="runpod", key="other", balance_usd=100)
        self.assertEqual(go("GET", at, 200, key="other"), {"registries": []})
        go("GET", at_one, 404, key="other")
        go("DELETE", at_one, 404, key="other")
        go("POST", "/v2/pods", 404, runpod_body(registry="unknown"))
        go("POST", "/v2/pods", 404, runpod_body(registry=made["id"]), key="other")
        pod = go("POST", "/v2/pods", 201, runpod_body(registry=made["id"]))
        self.assertEqual(pod["registry"], made["id"])
        go("DELETE", at_one, 400)
        go("DELETE", "/v2/pods/" + pod["id"], 204)
        books = self.sim.books()
        self.assertEqual([b["name"] for b in books["registries"]], ["n"])
        self.assertNotIn("s3cret", json.dumps(books))
        go("DELETE", at_one, 204)
        go("DELETE", at_one, 404)
        self.assertEqual(self.sim.books()["registries"], [])

    def test_private_images(self):
        image = "ghcr.io/team/private-tool:1"
        self.sim.registry("ghcr.io", "ada", "right")

        def runpod(username, password, **more):
            entry = self.go("runpod", "POST", "/v2/registries", 201,
                            {"name": "n", "username": username, "password": password})
            pod = self.go("runpod", "POST", "/v2/pods", 201,
                          runpod_body(image=image, registry=entry["id"], **more))
            self.sim.advance(60)
            return self.go("runpod", "GET", "/v2/pods/" + pod["id"], 200)["status"]
        self.assertEqual(runpod("ada", "right"), "RUNNING")
        self.assertEqual(runpod("ada", "wrong"), "PROVISIONING")
        self.assertEqual(runpod("eve", "right"), "PROVISIONING")

        def vast(ask, want=200, **more):
            made = self.go("vast", "PUT", f"/api/v0/asks/{ask}/", want, {"image": image, **more})
            if want != 200:
                return made["error"]
            self.sim.advance(60)
            row = self.go("vast", "GET", f"/api/v0/instances/{made['new_contract']}/", 200)
            return row["instances"]["actual_status"], row["instances"]["status_msg"]
        good = "-u ada -p right ghcr.io"
        for bad in ("ada:right@ghcr.io", "-u ada", "-u ada -p", "-u ada -p right ghcr.io more",
                    "--config x -u ada -p right ghcr.io"):
            self.assertEqual(vast(9100001, 400, image_login=bad), "invalid_args")
        self.assertEqual(vast(9100001, image_login=good)[0], "running")
        status, said = vast(9100002, image_login=good.replace("right", "wrong"))
        self.assertEqual(status, "loading")
        self.assertIn("unauthorized: incorrect username or password", said)
        status, said = vast(9100003, image_login=good.replace("ghcr.io", "docker.io"))
        self.assertEqual(status, "loading")
        self.assertIn("pull access denied for " + image, said)
        # A fault makes any image private.
        self.sim.fault("runpod", "create", "image_private")
        pod = self.go("runpod", "POST", "/v2/pods", 201, runpod_body())
        self.sim.advance(60)
        self.assertEqual(self.go("runpod", "GET", "/v2/pods/" + pod["id"], 200)["status"],
                         "PROVISIONING")
        with self.stream(f"/runpod/v2/pods/{pod['id']}/logs?source=system") as lines:
            log = [lines.readline() for _ in range(6)]
        self.assertIn(b"pull access denied for image", b"".join(log))

    @contextlib.contextmanager
    def stream(self, path):
        """Opens an answer without an end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.sim.port, timeout=10)
        try:
            connection.request("GET", path, headers={
                "User-Agent": "test", "Authorization": "Bearer " + KEYS["runpod"]})
            yield connection.getresponse()
        finally:
            connection.close()

    def test_lambda(self):
        def go(*arguments, **more):
            return self.go("lambda", *arguments, **more)
        types = go("GET", "/api/v1/instance-types", 200)["data"]
        self.assertEqual(types["gpu_1x_a10"]["instance_type"]["price_cents_per_hour"], 75)
        go("GET", "/api/v1/regions", 200)
        go("GET", "/api/v1/images", 200)
        key = go("POST", "/api/v1/ssh-keys", 200, {"name": "k", "public_key": "ssh-ed25519 A"})
        go("POST", "/api/v1/ssh-keys", 200, {"name": "made"})
        go("POST", "/api/v1/ssh-keys", 400, {})
        go("GET", "/api/v1/ssh-keys", 200)
        fs = go("POST", "/api/v1/filesystems", 200, {"name": "data", "region": "us-west-1"})["data"]
        go("POST", "/api/v1/filesystems", 400, {"name": "data", "region": "us-west-1"})
        go("GET", "/api/v1/file-systems", 200)
        body = {"region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
                "ssh_key_names": ["k"], "name": "gpuctl-x",
                "tags": [{"key": "gpuctl-run", "value": "1"}],
                "file_system_mounts": [{"mount_point": "/lambda/nfs/data",
                                        "file_system_id": fs["id"]}]}
        launch = "/api/v1/instance-operations/launch"
        made = go("POST", launch, 200, body)["data"]["instance_ids"][0]
        go("POST", launch, 400, {**body, "region_name": "us-east-1"})
        go("POST", launch, 400, {**body, "instance_type_name": "gpu_1x_h100_sxm5"})
        go("POST", launch, 400, {**body, "ssh_key_names": ["k", "made"]})
        go("POST", launch, 400, {**body, "ssh_key_names": ["nobody"]})
        go("GET", "/api/v1/instances", 200)
        eventually(lambda: go("GET", "/api/v1/instances/" + made, 200)["data"]["status"]
                   == "active", "the instance is active")
        go("POST", "/api/v1/instances/" + made, 200, {"name": "other"})
        go("DELETE", "/api/v1/filesystems/" + fs["id"], 400)
        go("POST", "/api/v1/instance-operations/restart", 200, {"instance_ids": [made]})
        end = "/api/v1/instance-operations/terminate"
        self.assertEqual(
            len(go("POST", end, 200, {"instance_ids": [made]})["data"]["terminated_instances"]), 1)
        go("GET", "/api/v1/instances/" + made, 404)
        go("POST", end, 404, {"instance_ids": [made]})
        go("POST", end, 400, {})
        go("DELETE", "/api/v1/filesystems/" + fs["id"], 200)
        go("GET", "/api/v1/firewall-rules", 200)
        go("GET", "/api/v1/firewall-rulesets", 200)
        go("GET", "/api/v1/firewall-rulesets/global", 200)
        rules = go("POST", "/api/v1/firewall-rulesets", 200,
                   {"name": "r", "region": "us-west-1", "rules": []})["data"]
        go("DELETE", "/api/v1/firewall-rulesets/" + rules["id"], 200)
        go("DELETE", "/api/v1/ssh-keys/" + key["data"]["id"], 200)
        go("GET", "/api/v1/instances", 401, key="wrong")

    def test_digitalocean(self):
        def go(*arguments, **more):
            return self.go("digitalocean", *arguments, **more)
        sizes = go("GET", "/v2/sizes?per_page=200", 200)["sizes"]
        self.assertIn("nvidia_h100", [size.get("gpu_info", {}).get("model") for size in sizes])
        page = go("GET", "/v2/sizes?per_page=2", 200)
        self.assertEqual(page["meta"]["total"], len(sizes))
        slugs = [size["slug"] for size in page["sizes"]]
        while "next" in page["links"].get("pages", {}):
            path = page["links"]["pages"]["next"].split("/digitalocean", 1)[1]
            page = go("GET", path, 200)
            slugs += [size["slug"] for size in page["sizes"]]
        self.assertEqual(slugs, [size["slug"] for size in sizes])
        go("GET", "/v2/account", 200)
        key = go("POST", "/v2/account/keys", 201,
                 {"name": "k", "public_key": "ssh-ed25519 AAAA me"})["ssh_key"]
        go("POST", "/v2/account/keys", 422, {"name": "l", "public_key": "ssh-ed25519 AAAA me"})
        self.assertEqual(len(go("GET", "/v2/account/keys", 200)["ssh_keys"]), 1)
        body = {"name": "gpuctl-x", "region": "nyc2", "size": "gpu-h100x1-80gb",
                "image": "gpu-h100x1-base", "ssh_keys": [key["id"]], "tags": ["gpuctl"]}
        made = go("POST", "/v2/droplets", 202, body)["droplet"]["id"]
        for wrong in ({"region": "tor1"}, {"size": "none"}, {"ssh_keys": [1]}, {"name": "a b"},
                      {"image": "gpu-h100x8-base"}, {"tags": ["a=b"]}):
            go("POST", "/v2/droplets", 422, {**body, **wrong})
        plain = go("POST", "/v2/droplets", 202, {**body, "size": "s-1vcpu-1gb", "region": "nyc1",
                                                 "image": "ubuntu"})["droplet"]["id"]
        # Each list leaves out what the other one has.
        def listed(query):
            return [row["id"] for row in go("GET", "/v2/droplets" + query, 200)["droplets"]]
        self.assertEqual((listed(""), listed("?type=gpus")), ([plain], [made]))
        eventually(lambda: go("GET", f"/v2/droplets/{made}", 200)["droplet"]["status"] == "active",
                   "the droplet is active")
        # One that is off bills on.
        self.sim.change("digitalocean", made, "stop")
        self.assertEqual(go("GET", f"/v2/droplets/{made}", 200)["droplet"]["status"], "off")
        before = self.sim.book(made)["billed_usd"]
        self.sim.advance(7200)
        self.assertAlmostEqual(self.sim.book(made)["billed_usd"] - before, 2 * 3.39, places=6)
        go("DELETE", f"/v2/droplets/{made}", 204)
        go("DELETE", f"/v2/droplets/{made}", 404)
        go("GET", f"/v2/droplets/{made}", 404)
        go("GET", "/v2/droplets", 401, key="wrong")

    def test_shadeform(self):
        def go(*arguments, **more):
            return self.go("shadeform", *arguments, **more)

        def refused(method, path, body, status, **more):
            """Errors are in no description: every one has these two fields, and no other."""
            answer = self.sim.call("shadeform", method, path, body, **more)
            self.assertEqual((answer.status, set(answer.json)), (status, {"error_code", "error"}))
            return answer.json["error_code"]

        def types(query=""):
            rows = go("GET", "/v1/instances/types" + query, 200, key="")["instance_types"]
            return {f"{row['cloud']}/{row['shade_instance_type']}": row for row in rows}
        every = types()["hyperstack/A6000"]["availability"]
        self.assertEqual([(place["region"], place["rental_type"], place["available"])
                          for place in every],
                         [("canada-1", "on_demand", True), ("canada-1", "spot", True),
                          ("norway-1", "on_demand", False), ("norway-1", "spot", True)])
        there = types("?available=true")["hyperstack/A6000"]["availability"]
        self.assertEqual(len(there), 3)
        self.assertIn("container", [row["deployment_type"] for row in types().values()])
        key = go("POST", "/v1/sshkeys/add", 200, {"name": "k", "public_key": "ssh-ed25519 AAAA"})
        self.assertEqual(go("GET", "/v1/sshkeys", 200)["ssh_keys"][0]["id"], key["id"])
        refused("POST", "/v1/sshkeys/add", {"name": "k", "public_key": "ssh-ed25519 B"}, 409)
        now = self.sim.control("GET", "clock")["now_ms"] / 1000

        def date(seconds):
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + seconds))
        create = "/v1/instances/create"
        body = {"cloud": "hyperstack", "region": "canada-1", "shade_instance_type": "A6000",
                "shade_cloud": True, "name": "gpuctl-x", "ssh_key_id": key["id"],
                "tags": ["a:b"], "auto_delete": {"date_threshold": date(5400)}}
        made = go("POST", create, 200, body)["id"]
        for wrong in ({"region": "norway-1"}, {"region": "none"}, {"cloud": "none"},
                      {"ssh_key_id": "none"}, {"tags": "a"},
                      {"auto_delete": {"date_threshold": "tomorrow"}}):
            self.assertIn(refused("POST", create, {**body, **wrong}, 409 if wrong.get("region") ==
                                  "norway-1" else 400), ("OUT_OF_STOCK", "HTTP_400"))
        info = f"/v1/instances/{made}/info"
        self.assertEqual(go("GET", info, 200)["status"], "active")
        (row,) = go("GET", "/v1/instances", 200)["instances"]
        self.assertNotIn("auto_delete", row)
        # An update moves the end, keeps it, or takes it away.
        update = f"/v1/instances/{made}/update"
        go("POST", update, 200, {"auto_delete": {"date_threshold": date(9000)}})
        go("POST", update, 200, {"name": "renamed"})
        self.assertEqual(go("GET", info, 200)["auto_delete"], {"date_threshold": date(9000)})
        refused("POST", update, {"auto_delete": {"date_threshold": "x"}}, 400)
        self.sim.advance(8999)
        self.assertTrue(self.sim.book(made)["alive"])
        # Somebody looks an hour after the end; the bill ended in time.
        self.sim.advance(3600)
        book = self.sim.book(made)
        self.assertEqual((book["alive"], book["ended_by"]), (False, "simulator: auto_delete"))
        self.assertAlmostEqual(book["billed_usd"], 3 * 0.50, places=6)
        self.assertEqual(go("GET", info, 200)["status"], "deleted")
        self.assertEqual(go("GET", "/v1/instances", 200)["instances"], [])
        refused("POST", f"/v1/instances/{made}/delete", None, 404)
        # A spot machine has its own price, and ends by its amount.
        spot = go("POST", create, 200, {**body, "rental_type": "spot", "auto_delete": {
            "spend_threshold": "0.60"}})["id"]
        self.assertEqual(go("GET", f"/v1/instances/{spot}/info", 200)["hourly_price"], 30)
        self.sim.advance(3500)
        self.assertTrue(self.sim.book(spot)["alive"])
        self.sim.advance(200)
        self.assertFalse(self.sim.book(spot)["alive"])
        taken = go("POST", create, 200, {**body, "rental_type": "spot", "auto_delete": {}})["id"]
        self.sim.change("shadeform", taken, "preempt")
        seen = go("GET", f"/v1/instances/{taken}/info", 200)
        self.assertEqual((seen["status"], seen["status_details"]), ("deleted", "preempted"))
        last = go("POST", create, 200, {**body, "auto_delete": {}})["id"]
        go("POST", f"/v1/instances/{last}/delete", 200)
        self.assertFalse(self.sim.book(last)["alive"])
        self.sim.account(service="shadeform", key=KEYS["shadeform"], balance_usd=4)
        self.assertEqual(refused("POST", create, body, 409), "INSUFFICIENT_FUNDS")
        refused("GET", "/v1/instances/none/info", None, 404)
        refused("GET", "/v1/instances", None, 401, key="wrong")

    def test_huggingface(self):
        def go(*arguments, **more):
            return self.go("huggingface", *arguments, **more)
        flavors = go("GET", "/api/jobs/hardware", 200)
        (l4x4,) = [flavor for flavor in flavors if flavor["name"] == "l4x4"]
        self.assertEqual((l4x4["accelerator"]["quantity"], l4x4["accelerator"]["vram"]),
                         ("4", "96 GB"))
        who = go("GET", "/api/whoami-v2", 200)
        self.assertTrue(who["canPay"])
        jobs = "/api/jobs/" + who["name"]
        body = {"flavor": "a10g-small", "dockerImage": "i", "command": ["sh", "-c", "sleep 999"],
                "environment": {"AB": "c"}, "timeoutSeconds": 7200, "ssh": {"enabled": True},
                "labels": {"name": "gpuctl-x", "gpuctl-lease": "gpuctl-x"}}
        made = go("POST", jobs, 200, body)
        self.assertEqual((made["status"]["stage"], made["timeout"]), ("SCHEDULING", 7200))
        for wrong in ({"flavor": "none"}, {"labels": {"a": "b c"}}, {"timeoutSeconds": 0},
                      {"command": []}, {"imageName": "i"}):
            go("POST", jobs, 400, {**body, **wrong})
        go("POST", "/api/jobs/somebody", 403, body)
        at = f"{jobs}/{made['id']}"
        eventually(lambda: go("GET", at, 200)["status"]["stage"] == "RUNNING", "the job runs")
        # Waiting is free; a begun minute counts.
        self.sim.advance(5)
        book = self.sim.book(made["id"])
        self.assertEqual(book["charges"][0]["from_ms"], book["started_ms"])
        self.assertAlmostEqual(book["billed_usd"], 0.016667, places=6)
        others = [go("POST", jobs, 200, {**body, "timeoutSeconds": 3600})["id"] for _ in range(3)]
        page = self.sim.call("huggingface", "GET", jobs + "?stage=RUNNING&stage=SCHEDULING")
        self.assertEqual(len(page.json), 3)
        self.assertIn('rel="next"', page.headers["link"])
        rest = go("GET", page.headers["link"].split("/huggingface", 1)[1].split(">")[0], 200)
        self.assertEqual([job["id"] for job in page.json + rest], [made["id"]] + others)
        self.assertEqual(go("POST", at + "/cancel", 200)["status"]["stage"], "CANCELED")
        go("POST", at + "/cancel", 400)
        # It stays readable, and in the list of everything.
        self.assertEqual(go("GET", at, 200)["status"]["stage"], "CANCELED")
        self.assertEqual([job["id"] for job in go("GET", jobs + "?stage=CANCELED", 200)],
                         [made["id"]])
        self.sim.advance(3600)
        for other in others:
            status = go("GET", f"{jobs}/{other}", 200)["status"]
            self.assertEqual((status["stage"], status["message"]), ("CANCELED", "Job timed out"))
            self.assertFalse(self.sim.book(other)["alive"])
        go("GET", jobs + "/" + "0" * 24, 404)
        go("GET", jobs, 401, key="wrong")

    def test_vast(self):
        def go(*arguments, **more):
            return self.go("vast", *arguments, **more)
        search = {"gpu_name": {"eq": "RTX 4090"}, "num_gpus": {"eq": 1},
                  "direct_port_count": {"gte": 2}, "order": [["dph_total", "asc"]], "limit": 64,
                  "allocated_storage": 60}
        offers = go("POST", "/api/v0/bundles/", 200, search)["offers"]
        self.assertEqual([offer["id"] for offer in offers], [9100001, 9100002])
        self.assertAlmostEqual(offers[0]["dph_total"], 0.29 + 60 * 0.15 / 720)
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/bundles/?q=%7B%22limit%22:1%7D",
                                       key="").json["offers"].__len__(), 1)
        go("GET", "/api/v0/users/current/", 200)
        key = go("POST", "/api/v0/ssh/", 200, {"ssh_key": "ssh-ed25519 AAAA me"})["key"]
        go("POST", "/api/v0/ssh/", 400, {"ssh_key": ""})
        go("GET", "/api/v0/ssh/", 200)
        body = {"image": "vastai/base-image", "disk": 60, "runtype": "ssh_direct",
                "label": "gpuctl-x", "env": {"A": "1", "-p 8000:8000": "1"}}
        made = go("PUT", "/api/v0/asks/9100001/", 200, body)
        contract = made["new_contract"]
        at = f"/api/v0/instances/{contract}/"
        go("PUT", "/api/v0/asks/9100001/", 410, body)
        go("PUT", "/api/v0/asks/1/", 404, body)
        go("PUT", "/api/v0/asks/9100002/", 400, {**body, "disk": 2})
        go("GET", "/api/v1/instances/?limit=25", 200)
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/instances/").status, 410)
        eventually(lambda: go("GET", at, 200)["instances"]["actual_status"] == "running",
                   "the instance runs")
        go("PUT", at, 200, {"label": "renamed"})
        go("PUT", at, 400, {"state": "asleep"})
        go("POST", at + "ssh/", 200, {"ssh_key": "ssh-ed25519 BBBB you"})
        go("GET", at + "ssh/", 200)
        go("PUT", f"/api/v0/instances/request_logs/{contract}/", 200, {"tail": "100"})
        go("PUT", f"/api/v0/instances/command/{contract}/", 400, {"command": "x" * 513})
        go("PUT", f"/api/v0/instances/reboot/{contract}/", 200)
        copy_body = {"src_id": str(contract), "dst_id": "C.7", "src_path": "/a", "dst_path": "/a"}
        go("PUT", "/api/v0/commands/copy_direct/", 404, copy_body)
        go("PUT", "/api/v0/commands/copy_direct/", 400, {**copy_body, "src_path": ""})
        go("PUT", "/api/v0/commands/copy_direct/", 200, {**copy_body, "dst_id": str(contract)})
        go("DELETE", "/api/v0/commands/copy_direct/", 200, {"dst_id": str(contract)})
        go("POST", "/api/v0/secrets/", 200, {"key": "k", "value": "v"})
        go("POST", "/api/v0/secrets/", 400, {"key": "k", "value": "v"})
        go("PUT", "/api/v0/secrets/", 200, {"key": "k", "value": "w"})
        go("GET", "/api/v0/secrets/", 200)
        go("DELETE", "/api/v0/secrets/", 200, {"key": "k"})
        go("DELETE", "/api/v0/secrets/", 400, {"key": "k"})
        go("GET", "/api/v0/charges/?select_filters=%7B%22day%22:%7B%22gte%22:0,"
           "%22lte%22:9000000000%7D%7D", 200)
        go("GET", "/api/v0/charges/", 400)
        go("GET", "/api/v1/invoices/?select_filters=%7B%22when%22:%7B%22gte%22:0,"
           "%22lte%22:9000000000%7D%7D", 200)
        go("GET", "/api/v1/invoices/", 200)
        go("PUT", f"/api/v0/instances/bid_price/{contract}/", 400, {"client_id": "me", "price": 1})
        permissions = {"api": {"instance_read": {"api.instance.show": {
            "constraints": {"id": {"eq": contract}}}}}}
        scoped = go("POST", "/api/v0/auth/apikeys/", 200, {"name": "n", "permissions": permissions})
        go("GET", "/api/v0/auth/apikeys/", 200)
        go("GET", at, 200, key=scoped["key"])
        self.assertEqual(self.sim.call("vast", "DELETE", at, key=scoped["key"]).status, 403)
        go("DELETE", f"/api/v0/auth/apikeys/{scoped['id']}/", 200)
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/users/current/",
                                       key=made["instance_api_key"]).status, 403)
        go("DELETE", at, 200, key=made["instance_api_key"])
        self.assertIsNone(go("GET", at, 200)["instances"])
        go("DELETE", at, 404)
        go("DELETE", f"/api/v0/ssh/{key['id']}/", 200)
        go("GET", "/api/v0/volumes/", 200)
        go("GET", "/api/v0/users/current/", 401, key="wrong")

    def test_vast_pages(self):
        for ask in (9100002, 9100003, 9100006):
            self.go("vast", "PUT", f"/api/v0/asks/{ask}/", 200, {"image": "i", "label": str(ask)})
        found, token = [], ""
        while token is not None:
            page = self.go("vast", "GET", f"/api/v1/instances/?limit=1&after_token={token}", 200)
            self.assertEqual(page["total_instances"], 3)
            found += [instance["label"] for instance in page["instances"]]
            token = page["next_token"]
        self.assertEqual(found, ["9100002", "9100003", "9100006"])
        one = self.go("vast", "GET", "/api/v1/instances/?select_filters="
                      "%7B%22label%22:%7B%22eq%22:%229100003%22%7D%7D", 200)
        self.assertEqual([i["label"] for i in one["instances"]], ["9100003"])


if __name__ == "__main__":
    PROGRAM, SHARED = sys.argv[1:3]
    if not os.path.isdir(os.path.join(SHARED, "providers")):
        print(f"no specifications in {SHARED}: not checked against them")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

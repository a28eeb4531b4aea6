#!/usr/bin/env python3
"""Requests as public clients of Lambda Cloud send them, and the fields of the answers that they
read.

  lambda_clients_test.py GPUCTL_CLOUDSIM

The clients are the orchestrators SkyPilot and dstack, the Terraform providers, and the command lines
that send a key as the user of basic authentication. The bodies are written from their public
documentation and behaviour.
"""
import base64
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import TEXT_OR_NULL, check_fields  # noqa: E402
from simulator import KEYS, Simulator, eventually  # noqa: E402

PROGRAM = ""
PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDY0 me@laptop"
LAUNCH = "/api/v1/instance-operations/launch"
TERMINATE = "/api/v1/instance-operations/terminate"
RESTART = "/api/v1/instance-operations/restart"
BODY = {"region_name": "us-west-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["k"]}
REGION = {"region.name": str, "region.description": str}
TYPE = {"name": str, "description": str, "gpu_description": str, "price_cents_per_hour": int,
        "specs.vcpus": int, "specs.memory_gib": int, "specs.storage_gib": int, "specs.gpus": int}


def basic(user):
    return {"Authorization": "Basic " + base64.b64encode(user.encode()).decode()}


class LambdaClientsTest(unittest.TestCase):
    def start(self, *options):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0", *options)
        self.addCleanup(self.sim.stop)

    def ask(self, method, path, body=None, status=200, key=None):
        """Returns the "data" that every client unwraps; of a refusal the "error"."""
        answer = self.sim.call("lambda", method, path, body, key, timeout=20)
        self.assertEqual(answer.status, status, answer.text)
        return answer.json["data" if status == 200 else "error"]

    def as_user(self, headers, method, path, body=None):
        return self.sim.request(method, "/lambda" + path, body, headers, timeout=20)

    def add_key(self, name="k"):
        return self.ask("POST", "/api/v1/ssh-keys", {"name": name, "public_key": PUBLIC})

    def launch(self, **more):
        (made,) = self.ask("POST", LAUNCH, {**BODY, **more})["instance_ids"]
        return made

    # SkyPilot

    def sky_key_name(self, prefix, public_key):
        """Returns the name for a key as SkyPilot finds it, and whether it is there."""
        listed = [key for key in self.ask("GET", "/api/v1/ssh-keys")
                  if key.get("name", "").startswith(prefix)]
        for key in listed:
            if key.get("public_key", "").strip() == public_key.strip():
                return key["name"], True
        return (prefix if not listed else "%s-%d" % (prefix, len(listed))), False

    def test_skypilot_sets_up_its_key(self):
        self.start("--no-nodes")
        self.add_key("of-somebody-else")
        self.assertEqual(self.sky_key_name("sky-key-ab", PUBLIC), ("sky-key-ab", False))
        self.add_key("sky-key-ab")
        self.assertEqual(self.sky_key_name("sky-key-ab", PUBLIC + "\n"), ("sky-key-ab", True))
        self.assertEqual(self.sky_key_name("sky-key-ab", "ssh-rsa B"), ("sky-key-ab-1", False))
        # Two clients that register the same name at once: the second is told so.
        error = self.ask("POST", "/api/v1/ssh-keys",
                         {"name": "sky-key-ab", "public_key": PUBLIC}, 400)
        self.assertEqual(error["code"], "global/duplicate")

    def test_skypilot_launches_and_waits(self):
        self.start()
        self.add_key("sky-key-ab")
        catalog = self.ask("GET", "/api/v1/instance-types")
        self.assertIsInstance(catalog, dict)
        regions = catalog["gpu_1x_a10"]["regions_with_capacity_available"]
        self.assertIn("us-west-1", [region["name"] for region in regions])
        self.assertEqual(catalog["gpu_1x_h100_sxm5"]["regions_with_capacity_available"], [])
        # It sends its JSON without saying what it is.
        body = {**BODY, "ssh_key_names": ["sky-key-ab"], "quantity": 1, "name": "sky-1-head"}
        answer = self.as_user({"Authorization": "Bearer " + KEYS["lambda"], "Content-Type": ""},
                              "POST", LAUNCH, body)
        self.assertEqual(answer.status, 200, answer.text)
        (made,) = answer.json["data"]["instance_ids"]

        def active():
            (listed,) = self.ask("GET", "/api/v1/instances")
            check_fields(self, listed, {"id": str, "name": str, "status": str, **REGION})
            self.assertEqual((listed["id"], listed["name"]), (made, "sky-1-head"))
            self.assertIn(listed["status"], ("booting", "active"))
            return listed if listed["status"] == "active" and listed.get("ip") else None
        listed = eventually(active, "it is active")
        check_fields(self, listed, {"ip": str, "private_ip": str, "instance_type.name": str})
        ended = self.ask("POST", TERMINATE, {"instance_ids": [made]})["terminated_instances"]
        self.assertEqual([instance["id"] for instance in ended], [made])
        eventually(lambda: self.ask("GET", "/api/v1/instances") == [], "it is gone")

    def test_skypilot_reads_refusals(self):
        self.start("--no-nodes")
        self.add_key()
        for more, code in (
                ({"instance_type_name": "gpu_1x_h100_sxm5"},
                 "instance-operations/launch/insufficient-capacity"),
                ({"quantity": 2}, "global/invalid-parameters"),
                ({"ssh_key_names": ["k", "k2"]}, "global/invalid-parameters"),
                ({"ssh_key_names": ["nobody"]}, "global/object-does-not-exist"),
                ({"instance_type_name": "gpu_1x_abacus"}, "global/object-does-not-exist"),
                ({"region_name": "the-moon-1"}, "global/object-does-not-exist"),
                ({"name": "n" * 65}, "global/invalid-parameters")):
            error = self.ask("POST", LAUNCH, {**BODY, **more}, 400)
            check_fields(self, error, {"code": str, "message": str, "suggestion": str})
            self.assertEqual(error["code"], code, more)
        self.assertEqual(self.sim.books()["instances"], [])

    def test_skypilot_waits_when_it_asks_too_often(self):
        sim = Simulator(PROGRAM, "--no-nodes")
        self.addCleanup(sim.stop)
        sim.freeze()
        answers = [sim.call("lambda", "GET", "/api/v1/instances") for _ in range(2)]
        self.assertEqual([answer.status for answer in answers], [200, 429])
        check_fields(self, answers[1].json, {"error.code": str, "error.message": str})

    # dstack

    def test_dstack(self):
        self.start("--no-nodes")
        # It takes either status for a bad key.
        self.assertIn(self.sim.call("lambda", "GET", "/api/v1/instance-types", key="x").status,
                      (401, 403))
        for name, entry in self.ask("GET", "/api/v1/instance-types").items():
            check_fields(self, entry["instance_type"], TYPE)
            self.assertEqual(entry["instance_type"]["name"], name)
            self.assertIsInstance(entry["regions_with_capacity_available"], list)
        self.assertEqual(self.ask("GET", "/api/v1/ssh-keys"), [])
        check_fields(self, self.add_key(), {"id": str, "name": str, "public_key": str})
        made = self.launch(file_system_names=[], quantity=1, name="job-0-0")
        unnamed = self.launch(file_system_names=[], quantity=1, name=None, hash="ab12")
        listed = {one["id"]: one for one in self.ask("GET", "/api/v1/instances")}
        self.assertEqual(sorted(listed), sorted([made, unnamed]))
        check_fields(self, listed[made], {"status": str, "name": str, "file_system_names": list})
        # A machine whose address is not known yet has no "ip", or null.
        self.assertIsInstance(listed[made].get("ip"), TEXT_OR_NULL)
        ended = self.ask("POST", TERMINATE, {"instance_ids": [made, unnamed]})
        self.assertEqual(len(ended["terminated_instances"]), 2)
        error = self.ask("POST", TERMINATE, {"instance_ids": [made, "none"]}, 404)
        self.assertEqual(error["code"], "global/object-does-not-exist")

    # Terraform

    def test_terraform(self):
        self.start()
        key = self.ask("POST", "/api/v1/ssh-keys", {"name": "terraform"})
        check_fields(self, key, {"id": str, "name": str, "public_key": str, "private_key": str})
        (listed,) = self.ask("GET", "/api/v1/ssh-keys")
        self.assertEqual((listed["id"], "private_key" in listed), (key["id"], False))
        made = self.launch(ssh_key_names=["terraform"])
        path = "/api/v1/instances/" + made

        def active():
            shown = self.ask("GET", path)
            return shown if shown["status"] == "active" and "ip" in shown else None
        shown = eventually(active, "it is active")
        check_fields(self, shown, {
            "id": str, "ip": str, "ssh_key_names": list, "file_system_names": list,
            "hostname": str, "jupyter_token": str, "jupyter_url": str, **REGION,
            **{"instance_type." + path: kind for path, kind in TYPE.items()}})
        self.assertEqual(shown["ssh_key_names"], ["terraform"])
        # A mount that does not exist is not shown.
        self.assertNotIn("file_system_mounts", shown)
        self.ask("POST", TERMINATE, {"instance_ids": [made]})

        def gone():
            # By this code a provider takes the resource out of its state.
            answer = self.sim.call("lambda", "GET", path)
            return answer.status == 404 and answer.json["error"]["code"]
        self.assertEqual(eventually(gone, "it is gone"), "global/object-does-not-exist")
        self.assertEqual(self.ask("DELETE", "/api/v1/ssh-keys/" + key["id"]), {})
        self.assertEqual(self.ask("GET", "/api/v1/ssh-keys"), [])

    # Command lines

    def test_keys_as_users(self):
        self.start("--no-nodes")
        key = KEYS["lambda"]
        for headers, status in ((basic(key + ":"), 200), ({"Authorization": "Basic " + key}, 200),
                                (basic("wrong:"), 401), (basic(":" + key), 401), ({}, 401)):
            answer = self.as_user(headers, "GET", "/api/v1/instances")
            self.assertEqual(answer.status, status, headers)
        # The other markets take no such key.
        for service, path in (("runpod", "/v2/pods"), ("vast", "/api/v0/users/current/")):
            answer = self.sim.request("GET", "/%s%s" % (service, path),
                                      headers=basic(KEYS[service] + ":"))
            self.assertEqual(answer.status, 401, answer.text)

    def test_file_systems_by_name(self):
        self.start("--no-nodes")
        self.add_key()
        made = {}
        for name, region in (("sets", "us-west-1"), ("more", "us-west-1"), ("far", "us-east-1")):
            made[name] = self.ask("POST", "/api/v1/filesystems", {"name": name, "region": region})
        check_fields(self, made["sets"], {"id": str, "name": str, "mount_point": str,
                                          "created": str, "is_in_use": bool, **REGION})
        for name, code in (("far", "instance-operations/launch/file-system-in-wrong-region"),
                           ("nothing", "global/object-does-not-exist")):
            error = self.ask("POST", LAUNCH, {**BODY, "file_system_names": [name]}, 400)
            self.assertEqual(error["code"], code)
        # What is named and described is mounted once, where the description says.
        mount = {"mount_point": "/data/mine", "file_system_id": made["sets"]["id"]}
        instance = self.launch(file_system_names=["sets", "more"], file_system_mounts=[mount])
        shown = self.ask("GET", "/api/v1/instances/" + instance)
        self.assertEqual(sorted(shown["file_system_names"]), ["more", "sets"])
        self.assertEqual(shown["file_system_mounts"], [
            mount, {"mount_point": "/lambda/nfs/more", "file_system_id": made["more"]["id"]}])
        in_use = {one["name"]: one["is_in_use"] for one in self.ask("GET", "/api/v1/file-systems")}
        self.assertEqual(in_use, {"sets": True, "more": True, "far": False})
        path = "/api/v1/filesystems/" + made["more"]["id"]
        self.assertEqual(self.ask("DELETE", path, None, 400)["code"],
                         "filesystems/filesystem-in-use")
        self.ask("POST", TERMINATE, {"instance_ids": [instance]})
        eventually(lambda: self.sim.book(instance)["phase"] == "ended", "it has ended")
        self.assertEqual(self.ask("DELETE", path)["deleted_ids"], [made["more"]["id"]])

    def test_firewall(self):
        self.start("--no-nodes")
        self.add_key()
        (rule,) = self.ask("GET", "/api/v1/firewall-rules")
        check_fields(self, rule, {"protocol": str, "port_range.0": int, "port_range.1": int,
                                  "source_network": str, "description": str})
        web = {"protocol": "tcp", "port_range": [443, 443], "source_network": "0.0.0.0/0",
               "description": "web"}
        ping = {"protocol": "icmp", "source_network": "203.0.113.7", "description": "ping"}
        self.assertEqual(self.ask("PUT", "/api/v1/firewall-rules", {"data": [rule, web, ping]}),
                         [rule, web, ping])
        everywhere = self.ask("GET", "/api/v1/firewall-rulesets/global")
        self.assertEqual((everywhere["id"], everywhere["rules"]), ("global", [rule, web, ping]))
        for wrong in ({**web, "protocol": "smoke"}, {**web, "port_range": [443]},
                      {**web, "port_range": [0, 9]}, {**ping, "port_range": [1, 1]},
                      {"protocol": "tcp", "port_range": [1, 1], "description": "d"},
                      {**ping, "protocol": "udp"}, {**web, "description": "d" * 129}):
            error = self.ask("PUT", "/api/v1/firewall-rules", {"data": [wrong]}, 400)
            self.assertEqual(error["code"], "global/invalid-parameters", wrong)
        ruleset = self.ask("POST", "/api/v1/firewall-rulesets",
                           {"name": "web", "region": "us-west-1", "rules": [web]})
        check_fields(self, ruleset, {"id": str, "created": str, "instance_ids": list, **REGION})
        entry = [{"id": ruleset["id"]}]
        # A ruleset is for its region only.
        self.ask("POST", LAUNCH, {**BODY, "region_name": "us-east-1", "firewall_rulesets": entry},
                 400)
        instance = self.launch(firewall_rulesets=entry)
        path = "/api/v1/firewall-rulesets/" + ruleset["id"]
        self.assertEqual(self.ask("GET", path)["instance_ids"], [instance])
        self.assertEqual(self.ask("PATCH", path, {"rules": [web, ping]})["rules"], [web, ping])
        self.assertEqual(self.ask("DELETE", path, None, 400)["code"],
                         "firewall-rulesets/firewall-ruleset-in-use")
        self.ask("POST", TERMINATE, {"instance_ids": [instance]})
        eventually(lambda: self.sim.book(instance)["phase"] == "ended", "it has ended")
        self.assertEqual(self.ask("DELETE", path), {})
        self.assertEqual(self.ask("GET", path, None, 404)["code"], "global/object-does-not-exist")

    def test_images_names_and_restarts(self):
        self.start("--no-nodes")
        self.add_key()
        images = self.ask("GET", "/api/v1/images")
        check_fields(self, images[0], {
            "id": str, "name": str, "description": str, "family": str, "version": str,
            "architecture": str, "created_time": str, "updated_time": str, **REGION})
        here = next(i for i in images if i["region"]["name"] == "us-west-1")
        there = next(i for i in images if i["region"]["name"] == "us-east-1")
        for image, good in (({"id": here["id"]}, True), ({"family": here["family"]}, True),
                            ({"id": there["id"]}, False), ({"family": "none"}, False),
                            ({}, False)):
            if good:
                instance = self.launch(image=image)
            else:
                error = self.ask("POST", LAUNCH, {**BODY, "image": image}, 400)
                self.assertEqual(error["code"], "global/object-does-not-exist", image)
        path = "/api/v1/instances/" + instance
        self.assertEqual(self.ask("POST", path, {"name": "renamed"})["name"], "renamed")
        self.assertEqual(self.ask("GET", path)["name"], "renamed")
        for wrong in ({"name": 7}, {"name": "n" * 65}):
            self.ask("POST", path, wrong, 400)
        eventually(lambda: self.ask("GET", path)["status"] == "active", "it is active")
        again = self.ask("POST", RESTART, {"instance_ids": [instance]})["restarted_instances"]
        self.assertEqual([one["id"] for one in again], [instance])
        # Instances of a cluster are asked for by its id. Nobody has one.
        self.assertEqual(self.ask("GET", "/api/v1/instances?cluster_id=c1"), [])

    def test_another_account_sees_nothing_of_it(self):
        self.start("--no-nodes")
        self.sim.account(service="lambda", key="theirs")
        self.add_key()
        held = self.ask("POST", "/api/v1/filesystems", {"name": "sets", "region": "us-west-1"})
        self.ask("PUT", "/api/v1/firewall-rules", {"data": []})
        instance = self.launch(file_system_names=["sets"])
        for path in ("instances", "ssh-keys", "file-systems", "firewall-rulesets"):
            self.assertEqual(self.ask("GET", "/api/v1/" + path, key="theirs"), [], path)
        self.assertEqual(len(self.ask("GET", "/api/v1/firewall-rules", key="theirs")), 1)
        self.ask("GET", "/api/v1/instances/" + instance, None, 404, key="theirs")
        self.ask("DELETE", "/api/v1/filesystems/" + held["id"], None, 404, key="theirs")
        self.ask("POST", TERMINATE, {"instance_ids": [instance]}, 404, key="theirs")
        self.assertTrue(self.sim.book(instance)["alive"])
        # Both may use the same name.
        self.ask("POST", "/api/v1/filesystems", {"name": "sets", "region": "us-west-1"},
                 key="theirs")


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

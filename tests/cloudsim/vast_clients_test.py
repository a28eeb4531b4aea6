#!/usr/bin/env python3
"""Requests as public clients of Vast send them, and the fields of the answers that they read.

  vast_clients_test.py GPUCTL_CLOUDSIM

The clients are Vast's own command line ("vastai"), the orchestrators dstack (with its catalogue
gpuhunt) and SkyPilot. The bodies are written from their public documentation and behaviour.
"""
import json
import os
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import NUMBER, TEXT_OR_NULL, check_fields  # noqa: E402
from simulator import KEYS, Simulator, eventually  # noqa: E402

PROGRAM = ""

# The command line sends each filter's value as the text that the user wrote, except true and
# false, and multiplies memory into a number. (what, filters, the ids found)
SEARCHES = [
    ("vastai: num_gpus=1 gpu_name=RTX_4090", {"num_gpus": {"eq": "1"},
                                              "gpu_name": {"eq": "RTX 4090"}}, [9100001, 9100002,
                                                                                9100004]),
    ("vastai: num_gpus>=2", {"num_gpus": {"gte": "2"}}, [9100003, 9100009]),
    ("vastai: num_gpus in [2,8]", {"num_gpus": {"in": ["2", "8"]}}, [9100003, 9100009]),
    ("vastai: num_gpus!=1", {"num_gpus": {"neq": "1"}}, [9100003, 9100009]),
    ("vastai: dph<0.15", {"dph_total": {"lt": "0.15"}}, [9100006]),
    ("vastai: gpu_ram>=80 disk_space>100", {"gpu_ram": {"gte": 80000.0},
                                            "disk_space": {"gt": "100"}},
     [9100007, 9100008, 9100009, 9100010]),
    ("vastai: geolocation=SE", {"geolocation": {"eq": "SE"}}, [9100001]),
    ("vastai: geolocation in [SE,NO]", {"geolocation": {"in": ["SE", "NO"]}}, [9100001, 9100003]),
    ("vastai: geolocation notin [US] num_gpus=1 gpu_name=RTX_4090",
     {"geolocation": {"notin": ["US"]}, "num_gpus": {"eq": "1"}, "gpu_name": {"eq": "RTX 4090"}},
     [9100001, 9100004]),
    ("vastai: verified=any is not sent; verified=false", {"verified": {"eq": False}}, [9100005]),
    ("vastai: static_ip=true as text", {"static_ip": {"eq": "true"}, "gpu_name": {"eq": "H200"}},
     [9100010]),
    ("SkyPilot: one machine for 1x-RTX_4090", {
        "chunked": {"eq": True}, "georegion": {"eq": True}, "geolocation": {"eq": "US"},
        "disk_space": {"gte": "50"}, "num_gpus": {"eq": "1"}, "gpu_name": {"eq": "RTX 4090"},
        "cpu_ram": {"gte": 64000.0}}, [9100002]),
    ("dstack: the offer that it chose, whose id is a name to it", {"id": {"eq": "9100002"}},
     [9100002]),
    ("gpuhunt: dstack's filters", {
        "num_gpus": {"gte": 1, "lte": 1}, "gpu_name": {"in": ["A100 PCIE", "A100 SXM4"]},
        "direct_port_count": {"gte": 1}, "reliability2": {"gte": 0.9}, "inet_down": {"gt": 128},
        "verified": {"eq": True}, "cuda_max_good": {"gte": 12.8}, "compute_cap": {"gte": 600},
        "rentable": {"eq": True}, "rented": {"eq": False}}, [9100007]),
]

# gpuhunt makes a row of its catalogue from these. cpu_cores may be null, and then it gives no
# memory. SkyPilot takes the first id, and min_bid for a spot machine. The command line prints all.
OFFER_FIELDS = {
    "id": int, "machine_id": int, "gpu_name": str, "gpu_ram": NUMBER, "num_gpus": int,
    "cpu_ram": NUMBER, "cpu_cores_effective": NUMBER, "disk_space": NUMBER, "dph_base": NUMBER,
    "dph_total": NUMBER, "min_bid": NUMBER, "storage_cost": NUMBER, "geolocation": str,
    "cuda_max_good": NUMBER, "inet_up": NUMBER, "inet_down": NUMBER, "inet_up_cost": NUMBER,
    "inet_down_cost": NUMBER, "reliability2": NUMBER, "duration": NUMBER, "dlperf": NUMBER,
    "direct_port_count": int, "driver_version": str, "verification": str}

# The command line sends every option, and null for those that the user left out.
VASTAI_CREATE = {
    "client_id": "me", "image": "pytorch/pytorch", "env": {"TZ": "UTC", "-p 8080:8080": "1"},
    "price": None, "disk": 10, "label": None, "extra": None, "onstart": None, "image_login": None,
    "python_utf8": False, "lang_utf8": False, "use_jupyter_lab": False, "jupyter_dir": None,
    "force": False, "cancel_unavail": False, "template_hash_id": None, "user": None,
    "runtype": "ssh_direc ssh_proxy"}
CREATES = [
    ("vastai create instance", VASTAI_CREATE),
    ("vastai create instance --template_hash", {**VASTAI_CREATE, "image": None, "disk": 20.0,
                                                "template_hash_id": "0123456789abcdef"}),
    ("vastai create instance --args", {**VASTAI_CREATE, "runtype": "args", "args": ["--port", "1"]}),
    ("vastai create instance --jupyter --direct",
     {**VASTAI_CREATE, "runtype": "jupyter_direc ssh_direc ssh_proxy", "jupyter_dir": "/"}),
    ("SkyPilot, through the same library", {
        **VASTAI_CREATE, "label": "sky-1-head", "disk": 50,
        "onstart": "touch ~/.no_auto_tmux", "env": {"__SOURCE": "skypilot", "-p 8888:8888": "1"}}),
    ("dstack", {
        "client_id": "me", "image": "dstackai/base", "disk": 100, "label": "job-0-0",
        "env": {"-p 10022:10022": "1"}, "onstart": "true", "runtype": "ssh_direc",
        "image_login": None, "python_utf8": False, "lang_utf8": False, "use_jupyter_lab": False,
        "jupyter_dir": None, "create_from": None, "force": False}),
]

# SkyPilot waits for actual_status and ssh_port, finds its machines by label, and names machine_id
# and status_msg in its errors; dstack reads the status, the address and the mapped port. The
# command line computes with start_date and makes a table of extra_env's pairs.
INSTANCE_FIELDS = {
    "id": int, "actual_status": TEXT_OR_NULL, "intended_status": str, "cur_state": str,
    "label": TEXT_OR_NULL, "machine_id": int, "status_msg": TEXT_OR_NULL, "start_date": NUMBER,
    "end_date": NUMBER, "extra_env": list, "num_gpus": int, "gpu_name": str, "dph_total": NUMBER,
    "image_uuid": str, "is_bid": bool, "storage_cost": NUMBER, "inet_up_cost": NUMBER}


class VastClientsTest(unittest.TestCase):
    def start(self, *options):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0", *options)
        self.addCleanup(self.sim.stop)
        self.sim.freeze()

    def ask(self, method, path, body=None, **query):
        """Sends a request as the command line does: key in header and query, JSON in the query."""
        text = urllib.parse.urlencode({
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in {**query, "api_key": KEYS["vast"]}.items()})
        answer = self.sim.call("vast", method, f"{path}?{text}",
                               {} if body is None and method != "GET" else body)
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json

    def search(self, filters, path="/api/v0/bundles/"):
        query = {"verified": {"eq": True}, "external": {"eq": False}, "rentable": {"eq": True},
                 "rented": {"eq": False}, **filters, "order": [["score", "desc"]],
                 "type": "on-demand", "allocated_storage": 5.0}
        if path != "/api/v0/bundles/":
            return self.ask("PUT", path, {"select_cols": ["*"], "q": query})["offers"]
        return self.ask("POST", path, query)["offers"]

    def instances(self):
        return self.ask("GET", "/api/v1/instances/", select_filters={}, limit=25,
                        order_by=[{"col": "id", "dir": "asc"}])["instances"]

    def create(self, body=None, ask=9100001):
        return self.ask("PUT", f"/api/v0/asks/{ask}/", body or VASTAI_CREATE)["new_contract"]

    def running(self, contract):
        def row():
            found = self.ask("GET", f"/api/v0/instances/{contract}/", owner="me")["instances"]
            return found if found["actual_status"] == "running" else None
        return eventually(row, "the instance runs")

    def test_searches(self):
        self.start("--no-nodes")
        for what, filters, ids in SEARCHES:
            for path in ("/api/v0/bundles/", "/api/v0/search/asks/"):
                with self.subTest(what, path=path):
                    offers = self.search(filters, path)
                    self.assertEqual(sorted(offer["id"] for offer in offers), ids)
                    for offer in offers:
                        check_fields(self, offer, OFFER_FIELDS)

    def test_creates(self):
        self.start("--no-nodes")
        for what, body in CREATES:
            with self.subTest(what):
                answer = self.ask("PUT", "/api/v0/asks/9100001/", body)
                # dstack takes any other "success" for a lack of machines.
                self.assertIs(answer["success"], True)
                check_fields(self, answer, {"new_contract": int})
                row = self.running(answer["new_contract"])
                check_fields(self, row, INSTANCE_FIELDS)
                self.assertEqual(row["label"], body["label"])
                self.assertEqual(dict(row["extra_env"]), body["env"])
                ended = self.ask("DELETE", f"/api/v0/instances/{row['id']}/", {})
                self.assertIs(ended["success"], True)

    def test_dstack_uses_only_the_key_in_the_query(self):
        self.start("--no-nodes")
        path = "/api/v0/users/current/?api_key=" + KEYS["vast"]
        self.assertEqual(self.sim.call("vast", "GET", path, key="").status, 200)

    def test_a_listing_for_the_command_line_and_skypilot(self):
        self.start("--no-nodes")
        made = self.create({**VASTAI_CREATE, "label": "sky-1-head"})
        (row,) = self.instances()
        check_fields(self, row, INSTANCE_FIELDS)
        self.assertEqual((row["id"], row["label"]), (made, "sky-1-head"))
        # The command line makes a table of the pairs.
        self.assertEqual({pair[0]: pair[1] for pair in row["extra_env"]}, VASTAI_CREATE["env"])

    def test_the_mapped_port_that_dstack_reads(self):
        self.start()
        row = self.running(self.create({**VASTAI_CREATE, "env": {
            "-p 10022:10022": "1", "-p 72299:72299/udp": "1", "A": "b"}}))
        check_fields(self, row, {"public_ipaddr": str, "ports": dict, "ssh_port": int})
        self.assertEqual(row["public_ipaddr"].strip(), "127.0.0.1")
        self.assertEqual(set(row["ports"]), {"22/tcp", "10022/tcp", "72299/udp"})
        numbers = [int(mapped[0]["HostPort"]) for mapped in row["ports"].values()]
        self.assertEqual(len(set(numbers)), 3)
        self.assertTrue(all(0 < number < 65536 for number in numbers), numbers)

    def test_execute(self):
        self.start()
        made = self.create()
        self.running(made)
        answer = self.ask("PUT", f"/api/v0/instances/command/{made}/",
                          {"command": "sleep 0.3; echo \"out 'put'\"; exit 3"})
        check_fields(self, answer, {"success": bool, "result_url": str, "msg": str})
        path = urllib.parse.urlparse(answer["result_url"]).path
        # The command line asks until there is something, and takes the first for all.

        def result():
            found = self.sim.request("GET", path)
            return found if found.status == 200 else None
        self.assertEqual(eventually(result, "the result").text, "out 'put'\n")
        answer = self.ask("PUT", f"/api/v0/instances/request_logs/{made}/", {"tail": "1000"})
        check_fields(self, answer, {"success": bool, "result_url": str})
        self.ask("PUT", f"/api/v0/instances/{made}/", {"state": "stopped"})
        refused = self.sim.call("vast", "PUT", f"/api/v0/instances/command/{made}/",
                                {"command": "ls"})
        self.assertEqual((refused.status, refused.json["error"]), (400, "invalid_container"))

    def test_account_variables(self):
        self.start()
        at = "/api/v0/secrets/"
        self.assertEqual(self.ask("GET", at), {"success": True, "secrets": {}})
        for method, key, value in (("POST", "hf_token", "abc"), ("POST", "other", "1"),
                                   ("PUT", "HF_TOKEN", "def")):
            check_fields(self, self.ask(method, at, {"key": key, "value": value}),
                         {"success": bool, "msg": str})
        self.ask("DELETE", at, {"key": "OTHER"})
        self.assertEqual(self.ask("GET", at)["secrets"], {"HF_TOKEN": "def"})
        for method, body, error in (("POST", {"key": "HF_TOKEN", "value": "x"}, "existing_key"),
                                    ("PUT", {"key": "NONE", "value": "x"}, "nonexistent_key"),
                                    ("DELETE", {"key": "NONE"}, "nonexistent_key"),
                                    ("POST", {"key": "A"}, "missing_input")):
            refused = self.sim.call("vast", method, at, body)
            self.assertEqual((refused.status, refused.json["error"]), (400, error))
        # They are in every instance.
        made = self.create()
        self.running(made)
        answer = self.ask("PUT", f"/api/v0/instances/command/{made}/",
                          {"command": "echo $HF_TOKEN $TZ"})
        path = urllib.parse.urlparse(answer["result_url"]).path
        text = eventually(lambda: self.sim.request("GET", path).status == 200 and
                          self.sim.request("GET", path).text, "the result")
        self.assertEqual(text, "def UTC\n")

    def test_copies(self):
        self.start()
        made = self.create()
        self.running(made)
        port = self.sim.node(made)["ssh"]["port"]
        # The command line runs rsync to the address of the end that is not here.
        for source, target, end in ((f"C.{made}", None, "src"), (None, made, "dst"),
                                    (None, str(made), "dst")):
            answer = self.ask("PUT", "/api/v0/commands/rsync/", {
                "client_id": "me", "src_id": source, "dst_id": target, "src_path": "/data",
                "dst_path": "data"})
            self.assertEqual((answer["success"], answer[end + "_addr"], answer[end + "_port"]),
                             (True, "127.0.0.1", port))
        other = self.create(ask=9100002)
        both = {"client_id": "me", "src_id": made, "dst_id": other, "src_path": "/a",
                "dst_path": "/a"}
        check_fields(self, self.ask("PUT", "/api/v0/commands/copy_direct/", both),
                     {"success": bool, "msg": str})
        self.assertIs(self.ask("DELETE", "/api/v0/commands/copy_direct/",
                               {"client_id": "me", "dst_id": str(other)})["success"], True)
        refused = self.sim.call("vast", "PUT", "/api/v0/commands/copy_direct/",
                                {**both, "src_id": 7})
        self.assertEqual(refused.status, 404)

    def test_bills(self):
        self.start("--no-nodes")
        made = self.create({**VASTAI_CREATE, "label": "job", "disk": 72})
        self.sim.advance(3600)
        self.sim.change("vast", made, "traffic", usd=0.25)
        now = self.sim.control("GET", "clock")["now_ms"] / 1000
        # show invoices: the rows by type, and the sum of the present charges.
        old = self.ask("GET", "/api/v0/users/me/invoices", owner="me", sdate=now - 86400,
                       edate=now, inc_charges=True)
        check_fields(self, old, {"invoices": list, "current.charges": NUMBER,
                                 "current.total": NUMBER, "current.credit": NUMBER})
        self.assertAlmostEqual(old["current"]["total"], 0.29 + 0.015 + 0.25, places=3)
        charges = [row for row in old["invoices"] if row["type"] == "charge"]
        self.assertEqual(len(charges), 3)
        for row in charges:
            check_fields(self, row, {"description": str, "quantity": str, "rate": str,
                                     "amount": str, "timestamp": NUMBER})
        old = self.ask("GET", "/api/v0/users/me/invoices", owner="me", sdate=now - 86400,
                       edate=now, inc_charges=False)
        self.assertEqual([row["type"] for row in old["invoices"]], ["payment"])
        # show invoices-v1: pages of results, with the items below each.
        day = {"day": {"gte": int(now) - 86400, "lte": int(now) + 1}}
        page = self.ask("GET", "/api/v0/charges/", select_filters=day, latest_first=False,
                        limit=20, format="table")
        check_fields(self, page, {"count": int, "total": int, "results.0.source": str,
                                  "results.0.start": int, "results.0.end": int,
                                  "results.0.description": str, "results.0.amount": NUMBER,
                                  "results.0.type": str, "results.0.items.0.type": str,
                                  "results.0.items.0.amount": NUMBER})
        self.assertIsNone(page["next_token"])
        row = page["results"][0]
        self.assertEqual((row["source"], row["metadata"]), (f"instance-{made}", {"label": "job"}))
        self.assertAlmostEqual(row["amount"], 0.555, places=3)
        self.assertEqual({item["type"] for item in row["items"]}, {"gpu", "disk", "bwd"})
        self.create(ask=9100002)
        first = self.ask("GET", "/api/v0/charges/", select_filters=day, limit=1)
        second = self.ask("GET", "/api/v0/charges/", select_filters=day, limit=1,
                          after_token=first["next_token"])
        self.assertEqual((first["count"], first["total"], second["next_token"]), (1, 2, None))
        self.assertNotEqual(first["results"], second["results"])
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/charges/").status, 400)
        paid = self.ask("GET", "/api/v1/invoices/", latest_first=False, limit=20,
                        select_filters={"when": {"gte": int(now) - 86400, "lte": int(now)}})
        check_fields(self, paid, {"success": bool, "results.0.amount": NUMBER,
                                  "results.0.metadata.invoice_id": int})
        self.assertIs(self.ask("GET", "/api/v1/invoices/")["success"], False)

    def test_several_at_once(self):
        self.start("--no-nodes")
        ids = [self.create(ask=ask) for ask in (9100001, 9100002)]
        self.ask("PUT", "/api/v0/instances/", {"state": "stopped", "ids": ids})
        self.assertEqual([row["actual_status"] for row in self.instances()], ["exited", "exited"])
        self.ask("PUT", "/api/v0/instances/", {"state": "running", "ids": ids})
        self.assertEqual([row["actual_status"] for row in self.instances()], ["running"] * 2)
        self.ask("POST", "/api/v0/instances/start/", {"IDs": ids})
        refused = self.sim.call("vast", "DELETE", "/api/v0/instances/",
                                {"instance_ids": [*ids, 7]})
        self.assertEqual((refused.status, len(self.instances())), (404, 2))
        self.ask("DELETE", "/api/v0/instances/", {"instance_ids": ids})
        self.assertEqual(self.instances(), [])

    def test_volumes_and_keys(self):
        self.start("--no-nodes")
        self.ask("PUT", "/api/v0/volumes/", {"size": 15, "id": 100001})
        (row,) = self.ask("GET", "/api/v0/volumes", owner="me", type="all_volume")["volumes"]
        check_fields(self, row, {"id": int, "start_date": NUMBER, "disk_space": NUMBER})
        self.ask("DELETE", "/api/v0/volumes/", {}, id=row["id"])
        self.assertEqual(self.ask("GET", "/api/v0/volumes")["volumes"], [])
        key = self.ask("POST", "/api/v0/auth/apikeys/", {"name": "k", "permissions": {"api": {}}})
        shown = self.ask("GET", f"/api/v0/auth/apikeys/{key['id']}/")
        self.assertEqual((shown["id"], "key" in shown), (key["id"], False))


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

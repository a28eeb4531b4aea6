#!/usr/bin/env python3
"""Bills, balances and stock, on a simulated clock that stands still between its jumps.

  money_test.py GPUCTL_CLOUDSIM
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from simulator import Simulator, runpod_body  # noqa: E402

PROGRAM = ""


class MoneyTest(unittest.TestCase):
    def setUp(self):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--no-nodes", "--boot-s", "10")
        self.addCleanup(self.sim.stop)
        self.sim.freeze()

    def billed(self, instance):
        return self.sim.book(instance)["billed_usd"]

    def pod(self, **more):
        return self.sim.call("runpod", "POST", "/v2/pods", runpod_body(**more))

    def launch(self):
        self.sim.call("lambda", "POST", "/api/v1/ssh-keys", {"name": "k", "public_key": "ssh-x y"})
        return self.sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
            "region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
            "ssh_key_names": ["k"]}).json["data"]["instance_ids"][0]

    def rent(self, ask=9100001, **more):
        return self.sim.call("vast", "PUT", f"/api/v0/asks/{ask}/",
                             {"image": "i", "disk": 72, **more})

    def test_runpod_bills_seconds(self):
        pod = self.pod(mounts={"persistent": {"size": 10, "path": "/w"}}).json["id"]
        self.sim.advance(3599.5)
        disk = 0.10 / 720
        self.assertAlmostEqual(self.billed(pod), 0.74 + 40 * disk, places=9)
        self.sim.call("runpod", "POST", f"/v2/pods/{pod}/action", {"action": "stop"})
        self.sim.advance(7200)
        self.assertAlmostEqual(self.billed(pod), 0.74 + 40 * disk + 2 * 10 * 2 * disk, places=9)
        self.sim.call("runpod", "DELETE", "/v2/pods/" + pod)
        final = self.billed(pod)
        self.sim.advance(86400)
        self.assertEqual(self.billed(pod), final)
        bills = self.sim.call("runpod", "GET", f"/v2/billing/pods?podId={pod}&bucketSize=year")
        self.assertAlmostEqual(bills.json["metadata"]["totals"]["totalAmount"], final, places=6)
        balance = self.sim.call("runpod", "POST", "/graphql", {"query": "{myself{clientBalance}}"})
        self.assertAlmostEqual(balance.json["data"]["myself"]["clientBalance"], 100 - final)

    def test_lambda_bills_minutes(self):
        made = self.launch()
        self.sim.advance(61)
        self.assertAlmostEqual(self.billed(made), 2 * 0.75 / 60, places=9)
        self.sim.call("lambda", "POST", "/api/v1/instance-operations/terminate",
                      {"instance_ids": [made]})
        self.assertEqual(self.sim.book(made)["phase"], "ending")
        self.sim.advance(3600)
        self.assertEqual(self.sim.book(made)["phase"], "ended")
        self.assertAlmostEqual(self.billed(made), 2 * 0.75 / 60, places=9)

    def test_vast_bills_disk_also_when_stopped_and_traffic(self):
        made = self.rent().json["new_contract"]
        disk = 0.15 * 72 / 720
        self.sim.advance(3600)
        self.assertAlmostEqual(self.billed(made), 0.29 + disk, places=9)
        self.sim.call("vast", "PUT", f"/api/v0/instances/{made}/", {"state": "stopped"})
        self.sim.advance(3600)
        self.assertAlmostEqual(self.billed(made), 0.29 + 2 * disk, places=9)
        self.sim.change("vast", made, "traffic", usd=0.25)
        self.assertAlmostEqual(self.billed(made), 0.54 + 2 * disk, places=9)
        credit = self.sim.call("vast", "GET", "/api/v0/users/current/").json["credit"]
        self.assertAlmostEqual(credit, 100 - 0.54 - 2 * disk)

    def test_a_bid_that_is_too_low_leaves_a_contract(self):
        answer = self.rent(price=0.01)
        self.assertEqual(answer.status, 400)
        made = answer.json["new_contract"]
        self.sim.advance(3600)
        self.assertAlmostEqual(self.billed(made), 0.15 * 72 / 720, places=9)
        self.assertEqual(self.rent(price=0.01, cancel_unavail=True).json["error"], "invalid_price")
        self.assertEqual(self.rent(price=0.2).status, 200)

    def test_price_rise_and_preemption(self):
        self.sim.fault("vast", "create", "price_rise", factor=3, after_s=1800)
        made = self.rent().json["new_contract"]
        self.sim.advance(3600)
        disk = 0.15 * 72 / 720
        self.assertAlmostEqual(self.billed(made), 0.29 / 2 + 3 * 0.29 / 2 + disk, places=6)
        shown = self.sim.call("vast", "GET", f"/api/v0/instances/{made}/").json["instances"]
        self.assertAlmostEqual(shown["dph_base"], 0.87)
        self.sim.fault("vast", "create", "preempt", after_s=90)
        spot = self.rent(9100002, price=0.3).json["new_contract"]
        self.sim.advance(3600)
        self.assertEqual(self.sim.book(spot)["phase"], "stopped")
        # 10 s of boot and 90 s of life.
        self.assertAlmostEqual(self.billed(spot), 0.3 * 100 / 3600 + disk, places=6)

    def rises(self):
        return self.sim.call("vast", "GET", "/api/v0/instances/pending-price-increases/").json

    def answer(self, what, **body):
        return self.sim.call("vast", "PUT", f"/api/v0/instances/{what}-price-increase/", body)

    def test_announced_prices(self):
        made = [self.rent(ask).json["new_contract"] for ask in (9100001, 9100002, 9100003)]
        for contract in made:
            self.sim.change("vast", contract, "announce_price", factor=2, in_s=3600)
        rows = {row["contract_id"]: row for row in self.rises()["pending_price_increases"]}
        self.assertEqual((sorted(rows), self.rises()["count"]), (sorted(made), 3))
        numbers = [rows[contract]["pending_price_increase_id"] for contract in made]
        row = rows[made[0]]
        self.assertAlmostEqual(row["new_gpu_costpersec"] * 3600, 0.58)
        self.assertIsNone(row["new_bwu_cost"])
        self.assertEqual(self.answer("accept", pending_price_increase_id=numbers[0], id=1).status,
                         400)
        self.assertEqual(self.answer("accept", pending_price_increase_id=1).json["error"],
                         "no_pending_price_increase")
        self.assertEqual(self.answer("accept", pending_price_increase_id=numbers[0]).json, {
            "success": True, "pending_price_increase_id": numbers[0], "contract_id": made[0]})
        self.assertEqual(self.answer("accept", pending_price_increase_id=numbers[0]).status, 404)
        self.assertEqual(self.answer("reject", pending_price_increase_id=numbers[1]).status, 200)
        self.assertEqual(self.rises()["count"], 1)
        # The old price is valid until the contract ends. Then the machine ends, unless the new
        # price was accepted.
        disk = 0.15 * 72 / 720
        self.sim.advance(3599)
        self.assertEqual([self.sim.book(c)["phase"] for c in made], ["running"] * 3)
        self.assertAlmostEqual(self.billed(made[0]), (0.29 + disk) * 3599 / 3600, places=6)
        self.sim.advance(3601)
        self.assertEqual([self.sim.book(c)["phase"] for c in made],
                         ["running", "stopped", "stopped"])
        self.assertAlmostEqual(self.billed(made[0]), 3 * 0.29 + 2 * disk, places=6)
        self.assertEqual(self.rises()["count"], 0)

    def bid(self, query="mutation Rent($input: PodRentInterruptableInput!) { "
            "podRentInterruptable(input: $input) { id costPerHr } }", **more):
        pod = {"name": "spot", "imageName": "i", "gpuTypeId": "NVIDIA GeForce RTX 4090",
               "gpuCount": 1, "cloudType": "SECURE", "bidPerGpu": 0.4, "containerDiskInGb": 72,
               "ports": "22/tcp", "env": [{"key": "A", "value": "1"}], **more}
        return self.sim.call("runpod", "POST", "/graphql",
                             {"query": query, "variables": {"input": pod}})

    def test_a_spot_pod_bills_its_bid_and_vanishes(self):
        self.sim.fault("runpod", "create", "preempt", after_s=3600)
        made = self.bid().json["data"]["podRentInterruptable"]
        self.assertEqual(made["costPerHr"], 0.4)
        shown = self.sim.call("runpod", "GET", "/v2/pods/" + made["id"]).json
        self.assertEqual((shown["name"], shown["cost"], shown["disk"], shown["env"]["A"]),
                         ("spot", 0.4, 72, "1"))
        self.sim.advance(3600 + 10)
        self.assertAlmostEqual(self.billed(made["id"]), (0.4 + 72 * 0.1 / 720) * 3610 / 3600,
                               places=6)
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/pods/" + made["id"]).status, 404)
        for answer, status, text in (
                (self.bid(interruptible=True), 400, "GRAPHQL_VALIDATION_FAILED"),
                (self.bid("mutation { podRentInterruptable(input: $input) { price } }"), 400,
                 "GRAPHQL_VALIDATION_FAILED"),
                (self.bid(bidPerGpu=0.1), 200, "bid is too low"),
                (self.bid(gpuCount=64), 200, "SUPPLY_CONSTRAINT")):
            self.assertEqual(answer.status, status, answer.text)
            self.assertIn(text, answer.text)
            self.assertIsNone(answer.json.get("data"))
        self.assertEqual(len(self.sim.books()["instances"]), 1)

    def volume(self, volume):
        return next(v for v in self.sim.books()["volumes"] if v["id"] == str(volume))

    def test_network_volumes_bill_by_their_size_until_they_are_deleted(self):
        made = self.sim.call("runpod", "POST", "/v2/network-volumes", {
            "name": "sets", "size": 100, "dataCenter": "EU-RO-1"}).json["id"]
        self.sim.advance(3600)
        hour = 100 * 0.07 / 720
        self.assertAlmostEqual(self.volume(made)["billed_usd"], hour, places=9)
        # Its bill does not depend on the pods that have it.
        pod = self.pod(mounts={"network": [{"volumeId": made, "path": "/workspace"}]}).json["id"]
        self.sim.call("runpod", "DELETE", "/v2/pods/" + pod)
        self.sim.call("runpod", "PATCH", "/v2/network-volumes/" + made, {"size": 2000})
        self.sim.advance(7200)
        more = hour + 2 * (1000 * 0.07 + 1000 * 0.05) / 720
        self.assertAlmostEqual(self.volume(made)["billed_usd"], more, places=9)
        self.sim.call("runpod", "DELETE", "/v2/network-volumes/" + made)
        self.sim.advance(86400)
        self.assertAlmostEqual(self.volume(made)["billed_usd"], more, places=9)
        (account,) = [a for a in self.sim.books()["accounts"] if a["service"] == "runpod"]
        self.assertAlmostEqual(account["balance_usd"], 100 - more - self.billed(pod), places=9)
        self.assertEqual(account["usd_per_hour"], 0)

    def test_file_systems_bill_what_is_in_them(self):
        made = self.sim.call("lambda", "POST", "/api/v1/filesystems", {
            "name": "sets", "region": "us-west-1"}).json["data"]["id"]
        self.sim.advance(3600)
        self.assertEqual(self.volume(made)["billed_usd"], 0)
        with open(os.path.join(self.volume(made)["dir"], "big"), "wb") as file:
            file.truncate(10**9)
        listed = self.sim.call("lambda", "GET", "/api/v1/file-systems").json["data"]
        self.assertEqual(listed[0]["bytes_used"], 10**9)
        self.sim.advance(7200)
        self.assertAlmostEqual(self.volume(made)["billed_usd"], 2 * 0.20 / 720, places=9)
        directory = self.volume(made)["dir"]
        self.sim.call("lambda", "DELETE", "/api/v1/filesystems/" + made)
        self.assertFalse(os.path.exists(directory))
        self.sim.advance(7200)
        self.assertAlmostEqual(self.volume(made)["billed_usd"], 2 * 0.20 / 720, places=9)

    def test_a_machines_own_volume(self):
        offers = self.sim.call("vast", "POST", "/api/v0/volumes/search/", {}).json["offers"]
        offer = next(o for o in offers if o["machine_id"] == 100002)
        name = self.sim.call("vast", "PUT", "/api/v0/volumes/",
                             {"id": offer["id"], "size": 72}).json["volume_name"]
        (listed,) = self.sim.call("vast", "GET", "/api/v0/volumes/").json["volumes"]
        self.assertEqual((name, listed["machine_id"]), ("V.%d" % listed["id"], 100002))
        self.sim.advance(3600)
        self.assertAlmostEqual(self.volume(listed["id"])["billed_usd"], 0.15 * 72 / 720, places=9)
        # Only its own machine has it.
        about = {"create_new": False, "volume_id": listed["id"], "mount_path": "/workspace"}
        self.assertEqual(self.rent(volume_info=about).json["error"], "invalid_args")
        made = self.rent(9100002, volume_info=about).json["new_contract"]
        (listed,) = self.sim.call("vast", "GET", "/api/v0/volumes/").json["volumes"]
        self.assertEqual(listed["instances"], [{"id": str(made)}])
        self.sim.call("vast", "DELETE", "/api/v0/volumes/", {"id": listed["id"]})
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/volumes/").json["volumes"], [])

    def test_stock_and_funds(self):
        made = [self.pod(dataCenterIds=["US-KS-2"]) for _ in range(2)]
        self.assertEqual([answer.status for answer in made], [201, 400])
        self.assertIn("no longer any instances", made[1].json["detail"])
        self.sim.call("runpod", "DELETE", "/v2/pods/" + made[0].json["id"])
        self.assertEqual(self.pod(dataCenterIds=["US-KS-2"]).status, 201)
        self.sim.stock(service="runpod", item="NVIDIA GeForce RTX 4090", count=0)
        self.assertEqual(self.pod().status, 400)
        self.sim.stock(service="runpod", item="NVIDIA GeForce RTX 4090", count=8)
        self.sim.price(service="runpod", item="NVIDIA GeForce RTX 4090", usd_per_hour=1.5)
        self.assertEqual(self.pod().json["cost"], 1.5)
        self.sim.account(service="runpod", key="sim-runpod-key", balance_usd=0.5)
        self.assertEqual(self.pod().status, 402)
        self.sim.advance(3600)
        phases = [book["phase"] for book in self.sim.books()["instances"]]
        self.assertEqual(phases, ["ended", "stopped", "stopped"])

    def test_accounts_do_not_see_each_other(self):
        self.sim.account(service="runpod", key="other-key")
        pod = self.pod().json["id"]
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/pods/" + pod, key="other-key").status,
                         404)
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/pods", key="other-key").json,
                         {"pods": []})
        self.assertEqual(self.sim.call("runpod", "DELETE", "/v2/pods/" + pod,
                                       key="other-key").status, 404)
        self.assertTrue(self.sim.book(pod)["alive"])
        volume = self.sim.call("runpod", "POST", "/v2/network-volumes", {
            "name": "sets", "size": 50, "dataCenter": "EU-RO-1"}).json["id"]
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/network-volumes",
                                       key="other-key").json, {"networkVolumes": []})
        path = "/v2/network-volumes/" + volume
        for method in ("GET", "DELETE"):
            self.assertEqual(self.sim.call("runpod", method, path, key="other-key").status, 404)
        theirs = self.sim.call("runpod", "POST", "/v2/pods", runpod_body(
            mounts={"network": [{"volumeId": volume, "path": "/w"}]}), key="other-key")
        self.assertEqual(theirs.status, 404)
        self.assertEqual(self.sim.call("runpod", "GET", path).status, 200)


class RateLimitTest(unittest.TestCase):
    def setUp(self):
        self.sim = Simulator(PROGRAM, "--no-nodes")
        self.addCleanup(self.sim.stop)
        self.sim.freeze()

    def test_runpod(self):
        answers = [self.sim.call("runpod", "GET", "/v2/pods") for _ in range(61)]
        self.assertEqual({answer.status for answer in answers[:60]}, {200})
        self.assertIn('"minute";r=0', answers[59].headers["ratelimit"])
        self.assertEqual(answers[60].status, 429)
        self.assertEqual(answers[60].headers["retry-after"], "1")
        self.assertEqual(answers[60].headers["content-type"], "application/problem+json")
        self.sim.advance(1)
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/pods").status, 200)

    def test_lambda(self):
        def get():
            return self.sim.call("lambda", "GET", "/api/v1/instances").status
        self.assertEqual([get(), get()], [200, 429])
        self.sim.advance(1)
        self.assertEqual(get(), 200)

        def launch():
            self.sim.advance(1)
            return self.sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {}).status
        self.assertEqual([launch(), launch()], [400, 429])
        self.sim.advance(12)
        self.assertEqual(launch(), 400)

    def test_vast(self):
        def create():
            return self.sim.call("vast", "PUT", "/api/v0/asks/1/", {"image": "i"})
        self.assertEqual(create().status, 404)
        refused = create()
        self.assertEqual(refused.status, 429)
        self.assertIn("threshold=4.5", refused.json["detail"])
        self.assertNotIn("retry-after", refused.headers)
        self.sim.advance(4.5)
        self.assertEqual(create().status, 404)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

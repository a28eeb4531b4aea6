#!/usr/bin/env python3
"""Each fault that the simulator can cause, and held requests.

  faults_test.py GPUCTL_CLOUDSIM
"""
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from simulator import KEYS, Simulator, runpod_body  # noqa: E402

PROGRAM = ""


class FaultsTest(unittest.TestCase):
    def setUp(self):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--no-nodes", "--boot-s", "0")
        self.addCleanup(self.sim.stop)
        self.sim.freeze()

    def create(self, **more):
        return self.sim.call("runpod", "POST", "/v2/pods", runpod_body(), **more)

    def pods(self):
        return self.sim.call("runpod", "GET", "/v2/pods").json["pods"]

    def alive(self):
        return len([book for book in self.sim.books()["instances"] if book["alive"]])

    def test_only_a_markets_own_files_name_it(self):
        here = os.path.dirname(os.path.abspath(__file__))
        services = list(self.sim.state()["stock"])
        self.assertLess(2, len(services))
        for name in os.listdir(here):
            if not name.endswith((".cc", ".h")) or name.startswith(tuple(services)):
                continue
            with open(os.path.join(here, name)) as source:
                lines = [line.split("//")[0].lower() for line in source]
            # The registry, and the files that the markets' own images have.
            if name in ("services.cc", "node_files.cc"):
                continue
            for service in services:
                named = [line.strip() for line in lines if service in line]
                self.assertEqual(named, [], name)

    def test_what_is_of_no_service_is_refused(self):
        for path, body in (("account", {"service": "x", "key": "k"}),
                           ("stock", {"service": "x", "item": "i"})):
            answer = self.sim.request("POST", "/_sim/" + path, body)
            self.assertEqual((answer.status, answer.json["error"]), (400, "no service x"))
        wrong = subprocess.run([PROGRAM, "--account", "x:k:5"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=300)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("no such service", wrong.stderr)

    def test_answers_that_are_errors(self):
        for fault, status in (("429", 429), ("500", 500), ("503", 503), ("410", 410), ("401", 401)):
            self.sim.fault("runpod", "create", fault)
            answer = self.create()
            self.assertEqual((answer.status, answer.json["status"]), (status, status))
            self.assertNotIn("retry-after", answer.headers)
        self.sim.fault("runpod", "create", "429", retry_after=7)
        self.assertEqual(self.create().headers["retry-after"], "7")
        self.sim.fault("runpod", "create", "502")
        answer = self.create()
        self.assertEqual((answer.status, answer.headers["content-type"]), (502, "text/html"))
        self.assertEqual(self.alive(), 0)

    def test_it_exists_all_the_same(self):
        self.sim.fault("runpod", "create", "500_after")
        self.assertEqual(self.create().status, 500)
        self.assertEqual(self.alive(), 1)
        self.sim.fault("runpod", "create", "timeout")
        with self.assertRaises((TimeoutError, socket.timeout)):
            self.create(timeout=0.3)
        self.assertEqual(self.alive(), 2)
        self.sim.clear_faults()
        self.sim.fault("runpod", "create", "torn")
        with self.assertRaises(http.client.IncompleteRead):
            self.create()
        self.assertEqual(self.alive(), 3)
        self.sim.fault("runpod", "create", "reset_after")
        with self.assertRaises((ConnectionResetError, http.client.RemoteDisconnected)):
            self.create()
        self.assertEqual(self.alive(), 4)
        self.assertEqual(len(self.pods()), 4)

    def test_it_does_not(self):
        self.sim.fault("runpod", "create", "reset")
        with self.assertRaises((ConnectionResetError, http.client.RemoteDisconnected)):
            self.create()
        self.sim.fault("runpod", "create", "hang")
        with self.assertRaises((TimeoutError, socket.timeout)):
            self.create(timeout=0.3)
        self.assertEqual(self.alive(), 0)

    def test_bodies_that_make_no_sense(self):
        self.create()
        for fault, check in (
                ("empty", lambda a: a.text == ""),
                ("html", lambda a: "<html" in a.text),
                ("wrong_types", lambda a: a.json["pods"][0]["id"] == 7),
                ("wrong_shape", lambda a: isinstance(a.json, list)),
                ("error_200", lambda a: "errors" in a.json and "pods" not in a.json)):
            self.sim.fault("runpod", "list", fault)
            answer = self.sim.call("runpod", "GET", "/v2/pods")
            self.assertEqual(answer.status, 200)
            self.assertTrue(check(answer), f"{fault}: {answer.text}")
        self.assertEqual(len(self.pods()), 1)

    def test_lists_that_lag(self):
        self.sim.fault("runpod", "create", "list_lag", lists=2)
        pod = self.create().json["id"]
        self.assertEqual([len(self.pods()) for _ in range(3)], [0, 0, 1])
        self.sim.fault("runpod", "create", "list_lag", seconds=5)
        self.create()
        self.assertEqual(len(self.pods()), 1)
        self.sim.advance(5)
        self.assertEqual(len(self.pods()), 2)
        self.sim.fault("runpod", "terminate", "ended_lag", lists=2)
        self.sim.call("runpod", "DELETE", "/v2/pods/" + pod)
        self.assertEqual([len(self.pods()) for _ in range(3)], [2, 2, 1])

    def test_instances_that_come_to_nothing(self):
        self.sim.fault("runpod", "create", "boot_fails")
        self.sim.fault("runpod", "create", "no_endpoint", after=1)
        self.create()
        self.create()
        self.assertEqual([pod["status"] for pod in self.pods()], ["ERROR", "RUNNING"])
        self.assertIsNone(self.pods()[1]["ssh"]["direct"])
        self.sim.fault("runpod", "create", "out_of_stock")
        self.assertEqual(self.create().status, 400)
        self.sim.fault("runpod", "create", "no_funds")
        self.assertEqual(self.create().status, 402)
        self.sim.fault("vast", "create", "offer_gone")
        ask = ("vast", "PUT", "/api/v0/asks/9100001/", {"image": "i"})
        self.assertEqual(self.sim.call(*ask).status, 410)
        self.sim.fault("vast", "create", "refused_but_made")
        answer = self.sim.call(*ask)
        self.assertEqual((answer.status, answer.json["success"]), (400, False))
        self.assertTrue(self.sim.book(answer.json["new_contract"])["alive"])

    def rent(self, ask=9100001, **more):
        answer = self.sim.call("vast", "PUT", f"/api/v0/asks/{ask}/",
                               {"image": "i", "disk": 72, **more})
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json["new_contract"]

    def instance(self, contract):
        return self.sim.call("vast", "GET", f"/api/v0/instances/{contract}/").json["instances"]

    def launch(self, kind="gpu_1x_a10"):
        self.sim.call("lambda", "POST", "/api/v1/ssh-keys", {"name": "k", "public_key": "ssh-x y"})
        answer = self.sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
            "region_name": "us-west-1", "instance_type_name": kind, "ssh_key_names": ["k"]})
        self.assertEqual(answer.status, 200, answer.text)
        return answer.json["data"]["instance_ids"][0]

    def test_a_contract_that_ends(self):
        self.sim.stock(service="vast", item=9100001, duration_s=3600)
        search = ("vast", "POST", "/api/v0/bundles/",
                  {"id": {"eq": 9100001}, "duration": {"gte": 3601}})
        self.assertEqual(self.sim.call(*search).json["offers"], [])
        search[3]["duration"]["gte"] = 3600
        (offer,) = self.sim.call(*search).json["offers"]
        made = self.rent()
        shown = self.instance(made)
        self.assertAlmostEqual(shown["end_date"] - shown["start_date"], 3600, places=3)
        self.assertAlmostEqual(shown["end_date"], offer["end_date"], places=3)
        self.sim.advance(3599)
        self.assertEqual(self.instance(made)["actual_status"], "running")
        # Nobody looks for a while: the GPU bills until the contract's end all the same.
        self.sim.advance(7201)
        shown = self.instance(made)
        self.assertEqual((shown["actual_status"], shown["cur_state"], shown["intended_status"]),
                         ("exited", "stopped", "stopped"))
        disk = 72 * 0.15 / 720
        self.assertAlmostEqual(self.sim.book(made)["billed_usd"], 0.29 + 3 * disk, places=6)
        answer = self.sim.call("vast", "PUT", f"/api/v0/instances/{made}/", {"state": "running"})
        self.assertEqual((answer.status, answer.json["success"]), (400, False))
        # A host may also take back what it has let.
        early = self.rent(9100002)
        self.sim.change("vast", early, "contract", in_s=60)
        self.sim.advance(61)
        self.assertEqual(self.sim.book(early)["phase"], "stopped")
        self.assertEqual(self.sim.book(early)["ended_ms"], 0)

    def test_gpus_that_no_table_has(self):
        self.sim.offer(service="runpod", like="NVIDIA GeForce RTX 4090", item="NVIDIA Foo 77",
                       gpu="Foo 77", memory_mib=81920, usd_per_hour=0.5)
        self.sim.offer(service="lambda", like="gpu_1x_a10", item="gpu_1x_zz9", gpu="ZZ9 (80 GB)",
                       memory_mib=81920, usd_per_hour=0.5)
        self.sim.offer(service="vast", like=9100001, item=9200001, gpu="RTX 6090",
                       memory_mib=81920, usd_per_hour=0.5)
        gpus = self.sim.call("runpod", "GET", "/v2/catalog/gpus").json["gpus"]
        self.assertEqual([(gpu["name"], gpu["memory"], gpu["price"]["secure"]) for gpu in gpus
                          if gpu["id"] == "NVIDIA Foo 77"], [("Foo 77", 80, 0.5)])
        kind = self.sim.call("lambda", "GET", "/api/v1/instance-types").json["data"]["gpu_1x_zz9"]
        self.assertEqual(kind["instance_type"]["gpu_description"], "ZZ9 (80 GB)")
        self.assertEqual(kind["instance_type"]["price_cents_per_hour"], 50)
        (offer,) = self.sim.call("vast", "POST", "/api/v0/bundles/",
                                 {"gpu_name": {"eq": "RTX 6090"}}).json["offers"]
        self.assertEqual((offer["id"], offer["gpu_ram"]), (9200001, 81920))
        made = [self.create_gpu("NVIDIA Foo 77"), self.launch("gpu_1x_zz9"), self.rent(9200001)]
        state = {i["id"]: i["gpu"] for i in self.sim.state()["instances"]}
        self.assertEqual([state[str(i)] for i in made],
                         ["NVIDIA Foo 77", "NVIDIA ZZ9 (80 GB)", "RTX 6090"])

    def create_gpu(self, gpu):
        answer = self.sim.call("runpod", "POST", "/v2/pods", runpod_body(
            gpu={"id": gpu, "count": 1}))
        self.assertEqual(answer.status, 201, answer.text)
        return answer.json["id"]

    def test_offline_and_back(self):
        made, one = self.rent(), self.launch()

        def words():
            data = self.sim.call("lambda", "GET", "/api/v1/instances/" + one).json["data"]
            return self.instance(made)["actual_status"], data["status"]
        self.assertEqual(words(), ("running", "active"))
        for service, instance in (("vast", made), ("lambda", one)):
            self.sim.change(service, instance, "offline")
        self.assertEqual(words(), ("offline", "unhealthy"))
        self.sim.advance(3600)
        for instance in (made, one):
            self.assertGreaterEqual(self.sim.book(instance)["billed_usd"], 0.29)
        for service, instance in (("vast", made), ("lambda", one)):
            self.sim.change(service, instance, "online")
        self.assertEqual(words(), ("running", "active"))

    def test_unhealthy_from_the_beginning(self):
        for service in ("lambda", "vast"):
            self.sim.fault(service, "create", "boot_fails")
        made, one = self.rent(), self.launch()
        data = self.sim.call("lambda", "GET", "/api/v1/instances/" + one).json["data"]
        self.assertEqual((data["status"], "ip" in data), ("unhealthy", False))
        self.assertIn("OCI runtime create failed", self.instance(made)["status_msg"])
        self.sim.advance(3600)
        for instance in (made, one):
            self.assertGreaterEqual(self.sim.book(instance)["billed_usd"], 0.29)

    def test_images_that_cannot_be_pulled(self):
        self.sim.fault("vast", "create", "image_missing")
        self.sim.fault("runpod", "create", "image_missing")
        made, pod = self.rent(), self.create().json["id"]
        self.sim.advance(3600)
        shown = self.instance(made)
        self.assertEqual(shown["actual_status"], "loading")
        self.assertIn("manifest unknown", shown["status_msg"])
        # Runpod says nothing about it, and bills.
        shown = self.sim.call("runpod", "GET", "/v2/pods/" + pod).json
        self.assertEqual((shown["status"], shown["runtime"]), ("PROVISIONING", None))
        self.assertGreaterEqual(self.sim.book(pod)["billed_usd"], 0.74)

    def test_lists_in_nested_pages(self):
        made = [self.create().json["id"] for _ in range(3)]
        self.sim.fault("runpod", "list", "pages", times=-1, size=2)
        first = self.sim.call("runpod", "GET", "/v2/pods").json
        self.assertEqual(first["pagination"], {"hasNextPage": True, "nextCursor": "2"})
        last = self.sim.call("runpod", "GET", "/v2/pods?cursor=2").json
        self.assertEqual(last["pagination"], {"hasNextPage": False, "nextCursor": None})
        self.assertEqual([pod["id"] for pod in first["pods"] + last["pods"]], made)

    def test_a_price_that_rises_under_a_machine(self):
        for service, make, field in (("runpod", lambda: self.create().json["id"], "cost"),
                                     ("vast", self.rent, "dph_base")):
            instance = make()
            self.sim.change(service, instance, "price", factor=3)
            shown = self.instance(instance) if service == "vast" else self.sim.call(
                "runpod", "GET", "/v2/pods/" + instance).json
            before = 0.29 if service == "vast" else 0.74
            self.assertAlmostEqual(shown[field], 3 * before)
            self.sim.advance(3600)
            gpu = sum(charge["usd"] for charge in self.sim.book(instance)["charges"]
                      if charge["kind"] == "gpu")
            self.assertAlmostEqual(gpu, 3 * before, places=6)

    def test_a_stopped_pod_bills_its_own_mount_alone(self):
        pods = [self.sim.call("runpod", "POST", "/v2/pods", runpod_body(mounts=mounts)).json["id"]
                for mounts in ({}, {"persistent": {"size": 20, "path": "/w"}})]
        for how in ("stop", "control", "funds"):
            for pod in pods:
                path = "/v2/pods/" + pod
                if how == "stop":
                    self.sim.call("runpod", "POST", path + "/action", {"action": "stop"})
                elif how == "control":
                    self.sim.change("runpod", pod, "stop")
            if how == "funds":
                self.sim.account(service="runpod", key=KEYS["runpod"], balance_usd=0)
            for pod, rate in zip(pods, (0, 20 * 0.20 / 720)):
                shown = self.sim.call("runpod", "GET", "/v2/pods/" + pod).json
                # What it shows as its cost stays.
                self.assertEqual((shown["status"], shown["cost"]), ("EXITED", 0.74), how)
                running = [c for c in self.sim.book(pod)["charges"] if c["to_ms"] == 0]
                self.assertAlmostEqual(sum(c["usd_per_hour"] for c in running), rate, 9, how)
            self.sim.account(service="runpod", key=KEYS["runpod"], balance_usd=100)
            for pod in pods:
                self.sim.call("runpod", "POST", f"/v2/pods/{pod}/action", {"action": "start"})

    def test_times_and_after(self):
        self.sim.fault("runpod", "list", "500", times=2, after=1)
        self.assertEqual([self.sim.call("runpod", "GET", "/v2/pods").status for _ in range(4)],
                         [200, 500, 500, 200])
        self.sim.fault("*", "*", "429", times=-1)
        self.assertEqual(self.sim.call("lambda", "GET", "/api/v1/regions").status, 429)
        self.assertEqual(self.sim.call("vast", "GET", "/api/v0/users/current/").status, 429)
        self.sim.clear_faults()
        self.assertEqual(self.sim.call("lambda", "GET", "/api/v1/regions").status, 200)

    def held(self, phase, drop):
        hold = self.sim.hold(service="runpod", route="create", phase=phase, nth_request=2)
        self.create()
        results = []

        def second():
            try:
                results.append(self.create().status)
            except (ConnectionResetError, http.client.RemoteDisconnected):
                results.append("reset")
        thread = threading.Thread(target=second)
        thread.start()
        self.sim.wait_hold(hold)
        alive = self.alive()
        self.sim.release(hold, drop)
        thread.join()
        return alive, results[0], self.alive()

    def test_held_before(self):
        self.assertEqual(self.held("before", False), (1, 201, 2))

    def test_held_after(self):
        self.assertEqual(self.held("after", False), (2, 201, 2))

    def test_held_and_dropped(self):
        self.assertEqual(self.held("before", True), (1, "reset", 1))
        self.assertEqual(self.held("after", True), (3, "reset", 3))

    def test_the_log(self):
        self.create()
        self.sim.fault("runpod", "list", "500")
        self.sim.call("runpod", "GET", "/v2/pods")
        log = self.sim.requests("runpod")
        self.assertEqual([(r["method"], r["path"], r["route"], r["status"], r["fault"])
                          for r in log],
                         [("POST", "/v2/pods", "create", 201, ""),
                          ("GET", "/v2/pods", "list", 500, "500")])

    def test_an_idle_connection_does_not_hold_up_the_end(self):
        other = Simulator(PROGRAM, "--no-nodes")
        connection = http.client.HTTPConnection("127.0.0.1", other.port, timeout=20)
        self.addCleanup(connection.close)
        connection.request("GET", "/_sim/clock")
        connection.getresponse().read()
        started = time.monotonic()
        other.stop()
        self.assertLess(time.monotonic() - started, 15)

    def test_bodies_without_a_length_and_in_chunks(self):
        with socket.create_connection(("127.0.0.1", self.sim.port), timeout=4) as connection:
            head = (f"POST /runpod/v2/pods HTTP/1.1\r\nHost: x\r\nUser-Agent: t\r\n"
                    f"Authorization: Bearer {KEYS['runpod']}\r\n")
            connection.sendall((head + "\r\n").encode())
            self.assertIn(b" 400 ", connection.recv(200))
        body = json.dumps(runpod_body())
        answer = self.sim.request("POST", "/runpod/v2/pods", raw=iter([body[:9].encode(),
                                                                       body[9:].encode()]),
                                  headers={"Authorization": "Bearer " + KEYS["runpod"]})
        self.assertEqual(answer.status, 201)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""Each fault that the simulator can cause, and held requests.

  faults_test.py GPUCTL_CLOUDSIM
"""
import http.client
import json
import os
import socket
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

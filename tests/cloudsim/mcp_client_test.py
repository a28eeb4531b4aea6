#!/usr/bin/env python3
"""Runpod's own MCP server, unmodified, lists, creates, stops and deletes pods at the simulator.

  mcp_client_test.py GPUCTL_CLOUDSIM SHARED_DIR NPM_DIR

Installs it into NPM_DIR unless it is there; exits with 77, saying so, where npm cannot.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from simulator import KEYS, Simulator, eventually  # noqa: E402

PACKAGE = "@runpod/mcp-server"
PROGRAM, NPM_DIR = "", ""


def server_path():
    return os.path.join(NPM_DIR, "node_modules/@runpod/mcp-server/dist/stdio.mjs")


def install():
    if not os.path.exists(server_path()):
        os.makedirs(NPM_DIR, exist_ok=True)
        # Exactly the packages in the lock file, by their hashes; none of their scripts runs.
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(os.path.dirname(HERE), "npm/runpod-mcp", name), NPM_DIR)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix",
                        NPM_DIR], check=False, stdout=subprocess.DEVNULL, timeout=300)
    return os.path.exists(server_path())


class Client:
    def __init__(self, url):
        environment = {**os.environ, "RUNPOD_API_KEY": KEYS["runpod"],
                       "RUNPOD_API_BASE_URL": url + "/runpod"}
        self.process = subprocess.Popen(["node", server_path()], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=environment)
        self.number = 0
        self.ask("initialize", {"protocolVersion": "2025-03-26", "capabilities": {},
                                "clientInfo": {"name": "test", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        while True:
            reply = json.loads(self.process.stdout.readline())
            if reply.get("id") == self.number:
                return reply

    def tool(self, name, **arguments):
        result = self.ask("tools/call", {"name": name, "arguments": arguments})["result"]
        return result.get("isError", False), result["content"][0]["text"]

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()


class McpClientTest(unittest.TestCase):
    def test_a_pod_from_beginning_to_end(self):
        sim = Simulator(PROGRAM, "--no-rate-limits", "--no-nodes", "--boot-s", "0")
        self.addCleanup(sim.stop)
        client = Client(sim.url)
        self.addCleanup(client.close)

        def good(name, **arguments):
            failed, text = client.tool(name, **arguments)
            self.assertFalse(failed, text)
            return text
        self.assertIn("NVIDIA GeForce RTX 4090", good("list-gpu-types"))
        self.assertIn("pods", good("list-pods"))
        good("create-pod", body={
            "name": "from-mcp", "image": "image", "disk": 20,
            "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 1}})
        book = sim.books()["instances"][0]
        self.assertEqual(book["label"], "from-mcp")
        self.assertIn(book["id"], good("list-pods"))
        eventually(lambda: sim.book(book["id"])["phase"] == "running", "it runs")
        self.assertIn("RUNNING", good("get-pod", id=book["id"]))
        good("pod-action", id=book["id"], body={"action": "stop"})
        self.assertEqual(sim.book(book["id"])["phase"], "stopped")
        good("delete-pod", id=book["id"])
        self.assertFalse(sim.book(book["id"])["alive"])
        failed, text = client.tool("get-pod", id=book["id"])
        self.assertTrue(failed or "404" in text or "not found" in text.lower(), text)
        self.assertNotIn(404, [r["status"] for r in sim.requests("runpod")[:-1]])


if __name__ == "__main__":
    PROGRAM, NPM_DIR = sys.argv[1], sys.argv[3]
    if not install():
        print(f"npm could not install {PACKAGE}: not tested with it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

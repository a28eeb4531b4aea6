#!/usr/bin/env python3
"""Instances behave as real machines: ssh into each, its start script, its own key, its end.

  nodes_test.py GPUCTL_CLOUDSIM
"""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from simulator import Simulator, eventually, runpod_body  # noqa: E402

PROGRAM = ""


def tagged(tag):
    """Returns the live processes with the node's tag."""
    wanted, found = b"GPUCTL_SIM_NODE=" + tag.encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class NodesTest(unittest.TestCase):
    def setUp(self):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0.1")
        self.addCleanup(self.sim.stop)
        self.key = os.path.join(self.sim.dir, "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        with open(self.key + ".pub", encoding="utf-8") as file:
            self.public_key = file.read().strip()

    def ssh(self, user, host, port, command):
        return subprocess.run(
            ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
             "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-i", self.key,
             "-p", str(port), f"{user}@{host}", command],
            capture_output=True, text=True, timeout=300, check=False)

    def open_node(self, instance):
        def ready():
            node = self.sim.node(instance)
            return node if node.get("ssh", {}).get("open") else None
        return eventually(ready, "ssh is open")

    def check_node(self, instance, user, host, port, gpu, terminate):
        node = self.open_node(instance)
        run = self.ssh(user, host, port,
                       "echo $GPUCTL_NODE_ROOT; nvidia-smi --query-gpu=name,memory.total "
                       "--format=csv,noheader,nounits; setsid sleep 1000 >/dev/null 2>&1 & ")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.splitlines(), [node["root"], gpu])
        self.assertTrue(os.path.isdir(node["root"]))
        self.assertNotEqual(self.ssh("nobody", host, port, "true").returncode, 0)
        self.assertGreater(len(tagged(node["tag"])), 0)
        terminate()
        self.assertEqual(tagged(node["tag"]), [])
        self.assertNotEqual(self.ssh(user, host, port, "true").returncode, 0)

    def make_pod(self, **more):
        answer = self.sim.call("runpod", "POST", "/v2/pods", runpod_body(
            env={"PUBLIC_KEY": self.public_key, "WORD": "two words"}, **more))
        self.assertEqual(answer.status, 201, answer.text)
        return answer.json["id"]

    def test_runpod(self):
        pod = self.make_pod()
        self.open_node(pod)
        direct = self.sim.call("runpod", "GET", "/v2/pods/" + pod).json["ssh"]["direct"]
        run = self.ssh("root", direct["host"], direct["port"],
                       "tr '\\0' '\\n' < $GPUCTL_PID1_ENVIRON; env")
        first, session = run.stdout.split("\n", 1)[1], run.stdout.rsplit("PATH=", 1)[1]
        self.assertIn("RUNPOD_POD_ID=" + pod, first)
        self.assertIn("WORD=two words", first)
        self.assertNotIn("RUNPOD_API_KEY", session)
        self.check_node(pod, "root", direct["host"], direct["port"],
                        "NVIDIA GeForce RTX 4090, 24576",
                        lambda: self.sim.call("runpod", "DELETE", "/v2/pods/" + pod))

    def test_lambda(self):
        self.sim.call("lambda", "POST", "/api/v1/ssh-keys",
                      {"name": "k", "public_key": self.public_key})
        script = "#!/bin/bash\necho booted > $GPUCTL_NODE_ROOT/booted\n"
        answer = self.sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
            "region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
            "ssh_key_names": ["k"], "user_data": script})
        made = answer.json["data"]["instance_ids"][0]
        node = self.open_node(made)
        eventually(lambda: os.path.exists(node["root"] + "/booted"), "user_data has run")
        shown = self.sim.call("lambda", "GET", "/api/v1/instances/" + made).json["data"]
        self.assertEqual(shown["ip"], node["ssh"]["host"])
        port = 22 if node["ssh"]["on_port_22"] else node["ssh"]["port"]
        self.assertEqual(
            self.ssh("ubuntu", shown["ip"], port, "sudo -n echo yes").stdout, "yes\n")
        self.check_node(made, "ubuntu", shown["ip"], port, "NVIDIA A10, 23028",
                        lambda: self.sim.call("lambda", "POST",
                                              "/api/v1/instance-operations/terminate",
                                              {"instance_ids": [made]}))

    def test_lambda_takes_a_host_key(self):
        self.sim.call("lambda", "POST", "/api/v1/ssh-keys",
                      {"name": "k", "public_key": self.public_key})
        path = os.path.join(self.sim.dir, "given_host_key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        config = {"ssh_keys": {"ed25519_private": read(path), "ed25519_public": read(path + ".pub")},
                  "runcmd": ["echo booted > $GPUCTL_NODE_ROOT/booted"]}
        answer = self.sim.call("lambda", "POST", "/api/v1/instance-operations/launch", {
            "region_name": "us-west-1", "instance_type_name": "gpu_1x_a10",
            "ssh_key_names": ["k"], "user_data": "#cloud-config\n" + json.dumps(config)})
        node = self.open_node(answer.json["data"]["instance_ids"][0])
        eventually(lambda: os.path.exists(node["root"] + "/booted"), "runcmd has run")
        shown = subprocess.run(["ssh-keyscan", "-p", str(node["ssh"]["port"]), "-t", "ed25519",
                                node["ssh"]["host"]], capture_output=True, text=True, check=False)
        self.assertIn(read(path + ".pub").split()[1], shown.stdout)

    def test_vast(self):
        self.sim.call("vast", "POST", "/api/v0/ssh/", {"ssh_key": self.public_key})
        answer = self.sim.call("vast", "PUT", "/api/v0/asks/9100001/", {
            "image": "i", "disk": 20, "runtype": "ssh_direct", "env": {"WORD": "x"},
            "onstart": "env > $GPUCTL_NODE_ROOT/environment"})
        contract = answer.json["new_contract"]
        node = self.open_node(contract)
        path = f"/api/v0/instances/{contract}/"
        shown = self.sim.call("vast", "GET", path).json["instances"]
        port = int(shown["ports"]["22/tcp"][0]["HostPort"])
        seen = node["root"] + "/environment"
        eventually(lambda: os.path.exists(seen) and "WORD=x" in read(seen), "onstart has run")
        answer = self.sim.call("vast", "PUT", f"/api/v0/instances/command/{contract}/",
                               {"command": "echo from here"})
        result = answer.json["result_url"].replace(self.sim.url, "")
        eventually(lambda: self.sim.request("GET", result).text == "from here\n", "it has run")
        self.check_node(contract, "root", shown["public_ipaddr"].strip(), port,
                        "NVIDIA GeForce RTX 4090, 24564",
                        lambda: self.sim.call("vast", "DELETE", path))

    def test_a_pod_ends_itself_with_its_own_key(self):
        pod = self.make_pod(args="bash -c '(read -r _ < <(sleep 0.3); curl -sS -X POST "
                            "-H \"Authorization: Bearer $RUNPOD_API_KEY\" "
                            "-H \"Content-Type: application/json\" "
                            "-d {\\\"action\\\":\\\"terminate\\\"} "
                            "$GPUCTL_SIM_API/v2/pods/$RUNPOD_POD_ID/action) & exec /start.sh'")
        eventually(lambda: not self.sim.book(pod)["alive"], "the pod has ended itself")
        self.assertEqual(self.sim.book(pod)["ended_by"], "instance " + pod)
        self.assertEqual(self.sim.call("runpod", "GET", "/v2/pods/" + pod).status, 404)

    def test_a_pod_key_reaches_nothing_else(self):
        self.make_pod()
        other = self.make_pod(args="bash -c 'curl -s -o /dev/null -w \"%{http_code} \" "
                              "-H \"Authorization: Bearer $RUNPOD_API_KEY\" "
                              "$GPUCTL_SIM_API/v2/pods > $GPUCTL_NODE_ROOT/status; "
                              "exec /start.sh'")
        node = self.open_node(other)
        self.assertEqual(read(node["root"] + "/status"), "403 ")

    def test_ssh_only_where_the_command_starts_it(self):
        silent = self.make_pod(args="sleep infinity")
        talking = self.make_pod()
        self.open_node(talking)
        self.assertFalse(self.sim.node(silent)["ssh"]["open"])

    def test_wrong_gpu_and_no_ssh(self):
        self.sim.fault("runpod", "create", "wrong_gpu", gpu="NVIDIA GeForce GTX 1080")
        pod = self.make_pod()
        ssh = self.open_node(pod)["ssh"]
        self.assertIn("GTX 1080", self.ssh("root", ssh["host"], ssh["port"], "nvidia-smi -L").stdout)
        self.sim.fault("runpod", "create", "ssh_never")
        deaf = self.make_pod()
        eventually(lambda: self.sim.node(deaf)["phase"] == "running", "it runs")
        ssh = self.sim.node(deaf)["ssh"]
        self.assertFalse(ssh["open"])
        self.assertNotEqual(self.ssh("root", ssh["host"], ssh["port"], "true").returncode, 0)
        self.sim.change("runpod", deaf, "open_ssh")
        self.open_node(deaf)

    def test_a_gpu_that_no_table_has(self):
        self.sim.offer(service="vast", like=9100001, item=9200001, gpu="RTX 6090",
                       driver_gpu="NVIDIA Bar 6090 Z", memory_mib=49140)
        self.sim.call("vast", "POST", "/api/v0/ssh/", {"ssh_key": self.public_key})
        made = self.sim.call("vast", "PUT", "/api/v0/asks/9200001/",
                             {"image": "i", "runtype": "ssh_direct"}).json["new_contract"]
        ssh = self.open_node(made)["ssh"]
        run = self.ssh("root", ssh["host"], ssh["port"], "nvidia-smi --query-gpu=name,memory.total "
                       "--format=csv,noheader,nounits")
        self.assertEqual(run.stdout, "NVIDIA Bar 6090 Z, 49140\n")

    def test_hosts_without_ports(self):
        self.sim.call("vast", "POST", "/api/v0/ssh/", {"ssh_key": self.public_key})
        self.sim.fault("vast", "create", "no_direct_ports")
        for ask in (9100001, 9100004):  # the second says so in its offer
            made = self.sim.call("vast", "PUT", f"/api/v0/asks/{ask}/",
                                 {"image": "i", "runtype": "ssh_direct"}).json["new_contract"]
            self.open_node(made)
            shown = self.sim.call("vast", "GET", f"/api/v0/instances/{made}/").json["instances"]
            self.assertEqual((shown["actual_status"], shown["ports"]), ("running", None))
            # The service's own host passes ssh on.
            run = self.ssh("root", shown["ssh_host"], shown["ssh_port"], "echo through")
            self.assertEqual(run.stdout, "through\n", run.stderr)

    def test_preemption_and_the_end_of_the_simulator(self):
        pod = self.make_pod()
        node = self.open_node(pod)
        self.sim.change("runpod", pod, "preempt")
        self.assertEqual(tagged(node["tag"]), [])
        self.assertEqual(self.sim.book(pod)["ended_by"], "simulator: preempted")
        left = Simulator(PROGRAM, "--boot-s", "0")
        answer = left.call("runpod", "POST", "/v2/pods", runpod_body(args="sleep 1000"))
        tag = f"{answer.json['id']}@{left.pid}"
        eventually(lambda: tagged(tag), "its command runs")
        left.stop()
        self.assertEqual(tagged(tag), [])


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""Requests as public clients of Runpod send them, and the fields of the answers that they read.

  runpod_clients_test.py GPUCTL_CLOUDSIM

The clients are Runpod's library for Python and its command line (runpodctl), and the orchestrators
dstack and SkyPilot; a few of them still use GraphQL. The bodies are written from their public
documentation and behaviour.
"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from clients import NUMBER, TEXT_OR_NULL, check_fields  # noqa: E402
from simulator import KEYS, Simulator, eventually  # noqa: E402

PROGRAM = ""
GPU = "NVIDIA GeForce RTX 4090"


def inline(fields):
    """Returns fields as a client writes them into the text of a query."""
    return ", ".join(f"{name}: {value}" for name, value in fields.items())


MACHINE = "id imageName env machineId machine { podHostId }"
DEPLOY = "mutation { podFindAndDeployOnDemand(input: { %s }) { %s } }"
# These clients write the whole input into the query; the words of enums stand without quotes.
PYTHON_INPUT = {
    "name": '"test"', "imageName": '"runpod/stack"', "cloudType": "ALL", "startSsh": "true",
    "gpuTypeId": f'"{GPU}"', "supportPublicIp": "true", "gpuCount": "1", "volumeInGb": "0",
    "minVcpuCount": "1", "minMemoryInGb": "1", "dataCenterId": "null", "dockerArgs": '""',
    "containerDiskInGb": "10", "ports": '"8888/http,22/tcp"',
    "volumeMountPath": '"/runpod-volume"', "env": '[{ key: "A", value: "b \\"c\\"" }]'}
DSTACK_INPUT = {
    "name": '"job-0"', "imageName": '"dstackai/base"', "gpuTypeId": f'"{GPU}"',
    "cloudType": "SECURE", "startSsh": "true", "supportPublicIp": "true",
    "dataCenterId": '"EU-RO-1"', "gpuCount": "1", "volumeInGb": "0", "containerDiskInGb": "100",
    "minVcpuCount": "16", "minMemoryInGb": "62",
    "dockerArgs": r'"{\"cmd\": [\"/start.sh\"], \"entrypoint\": [\"/bin/sh\", \"-c\"]}"',
    "ports": '"10022/tcp"', "env": '[{ key: "RUNPOD_POD_USER", value: "0" }]'}
RUNPODCTL_INPUT = {
    "cloudType": "SECURE", "containerDiskInGb": 20, "dockerArgs": "", "env": [], "gpuCount": 1,
    "gpuTypeId": GPU, "imageName": "runpod/stack", "minMemoryInGb": 20, "minVcpuCount": 1,
    "name": "runpod/stack", "ports": "8888/http,22/tcp", "templateId": "", "volumeInGb": 1,
    "volumeMountPath": "/runpod"}
SKYPILOT_SPOT_INPUT = {
    "name": '"sky-1-head"', "imageName": '"runpod/base"', "gpuTypeId": f'"{GPU}"',
    "bidPerGpu": "0.4", "volumeMountPath": '"/runpod-volume"', "cloudType": "SECURE",
    "startSsh": "true", "supportPublicIp": "true", "gpuCount": "1", "minMemoryInGb": "24",
    "minVcpuCount": "4", "containerDiskInGb": "50", "volumeInGb": "0",
    "ports": '"22/tcp,8081/http,6380/http"', "dockerArgs": '"bash -c \'true\'"',
    "dataCenterId": '"EU-RO-1,US-TX-3"', "countryCode": '"RO"'}

# (what, the request, the field of the answer, what the client reads there)
RENTS = [
    ("the library", {"query": DEPLOY % (inline(PYTHON_INPUT), MACHINE)},
     "podFindAndDeployOnDemand",
     {"id": str, "imageName": str, "env": list, "machineId": str, "machine.podHostId": str}),
    ("the example of the documentation", {"query": DEPLOY % (
        f'cloudType: ALL gpuCount: 1 volumeInGb: 40 containerDiskInGb: 40 minVcpuCount: 2\n'
        f'minMemoryInGb: 15 gpuTypeId: "{GPU}" name: "Tensorflow" imageName: "tensorflow"\n'
        f'dockerArgs: "" ports: "8888/http" volumeMountPath: "/workspace"\n'
        f'env: [{{ key: "P", value: "w" }}]', MACHINE)},
     "podFindAndDeployOnDemand", {"id": str, "machine.podHostId": str}),
    # runpodctl prints the id and the cost.
    ("runpodctl", {
        "query": "mutation createPod($input: PodFindAndDeployOnDemandInput!) {\n"
                 "  podFindAndDeployOnDemand(input: $input) {\n"
                 "    id\n    costPerHr\n    desiredStatus\n    lastStatusChange\n  }\n}",
        "variables": {"input": RUNPODCTL_INPUT}},
     "podFindAndDeployOnDemand",
     {"id": str, "costPerHr": NUMBER, "desiredStatus": str, "lastStatusChange": str}),
    ("dstack", {"query": DEPLOY % (inline(DSTACK_INPUT),
                                   "id lastStatusChange imageName machine { podHostId }")},
     "podFindAndDeployOnDemand", {"id": str}),
    ("SkyPilot, spot", {"query": "mutation { podRentInterruptable(input: { %s }) "
                                 "{ id desiredStatus imageName env machineId machine "
                                 "{ podHostId } } }" % inline(SKYPILOT_SPOT_INPUT)},
     "podRentInterruptable", {"id": str, "desiredStatus": str}),
]

POD = ("id containerDiskInGb costPerHr desiredStatus dockerArgs dockerId env gpuCount imageName "
       "lastStatusChange machineId memoryInGb name podType port ports uptimeSeconds vcpuCount "
       "volumeInGb volumeMountPath runtime { ports { ip isIpPublic privatePort publicPort type } } "
       "machine { gpuDisplayName }")
# runpodctl reads these into fixed types: any other type is an error for the whole list.
POD_FIELDS = {
    "id": str, "containerDiskInGb": int, "costPerHr": NUMBER, "desiredStatus": str,
    "dockerArgs": str, "env": list, "gpuCount": int, "imageName": str, "memoryInGb": int,
    "name": str, "podType": str, "ports": str, "vcpuCount": int, "volumeInGb": int,
    "volumeMountPath": str, "machine.gpuDisplayName": str, "uptimeSeconds": int,
    "lastStatusChange": str, "machineId": str, "dockerId": TEXT_OR_NULL}

# The REST bodies of the newer versions.
SKYPILOT_BODY = {
    "name": "sky-1-head", "image": "runpod/base", "disk": 50, "args": "bash -c 'true'",
    "ports": ["22/tcp", "8080/tcp", "8266/http", "6380/http"], "startSsh": True,
    "dataCenterIds": ["US-TX-3", "EU-RO-1"], "cloud": "SECURE",
    "gpu": {"id": GPU, "count": 1, "minVcpuCountPerGpu": 4, "minRamPerGpu": 24}}
PYTHON_BODY = {
    "name": "test", "startSsh": True, "image": "runpod/stack", "disk": 10,
    "ports": ["8888/http", "22/tcp"], "env": {"A": "b"},
    "mounts": {"persistent": {"size": 20, "path": "/runpod-volume"}},
    "gpu": {"id": GPU, "count": 1, "minRamPerGpu": 30, "allowedCudaVersions": ["12.8"]}}


class RunpodClientsTest(unittest.TestCase):
    def start(self, *options):
        self.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0", *options)
        self.addCleanup(self.sim.stop)

    def raw(self, request):
        """Sends a GraphQL request as all of these clients do: the key is in the query."""
        return self.sim.call("runpod", "POST", "/graphql?api_key=" + KEYS["runpod"],
                             {"query": request} if isinstance(request, str) else request, key="",
                             timeout=20)

    def query(self, request):
        answer = self.raw(request)
        self.assertEqual(answer.status, 200, answer.text)
        # The library and dstack take any "errors" for a failure.
        self.assertNotIn("errors", answer.json)
        return answer.json["data"]

    def pods(self):
        return self.query("query myPods { myself { pods { %s } } }" % POD)["myself"]["pods"]

    def test_rents(self):
        self.start("--no-nodes")
        self.assertEqual(self.pods(), [])
        for what, request, name, fields in RENTS:
            with self.subTest(what):
                pod = self.query(request)[name]
                check_fields(self, pod, fields)
                (listed,) = self.pods()
                check_fields(self, listed, POD_FIELDS)
                self.assertEqual(listed["id"], pod["id"])
                self.assertEqual(self.sim.requests("runpod")[-2]["route"], "create")
                ended = self.query({"query": "mutation terminatePod($podId: String!) { "
                                             "podTerminate(input: {podId: $podId}) }",
                                    "variables": {"podId": pod["id"]}})
                # runpodctl looks for the member only.
                self.assertEqual(ended, {"podTerminate": None})
                self.assertFalse(self.sim.book(pod["id"])["alive"])

    def test_what_a_pod_has_of_its_request(self):
        self.start("--no-nodes")
        self.query(RENTS[0][1])
        (pod,) = self.pods()
        self.assertEqual((pod["env"], pod["ports"], pod["podType"], pod["volumeMountPath"]),
                         (['A=b "c"'], "8888/http,22/tcp", "RESERVED", "/runpod-volume"))
        self.query(RENTS[4][1])
        self.assertEqual([p["podType"] for p in self.pods()], ["RESERVED", "INTERRUPTABLE"])
        self.assertEqual(self.sim.book(self.pods()[1]["id"])["region"], "EU-RO-1")

    def test_the_port_that_dstack_waits_for(self):
        self.start()
        made = self.query(RENTS[3][1])["podFindAndDeployOnDemand"]["id"]
        text = 'query pod { pod(input: {podId: "%s"}) { %s } }' % (made, POD)

        def running():
            pod = self.query(text)["pod"]
            return pod if pod["runtime"] is not None else None
        pod = eventually(running, "the pod runs")
        (port,) = [port for port in pod["runtime"]["ports"] if port["privatePort"] == 10022]
        check_fields(self, port, {"ip": str, "publicPort": int, "isIpPublic": bool, "type": str})
        self.assertIsNone(self.query('query { pod(input: {podId: "none"}) { id } }')["pod"])
        # dstack knows by these words that a pod has ended already.
        end = 'mutation { podTerminate(input: { podId: "%s" }) }' % made
        self.query(end)
        answer = self.raw(end)
        error = answer.json["errors"][0]
        self.assertEqual((answer.status, error["message"], error["path"]),
                         (200, "pod not found to terminate", ["podTerminate"]))

    def test_commands_of_either_form_run(self):
        self.start()
        request = {**RUNPODCTL_INPUT, "env": [{"key": "PUBLIC_KEY", "value": "ssh-ed25519 A"}]}
        for args in ("", '{"cmd": ["/start.sh"], "entrypoint": ["/bin/sh", "-c"]}'):
            with self.subTest(args):
                made = self.query({**RENTS[2][1], "variables": {
                    "input": {**request, "dockerArgs": args}}})
                pod = made["podFindAndDeployOnDemand"]["id"]
                eventually(lambda node=pod: self.sim.node(node).get("ssh", {}).get("open"),
                           "ssh is open")

    def test_stop_and_resume(self):
        self.start("--no-nodes")
        pod = self.query(RENTS[0][1])["podFindAndDeployOnDemand"]["id"]
        self.pods()
        stop = 'mutation { podStop(input: { podId: "%s" }) { id desiredStatus } }' % pod
        self.assertEqual(self.query(stop)["podStop"], {"id": pod, "desiredStatus": "EXITED"})
        self.assertEqual(self.raw(stop).json["errors"][0]["path"], ["podStop"])
        self.assertEqual([p["desiredStatus"] for p in self.pods()], ["EXITED"])
        again = self.query({"query": "mutation podResume($podId: String!) { podResume(input: "
                                     "{podId: $podId, gpuCount: 1}) { id costPerHr "
                                     "desiredStatus lastStatusChange } }",
                            "variables": {"podId": pod}})["podResume"]
        check_fields(self, again, {"costPerHr": NUMBER, "lastStatusChange": str})
        self.assertEqual(again["desiredStatus"], "RUNNING")

    def test_user_volumes_and_gpus(self):
        self.start("--no-nodes")
        self.sim.call("runpod", "POST", "/v2/network-volumes",
                      {"name": "data", "size": 50, "dataCenter": "EU-RO-1"})
        # SkyPilot takes the data centre of a volume; dstack takes the size.
        user = self.query("query myself { myself { id pubKey networkVolumes { id name size "
                          "dataCenterId dataCenter { id name } } } }")["myself"]
        check_fields(self, user, {"id": str, "pubKey": str, "networkVolumes.0.id": str,
                                  "networkVolumes.0.size": int,
                                  "networkVolumes.0.dataCenterId": str,
                                  "networkVolumes.0.dataCenter.id": str})
        check_fields(self, self.query("query myself { myself { id authId email } }")["myself"],
                     {"id": str, "authId": str, "email": str})
        gpus = self.query(
            'query GpuTypes { gpuTypes(input: {id: "%s"}) { maxGpuCount id displayName manufacturer '
            "memoryInGb cudaCores secureCloud communityCloud securePrice communityPrice "
            "oneMonthPrice threeMonthPrice oneWeekPrice communitySpotPrice secureSpotPrice "
            "lowestPrice(input: {gpuCount: 1}) { minimumBidPrice uninterruptablePrice } } }" % GPU)
        (gpu,) = gpus["gpuTypes"]
        check_fields(self, gpu, {"id": str, "memoryInGb": int, "maxGpuCount": int,
                                 "securePrice": NUMBER, "lowestPrice.minimumBidPrice": NUMBER,
                                 "lowestPrice.uninterruptablePrice": NUMBER})
        none = self.query('{ gpuTypes(input: {id: "%s"}) { lowestPrice(input: {gpuCount: 99}) '
                          "{ uninterruptablePrice } } }" % GPU)
        self.assertEqual(none, {"gpuTypes": [{"lowestPrice": {"uninterruptablePrice": None}}]})

    def test_refusals(self):
        self.start("--no-nodes")
        for text, code in (("{myself{wealth}}", "GRAPHQL_VALIDATION_FAILED"),
                           ("{myself}", "GRAPHQL_VALIDATION_FAILED"),
                           ("{myself{id{id}}}", "GRAPHQL_VALIDATION_FAILED"),
                           ("mutation{myself{id}}", "GRAPHQL_VALIDATION_FAILED"),
                           (DEPLOY % (f'gpuTypeId: "{GPU}", wishes: 3', "id"),
                            "GRAPHQL_VALIDATION_FAILED"),
                           (DEPLOY % ("gpuCount: 1", "id"), "GRAPHQL_VALIDATION_FAILED"),
                           ("{myself{id}", "GRAPHQL_PARSE_FAILED"),
                           ('{myself(a: "){id}}', "GRAPHQL_PARSE_FAILED")):
            answer = self.raw(text)
            self.assertEqual((answer.status, answer.json["errors"][0]["extensions"]["code"]),
                             (400, code), text)
        # A refusal of the market is a 200 with "errors" whose message all of them show.
        for more, said in (({"minMemoryInGb": 4000}, "no longer any instances"),
                           ({"minVcpuCount": 999}, "no longer any instances"),
                           ({"countryCode": "XX"}, "no longer any instances"),
                           ({"dataCenterId": "AP-IN-1"}, "no longer any instances"),
                           ({"gpuTypeId": "NVIDIA H100 NVL"}, "no longer any instances"),
                           ({"gpuTypeId": "Abacus"}, "unknown GPU type")):
            answer = self.raw({**RENTS[2][1], "variables": {"input": {**RUNPODCTL_INPUT, **more}}})
            self.assertEqual(answer.status, 200)
            self.assertIn(said, answer.json["errors"][0]["message"])
        answer = self.sim.call("runpod", "POST", "/graphql?api_key=wrong", {"query": "{myself{id}}"},
                               key="")
        self.assertEqual(answer.status, 401)
        self.assertEqual(self.pods(), [])

    def test_any_cloud_is_first_the_secure_one(self):
        self.start("--no-nodes")
        self.sim.stock(service="runpod", item=GPU, count=0)
        community = self.query(RENTS[0][1])["podFindAndDeployOnDemand"]["id"]
        pod = self.sim.call("runpod", "GET", "/v2/pods/" + community).json
        self.assertEqual((pod["cloud"], pod["cost"]), ("COMMUNITY", 0.34))

    def test_rest_bodies(self):
        self.start()
        rest = lambda *about: self.sim.call("runpod", *about)  # noqa: E731
        # SkyPilot first asks for the memory of the GPU.
        check_fields(self, rest("GET", "/v2/catalog/gpus/NVIDIA%20GeForce%20RTX%204090").json,
                     {"memory": int})
        made = [rest("POST", "/v2/pods", body) for body in (SKYPILOT_BODY, PYTHON_BODY)]
        self.assertEqual([answer.status for answer in made], [201, 201], made[0].text)

        def running():
            pods = rest("GET", "/v2/pods").json["pods"]
            return pods if all(pod["runtime"] for pod in pods) else None
        pods = eventually(running, "both run")
        for pod in pods:
            check_fields(self, pod, {"id": str, "status": str, "name": str, "gpu.vcpuCount": int,
                                     "gpu.memory": int, "runtime.ports": list,
                                     "ssh.direct.host": str, "ssh.direct.port": int})
        ports = {port["private"]: port for port in pods[0]["runtime"]["ports"]
                 if port["type"] == "tcp"}
        self.assertEqual(set(ports), {22, 8080})
        check_fields(self, ports[8080], {"ip": str, "public": int})
        for limit in ({"minVcpuCountPerGpu": 500}, {"minRamPerGpu": 5000}):
            refused = rest("POST", "/v2/pods",
                           {**SKYPILOT_BODY, "gpu": {**SKYPILOT_BODY["gpu"], **limit}})
            self.assertEqual(refused.status, 400)
            self.assertIn("no longer any instances", refused.json["detail"])
        self.assertEqual(rest("DELETE", "/v2/pods/" + pods[0]["id"]).status, 204)

    def test_lists_in_pages(self):
        self.start("--no-nodes")
        made = [self.sim.call("runpod", "POST", "/v2/pods", PYTHON_BODY).json["id"]
                for _ in range(5)]
        whole = self.sim.call("runpod", "GET", "/v2/pods").json
        self.assertEqual((len(whole["pods"]), "pagination" in whole), (5, False))
        self.sim.fault("runpod", "list", "pages", size=2, times=-1)
        # SkyPilot goes on while "pagination" has a cursor.
        found, cursor = [], ""
        for _ in range(9):
            page = self.sim.call("runpod", "GET", "/v2/pods" + cursor).json
            found += [pod["id"] for pod in page["pods"]]
            check_fields(self, page, {"pagination.hasNextPage": bool,
                                      "pagination.nextCursor": TEXT_OR_NULL})
            if not page["pagination"]["hasNextPage"]:
                break
            cursor = "?cursor=" + page["pagination"]["nextCursor"]
        self.assertEqual((found, page["pagination"]["nextCursor"]), (made, None))


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""gpuctl rents, runs, pulls and releases at the simulator, once at each market. A validating proxy
(Prism) between the two knows the market's published description; neither side may break it. JSON
Schema then checks what Prism does not check (fields that are not named).

  prism_test.py GPUCTL GPUCTL_CLOUDSIM SHARED_DIR NPM_DIR

Installs Prism into NPM_DIR unless it is there; exits with 77, saying so, where npm cannot.
"""
import copy
import http.client
import http.server
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "lint")]
import provisioning_schema_test as described  # noqa: E402
import schemas_test  # noqa: E402
from simulator import Answer, KEYS, Simulator, enter_key, runpod_body  # noqa: E402

PACKAGE = "@stoplight/prism-cli"
GPUCTL, PROGRAM, SHARED, NPM_DIR = "", "", "", ""
COMPLAINT = "stoplight.io/prism/errors"


def prism_path():
    return os.path.join(NPM_DIR, "node_modules/.bin/prism")


def install():
    if not os.path.exists(prism_path()):
        os.makedirs(NPM_DIR, exist_ok=True)
        # Exactly the packages in the lock file, by their hashes; none of their scripts runs.
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(os.path.dirname(HERE), "npm/prism", name), NPM_DIR)
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix",
                        NPM_DIR], check=False, stdout=subprocess.DEVNULL, timeout=300)
    return os.path.exists(prism_path())


def description(service):
    """Returns the published description, changed where the service is known to differ."""
    spec = copy.deepcopy(schemas_test.load(service))
    if service == "shadeform":
        return described.patched_shadeform(spec)
    if service == "huggingface":
        schemas_test.patch_huggingface(spec)
    if service != "vast":
        return spec
    schemas_test.patch_vast(spec)
    return described.patched_vast(spec)


class Prism:
    """A proxy to `upstream` that refuses, on either side, what the file `spec` does not allow."""

    def __init__(self, spec, upstream):
        self.process = subprocess.Popen(
            [prism_path(), "proxy", "--errors", "-h", "127.0.0.1", "-p", "0", spec, upstream],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.said = queue.Queue(), []
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def port(self):
        """Waits until it listens."""
        while True:
            line = self.lines.get(timeout=300)
            assert line is not None, "Prism ended: " + "".join(self.said)
            self.said.append(line)
            if "is listening on" in line:
                return int(line.strip().rsplit(":", 1)[1].split("/")[0].split("\x1b")[0])

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.reader.join()
        self.process.stdout.close()


class Recorder(http.server.ThreadingHTTPServer):
    """Passes /SERVICE/… on to the service's port and keeps the messages of both directions."""
    daemon_threads = True

    def __init__(self, ports):
        super().__init__(("127.0.0.1", 0), Passage)
        self.ports, self.said = ports, []
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class Passage(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do(self):
        _, service, path = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection("127.0.0.1", self.server.ports[service], timeout=300)
        # The description does not cover compressed answers.
        kept = {name: value for name, value in self.headers.items()
                if name.lower() not in ("host", "accept-encoding", "content-length", "connection")}
        try:
            connection.request(self.command, "/" + path, body or None, kept)
            reply = connection.getresponse()
            answer = Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()},
                            reply.read().decode())
        finally:
            connection.close()
        self.server.said.append({"service": service, "method": self.command, "path": "/" + path,
                                 "body": body.decode(), "answer": answer})
        data = answer.text.encode()
        self.send_response(answer.status)
        for name in ("content-type", "retry-after"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        if answer.status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do

    def log_message(self, *unused):
        pass


class PrismTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory(prefix="prism-test-")
        cls.addClassCleanup(cls.dir.cleanup)
        cls.sim = Simulator(PROGRAM, "--no-rate-limits", "--boot-s", "0")
        cls.addClassCleanup(cls.sim.stop)
        proxies = {}
        for service in KEYS:
            file = os.path.join(cls.dir.name, service + ".json")
            with open(file, "w", encoding="utf-8") as out:
                json.dump(description(service), out)
            proxies[service] = Prism(file, f"{cls.sim.url}/{service}")
            cls.addClassCleanup(proxies[service].stop)
        cls.recorder = Recorder({service: proxy.port() for service, proxy in proxies.items()})
        cls.addClassCleanup(cls.recorder.stop)

    def gpuctl(self, service, *args):
        url = f"http://127.0.0.1:{self.recorder.server_address[1]}/{service}"
        place = {name: os.path.join(self.dir.name, service, name.lower())
                 for name in ("GPUCTL_STATE_DIR", "GPUCTL_CACHE_DIR", "GPUCTL_CONFIG_DIR")}
        work = os.path.join(self.dir.name, service, "work")
        os.makedirs(work, exist_ok=True)
        done = subprocess.run(
            [GPUCTL, *args], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300, check=False, env={
                "PATH": os.environ["PATH"], "HOME": self.dir.name, "GPUCTL_KEY_STORE": "file",
                **place, f"GPUCTL_{service.upper()}_URL": url,
                f"GPUCTL_{service.upper()}_API_KEY": KEYS[service]})
        self.assertEqual(done.returncode, 0, f"{args}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def rent_and_release(self, service, must_ask):
        begin = len(self.recorder.said)
        self.gpuctl(service, "offers")
        self.assertIn("hello from there", self.gpuctl(
            service, "launch", "-y", "--down", "--provider", service, "--no-workdir", "--name",
            "through-1", "--", "echo", "hello from there"))
        self.gpuctl(service, "instances")
        self.assertFalse([book for book in self.sim.books()["instances"]
                          if book["alive"] and book["service"] == service])
        said = self.recorder.said[begin:]
        spec, request_spec = schemas_test.Spec(service), self.request_spec(service)
        asked = set()
        for each in said:
            answer = each["answer"]
            what = f"{service} {each['method']} {each['path']} {each['body']}: {answer.text}"
            if each["path"] == "/graphql":  # not in this description; it is done without
                continue
            self.assertNotIn(COMPLAINT, answer.text, what)
            self.assertNotIn("sl-violations", answer.headers, what)
            route, problems = described.check(service, request_spec, each)
            self.assertEqual(problems, [], what)
            asked.add(f"{each['method']} {route}")
            spec.check(each["method"], each["path"], answer)
        self.assertLessEqual(set(must_ask), asked)

    def request_spec(self, service):
        spec = description(service)
        return described.patched_lambda(spec) if service == "lambda" else spec

    def test_runpod(self):
        self.rent_and_release("runpod", {
            "GET /v2/catalog/gpus", "POST /v2/pods", "GET /v2/pods", "GET /v2/pods/{id}",
            "DELETE /v2/pods/{id}"})

    def test_lambda(self):
        self.rent_and_release("lambda", {
            "GET /api/v1/instance-types", "POST /api/v1/instance-operations/launch",
            "GET /api/v1/instances", "GET /api/v1/instances/{id}",
            "POST /api/v1/instance-operations/terminate"})

    def test_vast(self):
        self.rent_and_release("vast", {
            "POST /api/v0/bundles/", "PUT /api/v0/asks/{id}/", "GET /api/v1/instances/",
            "GET /api/v0/instances/{id}/", "DELETE /api/v0/instances/{id}/"})

    def test_digitalocean(self):
        self.rent_and_release("digitalocean", {
            "GET /v2/sizes", "POST /v2/droplets", "GET /v2/droplets",
            "GET /v2/droplets/{droplet_id}", "DELETE /v2/droplets/{droplet_id}"})

    def test_shadeform(self):
        self.rent_and_release("shadeform", {
            "GET /v1/instances/types", "POST /v1/instances/create", "GET /v1/instances",
            "GET /v1/instances/{id}/info", "POST /v1/instances/{id}/delete"})

    def test_huggingface(self):
        enter_key(self.sim, os.path.join(self.dir.name, "huggingface", "gpuctl_state_dir"))
        self.rent_and_release("huggingface", {
            "GET /api/whoami-v2", "GET /api/jobs/hardware", "POST /api/jobs/{namespace}",
            "GET /api/jobs/{namespace}", "GET /api/jobs/{namespace}/{jobId}",
            "POST /api/jobs/{namespace}/{jobId}/cancel"})

    def ask(self, service, method, path, body):
        connection = http.client.HTTPConnection(*self.recorder.server_address, timeout=300)
        try:
            connection.request(method, f"/{service}{path}", body and json.dumps(body),
                               {"Authorization": "Bearer " + KEYS[service],
                                "Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def test_wrong_requests_are_refused(self):
        wrong = [("runpod", "POST", "/v2/pods", runpod_body(gpu={"count": 1})),
                 ("lambda", "POST", "/api/v1/instance-operations/launch", {"region_name": "r"}),
                 ("vast", "PUT", "/api/v0/asks/9100001/", {"image": "i", "env": "-e A=1"})]
        for service, method, path, body in wrong:
            status, text = self.ask(service, method, path, body)
            self.assertEqual(status, 422, f"{service}: {text}")
            self.assertIn(COMPLAINT, text)

    def test_a_wrong_answer_is_refused(self):
        self.addCleanup(self.sim.clear_faults)
        pod = self.sim.call("runpod", "POST", "/v2/pods", runpod_body()).json["id"]
        self.addCleanup(self.sim.call, "runpod", "DELETE", "/v2/pods/" + pod)
        self.sim.fault("runpod", "list", "wrong_types")
        status, text = self.ask("runpod", "GET", "/v2/pods", None)
        self.assertEqual(status, 500, text)
        self.assertIn(COMPLAINT, text)

    def test_fields_that_are_not_named_are_noticed(self):
        for service, method, path, body in [
                ("runpod", "POST", "/v2/pods", runpod_body(imageName="i")),
                ("lambda", "POST", "/api/v1/ssh-keys", {"name": "n", "quantity": 1}),
                ("vast", "PUT", "/api/v0/asks/1/", {"image": "i", "imageName": "i"})]:
            request = {"method": method, "path": path, "body": json.dumps(body)}
            self.assertTrue(described.check(service, self.request_spec(service), request)[1])


if __name__ == "__main__":
    GPUCTL, PROGRAM, SHARED, NPM_DIR = sys.argv[1:5]
    schemas_test.SHARED = SHARED
    if not os.path.isdir(os.path.join(SHARED, "providers")):
        print(f"no specifications in {SHARED}: not checked against them")
        sys.exit(77)
    if not install():
        print(f"npm could not install {PACKAGE}: not tested with it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])

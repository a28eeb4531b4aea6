"""Starts gpuctl-cloudsim for a Python test and uses its control routes."""
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse

# The key of each service's first account.
KEYS = {name: f"sim-{name}-key" for name in ("runpod", "lambda", "vast", "digitalocean",
                                             "shadeform", "huggingface")}


class Answer:
    """An answer: status, headers by lower-case name, text, and json (None for other text)."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        try:
            self.json = json.loads(text)
        except ValueError:
            self.json = None


class Simulator:
    """with Simulator(path) as sim: …; its processes and files are gone afterwards."""

    def __init__(self, program, *options):
        self.dir = tempfile.mkdtemp(prefix="cloudsim-test-")
        # It ends with its standard input, so also when this process is killed.
        self.process = subprocess.Popen(
            [os.path.abspath(program), "--dir", "sim", "--parent-fd", "0", *options], cwd=self.dir,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.url, self.pid = ready["url"], ready["pid"]
        self.port = urllib.parse.urlparse(self.url).port

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()

    def stop(self):
        self.process.stdin.close()
        status = self.process.wait(timeout=300)
        self.process.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        assert status == 0, f"the simulator ended with {status}"

    def request(self, method, path, body=None, headers=None, timeout=300, raw=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = raw if raw is not None else None if body is None else json.dumps(body)
        sent = {"User-Agent": "test", **(headers or {})}
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()},
                          response.read().decode())
        finally:
            connection.close()

    def call(self, service, method, path, body=None, key=None, timeout=300):
        """Sends a request to a service with its account's key."""
        own = KEYS[service] if key is None else key
        headers = {"Authorization": "Bearer " + own}
        if service == "shadeform":
            headers = {"X-API-KEY": own}
        if key == "":
            headers = {}
        return self.request(method, f"/{service}{path}", body, headers, timeout)

    def control(self, method, path, body=None, timeout=300):
        answer = self.request(method, "/_sim/" + path, body, timeout=timeout)
        assert answer.status == 200, f"{method} {path}: {answer.status} {answer.text}"
        return answer.json

    def books(self):
        return self.control("GET", "books")

    def book(self, instance):
        return next(b for b in self.books()["instances"] if b["id"] == str(instance))

    def state(self):
        return self.control("GET", "state")

    def node(self, instance):
        return next(i for i in self.state()["instances"] if i["id"] == str(instance))

    def requests(self, service=""):
        return self.control("GET", "requests?service=" + service)["requests"]

    def advance(self, seconds):
        return self.control("POST", "clock", {"advance_s": seconds})

    def freeze(self):
        return self.control("POST", "clock", {"speed": 0})

    def fault(self, service, route, fault, **more):
        return self.control("POST", "faults",
                            {"service": service, "route": route, "fault": fault, **more})

    def clear_faults(self):
        return self.control("DELETE", "faults")

    def hold(self, **about):
        return self.control("POST", "hold", about)["hold"]

    def wait_hold(self, hold, timeout_s=30):
        return self.control("GET", f"hold/{hold}?timeout_s={timeout_s}", timeout=timeout_s + 10)

    def release(self, hold, drop=False):
        return self.control("POST", "release", {"hold": hold, "drop": drop})

    def change(self, service, instance, what, **more):
        return self.control("POST", "instance",
                            {"service": service, "id": str(instance), "do": what, **more})

    def offer(self, **item):
        """Adds an item to a market that is like another one there."""
        return self.control("POST", "offer", item)

    def stock(self, **change):
        return self.control("POST", "stock", change)

    def price(self, **change):
        return self.control("POST", "price", change)

    def registry(self, server, username, password):
        """Lets that user pull the server's private images."""
        return self.control("POST", "registry", {"server": server, "username": username,
                                                 "password": password})

    def account(self, **change):
        return self.control("POST", "account", change)


def enter_key(sim, state_dir):
    """Enters gpuctl's public key on the page of the account at Hugging Face, as its user does once:
    no request of the API can. Makes the key where gpuctl would."""
    path = os.path.join(state_dir, "ssh", "id_ed25519")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpuctl", "-f", path],
                       check=True)
    with open(path + ".pub", encoding="utf-8") as file:
        assert sim.call("huggingface", "POST", "/settings/keys",
                        {"key": file.read().strip()}).status == 200


def eventually(condition, what, seconds=120):
    """Returns the first true result of `condition`. Fails after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError("never happened: " + what)


def runpod_body(**more):
    return {"name": "gpuctl-test", "image": "image", "cloud": "SECURE", "ports": ["22/tcp"],
            "gpu": {"id": "NVIDIA GeForce RTX 4090", "count": 1}, "disk": 30, **more}

"""A proxy before the simulated markets that makes the texts of their answers hostile."""
import http.client
import http.server
import json
import threading

# Texts for people only; code looks up or decides nothing by them.
FREE = {"description", "status_msg", "message", "msg", "detail", "title", "suggestion", "lastStatus",
        "geolocation", "gpu_description", "displayName", "hostname", "cpu_name"}


class HostileMarket:
    """with HostileMarket(sim, words) as m: m.keys says which texts get a tail; None means all."""

    def __init__(self, sim, words):
        self.sim, self.words = sim, words
        self.keys = FREE
        self.instead = None  # (status, type, body) of every answer, or None
        self.seen = set()
        market = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                market.answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

            def log_message(self, *unused):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that was killed resets its connection.
        self.server.handle_error = lambda *unused: None
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_port

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection("127.0.0.1", self.sim.port, timeout=300)
        headers = {k: v for k, v in request.headers.items()
                   if k.lower() not in ("host", "content-length", "connection",
                                          "accept-encoding")}
        connection.request(request.command, request.path, body or None, headers)
        response = connection.getresponse()
        data, status = response.read(), response.status
        kind = response.getheader("Content-Type", "application/json")
        connection.close()
        if self.instead is not None:
            status, kind, data = self.instead
        else:
            data = self.spoil(request.path.split("/")[1], data)
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def spoil(self, service, data):
        try:
            return json.dumps(self.spoiled(service, "", json.loads(data))).encode()
        except ValueError:
            return data

    def spoiled(self, service, key, value):
        if isinstance(value, dict):
            return {k: self.spoiled(service, k, v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.spoiled(service, key, v) for v in value]
        if isinstance(value, str) and value and (self.keys is None or key in self.keys):
            self.seen.add((service, key))
            return value + self.words.text("%s %s" % (service, key))
        return value

#!/usr/bin/env python3
"""What people use over `forward` and `ssh gpuctl-RUN`: notebooks with websockets, streams, and what
an editor does that works on another machine.

  reach_programs.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop. Jupyter (`jupyter-server` and
`python3-ipykernel` of Debian) has a test of its own, which is told as skipped where it is not
installed; everywhere, a web server of this file stands for it.
"""
import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.request
import uuid

from reach import Forward, free_port, launch, node, system, users_ssh
from runs import DEADLINE_S, Skipped, run_tests, ssh_server, wait_for_file
from sync import eventually, read

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

# A web server: /ws echoes messages, /events sends one event each tenth of a second, /post answers
# with the hash of what came in pieces.
SERVER = r'''
import base64, hashlib, os, struct, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def do_GET(self):
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for number in range(20):
                self.wfile.write(b"data: %d %f\n\n" % (number, time.time()))
                self.wfile.flush()
                time.sleep(0.1)
            self.close_connection = True
            return
        key = self.headers["Sec-WebSocket-Key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while True:
            first = self.rfile.read(2)
            if len(first) < 2:
                return
            size = first[1] & 127
            if size == 126:
                size, = struct.unpack("!H", self.rfile.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = self.rfile.read(size)
            whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
            data = whole.to_bytes(size, "big")
            if first[0] & 15 == 8:
                self.wfile.write(b"\x88\x00")
                return
            head = bytes([first[0]]) + (bytes([size]) if size < 126 else
                                        b"\x7e" + struct.pack("!H", size) if size < 65536 else
                                        b"\x7f" + struct.pack("!Q", size))
            self.wfile.write(head + data)
            self.wfile.flush()
    def do_POST(self):
        digest = hashlib.sha256()
        while True:
            size = int(self.rfile.readline(), 16)
            digest.update(self.rfile.read(size))
            self.rfile.readline()
            if size == 0:
                break
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open("port.part", "w") as file:
    file.write(str(server.server_port))
os.rename("port.part", "port")
server.serve_forever()
'''


class WebSocket:
    """The client's side of RFC 6455."""

    def __init__(self, port, path, headers=()):
        self.peer = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        key = base64.b64encode(os.urandom(16))
        lines = [b"GET %s HTTP/1.1" % path.encode(), b"Host: 127.0.0.1:%d" % port,
                 b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Key: " + key,
                 b"Sec-WebSocket-Version: 13", *headers]
        self.peer.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        self.file = self.peer.makefile("rb")
        status = self.file.readline()
        assert b" 101 " in status, status
        accepted = None
        while True:
            line = self.file.readline().strip()
            if not line:
                break
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-accept":
                accepted = value.strip()
        assert accepted == base64.b64encode(hashlib.sha1(key + MAGIC).digest()), accepted

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.peer.close()

    def send(self, data, kind=1):
        size = len(data)
        head = bytes([0x80 | kind]) + (
            bytes([0x80 | size]) if size < 126 else
            b"\xfe" + struct.pack("!H", size) if size < 65536 else b"\xff" + struct.pack("!Q", size))
        mask = os.urandom(4)
        masked = int.from_bytes(data, "big") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self.peer.sendall(head + mask + masked.to_bytes(size, "big"))

    def receive(self):
        """Returns the next message, of one or several frames."""
        message = b""
        while True:
            first, second = self.file.read(2)
            size = second & 127
            if size == 126:
                size, = struct.unpack("!H", self.file.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.file.read(8))
            data = self.file.read(size)
            if first & 15 == 9:  # ping
                self.send(data, 10)
                continue
            if first & 15 == 8:
                return None
            message += data
            if first & 0x80:
                return message


def test_websockets_and_streams_through_forward(l):
    with ssh_server(l) as (port, folder, _):
        work = launch(l, "web-ws", "python3", "-c", SERVER, where=node(l, port, folder))
        wait_for_file(os.path.join(work, "port"))
        with Forward(l, "web-ws", read(os.path.join(work, "port"))) as forward:
            here = forward.port()
            with WebSocket(here, "/ws") as one, WebSocket(here, "/ws") as two:
                for size in (0, 1, 125, 126, 65535, 65536, 3_000_000):
                    data = os.urandom(size)
                    for web in (one, two):
                        web.send(data, 2)
                    for web in (one, two):
                        assert web.receive() == data, size
                # Small messages pass one by one, and not only when more come.
                for number in range(50):
                    begin = time.monotonic()
                    one.send(b"%d" % number)
                    assert one.receive() == b"%d" % number
                    assert time.monotonic() - begin < 5
                # Quiet for a moment, and then there again.
                time.sleep(2)
                two.send(b"still here")
                assert two.receive() == b"still here"
                one.send(b"", 8)
                assert one.receive() is None
            # Events come when they happen.
            late = []
            with urllib.request.urlopen("http://127.0.0.1:%d/events" % here, timeout=300) as reply:
                for number in range(20):
                    line = reply.readline().split()
                    assert line[:2] == [b"data:", b"%d" % number], line
                    late.append(time.time() - float(line[2]))
                    reply.readline()
            assert max(late) < 1, late
            # A body in pieces, of a size that nobody said before.
            data = [os.urandom(100_000) for _ in range(30)]
            request = urllib.request.Request("http://127.0.0.1:%d/post" % here, data=iter(data),
                                             headers={"Transfer-Encoding": "chunked"})
            with urllib.request.urlopen(request, timeout=300) as reply:
                assert reply.read() == hashlib.sha256(b"".join(data)).hexdigest().encode()
            assert forward.interrupt() == 0
        l.run("stop", "web-ws")


def has_jupyter():
    return os.path.exists("/usr/bin/jupyter-server") and subprocess.run(
        ["/usr/bin/python3", "-c", "import ipykernel"], stderr=subprocess.DEVNULL,
        check=False).returncode == 0


def test_a_notebook_through_forward(l):
    if not has_jupyter():
        raise Skipped("Debian's jupyter-server and python3-ipykernel are not installed")
    with ssh_server(l) as (port, folder, _):
        there, token = free_port(), uuid.uuid4().hex
        work = launch(l, "notebook", "sh", "-c",
                      "HOME=$PWD exec /usr/bin/jupyter-server --no-browser --allow-root "
                      "--ip=127.0.0.1 --port=%d --ServerApp.port_retries=0 "
                      "--ServerApp.token=%s > server.log 2>&1" % (there, token),
                      where=node(l, port, folder))
        log = os.path.join(work, "server.log")
        eventually(lambda: os.path.exists(log) and "is running at" in read(log), "jupyter runs")
        with Forward(l, "notebook", str(there)) as forward:
            here = forward.port()

            def ask(path, data=None, method=None):
                request = urllib.request.Request(
                    "http://127.0.0.1:%d/api/%s" % (here, path), data=data, method=method,
                    headers={"Authorization": "token " + token, "Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=300) as reply:
                    return json.loads(reply.read() or b"null")

            kernel = ask("kernels", json.dumps({"name": "python3"}).encode())["id"]
            with WebSocket(here, "/api/kernels/%s/channels?token=%s" % (kernel, token)) as channels:
                session = uuid.uuid4().hex

                def run(code):
                    """Runs code in the kernel; returns what it printed and its result."""
                    message = uuid.uuid4().hex
                    channels.send(json.dumps({
                        "header": {"msg_id": message, "username": "ada", "session": session,
                                   "msg_type": "execute_request", "version": "5.3"},
                        "parent_header": {}, "metadata": {}, "channel": "shell",
                        "content": {"code": code, "silent": False, "store_history": True,
                                    "user_expressions": {}, "allow_stdin": False}}).encode())
                    printed, result = "", None
                    while True:
                        reply = json.loads(channels.receive())
                        if reply["parent_header"].get("msg_id") != message:
                            continue
                        if reply["msg_type"] == "stream":
                            printed += reply["content"]["text"]
                        if reply["msg_type"] == "execute_result":
                            result = reply["content"]["data"]["text/plain"]
                        if reply["msg_type"] == "status" and \
                                reply["content"]["execution_state"] == "idle":
                            return printed, result

                assert run("6 * 7") == ("", "42")
                assert run("import os; os.environ['GPUCTL_RUN_ID'] != ''") == ("", "True")
                printed, _ = run("print('x' * 1000000)")
                assert printed == "x" * 1000000 + "\n", len(printed)
                printed, _ = run("import time\nfor i in range(5):\n    print(i, flush=True)\n"
                                 "    time.sleep(0.2)")
                assert printed == "0\n1\n2\n3\n4\n", printed
            # The notebook's files are the job's.
            ask("contents/a.txt", json.dumps({"type": "file", "format": "text",
                                              "content": "text\n"}).encode(), "PUT")
            assert read(os.path.join(work, "a.txt")) == "text\n"
            ask("kernels/" + kernel, method="DELETE")
            assert forward.interrupt() == 0
        l.run("stop", "notebook")


def socks_connect(port, host, to):
    """Connects by SOCKS5, by name, as an editor's helper does."""
    peer = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
    peer.sendall(b"\x05\x01\x00")
    assert peer.recv(2) == b"\x05\x00"
    peer.sendall(b"\x05\x01\x00\x03" + bytes([len(host)]) + host.encode() + struct.pack("!H", to))
    answer = peer.recv(10)
    assert answer[1] == 0, answer
    return peer


def test_what_an_editor_does(l):
    """An editor for other machines runs `ssh -T -D PORT HOST bash` and sends a script by stdin, which
    installs a server there and starts it; then it talks to that through the dynamic forward, and
    copies by scp or sftp."""
    with ssh_server(l, "-o", "Subsystem=sftp internal-sftp") as (port, folder, _):
        launch(l, "editor", "sleep", "600", where=node(l, port, folder))
        place = os.path.join(l.dir, "editor-server")
        with users_ssh(l) as flags:
            host = "gpuctl-editor"
            # What it asks of ssh before anything else.
            shown = system(l, "ssh", *flags, "-G", host).stdout.decode()
            assert "hostname " in shown and "proxycommand " in shown, shown
            dynamic = free_port()
            child = subprocess.Popen(
                ["ssh", *flags, "-T", "-D", "127.0.0.1:%d" % dynamic, "-o", "ConnectTimeout=60",
                 host, "bash"], env=l.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE)
            script = ("set -e\nuname -rsv\nmkdir -p '%s'\ncd '%s'\nbase64 -d > server.py <<'END'\n%s\n"
                      "END\n( setsid python3 server.py > log 2>&1 < /dev/null & echo $! > pid )\n"
                      "for i in $(seq 600); do test -s port && break; sleep 0.1; done\n"
                      "echo listeningOn==$(cat port)==\n" % (
                          place, place, base64.encodebytes(SERVER.encode()).decode().strip()))
            child.stdin.write(script.encode())
            child.stdin.flush()
            assert child.stdout.readline().startswith(b"Linux ")
            line = child.stdout.readline()
            assert line.startswith(b"listeningOn=="), (line, child.stderr.read())
            there = int(line.split(b"==")[1])
            try:
                for name in ("127.0.0.1", "localhost"):
                    with socks_connect(dynamic, name, there) as peer:
                        peer.sendall(b"GET /events HTTP/1.0\r\n\r\n")
                        assert b"200 OK" in peer.recv(4096)
                # The shell stays: the editor sends more to it, and its end ends the forward.
                child.stdin.write(b"echo again $((6*7))\n")
                child.stdin.flush()
                assert child.stdout.readline() == b"again 42\n"
                child.stdin.close()
                assert child.wait(timeout=DEADLINE_S) == 0
                # The server there outlives the connection, and the next one finds it.
                os.kill(int(read(os.path.join(place, "pid"))), 0)
                # A socket of Unix there, as newer servers have one.
                here = os.path.join(l.dir, "editor.sock")
                forward = subprocess.Popen(
                    ["ssh", *flags, "-N", "-o", "StreamLocalBindUnlink=yes",
                     "-L", "%s:127.0.0.1:%d" % (here, there), host], env=l.env,
                    stdin=subprocess.DEVNULL)
                with socket.socket(socket.AF_UNIX) as peer:
                    # The socket has its name before ssh listens.
                    eventually(lambda: peer.connect_ex(here) == 0, "ssh listens")
                    peer.sendall(b"GET /events HTTP/1.0\r\n\r\n")
                    assert b"200 OK" in peer.recv(4096)
                forward.terminate()
                forward.wait(timeout=DEADLINE_S)
                # One connection for many, by ssh's own master.
                control = os.path.join(l.dir, "cm")
                kept = ["-o", "ControlPath=" + control]
                system(l, "ssh", *flags, *kept, "-o", "ControlMaster=yes", "-o", "ControlPersist=60",
                       host, "true")
                assert system(l, "ssh", *flags, *kept, host, "echo x").stdout == b"x\n"
                system(l, "ssh", *flags, *kept, "-O", "exit", host)
                # A terminal of a size, with a command.
                done = system(l, "ssh", *flags, "-tt", host, "test -t 0 && echo tty")
                assert b"tty" in done.stdout, done
            finally:
                with contextlib.suppress(OSError, ValueError):
                    os.kill(int(read(os.path.join(place, "pid"))), signal.SIGKILL)
                if child.poll() is None:
                    child.kill()
                    child.wait()
        shutil.rmtree(place)
        l.run("stop", "editor")


# It needs what is not everywhere.
BY_NAME = ("test_a_notebook_through_forward",)

if __name__ == "__main__":
    run_tests(globals(), by_name=BY_NAME)

#!/usr/bin/env python3
"""P18: the first contact with a machine that has nothing of gpuctl's: the bytes on the wire until a
job has run there, and the time, with a round trip of 80 ms at 20 Mbit/s. The peer, scp -C, copies
the same programs over the same path and starts nothing."""

import os
import socket
import subprocess
import tempfile
import threading

from common import DelayProxy, Laptop, Sshd, emit, interleave, run_timed

ROUNDS = 5
DELAY_MS = 40
MBIT = 20
MB = 1e6
# The programs that a first contact sends.
SENT = ("gpuctl-agent", "gpuctl-shim", "roots.pem")


class CountingProxy:
    """Passes connections on to `port` of this machine, and counts the bytes of both directions."""

    def __init__(self, port):
        self.target = port
        self.bytes = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, source, target):
        try:
            while data := source.recv(1 << 16):
                with self.lock:
                    self.bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def take(self):
        """Returns the bytes since the last call."""
        with self.lock:
            count, self.bytes = self.bytes, 0
        return count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def first_contact(laptop, sshd, proxy, counted):
    """Launches on a node that is new each time, also for the laptop, which knows it by its port."""
    laptop.env["GPUCTL_STATE_DIR"] = os.path.join(laptop.dir, "state-%d" % len(counted))
    laptop.root = os.path.join(laptop.dir, "node-%d" % len(counted))
    laptop.env["GPUCTL_NODE_ROOT"] = laptop.root
    proxy.take()
    took = run_timed([laptop.gpuctl, "launch", "-y", "--no-workdir", *sshd.gpuctl_flags(proxy.port),
                      "--", "true"], laptop.env)
    counted.append(proxy.take())
    subprocess.run([os.path.join(laptop.programs, "gpuctl-agent"), "shutdown", "--root",
                    laptop.root], check=True, stdout=subprocess.DEVNULL)
    return took


def copy(laptop, sshd, proxy, counted):
    files = [os.path.join(laptop.programs, name) for name in SENT]
    target = tempfile.mkdtemp(dir=laptop.dir)
    # The options of the ssh command line, with scp's own name for the port.
    options = sshd.ssh(port=proxy.port)[1:-1]
    options[options.index("-p")] = "-P"
    proxy.take()
    took = run_timed(["/usr/bin/scp", "-C", "-q", *options, *filter(os.path.exists, files),
                      "%s@127.0.0.1:%s" % (sshd.user, target)], laptop.env)
    counted.append(proxy.take())
    return took


def main():
    with Laptop() as laptop, Sshd(laptop.dir) as sshd, DelayProxy(
            sshd.port, DELAY_MS, MBIT) as far, CountingProxy(far.port) as proxy:
        ours, peers = [], []
        samples = interleave(ROUNDS, {
            "gpuctl": lambda: first_contact(laptop, sshd, proxy, ours),
            "scp -C": lambda: copy(laptop, sshd, proxy, peers),
        })
        sent = max(ours) / MB
        emit("P18 first contact, bytes on the wire", sent, "MB", "scp -C of the same programs",
             max(peers) / MB, "<= 8 MB", sent <= 8, digits=3, spread=[min(ours) / MB, sent],
             rounds=ROUNDS)
        emit("P18 first contact, 80 ms at 20 Mbit/s, until a job has run", samples.median("gpuctl"),
             "s", "scp -C of the same programs, no job", samples.median("scp -C"), "<= 5 s",
             samples.median("gpuctl") <= 5, digits=2, spread=samples.spread("gpuctl"), rounds=ROUNDS)


if __name__ == "__main__":
    main()

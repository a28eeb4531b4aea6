"""A link between an ssh client and sshd that a test holds and cuts."""
import contextlib
import socket
import threading

CHUNK = 1 << 16


class HeldProxy:
    """A context manager: listens at `port` and passes bytes to and from this machine's `target`.

    Each connection brings at most `most` bytes home (None: all). Then it stands still until
    `release`, as over a slow link. Other connections go on: each has its own threads.
    """

    def __init__(self, target):
        self.target = target
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.changed = threading.Condition()
        # All of it under `changed`.
        self.most = None
        self.reachable = True
        self.brought = 0  # bytes, over all connections, from the target
        self.standing = 0  # connections that stand still
        self.open = set()  # sockets
        self.lost = set()  # sockets that get nothing any more, as after a change of networks
        self.accepted = 0
        self.threads = []

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self.cut()
        self.release()
        # This wakes accept(); a close would not.
        self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()

    def hold_after(self, most):
        with self.changed:
            self.most = most

    def lose_all(self):
        """Keeps what is open now open, and passes nothing more. New connections work."""
        with self.changed:
            self.lost |= self.open

    def held(self):
        with self.changed:
            return self.standing > 0

    def release(self):
        with self.changed:
            self.most = None
            self.changed.notify_all()

    def cut(self):
        """Makes the node unreachable: connections end, new ones at once."""
        with self.changed:
            self.reachable = False
            for sock in self.open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            self.changed.notify_all()

    def join(self):
        with self.changed:
            self.reachable = True

    def _start(self, function, *arguments):
        thread = threading.Thread(target=function, args=arguments)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with self.changed:
                if not self.reachable:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.target))
                for sock in (near, far):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.open |= {near, far}
                self.accepted += 1
            self._start(self._connection, near, far)

    def _connection(self, near, far):
        up = threading.Thread(target=self._pass, args=(near, far, lambda size: True))
        up.start()
        came = [0]

        def count(size):
            came[0] += size
            with self.changed:
                self.brought += size
                if self.most is not None and came[0] >= self.most and self.reachable:
                    self.standing += 1
                    self.changed.wait_for(
                        lambda: self.most is None or came[0] < self.most or not self.reachable)
                    self.standing -= 1
                return self.reachable

        self._pass(far, near, count)
        up.join()
        with self.changed:
            self.open -= {near, far}
        near.close()
        far.close()

    def _pass(self, source, sink, count):
        """Passes bytes until one side ends; then both end."""
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(CHUNK)
                with self.changed:
                    lost = source in self.lost
                if lost and data:
                    continue
                if not data or not count(len(data)):
                    break
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

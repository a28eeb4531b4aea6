"""The processes of a soak round: found by their command lines, and killed or stopped."""
import contextlib
import os
import signal

ROLES = ("guard", "server", "bridge", "receive", "send", "shim", "sshd", "client")


def words_of(pid):
    with contextlib.suppress(OSError):
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read().split(b"\0")[:-1]
    return []


def status_of(pid):
    """Returns a process's state letter, its parent and its time of start; None when it is gone."""
    with contextlib.suppress(OSError, IndexError):
        with open("/proc/%d/stat" % pid, "rb") as file:
            rest = file.read().rpartition(b")")[2].split()
        return rest[0].decode(), int(rest[1]), int(rest[19])
    return None


def name_of(pid):
    with contextlib.suppress(OSError):
        with open("/proc/%d/comm" % pid, "rb") as file:
            return file.read().strip()
    return b""


def every_pid():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class Processes:
    """The processes of one laptop and its node."""

    def __init__(self, root):
        self.root = root.encode()
        self.seen_sshds = {}  # pid -> time of start

    def agents(self):
        """Returns the processes of the node as pairs of role and pid."""
        found = []
        for pid in every_pid():
            words = words_of(pid)
            if len(words) < 2:
                continue
            program = os.path.basename(words[0])
            if program == b"gpuctl-shim" and words[1].startswith(self.root + b"/"):
                found.append(("shim", pid))
            elif program == b"gpuctl-agent" and self.root in words:
                found.append((words[1].decode(), pid))
        return found

    def sshds(self, clients):
        """Returns the sshd processes that the clients started and those above a bridge."""
        parents, names = {}, {}
        for pid in every_pid():
            names[pid], status = name_of(pid), status_of(pid)
            if status:
                parents[pid] = status[1]
        found = {pid for pid, parent in parents.items() if names[pid] == b"sshd" and
                 parent in clients}
        for role, pid in self.agents():
            while role in ("bridge", "receive", "send") and pid in parents and pid > 1:
                pid = parents[pid]
                # A listening sshd serves the whole round.
                if names.get(pid) == b"sshd" and b"[listener]" not in b" ".join(words_of(pid)):
                    found.add(pid)
        for pid in found:
            status = status_of(pid)
            if status:
                self.seen_sshds[pid] = status[2]
        return sorted(found)

    def left_sshds(self):
        """Returns those that were seen and still live."""
        found = []
        for pid, start in self.seen_sshds.items():
            status = status_of(pid)
            if status and status[2] == start and status[0] != "Z":
                found.append(pid)
        return found

    def of(self, role, clients):
        if role == "client":
            return list(clients)
        if role == "sshd":
            return self.sshds(clients)
        return [pid for each, pid in self.agents() if each == role]

    def end(self):
        """Kills all that is left, as long as something is."""
        for _ in range(200):
            pids = [pid for _, pid in self.agents()] + self.left_sshds()
            if not pids:
                return
            for pid in pids:
                send(pid, signal.SIGKILL)


def send(pid, number):
    """True when the process was there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False

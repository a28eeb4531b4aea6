"""The data of the sync benchmarks, and the tools that move it: gpuctl and its peers. Each writes to
a fresh place every time, and everything is on stable storage when the clock stops."""

import os
import random
import shutil
import subprocess

from common import interleave, run_timed

FORCED_GCM = ("-o", "Ciphers=aes128-gcm@openssh.com")


def make_small_files(directory, count, total_bytes, folders):
    """Makes `count` text files of about the same size in `folders` directories; the same every
    time."""
    choose = random.Random(1)
    words = ["".join(choose.choices("abcdefghijklmnopqrstuvwxyz", k=choose.randint(2, 9)))
             for _ in range(4000)]
    for number in range(count):
        folder = os.path.join(directory, "pkg%03d" % (number % folders))
        os.makedirs(folder, exist_ok=True)
        size = total_bytes // count
        text = " ".join(choose.choices(words, k=size // 6 + 2))[:size]
        with open(os.path.join(folder, "module%05d.py" % number), "w") as file:
            file.write(text)
    age(directory)


def age(directory):
    """Makes the files older than the cache of hashes, which correctly hashes younger files
    again."""
    for folder, _, names in os.walk(directory):
        for name in names:
            os.utime(os.path.join(folder, name), (1_700_000_000, 1_700_000_000))


def change_some(directory, every, stamp):
    """Rewrites each `every`-th file, in the order of a walk; returns how many."""
    changed = 0
    for folder, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            if hash_of(name) % every == 0:
                with open(os.path.join(folder, name), "r+b") as file:
                    file.write(b"%020d" % stamp)
                changed += 1
    return changed


def hash_of(name):
    return int("".join(filter(str.isdigit, name)))


def make_large_file(path, size):
    choose = random.Random(2)
    with open(path, "wb") as file:
        for _ in range(size >> 20):
            file.write(choose.randbytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def overwrite_middle(path, size, stamp):
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2 + 12345)
        file.write(random.Random(stamp).randbytes(size))


def same(ours, theirs):
    """Checks that the copy is equal byte for byte."""
    subprocess.run(["diff", "-r", "-q", ours, theirs], check=True)


def settle():
    """Writes pending data to the disk, so that the next sample does not pay for it."""
    os.sync()


class Places:
    """Fresh directories for the peers to write to, on the file system of the laptop's files."""

    def __init__(self, parent):
        self.parent = os.path.join(parent, "peers")
        os.mkdir(self.parent)
        self.count = 0

    def fresh(self):
        self.count += 1
        path = os.path.join(self.parent, "%04d" % self.count)
        os.mkdir(path)
        return path


def durable(argv, env, place):
    """Returns the seconds of the command and of the `sync -f` that makes its result durable."""
    return run_timed(argv, env) + run_timed(["/usr/bin/sync", "-f", place], env)


class Peers:
    def __init__(self, laptop, sshd, port=None):
        self.laptop, self.sshd, self.port = laptop, sshd, port

    def remote(self, path):
        return "%s@127.0.0.1:%s" % (self.sshd.user, path)

    def shell(self, options=()):
        return " ".join(self.sshd.ssh(port=self.port, options=options)[:-1])

    def rsync(self, source, target, *flags, options=()):
        argv = ["/usr/bin/rsync", "-a", *flags, "-e", self.shell(options), source, target]
        return durable(argv, self.laptop.env, self.laptop.dir)

    def scp(self, source, target, options=()):
        ssh = self.sshd.ssh(port=self.port, options=options)[1:-1]
        ssh[ssh.index("-p")] = "-P"
        return durable(["/usr/bin/scp", "-q", "-r", *ssh, source, target], self.laptop.env,
                       self.laptop.dir)


class Runs:
    """Runs of gpuctl whose jobs do nothing, for their work directories."""

    def __init__(self, laptop, flags):
        self.laptop, self.flags, self.rows = laptop, flags, []

    def fresh(self):
        """Returns a run with an empty work directory."""
        row = self.laptop.launch("sleep", "100000", flags=self.flags)
        self.rows.append(row)
        return row

    def work(self, row):
        return os.path.join(self.laptop.root, "jobs", row["job_id"], "work")

    def forget_hashes(self):
        shutil.rmtree(os.path.join(self.laptop.dir, "cache", "hashes"), ignore_errors=True)

    def sync(self, row, source):
        return run_timed([self.laptop.gpuctl, "sync", "-y", row["name"], "--workdir", source],
                         self.laptop.env)

    def cp(self, source, target):
        return run_timed([self.laptop.gpuctl, "cp", source, target], self.laptop.env)

    def end(self):
        for row in self.rows:
            self.laptop.stop(row)


class TreeRace:
    """The tree at `source`, sent by gpuctl and by its peers, each into separate places."""

    def __init__(self, laptop, sshd, source, port=None):
        self.source = source
        self.places = Places(laptop.dir)
        self.peers = Peers(laptop, sshd, port)
        self.runs = Runs(laptop, sshd.gpuctl_flags(port))
        self.row = self.place = None  # results of the last cold turns

    def ours_cold(self):
        self.row = self.runs.fresh()
        self.runs.forget_hashes()
        settle()
        took = self.runs.sync(self.row, self.source)
        self.check()
        return took

    def rsync_cold(self):
        self.place = self.places.fresh()
        settle()
        return self.rsync_again()

    def scp_cold(self):
        settle()
        return self.peers.scp(self.source, self.peers.remote(self.places.fresh()))

    def ours_again(self):
        return self.runs.sync(self.row, self.source)

    def rsync_again(self):
        return self.peers.rsync(self.source + "/", self.peers.remote(self.place))

    def check(self):
        same(self.source, self.runs.work(self.row))


def race_of_changes(rounds, change, takers):
    """Does the same as interleave, and calls `change` with a growing number before each turn. So
    each side sends the changes since its own last turn: the same places, changed once more."""
    stamp = [0]

    def changed(bring):
        def turn():
            stamp[0] += 1
            change(stamp[0])
            settle()
            return bring()
        return turn

    return interleave(rounds, {name: changed(bring) for name, bring in takers.items()})

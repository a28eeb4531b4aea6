#!/usr/bin/env python3
"""Fills the file system under every command that writes: a checkpoint, prepared data, a GGUF file,
adapters, a merged model, metrics, standard output. What is there then is whole, or not there; the
error names what could not be written; with room again the work goes on, to the same bits.

usage: full_disk_runs.py TRAINER_PROGRAM

The file systems are tmpfs in a mount namespace of this process, so that nothing is left of them.
Exits with 77 (skipped) when there is no torch, or no such namespace.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch  # noqa: F401  pylint: disable=unused-import
except ImportError:
    print("skipped: this python3 has no torch")
    sys.exit(77)

from arithmetic import Test, in_chat, sums_below
from chat_model import write_chat_model
from prepared_runs import content, newest, of_type, read_metrics

IO = 74
INSIDE = "TRAINER_FULL_DISK_INSIDE"
SETTINGS = {"train.steps": 8, "train.batch": 4, "train.micro_batch": 2, "checkpoint.every": 2,
            "checkpoint.keep_last": 2, "train.eval_every": 4}


def enter_namespace():
    """Runs this program again in a namespace of its own."""
    words = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "tmpfs", "tmpfs", directory]
        try:
            can = subprocess.run([*words, *mount], capture_output=True, check=False)
        except OSError as error:
            print(f"skipped: {error}")
            sys.exit(77)
    if can.returncode != 0:
        print("skipped: no file system can be mounted here: " + can.stderr.decode())
        sys.exit(77)
    os.execvpe(words[0], [*words, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


class Disk:
    """A file system of a size."""

    def __init__(self, path, size):
        os.mkdir(path)
        self.path = path
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)

    def resize(self, size):
        subprocess.run(["mount", "-o", f"remount,size={size}", self.path], check=True)

    def room(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, left=0):
        """Leaves `left` bytes."""
        with open(self.path + "/filler", "wb") as file:
            file.write(bytes(max(0, self.room() - left)))

    def empty(self):
        os.remove(self.path + "/filler")


def size_of(path):
    """Returns the bytes that a file or a folder has on a tmpfs."""
    if os.path.isfile(path):
        return (os.path.getsize(path) + 4095) // 4096 * 4096
    return sum(size_of(f"{path}/{name}") for name in os.listdir(path))


def digest_of(path):
    """Returns a digest of a file, or of all files in a folder."""
    digest = hashlib.sha256()
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            digest.update(name.encode() + digest_of(f"{path}/{name}"))
    else:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.digest()


def check_checkpoints(test, base, data):
    whole, _, _ = test.train("a run with room", base, data, SETTINGS)
    one = size_of(f"{whole}/{newest(whole)}")
    disk = Disk(test.directory + "/checkpoints", one * 3 // 2)
    words, _, metrics = test.words(base, data, SETTINGS)
    words[words.index("--checkpoint-dir") + 1] = disk.path + "/run"
    ended = test.run(*words, GPUCTL_METRICS=metrics)
    test.check("with room for one checkpoint, the last one fails as an error",
               ended.returncode == IO and "No space left on device" in ended.stderr and
               disk.path in ended.stderr, ended.returncode, ended.stderr)
    test.check("the good one stays, and nothing else", os.listdir(disk.path + "/run") ==
               ["step-00000002"], os.listdir(disk.path + "/run"))
    ended = test.run("inspect", disk.path + "/run/step-00000002")
    test.check("it is whole", ended.returncode == 0, ended.stderr)
    disk.resize(one * 5)
    ended = test.run(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
    test.check("with room the run goes on, to the same bits", ended.returncode == 0 and
               content(disk.path + "/run") == content(whole), ended.stderr)
    return f"{disk.path}/run/{newest(disk.path + '/run')}"


def check_results(test, base, checkpoint, adapter):
    """Each command that writes one result: there is no room, then a little less than it needs."""
    rows = test.directory + "/some.jsonl"
    commands = {
        "prepare": ["prepare", "--model", base, "--data", rows, "--show", "0", "--out"],
        "export gguf": ["export", "--model", checkpoint, "--to", "gguf", "--out"],
        "export gguf-lora": ["export", "--adapter", adapter, "--model", base, "--to", "gguf-lora",
                             "--out"],
        "export mlx": ["export", "--adapter", adapter, "--model", base, "--to", "mlx", "--out"],
        "merge": ["merge", "--model", base, "--adapter", adapter, "--out"]}
    for number, (what, words) in enumerate(commands.items()):
        free = f"{test.directory}/result{number}"
        ended = test.run(*words, free)
        test.check(f"{what}: with room", ended.returncode == 0, ended.stderr)
        needs = size_of(free)
        disk = Disk(f"{test.directory}/disk{number}", "64m")
        out = disk.path + "/result"
        for left in (0, 4096, needs // 2, needs - 4096):
            disk.fill(left)
            ended = test.run(*words, out)
            test.check(f"{what}: with {left} of {needs} bytes an error, and nothing is there",
                       ended.returncode == IO and "No space left on device" in ended.stderr and
                       disk.path in ended.stderr and os.listdir(disk.path) == ["filler"],
                       ended.returncode, ended.stderr, os.listdir(disk.path))
            disk.empty()
        ended = test.run(*words, out)
        test.check(f"{what}: with room again, the same bytes", ended.returncode == 0 and
                   digest_of(out) == digest_of(free), ended.stderr)
        if what not in ("prepare", "export gguf", "export gguf-lora"):
            continue
        disk.fill(needs // 2)
        ended = test.run(*words, out)
        test.check(f"{what}: without room for another, the old result stays",
                   ended.returncode == IO and digest_of(out) == digest_of(free) and
                   sorted(os.listdir(disk.path)) == ["filler", "result"], ended.returncode,
                   ended.stderr, os.listdir(disk.path))


def check_metrics(test, base, data):
    disk = Disk(test.directory + "/metrics", "1m")
    disk.fill(4096)
    metrics = disk.path + "/metrics"
    with open(metrics, "w", encoding="utf-8") as file:
        file.write('{"type":"filler"}\n' * 200)
    words, _, _ = test.words(base, data, {**SETTINGS, "train.steps": 40, "checkpoint.every": 20})
    ended = test.run(*words, GPUCTL_METRICS=metrics)
    test.check("without room for metrics a run ends well", ended.returncode == 0, ended.stderr)
    disk.empty()
    ended = test.run(*words, "--resume", "auto", "--set", "train.steps=44", GPUCTL_METRICS=metrics)
    lines, torn = [], 0
    with open(metrics, encoding="utf-8") as file:
        for line in file:
            try:
                lines.append(json.loads(line))
            except ValueError:
                torn += 1
    test.check("lines after a full disk are whole", ended.returncode == 0 and torn <= 1 and
               [line["step"] for line in of_type(lines, "step")][-4:] == [41, 42, 43, 44],
               ended.stderr, torn, lines[-6:])


def check_standard_output(test, base, data, checkpoint):
    """What is printed is the result of some commands."""
    for words in (["eval", "--model", base, "--data", data, "--context", "64", "--as", "json"],
                  ["generate", "--model", base, "--prompt-ids", "1", "--tokens", "2"],
                  ["inspect", checkpoint], ["--help"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ended = subprocess.run([test.program, *words], stdout=full, stderr=subprocess.PIPE,
                                   check=False)
        test.check(f"{words[0]} without room for what it prints is an error",
                   ended.returncode == IO and b"standard output" in ended.stderr,
                   ended.returncode, ended.stderr)
    words, checkpoints, _ = test.words(base, data, SETTINGS)
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run([test.program, *words], stdout=full, stderr=subprocess.PIPE,
                               check=False)
    test.check("a run needs none", ended.returncode == 0 and newest(checkpoints) ==
               "step-00000008", ended.stderr)


def check_directories(test, base, data):
    """Places that take no checkpoints are found out before a step is made."""
    os.symlink(base + "/nothing", base + "-link")
    for what, place in (("a file", base + "/config.json"), ("/proc", "/proc/run"),
                        ("below a file", base + "/config.json/run"), ("a link to nothing", base + "-link")):
        words, _, metrics = test.words(base, data, SETTINGS)
        words[words.index("--checkpoint-dir") + 1] = place
        ended = test.run(*words, GPUCTL_METRICS=metrics)
        test.check(f"checkpoints to {what}: refused before the first step",
                   ended.returncode == IO and place in ended.stderr and not read_metrics(metrics) and
                   ("is no directory" in ended.stderr) == (what != "/proc"), ended.returncode, ended.stderr)
    disk = Disk(test.directory + "/read-only", "1m")
    os.mkdir(disk.path + "/run")
    subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
    words, _, metrics = test.words(base, data, SETTINGS)
    words[words.index("--checkpoint-dir") + 1] = disk.path + "/run"
    ended = test.run(*words, GPUCTL_METRICS=metrics)
    test.check("checkpoints to a read-only file system: refused before the first step",
               ended.returncode == IO and "Read-only file system" in ended.stderr and
               disk.path in ended.stderr and not read_metrics(metrics), ended.returncode,
               ended.stderr)


def main():
    if INSIDE not in os.environ:
        enter_namespace()
    learned, asked = sums_below(50)
    with tempfile.TemporaryDirectory() as directory:
        # The files of the test itself go with its namespace, too.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
        try:
            check_all(Test(sys.argv[1], directory), learned, asked)
        finally:
            subprocess.run(["umount", "--recursive", directory], check=True)


def check_all(test, learned, asked):
    base = test.directory + "/base"
    write_chat_model(base, layers=1, d=32, heads=2, kv_heads=1, ffn=64)
    data = test.prepare("some", base, in_chat(learned[:100]), in_chat(asked[:10]))
    checkpoint = check_checkpoints(test, base, data)
    checkpoints, _, _ = test.train("LoRA", base, data, {**SETTINGS, "lora.rank": 4})
    check_results(test, base, checkpoint, f"{checkpoints}/{newest(checkpoints)}")
    check_metrics(test, base, data)
    check_standard_output(test, base, data, checkpoint)
    check_directories(test, base, data)
    print(f"{test.failed} failed")
    if test.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

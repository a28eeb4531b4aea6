#!/usr/bin/env python3
"""Machines of another processor than this laptop's programs are for: what is said, what is rented,
and that the commands in hints work when they are typed.

  platforms.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

The machines say that they are arm64, by a `uname` of the test's or by their market. Programs for
arm64 are made out of this machine's: only their headers differ.
"""
import contextlib
import functools
import http.server
import io
import os
import pwd
import shlex
import struct
import subprocess
import tarfile
import threading

from rent_world import run_tests
from runs import ssh_server

ARM64 = ["--provider", "lambda", "--gpu", "GH200"]
ELF_MACHINE_AT, AARCH64 = 18, 183


def zstd(data):
    """Returns a zstd frame with the data as it is (RFC 8878)."""
    frame = b"\x28\xb5\x2f\xfd" + b"\x00\x38"
    size = 1 << 17
    for at in range(0, len(data), size):
        block = data[at:at + size]
        last = at + size >= len(data)
        frame += struct.pack("<I", int(last) | len(block) << 3)[:3] + block
    return frame


def programs_for_arm64(w):
    """Returns the files of a platform's folder, by name."""
    files = {}
    for name in ("gpuctl-agent", "gpuctl-shim", "gpuctl-cuda-check"):
        with open(os.path.join(os.path.dirname(w.gpuctl), name), "rb") as file:
            content = bytearray(file.read())
        content[ELF_MACHINE_AT:ELF_MACHINE_AT + 2] = struct.pack("<H", AARCH64)
        files[name] = bytes(content)
    return files


def archive(files):
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo("linux-aarch64/" + name)
            entry.size, entry.mode, entry.mtime = len(content), 0o755, 1_790_000_000
            tar.addfile(entry, io.BytesIO(content))
    return zstd(text.getvalue())


@contextlib.contextmanager
def release(w, files):
    """Serves an archive as a release on this computer. Yields the address."""
    folder = os.path.join(w.dir, "release")
    os.makedirs(folder, exist_ok=True)
    version = w.run("--version").stdout.decode().split()[1]
    with open("%s/gpuctl-node-%s-linux-aarch64.tar.zst" % (folder, version), "wb") as file:
        file.write(archive(files))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "http://127.0.0.1:%d" % server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def hint_of(done):
    (hint,) = [line for line in done.stderr.decode().splitlines() if line.startswith("HINT: ")]
    return hint[len("HINT: "):]


def type_hint(w, done, **env):
    """Runs the command of a hint as a user would."""
    words = shlex.split(hint_of(done))
    assert words[0] == "gpuctl", words
    return w.run(*words[1:], **env)


@contextlib.contextmanager
def machine_that_says(w, answer):
    """Yields the flags for a machine by ssh whose uname says this, and its root."""
    fake = os.path.join(w.dir, "fake")
    os.makedirs(fake, exist_ok=True)
    with open(fake + "/uname", "w") as file:
        file.write("#!/bin/sh\necho '%s'\n" % answer)
    os.chmod(file.name, 0o755)
    user = pwd.getpwuid(os.geteuid()).pw_name
    path = "SetEnv=PATH=%s:/usr/local/bin:/usr/bin:/bin" % fake
    with ssh_server(w, "-o", path) as (port, folder, _):
        yield ["--host", "%s@127.0.0.1:%d" % (user, port), "-i", os.path.join(folder, "user")]


def test_a_machine_without_programs_is_told_with_the_command_that_brings_them(w):
    root = os.path.join(w.dir, "node")
    with machine_that_says(w, "Linux aarch64") as host, release(w, programs_for_arm64(w)) as url:
        for verb in (["launch", "-y", "--no-workdir", *host, "--", "true"],):
            done = w.run(*verb, code=2, GPUCTL_NODE_ROOT=root, GPUCTL_NODE_URL=url)
            said = done.stderr.decode()
            assert ("it is Linux aarch64, and there are node programs for linux-x86_64 only"
                    in said), said
            assert hint_of(done) == "gpuctl node fetch linux-aarch64", said
            assert not os.path.exists(root)
        doctor = w.run("doctor", *host, code=1, GPUCTL_NODE_ROOT=root, GPUCTL_NODE_URL=url)
        assert b"      HINT: gpuctl node fetch linux-aarch64\n" in doctor.stdout, doctor
        assert not os.path.exists(root)
        fetched = type_hint(w, done, GPUCTL_NODE_URL=url)
        assert b"linux-aarch64: " in fetched.stderr, fetched
        # The programs are sent now, and this machine cannot run them. Nothing is left of the try.
        done = w.run(*verb, code=None, GPUCTL_NODE_ROOT=root, GPUCTL_NODE_URL=url)
        assert done.returncode == 1 and b"run the agent on the node (Linux aarch64)" in done.stderr, done
        assert os.listdir(root + "/bin") == [], os.listdir(root + "/bin")


def test_a_machine_that_nothing_serves(w):
    root = os.path.join(w.dir, "node of a router")
    with machine_that_says(w, "Linux armv7l") as host:
        done = w.run("launch", "-y", "--no-workdir", *host, "--", "true", code=2,
                     GPUCTL_NODE_ROOT=root)
        assert b"its processor is armv7l; gpuctl has programs for x86-64 and arm64 Linux" in done.stderr
        assert not os.path.exists(root)


def test_nothing_is_rented_without_programs_for_it(w):
    with release(w, programs_for_arm64(w)) as url:
        for flags in (["-y"], ["--dry-run"]):
            done = w.run("launch", *flags, "--no-workdir", *ARM64, "--", "true", code=2,
                         GPUCTL_NODE_URL=url)
            assert b"its processor is arm64, and there are node programs for linux-x86_64 only" in done.stderr
            assert hint_of(done) == "gpuctl node fetch linux-aarch64", done
        assert w.creates() == [] and w.leases() == []
        offers = w.json("offers", *ARM64, "--explain", code=2)
        assert offers["offers"] == [], offers
        assert "its processor is arm64" in offers["left_out"][0]["left_out_because"], offers
        type_hint(w, done, GPUCTL_NODE_URL=url)
        assert len(w.json("offers", *ARM64)["offers"]) == 1
        # The simulator's machine runs here, so it gets the programs for this processor.
        done = w.rent(*ARM64, "--", "echo", "there")
        assert done.stdout == b"there\n" and len(w.creates()) == 1, done
        assert b"CUDA" in done.stderr and b"CUDA was not tried" not in done.stderr, done
        # The folder is removed: nothing more is rented, also for a plan with other machines.
        w.run("down", "--all", "-y")
        programs = {p["platform"]: p for p in w.json("node")["programs"]}
        os.rename(programs["linux-aarch64"]["dir"], w.dir + "/removed")
        w.run("launch", "-y", "--no-workdir", *ARM64, "--", "true", code=2)
        assert len(w.creates()) == 1 and w.alive() == []


def test_programs_in_the_wrong_folder_are_named(w):
    folder = os.path.join(w.dir, "given")
    os.makedirs(folder + "/linux-aarch64")
    for name in ("gpuctl-agent", "gpuctl-shim"):
        with open(os.path.join(os.path.dirname(w.gpuctl), name), "rb") as file:
            content = file.read()
        with open("%s/linux-aarch64/%s" % (folder, name), "wb") as file:
            file.write(content)
        os.chmod(file.name, 0o755)
    done = w.run("launch", "-y", "--no-workdir", *ARM64, "--", "true", code=2, GPUCTL_NODE_DIR=folder)
    assert w.creates() == [], done
    wrong = folder + "/linux-aarch64/gpuctl-agent is a program for linux-x86_64, not for linux-aarch64"
    assert wrong in w.json("node", GPUCTL_NODE_DIR=folder)["refused"]
    checks = w.json("doctor", code=1, GPUCTL_NODE_DIR=folder)["checks"]
    (told,) = [c for c in checks if c["name"] == "node programs" and not c["ok"]]
    assert told["found"] == wrong, told


def test_node_lists_and_fetches(w):
    version = w.run("--version").stdout.decode().split()[1]
    listed = w.json("node")
    (own,) = listed["programs"]
    agent = os.path.dirname(w.gpuctl) + "/gpuctl-agent"
    level = int(subprocess.check_output([agent, "api-level"]))
    assert (own["platform"], own["version"], own["api_level"]) == (
        "linux-x86_64", version, level), own
    assert own["matches_manifest"] is None and own["dir"] == os.path.dirname(w.gpuctl), own
    assert listed["missing"] == ["linux-aarch64"] and listed["refused"] == [], listed
    done = w.run("node")
    assert b"PLATFORM" in done.stdout and b"own build" in done.stdout, done
    assert b"there are no programs for linux-aarch64" in done.stderr, done
    file = os.path.join(w.work, "an archive")
    with open(file, "wb") as out:
        out.write(archive(programs_for_arm64(w)))
    (fetched,) = w.json("node", "fetch", "--from", file)["fetched"]
    assert fetched["platform"] == "linux-aarch64" and not fetched["verified"], fetched
    assert fetched["dir"] == "%s/node/%s/linux-aarch64" % (w.env["GPUCTL_CACHE_DIR"], version)
    for name, content in programs_for_arm64(w).items():
        with open(os.path.join(fetched["dir"], name), "rb") as there:
            assert there.read() == content, name
        assert os.access(os.path.join(fetched["dir"], name), os.X_OK), name
    assert [p["platform"] for p in w.json("node")["programs"]] == ["linux-x86_64", "linux-aarch64"]
    (check,) = [c for c in w.json("doctor", code=None)["checks"] if c["name"] == "node programs"]
    assert check["ok"] and check["found"].startswith("linux-x86_64, linux-aarch64 ("), check
    # An archive that is none changes nothing.
    with open(file, "wb") as out:
        out.write(b"something else")
    w.run("node", "fetch", "linux-aarch64", "--from", file, code=118)
    w.run("node", "fetch", "linux-arm64", code=2)
    w.run("node", "fetch", "linux-aarch64", "--from", "http://example.com/a", code=2)
    assert len(w.json("node")["programs"]) == 2


if __name__ == "__main__":
    run_tests(globals())

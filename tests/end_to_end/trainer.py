#!/usr/bin/env python3
"""trainer: on other machines: at each simulated market, over ssh, and where nothing is installed.

  trainer.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

$GPUCTL_OTHER_ROOT: the root of another Debian release, as for chroot_test.
"""
import contextlib
import glob
import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time

from runs import ssh_server
from rent_world import SERVICES, eventually, run_tests, write

STEPS = 4
SENDING = b"sending the trainer ("


def settings(**train):
    return {
        "model": {"layers": 1, "d_model": 16, "heads": 2, "kv_heads": 2, "ffn": 32, "context": 16},
        "data": {"paths": ["texts"]},
        "train": {"steps": STEPS, "batch": 4, "threads": 1, "eval_every": STEPS, **train},
        "checkpoint": {"every": 2},
    }


def project(w, build="kit", **train):
    """Makes a work directory with texts and a run file. Returns the run file's path."""
    home = os.path.join(w.dir, "project")
    write(home + "/texts/a.txt", "the quick brown fox jumps over the lazy dog\n" * 200)
    # JSON is YAML. The pattern matches everything, but the trainer is not a result.
    write(home + "/run.yaml", json.dumps({"trainer": {"build": build, **settings(**train)},
                                          "artifacts": ["**/*"]}))
    return home + "/run.yaml"


def check_checkpoint(directory):
    """Checks a checkpoint against the trainer's own manifest."""
    with open(directory + "/manifest.json", encoding="utf-8") as file:
        files = json.load(file)["files"]
    assert "model.safetensors" in [f["path"] for f in files], files
    for entry in files:
        with open(os.path.join(directory, entry["path"]), "rb") as file:
            content = file.read()
        assert len(content) == entry["size"], entry
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry


def check_trained(w, name):
    """Expects metrics, and the newest checkpoint whole at home without any file of the kit."""
    run = next(r for r in w.json("ps", "-a")["runs"] if r["name"] == name)
    assert (run["status"], run["step"]) == ("succeeded", STEPS) and run["loss"] > 0, run
    pulled = w.json("pull", name)
    (checkpoint,) = pulled["checkpoints"]
    assert checkpoint["verified"] and checkpoint["path"].endswith("step-00000004"), pulled
    check_checkpoint(os.path.join(w.work, checkpoint["path"]))
    paths = sorted(f["path"] for f in pulled["files"])
    assert paths == ["work/.gpuctl/trainer.json", "work/run.yaml", "work/texts/a.txt"], paths


def train(w, run_file, name, *flags):
    begin = time.monotonic()
    done = w.run("launch", run_file, "-y", "--name", name, *flags)
    print("       %s: %.1f s, sent: %s" % (name, time.monotonic() - begin, SENDING in done.stderr))
    assert b"held-out loss" in done.stdout, done
    return done


def test_trains_at_each_market(w):
    run_file = project(w, device="cpu")
    plan = w.json("launch", run_file, "--dry-run")["plan"]
    assert plan["trainer"]["files"] > 5 and plan["trainer"]["bytes"] > 10_000_000, plan
    assert (plan["trainer"]["build"], plan["trainer"]["compiled_there"]) == ("kit", False), plan
    assert w.run("launch", run_file, "--dry-run").stdout.count(b"\ntrainer   /") == 1
    for service in SERVICES:
        done = train(w, run_file, "first-%s-1" % service, "--provider", service)
        assert done.stderr.count(SENDING) == 1, done
        check_trained(w, "first-%s-1" % service)
        if service != "runpod":
            w.run("down", "-y", "first-%s-1" % service)
            continue
        # The machine has it now.
        done = train(w, run_file, "second-%s-1" % service, "--provider", service)
        assert b"rented and idle" in done.stderr and SENDING not in done.stderr, done
        check_trained(w, "second-%s-1" % service)
        w.run("down", "-y", "second-%s-1" % service)
    assert w.alive() == [], w.alive()
    assert {book["service"] for book in w.books()} == set(SERVICES), w.books()


def test_wrong_settings_are_found_before_anything_is_rented(w):
    run_file = project(w, devcie="cpu")
    for dry in ([], ["--dry-run"]):
        done = w.run("launch", run_file, "-y", "--provider", "vast", *dry, code=2)
        assert b'unknown key "train.devcie"; did you mean "device"?' in done.stderr, done
        assert b"run.yaml:1:" in done.stderr, done
    run_file = project(w, device="cpu")
    for option, complaint in (("train.devcie=cpu", b"train.devcie"), ("train.steps=0", b"outside 1"),
                              ("model.heads=3", b"model.heads must divide"),
                              ("data.paths=[]", b"data.paths is empty")):
        done = w.run("launch", run_file, "-y", "--provider", "vast", "--trainer", option, code=2)
        assert complaint in done.stderr, done
    assert w.creates() == [] and w.json("ps", "-a")["runs"] == []


def test_gpus_are_not_left_idle(w):
    run_file = project(w)
    done = w.run("launch", run_file, "-y", "--provider", "vast", code=2)
    assert b"built without CUDA" in done.stderr and b"train.device=cpu" in done.stderr, done
    # The same holds for a device that it cannot have.
    w.run("launch", run_file, "-y", "--gpu", "RTX-4090", "--trainer", "train.device=cuda", code=2)
    w.run("launch", run_file, "--dry-run", "--provider", "vast", code=2)
    assert w.creates() == [] and w.books() == []
    w.run("launch", run_file, "--dry-run", "--provider", "vast", "--trainer", "train.device=cpu")


def compiler():
    """Flags for jobs that compile the trainer: by ccache where it is, as trainer_build_test does."""
    if not shutil.which("ccache"):
        return []
    cache = subprocess.check_output(["ccache", "-k", "cache_dir"], text=True).strip()
    return ["--env", "CXX=ccache g++", "--env", "CCACHE_DIR=" + cache]


@contextlib.contextmanager
def ssh_machine(w):
    """A machine of the user's own. Yields the flags that name it."""
    w.env["GPUCTL_NODE_ROOT"] = w.root
    user = pwd.getpwuid(os.geteuid()).pw_name
    with ssh_server(w) as (port, folder, _):
        try:
            yield ["--host", "%s@127.0.0.1:%d" % (user, port), "-i", os.path.join(folder, "user")]
        finally:
            for pid in list(w.node_pids()):
                os.kill(pid, 9)


def test_the_node_compiles_it_once(w):
    """Over ssh, then again, then as a run on this machine with the same root."""
    run_file = project(w, build="node", device="cpu")
    flags = compiler()
    with ssh_machine(w) as host:
        done = train(w, run_file, "first-1", *host, *flags)
        assert b" compiles the trainer, once: torch " in done.stderr, done
        assert b" 1 of " in done.stdout and b"built the trainer for torch " in done.stdout, done
        check_trained(w, "first-1")
        (program,) = glob.glob(w.root + "/trainer/*/gpuctl-trainer")
        # The second time and, as nothing else is said, by choice: torch and compiler are there.
        run_file = project(w, build="auto", device="cpu")
        done = train(w, run_file, "second-1", *host, *flags)
        assert b" 1 of " not in done.stdout, done
        assert b"was built here for torch" in done.stdout, done
        check_trained(w, "second-1")
        # Without a torch the kit is sent, and it is said why.
        done = train(w, run_file, "third-1", *host, *flags, "--env", "GPUCTL_TORCH=/nowhere")
        assert SENDING in done.stderr and b"is not compiled on " in done.stderr, done
        assert b"GPUCTL_TORCH=/nowhere is no Python with torch" in done.stderr, done
    run_file = project(w, build="node", device="cpu")
    done = train(w, run_file, "local-1", "--provider", "local", *flags)
    assert b" 1 of " not in done.stdout and b"was built here for torch" in done.stdout, done
    assert glob.glob(w.root + "/trainer/*/gpuctl-trainer") == [program]


def test_what_a_node_lacks_is_said_before_the_job(w):
    run_file = project(w, build="node", device="cpu")
    with ssh_machine(w) as host:
        for env, cause, fix in (
                ("GPUCTL_TORCH=/nowhere", b"is no Python with torch", b"correct GPUCTL_TORCH"),
                ("CXX=/nowhere/g++", b"but there is no /nowhere/g++", b"choose an image with a")):
            done = w.run("launch", run_file, "-y", *host, "--env", env, code=2)
            assert cause in done.stderr and b"HINT: " + fix in done.stderr, done
            assert b"or use trainer.build: kit" in done.stderr, done
        assert w.json("ps", "-a")["runs"] == []
    # What is rented is given back.
    done = w.run("launch", run_file, "-y", "--provider", "vast", "--env", "GPUCTL_TORCH=/nowhere",
                 code=2)
    assert b"is no Python with torch" in done.stderr and b"ending it" in done.stderr, done
    assert w.alive() == [] and len(w.creates()) == 1, w.books()
    # So is a machine with a GPU that its torch cannot use, when the kit cannot either.
    done = w.run("launch", project(w, build="auto"), "-y", "--provider", "vast", code=2)
    assert b"this torch has no CUDA" in done.stderr and b"built without CUDA" in done.stderr, done
    assert w.alive() == [], w.books()


def test_a_kit_of_another_processor_is_not_sent(w):
    """An installed gpuctl has a kit whose program says that it is for arm64."""
    built = os.path.dirname(w.gpuctl)
    prefix = os.path.join(w.dir, "prefix")
    kit = prefix + "/share/gpuctl/trainer-kit"
    for folder in (prefix + "/bin", prefix + "/libexec/gpuctl", kit + "/lib"):
        os.makedirs(folder)
    shutil.copy(w.gpuctl, prefix + "/bin/gpuctl")
    for name in ("gpuctl-agent", "gpuctl-shim", "trainer-src"):
        os.symlink(os.path.join(built, name), prefix + "/libexec/gpuctl/" + name)
    with open(built + "/gpuctl-trainer", "rb") as file:
        program = bytearray(file.read())
    program[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    with open(kit + "/gpuctl-trainer", "wb") as file:
        file.write(program)
    loader = re.search(rb"/(ld-linux[-\w.]*)\0", bytes(program)).group(1).decode()
    write(kit + "/lib/" + loader, "")
    w.gpuctl = prefix + "/bin/gpuctl"
    with ssh_machine(w) as host:
        done = w.run("launch", project(w, device="cpu"), "-y", *host, code=2)
        assert b"the trainer's kit is for linux-aarch64" in done.stderr, done
        assert b"HINT: use trainer.build: node" in done.stderr and w.json("ps", "-a")["runs"] == []
        train(w, project(w, build="auto", device="cpu"), "there-1", *host, *compiler())
        check_trained(w, "there-1")


def test_several_gpus_for_one_process_are_refused(w):
    for build in ("auto", "node", "kit"):
        run_file = project(w, build=build, device="cuda")
        done = w.run("launch", run_file, "-y", "--gpu", "RTX-4090:2", code=2)
        assert b"of RTX-4090:2 the other 1 would bill and do nothing" in done.stderr, done
        assert b"HINT: processes: gpus trains on all of them; or ask for fewer" in done.stderr, done
    assert w.creates() == [] and w.books() == []


def test_trains_over_ssh_and_takes_a_sync(w):
    run_file = project(w)
    with ssh_machine(w) as host:
        done = train(w, run_file, "own-1", *host, "--trainer", "train.device=cpu")
        assert done.stderr.count(SENDING) == 1, done
        check_trained(w, "own-1")
        run_file = project(w, steps=1_000_000, device="cpu")
        done = w.run("launch", run_file, "-d", "-y", "--name", "long-1", *host)
        assert SENDING not in done.stderr, done
        write(os.path.dirname(run_file) + "/more.txt", "another file\n")
        done = w.run("sync", "long-1")
        assert b"trainer-kit" not in done.stdout + done.stderr, done
        (work,) = [path for path in jobs(w) if os.path.exists(path + "/more.txt")]
        assert os.path.exists(work + "/.gpuctl/trainer-kit/gpuctl-trainer")
        # Jobs do not write to files that they share.
        assert os.stat(work + "/.gpuctl/trainer-kit/gpuctl-trainer").st_mode & 0o222 == 0
        eventually(lambda: steps_done(os.path.dirname(work)) > 1, "it trains on")
        w.run("stop", "long-1")


def jobs(w):
    folder = os.path.join(w.root, "jobs")
    return [os.path.join(folder, name, "work") for name in os.listdir(folder)]


def steps_done(job):
    with open(job + "/metrics.jsonl", encoding="utf-8") as file:
        return file.read().count('"type":"step"')


def test_a_kit_trains_in_a_bare_root(w):
    """In an empty root and in that of another release, with only /proc and /sys added."""
    kit = os.path.join(w.dir, "kit")
    w.run("debug", "trainer-kit", kit)
    w.run("debug", "trainer-kit", kit, code=2)
    (loader,) = [name for name in os.listdir(kit + "/lib") if name.startswith("ld-")]
    write(kit + "/texts/a.txt", "the quick brown fox jumps over the lazy dog\n" * 200)
    with open(kit + "/run.json", "w", encoding="utf-8") as file:
        json.dump({**settings(), "data": {"paths": ["/mnt/texts"]},
                   "checkpoint": {"dir": "/mnt/ckpt"}}, file)
    empty = os.path.join(w.dir, "empty")
    for name in ("mnt", "proc", "sys"):
        os.makedirs(os.path.join(empty, name))
    roots = [empty]
    other = os.environ.get("GPUCTL_OTHER_ROOT") or "off"
    if other == "off" or not os.path.exists(other + "/etc/debian_version"):
        print("NOT TESTED: another release; GPUCTL_OTHER_ROOT names none")
    else:
        roots.append(other)
    for root in roots:
        script = ("mount --bind %s %s/mnt && mount --rbind /proc %s/proc && "
                  "mount --rbind /sys %s/sys && exec env -i /usr/sbin/chroot %s \"$@\"" %
                  (kit, root, root, root, root))
        user = [] if os.geteuid() == 0 else ["-r"]
        done = subprocess.run(
            ["unshare", "-m", *user, "sh", "-c", script, "sh", "/mnt/lib/" + loader,
             "--library-path", "/mnt/lib", "/mnt/gpuctl-trainer", "train", "--config",
             "/mnt/run.json"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
            check=False)
        assert done.returncode == 0, done.stdout.decode()
        assert re.search(rb"finished at step 4 .*held-out loss \d", done.stdout), done.stdout
        check_checkpoint(kit + "/ckpt/step-00000004")
        shutil.rmtree(kit + "/ckpt")


def test_doctor_tells_what_would_be_sent(w):
    checks = {c["name"]: c for c in w.json("doctor", code=None)["checks"]}
    check = checks["trainer for other machines"]
    assert check["ok"] and "files, for the CPU only" in check["found"], check
    assert check["found"].startswith("compiled there, from /"), check


def use_memory():
    """Uses memory as disk where there is room, because two gigabytes are written and synced."""
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize > 6 << 30 and os.access("/dev/shm", os.W_OK):
            tempfile.tempdir = os.environ["TMPDIR"] = "/dev/shm"


if __name__ == "__main__":
    use_memory()
    run_tests(globals())

#!/usr/bin/env python3
"""What one does with a model beside launching runs: preflight, train, eval, generate, merge, export
and inspect, by folders and by the names of runs.

  train_verbs.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import json
import os
import re
import shutil
import signal
import subprocess

from fine_tune import launch, project, trainer, write_model
from rent_world import run_tests, write
from runs import Terminal
from trainer import ssh_machine, use_memory

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHAT = ["--chat", "1 and 2", "--temperature", "0", "--tokens", "8"]


def run_file_of(w, **sections):
    """As project. What is launched here must not use the home of the user who tests."""
    w.env["GPUCTL_NODE_ROOT"] = w.root
    return project(w, **sections)


def pulled_run(w, name="tuned-1", **sections):
    """Launches, and brings the checkpoint home. Returns the project's folder and the checkpoint's."""
    run_file = run_file_of(w, **sections)
    launch(w, run_file, name, "--provider", "local")
    (checkpoint,) = w.json("pull", name)["checkpoints"]
    return os.path.dirname(run_file), os.path.join(w.work, checkpoint["path"])


def test_the_file_of_a_preflight_is_launched(w):
    run_file = run_file_of(w)
    with open(run_file, encoding="utf-8") as file:
        spec = json.load(file)
    write(run_file, json.dumps({**spec, "resources": {
        "gpu": ["RTX3070", "A100-80GB:1"]}}))
    done = w.run("preflight", run_file)
    for part in ("ok  the model loads", "ok  the batches are valid", "ok  the loss falls",
                 "ok  a checkpoint saves", "ok  it generates", "gpu     A100, 80 GB: about",
                 "verdict this machine is enough"):
        assert part.encode() in done.stdout, (part, done)
    assert b"preparing the rows of rows.jsonl" in done.stderr, done
    assert b"preflight has no figures of RTX3070" in done.stderr, done
    assert ("HINT: gpuctl launch %s runs the whole" % run_file).encode() in done.stderr, done
    report = w.json("preflight", run_file)
    assert report["gpu"]["name"] == "A100" and report["verdict"] == "here", report
    assert report["gpu"]["micro_batch"] * report["gpu"]["accumulation"] >= 4, report
    assert report["loss"]["last"] < report["loss"]["first"], report
    assert w.json("preflight", run_file, "--gpu", "L4")["gpu"]["name"] == "L4"
    # Each process has a GPU of its own.
    write(run_file, json.dumps({**spec, "processes": "gpus", "resources": {"gpu": "A100-80GB:2"}}))
    assert w.json("preflight", run_file)["gpu"]["processes"] == 2
    assert w.json("preflight", run_file, "--processes", "3")["gpu"]["processes"] == 3
    for word, code in (("gpus", 2), ("512", 2)):  # the last: fewer windows than that
        assert b"processes" in w.run("preflight", run_file, "--processes", word, code=code).stderr
    # Nothing ran and nothing is listed; the rows are there for the launch.
    assert w.json("ps", "-a")["runs"] == [] and w.creates() == []
    write(run_file, json.dumps(spec))
    # The GPU of the defaults for launches counts.
    said = w.run("preflight", run_file, GPUCTL_GPU="L4").stderr
    assert b"resources.gpu L4, from GPUCTL_GPU" in said, said
    assert w.json("preflight", run_file, GPUCTL_GPU="L4")["gpu"]["name"] == "L4"
    done = launch(w, run_file, "tuned-1", "--provider", "local")
    assert b"preparing" not in done.stderr, done
    # Whatever would fail there fails here.
    for words, says, code in (
            (["--set", "model.init=missing"], b"there is no missing", 2),
            (["--set", "train.stepz=1"], b"did you mean", 2),
            (["--gpu", "H1000"], b"--gpu H1000 is none of", 2),
            (["--set", "optimizer.lr=1e30"], b"preflight: ", 1),
            (["--set", "train.batch=1000000000000"], b"", 2)):
        done = w.run("preflight", run_file, *words, code=code)
        assert done.stderr.startswith(b"gpuctl: ") and says in done.stderr, done
        error = w.json("preflight", run_file, *words, code=code)["error"]
        assert error["exit_code"] == code and error["message"], error
    write(run_file, "run: echo\n")
    assert b"has no trainer:" in w.run("preflight", run_file, code=2).stderr
    assert b"give a run file" in w.run("preflight", code=2).stderr


def test_a_run_stands_for_its_checkpoint(w):
    run_file = run_file_of(w)
    home = os.path.dirname(run_file)
    launch(w, run_file, "tuned-1", "--provider", "local")
    for verb in (["generate", *CHAT], ["eval"], ["inspect"], ["merge", "--out", "x"],
                 ["export", "--to", "mlx", "--out", "x"]):
        done = w.run(verb[0], "tuned", *verb[1:], code=1)
        assert b"tuned-1: no checkpoint of it is at home" in done.stderr, done
        assert b"HINT: gpuctl pull tuned-1 brings one" in done.stderr, done
    w.run("pull", "tuned-1", "--checkpoint", "6")
    w.run("pull", "tuned-1")
    first, newest = [os.path.join(w.work, "tuned-1/step-000000%s" % step) for step in ("06", "12")]

    def answer(*words):
        return trainer(w, "generate", "--model", home + "/base", *words, *CHAT)

    done = w.run("generate", "tuned", *CHAT)
    assert done.stdout.decode() == answer("--checkpoint", newest), done
    assert ("taking " + newest).encode() in done.stderr, done
    assert w.json("generate", "tuned", *CHAT)["text"] + "\n" == answer("--checkpoint", newest)
    tokens = w.json("generate", "tuned", "--prompt-ids", "65,66", "--tokens", "3", "--stop-ids", "")
    assert len(tokens["tokens"]) == 5 and tokens["tokens"][:2] == [65, 66], tokens
    for words in (["tuned-1", "--checkpoint", "6"], [first], ["--checkpoint", first],
                  ["./tuned-1/step-00000006", "--model", home + "/base"]):
        done = w.run("generate", *words, *CHAT)
        assert done.stdout.decode() == answer("--checkpoint", first), (words, done)
    done = w.run("generate", "tuned", "--checkpoint", "best", *CHAT)
    assert done.stdout.decode() in [answer("--checkpoint", path) for path in (first, newest)], done
    # The folder of all of them, where the run is not known, too.
    w.env["GPUCTL_STATE_DIR"], known = w.env["GPUCTL_STATE_DIR"] + "2", w.env["GPUCTL_STATE_DIR"]
    done = w.run("generate", "tuned-1", *CHAT, code=2)
    assert b"holds adapters and not their model" in done.stderr, done
    done = w.run("generate", "tuned-1", "--model", home + "/base", *CHAT)
    assert done.stdout.decode() == answer("--checkpoint", newest), done
    w.env["GPUCTL_STATE_DIR"] = known
    check_eval(w, home, newest)
    check_inspect(w, newest)
    check_merge_and_export(w, home, newest)
    shutil.rmtree(home + "/base")
    done = w.run("generate", "tuned", *CHAT, code=2)
    assert b"their model is not in %s/base" % home.encode() in done.stderr, done
    assert w.run("inspect", "tuned").returncode == 0
    shutil.rmtree(w.work + "/tuned-1")
    done = w.run("inspect", "tuned", code=1)
    assert b"; this one is gone: " in done.stderr, done


def check_eval(w, home, newest):
    score = w.json("eval", "tuned")
    (data,) = score["data"]
    said = trainer(w, "eval", "--model", home + "/base", "--checkpoint", newest, "--data", data,
                   "--as", "json")
    assert score["loss"] == json.loads(said)["loss"] and score["model"] == newest, (score, said)
    text = w.run("eval", "tuned", "--windows", "2").stdout
    assert text.startswith(b"held-out loss "), text
    assert b"is not a folder that prepare made" in w.run("eval", home + "/base", "--data", home + "/rows.jsonl",
                                        code=2).stderr
    assert b"there is no absent" in w.run("eval", "tuned", "--data", "absent", code=1).stderr
    assert b"eval: no data" in w.run("eval", home + "/base", code=2).stderr


def check_inspect(w, newest):
    assert w.run("inspect", "tuned").stdout.decode() == trainer(w, "inspect", newest)
    found = w.json("inspect", "tuned")
    assert (found["step"], found["adapter"], found["path"]) == (12, True, newest), found
    names = [tensor["name"] for tensor in found["tensors"]]
    assert any(name.endswith("q_proj.lora_A.weight") for name in names), names
    with open(newest + "/state.json", "r+", encoding="utf-8") as file:
        content = file.read()
        file.seek(0)
        file.write(content.replace("1", "2", 1))
    assert b"state.json has another digest" in w.run("inspect", "tuned", code=1).stderr
    assert b"state.json has another digest" in w.run("generate", "tuned", *CHAT, code=1).stderr
    assert b"state.json has another digest" in w.run("merge", "tuned", "--out", "x", code=1).stderr
    write(newest + "/state.json", content)


def check_merge_and_export(w, home, newest):
    merged = w.json("merge", "tuned", "--out", "merged")
    assert merged["folder"] == "merged" and merged["adapter"] == newest, merged
    write(w.work + "/job.py", "")
    with open(w.work + "/merged/.gpuctlignore", encoding="utf-8") as file:
        assert file.read() == "*\n"
    listed = w.run("sync", "--dry-run").stdout
    assert b"job.py" in listed and b"merged" not in listed, "the next launch sends the weights back"
    os.unlink(w.work + "/job.py")
    theirs = os.path.join(w.dir, "theirs")
    trainer(w, "merge", "--model", home + "/base", "--adapter", newest, "--out", theirs)
    for name in os.listdir(theirs):
        with open(theirs + "/" + name, "rb") as one:
            with open(w.work + "/merged/" + name, "rb") as other:
                assert one.read() == other.read(), name
    assert w.run("generate", "merged", *CHAT).stdout == w.run("generate", "tuned", *CHAT).stdout
    done = w.run("merge", "tuned", "--out", "merged", code=2)
    assert b"merged" in done.stderr and b"there" in done.stderr, done
    assert b"--out names no folder" in w.run("merge", "tuned", "--out", "", code=2).stderr
    done = w.run("merge", "merged", "--out", "again", code=2)
    assert b"holds a whole model and no adapter" in done.stderr, done
    done = w.run("export", "tuned", "--to", "gguf", "--out", "x.gguf", code=2)
    assert b"holds adapters and no whole model" in done.stderr, done
    exported = w.json("export", "tuned", "--to", "gguf-lora", "--out", "lora.gguf")
    assert exported["matrices"] == 14, exported
    w.run("export", "merged", "--to", "gguf", "--type", "q8_0", "--pre", "gpt-2", "--out", "m.gguf")
    trainer(w, "export", "--model", w.work + "/merged", "--to", "gguf", "--type", "q8_0", "--pre",
            "gpt-2", "--out", w.dir + "/theirs.gguf")
    with open(w.work + "/m.gguf", "rb") as one, open(w.dir + "/theirs.gguf", "rb") as other:
        assert one.read() == other.read()
    # Another model of the same shape is not that of the run.
    shutil.copytree(home + "/base", w.dir + "/other")
    with open(w.dir + "/other/model.safetensors", "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\0\0")
    done = w.run("merge", "tuned", "--model", w.dir + "/other", "--out", "wrong", code=2)
    assert b"its adapters are for another model" in done.stderr, done
    left = sorted(os.listdir(w.work))
    assert left == ["lora.gguf", "m.gguf", "merged", "tuned-1"], left


def test_names_of_folders_and_runs(w):
    home, checkpoint = pulled_run(w, "tuned-1", lora={"rank": 0})
    del home
    whole = w.run("generate", checkpoint, *CHAT).stdout
    # pull's own folder ./tuned-1 is no model, so the name means the run.
    assert w.run("generate", "tuned-1", *CHAT).stdout == whole
    write_model(w.work + "/tuned")
    for name in ("tuned", "tuned/../tuned"):
        code = 0 if "/" in name else 2
        done = w.run("generate", name, *CHAT, code=code)
        assert code == 0 or b"tuned is a folder here and the run tuned-1" in done.stderr, done
        assert code == 2 or done.stdout != whole, done
    run_id = w.json("ps", "-a")["runs"][0]["run_id"]
    assert w.run("generate", run_id, *CHAT).stdout == whole
    for words, says in (
            (["absent"], b"there is no folder absent, and "), (["./absent"], b"no folder ./absent"),
            ([w.dir], b"holds no model"), ([], b"generate: no model"),
            (["tuned-2"], b"there is no folder tuned-2, and "),
            ([checkpoint, "--model", "tuned"], b"holds the whole model"),
            ([checkpoint, "--adapter", "x"], b"--adapter goes with --model"),
            (["./tuned", "--checkpoint", "6"], b"--checkpoint goes with a run"),
            (["tuned-1", "--top-k", "-1"], b"--top-k"), (["tuned-1", "--tokens", "1e99"], b"--tokens"),
            (["tuned-1", "--tokns", "1"], b"--tokens"), (["--checkpoint", w.dir], b"holds no model"),
            (["tuned-1", "--prompt", "x"], b"give one of --prompt, --chat")):
        done = w.run("generate", *words, *CHAT, code=2)
        assert says in done.stderr and b"Traceback" not in done.stderr, (words, done)
    done = w.run("generate", "tuned-1", "--checkpoint", "7", *CHAT, code=1)
    assert b"no checkpoint of step 7" in done.stderr and b"HINT: there are steps 12" in done.stderr
    done = w.run("genrate", "tuned-1", code=2)
    assert b'did you mean "generate"' in done.stderr, done
    done = w.run("merge", "tuned-1", "--out", "x", code=2)
    assert b"holds a whole model and no adapter" in done.stderr, done


def test_without_a_trainer(w):
    """Some commands need none; the others say what to do."""
    home, checkpoint = pulled_run(w)
    os.mkdir(w.dir + "/alone")
    for name in os.listdir(os.path.dirname(w.gpuctl)):
        if name in ("gpuctl", "gpuctl-agent", "gpuctl-shim", "roots.pem"):
            shutil.copy(os.path.join(os.path.dirname(w.gpuctl), name), w.dir + "/alone/" + name)
    w.gpuctl, whole = w.dir + "/alone/gpuctl", w.gpuctl
    run_file = os.path.join(home, "run.yaml")
    for words in (["generate", "tuned", *CHAT], ["eval", "tuned"], ["preflight", run_file],
                  ["train", run_file, "--checkpoint-dir", "x"]):
        done = w.run(*words, code=127)
        assert b"no gpuctl-trainer is beside gpuctl" in done.stderr and b"HINT: " in done.stderr, done
        assert w.json(*words, code=127)["error"]["code"] == "NOT_FOUND"
    w.run("merge", "tuned", "--out", "merged")
    w.run("inspect", checkpoint)
    w.run("export", "tuned", "--to", "mlx", "--out", "mlx")
    # Its sources alone, where there is no torch.
    os.symlink(os.path.dirname(whole) + "/trainer-src", w.dir + "/alone/trainer-src")
    empty = w.dir + "/no-torch"
    os.makedirs(empty + "/lib")
    done = w.run("generate", "tuned", *CHAT, code=127, GPUCTL_TORCH=empty)
    assert b"it cannot be compiled: " in done.stderr, done
    # A kit, which has its own loader.
    w.gpuctl = whole
    w.run("debug", "trainer-kit", w.dir + "/share/gpuctl/trainer-kit")
    os.rename(w.dir + "/alone", w.dir + "/bin")
    w.gpuctl = w.dir + "/bin/gpuctl"
    assert w.run("generate", "tuned", *CHAT).stdout == w.run("generate", "merged", *CHAT).stdout


def test_train_here(w):
    run_file = run_file_of(w)
    assert b"no place for the checkpoints" in w.run("train", run_file, code=2).stderr
    done = w.run("train", run_file, "--checkpoint-dir", "here")
    assert b"step 12/12" in done.stdout and sorted(os.listdir(w.work + "/here")) == [
        "step-00000006", "step-00000012"], done
    assert w.json("ps", "-a")["runs"] == []
    base = os.path.join(os.path.dirname(run_file), "base")
    assert w.run("generate", "here", "--model", base, *CHAT).stdout.strip()
    done = w.run("train", run_file, "--checkpoint-dir", "here", code=64)
    assert done.stderr.startswith(b"gpuctl: "), done
    ended = w.json("train", run_file, "--checkpoint-dir", "json", "--set", "train.steps=6")
    assert ended["outcome"] == "finished" and ended["step"] == 6, ended
    # Ctrl-C saves; what was saved goes on.
    terminal = Terminal(w, "train", run_file, "--checkpoint-dir", "long", "--set",
                        "train.steps=100000")
    terminal.until(b"step 3/")
    terminal.type(b"\x03")
    assert terminal.finish() == 130, terminal.text
    (saved,) = os.listdir(w.work + "/long")
    steps = str(int(saved[5:]) + 2)
    done = w.run("train", run_file, "--checkpoint-dir", "long", "--resume", "auto", "--set",
                 "train.steps=" + steps)
    assert ("step %s/%s" % (steps, steps)).encode() in done.stdout, done
    # A signal to gpuctl alone reaches the trainer.
    child = w.start("train", run_file, "--checkpoint-dir", "more", "--set", "train.steps=100000")
    while b"step 3/" not in child.stdout.readline():
        assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=300)
    assert child.returncode == 143 and os.listdir(w.work + "/more"), child


def test_ctrl_c_while_it_generates(w):
    home = os.path.dirname(run_file_of(w))
    # Byte 27, which begins a terminal's commands.
    terminal = Terminal(w, "generate", home + "/base", "--prompt", "a\x1b[2J", "--tokens", "1000000",
                        "--stop-ids", "")
    terminal.until(b"a\\x1b[2J")
    terminal.type(b"\x03")
    assert terminal.finish() == 130 and b"\x1b" not in terminal.text, terminal.text
    done = w.run("generate", home + "/base", "--prompt", "a\x1b[2J", "--tokens", "0")
    assert done.stdout == b"a\x1b[2J\n", done
    child = subprocess.Popen([w.gpuctl, "generate", home + "/base", "--json", "--prompt", "a",
                              "--tokens", "1000000", "--stop-ids", ""], cwd=w.work, env=w.env,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    reached = w.dir.encode()
    while not any(b"gpuctl-trainer" in line and reached in line for line in lines_of_processes()):
        assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 130 and err == b"", (out, err)
    assert json.loads(out)["error"]["exit_code"] == 130, out


def commands_of(page, first):
    """Returns the lines of the page's block that has `first`, without remarks."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if first in block]
    return [line.split("  #")[0].rstrip() for line in block.splitlines()]


def check_page(w, page):
    """Types what the page says."""
    w.work = os.path.join(w.dir, page.replace("/", "-"))
    shutil.copytree(os.path.join(ROOT, "examples"), w.work + "/examples")
    home = w.work + "/examples/fine-tune"
    commands = commands_of(page, "ln -s path/to/model model")
    if not commands[0].startswith("cd "):
        commands.insert(0, "cd examples/fine-tune")
    for number in range(1, len(commands)):
        line = commands[number].replace("path/to/model", w.dir + "/small")
        done = subprocess.run(["sh", "-c", "%s && %s" % (commands[0], line)], cwd=w.work,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300, check=False,
                              env={**w.env, "PATH": os.path.dirname(w.gpuctl) + ":" + os.environ["PATH"],
                                   "GPUCTL_NODE_ROOT": w.root})
        assert done.returncode == 0, (line, done)
        if " launch " in line:
            losses = [float(loss) for loss in re.findall(rb"held-out loss ([0-9.]+)", done.stdout)]
            assert len(losses) > 2 and losses[-1] < losses[0], done
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(
        os.listdir(home + "/tuned")), os.listdir(home + "/tuned")
    assert os.path.getsize(home + "/tuned.gguf") > 10000


def test_the_pages_say_what_works(w):
    write_model(w.dir + "/small", max_position_embeddings=512)
    check_page(w, "README.md")
    check_page(w, "examples/fine-tune/README.md")


def tuned(w, run_file, name, *where):
    """Launches the run, brings its adapter home, merges it. Returns what the run has made."""
    w.run("launch", run_file, "-y", "--name", name, *where)
    run = next(run for run in w.json("ps", "-a")["runs"] if run["name"] == name)
    assert run["status"] == "succeeded", run
    newest = max(w.json("pull", name)["checkpoints"], key=lambda found: found["step"])
    assert newest["verified"], newest
    merged = os.path.join(w.dir, name + "-merged")
    w.run("merge", name, "--out", merged)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(os.listdir(merged))
    answers = [w.run("generate", model, *CHAT).stdout for model in (name, merged)]
    assert answers[0] == answers[1] and answers[0].strip(), answers
    with open(os.path.join(w.work, newest["path"], "state.json"), encoding="utf-8") as file:
        state = json.load(file)
    with open(merged + "/model.safetensors", "rb") as file:
        weights = file.read()
    return {"step": run["step"], "micro_batch": state["micro_batch"], "weights": weights,
            "loss": w.json("eval", name)["loss"]}


def test_the_same_file_here_and_over_ssh(w):
    """A model folder and rows to merged weights: tried, then run on this computer and on another
    machine, which gets a trainer, the model and the tokens."""
    home = os.path.join(w.dir, "fine-tune")
    shutil.copytree(os.path.join(ROOT, "examples/fine-tune"), home)
    write_model(home + "/model", max_position_embeddings=512)
    run_file = home + "/run.yaml"
    assert w.json("preflight", run_file)["verdict"] == "here"
    with ssh_machine(w) as host:
        here = tuned(w, run_file, "here-1", "--provider", "local")
        there = tuned(w, run_file, "there-1", *host, "--trainer", "build=kit")
    with open(home + "/model/model.safetensors", "rb") as file:
        assert file.read() != here["weights"]
    # The same program on the same processor.
    assert here == there, [{key: found[key] for key in found if key != "weights"}
                           for found in (here, there)]


def lines_of_processes():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                yield file.read()
        except OSError:
            pass


if __name__ == "__main__":
    use_memory()
    run_tests(globals())

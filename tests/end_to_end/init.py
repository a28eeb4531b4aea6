#!/usr/bin/env python3
"""gpuctl init: the run file that it writes is one that launches.

  init.py GPUCTL FAKE_JOB [TEST...]
"""
import json
import os
import shutil
import subprocess

from runs import run_tests
from sync import write

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def empty(l):
    shutil.rmtree(l.work)
    os.mkdir(l.work)


def test_what_it_writes_runs(l):
    empty(l)
    write(l.work + "/train.py", b"import os\nif __name__ == '__main__':\n"
          b"    os.makedirs('ckpt', exist_ok=True)\n    print('trained')\n"
          b"    # torch is not here\n    save = lambda: torch.save(x, f'ckpt/step-{1}.pt')\n"
          b"    open('ckpt/step-1.pt', 'w').write('weights')\n")
    os.makedirs(l.dir + "/bin", exist_ok=True)
    done = l.run("init")
    assert done.stdout == b"run.yaml\n", done
    said = done.stderr.decode()
    assert "run: python3 train.py (train.py: by its name)" in said, said
    assert "checkpoints: ckpt/step-*.pt (train.py: torch.save writes there)" in said, said
    plan = l.json("launch", "run.yaml", "--dry-run")["plan"]
    assert plan["command"] == "python3 train.py" and plan["name"] == "work", plan
    assert b"trained" in l.run("launch", "run.yaml", "--run", "python3 train.py").stdout
    pulled = l.json("pull", "work")
    assert [c["path"].endswith("step-1.pt") for c in pulled["checkpoints"]] == [True], pulled


def test_the_schema_is_where_the_first_line_says(l):
    empty(l)
    made = l.json("init")
    first = read(l.work + "/run.yaml").splitlines()[0]
    assert first == "# yaml-language-server: $schema=" + made["schema"], first
    assert json.loads(read(made["schema"])) == json.loads(l.run("run-schema").stdout)
    # Nothing was found, and the file says so; it is a run file still.
    assert [guess["field"] for guess in made["guesses"]] == ["name"], made
    l.run("launch", "run.yaml", "--dry-run")


def test_it_replaces_nothing(l):
    empty(l)
    for make in (lambda path: write(path, b"mine"), os.mkdir,
                 lambda path: os.symlink("/nowhere/at/all", path)):
        make(l.work + "/run.yaml")
        done = l.run("init", code=2)
        assert b"run.yaml is there" in done.stderr and b"--force" in done.stderr, done
        assert os.listdir(l.work) == ["run.yaml"]
        if os.path.isfile(l.work + "/run.yaml"):
            assert read(l.work + "/run.yaml") == "mine"
        empty(l)
    write(l.work + "/run.yaml", b"mine")
    l.run("init", "--force")
    assert "mine" not in read(l.work + "/run.yaml")
    l.run("init", "nowhere", code=2)
    # Ten at once: one writes.
    os.unlink(l.work + "/run.yaml")
    processes = [l.start("init") for _ in range(10)]
    codes = sorted(process.wait(60) for process in processes)
    for process in processes:
        process.stdout.close()
        process.stderr.close()
    assert codes == [0] + 9 * [2] and os.listdir(l.work) == ["run.yaml"], codes


def test_a_full_disk_leaves_nothing(l):
    empty(l)
    done = subprocess.run(["bash", "-c", "ulimit -f 0; trap '' XFSZ; exec \"$0\" init", l.gpuctl],
                          cwd=l.work, env=l.env, capture_output=True, timeout=300, check=False)
    assert done.returncode != 0 and os.listdir(l.work) == [], done


def test_the_examples_of_the_repository(l):
    """What their authors wrote by hand is what is guessed."""
    for name, checkpoints in (("pytorch", None), ("huggingface", "out/checkpoint-*"),
                              ("lightning", "checkpoints/*.ckpt")):
        empty(l)
        shutil.copy(os.path.join(SOURCE, "examples", name, "train.py"), l.work)
        guesses = {guess["field"]: guess["value"] for guess in l.json("init")["guesses"]}
        assert guesses["run"].endswith("train.py"), (name, guesses)
        if checkpoints is not None:
            assert guesses["checkpoints"] == checkpoints, (name, guesses)
        l.run("launch", "run.yaml", "--dry-run")


if __name__ == "__main__":
    run_tests(globals())

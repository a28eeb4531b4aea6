#!/usr/bin/env python3
"""rm and prune over the real path: gpuctl, sshd on a socketpair, agent, job.

  removal.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import json
import os
import shutil

from runs import cmdline, held_job, open_gate, run_tests, wait_until
from sync import eventually, write


def job_dir(l, name):
    for row in l.json("ps", "-a")["runs"]:
        if row["name"] == name:
            return os.path.join(l.root, "jobs", row["job_id"])
    raise AssertionError("no run " + name)


def one(answer):
    assert len(answer["runs"]) == 1, answer
    return answer["runs"][0]


def test_rm_of_a_run_that_left_nothing_but_output(l):
    l.run("launch", "--no-workdir", "--name", "quiet-1", "--", "echo", "said")
    folder = job_dir(l, "quiet-1")
    looked = l.json("rm", "--dry-run", "quiet-1")
    assert looked["dry_run"] and one(looked)["action"] == "would_remove", looked
    assert one(looked)["freed_bytes"] > 0 and os.path.isdir(folder), looked
    done = l.run("rm", "quiet-1")
    assert b"removed" in done.stdout, done
    assert not os.path.exists(folder)
    assert os.listdir(l.root + "/tombstones") == [os.path.basename(folder)]
    # The laptop's part stays: output, list entry, end.
    assert l.run("logs", "quiet-1").stdout == b"said\n"
    assert l.run("attach", "quiet-1").stdout == b"said\n"
    assert one(l.json("rm", "quiet-1"))["action"] == "gone"
    assert b"was not there" in l.run("rm", "quiet-1").stdout
    gone = l.run("pull", "quiet-1", code=None)
    assert gone.returncode != 0 and gone.stderr, gone


def test_rm_refuses_what_runs(l):
    gate = held_job(l, "busy-1")
    answer = l.json("rm", "--force", "busy-1", code=1)
    assert one(answer)["action"] == "kept" and "it is not over (running)" in one(answer)["why"], answer
    said = l.run("rm", "--force", "busy-1", code=1).stderr
    assert b"busy-1 stays" in said and b"gpuctl stop busy-1" in said, said
    open_gate(gate)
    assert l.run("attach", "busy-1").stdout == b"begin\nend now\n"
    l.run("rm", "busy-1")


def test_rm_refuses_while_somebody_works_beside_it(l):
    l.run("launch", "--no-workdir", "--name", "beside-1", "--", "true")
    gate = os.path.join(l.dir, "beside.gate")
    os.mkfifo(gate)
    beside = l.start("exec", "beside-1", "--", "bash", "-c", "echo here; read line < " + gate)
    assert beside.stdout.readline() == b"here\n"
    answer = l.json("rm", "--force", "beside-1", code=1)
    assert "is still at work" in one(answer)["why"], answer
    open_gate(gate)
    assert beside.wait() == 0
    l.run("rm", "beside-1")


def test_rm_keeps_what_is_not_home(l):
    source = os.path.join(l.dir, "left-1")
    write(source + "/train.py", "print()")
    write(source + "/set.txt", "1")
    l.run("launch", "--workdir", source, "--name", "left-1", "--", "bash", "-c",
          l.fake_job + " --steps 4 --checkpoint-every 2 && mkdir out && echo 1 > out/a.json "
          "&& mkdir __pycache__ && touch __pycache__/x.pyc && echo 22 > set.txt")
    folder = job_dir(l, "left-1")
    answer = one(l.json("rm", "left-1", code=1))
    assert answer["action"] == "kept", answer
    assert [item["path"] for item in answer["not_home"]] == [
        "ckpt/step-00000004", "ckpt/step-00000002", "work/out/a.json", "work/set.txt"], answer
    assert answer["not_home_count"] == 4 and answer["not_home_bytes"] > 0, answer
    said = l.run("rm", "left-1", code=1).stderr.decode()
    assert "not at home: 2 checkpoints and 2 files (" in said and "HINT: gpuctl pull left-1" in said
    assert os.path.exists(folder + "/spec.json")
    # It comes home step by step, and then it may be removed.
    l.run("pull", "left-1", "--to", "home-of-left")
    l.run("pull", "left-1", "--to", "home-of-left", "--checkpoint", "2")
    l.run("pull", "left-1", "out/*.json", "--to", "home-of-left")
    answer = one(l.json("rm", "left-1", "--dry-run", code=1))
    assert [item["path"] for item in answer["not_home"]] == ["work/set.txt"], answer
    l.run("pull", "left-1", "set.txt", "--to", "home-of-left")
    # A file that was changed here is not home any more.
    brought = os.path.join(l.work, "home-of-left", "set.txt")
    write(brought, "333")
    assert one(l.json("rm", "left-1", code=1))["not_home_count"] == 1
    os.unlink(brought)
    l.run("pull", "left-1", "set.txt", "--to", "home-of-left")
    assert one(l.json("rm", "left-1"))["action"] == "removed"
    assert not os.path.exists(folder) and os.path.exists(brought)


def test_results_behind_symlinks_come_home(l):
    volume = os.path.join(l.dir, "volume")
    os.makedirs(volume + "/out/checkpoint-1")
    write(os.path.join(l.work, "linked.yaml"),
          "artifacts: ['results/**']\ncheckpoints: ['outputs/checkpoint-*']\nrun: |\n"
          "  ln -s %s/out outputs; ln -s %s results; ln -s %s/final.pt final.pt\n"
          "  echo weights > outputs/checkpoint-1/w; mkdir results/deep\n"
          "  echo 1 > results/deep/a.json; echo 22 > results/final.pt\n" % (volume, volume, volume))
    l.run("launch", "linked.yaml", "--no-workdir", "--name", "linked")
    answer = one(l.json("rm", "linked", code=1))
    named = [item["path"] for item in answer["not_home"]]
    assert named == ["work/outputs/checkpoint-1", "work/final.pt", "work/results/deep/a.json",
                     "work/results/final.pt", "work/results/out/checkpoint-1/w"], answer
    home = os.path.join(l.work, "linked-home")
    # A symlink here leads nothing out of the destination.
    outside = os.path.join(l.dir, "elsewhere")
    os.makedirs(outside)
    os.makedirs(home)
    os.symlink(outside, home + "/results")
    assert l.run("pull", "linked", "--to", "linked-home", code=None).returncode != 0
    assert os.listdir(outside) == []
    os.unlink(home + "/results")
    pulled = l.json("pull", "linked", "--to", "linked-home")
    assert pulled["checkpoints"][0]["path"] == "linked-home/checkpoint-1", pulled
    for path, content in (("checkpoint-1/w", "weights\n"), ("results/deep/a.json", "1\n"),
                          ("results/final.pt", "22\n")):
        with open(os.path.join(home, path)) as file:
            assert file.read() == content, path
    answer = one(l.json("rm", "linked", code=1))
    assert [item["path"] for item in answer["not_home"]] == ["work/final.pt"], answer
    assert one(l.json("rm", "--force", "linked"))["action"] == "removed"
    assert os.path.exists(volume + "/final.pt")


def test_rm_by_force(l):
    l.run("launch", "--no-workdir", "--name", "forced-1", "--", "bash", "-c", "echo 1 > result")
    folder = job_dir(l, "forced-1")
    l.run("rm", "forced-1", code=1)
    answer = one(l.json("rm", "--force", "forced-1"))
    assert answer["action"] == "removed" and answer["not_home_count"] == 1, answer
    assert not os.path.exists(folder)


def test_rm_of_a_run_that_nobody_watched_brings_its_output_first(l):
    open_gate(held_job(l, "unheard-1"))
    folder = job_dir(l, "unheard-1")
    # The run is over on the node, and the laptop does not know it.
    eventually(lambda: one(l.json("rm", "unheard-1", "--dry-run", code=None))["action"] ==
               "would_remove", "the end of the job")
    l.run("rm", "unheard-1")
    assert not os.path.exists(folder)
    assert l.run("logs", "unheard-1").stdout == b"begin\nend now\n"


def test_content_that_other_jobs_have_stays(l):
    source = os.path.join(l.dir, "shared")
    data = os.path.join(l.dir, "set")
    write(source + "/a", "1")
    write(data + "/big", "x" * 1_000_000)
    with open(os.path.join(source, "run.yaml"), "w") as file:
        json.dump({"data": {data: "data"}, "run": "cat data/big | wc -c"}, file)
    for name in ("sharer-1", "heir-1"):
        done = l.run("launch", source + "/run.yaml", "--name", name)
        assert done.stdout == b"1000000\n", done
    answer = one(l.json("rm", "sharer-1"))
    assert answer["shared_bytes"] >= 1_000_000 > answer["freed_bytes"], answer
    assert os.path.getsize(job_dir(l, "heir-1") + "/work/data/big") == 1_000_000
    third = l.run("launch", source + "/run.yaml", "--name", "third-1", "--trace")
    assert third.stdout == b"1000000\n" and b"trace: push" not in third.stderr, third


def test_prune(l):
    for name in ("done-1", "done-2"):
        l.run("launch", "--no-workdir", "--name", name, "--", "true")
    l.run("launch", "--no-workdir", "--name", "kept-1", "--", "touch", "result")
    gate = held_job(l, "running-1")
    folders = {name: job_dir(l, name) for name in ("done-1", "done-2", "kept-1", "running-1")}
    assert l.json("prune", "-y", "--older-than", "14d")["runs"] == []
    looked = {run["name"]: run["action"] for run in l.json("prune", "--dry-run")["runs"]}
    assert looked["done-1"] == looked["done-2"] == "would_remove" and looked["kept-1"] == "kept", looked
    assert "running-1" not in looked, looked
    # The node is gone.
    l.run("prune", code=2)
    l.run("prune", "--older-than", "long", code=2)
    assert all(os.path.isdir(folder) for folder in folders.values())
    answer = l.json("prune", "-y")
    done = {run["name"]: run["action"] for run in answer["runs"]}
    assert done["done-1"] == done["done-2"] == "removed" and done["kept-1"] == "kept", done
    assert answer["unknown"] == [] and not answer["dry_run"], answer
    assert {name for name, folder in folders.items() if os.path.isdir(folder)} == {
        "kept-1", "running-1"}
    open_gate(gate)
    l.run("wait", "running-1")
    l.run("rm", "-f", "kept-1")
    said = l.run("prune", "-y")
    assert b"removed" in said.stdout and b"running-1" in said.stdout, said
    assert b"nothing to remove" in l.run("prune", "-y").stderr


def test_prune_leaves_the_jobs_of_another_list_alone(l):
    l.run("launch", "--no-workdir", "--name", "mine-1", "--", "true")
    other = {"GPUCTL_STATE_DIR": os.path.join(l.dir, "other-state")}
    l.run("launch", "--no-workdir", "--name", "theirs-1", "--", "true", **other)
    theirs = one(json.loads(l.run("ps", "-a", "--json", **other).stdout))["job_id"]
    said = l.run("prune", "-y")
    assert b"of another list of runs: left alone" in said.stderr, said
    assert os.path.isdir(os.path.join(l.root, "jobs", theirs))


def test_a_server_leaves_a_root_that_was_replaced(l):
    """Two servers in one root would both tend its jobs."""
    l.run("launch", "--no-workdir", "--", "true")
    old = [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
    assert old

    def removed():
        # The server removes its own files as soon as it sees the first ones gone.
        shutil.rmtree(l.root, ignore_errors=True)
        return not os.path.exists(l.root)

    wait_until(removed, "the root is removed")
    l.run("launch", "--no-workdir", "--", "true", code=None)  # it may meet the old server
    wait_until(lambda: not any(b"server" in cmdline(pid) for pid in old), "the old server is gone")
    assert [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
    l.run("launch", "--no-workdir", "--", "true")


if __name__ == "__main__":
    run_tests(globals())

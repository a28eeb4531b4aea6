#!/usr/bin/env python3
"""pull and cp where the agent can be neither run nor delivered: over the plain SFTP of a real sshd.

  sftp.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import contextlib
import hashlib
import os
import random
import re
import shutil
import stat

from runs import DEADLINE_S, PUBLISH, run_tests
from sync import eventually, read, read_bytes, work_of, write


@contextlib.contextmanager
def agent_that_cannot_run(l):
    """Makes an agent that cannot run and cannot be replaced."""
    programs = os.path.join(l.root, "bin")
    os.rename(programs, programs + ".away")
    write(programs, "in the way")
    try:
        yield
    finally:
        os.unlink(programs)
        os.rename(programs + ".away", programs)


def as_it_is(top):
    """Returns everything below a directory: path to kind, permissions and content."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            what = None
            if stat.S_ISLNK(mode):
                what = os.readlink(path)
            elif stat.S_ISREG(mode):
                what = hashlib.sha256(read_bytes(path)).hexdigest()
            found[os.path.relpath(path, top)] = (
                stat.S_IFMT(mode), None if stat.S_ISLNK(mode) else mode & 0o777, what)
    return found


def expect_same(found, wanted):
    differing = {path: (found.get(path), wanted.get(path)) for path in {*found, *wanted}
                 if found.get(path) != wanted.get(path)}
    assert not differing, differing


def run_that_left(l, name, script, *flags):
    """Makes a run that is over. Returns it and its work directory."""
    l.run("launch", "--no-workdir", "--name", name, *flags, "--", "bash", "-c", script)
    return work_of(l, name)


def test_checkpoints_by_sftp(l):
    work = run_that_left(
        l, "bare", PUBLISH + "publish 5; mkdir -p out/checkpoint-9 out/checkpoint-8; "
        "head -c 3000000 /dev/urandom > out/checkpoint-9/w; "
        "echo torn > out/checkpoint-8/a.safetensors; touch -d '1 hour ago' out/checkpoint-9/w; "
        "touch -d '2 hours ago' out/checkpoint-8/*", "--checkpoints", "out/checkpoint-*")
    home = os.path.join(l.work, "bare-home")
    with agent_that_cannot_run(l):
        done = l.run("pull", "bare", "--to", "bare-home", "--checkpoint", "5")
        assert b"by SFTP" in done.stderr and b", verified" in done.stderr, done.stderr
        assert sorted(os.listdir(home + "/step-00000005")) == ["manifest.json", "w"]
        pulled = l.json("pull", "bare", "--to", "bare-home", "--checkpoint", "checkpoint-9")
        assert not pulled["checkpoints"][0]["verified"], pulled
        expect_same(as_it_is(home + "/checkpoint-9"), as_it_is(work + "/out/checkpoint-9"))
        torn = l.run("pull", "bare", "--to", "bare-home", "--checkpoint", "checkpoint-8", code=118)
        assert b"not whole" in torn.stderr, torn.stderr
        assert sorted(os.listdir(home)) == ["checkpoint-9", "step-00000005"], os.listdir(home)
        # Both are known to verify.
        assert l.json("verify", "bare", "--read-data")["checkpoints"] == 2
        # A damaged one does not come home.
        shutil.rmtree(home + "/step-00000005")
        with open(os.path.join(os.path.dirname(work), "ckpt/step-00000005/w"), "r+b") as file:
            file.write(b"W")
        l.run("pull", "bare", "--to", "bare-home", "--checkpoint", "5", code=118)
        assert not os.path.exists(home + "/step-00000005")


TREE = ("mkdir -p out/d/void out/closed; echo run > out/run.sh; chmod 750 out/run.sh; "
        "echo secret > out/d/key; chmod 600 out/d/key; ln -s ../run.sh out/d/link; "
        "ln -s nowhere out/dangling; ln -s d out/to-dir; : > out/empty; chmod 640 out/empty; "
        "head -c 9000000 /dev/urandom > out/large; cp out/large out/same; chmod 444 out/same; "
        "echo x > out/closed/x; chmod 555 out/closed; chmod 711 out/d/void; "
        "find out -exec touch -h -d '1 hour ago' {} +")


def test_trees_come_home_as_with_the_agent(l):
    run_that_left(l, "shaped", TREE, "--checkpoints", "out")
    by_agent = os.path.join(l.work, "by-agent")
    l.run("cp", "shaped:out", "./by-agent")
    l.run("pull", "shaped", "--to", "agent-home", "--checkpoint", "out")
    wanted = as_it_is(by_agent)
    assert wanted["d/void"] == (stat.S_IFDIR, 0o711, None) and len(wanted) == 12, wanted
    with agent_that_cannot_run(l):
        done = l.run("cp", "shaped:out", "./by-sftp")
        assert b"by SFTP" in done.stderr, done.stderr
        expect_same(as_it_is(l.work + "/by-sftp"), wanted)
        os.mkdir(l.work + "/into")
        for _ in range(2):  # the second time it is merged
            l.run("cp", "shaped:out", "./into")
            expect_same(as_it_is(l.work + "/into/out"), wanted)
        l.run("cp", "shaped:out/run.sh", "./alone.sh")
        assert read(l.work + "/alone.sh") == "run\n"
        assert os.stat(l.work + "/alone.sh").st_mode & 0o777 == 0o750
        l.run("pull", "shaped", "--to", "sftp-home", "--checkpoint", "out")
        done = l.run("cp", "shaped:out/d/link", "./x", code=1)
        assert b"neither a file nor a directory" in done.stderr, done.stderr
    expect_same(as_it_is(l.work + "/sftp-home"), as_it_is(l.work + "/agent-home"))


def test_files_by_pattern_are_recorded_for_verify(l):
    run_that_left(l, "named", "mkdir -p r/deep; echo 1 > r/a.json; echo 2 > r/deep/b.json; "
                  "chmod 600 r/a.json; echo 3 > r/c.txt; : > r/e.json")
    with agent_that_cannot_run(l):
        l.run("pull", "named", "--to", "named-home", "r/**/*.json")
        home = l.work + "/named-home"
        assert sorted(as_it_is(home)) == [
            "r", "r/a.json", "r/deep", "r/deep/b.json", "r/e.json"], as_it_is(home)
        assert os.stat(home + "/r/a.json").st_mode & 0o777 == 0o600
    verified = l.json("verify", "named", "--read-data")
    assert verified["ok"] and verified["files"] == 3, verified
    write(home + "/r/deep/b.json", "5\n")
    verified = l.json("verify", "named", "--read-data", code=118)
    assert [os.path.basename(p["path"]) for p in verified["problems"]] == ["b.json"], verified


def test_a_killed_pull_goes_on_where_it_was(l):
    size = 400 << 20
    work = run_that_left(l, "cut", "echo a > a; mkdir d")
    source = work + "/d/weights"
    with open(source, "wb") as file:
        for _ in range(size >> 20):
            file.write(random.randbytes(1 << 20))
    with agent_that_cannot_run(l):
        parts = os.path.join(l.work, ".gpuctl-sftp-" + os.path.basename(os.path.dirname(work)))

        def come():
            names = os.listdir(parts) if os.path.isdir(parts) else []
            return [os.path.join(parts, name) for name in names
                    if not name.endswith(".blocks") and name != "lock" and
                    os.stat(os.path.join(parts, name)).st_size > (20 << 20)]

        child = l.start("cp", "cut:d", "./cut-home")
        eventually(lambda: come() or child.poll() is not None, "some of the file")
        child.kill()
        assert child.wait(DEADLINE_S) < 0, "it was over before it could be killed"
        child.communicate()
        assert not os.path.exists(l.work + "/cut-home"), "nothing is seen before it is whole"
        part = come()[0]
        there = os.stat(part).st_size
        # Damage after the first 10 MiB is found; the part before it is not sent again.
        with open(part, "r+b") as file:
            file.seek((10 << 20) + 5)
            byte = file.read(1)
            file.seek((10 << 20) + 5)
            file.write(bytes([byte[0] ^ 1]))
        done = l.run("--trace", "cp", "cut:d", "./cut-home")
        assert there > 10 << 20
        assert re.findall(rb"trace: sftp: (\d+) bytes", done.stderr) == [b"%d" % (size - (10 << 20))]
        assert read_bytes(l.work + "/cut-home/weights") == read_bytes(source)
        assert not os.path.exists(parts)


if __name__ == "__main__":
    run_tests(globals())

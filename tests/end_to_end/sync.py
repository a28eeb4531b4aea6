#!/usr/bin/env python3
"""sync, cp and data: over the real path: gpuctl, sshd on a socketpair, agent, job.

  sync.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import contextlib
import mmap
import os
import random
import re
import select
import shutil
import signal
import subprocess
import threading
import time

from runs import DEADLINE_S, Patience, open_gate, run_tests


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def read(path):
    return read_bytes(path).decode()


def eventually(condition, what):
    patience = Patience()
    while not condition():
        assert patience.lasts(), "never happened: " + what
        select.select([], [], [], 0.002)


def same_trees(a, b):
    return subprocess.run(["diff", "-r", a, b], stdout=subprocess.DEVNULL).returncode == 0


def work_of(l, name):
    for row in l.json("ps", "-a")["runs"]:
        if row["name"] in (name, name + "-1"):
            return os.path.join(l.root, "jobs", row["job_id"], "work")
    raise AssertionError("no run " + name)


def project(l, name, **files):
    """Makes a work directory, and starts a run that waits there."""
    directory = os.path.join(l.dir, name)
    for path, content in files.items():
        write(os.path.join(directory, path.replace("__", "/")), content)
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--name", name, "--workdir", directory, "--", "bash", "-c",
          "read line < " + gate)
    return directory, work_of(l, name), gate


def sync(l, name, *flags):
    return l.json("sync", name, *flags)


def pushed_bytes(done):
    return [int(count) for count in
            re.findall(rb"trace: push: (\d+) bytes", done.stderr)]


def test_sync_brings_what_changed_and_keeps_what_the_job_changed(l):
    home, work, gate = project(l, "threeway", a="1", b="2", c="3", d__x="4", d__y="5")
    assert sync(l, "threeway")["written"] == 0
    write(home + "/a", "changed here")
    write(home + "/new/deep", "added here")
    os.unlink(home + "/d/x")
    write(work + "/b", "changed by the job")
    write(work + "/out/result", "of the job")
    write(home + "/c", "changed on both sides, here")
    write(work + "/c", "changed on both sides, there")
    result = sync(l, "threeway")
    assert (result["written"], result["removed"], result["kept"]) == (2, 1, ["c"]), result
    assert read(work + "/a") == "changed here" and read(work + "/new/deep") == "added here"
    assert read(work + "/b") == "changed by the job" and read(work + "/out/result") == "of the job"
    assert read(work + "/c") == "changed on both sides, there"
    assert not os.path.exists(work + "/d/x") and read(work + "/d/y") == "5"
    # It is kept again, until the sides agree or the user decides.
    write(home + "/a", "again")
    assert sync(l, "threeway")["kept"] == ["c"]
    l.run("cp", home + "/c", "threeway:c")
    assert read(work + "/c") == "changed on both sides, here"
    write(home + "/a", "and again")
    assert sync(l, "threeway")["kept"] == []
    open_gate(gate)


def test_sync_to_a_run_that_has_ended(l):
    """Nobody would use what is sent."""
    home, work, gate = project(l, "ended", a="1")
    open_gate(gate)
    write(home + "/a", "2")
    # Nobody here has seen the end yet.
    job = os.path.dirname(work)
    eventually(lambda: b'"exited"' in read_bytes(job + "/lifecycle.jsonl"), "the job's end")
    eventually(lambda: l.run("sync", "ended", code=None).returncode == 1, "the node tells of the end")
    write(home + "/a", "3")
    for _ in range(2):
        done = l.run("sync", "ended", code=1)
        assert b"sync ended-1: it has ended, and nothing was sent" in done.stderr, done
        assert b"HINT: gpuctl launch --like ended-1 " in done.stderr, done
        assert read(work + "/a") in ("1", "2")
        l.run("wait", "ended")
    assert "has ended" in l.json("sync", "ended", code=1)["error"]["message"]


def test_a_watch_ends_when_there_is_something_for_an_ended_run(l):
    home, work, gate = project(l, "watched-end", a="1")
    child = l.start("sync", "watched-end", "--watch")
    open_gate(gate)
    l.run("wait", "watched-end")
    write(home + "/a", "2")
    _, err = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 1 and b"it has ended, and nothing was sent" in err, err
    assert read(work + "/a") == "1"


@contextlib.contextmanager
def appending(path):
    """Appends to a file all the time."""
    done = threading.Event()

    def work():
        with open(path, "ab", buffering=0) as file:
            while not done.is_set():
                file.write(b"more\n")
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_files_that_grow_are_taken_as_they_are(l):
    home, work, gate = project(l, "growing", a="1")
    write(home + "/train.log", random.randbytes(9 << 20))
    with appending(home + "/train.log"):
        write(home + "/a", "2")
        result = sync(l, "growing")
    assert result["written"] == 2 and result["grew"] in ([], ["train.log"]), result
    assert read(work + "/a") == "2"
    assert read_bytes(home + "/train.log").startswith(read_bytes(work + "/train.log"))
    # And the other way.
    write(work + "/out/job.log", random.randbytes(9 << 20))
    write(work + "/out/b", "3")
    with appending(work + "/out/job.log"):
        pulled = l.json("pull", "growing", "out/*", "--to", "grown")
        l.run("cp", "growing:out/job.log", "grown.log")
    assert [file["path"] for file in pulled["files"]] == ["work/out/b", "work/out/job.log"]
    for name in ("grown/out/job.log", "grown.log"):
        brought = read_bytes(os.path.join(l.work, name))
        assert len(brought) >= 9 << 20, len(brought)
        assert read_bytes(work + "/out/job.log").startswith(brought), name
    assert pulled["files"][1]["bytes"] == os.path.getsize(os.path.join(l.work, "grown/out/job.log"))
    open_gate(gate)


def test_a_file_that_is_written_again_all_the_time_holds_up_no_other(l):
    home, work, gate = project(l, "rewritten", a="1", busy="1")
    done = threading.Event()

    def rewrite(path):
        while not done.is_set():
            with open(path, "wb") as file:
                file.truncate(9 << 20)
                for size in range(9 << 20, 8 << 20, -1):
                    file.truncate(size)
                    if done.is_set():
                        break
    write(home + "/a", "2")
    write(work + "/out/b", "3")
    threads = [threading.Thread(target=rewrite, args=(path,))
               for path in (home + "/busy", work + "/out/busy")]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: os.path.exists(work + "/out/busy"), "a busy file")
        # Both find a moment of rest now and then.
        synced = l.run("sync", "rewritten", code=None)
        pulled = l.run("pull", "rewritten", "out/*", "--to", "rewritten", code=None)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    for tried, name in ((synced, b"busy"), (pulled, b"out/busy")):
        assert tried.returncode == 0 or (name in tried.stderr and
                                         b"changed while it was being read" in tried.stderr), tried
    assert read(work + "/a") == "2" and read(os.path.join(l.work, "rewritten/out/b")) == "3"
    assert synced.returncode == 0 or read(work + "/busy") == "1"
    open_gate(gate)


def test_what_a_new_rule_leaves_out_stays_with_the_job(l):
    home, work, gate = project(l, "ignored", a="1", b="1", data__x="1", data__deep__y="1", e_log="1")
    os.rename(home + "/e_log", home + "/e.log")
    sync(l, "ignored")
    write(home + "/.gpuctlignore", "data/\n*.log\n")
    os.unlink(home + "/b")
    result = sync(l, "ignored")
    assert result["removed"] == 1 and result["kept"] == [], result
    assert not os.path.exists(work + "/b")
    for path in ("data/x", "data/deep/y", "e.log"):
        assert read(work + "/" + path) == "1", path
    # Not even when the laptop loses them.
    shutil.rmtree(home + "/data")
    write(home + "/a", "2")
    assert sync(l, "ignored")["removed"] == 0 and read(work + "/data/x") == "1"
    # Without the rule they are removed as other files.
    write(home + "/.gpuctlignore", "")
    assert sync(l, "ignored")["removed"] == 2 and not os.path.exists(work + "/data")
    assert read(work + "/e.log") == "1"
    open_gate(gate)


def overwrite(path, offset, content):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(content)


def test_sync_asks_before_it_removes_what_another_directory_lacks(l):
    home, work, gate = project(l, "removing", a="1", d__b="2")
    away = home + ".away"
    os.rename(home, away)
    os.mkdir(home)
    refused = l.run("sync", "removing", code=2)
    assert b"is its disk mounted" in refused.stderr, refused.stderr
    other = os.path.join(l.dir, "removing-other")
    write(other + "/c", "3")
    refused = l.run("sync", "removing", "--workdir", other, code=2)
    assert b"was launched from" in refused.stderr, refused.stderr
    assert read(work + "/a") == "1" and read(work + "/d/b") == "2"
    result = sync(l, "removing", "--workdir", other, "-y")
    assert result["removed"] >= 2 and read(work + "/c") == "3", result
    assert not os.path.exists(work + "/a")
    os.rmdir(home)
    os.rename(away, home)
    assert sync(l, "removing")["written"] == 2
    open_gate(gate)


def test_sync_with_checksums_sees_what_a_mapping_wrote(l):
    home, work, gate = project(l, "mapped", model="0" * 4096)
    path = home + "/model"
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        mapped[0:1] = b"1"
        # gpuctl remembers the hash of a file that has not changed for two seconds.
        eventually(lambda: time.time() - os.stat(path).st_ctime > 2.5, "a file that rests")
        assert sync(l, "mapped")["written"] == 1
        before = os.stat(path)
        # The page is dirty already, so the file's times stay.
        mapped[0:1] = b"2"
        after = os.stat(path)
        if (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns):
            assert sync(l, "mapped")["written"] == 0
        assert sync(l, "mapped", "--checksum")["written"] == 1
        assert read(work + "/model")[0] == "2"
    open_gate(gate)


def interrupt_once_in_transfer(process, directory):
    """Ends a command by Ctrl-C while content comes to the directory. Returns what it said."""
    def begun():
        assert process.poll() is None, process.communicate()
        return os.path.isdir(directory) and any(
            name.startswith(".gpuctl-partial-") for name in os.listdir(directory))
    eventually(begun, "a transfer")
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    said = process.communicate()[1]
    assert process.returncode == 130, (process.returncode, said)
    return said


def test_ctrl_c_in_a_transfer_says_what_goes_on(l):
    home, work, gate = project(l, "cut", a="1")
    content = random.randbytes(100 << 20)
    write(home + "/large", content)
    said = interrupt_once_in_transfer(l.start("sync", "cut", "-y"), os.path.dirname(work))
    assert b"sync cut-1: interrupted" in said and b"gpuctl sync cut-1 goes on" in said, said
    assert b"what was sent is kept on local" in said, said
    assert read(work + "/a") == "1" and not os.path.exists(work + "/large")
    assert sync(l, "cut", "-y")["written"] == 1
    to = os.path.join(l.work, "cut-home")
    said = interrupt_once_in_transfer(l.start("pull", "cut", "large", "--to", "cut-home"), to)
    assert b"pull cut-1: interrupted" in said and b"gpuctl pull cut-1 large --to DIR" in said, said
    assert b"all stays on local, and what has come so far stays in cut-home" in said, said
    l.run("pull", "cut", "large", "--to", "cut-home")
    assert read_bytes(to + "/large") == content
    open_gate(gate)


def test_sync_of_a_large_file(l):
    home, work, gate = project(l, "largefile", large=random.randbytes(20 << 20))
    # The first look reads it; from then on its times tell whether the job wrote to it.
    # Only what is around a change is sent.
    for step, offset in enumerate([0, 9 << 20, 19 << 20]):
        overwrite(home + "/large", offset, b"laptop%d" % step)
        result = sync(l, "largefile")
        assert (result["written"], result["kept"]) == (1, []), result
        assert 0 < result["bytes_sent"] < 256 << 10, result
        assert read_bytes(work + "/large") == read_bytes(home + "/large")
    for offset in (0, 9 << 20):
        content = read_bytes(home + "/large")
        write(home + "/large", content[:offset] + b"inserted" + content[offset:])
        result = sync(l, "largefile")
        assert result["written"] == 1 and 0 < result["bytes_sent"] < 256 << 10, result
        assert read_bytes(work + "/large") == read_bytes(home + "/large")
    overwrite(work + "/large", 5, b"job")
    there = read_bytes(work + "/large")
    overwrite(home + "/large", 0, b"laptop again")
    result = sync(l, "largefile")
    assert (result["written"], result["kept"]) == (0, ["large"]), result
    assert read_bytes(work + "/large") == there
    open_gate(gate)


def test_sync_watch_follows_edits(l):
    home, work, gate = project(l, "watched", a="1")
    write(home + "/.env", "SECRET=1")
    child = l.start("sync", "watched", "--watch")
    said = b""
    try:
        write(home + "/a", "second")
        eventually(lambda: read(work + "/a") == "second", "the first edit")
        write(home + "/sub/b", "third")
        eventually(lambda: os.path.exists(work + "/sub/b"), "the second edit")
        write(home + "/id_rsa", "SECRET=2")
        write(home + "/a", "fourth")
        eventually(lambda: read(work + "/a") == "fourth", "the third edit")
        # This look begins after the last one, and so sees what that one missed.
        write(home + "/a", "fifth")
        eventually(lambda: read(work + "/a") == "fifth", "the fourth edit")
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=DEADLINE_S)[1]
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()
    # It reports once for each set of secrets, however often it looks.
    held = [line for line in said.splitlines() if b"held back" in line]
    assert len(held) == 2 and b"id_rsa" in held[1] and b"id_rsa" not in held[0], said
    open_gate(gate)


def test_sync_watch_outlasts_a_file_that_is_being_written(l):
    home, work, gate = project(l, "restless", a="1", log="")
    child = l.start("sync", "restless", "--watch")
    stop = threading.Event()

    def scribble():
        with open(home + "/log", "r+b", buffering=0) as file:
            file.truncate(48 << 20)
            while not stop.is_set():
                file.seek(5)
                file.write(b"x")

    writer = threading.Thread(target=scribble)
    try:
        while b"watching" not in child.stderr.readline():
            assert child.poll() is None
        writer.start()
        line = child.stderr.readline()
        while b"changed while it was being read: log; trying again" not in line:
            assert line, "the watch ended"
            line = child.stderr.readline()
        stop.set()
        writer.join()
        write(home + "/a", "second")
        eventually(lambda: read(work + "/a") == "second", "the edit")
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE_S) == 0
    finally:
        stop.set()
        child.kill()
        child.communicate()
    open_gate(gate)


def test_cp_both_ways(l):
    home, work, gate = project(l, "copies", a="1")
    source = os.path.join(l.dir, "source")
    write(source + "/one", "1\n")
    write(source + "/sub/two", "2\n")
    os.symlink("one", source + "/link")
    os.chmod(source + "/one", 0o750)
    l.run("cp", source + "/one", "copies:")
    l.run("cp", source + "/one", "copies:renamed")
    l.run("cp", source + "/one", "copies:new/folder/")
    l.run("cp", source, "copies:tree")
    l.run("cp", source, "copies:into/")
    for path in ("one", "renamed", "new/folder/one"):
        assert read(os.path.join(work, path)) == "1\n", path
    assert os.stat(work + "/renamed").st_mode & 0o777 == 0o750
    assert same_trees(source, work + "/tree") and same_trees(source, work + "/into/source")
    write(work + "/one", "of the job")
    l.run("cp", source + "/one", "copies:one")
    assert read(work + "/one") == "1\n"

    os.chdir(l.work)
    l.run("cp", "copies:renamed", ".")
    l.run("cp", "copies:renamed", "other")
    l.run("cp", "copies:tree", "copy")
    l.run("cp", "copies:tree/", "deep/er/")
    assert read(l.work + "/renamed") == "1\n" and read(l.work + "/other") == "1\n"
    assert same_trees(source, l.work + "/copy") and same_trees(source, l.work + "/deep/er/tree")
    # A folder with one file of the same name is a folder.
    write(work + "/same/same", "inner")
    l.run("cp", "copies:same", "here")
    assert read(l.work + "/here/same") == "inner"
    for arguments, code, words in (
            (("cp", "missing", "copies:x"), 2, b"no such file"),
            (("cp", "copies:missing", "x"), 1, b"No such file"),
            (("cp", "copies:../x", "x"), 2, b"leads out"),
            (("cp", "a", "b"), 2, b"RUN:PATH"),
            (("cp", "nobody:x", "y"), 2, b"nobody"),
            (("cp", source + "/one", "copies:tree"), 1, b"directory"),
            (("cp", "copies:renamed", "copy/sub"), 0, b"")):
        done = l.run(*arguments, code=None)
        assert done.returncode == code and words in done.stderr, (arguments, done)
    assert read(l.work + "/copy/sub/renamed") == "1\n"
    open_gate(gate)


def test_data_is_sent_once_and_shared(l):
    data = os.path.join(l.dir, "dataset")
    write(data + "/train.txt", "some data\n" * 1000)
    write(data + "/more/x", "x")
    show = ("bash", "-c", "cat sets/math/more/x; stat -c %h sets/math/train.txt")
    first = l.run("--trace", "launch", "-y", "--no-workdir", "--data", data + "=sets/math", "--",
                  *show)
    second = l.run("--trace", "launch", "-y", "--no-workdir", "--data", data + "=sets/math", "--",
                   *show)
    assert pushed_bytes(first) == [10_001] and pushed_bytes(second) == [], (first, second)
    assert first.stdout == b"x2\n" and second.stdout == b"x3\n", (first, second)
    # Content that a job wrote to is not given to the next one.
    third = l.run("launch", "-y", "--no-workdir", "--data", data + "=sets/math", "--", "bash", "-c",
                  "echo spoiled >> sets/math/train.txt")
    assert third.returncode == 0
    fourth = l.run("--trace", "launch", "-y", "--no-workdir", "--data", data + "=d", "--", "tail",
                   "-n", "1", "d/train.txt")
    assert fourth.stdout == b"some data\n" and sum(pushed_bytes(fourth)) >= 10_000, fourth
    # Data takes the place of a directory of the work directory; that is said.
    write(l.work + "/sets/own", "small")
    covered = l.run("launch", "-y", "--data", data + "=sets", "--", "ls", "sets")
    assert covered.stdout == b"more\ntrain.txt\n", covered
    assert b"sets of the work directory stays here: the job gets " + data.encode() in covered.stderr
    done = l.run("launch", "--data", "nowhere=d", "--", "true", code=2)
    assert b"no such directory" in done.stderr
    done = l.run("launch", "--data", data + "=../d", "--", "true", code=2)
    assert b"below the work directory" in done.stderr


def large_tree(l, name, size):
    directory = os.path.join(l.dir, name)
    os.mkdir(directory)
    with open(directory + "/weights.bin", "wb") as file:
        for _ in range(size >> 20):
            file.write(random.randbytes(1 << 20))
    for number in range(50):
        write("%s/small/%02d" % (directory, number), "%d" % number)
    return directory


def receivers(l):
    for pid in l.node_pids():
        with contextlib.suppress(OSError):
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                if b"receive" in file.read().split(b"\0"):
                    yield pid


def staged_bytes(l):
    total = 0
    for folder, _, names in os.walk(l.root):
        if ".gpuctl-partial-" in folder and "/tree" in folder:
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(folder, name)).st_blocks * 512
    return total


def hold_in_mid_push(l, begin):
    """Starts a push and stops its receivers when a part has arrived."""
    child = begin()
    eventually(lambda: staged_bytes(l) > 20_000_000 or child.poll() is not None, "some of the push")
    for pid in receivers(l):
        os.kill(pid, signal.SIGSTOP)
    assert child.poll() is None, "the push was over before it could be held"
    return child


def test_a_killed_client_goes_on_where_it_was(l):
    source = large_tree(l, "killed", 500 << 20)
    home, work, gate = project(l, "resumes", a="1")
    child = hold_in_mid_push(l, lambda: l.start("cp", source, "resumes:got"))
    child.kill()
    child.communicate()
    there = staged_bytes(l)
    for pid in list(receivers(l)):
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not list(receivers(l)), "the end of the receivers")
    assert not os.path.exists(work + "/got"), "nothing is seen under its name before it is whole"
    done = l.run("--trace", "cp", source, "resumes:got")
    assert same_trees(source, work + "/got")
    total = sum(os.stat(os.path.join(folder, name)).st_size
                for folder, _, names in os.walk(source) for name in names)
    # Complete parts were not sent again.
    assert sum(pushed_bytes(done)) <= total - there + (16 << 20), (pushed_bytes(done), there, total)
    open_gate(gate)


def test_a_killed_receiver_is_replaced(l):
    source = large_tree(l, "bereft", 300 << 20)
    home, work, gate = project(l, "replaced", a="1")
    child = hold_in_mid_push(l, lambda: l.start("cp", source, "replaced:got"))
    for pid in list(receivers(l)):
        os.kill(pid, signal.SIGKILL)
    out, err = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0, err
    assert same_trees(source, work + "/got")
    open_gate(gate)


def test_an_upgrade_in_mid_push(l):
    source = large_tree(l, "upgrade", 300 << 20)
    home, work, gate = project(l, "upgraded", a="1")
    child = hold_in_mid_push(l, lambda: l.start("cp", source, "upgraded:got"))
    held = list(receivers(l))
    # A newer build of the same programs takes the node over.
    newer = os.path.join(l.dir, "newer")
    os.mkdir(newer)
    for name in ("gpuctl", "gpuctl-agent", "gpuctl-shim"):
        shutil.copy(os.path.join(os.path.dirname(l.gpuctl), name), newer)
    with open(newer + "/gpuctl-agent", "ab") as file:
        file.write(b"newer")
    current = os.readlink(l.root + "/bin/current")
    done = subprocess.run([newer + "/gpuctl", "launch", "-y", "--no-workdir", "--", "echo", "new"],
                          cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=DEADLINE_S)
    assert done.stdout == b"new\n", done
    eventually(lambda: os.readlink(l.root + "/bin/current") != current, "the upgrade")
    for pid in held:
        os.kill(pid, signal.SIGCONT)
    out, err = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0 and same_trees(source, work + "/got"), err
    open_gate(gate)


def test_content_that_was_swept_is_sent_again(l):
    source = os.path.join(l.dir, "swept")
    write(source + "/a", "7")
    first = l.run("--trace", "launch", "-y", "--workdir", source, "--", "cat", "a")
    again = l.run("--trace", "launch", "-y", "--workdir", source, "--", "cat", "a")
    trees = os.path.join(l.root, "blobs/trees")
    for name in os.listdir(trees):
        path = os.path.join(trees, name)
        # The look at the store finds the manifest; the copy does not find the files.
        if os.path.isdir(path) and os.path.exists(path + "/a"):
            os.unlink(path + "/a")
    third = l.run("--trace", "launch", "-y", "--workdir", source, "--", "cat", "a")
    assert [run.stdout for run in (first, again, third)] == [b"7"] * 3
    pushes = [pushed_bytes(run) for run in (first, again, third)]
    assert pushes == [[1], [], [1]], (pushes, third)


def test_two_clients_push_the_same_tree(l):
    source = large_tree(l, "twice", 60 << 20)
    children = [l.start("launch", "-y", "--name", "twin%d" % number, "--workdir", source, "--",
                        "sh", "-c", "ls | wc -l") for number in range(2)]
    for child in children:
        out, err = child.communicate(timeout=DEADLINE_S)
        assert child.returncode == 0 and out == b"2\n", (out, err)
    for number in range(2):
        assert same_trees(source, work_of(l, "twin%d" % number))


if __name__ == "__main__":
    run_tests(globals())

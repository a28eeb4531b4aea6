#!/usr/bin/env python3
"""Input and output of exec, and what cp and launch refuse, over the real path.

  exec_cp.py GPUCTL FAKE_JOB [TEST...]
"""
import os
import subprocess

from runs import DEADLINE_S, held_job, open_gate, run_tests
from sync import write


def job_work(l, name):
    run = [run for run in l.json("ps", "-a")["runs"] if run["name"] == name][0]
    return os.path.join(l.root, "jobs", run["job_id"], "work")


def shell(l, line, *args):
    """Runs a line of bash, in which "$@" is gpuctl with `args`."""
    return subprocess.run(["bash", "-c", line, "bash", "timeout", str(DEADLINE_S), l.gpuctl, *args],
                          cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)


def test_exec_prints_while_its_input_waits(l):
    gate = held_job(l, "both-ways-1")
    size = 3_000_000
    write(os.path.join(l.dir, "in"), os.urandom(size))
    done = shell(l, "\"$@\" < %s/in | wc -c" % l.dir, "exec", "both-ways-1", "--", "od", "-v",
                 "-An", "-tx1")
    assert int(done.stdout) == size * 3 + size // 16, (done.stdout, done.stderr)
    # A command that ends before its input does.
    done = shell(l, "\"$@\" < /dev/zero", "exec", "both-ways-1", "--", "head", "-c", "3")
    assert (done.returncode, done.stdout) == (0, b"\0\0\0"), done
    silent, writer = os.pipe()
    done = subprocess.run([l.gpuctl, "exec", "both-ways-1", "--", "echo", "x"], env=l.env,
                          stdin=silent, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (0, b"x\n"), done
    os.close(silent)
    os.close(writer)
    open_gate(gate)
    l.run("wait", "both-ways-1")


def test_closed_and_unreadable_input(l):
    gate = held_job(l, "closed-1")
    cat = ["exec", "closed-1", "--", "sh", "-c", "cat; echo end"]
    for closed in ("<&-", "<&- 2>&-"):
        done = shell(l, "\"$@\" " + closed, *cat)
        assert (done.returncode, done.stdout) == (0, b"end\n"), (closed, done)
    done = shell(l, "\"$@\" 2>&- | cat", *cat)
    assert done.stdout == b"end\n", done
    # nohup gives a stdin that only takes bytes.
    done = shell(l, "\"$@\" 0>/dev/null", *cat)
    assert (done.returncode, done.stdout) == (0, b"end\n"), done
    done = shell(l, "\"$@\" < /", "exec", "closed-1", "--", "cat")
    assert done.returncode == 2 and b"read the input: Is a directory" in done.stderr, done
    done = shell(l, "\"$@\" >&-", *cat)
    assert done.returncode == 1 and b"write the output: Bad file" in done.stderr, done
    open_gate(gate)
    l.run("wait", "closed-1")


def test_run_file_that_is_no_file(l):
    os.mkfifo(os.path.join(l.work, "ff"))
    for path, word in (("ff", b"ff: it is a FIFO"), (".", b".: it is a directory"),
                       ("/dev/zero", b"/dev/zero: it is a device")):
        done = l.run("launch", path, "--dry-run", code=2)
        assert word in done.stderr, done.stderr
    for line in ("\"$@\" <(echo 'run: \"true\"')", "echo 'run: \"true\"' | \"$@\" /dev/stdin"):
        done = shell(l, line + " --no-workdir --dry-run", "launch")
        assert done.returncode == 0, done
    os.unlink(os.path.join(l.work, "ff"))


def test_cp_keeps_what_is_no_file_on_the_machine(l):
    gate = held_job(l, "kinds-1")
    work = job_work(l, "kinds-1")
    write(os.path.join(l.work, "new"), b"new")
    write(os.path.join(work, "tgt"), b"old")
    os.symlink("tgt", os.path.join(work, "lnk"))
    os.mkfifo(os.path.join(work, "p"))
    os.mkdir(os.path.join(work, "sub"))
    os.symlink("none", os.path.join(work, "sub", "new"))
    for name in ("lnk", "p", "sub/"):
        done = l.run("cp", "new", "kinds-1:" + name, code=1)
        assert b"no ordinary file, and stays" in done.stderr, done.stderr
    assert os.readlink(os.path.join(work, "lnk")) == "tgt"
    assert os.readlink(os.path.join(work, "sub", "new")) == "none"
    l.run("cp", "new", "kinds-1:tgt")
    with open(os.path.join(work, "lnk"), "rb") as file:
        assert file.read() == b"new"
    # The other direction says what it is.
    done = l.run("cp", "kinds-1:lnk", "home", code=None)
    assert done.returncode != 0 and b"it is a symlink to tgt; name" in done.stderr, done.stderr
    done = l.run("cp", "kinds-1:p", "home", code=None)
    assert done.returncode != 0 and b"it is a FIFO" in done.stderr, done.stderr
    os.mkfifo(os.path.join(l.work, "fifo"))
    done = l.run("cp", "fifo", "kinds-1:x", code=2)
    assert b"fifo: it is a FIFO, no file or directory" in done.stderr, done.stderr
    open_gate(gate)
    l.run("wait", "kinds-1")


def test_verify_says_that_the_output_is_checked_by_size(l):
    l.run("launch", "--no-workdir", "--name", "sized-1", "--", "echo", "hello")
    assert b"output 6 B (all of it) by its size, " in l.run("verify", "sized-1",
                                                             "--read-data").stderr
    assert b"output 6 B (all of it), " in l.run("verify", "sized-1").stderr


if __name__ == "__main__":
    run_tests(globals())

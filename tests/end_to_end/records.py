#!/usr/bin/env python3
"""The record of a run: show, diff, tag, ps, launch --like and logs --grep, over the real path.

  records.py GPUCTL FAKE_JOB [TEST...]
"""
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time

from runs import DEADLINE_S, Patience, Terminal, held_job, open_gate, run_tests
from sync import eventually, read_bytes, write


def git(where, *args):
    return subprocess.run(
        ["git", "-C", where, "-c", "user.name=Ada", "-c", "user.email=ada@lovelace.example",
         *args], check=True, stdout=subprocess.PIPE, timeout=DEADLINE_S,
        env={"PATH": os.environ["PATH"], "HOME": where, "LC_ALL": "C"}).stdout.decode()


def repository(l, name):
    """Makes a repository with one commit below the laptop's work directory."""
    root = os.path.join(l.work, name)
    write(os.path.join(root, "train.py"), b"print('old')\n")
    write(os.path.join(root, ".gitignore"), b"out/\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    return root


def state_files(l):
    for folder, _, files in os.walk(l.env["GPUCTL_STATE_DIR"]):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                yield name, file.read()


def test_the_record_brings_back_what_ran(l):
    root = repository(l, "repo")
    commit = git(root, "rev-parse", "HEAD").strip()
    l.run("launch", "--workdir", root, "--name", "clean", "--", "cat", "train.py")
    shown = l.json("show", "clean")
    assert shown["git"]["commit"] == commit and shown["git"]["clean"] is True, shown
    assert (shown["exit_code"], shown["source"], shown["git"]["branch"], shown["status"]) == (
        0, "job", "main", "succeeded"), shown
    done = l.run("show", "clean", "--diff")
    assert done.stdout == b"" and b"has no diff" in done.stderr, done

    write(os.path.join(root, "train.py"), b"print('new')\n")
    write(os.path.join(root, "lib/odd name\xfc.py"), b"x = 1")
    write(os.path.join(root, ".env"), b"TOKEN=canary-77\n")
    write(os.path.join(root, "out/large"), b"ignored\n")
    l.run("launch", "--workdir", root, "--name", "dirty", "-e", "LR=1e-3", "-e",
          "WANDB_API_KEY=hidden-78", "--secret", "HF_TOKEN", "--note", "first try", "--",
          "cat", "train.py", HF_TOKEN="canary-79")
    page = l.run("show", "dirty").stdout.decode()
    for words in (commit[:12] + " on main, 2 files changed", "LR=1e-3", "cat train.py", "first try",
                  "HF_TOKEN", "0, the job's own", os.path.join(l.env["GPUCTL_STATE_DIR"])):
        assert words in page, (words, page)
    for secret in ("canary-77", "hidden-78", "canary-79", "ignored"):
        assert secret not in page + l.run("show", "dirty", "--json").stdout.decode(), secret
    for name, content in state_files(l):
        assert b"canary-77" not in content and b"canary-79" not in content, name
    # Applied to the commit, the diff gives the files that ran.
    diff = l.run("show", "dirty", "--diff").stdout
    other = os.path.join(l.dir, "other")
    git(l.dir, "clone", "-q", root, other)
    write(os.path.join(l.dir, "kept.diff"), diff)
    git(other, "apply", os.path.join(l.dir, "kept.diff"))
    for path in ("train.py", "lib/odd name\xfc.py"):
        with open(os.path.join(root, path), "rb") as ours, open(os.path.join(other, path), "rb") as theirs:
            assert ours.read() == theirs.read(), path
    # What the machine has is where show says.
    where = l.json("show", "dirty")["files"]
    assert os.path.isdir(where["on_node"]) and os.path.isdir(where["mirror"]), where
    with open(os.path.join(where["on_node"], "work/train.py"), "rb") as file:
        assert file.read() == b"print('new')\n"


def test_two_runs_are_compared(l):
    root = repository(l, "compared")
    l.run("launch", "--workdir", root, "--name", "base", "-e", "LR=1e-3", "--", "sh", "-c",
          "echo $LR; exit $CODE", "-e", code=0)
    write(os.path.join(root, "train.py"), b"print('other')\n")
    done = l.run("launch", "--like", "base", "-e", "LR=3e-4", "-e", "CODE=5", code=5)
    assert done.stdout == b"3e-4\n", done
    runs = l.json("ps", "--limit", "1")["runs"]
    name = runs[0]["name"]
    assert name == "base-2", runs
    found = {one["field"]: (one["before"], one["after"])
             for one in l.json("diff", "base-1", name)["differences"]}
    assert found["env.LR"] == ("1e-3", "3e-4") and found["env.CODE"] == (None, "5"), found
    assert found["status"] == ("succeeded", "failed") and found["diff"][0] == "clean", found
    assert "content" in found and "commit" not in found and "command" not in found, found
    compared = l.json("diff", "base-1", name)
    assert (compared["files"], compared["files_unknown"]) == (["train.py"], None), compared
    table = l.run("diff", "base-1", name).stdout.decode()
    assert "env.LR" in table and "3e-4" in table, table
    assert "files that differ: train.py\n" in table, table
    patch = l.run("diff", "base-1", name, "--patch").stdout.decode()
    assert "++print('other')" in patch, patch
    assert l.json("show", name)["like"] == l.json("show", "base-1")["run_id"]
    # The earlier command goes, whatever its kind.
    done = l.run("launch", "--like", name, "--run", "echo script $LR")
    assert done.stdout == b"script 3e-4\n", done
    done = l.run("launch", "--like", "base", "--", "sh", "-c", "echo command $LR")
    assert done.stdout == b"command 3e-4\n", done
    plan = l.json("launch", "--like", "base-1", "--dry-run", "--time", "5m")["plan"]
    assert plan["limits"]["time_s"] == 300 and plan["env"] == ["LR"], plan
    l.run("launch", "--like", "base-1", "run.yaml", code=2)
    done = l.run("launch", "--like", "nobody", code=2)
    assert b"no run \"nobody\"" in done.stderr, done.stderr


def test_a_resumed_run_keeps_its_tags_and_has_a_record_of_its_own(l):
    root = repository(l, "resumed")
    l.run("launch", "--workdir", root, "--name", "resumed", "--tag", "long", "--note", "go on",
          "--", "sh", "-c", "exit 3", code=3)
    write(os.path.join(root, "train.py"), b"print('repaired')\n")
    l.run("resume", "resumed-1", "--anew", code=3)
    first, second = l.json("show", "resumed-1"), l.json("show", "resumed-2")
    assert second["resumed_from"] == first["run_id"], second
    assert (second["tags"], second["note"]) == (["long"], "go on"), second
    assert first["git"]["clean"] is True and second["git"]["changed"] == 1, (first, second)
    assert b"repaired" in l.run("show", "resumed-2", "--diff").stdout
    assert "resumed      resumed-1\n" in l.run("show", "resumed-2").stdout.decode()


def test_tags_find_runs_again(l):
    for count in (1, 2, 3):
        l.run("launch", "--no-workdir", "--name", "swept", "--tag", "sweep", "--tag",
              "n=%d" % count, "--", "true")
    assert l.run("ps", "--tag", "sweep", "-q").stdout == b"swept-3\nswept-2\nswept-1\n"
    assert l.run("ps", "--tag", "n=2", "-q").stdout == b"swept-2\n"
    assert l.run("ps", "--tag", "sweep", "--since", "1d", "--limit", "2", "-q").stdout == \
        b"swept-3\nswept-2\n"
    assert l.run("tag", "swept-2", "best", "--remove", "sweep").stdout == b"best\nn=2\n"
    assert b"best n=2" in l.run("ps", "--tag", "best", "-o", "wide").stdout
    assert l.run("ps", "--tag", "sweep", "-q").stdout == b"swept-3\nswept-1\n"
    # Names go to the next command.
    names = l.run("ps", "--tag", "sweep", "-q").stdout.decode().split()
    l.run("rm", "--forget", *names)
    assert l.run("ps", "--tag", "sweep", "-q").stdout == b""
    done = l.run("launch", "--no-workdir", "--tag", "two words", "--", "true", code=2)
    assert b"--tag" in done.stderr and b"HINT" in done.stderr, done.stderr
    # A live run counts as one that has not ended.
    gate = held_job(l, "live-1", "--tag", "best")
    assert l.run("ps", "--tag", "best", "--live", "-q").stdout == b"live-1\n"
    assert l.run("ps", "-q").stdout == b"live-1\n"
    open_gate(gate)
    l.run("wait", "live-1")


def test_a_status_finds_runs(l):
    for name, code in (("good", 0), ("bad", 3), ("worse", 4)):
        l.run("launch", "--no-workdir", "--name", name, "--tag", "stat", "--", "sh", "-c", "exit %d" % code, code=code)
    gate = held_job(l, "held-1", "--tag", "stat")
    names = lambda *flags: l.run("ps", "-q", "--tag", "stat", *flags).stdout.split()  # noqa: E731
    assert names("--status", "failed") == [b"worse-1", b"bad-1"], names("--status", "failed")
    assert names("--status", "failed,running") == [b"held-1", b"worse-1", b"bad-1"]
    assert names("--status", "failed", "--status", "Succeeded") == [b"worse-1", b"bad-1", b"good-1"]
    assert names("--status", "failed", "--limit", "1") == [b"worse-1"]
    assert names("--status", "failed", "--live") == [] and names("--status", "lost") == []
    assert [run["status"] for run in l.json("ps", "--status", "running")["runs"]] == ["running"]
    table = l.run("ps", "--status", "failed").stdout
    assert b"bad-1" in table and b"good-1" not in table, table
    for wrong in ("faild", "", "failed,lots"):
        done = l.run("ps", "--status", wrong, code=2)
        assert b"--status" in done.stderr and b"succeeded" in done.stderr.split(b"HINT")[1], done
    assert b'did you mean "failed"?' in l.run("ps", "--status", "faild", code=2).stderr
    open_gate(gate)
    l.run("wait", "held-1")
    # What has ended meanwhile is asked for.
    gate = held_job(l, "held-2", "--tag", "stat")
    open_gate(gate)
    eventually(lambda: names("--status", "succeeded")[0] == b"held-2", "held-2 has ended")


def test_the_environment_of_a_job(l):
    run = ["launch", "--no-workdir", "--name", "env"]
    shows = ["--", "sh", "-c", 'echo "$FROM_HERE,$EMPTY_HERE,$GIVEN"']
    done = l.run(*run, "-e", "FROM_HERE", "-e", "EMPTY_HERE", "-e", "GIVEN=a b=c", *shows,
                 FROM_HERE="as docker does", EMPTY_HERE="")
    assert done.stdout == b"as docker does,,a b=c\n", done
    for typed, words in ((["-e", "NOT_HERE"], b"this environment has no variable of that name; write NOT_HERE=VALUE"),
                         (["-e", "LR 3"], b'"LR 3" is not NAME=VALUE; an = goes between the two: LR=3'),
                         (["-e", "LR: 3 4"], b"an = goes between the two: 'LR=3 4'")):
        done = l.run(*run, *typed, *shows, code=2)
        assert words in b" ".join(done.stderr.split()), done


def test_pages_are_broken_between_words(l):
    for name, word in (("first", "alpha"), ("second", "beta")):
        l.run("launch", "--no-workdir", "--name", name, "-e", "WORDS=" + " ".join([word] * 30), "--note",
              " ".join(["note"] * 40), "--", "true")
    for columns in (80, 50):
        terminal = Terminal(l, "show", "first", columns=columns)
        assert terminal.finish() == 0
        lines = terminal.text.decode().replace("\r\n", "\n").split("\n")
        # Paths stay whole.
        assert all(len(line) <= columns or "/" in line for line in lines), lines
        assert any(line.startswith("             note") and line.strip().startswith("note") for line in lines), lines
        terminal = Terminal(l, "diff", "first", "second", columns=columns)
        assert terminal.finish() == 0
        lines = terminal.text.decode().replace("\r\n", "\n").split("\n")
        assert all(len(line) <= columns for line in lines), lines
        assert any("first-1" in line and "alpha alpha" in line for line in lines), lines
        assert any("second-1" in line and "beta beta" in line for line in lines), lines
    assert b" ".join([b"note"] * 40) in l.run("show", "first").stdout


def test_several_tag_one_run_at_once(l):
    l.run("launch", "--no-workdir", "--name", "crowded", "--", "true")
    taggers = [l.start("tag", "crowded", "t%d" % count) for count in range(8)]
    for tagger in taggers:
        _, err = tagger.communicate(timeout=DEADLINE_S)
        assert tagger.returncode == 0, err
    assert l.json("show", "crowded")["tags"] == ["t%d" % count for count in range(8)]


def test_packages_are_asked_for_and_recorded(l):
    root = repository(l, "packaged")
    # What a job makes itself: an environment without pip.
    site = "lib/python%d.%d/site-packages" % sys.version_info[:2]
    script = ("mkdir -p .venv/bin .venv/%s; ln -s $(readlink -f %s) .venv/bin/python; "
              "printf 'home = %s\\ninclude-system-site-packages = false\\n' > .venv/pyvenv.cfg; "
              "for one in torch-2.6.0 Numpy-$VERSION; do mkdir .venv/%s/$one.dist-info; "
              "printf 'Metadata-Version: 2.1\\nName: %%s\\nVersion: %%s\\n' ${one%%-*} ${one#*-} "
              "> .venv/%s/$one.dist-info/METADATA; done; echo 'print(1/0)' > importlib.py" % (
                  site, sys.executable, os.path.dirname(os.path.realpath(sys.executable)), site,
                  site))
    for count, version in ((1, "1.26"), (2, "2.0")):
        l.run("launch", "--workdir", root, "--name", "packaged", "-e", "VERSION=" + version, "--run",
              script)
        packages = l.run("show", "packaged-%d" % count, "--packages").stdout.decode().splitlines()
        assert packages == ["python==%d.%d.%d" % sys.version_info[:3], "Numpy==" + version,
                            "torch==2.6.0"], packages
    found = {one["field"]: (one["before"], one["after"])
             for one in l.json("diff", "packaged-1", "packaged-2")["differences"]}
    assert found["package.Numpy"] == ("1.26", "2.0") and "package.torch" not in found, found
    assert "packages     3 of Python" in l.run("show", "packaged-1").stdout.decode()
    # Recorded, they outlive the machine's copy.
    l.run("rm", "-f", "packaged-1")
    assert b"torch==2.6.0" in l.run("show", "packaged-1", "--packages").stdout
    l.run("launch", "--no-workdir", "--name", "plain", "--", "true")
    l.run("rm", "-f", "plain-1")
    done = l.run("show", "plain", "--packages", code=None)
    assert done.returncode != 0 and b"is gone" in done.stderr and b"HINT" in done.stderr, done


def test_an_answer_about_packages_that_is_something_else(l):
    for name, script in (("hostile-python", "printf 'a==1\\n\\033[31mb==2\\n'"),
                         ("endless-python", "yes a==1"), ("silent-python", "exit 0"),
                         ("failing-python", "exit 3")):
        l.run("launch", "--no-workdir", "--name", name, "--run",
              "mkdir -p .venv/bin; cat > .venv/bin/python <<'END'\n#!/bin/sh\n%s\nEND\n"
              "chmod +x .venv/bin/python" % script)
        done = l.run("show", name, "--packages", code=None)
        assert done.returncode == 1 and done.stdout == b"" and b"HINT" in done.stderr, done
        assert b"\x1b" not in done.stderr, done
        assert l.json("show", name)["packages"] is None


def test_a_python_that_hangs_ends_with_the_question(l):
    pid = os.path.join(l.dir, "hanging.pid")
    l.run("launch", "--no-workdir", "--name", "hanging", "--run",
          "mkdir -p .venv/bin; printf '#!/bin/sh\\necho $$ > %s\\nexec sleep 600\\n' "
          "> .venv/bin/python; chmod +x .venv/bin/python" % pid)
    asking = l.start("show", "hanging", "--packages")
    patience = Patience()
    while not os.path.exists(pid) or not read_bytes(pid):
        assert patience.lasts() and asking.poll() is None, asking.communicate()
        time.sleep(0.02)
    asking.kill()
    asking.communicate()
    hanging = int(read_bytes(pid))
    while os.path.exists("/proc/%d" % hanging):
        assert patience.lasts(), "it lives on"
        time.sleep(0.02)


def test_logs_prints_chosen_lines(l):
    l.run("launch", "--no-workdir", "--name", "chatty", "--", "bash", "-c",
          "for i in 1 2 3; do echo step $i; echo noise; "
          "echo '{\"type\":\"step\",\"step\":'$i'}' >> $GPUCTL_METRICS; sleep 0.3; done; "
          "printf '\\377 Step 4\\r\\nno end step 5'")
    assert l.run("logs", "chatty", "--grep", "(?i)step \\d").stdout == \
        b"step 1\nstep 2\nstep 3\n\xff Step 4\r\nno end step 5\n"
    assert l.run("logs", "chatty", "--grep", "^step", "-n", "1").stdout == b"step 3\n"
    lines = l.run("logs", "chatty", "--timestamps").stdout.split(b"\n")[:-1]
    times = [line.split(b" ", 1)[0] for line in lines]
    assert times == sorted(times) and len(set(times)) >= 3, lines
    assert lines[0].endswith(b"Z step 1") and lines[2].endswith(b"Z step 2"), lines
    # As grep, it says by its exit code that there is none; with the whole output here, or without.
    for flags in ([], ["-f"], ["--offline"], ["-n", "1"], ["--timestamps"]):
        done = l.run("logs", "chatty", "--grep", "absent", *flags, code=1)
        assert done.stdout == b"" and b"no line of chatty-1 matches" in done.stderr, done
        assert l.run("logs", "chatty", "--grep", "absent", "-q", *flags, code=1).stderr == b""
    assert l.run("logs", "chatty", "--grep", "step", "-n", "0").stdout == b""
    assert l.run("logs", "chatty", "--grep", "^step 3", "-f").stdout == b"step 3\n"
    for bad in (["--grep", "("], ["--grep", ""], ["--grep", "(", "-f"], ["--timestamps", "-f"]):
        done = l.run("logs", "chatty", *bad, code=2)
        assert b"HINT" in done.stderr, done
    l.run("launch", "--no-workdir", "--name", "slow", "--", "bash", "-c",
          "printf '%0200d' 0 | tr 0 a; echo b")
    done = l.run("logs", "slow", "--grep", "^(a+)+$", code=2)
    assert b"--grep" in done.stderr and b"HINT" in done.stderr, done
    reader = subprocess.run(["bash", "-c", "\"$0\" logs chatty --grep . | head -n 1", l.gpuctl],
                            cwd=l.work, env=l.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=DEADLINE_S, check=False)
    assert (reader.stdout, reader.stderr) == (b"step 1\n", b""), reader


def test_text_of_a_job_and_of_files_does_not_reach_the_terminal_raw(l):
    root = repository(l, "hostile")
    write(os.path.join(root, "evil\x1b]0;owned\x07.py"), b"\x1b[2J\x1b]52;c;b3duZWQ=\x07\n")
    l.run("launch", "--workdir", root, "--name", "hostile", "-e", "A=\x1b[31m", "--note",
          "\x1b[2Jnote", "--", "sh", "-c", "# \x1b[31m")
    for args in (["show", "hostile"], ["show", "hostile", "--diff"], ["tag", "hostile"],
                 ["ps", "-a", "-o", "wide"], ["diff", "hostile", "@last"]):
        terminal = Terminal(l, *args, columns=200)
        assert terminal.finish() == 0, terminal.text
        for raw in (b"\x1b[31m", b"\x1b]", b"\x1b[2J", b"\x07"):
            assert raw not in terminal.text, (args, raw, terminal.text)
    assert b"\x1b" not in l.run("show", "hostile", "--json").stdout


def test_git_that_fails_holds_up_no_launch(l):
    root = repository(l, "stuck")
    tools = os.path.join(l.dir, "tools")
    write(os.path.join(tools, "git"), b"#!/bin/sh\nexec sleep 600\n")
    os.chmod(os.path.join(tools, "git"), 0o755)
    begin = time.monotonic()
    l.run("launch", "--workdir", root, "--name", "stuck", "--", "true",
          PATH=tools + ":" + l.env["PATH"])
    assert time.monotonic() - begin < DEADLINE_S, "it waited for git"
    source = l.json("show", "stuck")["git"]
    assert source["clean"] is None and "too long" in source["why"], source
    write(os.path.join(tools, "git"), b"#!/bin/sh\nexit 128\n")
    l.run("launch", "--workdir", root, "--name", "refused", "--", "true",
          PATH=tools + ":" + l.env["PATH"])
    assert "does not accept" in l.json("show", "refused")["git"]["why"]
    l.run("launch", "--workdir", root, "--name", "bare", "--", "/bin/true", PATH=l.dir)
    assert "not installed" in l.json("show", "bare")["git"]["why"]


def test_ctrl_c_while_git_is_asked_starts_nothing(l):
    root = repository(l, "slow-git")
    tools = os.path.join(l.dir, "slow-tools")
    asked = os.path.join(l.dir, "git-asked")
    write(os.path.join(tools, "git"), ("#!/bin/sh\ncase $* in *rev-parse*) : > %s; sleep 5;; esac\n"
                                       "exec %s \"$@\"\n" % (asked, shutil.which("git"))).encode())
    os.chmod(os.path.join(tools, "git"), 0o755)
    before = l.json("ps", "-a")["runs"]
    process = subprocess.Popen([l.gpuctl, "launch", "--workdir", root, "--", "true"], cwd=l.work,
                               env={**l.env, "PATH": tools + ":" + l.env["PATH"]},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    patience = Patience()
    while not os.path.exists(asked):
        assert patience.lasts() and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (-signal.SIGINT, 130), process.returncode
    assert l.json("ps", "-a")["runs"] == before


def test_a_database_of_an_older_gpuctl(l):
    l.run("launch", "--no-workdir", "--name", "aged", "--", "true")
    path = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE runs DROP COLUMN tags")
        for column in ("note", "packages", "source", "diff"):
            database.execute("ALTER TABLE specs DROP COLUMN %s" % column)
        database.execute("UPDATE specs SET launch = '' WHERE run_id = "
                         "(SELECT run_id FROM runs WHERE name = 'aged-1')")
    database.close()
    done = l.run("show", "aged")
    assert b"not recorded" in done.stdout and b"older gpuctl" in done.stderr, done
    assert l.run("tag", "aged", "old").stdout == b"old\n"
    done = l.run("launch", "--like", "aged", code=None)
    assert done.returncode == 1 and b"an older gpuctl launched it" in done.stderr, done
    assert json.loads(l.run("show", "aged", "--json").stdout)["spec"] is None


if __name__ == "__main__":
    run_tests(globals())

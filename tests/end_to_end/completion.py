#!/usr/bin/env python3
"""gpuctl completion in real shells, and the manual pages: what the verbs say of themselves.

  completion.py GPUCTL FAKE_JOB [TEST...]

zsh and fish are tried where they are installed.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from runs import DEADLINE_S, Skipped, Terminal, run_tests

# How long an answer may take, in seconds. A loaded machine is no reason to fail, so one answer of
# many must be so fast.
ANSWER_S = 0.02
ROUNDS = 200


def setup(l):
    """Makes two runs, and a directory with gpuctl in front of PATH."""
    l.bin = l.dir + "/bin"
    if os.path.isdir(l.bin):
        return
    os.mkdir(l.bin)
    os.symlink(l.gpuctl, l.bin + "/gpuctl")
    l.env["PATH"] = l.bin + ":" + l.env["PATH"]
    l.run("launch", "--name", "fox", "--", "echo", "hello")
    l.run("launch", "-d", "--name", "elk", "--", "sleep", "1000")
    for name in ("elk file.yaml", "exact.svg"):
        with open(os.path.join(l.work, name), "w", encoding="utf-8"):
            pass


def words(l, *line):
    done = l.run("completion", "words", "--", *line)
    assert done.stderr == b"", done.stderr
    return [text.split("  ")[0] for text in done.stdout.decode().splitlines()]


def test_words(l):
    """The hidden half: live names, flags and values, without any other output."""
    setup(l)
    assert words(l, "logs", "") == ["elk-1", "fox-1"]
    assert words(l, "stop", "") == ["elk-1"]
    assert words(l, "cp", "e") == ["elk-1:", ":files"]
    assert words(l, "launch", "--provider", "lo") == ["local"]
    assert "--tensorboard" in words(l, "metrics", "--")
    assert words(l, "json-schema", "vol") == ["volumes"]
    assert words(l, "metr") == ["metrics"] and words(l) != []
    assert words(l, "exec", "elk-1", "--", "ls", "") == [":files"]
    found = json.loads(l.run("-o", "json", "completion", "words", "--", "cp", "e").stdout)
    assert found["files"] and [entry["word"] for entry in found["words"]] == ["elk-1:"], found
    assert "complete -F" in l.json("completion", "bash")["script"]
    help_of = l.run("completion", "words", "--", "logs", "f").stdout.decode()
    assert help_of == "fox-1  ended: echo hello\n", help_of


def test_nothing_is_made(l):
    """A laptop without any run is left as it was; a damaged list of runs is no error."""
    setup(l)
    state = l.dir + "/other-state"
    l.env, before = {**l.env, "GPUCTL_STATE_DIR": state}, l.env
    try:
        assert words(l, "logs", "") == [] and not os.path.exists(state)
        os.mkdir(state)
        with open(state + "/state.db", "w", encoding="utf-8") as file:
            file.write("no database " * 100)
        assert words(l, "logs", "") == []
        assert words(l, "logs", "--ta") == ["--tail"]
    finally:
        l.env = before


def test_answers_at_once(l):
    """Every kind of word comes within 20 ms."""
    setup(l)
    with open(l.gpuctl, "rb") as file:
        program = file.read()
    if b"__asan_init" in program or b"__tsan_init" in program:
        raise Skipped("a program with sanitizers is slow")
    for line in (["logs", ""], ["launch", "--gpu", ""], ["launch", "--"], ["me"]):
        took = []
        for _ in range(ROUNDS):
            begin = time.monotonic()
            words(l, *line)
            took.append(time.monotonic() - begin)
            if took[-1] < ANSWER_S:
                break
        print("%s: %.1f ms" % (line, 1000 * min(took)))
        assert min(took) < ANSWER_S, (line, took)


def in_bash(l, line):
    """Returns what bash would put in place of the last word of the line, one a line."""
    script = """
source <(gpuctl completion bash)
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}
IFS=$'\\x1f' read -r -d '' -a COMP_WORDS < <(printf '%s\\0' "$2")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_gpuctl
printf '%s\\n' "${COMPREPLY[@]}"
"""
    # As readline splits: "=" and ":" are words.
    pieces = []
    for word in line.split(" "):
        piece = ""
        for letter in word:
            if letter in "=:":
                pieces += [piece] if piece else []
                pieces.append(letter)
                piece = ""
            else:
                piece += letter
        if piece or not word or (word and word[-1] not in "=:"):
            pieces.append(piece)
    done = subprocess.run(["bash", "-c", script, "bash", line, "\x1f".join(pieces) + "\x1f" * (
        pieces[-1] == "")], cwd=l.work, env=l.env, capture_output=True, timeout=DEADLINE_S)
    assert done.stderr == b"", done.stderr
    return sorted(filter(None, done.stdout.decode().splitlines()))


def test_bash_function(l):
    """What readline is given: it replaces only the part behind "=" or ":"."""
    setup(l)
    assert in_bash(l, "gpuctl metr") == ["metrics"]
    assert in_bash(l, "gpuctl logs ") == ["elk-1", "fox-1"]
    assert in_bash(l, "gpuctl launch --provider=ru") == ["runpod"]
    assert "runpod" in in_bash(l, "gpuctl launch --provider=")
    assert in_bash(l, "gpuctl launch --provider runpod,la") == ["runpod,lambda"]
    assert in_bash(l, "gpuctl cp fo") == ["fox-1:"]
    assert in_bash(l, "gpuctl launch el") == ["elk file.yaml"]
    assert in_bash(l, "gpuctl metrics --plot=ex") == ["exact.svg"]


class Shell:
    """What Terminal wants of a laptop, to run a shell in its place."""

    def __init__(self, l, program):
        self.work, self.gpuctl = l.work, program
        self.env = {**l.env, "PS1": "> ", "HISTFILE": "", "ZDOTDIR": l.dir, "INPUTRC": "/dev/null"}


def typed(l, argv, begin, line, wanted):
    """Types a line and a tab in a shell on a terminal, and waits for what the line becomes."""
    shell = Terminal(Shell(l, argv[0]), *argv[1:])
    try:
        for text in begin + ["echo rea''dy"]:
            shell.type(text.encode() + b"\n")
        shell.until(b"ready")
        shell.type(line.encode() + b"\t")
        shell.until(wanted.encode())
    finally:
        os.kill(shell.pid, signal.SIGKILL)
        shell.finish()


def test_bash(l):
    """A real bash completes a run's name and a flag's value."""
    setup(l)
    bash = [shutil.which("bash"), "--norc", "--noprofile", "-i"]
    lines = ["source <(gpuctl completion bash)"]
    typed(l, bash, lines, "gpuctl logs f", "gpuctl logs fox-1 ")
    typed(l, bash, lines, "gpuctl launch --provider=ru", "--provider=runpod ")
    typed(l, bash, lines, "gpuctl launch elk", "elk\\ file.yaml")


def test_zsh(l):
    """A real zsh completes a run's name, a flag, and shows what they mean."""
    setup(l)
    zsh = shutil.which("zsh")
    if zsh is None:
        raise Skipped("zsh is not installed")
    lines = ["autoload -Uz compinit; compinit -u -d %s/dump" % l.dir,
             "source <(gpuctl completion zsh)"]
    argv = [zsh, "-f", "-i"]
    typed(l, argv, lines, "gpuctl logs f", "fox-1")
    typed(l, argv, lines, "gpuctl metrics fox-1 --tens", "--tensorboard")
    typed(l, argv, lines, "gpuctl logs ", "ended: echo hello")
    typed(l, argv, lines, "gpuctl launch --provider=ru", "--provider=runpod")
    typed(l, argv, lines, "gpuctl cp f", "fox-1:")
    typed(l, argv, lines, "gpuctl launch elk", "elk\\ file.yaml")


def in_fish(l, line):
    done = subprocess.run([shutil.which("fish"), "--no-config", "-c",
                           "gpuctl completion fish | source; complete -C $argv[1]", line],
                          cwd=l.work, env=l.env, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and done.stderr == b"", done
    return done.stdout.decode().splitlines()


def test_fish(l):
    """A real fish says what it would offer."""
    setup(l)
    if shutil.which("fish") is None:
        raise Skipped("fish is not installed")
    assert in_fish(l, "gpuctl logs f") == ["fox-1\tended: echo hello"], in_fish(l, "gpuctl logs f")
    assert [text.split("\t")[0] for text in in_fish(l, "gpuctl metrics --tens")] == ["--tensorboard"]
    assert in_fish(l, "gpuctl launch --provider=ru") == ["--provider=runpod"]
    assert in_fish(l, "gpuctl launch --provider ru") == ["runpod"]
    assert any("elk file.yaml" in text for text in in_fish(l, "gpuctl launch elk"))
    assert any("exact.svg" in text for text in in_fish(l, "gpuctl metrics --plot=ex"))


def test_man_pages(l):
    """The manual pages have what --help has, and their readers have no complaint."""
    setup(l)
    l.run("debug", "man-pages", "man")
    verbs = re.findall(r"^  ([a-z-]+) +", l.run("--help").stdout.decode(), re.MULTILINE)
    pages = sorted(os.listdir(l.work + "/man"))
    assert pages == sorted(["gpuctl.1"] + ["gpuctl-%s.1" % verb for verb in verbs]), pages
    for verb in verbs:
        with open(l.work + "/man/gpuctl-%s.1" % verb, encoding="utf-8") as file:
            page = file.read()
        for flag in re.findall(r"--[a-z-]+(?=[ ,\n])", l.run(verb, "--help").stdout.decode()):
            assert flag.replace("-", "\\-") in page, (verb, flag)
    for reader in (["mandoc", "-T", "lint", "-W", "warning"],
                   ["groff", "-man", "-ww", "-Tutf8", "-z"]):
        if shutil.which(reader[0]) is None:
            print("%s is not installed: not tried" % reader[0])
            continue
        done = subprocess.run(reader + ["man/" + page for page in pages], cwd=l.work,
                              capture_output=True, timeout=DEADLINE_S)
        # No page has a date: it would be that of the build.
        said = [line for line in (done.stdout + done.stderr).decode().splitlines()
                if "missing date" not in line]
        assert said == [], said[:5]
    shutil.rmtree(l.work + "/man")


def test_errors(l):
    setup(l)
    done = l.run("completion", "zhs", code=2)
    assert b'did you mean "zsh"' in done.stderr, done.stderr
    l.run("completion", code=2)


if __name__ == "__main__":
    run_tests(globals())

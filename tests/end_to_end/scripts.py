#!/usr/bin/env python3
"""gpuctl as scripts call it: without terminal, home, environment, room, or file descriptors; many at
once; with words and flags of any form.

  scripts.py GPUCTL FAKE_JOB [TEST...]

Every command is below timeout(1). None may ask, hang, crash, or fail without a word.
"""
import json
import os
import random
import re
import resource
import shutil
import subprocess
import threading

import json_check
from runs import DEADLINE_S, Terminal, run_tests

BUG = 70
TIMED_OUT = 124
SEED = int(os.environ.get("GPUCTL_TEST_SEED", "1"))


def timed(l, *args, before="", env=None, more=None, **options):
    """Runs gpuctl; `before` closes descriptors: ">&-". Returns what became of it. It has `env` alone,
    else the laptop's, with `more`."""
    shell = ["bash", "-c", "exec \"$@\" " + before, "bash"] if before else []
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
               **options}
    done = subprocess.run([*shell, "timeout", "-k", "5", str(DEADLINE_S - 10), l.gpuctl, *args], cwd=l.work,
                          env={**(l.env if env is None else env), **(more or {})},
                          timeout=DEADLINE_S, check=False, **options)
    healthy(args, done)
    return done


def healthy(what, done):
    assert done.returncode not in (BUG, TIMED_OUT) and 0 <= done.returncode < 128 + 16, (what, done)
    for text in (done.stdout or b"", done.stderr or b""):
        assert b"a bug of ours" not in text and b"terminate called" not in text, (what, done)


def verbs(l):
    names = re.findall(r"^  ([a-z-]+) +", l.run("--help").stdout.decode(), re.MULTILINE)
    assert len(names) > 40, names
    return names


def a_run(l, name, *command, code=0):
    """Makes sure that there is an ended run NAME-1."""
    if name + "-1\n" not in l.run("ps", "-a", "-q", "--offline").stdout.decode():
        l.run("launch", "--no-workdir", "--provider", "local", "--name", name, "--",
              *(command or ("echo", "hi")), code=code)


def good_commands(l):
    """Returns a command for each verb that has a result here, without any account."""
    a_run(l, "base")
    a_run(l, "other")
    return [["launch", "--no-workdir", "--provider", "local", "--", "echo", "hi"],
            ["launch", "--no-workdir", "--provider", "local", "--dry-run", "--", "true"],
            ["attach", "base"], ["stop", "base"], ["wait", "base"], ["queue"], ["ps", "-a"],
            ["logs", "base"], ["metrics", "base"], ["show", "base"], ["diff", "base", "other"],
            ["tag", "base", "word"], ["verify", "base"], ["sync", "--dry-run"],
            ["exec", "base", "--", "echo", "hi"], ["rm", "--dry-run", "base"], ["prune", "--dry-run"],
            ["cost"], ["node"], ["config"], ["run-schema"], ["json-schema", "ps"], ["debug", "job", "base"],
            ["completion", "bash"], ["keep", "--status"], ["ssh", "--setup"]]


def with_flags(command, *flags):
    """Puts flags behind a verb's own words, and before what stands behind --."""
    at = command.index("--") if "--" in command else len(command)
    return command[:at] + list(flags) + command[at:]


def test_without_environment(l):
    """`env -i` leaves a path alone: a clear error, or the result."""
    for verb in verbs(l):
        for more in ([], ["-o", "json"], ["-q"], ["--help"]):
            done = timed(l, verb, *more, env={"PATH": os.environ["PATH"]})
            if more == ["-q"]:
                # It may have nothing to say, but it says why it failed.
                assert done.returncode == 0 or done.stderr or verb == "doctor" and done.stdout, (verb, done)
                continue
            words = done.stdout + done.stderr
            assert words, (verb, more, done)
            if done.returncode == 1 and b"HOME is not set" in words:
                assert b"export HOME, or GPUCTL_STATE_DIR" in words, done
            if more == ["--help"]:
                assert done.returncode == 0 and not done.stderr, done
    # The three directories are all that it needs of a home.
    a_run(l, "base")
    own = {"PATH": os.environ["PATH"], "GPUCTL_STATE_DIR": l.env["GPUCTL_STATE_DIR"],
           "GPUCTL_CACHE_DIR": l.dir + "/cache", "GPUCTL_CONFIG_DIR": l.dir + "/config",
           "GPUCTL_NODE_ROOT": l.root}
    assert b"base-1" in timed(l, "ps", "-a", env=own).stdout
    done = timed(l, "launch", "--no-workdir", "--provider", "local", "--", "echo", "at home", env=own)
    assert (done.returncode, done.stdout) == (0, b"at home\n"), done


def test_closed_descriptors(l):
    commands = good_commands(l)
    for closed in ("<&-", "<&- 2>&-", "<&- >&-", "<&- >&- 2>&-"):
        for command in commands + [["tag", "-q", "base", "word"], ["launch", "-q", *commands[0][1:]]]:
            plain = timed(l, *command)
            done = timed(l, *command, before=closed)
            if " >&-" in closed and plain.stdout:
                # Whoever closes stdout loses the result: that is an error.
                assert done.returncode != 0, (command, closed, done, plain)
                assert "2>&-" in closed or b"write the output: Bad file" in done.stderr, (command, done)
                continue
            assert done.returncode == plain.returncode, (command, closed, done, plain)
            if command[0] in ("logs", "attach", "config"):
                assert done.stdout == plain.stdout, (command, done)
    # What gpuctl wrote there is not in a file that got a free number.
    for folder, _, files in os.walk(l.env["GPUCTL_STATE_DIR"]):
        for name in files:
            with open(os.path.join(folder, name), "rb") as file:
                assert b"exited with code 0 after" not in file.read(), name


def test_a_full_disk_at_stdout(l):
    if not os.path.exists("/dev/full"):
        return
    for command in good_commands(l):
        for flags in ([], ["-o", "json"], ["-q"]):
            words = with_flags(command, *flags)
            plain = timed(l, *words)
            if not plain.stdout:
                continue
            with open("/dev/full", "wb") as full:
                done = timed(l, *words, stdout=full)
            assert done.returncode != 0 and b"No space left" in done.stderr, (words, done)
    # The job's own code is not lost.
    with open("/dev/full", "wb") as full:
        done = timed(l, "launch", "--no-workdir", "--provider", "local", "--", "sh", "-c",
                     "echo words; exit 7", stdout=full)
    assert done.returncode in (1, 7) and b"No space left" in done.stderr, done
    timed(l, "wait", "@last", "--timeout", "40s")
    assert l.json("ps", "-a")["runs"][0]["job_exit_code"] == 7


# These do something, and with -q print nothing about it.
SILENT = {"stop", "wait", "tag", "verify"}


def test_quiet(l):
    """Each verb knows -q: stdout has what a script needs, and stderr nothing where all went well."""
    for verb in verbs(l):
        text = l.run(verb, "--help").stdout
        assert re.search(rb"^  -q,--quiet ", text, re.MULTILINE), (verb, text)
    for command in good_commands(l):
        plain, done = timed(l, *command), timed(l, *with_flags(command, "-q"))
        assert done.returncode == plain.returncode, (command, plain, done)
        assert done.stderr == b"", (command, done)
        # Without a batch, queue prints its headings alone.
        silent = command[0] in SILENT or not plain.stdout or command == ["queue"]
        assert bool(done.stdout) != silent, (command, done)
        assert len(done.stdout) <= len(plain.stdout) or command[0] == "launch", (command, plain, done)
    # The name alone, whether the job is shown or not; its exit code is that of the launch.
    here = ["--no-workdir", "--provider", "local"]
    done = timed(l, "launch", "-q", *here, "--name", "hush", "--", "sh", "-c", "echo words; echo more >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, b"hush-1\n"), done
    assert b"hush-1 exited with code 7" in done.stderr and b"words" not in done.stderr, done
    assert b"words" in timed(l, "logs", "-q", "hush").stdout
    done = timed(l, "launch", "-qd", *here, "--name", "hush", "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hush-2\n", b""), done
    done = timed(l, "submit", "-q", *here[:1], "--host", "local", "--name", "still", "--sweep", "v=1,2", "--", "echo", "{v}")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"still\n", b""), done
    done = timed(l, "wait", "-q", "--batch", "still", "--timeout", "40s")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    assert timed(l, "queue", "-q", "still").stdout == b"still-1\nstill-2\n"
    assert timed(l, "ps", "-aq", "--tag", "batch:still").stdout == b"still-2\nstill-1\n"
    # Errors stay, and so does what they say next.
    done = timed(l, "show", "-q", "no-such-run")
    assert (done.returncode, done.stdout) == (2, b"") and b"no run \"no-such-run\"" in done.stderr, done
    done = timed(l, "-q", "lauhcn")
    assert done.returncode == 2 and b"HINT: " in done.stderr, done
    # JSON is the same.
    for command in (["config"], ["show", "base"], ["ps", "-a"], ["queue", "-a"], ["tag", "base"], ["node"],
                    ["rm", "--dry-run", "base"]):
        for form in ("json", "jsonl"):
            plain = timed(l, *command, "--offline", "-o", form) if command[0] == "ps" else timed(l, *command, "-o", form)
            done = timed(l, *command, *(["--offline"] if command[0] == "ps" else []), "-q", "-o", form)
            assert without_ages(done.stdout) == without_ages(plain.stdout), (command, done, plain)
            assert done.stdout.startswith(b"{"), done


def without_ages(text):
    """What is counted up to now differs from one call to the next."""
    return re.sub(rb'"(\w+_s|\w*seconds|next\w*)":[^,}]*', b"", text)


def test_quiet_still_asks(l):
    """-q is no -y: the question comes, with what it is about."""
    a_run(l, "base")
    done = timed(l, "prune", "-q")
    assert done.returncode == 2 and b"there is nobody to ask" in done.stderr, done
    terminal = Terminal(l, "prune", "-q")
    terminal.until(b"[y/N]")
    assert b"over and at home: " in terminal.text and b"base-1" in terminal.text, terminal.text
    terminal.type(b"n\n")
    assert terminal.finish() != 0
    names = timed(l, "prune", "--dry-run", "-q").stdout.split()
    assert b"base-1" in names and b"NAME" not in names, names
    done = timed(l, "rm", "-q", "base")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    done = timed(l, "rm", "-q", "--forget", "base")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    done = timed(l, "rm", "-q", "base")
    assert done.returncode == 2 and done.stderr, done


def test_a_reader_that_goes_away(l):
    a_run(l, "long", "seq", "300000")
    for command in ("logs long", "attach long", "logs long --timestamps", "completion bash", "--help",
                    "json-schema show", "run-schema"):
        done = subprocess.run(
            ["bash", "-c", "timeout 50 \"$0\" %s | head -n 1; exit ${PIPESTATUS[0]}" % command,
             l.gpuctl], cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False)
        healthy(command, done)
        assert done.returncode == 0 and done.stdout.count(b"\n") == 1, (command, done)
        assert b"write" not in done.stderr and b"ipe" not in done.stderr, (command, done)


def at_once(l, count, command, env=None):
    """Runs it that many times at once; returns what became of each."""
    results = [None] * count

    def one(i):
        results[i] = timed(l, *command(i), more=env)
    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_fifty_at_once(l):
    a_run(l, "fifty")
    looks = (["ps", "-a", "-o", "json", "--offline"], ["show", "fifty", "-o", "json"], ["logs", "fifty"],
             ["config", "-o", "json"], ["tag", "fifty", "same"])
    l.run("tag", "fifty", "same")
    results = at_once(l, 50, lambda i: looks[i % len(looks)])
    for i, done in enumerate(results):
        assert done.returncode == 0, (looks[i % len(looks)], done)
        assert done.stdout == results[i % len(looks)].stdout, done
    assert results[2].stdout == b"hi\n" and results[4].stdout == b"same\n", results[2]
    # Launches: each is there once, with its own output.
    results = at_once(l, 20, lambda i: ["launch", "--no-workdir", "--provider", "local", "--name",
                                        "many", "--", "echo", "number %d" % i])
    assert [done.returncode for done in results] == [0] * 20, [r for r in results if r.returncode]
    assert [done.stdout for done in results] == [b"number %d\n" % i for i in range(20)], results
    names = l.run("ps", "-a", "-q", "--offline").stdout.decode().split()
    assert sorted(n for n in names if n.startswith("many-")) == sorted("many-%d" % i for i in range(1, 21))
    # -d prints the name and nothing else, also of a job that is over at once.
    results = at_once(l, 12, lambda i: ["launch", "-d", "--no-workdir", "--provider", "local", "--name",
                                        "quick", "--", "true"])
    printed = sorted(done.stdout.decode() for done in results)
    assert printed == sorted("quick-%d\n" % i for i in range(1, 13)), results


def test_the_same_batch_submitted_by_many_is_one(l):
    words = ["submit", "--name", "grid", "--host", "local", "--no-workdir", "--sweep", "v=1,2,3", "--",
             "sh", "-c", "echo {v}"]
    results = at_once(l, 20, lambda i: words)
    for done in results:
        assert (done.returncode, done.stdout) == (0, b"grid-1\ngrid-2\ngrid-3\n"), done
    l.run("wait", "--batch", "grid", "--timeout", "50s")
    rows = l.json("queue", "grid", "--results")["results"]
    assert [(row["entry"], row["state"]) for row in rows] == [
        ("grid-%d" % i, "done") for i in (1, 2, 3)], rows
    names = l.run("ps", "-a", "-q", "--offline", "--tag", "batch:grid").stdout.decode().split()
    assert sorted(names) == ["grid-1", "grid-2", "grid-3"], names
    for i in (1, 2, 3):
        assert l.run("logs", "grid-%d" % i).stdout == b"%d\n" % i


def test_a_read_only_state_directory(l):
    a_run(l, "base")
    state = l.dir + "/locked"
    shutil.copytree(l.env["GPUCTL_STATE_DIR"], state)
    # Root may write everywhere: a file in the way of the directory is its test.
    in_the_way = l.dir + "/file"
    with open(in_the_way, "w", encoding="utf-8"):
        pass
    for path in (in_the_way, in_the_way + "/below", "/proc/gpuctl", "/dev/null"):
        for command in good_commands(l):
            done = timed(l, *command, more={"GPUCTL_STATE_DIR": path})
            assert done.returncode == 0 or done.stderr or done.stdout, (path, command, done)
            if command[0] in ("launch", "ps", "attach", "show") and "--dry-run" not in command:
                assert done.returncode != 0, (command, done)
                assert path.encode() in done.stderr or in_the_way.encode() in done.stderr, (command, done)
    for folder, _, names in os.walk(state):
        os.chmod(folder, 0o555)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o444)
    for command in good_commands(l):
        timed(l, *command, more={"GPUCTL_STATE_DIR": state})
    for folder, _, _ in os.walk(state):
        os.chmod(folder, 0o755)


def test_locales_zones_and_masks(l):
    a_run(l, "base")
    for env in ({"LANG": "C"}, {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"}, {"LC_ALL": "de_DE.UTF-8"},
                {"LANG": "no_SUCH.x"}, {"TZ": "Pacific/Kiritimati"}, {"TZ": ":/no/such"}, {"TZ": "XXX-99"},
                {"TERM": "dumb"}, {"TERM": ""}, {"COLUMNS": "0"}, {"COLUMNS": "x", "LINES": "-1"}):
        wanted = timed(l, "ps", "-a", "-o", "json", "--offline").stdout
        assert timed(l, "ps", "-a", "-o", "json", "--offline", more=env).stdout == wanted, env
        done = timed(l, "launch", "--no-workdir", "--provider", "local", "--time", "1.5h", "--", "echo",
                     "I i", more=env)
        assert (done.returncode, done.stdout) == (0, b"I i\n"), (env, done)
    for mask in ("077", "000", "777"):
        state = l.dir + "/mask-" + mask
        done = subprocess.run(
            ["bash", "-c", "umask %s; exec timeout 50 \"$@\"" % mask, "bash", l.gpuctl, "launch",
             "--no-workdir", "--provider", "local", "--", "sh", "-c", "echo secret; umask"], cwd=l.work,
            env={**l.env, "GPUCTL_STATE_DIR": state}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False)
        healthy(mask, done)
        if mask == "777" and os.geteuid() != 0:
            continue
        assert done.returncode == 0 and done.stdout.startswith(b"secret\n"), (mask, done)
        for folder, _, files in os.walk(state):
            for name in files:
                path = os.path.join(folder, name)
                assert os.stat(path).st_mode & 0o077 == 0 or os.stat(state).st_mode & 0o077 == 0, path


def test_few_descriptors_and_little_memory(l):
    a_run(l, "base")
    for kind, value in ((resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_NOFILE, 12),
                        (resource.RLIMIT_NOFILE, 6), (resource.RLIMIT_FSIZE, 0),
                        (resource.RLIMIT_CPU, 20), (resource.RLIMIT_CORE, 0)):
        for command in (["ps", "-a"], ["logs", "base"], ["--help"], ["config"],
                        ["launch", "--no-workdir", "--provider", "local", "--", "echo", "hi"]):
            done = subprocess.run(["timeout", "50", l.gpuctl, *command], cwd=l.work, env=l.env,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S,
                                  preexec_fn=lambda: resource.setrlimit(kind, (value, value)),
                                  check=False)
            healthy((kind, value, command), done)
            assert done.returncode == 0 or done.stderr, (kind, value, command, done)
            if value == 32:
                assert done.returncode == 0, (command, done)


def test_huge_arguments(l):
    a_run(l, "base")
    long = "x" * 120000
    for words in (["show", long], ["logs", long], ["ps", "--tag", long], ["tag", "base", long],
                  ["launch", "--name", long, "--", "true"], [long], ["--" + long], ["config", "set", long, "1"],
                  ["launch", "--no-workdir", "--time", "9" * 50000, "--", "true"], ["wait", *["base"] * 200],
                  ["pull", "base", *["a*"] * 5000], ["launch", "-e", "A=" + long[:1000], "--dry-run",
                                                      "--provider", "local", "--no-workdir", "--", "true"]):
        done = timed(l, *words)
        assert len(done.stderr) < 300000, (words[0], len(done.stderr))
        timed(l, "-o", "json", *words)
    # A command's own words pass as they are.
    done = timed(l, "launch", "--no-workdir", "--provider", "local", "--", "sh", "-c",
                 "printf %s \"$1\" | wc -c", "sh", long)
    assert done.stdout.split() == [b"120000"], done


def test_it_never_asks(l):
    """On no terminal a question is an error that names the flag that answers."""
    a_run(l, "base")
    for words, flag in ((["prune"], b"-y"), (["down", "--all"], b"")):
        for stdin in (b"", b"y\n", b"\n" * 100):
            done = subprocess.run(["timeout", "50", l.gpuctl, *words], cwd=l.work, env=l.env, input=stdin,
                                  capture_output=True, timeout=DEADLINE_S, check=False)
            healthy(words, done)
            assert b"[y/N]" not in done.stdout + done.stderr, done
            assert flag in done.stderr, done
    done = timed(l, "login", "vast", more={"GPUCTL_KEY_STORE": "file"})
    assert done.returncode != 0 and done.stderr, done


def flags_of(l, verb):
    text = l.run(verb, "--help").stdout.decode()
    return re.findall(r"^  (?:(-\w),)?(--[a-z-]+)?(?: (TEXT|INT))?", text, re.MULTILINE)


WORDS = [b"base", b"no-such", b"", b" ", b"-", b"--", b"-1", b"0", b"1e400", b"nan", b"99999999999999999999",
         b"a=b", b"=", b"a:b", b"../..", b"/", b"\xff\xfe", b"\xc3\x28", "\u202eevil".encode(), b"\x1b[2J",
         b"a\nb", b"\xed\xa0\x80", b"'", b"\"", b"{", b"*", b"${IFS}", b"1h", b"5%", b"%s%n", b"json", b"local"]
# They would touch the system that tests, or wait for a port.
NEVER = {b"--install", b"--uninstall", b"--self-test", b"--self-test-part"}


def test_random_flags(l):
    """Nothing crashes, whatever stands behind a verb, and in JSON every word of it is a document."""
    a_run(l, "base")
    dice = random.Random(SEED)
    rounds = int(os.environ.get("GPUCTL_FUZZ_ROUNDS", "6"))
    skipped = {"top", "doctor", "forward", "train", "keep"}
    commands = []
    for verb in verbs(l):
        if verb == "dashboard":
            continue  # it has no wrong words but flags, and goes on until Ctrl-C
        # Behind a flag that takes a value --json would be that value.
        flags = [(short or long).encode() for short, long, _ in flags_of(l, verb)
                 if (short or long) and long not in ("--json", "--output")]
        for _ in range(rounds):
            words = [verb.encode()]
            for _ in range(dice.randrange(4)):
                if dice.random() < 0.6 and flags and verb not in skipped:
                    flag = dice.choice(flags)
                    words.append(flag + (b"=" + dice.choice(WORDS) if dice.random() < 0.3 else b""))
                else:
                    words.append(dice.choice(WORDS))
            if NEVER & {word.split(b"=")[0] for word in words} or verb in skipped and len(words) == 1:
                continue
            if dice.random() < 0.5:
                words.insert(1, b"--json")
            commands.append(words)
    for words in commands:
        # A limit of time for jobs that a launch may start.
        done = subprocess.run(["timeout", "-k", "5", "40", l.gpuctl, *words], cwd=l.work, env=l.env,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
        healthy(words, done)
        if done.returncode not in (0, 1) and b"--json" not in words and b"--help" not in words:
            assert done.stderr, (words, done)
            assert b"Traceback" not in done.stderr, (words, done)


def test_a_wrong_word_is_named(l):
    for verb in verbs(l):
        for word in ("--no-such-flag", "--jsonn"):
            done = timed(l, verb, word)
            assert done.returncode == 2 and word.encode() in done.stderr, (verb, word, done)
            done = timed(l, verb, word, "-o", "json")
            error = json_check.read_strictly(done.stdout)["error"]
            assert word in error["message"] and error["exit_code"] == 2, (verb, error)


def test_bytes_that_are_no_text(l):
    """JSON stays strict JSON in UTF-8 for any bytes in arguments, output, metrics and files."""
    bad = b"\xff\xfe\xc3\x28\xed\xa0\x80 \x00 \x1b[2J \xe2\x80\xae"
    script = l.work + "/bad.sh"
    with open(script, "wb") as file:
        file.write(b"printf '%b' '" + b"".join(b"\\0%o" % byte for byte in bad) + b"\\n'\n"
                   b"for v in NaN Infinity -Infinity 1e999 -1e999 123456789012345678901 null true '\"x\"' "
                   b"'\"\\ud800\"' 9007199254740993; do\n"
                   b"  printf '{\"type\":\"step\",\"step\":%d,\"loss\":%s,\"lr\":%s}\\n' $((++n)) $v $v "
                   b">> $GPUCTL_METRICS\ndone\n"
                   b"for n in 8999999999999999 9007199254740993; do\n"
                   b"  printf '{\"type\":\"step\",\"step\":%d,\"loss\":1}\\n' $n >> $GPUCTL_METRICS\ndone\n"
                   b"printf '\\377\\376{\"type\":\"step\"' >> $GPUCTL_METRICS\n"
                   b"echo 'step 20 loss nan'; echo 'step 21 loss inf'\n"
                   b": > \"$(printf 'f\\377\\376')\"\n")
    words = [os.fsencode(l.gpuctl), b"launch", b"--provider", b"local", b"--name", b"bytes", b"--note",
             b"n\xff\xfe", b"--artifacts", b"f*", b"--workdir", os.fsencode(l.work),
             b"--", b"bash", b"./bad.sh"]
    done = subprocess.run(words, cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=DEADLINE_S, check=False)
    healthy(words, done)
    assert bad in done.stdout, done
    # A command line that the protocol cannot carry is refused, with what to do.
    for more in ([b"--", b"echo", b"\xff"], [b"-e", b"ODD=\xff", b"--", b"true"]):
        done = subprocess.run(words[:4] + [b"--no-workdir"] + more, cwd=l.work, env=l.env,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 2 and b"not UTF-8" in done.stderr, done
    for args in (["ps", "-a"], ["show", "bytes"], ["metrics", "bytes"], ["verify", "bytes"],
                 ["diff", "bytes", "bytes"], ["pull", "bytes", "--to", "home"], ["wait", "bytes"],
                 ["rm", "--dry-run", "bytes"], ["debug", "job", "bytes"], ["show", "no\udcff"],
                 ["sync", "--explain", "no\udcff"], ["sync", "--dry-run"], ["tag", "bytes", "w\udcff"],
                 ["logs", "no\udced\udca0"], ["launch", "\udcff.yaml"], ["no\udcffverb"],
                 ["config", "set", "\udcff", "1"], ["init", "\udcff"]):
        for kind in ("json", "jsonl"):
            done = subprocess.run([l.gpuctl, *args, "-o", kind], cwd=l.work, env=l.env,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S,
                                  check=False)
            healthy(args, done)
            for line in done.stdout.splitlines():
                json_check.read_strictly(line)
            if shutil.which("jq"):
                subprocess.run(["jq", "-e", "type"], input=done.stdout, stdout=subprocess.DEVNULL, check=True)
    run = l.json("show", "bytes")
    # A reader that keeps numbers as doubles would round the larger one.
    assert run["step"] == 8999999999999999, run["step"]
    losses = [point.get("loss") for point in l.json("metrics", "bytes")["runs"][0]["points"]]
    assert "NaN" in losses or "Infinity" in losses, losses


def test_schemas_stand_alone(l):
    """What `json-schema` prints validates without any other file, as the files of docs/schemas do."""
    if not json_check.CAN_CHECK:
        return
    import jsonschema
    names = l.run("json-schema").stdout.decode().split()
    assert names == l.json("json-schema")["schemas"]
    assert set(verbs(l)) | {"error", "notify"} == set(names), sorted(set(verbs(l)) ^ set(names))
    whole = {}
    for name in names:
        whole[name] = json.loads(l.run("json-schema", name).stdout)
        assert whole[name] == l.json("json-schema", name), name
        jsonschema.Draft202012Validator.check_schema(whole[name])
        assert "common.json" not in json.dumps(whole[name]), name
    for command in good_commands(l):
        if command[0] in ("logs", "exec", "completion", "run-schema", "json-schema"):
            continue
        at = command.index("--") if "--" in command else len(command)
        for line in timed(l, *command[:at], "--json", *command[at:]).stdout.splitlines():
            document = json.loads(line)
            check = jsonschema.Draft202012Validator(whole[command[0]])
            check.validate(document)
            # A field that nobody documented, or that is missing, is found.
            assert not check.is_valid({**document, "undocumented": 1}), command
            document.pop("schema_version")
            assert not check.is_valid(document), command


if __name__ == "__main__":
    run_tests(globals())

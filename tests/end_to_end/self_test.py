#!/usr/bin/env python3
"""gpuctl doctor --self-test: on this computer, in the middle of a Ctrl-C, and in worlds where each
of its checks must fail.

  self_test.py GPUCTL FAKE_JOB BROKEN_SYSTEM [TEST...]

BROKEN_SYSTEM is tests/support/broken_system.cc as a library. Its crontab, keyring and user manager
are programs in $PATH; those of this computer's user are not touched.
"""
import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

from runs import DEADLINE_S, Laptop, Patience, Terminal, end_processes, processes_with

BROKEN_SYSTEM = os.path.abspath(sys.argv[3])
CHECKS = ["terminal", "key store", "scheduler", "sshd", "durable files", "copies", "locks", "FIFO",
          "sockets", "clocks", "boot id", "node root", "process start times", "descendants",
          "processes of a job", "signals to processes", "job", "detach and attach", "results", "stop",
          "kill -9 of the agent", "kill -9 of a job", "kill -9 of a shim", "nothing is left"]
CRONTAB = """#!/bin/sh
if [ "$1" = -l ]; then [ -e "$HOME/table" ] || { echo "no crontab for you" >&2; exit 1; }
  cat "$HOME/table"; elif [ "$1" = -r ]; then rm "$HOME/table"; else cat "$1" > "$HOME/table"; fi
"""
# Keeps one file for each item.
SECRET_TOOL = """#!/bin/sh
verb=$1
for word; do item=$word; done
mkdir -p "$HOME/ring"
case $verb in
store) cat > "$HOME/work/new" && mv "$HOME/work/new" "$HOME/ring/$item" ;;
lookup) cat "$HOME/ring/$item" ;;
clear) rm "$HOME/ring/$item" ;;
esac
"""
# A user manager that runs the service of a timer when that is started.
SYSTEMCTL = """#!/bin/sh
units=$HOME/.config/systemd/user
case "$2 $3" in
is-active*) [ -e "$units/$3" ]; exit ;;
restart*) service=$units/$(basename "$3" .timer).service
  grep -q AccuracySec= "$units/$3" || exit 1
  (while IFS= read -r line; do case $line in
    Environment=*) eval "export ${line#Environment=}" ;;
    ExecStart=*) eval "${line#ExecStart=}" ;;
  esac; done < "$service") > /dev/null 2>&1 ;;
esac
exit 0
"""


class World(Laptop):
    """A laptop whose system programs are its own. Checks that a self-test leaves it as it was."""

    def __init__(self):
        super().__init__(sys.argv[1], sys.argv[2])
        self.tmp = os.path.join(self.dir, "tmp")
        os.mkdir(self.tmp)
        self.bin = os.path.join(self.dir, "bin")
        self.env.update(TMPDIR=self.tmp, PATH=self.bin + ":" + os.environ["PATH"])
        # The user's own root and cache, which the self-test does not use.
        del self.env["GPUCTL_CACHE_DIR"], self.env["GPUCTL_NODE_ROOT"]
        self.env.pop("DBUS_SESSION_BUS_ADDRESS", None)
        self.program("systemctl", "#!/bin/sh\nexit 1\n")
        self.program("crontab", CRONTAB)
        self.table = "0 1 * * * backup\n*/5 * * * * 'x' keep 2>>'l' # gpuctl keep\n"
        with open(self.dir + "/table", "w", encoding="utf-8") as file:
            file.write(self.table)

    def program(self, name, text):
        os.makedirs(self.bin, exist_ok=True)
        with open(os.path.join(self.bin, name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(os.path.join(self.bin, name), 0o755)

    def keyring(self, text=SECRET_TOOL):
        self.program("secret-tool", text)
        self.env["DBUS_SESSION_BUS_ADDRESS"] = "unix:path=/nowhere"

    def manager(self, text=SYSTEMCTL):
        self.program("systemctl", text)

    def test(self, *names, before=(), code=None, **env):
        """Runs the self-test. Returns its checks by name. `names`: those that fail."""
        done = subprocess.run([*before, self.gpuctl, "doctor", "--self-test", "--json"],
                              cwd=self.work, env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S + 30,
                              check=False)
        result = json.loads(done.stdout)
        failed = [check["name"] for check in result["checks"] if not check["ok"]]
        assert failed == list(names), (failed, result, done.stderr)
        assert done.returncode == (code if code is not None else 1 if names else 0), done
        assert result["ok"] == (not names) and done.stderr == b"", done
        for check in result["checks"]:
            assert check["found"] and check["took_ms"] >= 0, check
            assert ("fix" in check) == (not check["ok"]) and check.get("fix", "x"), check
        return {check["name"]: check for check in result["checks"]}

    def part(self, part, *names, **env):
        """Runs one part alone. Returns its checks by name. `names`: those that fail."""
        place = os.path.join(self.tmp, "gpuctl-self-test-alone")
        os.mkdir(place)
        done = subprocess.run(
            [self.gpuctl, "doctor", "--self-test-part", part, "--self-test-dir", place],
            cwd=self.work, env={**self.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, timeout=DEADLINE_S, check=True)
        shutil.rmtree(place)
        checks = [json.loads(line) for line in done.stdout.splitlines()]
        assert [check["name"] for check in checks if not check["ok"]] == list(names), checks
        assert all(check.get("fix", "x") for check in checks), checks
        # The self-test puts these words behind what was found.
        return {check["name"]: {**check, "found": check["found"] + done.stderr.decode()}
                for check in checks}

    def mine(self):
        """Returns the processes that have this world's directory in their arguments or environment."""
        return processes_with(self.dir.encode())

    def check_clean(self):
        end = time.monotonic() + 3  # sshd ends with its connection, a moment later
        while self.mine() and time.monotonic() < end:
            time.sleep(0.05)
        assert not self.mine(), self.mine()
        assert os.listdir(self.tmp) == [], os.listdir(self.tmp)
        assert not os.path.exists(self.env["GPUCTL_STATE_DIR"]), "the state directory"
        assert os.path.exists(self.dir + "/table") == (self.table is not None)
        if self.table is not None:
            with open(self.dir + "/table", encoding="utf-8") as file:
                assert file.read() == self.table
        ring = self.dir + "/ring"
        assert not os.path.exists(ring) or os.listdir(ring) == [], os.listdir(ring)
        known = {"work", "tmp", "bin", "table", "ring", "programs", "dead"}
        assert set(os.listdir(self.dir)) <= known, os.listdir(self.dir)

    def close(self):
        end_processes(self.dir.encode())
        shutil.rmtree(self.dir, ignore_errors=True)

    @contextlib.contextmanager
    def meanwhile(self, sabotage):
        """Runs sabotage(directory of the self-test) beside; it is over when it returns."""
        over = threading.Event()

        def run():
            while not over.is_set():
                for name in os.listdir(self.tmp):
                    with contextlib.suppress(OSError, ValueError, IndexError):
                        if sabotage(os.path.join(self.tmp, name)):
                            return
                time.sleep(0.005)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_all_of_it_holds_here(w):
    begin = time.monotonic()
    checks = w.test()
    assert list(checks) == CHECKS, list(checks)
    assert time.monotonic() - begin < 60
    assert "4 MiB" in checks["sshd"]["found"], checks["sshd"]
    assert "no system's store" in checks["key store"]["found"], checks["key store"]
    assert checks["scheduler"]["found"].startswith("cron:"), checks["scheduler"]


def test_no_crontab_is_none_afterwards(w):
    os.unlink(w.dir + "/table")
    w.table = None
    w.part("scheduler")


def test_it_says_the_same_in_words_and_line_by_line(w):
    done = w.run("doctor", "--self-test")
    lines = done.stdout.decode().splitlines()
    assert [line[6:].split(":")[0] for line in lines[:-1]] == CHECKS, lines
    assert all(line.startswith("ok    ") and line.endswith(" ms)") for line in lines[:-1]), lines
    assert lines[-1] == "all is well" and done.stderr == b"", done


def test_it_is_of_this_computer_alone(w):
    done = w.run("doctor", "--self-test", "--host", "you@machine", code=2)
    assert b"this computer alone" in done.stderr and b"--host HOST" in done.stderr, done
    w.run("doctor", "--self-test-part", "no-such", "--self-test-dir", w.tmp, code=2)
    assert b"self-test-part" not in w.run("doctor", "--help").stdout


def test_a_keyring_is_used(w):
    w.keyring()
    assert "stored in the keyring" in w.test()["key store"]["found"]
    checks = w.part("key-store", GPUCTL_KEY_STORE="file")
    assert "no system's store" in checks["key store"]["found"], checks["key store"]


def test_a_keyring_that_does_not_answer_is_none(w):
    w.keyring("#!/bin/sh\nexit 1\n")
    assert "does not answer" in w.part("key-store")["key store"]["found"]


def test_a_keyring_that_lies(w):
    lies = {"gives another back": SECRET_TOOL.replace("lookup) cat", "lookup) echo 7; cat"),
            "does not give it back": SECRET_TOOL.replace("&& mv", "|| mv"),
            "is still there": SECRET_TOOL.replace("clear) rm", "clear) :")}
    for words, text in lies.items():
        w.keyring(text)
        check = w.part("key-store", "key store")["key store"]
        assert words in check["found"] and "GPUCTL_KEY_STORE=file" in check["fix"], check
        shutil.rmtree(w.dir + "/ring", ignore_errors=True)


def test_a_keyring_that_waits_for_somebody(w):
    w.keyring("#!/bin/sh\nexec sleep 1000\n")
    checks = w.test("key-store", "nothing is left")
    assert "takes too long" in checks["key-store"]["found"], checks
    assert "asks for a password" in checks["key-store"]["fix"], checks
    assert checks["key-store"]["took_ms"] < 9000, checks


def test_a_user_manager_runs_the_job(w):
    w.manager()
    check = w.test()["scheduler"]
    assert check["found"].startswith("systemd's user manager: a job was installed, ran"), check


def test_a_scheduler_that_fails(w):
    worlds = [
        ("crontab", "#!/bin/sh\n[ $1 = -l ] && exec cat ~/table; echo you may not use it >&2; exit 1\n",
         "you may not use it", "crontab -l"),
        ("crontab", "#!/bin/sh\n[ $1 = -l ] && { echo broken >&2; exit 1; }; exit 0\n",
         "broken", "crontab -l"),
        ("crontab", "#!/bin/sh\n[ $1 = -l ] && exec cat ~/table; exit 0\n",
         "is not there", "crontab -l"),
        ("systemctl", "#!/bin/sh\nexit 0\n", "did not run within", "systemctl --user status"),
        ("systemctl", "#!/bin/sh\n[ $2 = enable ] && { echo no bus >&2; exit 1; }; exit 0\n",
         "no bus", "systemctl --user status"),
    ]
    for program, text, words, fix in worlds:
        w.program(program, text)
        check = w.part("scheduler", "scheduler")["scheduler"]
        assert words in check["found"] and fix in check["fix"], check
        # A part alone leaves the directories that it made.
        assert not glob.glob(w.dir + "/.config/**/*.*", recursive=True)
        shutil.rmtree(w.dir + "/.config", ignore_errors=True)
        w.check_clean()


def test_a_scheduler_that_keeps_what_is_removed(w):
    w.program("crontab", CRONTAB.replace(
        "else cat", "elif grep -q self-test \"$1\"; then cat"))
    check = w.test("scheduler")["scheduler"]
    assert "is still there" in check["found"], check
    with open(w.dir + "/table", "w", encoding="utf-8") as file:
        file.write(w.table)


def in_namespace(*commands):
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
            " && ".join(commands) + ' && exec "$@"', "sh"]


def test_a_broken_sshd(w):
    checks = w.test("sshd", "job", before=in_namespace("mount --bind /bin/false /usr/sbin/sshd"))
    assert "/usr/sbin/sshd" in checks["sshd"]["found"], checks["sshd"]
    assert "install openssh-server" in checks["sshd"]["fix"], checks["sshd"]
    assert checks["job"]["fix"], checks["job"]


def test_no_sshd(w):
    os.mkdir(w.dir + "/dead")
    hidden = ["mount --bind %s/dead %s" % (w.dir, folder)
              for folder in ("/usr/sbin", "/usr/local/sbin") if os.path.isdir(folder)]
    # unshare and mount are programs of /usr/bin.
    checks = w.test("sshd", "job", before=in_namespace(*hidden))
    assert checks["sshd"]["found"].startswith("not found"), checks["sshd"]
    assert "apt install openssh-server" in checks["sshd"]["fix"], checks["sshd"]
    os.rmdir(w.dir + "/dead")


def test_a_state_directory_that_cannot_be_written(w):
    checks = w.test("state directory", GPUCTL_STATE_DIR=w.dir + "/table/state")
    assert "GPUCTL_STATE_DIR" in checks["state directory"]["fix"], checks["state directory"]
    assert "job" in checks and "locks" not in checks, checks


def test_a_file_system_that_does_not_keep_its_word(w):
    for call, name, words in (("flock", "locks", "another process holds can be taken"),
                              ("mkfifo", "FIFO", "Operation not permitted"),
                              ("bind", "sockets", "listen on"),
                              ("link", "durable files", "link "),
                              ("copy_file_range", "copies", "has not what the original has")):
        check = w.part("files", name, LD_PRELOAD=BROKEN_SYSTEM, GPUCTL_TEST_BROKEN=call)[name]
        assert words in check["found"] and "GPUCTL_STATE_DIR" in check["fix"], check
        shutil.rmtree(w.env["GPUCTL_STATE_DIR"])


def test_what_cannot_be_removed_is_named(w):
    checks = w.test("nothing is left", LD_PRELOAD=BROKEN_SYSTEM, GPUCTL_TEST_BROKEN="rmdir")
    assert "self-test-" in checks["nothing is left"]["fix"], checks["nothing is left"]
    for left in os.listdir(w.tmp):
        shutil.rmtree(os.path.join(w.tmp, left))
    shutil.rmtree(w.env["GPUCTL_STATE_DIR"], ignore_errors=True)


def test_a_clock_that_is_wrong(w):
    boot_ms = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000
    check = w.part("clocks", "clocks", GPUCTL_TEST_CLOCK="1@86400000@%d" % boot_ms)["clocks"]
    assert "1970" in check["found"] and "set the clock" in check["fix"], check


def programs_with(w, agent, shim):
    folder = os.path.join(w.dir, "programs", "linux-" + os.uname().machine)
    os.makedirs(folder, exist_ok=True)
    own = os.path.dirname(w.gpuctl)
    for name, source in (("gpuctl-agent", agent or own + "/gpuctl-agent"),
                         ("gpuctl-shim", shim or own + "/gpuctl-shim")):
        shutil.copy(source, os.path.join(folder, name))
    return os.path.dirname(folder)


def test_an_agent_that_is_none(w):
    false = os.path.realpath(shutil.which("false"))
    checks = w.test("agent", GPUCTL_NODE_DIR=programs_with(w, false, None))
    assert "does not run here" in checks["agent"]["found"], checks["agent"]
    assert "install this gpuctl again" in checks["agent"]["fix"], checks["agent"]
    checks = w.test("job", GPUCTL_NODE_DIR=programs_with(w, None, false))
    assert checks["job"]["fix"], checks["job"]


def test_a_system_of_which_the_agent_knows_little(w):
    """Without /proc."""
    agent = os.path.dirname(w.gpuctl) + "/gpuctl-agent"
    done = subprocess.run(
        in_namespace("mount -t tmpfs none /proc", "mkdir /proc/self",
                     "ln -s %s /proc/self/exe" % agent) + [agent, "self-check"],
        env=w.env, stdout=subprocess.PIPE, timeout=DEADLINE_S, check=True).stdout.decode()
    lines = [line.split("\t") for line in done.splitlines()]
    judged = {line[1]: line[0] for line in lines}
    assert [name for name in judged if judged[name] == "ok"] == ["node root"], lines
    assert list(judged) == ["boot id", "node root", "process start times", "descendants",
                            "processes of a job", "signals to processes"], lines
    assert all(line[3] for line in lines if line[0] == "FAIL"), lines


def test_an_output_that_is_changed_on_its_way_home(w):
    def change(place):
        with open(place + "/node/jobs/" + os.listdir(place + "/node/jobs")[0] +
                  "/ckpt/step-1/input.bin", "r+b") as file:
            file.write(b"other")
        return True
    with w.meanwhile(change):
        check = w.test("results")["results"]
    assert "gpuctl pull" in check["found"] and check["fix"], check


def test_a_job_that_ends_when_its_laptop_leaves(w):
    def end(place):
        if not os.path.exists(place + "/jobs/stopped-1/pid"):
            return False
        # Its children, too: it lasts as long as they do.
        for pid, text in w.mine().items():
            if b"jobs/stopped-1" in text and b"launch" not in text:
                os.kill(pid, signal.SIGKILL)
        return True
    with w.meanwhile(end):
        check = w.test("detach and attach")["detach and attach"]
    assert check["fix"], check


def lives_on(w, job, lock):
    """Takes a process's lock as soon as it is free, as if the process still lived."""
    held = []

    def take(place):
        file = open(os.path.join(place, "jobs", job, lock), "rb")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Only what was held before has ended.
            if os.path.exists(os.path.join(place, "jobs", job, "pid")):
                held.append(file)
                return True
            fcntl.flock(file, fcntl.LOCK_UN)
        file.close()
        return False
    return w.meanwhile(take), held


def test_a_process_that_outlives_its_job(w):
    for job, lock, name, words in (
            ("stopped-1", "orphan.lock", "stop", "in a session of its own lives on"),
            ("stopped-1", "system.lock", "stop", "a program of this system, lives on"),
            ("killed-1", "orphan.lock", "kill -9 of a job", "a child of the killed job lives on"),
            ("lost-1", "job.lock", "kill -9 of a shim", "the job of a killed shim lives on")):
        meanwhile, held = lives_on(w, job, lock)
        with meanwhile:
            check = w.test(name)[name]
        assert words in check["found"] and check["fix"], check
        for file in held:
            file.close()


def test_an_agent_that_is_not_restarted(w):
    def stop_guard(place):
        # Before the job begins: the guard has no part in that.
        if not os.path.exists(place + "/jobs/killed-1/alive"):
            return False
        guards = [pid for pid, text in w.mine().items() if b"gpuctl-agent\0guard" in text]
        for pid in guards:
            os.kill(pid, signal.SIGSTOP)
        return bool(guards)
    with w.meanwhile(stop_guard):
        check = w.test("kill -9 of the agent")["kill -9 of the agent"]
    assert "no other server was started" in check["found"], check


class AnsweringTerminal(Terminal):
    """A terminal that says where its cursor is, `wider` columns further right."""

    def __init__(self, *args, wider=0, answers=True, **options):
        self.wider, self.answers, self.seen = wider, answers, 0
        super().__init__(*args, **options)

    def read_some(self):
        more = super().read_some()
        while self.answers and b"\x1b[6n" in self.text[self.seen:]:
            end = self.text.index(b"\x1b[6n", self.seen)
            line = self.text[:end].replace(b"\x1b[6n", b"").split(b"\n")[-1].split(b"\r")[-1]
            self.type(b"\x1b[1;%dR" % (len(without_colours(line)) + 1 + self.wider))
            self.seen = end + 4
        return more


def without_colours(line):
    text = line.decode()
    while "\x1b[" in text:
        begin = text.index("\x1b[")
        end = begin + 2
        while not text[end].isalpha():
            end += 1
        text = text[:begin] + text[end + 1:]
    return text


def test_a_terminal(w):
    t = AnsweringTerminal(w, "doctor", "--self-test")
    assert t.finish() == 0, t.text
    assert b"terminal: 80x24, UTF-8, colours: the panel is as wide as it should be" in t.text, t.text
    assert "━".encode() in t.text and b"this is what a run looks like" in t.text, t.text
    assert b"all is well" in t.text, t.text
    t = AnsweringTerminal(w, "doctor", "--self-test", wider=3)
    assert t.finish() == 1, t.text
    assert b"FAIL  terminal: 80x24" in t.text and b"ambiguous width" in t.text, t.text
    t = AnsweringTerminal(w, "doctor", "--self-test", answers=False)
    assert t.finish() == 0, t.text
    assert b"does not tell where its cursor is" in t.text, t.text


def interrupt(w, is_time, number=signal.SIGINT, **env):
    """Sends the signal when it is time. Returns how long the end took. Some moments are shorter
    than the time for which a busy machine lets this test wait: a self-test that passed its moment
    unseen is begun again."""
    for attempt in range(10):
        child = subprocess.Popen([w.gpuctl, "doctor", "--self-test"], cwd=w.work,
                                 env={**w.env, **env}, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        patience = Patience()
        while not is_time() and child.poll() is None:
            assert patience.lasts(), child.communicate()
            time.sleep(0.002)
        child.send_signal(number)
        begin = time.monotonic()
        out, err = child.communicate(timeout=DEADLINE_S)
        if child.returncode != 0:
            break
        assert attempt < 9, (attempt, out, err)
    if (child.returncode, out, err) != (-number, b"", b""):  # it had not even begun
        assert child.returncode == 130, (child.returncode, out, err)
        assert b"interrupted; nothing is left of it" in err, (out, err)
    w.check_clean()
    return time.monotonic() - begin


def test_ctrl_c_in_the_middle_leaves_nothing(w):
    w.keyring(SECRET_TOOL.replace('mkdir', 'sleep 0.2; mkdir'))
    w.program("crontab", CRONTAB.replace("#!/bin/sh\n", "#!/bin/sh\nsleep 0.1\n"))

    def there(*paths):
        def look():
            return any(os.path.exists(os.path.join(w.tmp, name, path))
                       for name in os.listdir(w.tmp) for path in paths)
        return look

    def table_is_changed():
        with open(w.dir + "/table", encoding="utf-8") as file:
            return "self-test" in file.read()

    def runs(words):
        return lambda: any(words in text for text in w.mine().values())
    moments = [lambda: os.listdir(w.tmp), there("key-store.stderr"),
               lambda: os.path.isdir(w.dir + "/ring") and os.listdir(w.dir + "/ring"),
               table_is_changed, runs(b"sshd\0-i"), lambda: os.path.exists(w.env["GPUCTL_STATE_DIR"]),
               lambda: glob.glob(w.env["GPUCTL_STATE_DIR"] + "/.self-test-*/held"), there("clocks.stderr"), there("state"), there("node/bin"),
               runs(b"gpuctl-agent\0bridge"), there("jobs/stopped-1/pid"), runs(b"attach"),
               there("home"), there("jobs/killed-1/alive"), there("jobs/lost-1/alive"),
               there("jobs/lost-1/pid")]
    for moment in moments:
        assert interrupt(w, moment) < DEADLINE_S / 4
    for number in (signal.SIGTERM, signal.SIGHUP):
        interrupt(w, there("jobs/stopped-1/pid"), number)
    begin = time.monotonic()
    for wait in (0.05, 0.4, 1.3, 2.9):
        begin = time.monotonic()
        interrupt(w, lambda wait=wait, begin=begin: time.monotonic() > begin + wait)


def test_ctrl_c_takes_a_unit_away(w):
    w.manager(SYSTEMCTL.replace("restart*)", "restart*) sleep 1;"))
    interrupt(w, lambda: glob.glob(w.dir + "/.config/systemd/user/gpuctl-self-test-*.timer"))


def test_ctrl_c_on_a_terminal(w):
    t = Terminal(w, "doctor", "--self-test")
    t.until(b"clocks")
    t.type(b"\x03")
    assert t.finish() == 130, t.text
    assert b"nothing is left of it" in t.text, t.text


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    for name in sys.argv[4:] or list(tests):
        begin = time.monotonic()
        world = World()
        try:
            tests[name](world)
            world.check_clean()
            print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:
            failed.append(name)
            print("FAILED %s\n%s" % (name, traceback.format_exc()), flush=True)
        finally:
            world.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

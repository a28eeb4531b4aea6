#!/usr/bin/env python3
"""The warm link: the connection that a process of ours keeps for the commands that follow, over a
real sshd.

  warm_link.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import contextlib
import hashlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from held_proxy import HeldProxy
from runs import DEADLINE_S, Patience, Skipped, is_locked, processes_with, run_tests, ssh_server
from sync import eventually, read, read_bytes, work_of

SEED = int(os.environ.get("GPUCTL_TEST_SEED", "1"))


def check_passed(what, took, usual):
    """Expects that a command got past something in its way. By itself that takes a second, and the
    rest is the connection; what hangs takes 10 s or more. The machine may be busy."""
    print("       %s: %.1f s, usually %.1f s" % (what, took, usual), flush=True)
    assert took < 5 + 3 * usual, (what, took, usual)


def links_dir(l):
    return os.path.join(l.env["GPUCTL_STATE_DIR"], "links")


def links(l):
    l.run("debug", "links", "-o", "jsonl")  # json_check looks at each line
    return l.json("debug", "links")["links"]


def holders(l):
    """Returns the pids of the holders of this laptop."""
    mark = b"GPUCTL_STATE_DIR=%s/state\0" % l.dir.encode()
    return [pid for pid, text in processes_with(b"hold-link").items()
            if mark in environ(pid)]


def environ(pid):
    with contextlib.suppress(OSError):
        with open("/proc/%d/environ" % pid, "rb") as file:
            return file.read()
    return b""


def a_link(l):
    """Waits until there is exactly one, and returns its description."""
    patience = Patience()
    while True:
        found = links(l)
        if len(found) == 1 and found[0]["answers"]:
            return found[0]
        assert patience.lasts(), found
        time.sleep(0.02)


@contextlib.contextmanager
def machine(l, name, *options, warm="10m"):
    """A machine behind a proxy with a run on it, and a warm link to it. Yields the proxy."""
    with ssh_server(l, *options) as (port, folder, restart), HeldProxy(port) as proxy:
        user = pwd.getpwuid(os.geteuid()).pw_name
        l.env["GPUCTL_WARM_LINK"] = warm
        try:
            l.run("launch", "-d", "--no-workdir", "--name", name,
                  "--host", "%s@127.0.0.1:%d" % (user, proxy.port),
                  "-i", os.path.join(folder, "user"), "--", "sleep", "1000000")
            proxy.restart = restart
            yield proxy
        finally:
            l.run("debug", "links", "--close", code=None)
            l.run("down", name, "-y", code=None, GPUCTL_WARM_LINK="off")
            l.env["GPUCTL_WARM_LINK"] = "off"
    patience = Patience()
    while holders(l):
        assert patience.lasts(), "a holder stays: %s" % holders(l)
        time.sleep(0.05)


def execute(l, name, *command, **more):
    return l.run("exec", name, "--", *command, **more)


def timed(function):
    begin = time.monotonic()
    result = function()
    return result, time.monotonic() - begin


def test_a_second_command_makes_no_connection(l):
    with machine(l, "warm") as proxy:
        link = a_link(l)
        assert link["node"].endswith(":%d" % proxy.port), link
        before = proxy.accepted
        for number in range(5):
            assert execute(l, "warm", "echo", str(number)).stdout == b"%d\n" % number
            assert b"warm" in l.run("ps", "-u").stdout
        assert proxy.accepted == before, "%d connections more" % (proxy.accepted - before)
        after = a_link(l)
        assert after["pid"] == link["pid"] and after["served"] >= 10, (link, after)
        assert json.loads(l.run("debug", "links", "-o", "jsonl").stdout)["pid"] == link["pid"]
        assert str(link["pid"]).encode() in l.run("debug", "links").stdout
        # What follows without an end has a connection of its own, and takes none of the few
        # channels of this one.
        child = l.start("attach", "warm")
        eventually(lambda: proxy.accepted > before, "a connection of attach")
        assert a_link(l)["commands"] == 0
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=DEADLINE_S)
        checks = {check["name"]: check for check in l.json(
            "doctor", "--host", "127.0.0.1", "-p", "1", code=None)["checks"]}
        assert checks["warm links"]["found"].startswith("1 connection kept"), checks["warm links"]


def test_commands_work_as_over_a_connection_of_their_own(l):
    with machine(l, "same") as proxy:
        a_link(l)
        before = proxy.accepted
        data = random.Random(SEED).randbytes(20 << 20)
        assert execute(l, "same", "cat", stdin=data).stdout == data
        done = execute(l, "same", "sh", "-c", "cat > in; echo out; echo err >&2; exit 7",
                       stdin=data, code=7)
        assert (done.stdout, done.stderr) == (b"out\n", b"err\n"), done
        assert hashlib.sha256(read_bytes(os.path.join(work_of(l, "same"), "in"))).digest() == \
            hashlib.sha256(data).digest()
        execute(l, "same", "sh", "-c", "kill -TERM $$", code=143)
        execute(l, "same", "no-such-program", code=127)
        done = execute(l, "same", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x >&2")
        assert done.stderr == b"x" * 3000000, len(done.stderr)
        # A command that is left ends there, as with a connection of its own.
        child = l.start("exec", "same", "--", "sh", "-c", "echo $$; exec sleep 1000")
        pid = int(child.stdout.readline())
        child.kill()
        child.wait()
        child.communicate()
        eventually(lambda: a_link(l)["commands"] == 0, "the end of its channel")
        os.kill(pid, 0)  # as by ssh without a terminal: sshd closes its pipes, and no more
        os.kill(pid, signal.SIGKILL)
        # A reader that stops holds up nobody else.
        child = l.start("exec", "same", "--", "sh", "-c", "yes | head -c 200000000")
        child.stdout.read(1)
        for number in range(3):
            execute(l, "same", "true")
        child.kill()
        child.communicate()
        assert proxy.accepted == before


def test_fifty_at_once_share_one(l):
    with machine(l, "many", "-o", "MaxStartups=100") as proxy:
        pid = a_link(l)["pid"]
        before = proxy.accepted
        children = [(n, l.start("exec", "many", "--", "echo", str(n))) for n in range(50)]
        for number, child in children:
            out, err = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0 and out == b"%d\n" % number, (number, out, err)
        assert holders(l) == [pid], holders(l)
        # A node allows ten channels. What finds none within three seconds connects by itself.
        assert proxy.accepted - before < 40, proxy.accepted - before
    # From nothing, too, there is never a second one.
    with machine(l, "many2", "-o", "MaxStartups=100") as proxy:
        a_link(l)
        assert l.json("debug", "links", "--close")["closed"] == 1
        eventually(lambda: not holders(l), "its end")
        children = [l.start("exec", "many2", "--", "true") for _ in range(20)]
        for child in children:
            out, err = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0, (out, err)
        a_link(l)
        eventually(lambda: len(holders(l)) == 1, "one holder")


def test_over_the_nodes_limit_a_command_connects_by_itself(l):
    with machine(l, "full", "-o", "MaxSessions=2") as proxy:
        a_link(l)
        before = proxy.accepted
        sleepers = [l.start("exec", "full", "--", "sh", "-c", "echo here; exec sleep 1000")
                    for _ in range(3)]
        for child in sleepers:
            assert child.stdout.readline() == b"here\n"
        assert proxy.accepted > before
        assert execute(l, "full", "echo", "more").stdout == b"more\n"
        for child in sleepers:
            child.kill()
            child.communicate()
        eventually(lambda: a_link(l)["commands"] == 0, "free channels")
        before = proxy.accepted
        assert execute(l, "full", "echo", "again").stdout == b"again\n"
        assert proxy.accepted == before


def test_a_frozen_holder_is_passed(l):
    with machine(l, "frozen"):
        link = a_link(l)
        pid, socket_path = link["pid"], link["socket"]
        _, usual = timed(lambda: execute(l, "frozen", "true", GPUCTL_WARM_LINK="off"))
        count = os.path.join(work_of(l, "frozen"), "count")
        add = ("sh", "-c", "echo once >> count")
        os.kill(pid, signal.SIGSTOP)
        _, took = timed(lambda: execute(l, "frozen", *add))
        check_passed("past a frozen holder", took, usual)
        # The next one finds no socket, and does not wait.
        assert not os.path.exists(socket_path)
        _, took = timed(lambda: l.run("ps", "-u"))
        check_passed("the next one", took, usual)
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: pid not in holders(l), "the end of the one that hung")
        assert read(count) == "once\n", read(count)


def test_a_holder_that_freezes_in_a_call(l):
    """Whatever it does when it stops: the call goes on over another connection."""
    rng = random.Random(SEED)
    with machine(l, "stops"):
        for _ in range(6):
            pid = a_link(l)["pid"]
            child = l.start("ps", "-u")
            time.sleep(rng.uniform(0, 0.08))
            os.kill(pid, signal.SIGSTOP)
            begin = time.monotonic()
            out, err = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0 and b"stops" in out, (child.returncode, out, err)
            check_passed("past one that froze in a call", time.monotonic() - begin, 1)
            os.kill(pid, signal.SIGKILL)
            execute(l, "stops", "true")


def test_a_holder_that_freezes_in_a_command_is_woken(l):
    """The command may have run already, so no other connection runs it again."""
    with machine(l, "woken"):
        pid = a_link(l)["pid"]
        count = os.path.join(work_of(l, "woken"), "count")
        child = l.start("exec", "woken", "--", "sh", "-c", "echo once >> count; echo began; sleep 3; echo end")
        assert child.stdout.readline() == b"began\n"
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        out, err = child.communicate(timeout=DEADLINE_S)
        assert (child.returncode, out) == (0, b"end\n"), (child.returncode, out, err)
        check_passed("past one that froze in a command", time.monotonic() - begin, 3)
        assert read(count) == "once\n", read(count)


def test_a_killed_holder_in_seeded_rounds(l):
    rng = random.Random(SEED)
    rounds = int(os.environ.get("GPUCTL_TEST_ROUNDS", "25"))
    with machine(l, "killed"):
        log = os.path.join(work_of(l, "killed"), "log")
        ran, unclear = [], []
        for number in range(rounds):
            if number % 3 == 0:
                a_link(l)
            word = "w%d" % number
            children = [l.start("exec", "killed", "--", "sh", "-c",
                                "echo %s >> log; echo %s" % (word, word)), l.start("ps", "-u")]
            time.sleep(rng.uniform(0, 0.12))
            for pid in holders(l):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            begin = time.monotonic()
            out, err = children[0].communicate(timeout=DEADLINE_S)
            assert time.monotonic() - begin < 20, (number, time.monotonic() - begin)
            if children[0].returncode == 0:
                assert out == (word + "\n").encode(), (number, out, err)
                ran.append(word)
            else:
                assert b"the connection to the node broke" in err, (number, out, err)
                unclear.append(word)
            out, err = children[1].communicate(timeout=DEADLINE_S)
            # A call that asks only is asked again.
            assert children[1].returncode == 0 and b"killed" in out, (number, out, err)
            execute(l, "killed", "true")
        lines = read(log).split()
        for word in ran:
            assert lines.count(word) == 1, (word, lines.count(word))
        for word in unclear:
            assert lines.count(word) <= 1, (word, lines.count(word))
        print("       %d rounds: %d ran, %d were cut and said so" % (
            rounds, len(ran), len(unclear)), flush=True)
        a_link(l)


def test_a_network_that_is_gone(l):
    """As after a laptop slept: the connection is there, and nothing comes over it."""
    with machine(l, "gone") as proxy:
        for command in (lambda: execute(l, "gone", "echo", "x").stdout == b"x\n",
                        lambda: b"gone" in l.run("ps", "-u").stdout):
            pid = a_link(l)["pid"]
            _, usual = timed(lambda: execute(l, "gone", "true", GPUCTL_WARM_LINK="off"))
            proxy.lose_all()
            good, took = timed(command)
            assert good
            check_passed("past a network that is gone", took, usual)
            # Meanwhile it sends commands away at once.
            _, took = timed(lambda: execute(l, "gone", "true"))
            check_passed("the next one", took, usual)
            eventually(lambda: pid not in holders(l), "its end")
            execute(l, "gone", "true")
        a_link(l)


def test_it_goes_when_nobody_comes(l):
    with machine(l, "idle", warm="8s"):
        pid = a_link(l)["pid"]
        execute(l, "idle", "true")
        eventually(lambda: pid not in holders(l), "its end")
        assert not [name for name in os.listdir(links_dir(l)) if name.endswith(".sock")]


def test_its_end_by_other_things(l):
    gpuctl = l.gpuctl
    with machine(l, "ends") as proxy:
        # Another program in its place.
        folder = os.path.join(l.dir, "installed")
        shutil.copytree(os.path.dirname(gpuctl), folder, ignore=shutil.ignore_patterns("*.debug"),
                        dirs_exist_ok=True)
        l.run("debug", "links", "--close")
        l.gpuctl = os.path.join(folder, "gpuctl")
        execute(l, "ends", "true")
        pid = a_link(l)["pid"]
        shutil.copy(gpuctl, l.gpuctl + ".new")
        os.rename(l.gpuctl + ".new", l.gpuctl)
        eventually(lambda: pid not in holders(l), "the end of the replaced program's")
        # Another version finds it not.
        execute(l, "ends", "true")
        mine = a_link(l)
        version = l.run("--version").stdout.split()[1]
        other = version[:-1] + (b"8" if version[-1:] != b"8" else b"9")
        with open(l.gpuctl, "rb") as file:
            text = file.read()
        l.gpuctl = os.path.join(folder, "gpuctl-other")
        with open(l.gpuctl, "wb") as file:
            file.write(text.replace(version, other))
        os.chmod(l.gpuctl, 0o755)
        execute(l, "ends", "true")
        eventually(lambda: len(holders(l)) == 2, "one of each version")
        eventually(lambda: all(link["answers"] for link in links(l)), "both answer")
        assert mine["served"] == {link["pid"]: link for link in links(l)}[mine["pid"]]["served"]
        l.gpuctl = gpuctl
        # SIGTERM, and the end of the connection.
        for pid in holders(l):
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: not holders(l), "the end by SIGTERM")
        execute(l, "ends", "true")
        a_link(l)
        proxy.cut()
        eventually(lambda: not holders(l), "the end of the connection")
        proxy.join()
        # The state directory goes: the one of a test, or of a user who tidies up.
        execute(l, "ends", "true")
        a_link(l)
        shutil.rmtree(links_dir(l))
        _, took = timed(lambda: eventually(lambda: not holders(l), "the end without a directory"))
        assert took < 10, took
        execute(l, "ends", "true")
        a_link(l)


def close_all(l):
    """Ends the holders, also one that is just starting and hears nobody yet."""
    eventually(lambda: l.run("debug", "links", "--close") and not holders(l), "its end")


def test_what_lies_in_its_place(l):
    with machine(l, "place") as proxy:
        path = a_link(l)["socket"]
        # What a killed one left.
        for pid in holders(l):
            os.kill(pid, signal.SIGKILL)
        assert os.path.exists(path)
        assert execute(l, "place", "echo", "1").stdout == b"1\n"
        assert a_link(l)["socket"] == path
        # Something else.
        close_all(l)
        with open(path, "w") as file:
            file.write("mine\n")
        assert execute(l, "place", "echo", "2").stdout == b"2\n"
        a_link(l)
        # Somebody who listens and says nothing, or nonsense, or ends.
        close_all(l)
        for answer in (None, b"\xff" * 64, b""):
            with contextlib.suppress(OSError):
                os.unlink(path)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen(8)

                def serve():
                    with contextlib.suppress(OSError):
                        peer, _ = listener.accept()
                        if answer:
                            peer.sendall(answer)
                        if answer is None:
                            time.sleep(3)
                        peer.close()
                thread = threading.Thread(target=serve)
                thread.start()
                done, took = timed(lambda: execute(l, "place", "echo", "3"))
                assert done.stdout == b"3\n", done
                check_passed("past a stranger", took, 1)
                with contextlib.suppress(OSError):
                    listener.shutdown(socket.SHUT_RDWR)
                thread.join()
        # A directory that others can write to is not used.
        close_all(l)
        os.chmod(links_dir(l), 0o777)
        assert execute(l, "place", "echo", "4").stdout == b"4\n"
        time.sleep(0.3)
        assert not holders(l)
        os.chmod(links_dir(l), 0o700)


def test_another_users_socket(l):
    if os.geteuid() != 0:
        raise Skipped("another user's socket needs root")
    with machine(l, "foreign"):
        path = a_link(l)["socket"]
        close_all(l)
        with contextlib.suppress(OSError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(8)
        pid = os.fork()
        if pid == 0:
            os.setuid(65534)
            # The credentials of a listener are those of the call.
            listener.listen(8)
            listener.settimeout(20)
            code = 0
            with contextlib.suppress(OSError):
                peer, _ = listener.accept()
                code = 1 if peer.recv(1) else 0
            os._exit(code)
        time.sleep(0.3)
        assert execute(l, "foreign", "echo", "x").stdout == b"x\n"
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, "it was told something"
        listener.close()


def test_when_there_is_none(l):
    with machine(l, "none", warm="off") as proxy:
        execute(l, "none", "true")
        time.sleep(0.3)
        assert not holders(l)
        config = os.path.join(l.dir, "config")
        os.makedirs(config, exist_ok=True)
        with open(os.path.join(config, "config.toml"), "w") as file:
            file.write('warm_link = "off"\n')
        execute(l, "none", "true", GPUCTL_WARM_LINK="", GPUCTL_CONFIG_DIR=config)
        time.sleep(0.3)
        assert not holders(l)
        done = execute(l, "none", "true", GPUCTL_WARM_LINK="soon", code=2)
        assert b"GPUCTL_WARM_LINK: must be a time" in done.stderr, done.stderr
        # A path that no socket can have, and no home.
        state = os.path.join(l.dir, "x" * 90)
        os.rename(l.env["GPUCTL_STATE_DIR"], state)
        try:
            assert execute(l, "none", "echo", "long", GPUCTL_STATE_DIR=state,
                           GPUCTL_WARM_LINK="10m").stdout == b"long\n"
            time.sleep(0.3)
            assert not holders(l)
            found = [check for check in l.json("doctor", "--host", "127.0.0.1", "-p", "1", code=None,
                                               GPUCTL_STATE_DIR=state, GPUCTL_WARM_LINK="10m")[
                "checks"] if check["name"] == "warm links"]
            assert "too long for a socket" in found[0]["found"], found
        finally:
            os.rename(state, l.env["GPUCTL_STATE_DIR"])
        env = {key: value for key, value in l.env.items() if key != "HOME"}
        env.update(GPUCTL_WARM_LINK="10m", GPUCTL_CONFIG_DIR=os.path.join(l.dir, "no-config"))
        for number in range(2):
            done = subprocess.run([l.gpuctl, "exec", "none", "--", "echo", "homeless"], env=env,
                                  cwd=l.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=DEADLINE_S, check=True)
            assert done.stdout == b"homeless\n", done
            a_link(l)
        close_all(l)


def test_few_descriptors(l):
    with machine(l, "few", "-o", "MaxStartups=100"):
        a_link(l)
        # A command with hardly any, and then a holder that was started with hardly any.
        for most in (14, 17, 20, 24, 32):
            done = subprocess.run(
                ["sh", "-c", "ulimit -n %d; exec \"$0\" \"$@\"" % most, l.gpuctl, "exec", "few", "--",
                 "echo", "x"], env=l.env, cwd=l.work, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False)
            assert done.returncode == 0 or done.stderr, (most, done)
        close_all(l)
        subprocess.run(["sh", "-c", "ulimit -n 32; exec \"$0\" \"$@\"", l.gpuctl, "exec", "few", "--",
                        "true"], env=l.env, cwd=l.work, stdin=subprocess.DEVNULL, check=True,
                       timeout=DEADLINE_S)
        children = [l.start("exec", "few", "--", "sh", "-c", "sleep 0.2; echo x") for _ in range(12)]
        for child in children:
            out, err = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0 and out == b"x\n", (out, err)


def test_a_new_host_key_is_found_out_by_new_connections(l):
    with machine(l, "rekeyed") as proxy:
        a_link(l)
        proxy.restart("host2")
        # The connection that is there was made to the right machine.
        assert execute(l, "rekeyed", "echo", "x").stdout == b"x\n"
        done = execute(l, "rekeyed", "true", GPUCTL_WARM_LINK="off", code=None)
        assert done.returncode != 0 and b"host key" in done.stderr, done
        l.run("debug", "links", "--close")
        done = execute(l, "rekeyed", "true", code=None)
        assert done.returncode != 0 and b"host key" in done.stderr, done
        time.sleep(0.5)
        assert not holders(l)
        proxy.restart("host")


def test_it_keeps_no_secret_and_is_no_contact(l):
    l.env["GPUCTL_RUNPOD_API_KEY"] = "canary-of-a-key"
    try:
        with machine(l, "quiet"):
            pid = a_link(l)["pid"]
            assert b"canary" not in environ(pid)
            with open("/proc/%d/cmdline" % pid, "rb") as file:
                words = file.read().split(b"\0")
            assert words[1:] == [b"hold-link", b""], words
            assert os.readlink("/proc/%d/cwd" % pid) == "/"
            for number in range(3):
                target = os.readlink("/proc/%d/fd/%d" % (pid, number))
                assert target == "/dev/null" or number == 0 and target.startswith("pipe:"), target
            assert os.getsid(pid) == pid
            # On the node a bridge waits for the next command. A machine that is idle with that is
            # idle, and its limits count.
            bridges = lambda: [text for text in processes_with(b"bridge\0--wait").values()]
            eventually(bridges, "a bridge that waits")
            lock = os.path.join(l.root, "contact.lock")
            eventually(lambda: not os.path.exists(lock) or not is_locked(lock), "no contact")
            l.run("ps", "-u")
            eventually(lambda: os.path.exists(lock) and not is_locked(lock), "no contact")
    finally:
        del l.env["GPUCTL_RUNPOD_API_KEY"]


if __name__ == "__main__":
    run_tests(globals())

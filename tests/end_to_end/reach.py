#!/usr/bin/env python3
"""ssh, exec -t and forward, and the user's own ssh and scp, over the real path: a real sshd.

  reach.py GPUCTL FAKE_JOB [TEST...]

Works as runs.py does, with the same laptop.
"""
import contextlib
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import termios
import threading
import time
import urllib.request

import json_check
from held_proxy import HeldProxy
from runs import (DEADLINE_S, Patience, Terminal, held_job, open_gate, processes_with, run_tests,
                  ssh_server, wait_for_file)
from sync import eventually, read, work_of, write

# A server that answers each connection, once that has sent all, with the hash of what came, and
# then with as many bytes as the first line said.
ECHO = r"""
import hashlib, socket, sys, threading
def serve(peer):
    with peer:
        file, digest = peer.makefile("rb"), hashlib.sha256()
        line = file.readline()
        digest.update(line)
        while True:
            some = file.read(1 << 16)
            if not some:
                break
            digest.update(some)
        peer.sendall(digest.hexdigest().encode() + b"\n")
        left = int(line)
        while left:
            some = b"x" * min(left, 1 << 16)
            peer.sendall(some)
            left -= len(some)
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
with open("port.part", "w") as file:
    file.write(str(listener.getsockname()[1]))
import os
os.rename("port.part", "port")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
HTTP = "cd www && exec python3 -u -m http.server --bind 127.0.0.1 0 > ../http.log 2>&1"


def node(l, port, folder):
    user = pwd.getpwuid(os.geteuid()).pw_name
    return ["--host", "%s@127.0.0.1:%d" % (user, port), "-i", os.path.join(folder, "user")]


def launch(l, name, *command, where=()):
    l.run("launch", "-d", "--no-workdir", "--name", name, *where, "--", *command)
    return work_of(l, name)


def echo_run(l, name, where=()):
    """Starts a run with the server above. Returns the server's port."""
    work = launch(l, name, "python3", "-c", ECHO, where=where)
    wait_for_file(os.path.join(work, "port"))
    return int(read(os.path.join(work, "port")))


class Forward:
    """gpuctl forward as a child."""

    def __init__(self, l, *args):
        self.child = l.start("forward", *args)
        self.said = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stderr:
            self.said += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    def port(self):
        """Returns the port here, of the next line."""
        line = self.child.stdout.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+)$", line.strip())
        assert found, (line, self.said)
        return int(found.group(1))

    def interrupt(self):
        self.child.send_signal(signal.SIGINT)
        return self.child.wait(timeout=DEADLINE_S)


def ask(port, back, data=b""):
    """Sends, ends that direction, and returns the hash there and the number of bytes that came."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as peer:
        first = b"%d\n" % back
        sender = threading.Thread(target=lambda: (peer.sendall(first + data),
                                                  peer.shutdown(socket.SHUT_WR)))
        sender.start()
        file = peer.makefile("rb")
        said = file.readline().strip().decode()
        count = 0
        while True:
            some = file.read(1 << 16)
            if not some:
                break
            count += len(some)
        sender.join()
    assert said == hashlib.sha256(first + data).hexdigest(), (said, count)
    return count


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def gone(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return False
    except OSError:
        return True


def stop(l, *names):
    l.run("stop", *names)


@contextlib.contextmanager
def other_state(l):
    """Yields the laptop with a list of runs of its own."""
    before = l.env["GPUCTL_STATE_DIR"]
    l.env["GPUCTL_STATE_DIR"] = os.path.join(l.dir, "other-state")
    try:
        yield
    finally:
        l.env["GPUCTL_STATE_DIR"] = before


def test_no_name_is_the_newest_live_run(l):
    with other_state(l):
        check_no_name(l)


def check_no_name(l):
    for words in (["logs"], ["forward", "6006"], ["ssh"]):
        assert b"no run is live" in l.run(*words, code=2).stderr
    done = l.run("logs", code=2)
    assert b"gpuctl launch" in done.stderr, done.stderr
    gates = [held_job(l, "first-1"), held_job(l, "second-1")]
    l.run("launch", "--no-workdir", "--name", "over-1", "--", "echo", "done")
    done = l.run("logs")
    assert done.stdout == b"begin\n" and b"newest live run is second-1" in done.stderr, done
    assert l.run("logs", "@last").stdout == b"done\n"
    done = l.run("exec", "--", "sh", "-c", "pwd")
    assert done.stdout.decode().strip() == work_of(l, "second-1"), done
    assert l.json("metrics")["runs"][0]["name"] == "second-1"
    # An empty variable of a script names nothing, and so ends nothing.
    for verb in ("stop", "attach", "pull"):
        assert b"no run \"\"" in l.run(verb, "", code=2).stderr
    for flag in ("-y", "--force"):
        assert b"takes the names of runs" in l.run("down", flag, code=2).stderr
    done = l.run("stop")
    assert b"newest live run is second-1" in done.stderr and b"second-1 " in done.stderr, done
    done = l.run("wait", "--timeout", "1s", code=124)
    assert b"first-1" in done.stderr, done.stderr
    t = Terminal(l, "down")
    t.until(b"first-1")
    t.until(b"[y/N]")
    t.type(b"y\n")
    assert t.finish() == 0, t.text
    assert b"no run is live" in l.run("stop", code=2).stderr
    assert b"@last" in l.run("stop", code=2).stderr
    for gate in gates:
        os.unlink(gate)


def check_traffic(l, name, there):
    with Forward(l, name, str(there)) as forward:
        # The server has the number itself, on the same machine.
        here = forward.port()
        assert here != there, here
        assert ask(here, 10) == 10
        big = 100_000_000
        assert ask(here, big) == big
        assert ask(here, 5, os.urandom(big)) == 5
        assert ask(here, big // 2, os.urandom(big // 2)) == big // 2
        errors = []

        def one(number):
            try:
                assert ask(here, number * 1000, os.urandom(50_000)) == number * 1000
            except Exception as error:  # noqa: BLE001
                errors.append(error)
        threads = [threading.Thread(target=one, args=(number,)) for number in range(50)]
        # All at once: none has ended before the last has begun.
        held = [socket.create_connection(("127.0.0.1", here), DEADLINE_S) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for peer in held:
            peer.sendall(b"3\n")
            peer.shutdown(socket.SHUT_WR)
            assert peer.makefile("rb").read().endswith(b"\nxxx")
            peer.close()
        assert not errors, errors
        # An answer that nobody reads on, and a connection without a word.
        with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as peer:
            peer.sendall(b"50000000\n")
            peer.shutdown(socket.SHUT_WR)
            peer.recv(10)
        socket.create_connection(("127.0.0.1", here)).close()
        assert ask(here, 1) == 1
        assert forward.interrupt() == 0, forward.said
    assert gone(here)
    eventually(lambda: not processes_with(b"ssh\0--stdio"), "its ssh ends")


def test_forward_to_this_machine(l):
    there = echo_run(l, "echo-1")
    check_traffic(l, "echo-1", there)
    stop(l, "echo-1")


def test_forward_by_a_real_sshd(l):
    with ssh_server(l) as (port, folder, _):
        there = echo_run(l, "far-1", node(l, port, folder))
        check_traffic(l, "far-1", there)
        stop(l, "far-1")


def test_forward_a_web_server(l):
    with ssh_server(l) as (port, folder, _):
        work = launch(l, "web-1", "sh", "-c", "mkdir www; head -c 30000000 /dev/urandom > www/big; " +
                      HTTP, where=node(l, port, folder))
        eventually(lambda: "port " in (read(work + "/http.log") if os.path.exists(work + "/http.log")
                                       else ""), "the server listens")
        there = int(re.search(r"port (\d+)", read(work + "/http.log")).group(1))
        chosen = free_port()
        with Forward(l, "web-1", "%d:%d" % (there, chosen)) as forward:
            assert forward.port() == chosen
            with urllib.request.urlopen("http://127.0.0.1:%d/big" % chosen, timeout=300) as reply:
                got = reply.read()
            with open(work + "/www/big", "rb") as file:
                assert file.read() == got
            # Not for other computers.
            listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"],
                                       stdout=subprocess.PIPE, check=False).stdout.decode()
            found = re.findall(r": ([0-9A-F]+):%04X [0-9A-F:]+ 0A" % chosen, listening)
            assert found == ["0100007F"], found
            # The same port twice.
            done = l.run("forward", "web-1", "%d:%d" % (there, chosen), code=1)
            assert b"in use" in done.stderr and b"HINT: name another" in done.stderr, done.stderr
            assert forward.interrupt() == 0
        # Nothing listens there: ssh says so, and goes on.
        stop(l, "web-1")
        with Forward(l, "web-1", str(there)) as forward:
            here = forward.port()
            assert here != there  # the node is this computer, and the port would lead to itself
            with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as peer:
                assert peer.recv(1) == b""
            eventually(lambda: b"refused" in forward.said, "ssh's word")
            assert forward.interrupt() == 0
        done = l.run("forward", "web-1", "%d:%d" % (there, there), code=1)
        assert b"lead to itself" in done.stderr, done.stderr


def test_forward_goes_on_after_a_broken_link(l):
    with ssh_server(l) as (port, folder, _), HeldProxy(port) as proxy:
        there = echo_run(l, "cut-1", node(l, proxy.port, folder))
        with Forward(l, "cut-1", str(there)) as forward:
            here = forward.port()
            with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as peer:
                peer.sendall(b"1\n")
                proxy.cut()
                with contextlib.suppress(ConnectionResetError):
                    assert peer.recv(1) == b""  # it ends
            eventually(lambda: b"forwarding again" in forward.said, "it says so")
            proxy.join()
            assert forward.port() == here, "the same port again"
            assert ask(here, 7) == 7
            assert forward.interrupt() == 0
        # A link that is down from the beginning is an error.
        proxy.cut()
        done = l.run("forward", "cut-1", str(there), code=123)
        assert b"HINT" in done.stderr, done.stderr
        proxy.join()
        stop(l, "cut-1")


def test_ports_of_the_run_file(l):
    with ssh_server(l) as (port, folder, _):
        there = free_port()
        write(os.path.join(l.work, "ports.yaml"),
              "name: filed-1\nports: [%d]\nrun: exec python3 -c \"$CODE\"\n" % there)
        child = l.start("launch", "ports.yaml", "--no-workdir", *node(l, port, folder), "-e",
                        "CODE=" + ECHO.replace('("127.0.0.1", 0)', '("127.0.0.1", %d)' % there))
        here = shown_port(child.stderr, there)
        eventually(lambda: os.path.exists(os.path.join(work_of(l, "filed-1"), "port")), "it serves")
        assert ask(here, 12) == 12
        # A second terminal has a port of its own.
        other = l.start("attach", "filed-1")
        second = shown_port(other.stderr, there)
        assert second != here and ask(second, 3) == 3
        for each, number in ((child, here), (other, second)):
            each.send_signal(signal.SIGINT)
            assert each.wait(timeout=DEADLINE_S) == 0
            assert gone(number)
        # With a link of its own; detached, nothing is forwarded.
        t = Terminal(l, "attach", "filed-1")
        t.until(b"http://127.0.0.1:")
        t.type(b"\x03")
        assert t.finish() == 0
        stop(l, "filed-1")
        eventually(lambda: not processes_with(b"ssh\0--stdio"), "its ssh ends")
        done = l.run("launch", "--forward", "x", "--", "true", code=2)
        assert b"ports: \"x\" is no port" in done.stderr, done.stderr
        # A port that is taken does not disturb the run.
        with socket.create_server(("127.0.0.1", 0)) as taken:
            number = taken.getsockname()[1]
            done = l.run("launch", "--no-workdir", "--forward", "1:%d" % number, "--", "sh", "-c",
                         "echo hello; sleep 2; exit 3", code=3)
        assert done.stdout == b"hello\n" and b"are not forwarded" in done.stderr, done


def shown_port(lines, there):
    for line in lines:
        found = re.search(rb"port %d there: http://127\.0\.0\.1:(\d+)" % there, line)
        if found:
            return int(found.group(1))
    raise AssertionError("it ended without a port")


def test_forward_refuses_what_is_no_port(l):
    l.run("launch", "--no-workdir", "--name", "port-1", "--", "true")
    for words in (["port-1"], ["port-1", "0"], ["port-1", "65536"], ["port-1", "6006:x"], [],
                  ["port-1", "1:2:3"], ["port-1", "6006:8080", "80:8080"]):
        assert b"HINT: for example" in l.run("forward", *words, code=2).stderr
    with ssh_server(l) as (port, folder, _):
        launch(l, "port-2", "sleep", "600", where=node(l, port, folder))
        shutil.move(os.path.join(folder, "user"), os.path.join(folder, "user.away"))
        try:
            l.run("forward", "port-2", "6006", code=120)
        finally:
            shutil.move(os.path.join(folder, "user.away"), os.path.join(folder, "user"))
        stop(l, "port-2")


def test_a_killed_forward_leaves_nothing(l):
    there = echo_run(l, "dead-1")
    with Forward(l, "dead-1", str(there)) as forward:
        here = forward.port()
        # A browser's connection stays open.
        with socket.create_connection(("127.0.0.1", here), DEADLINE_S) as peer:
            peer.sendall(b"5\n")
            time.sleep(0.2)
            forward.child.kill()
            forward.child.wait()
            eventually(lambda: gone(here), "the port is free")
    eventually(lambda: not processes_with(b"ssh\0--stdio"), "its ssh ends")
    stop(l, "dead-1")


def shell_test(l, name, where=()):
    work = launch(l, name, "sleep", "600", where=("--env", "COLOUR=red $HOME 'x'", *where))
    t = Terminal(l, "ssh", name, rows=31, columns=97)
    t.type(b"PS1=READY; stty -echo; echo in:$PWD; echo \"is:$COLOUR\" $GPUCTL_RUN_ID; stty size\n")
    t.until(("in:" + work).encode())
    t.until(b"is:red $HOME 'x' r-")
    t.until(b"31 97")
    t.resize(40, 120)
    t.type(b"stty size\n")
    t.until(b"40 120")
    # Ctrl-C is the command's there.
    t.type(b"cat; echo code:$?\n")
    time.sleep(0.2)
    t.type(b"\x03")
    t.type(b"\necho again\n")
    t.until(b"again")
    t.type(b"exit 7\n")
    assert t.finish() == 7, t.text
    # A command on a terminal, and its end.
    t = Terminal(l, "ssh", name, "--", "sh", "-c", "test -t 0 && echo yes; pwd; exit 3")
    assert t.finish() == 3 and b"yes" in t.text and work.encode() in t.text, t.text
    # Without a terminal, as ssh.
    done = l.run("ssh", name, "--", "sh", "-c", "cat; test -t 1 || echo piped; exit 4",
                 stdin=b"a\0b\n", code=4)
    assert done.stdout == b"a\0b\npiped\n", done
    done = l.run("ssh", name, stdin=b"echo $GPUCTL_JOB_ID; pwd; exit 9\n", code=9)
    assert work.encode() in done.stdout, done
    l.run("ssh", name, "--", "sh", "-c", "kill -9 $$", code=137)
    done = l.run("ssh", name, "--", "no-such-command-x", code=127)
    # exec -t gives a terminal in any case.
    done = l.run("exec", "-t", name, "--", "sh", "-c", "test -t 1 && echo yes; exit 5", code=5)
    assert done.stdout == b"yes\r\n", done
    t = Terminal(l, "exec", "-t", name, "--", "sh", "-c", "echo go; read x; echo got $x")
    t.until(b"go")
    t.type(b"word\n")
    t.until(b"got word")
    assert t.finish() == 0
    t = Terminal(l, "exec", "-t", name, "--", "sh", "-c", "echo go; exec sleep 100")
    t.until(b"go")
    t.type(b"\x03")
    assert t.finish() == 130, t.text
    stop(l, name)
    # The run is over, and the machine still there.
    assert l.run("ssh", name, "--", "pwd").stdout.decode().strip() == work


def test_ssh_to_this_machine(l):
    shell_test(l, "shell-1")


def test_ssh_by_a_real_sshd(l):
    with ssh_server(l) as (port, folder, _):
        shell_test(l, "shell-2", node(l, port, folder))


def test_ssh_forwards_a_port(l):
    there = echo_run(l, "both-1")
    child = l.start("ssh", "both-1", "-L", str(there), "--", "sh", "-c", "echo on; sleep 100")
    assert child.stdout.readline() == b"on\n"
    said = child.stderr.readline().decode()
    while "here" not in said:
        said = child.stderr.readline().decode()
    assert ask(int(re.search(r"127\.0\.0\.1:(\d+)", said).group(1)), 3) == 3
    child.terminate()
    child.wait(timeout=DEADLINE_S)
    for port in ("x", "0", "1:x"):
        l.run("ssh", "both-1", "-L", port, "--", "true", code=2)
    stop(l, "both-1")


@contextlib.contextmanager
def users_ssh(l):
    """Yields ssh's flag for the configuration that gpuctl set up."""
    config = os.path.join(l.dir, ".ssh/config")
    write(config, "Host other\n  User nobody\n")
    os.chmod(config, 0o640)
    l.run("ssh", "--setup", "-y")
    try:
        yield ["-F", config]
    finally:
        shutil.rmtree(os.path.dirname(config))


def system(l, *words, code=0, stdin=b""):
    done = subprocess.run(words, cwd=l.work, env=l.env, input=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False)
    assert code is None or done.returncode == code, done
    return done


def test_setup_writes_only_when_asked(l):
    config = os.path.join(l.dir, ".ssh/config")
    line = l.run("ssh", "--setup").stdout
    assert line.startswith(b"Include ") and not os.path.exists(config), line
    assert not l.json("ssh", "--setup")["installed"]
    t = Terminal(l, "ssh", "--setup")
    t.until(b"[y/N]")
    t.type(b"n\n")
    assert t.finish() == 0 and not os.path.exists(config), t.text
    real = os.path.join(l.dir, "dotfiles")
    write(real, "Host x\n  Port 7\n")
    os.chmod(real, 0o640)
    os.makedirs(os.path.dirname(config), exist_ok=True)
    os.symlink(real, config)
    for _ in range(2):
        l.run("ssh", "--setup", "-y")
        assert read(real) == line.decode() + "\nHost x\n  Port 7\n", read(real)
    assert os.path.islink(config) and os.stat(real).st_mode & 0o777 == 0o640
    assert l.json("ssh", "--setup")["installed"]
    shutil.rmtree(os.path.dirname(config))
    for words in (("--setup", "-L", "1"), ("-y",), ("--setup", "x")):
        l.run("ssh", *words, code=2)


def own_ssh_test(l, name, where=()):
    launch(l, name, "sleep", "600", where=where)
    with users_ssh(l) as flags:
        host = "gpuctl-" + name
        done = system(l, "ssh", *flags, host, "echo $((6*7)); cat", stdin=b"in")
        assert done.stdout == b"42\nin", done
        system(l, "ssh", *flags, host, "exit 6", code=6)
        # A part of the name, too.
        assert system(l, "ssh", *flags, host[:-1], "echo x").stdout == b"x\n"
        data = os.urandom(5_000_000)
        with open(os.path.join(l.work, "up"), "wb") as file:
            file.write(data)
        remote = os.path.join(l.dir, "scp-there")
        system(l, "scp", "-q", *flags, "up", "%s:%s" % (host, remote))
        system(l, "scp", "-q", *flags, "%s:%s" % (host, remote), "down")
        with open(os.path.join(l.work, "down"), "rb") as file:
            assert file.read() == data
        done = system(l, "sftp", *flags, "-b", "-", host, stdin=b"ls -l %s\n" % remote.encode())
        assert b"5000000" in done.stdout, done
        # Editors forward ports over the same connection.
        there = echo_run(l, "ports-" + name, where)
        here = free_port()
        child = subprocess.Popen(["ssh", *flags, "-N", "-L", "%d:127.0.0.1:%d" % (here, there), host],
                                 env=l.env, stdin=subprocess.DEVNULL)
        eventually(lambda: not gone(here), "ssh listens")
        assert ask(here, 9) == 9
        child.terminate()
        child.wait(timeout=DEADLINE_S)
        # Editors list the hosts that have a block.
        listed = os.listdir(os.path.join(l.env["GPUCTL_STATE_DIR"], "ssh/hosts"))
        assert {name, "ports-" + name} <= set(listed), listed
        # Other hosts stay as they were.
        done = system(l, "ssh", *flags, "-G", "other")
        assert b"user nobody" in done.stdout and b"gpuctl" not in done.stdout, done.stdout
        # What is no run.
        done = system(l, "ssh", *flags, "gpuctl-no-such-run", "true", code=255)
        assert b"no run \"no-such-run\"" in done.stderr, done.stderr
        # A name must not become a command here.
        for evil in ("gpuctl-x'; touch {0}; '", "gpuctl-$(touch {0})", "gpuctl-`touch {0}`",
                     "gpuctl-x;touch {0}", "gpuctl-../../x", "gpuctl-"):
            mark = os.path.join(l.dir, "evil")
            system(l, "ssh", *flags, "--", evil.format(mark), "true", code=255)
            assert not os.path.exists(mark), evil
    os.unlink(remote)
    stop(l, name, "ports-" + name)


def test_own_ssh_and_scp_to_this_machine(l):
    own_ssh_test(l, "near-1")


def test_own_ssh_and_scp_by_a_real_sshd(l):
    with ssh_server(l, "-o", "Subsystem=sftp internal-sftp") as (port, folder, restart):
        own_ssh_test(l, "mine-2", node(l, port, folder))
        # Only the pinned key is accepted.
        launch(l, "mine-3", "sleep", "600", where=node(l, port, folder))
        restart("host2")
        with users_ssh(l) as flags:
            done = system(l, "ssh", *flags, "gpuctl-mine-3", "true", code=255)
            assert b"HOST IDENTIFICATION HAS CHANGED" in done.stderr, done.stderr
        l.run("ssh", "mine-3", "--", "true", code=255)
        restart("host")
        # An older gpuctl kept no key, only its fingerprint.
        shutil.rmtree(os.path.join(l.env["GPUCTL_STATE_DIR"], "ssh/known_hosts"))
        with users_ssh(l) as flags:
            system(l, "ssh", *flags, "gpuctl-mine-3", "true")
        stop(l, "mine-3")


def test_a_machine_that_does_not_answer(l):
    with ssh_server(l) as (port, folder, _), HeldProxy(port) as proxy:
        launch(l, "away-1", "sleep", "600", where=node(l, proxy.port, folder))
        proxy.cut()
        with users_ssh(l) as flags:
            done = system(l, "ssh", *flags, "gpuctl-away-1", "true", code=255)
        proxy.join()
        stop(l, "away-1")


def test_every_kind_of_host_key(l):
    for kind, bits in (("ecdsa", "256"), ("ecdsa", "521"), ("rsa", "2048")):
        with ssh_server(l, "-o", "HostKeyAlgorithms=+rsa-sha2-512") as (port, folder, restart):
            key = os.path.join(folder, kind + bits)
            if not os.path.exists(key):
                system(l, "ssh-keygen", "-q", "-t", kind, "-b", bits, "-N", "", "-f", key)
            restart(kind + bits)
            name = "%s-%s-1" % (kind, bits)
            launch(l, name, "sleep", "600", where=node(l, port, folder))
            assert l.run("ssh", name, "--", "echo", "x").stdout == b"x\n"
            stop(l, name)


def test_a_name_of_any_form(l):
    for name in ("My_Run.x-1", "7", "x" * 48):
        l.run("launch", "--no-workdir", "--name", name, "--", "true")
        assert l.run("ssh", "@last", "--", "echo", "x").stdout == b"x\n"
        host = "gpuctl-" + l.json("ps", "-a")["runs"][0]["name"]
        with users_ssh(l) as flags:
            assert system(l, "ssh", *flags, host, "echo y").stdout == b"y\n"


def test_closed_descriptors(l):
    there = echo_run(l, "closed-2")
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        child = subprocess.Popen(
            ["bash", "-c", "exec \"$@\" " + closed, "bash", l.gpuctl, "forward", "closed-2",
             str(there)], cwd=l.work, env=l.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL)
        line = child.stdout.readline().decode()
        assert ask(int(line.rsplit(":", 1)[1]), 2) == 2
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=DEADLINE_S) == 0, closed
    for closed in ("<&-", "<&- 2>&-"):
        done = system(l, "bash", "-c", "exec \"$@\" " + closed, "bash", l.gpuctl, "ssh", "closed-2",
                      "--", "echo", "x")
        assert done.stdout == b"x\n", (closed, done)
    stop(l, "closed-2")


def test_what_forward_started_is_killed(l):
    """Whoever kills its ssh, or ssh's way to the machine: it starts another."""
    there = echo_run(l, "killed-1")
    with Forward(l, "killed-1", str(there)) as forward:
        here = forward.port()
        for mark in (b"-L\x00127.0.0.1:%d:" % here, b"ssh\0--stdio"):
            # Other tests run beside this one.
            for pid in processes_with(mark).keys() & processes_with(l.dir.encode()).keys():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert forward.port() == here
            assert ask(here, 4) == 4
        child = forward.child
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=DEADLINE_S) == 143
    stop(l, "killed-1")
    eventually(lambda: not processes_with(b"ssh\0--stdio"), "its ssh ends")


def test_ctrl_c_at_any_moment(l):
    there = echo_run(l, "early-1")
    for delay in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
        with Forward(l, "early-1", str(there)) as forward:
            time.sleep(delay)
            code = forward.interrupt()
            assert code in (0, -signal.SIGINT), (code, forward.said)
    with socket.socket() as silent:  # it accepts, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with ssh_server(l) as (port, folder, _), HeldProxy(port) as proxy:
            launch(l, "mute-1", "sleep", "600", where=node(l, proxy.port, folder))
            proxy.target = silent.getsockname()[1]
            with Forward(l, "mute-1", "6006") as forward:
                time.sleep(0.5)
                begin = time.monotonic()
                assert forward.interrupt() == 0
                assert time.monotonic() - begin < 10
            proxy.target = port
            stop(l, "mute-1")
    stop(l, "early-1")
    eventually(lambda: not processes_with(b"ssh\0--stdio"), "its ssh ends")


def test_json_of_a_run_with_ports(l):
    gate = held_job(l, "jports-1", "--forward", "1")
    child = l.start("attach", "jports-1", "--json")
    time.sleep(1)
    open_gate(gate)
    out, err = child.communicate(timeout=DEADLINE_S)
    assert child.returncode == 0 and json.loads(out)["name"] == "jports-1" and not err, (out, err)
    there = echo_run(l, "jports-2")
    child = l.start("forward", "jports-2", str(there), "--json")
    line = json_check.read_strictly(child.stdout.readline())
    json_check.check_document("forward", line)
    assert line["port"] == there and line["url"].endswith(":%d" % line["local_port"]), line
    # It is taken, by the job itself.
    with Forward(l, "jports-2", str(there)) as forward:
        eventually(lambda: b"NOT %d" % there in forward.said, "it says that it is another port")
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=DEADLINE_S)
    assert (child.returncode, out, err) == (0, b"", b""), (out, err)
    stop(l, "jports-2")


def test_the_terminal_is_restored(l):
    with ssh_server(l) as (port, folder, _), HeldProxy(port) as proxy:
        launch(l, "torn-1", "sleep", "600", where=node(l, proxy.port, folder))
        for words in (["ssh", "torn-1"], ["exec", "-t", "torn-1", "--", "sh", "-c", "read x"]):
            t = Terminal(l, *words)
            settings = termios.tcgetattr(t.fd)
            eventually(lambda t=t: not termios.tcgetattr(t.fd)[3] & termios.ICANON, "it is raw")
            proxy.cut()
            patience = Patience()
            while t.read_some():
                assert patience.lasts(), t.text
            # Its own end is closed; a new one of the same terminal would show other settings.
            _, status = os.waitpid(t.pid, 0)
            assert os.waitstatus_to_exitcode(status) == 255, t.text
            assert termios.tcgetattr(t.fd)[3] == settings[3], "the terminal stays raw"
            os.close(t.fd)
            proxy.join()
        stop(l, "torn-1")


def test_a_machine_behind_another(l):
    """ProxyJump and ProxyCommand of the user's configuration, which the launch read."""
    way = os.path.join(l.dir, "way")
    write(way, """#!/usr/bin/env python3
import os, socket, sys, threading
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def up():
    while some := os.read(0, 65536):
        peer.sendall(some)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while some := peer.recv(65536):
    os.write(1, some)
""")
    os.chmod(way, 0o755)
    with ssh_server(l) as (port, folder, _):
        there = echo_run(l, "behind-1", node(l, port, folder))
        with contextlib.closing(sqlite3.connect(l.env["GPUCTL_STATE_DIR"] + "/state.db")) as runs:
            (text,) = runs.execute("SELECT target FROM runs WHERE name = 'behind-1'").fetchone()
            target = {**json.loads(text), "proxy_command": "%s %d" % (way, port), "port": 1}
            runs.execute("UPDATE runs SET target = ? WHERE name = 'behind-1'", (json.dumps(target),))
            runs.commit()
        assert l.run("ssh", "behind-1", "--", "echo", "x").stdout == b"x\n"
        with Forward(l, "behind-1", "%d:%d" % (there, free_port())) as forward:
            here = forward.port()
            assert ask(here, 1_000_000, os.urandom(1_000_000)) == 1_000_000
            assert forward.interrupt() == 0
        stop(l, "behind-1")
    eventually(lambda: not processes_with(way.encode()), "the way ends")


def test_ssh_without_ssh(l):
    l.run("launch", "--no-workdir", "--name", "poor-1", "--", "true")
    done = l.run("ssh", "poor-1", "--", "true", PATH="/nonexistent", code=127)
    assert b"no ssh in PATH" in done.stderr and b"HINT" in done.stderr, done.stderr


def test_many_at_once(l):
    """Hosts that are looked up at the same moment do not hide each other."""
    names = ["many-%d" % number for number in range(1, 7)]
    for name in names:
        l.run("launch", "--no-workdir", "--name", name, "--", "true")
    with users_ssh(l) as flags:
        children = [subprocess.Popen(["ssh", *flags, "gpuctl-" + name, "echo", name], env=l.env,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
                    for name in names]
        for name, child in zip(names, children):
            assert child.communicate(timeout=DEADLINE_S)[0].decode().strip() == name


if __name__ == "__main__":
    run_tests(globals())

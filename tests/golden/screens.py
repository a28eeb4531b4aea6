#!/usr/bin/env python3
"""What a person sees in a real terminal, tmux, at several sizes, while a real run is live.

  screens.py GPUCTL FAKE_JOB [TEST...]

The screens are compared with tests/golden/screens. GPUCTL_UPDATE_GOLDEN=1 rewrites those files
instead. Times, loads and what depends on them stand there as words.
"""
import collections
import contextlib
import os
import re
import subprocess
import sys
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "end_to_end"))
from runs import DEADLINE_S, Patience, Terminal, open_gate, run_tests, wait_until  # noqa: E402
from slots import start_agent  # noqa: E402

EXPECTED = os.path.join(HERE, "screens")
SIZES = ((80, 24), (200, 50), (40, 10))
END = "ended with code"
# A loss that falls by a rule, a line of output for each step that is wider than a small terminal,
# and no end before its gate is opened.
JOB = """for i in $(seq 1 30); do
  echo "epoch 0, step $i of 100: a line that takes more than forty columns"
  printf '{"type":"step","step":%d,"total_steps":100,"loss":%d.%d,"lr":0.0003,"tokens_per_s":12345,"accuracy":0.75}\\n' \
    $i $((40 / (i + 4))) $((400 / (i + 4) % 10)) > $GPUCTL_METRICS
  sleep 0.03
done
echo 'no line end yet' | tr -d '\\n'
read x < """


class Tmux:
    """A terminal of its own, on a server of its own, in which one command runs."""

    def __init__(self, laptop, columns, rows, *args, **env):
        self.socket = os.path.join(laptop.dir, "tmux-%d-%d" % (os.getpid(), time.monotonic_ns()))
        self.server_env = {**laptop.env, "TERM": "xterm-256color"}
        set_env = [word for name, value in {**laptop.env, **env}.items() if name != "TERM"
                   for word in ("-e", "%s=%s" % (name, value))]
        self.call("-f", "/dev/null", "start-server", ";", "set-option", "-g", "status", "off",
                  ";", "new-session", "-d", "-x", str(columns), "-y", str(rows), "-c", laptop.work,
                  *set_env, "bash", "-c", "trap : INT; \"$@\"; echo \"%s $?\"; exec sleep 600" % END,
                  "bash", laptop.gpuctl, *args)

    def call(self, *args):
        # What runs in the terminal gets the environment of the server as well, so it is the
        # laptop's: nothing of the place where the tests run decides what a screen shows.
        done = subprocess.run(["tmux", "-u", "-S", self.socket, *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=DEADLINE_S,
                              env=self.server_env)
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout.decode()

    def screen(self, *more):
        return self.call("capture-pane", "-p", *more)

    def until_true(self, holds, what):
        """Waits until `holds` is true of the screen; returns that screen."""
        patience = Patience()
        while True:
            screen = self.screen()
            if holds(screen):
                return screen
            assert patience.lasts(), "%s is not on the screen:\n%s" % (what, screen)
            time.sleep(0.05)

    def until(self, *wanted):
        return self.until_true(lambda screen: all(word in screen for word in wanted), repr(wanted))

    def settled(self, *wanted):
        """Waits for `wanted`, and then until most looks show the same screen, as it is compared.

        Returns that screen. A single look may show the panel half drawn, or a number between two of
        the usual width. On a machine that is busy with others most looks may be such: the screen
        that was seen most often then counts.
        """
        self.until(*wanted)
        patience = Patience()
        looks = collections.deque(maxlen=200)
        while True:
            screen = self.screen()
            whole = all(word in screen for word in wanted)
            looks.append((cleaned(screen), whole))
            if whole and list(looks)[-16:].count(looks[-1]) >= 9:
                return screen
            if not patience.lasts():
                break
            time.sleep(0.1)
        seen = collections.Counter(looks).most_common()
        best, whole = seen[0][0]
        assert whole and seen[0][1] >= 40, "the screen does not settle:\n" + "\n".join(
            "--- seen %d times\n%s" % (times, look[0]) for look, times in reversed(seen))
        return best

    def resize(self, columns, rows):
        self.call("resize-window", "-x", str(columns), "-y", str(rows))

    def type(self, *keys):
        self.call("send-keys", *keys)

    def close(self):
        with contextlib.suppress(Exception):
            self.call("kill-server")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def cleaned(screen):
    """The screen without what differs from one time or machine to the next."""
    text = "\n".join(line.rstrip() for line in screen.split("\n")).rstrip("\n") + "\n"
    # What fills a line depends on the width of what is before it.
    text = re.sub(r"\b(\d+d )?(\d+h )?(\d+m )?\d+s( +| (?=─)|$)", r"TIME\4", text, flags=re.M)
    text = re.sub(r"TIME +", "TIME ", text)
    text = re.sub(r"━*─{2,}", "──", text)
    text = re.sub(r"\d+% · [\d.]+/[\d.]+ GB", "N% · N GB", text)
    # The columns behind that of the processor stand where its width lets them.
    text = re.sub(r"\bCPU +FOR\b.*$", "CPU FOR ON", text, flags=re.M)
    text = re.sub(r" \d+% +TIME .*$", " N% TIME ON", text, flags=re.M)
    return re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "DATE", text)


def compare(name, columns, rows, screen):
    assert all(len(line) <= columns for line in screen.split("\n")), screen
    name = "%s.%dx%d.txt" % (name, columns, rows)
    path = os.path.join(EXPECTED, name)
    text = cleaned(screen)
    if os.environ.get("GPUCTL_UPDATE_GOLDEN") == "1":
        os.makedirs(EXPECTED, exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return
    with open(path) as file:
        wanted = file.read()
    assert text == wanted, "=== %s\n--- expected\n%s\n--- got\n%s" % (name, wanted, text)


def newest(screen, rows):
    """The screen without its oldest lines. How many there are depends on when the panel had its last
    line."""
    return "\n".join(screen.rstrip().split("\n")[-(rows - 4):]) + "\n"


@contextlib.contextmanager
def live_run(l, name):
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", name, "--tag",
          name.split("-")[0], "--", "bash", "-c", JOB + gate)
    wait_until(lambda: next(run for run in l.json("ps", "-u")["runs"] if run["name"] == name).get(
        "step") == 30, "step 30")
    try:
        yield name
    finally:
        open_gate(gate)
        assert l.run("wait", name).returncode == 0


def test_attach(l):
    with live_run(l, "seen-1") as name:
        for columns, rows in SIZES:
            with Tmux(l, columns, rows, "attach", name) as t:
                screen = t.settled("step 30/100", "CPU")
                compare("attach", columns, rows, newest(screen, rows))
                t.type("C-c")
                compare("attach_left", columns, rows,
                        newest(t.settled("gpuctl attach seen-1"), rows))


def test_what_is_typed_meanwhile_is_for_the_shell(l):
    """As behind any other command. Ctrl-C takes it away, as everywhere."""
    shell = types.SimpleNamespace(gpuctl="/bin/bash", work=l.work, env=l.env)
    gate = os.path.join(l.dir, "typed.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "typed", "--", "bash", "-c", "read x < " + gate)
    terminal = Terminal(shell, "-c", "\"$0\" attach typed; read -r line; echo \"then: $line.\"", l.gpuctl)
    terminal.until(b"Ctrl-C detaches")
    terminal.type(b"the next command\r")
    open_gate(gate)
    terminal.until(b"then: the next command.")
    assert terminal.finish() == 0


def test_ctrl_c_shifts_no_line(l):
    """A terminal shows ^C where the cursor is; what is said then begins at the first column."""
    gate = os.path.join(l.dir, "shifted.gate")
    os.mkfifo(gate)
    l.run("submit", "--name", "shifted", "--host", "local", "--no-workdir", "--", "bash", "-c",
          "read x < " + gate)
    for term, between in ("xterm", b"^C\r\x1b[Kgpuctl: interrupted"), ("dumb", b"^C\r\ngpuctl: interrupted"):
        shell = types.SimpleNamespace(gpuctl=l.gpuctl, work=l.work, env={**l.env, "TERM": term})
        terminal = Terminal(shell, "wait", "--batch", "shifted")
        wait_until(lambda: b"shifted-1" in l.run("ps", "-q").stdout, "it runs")
        time.sleep(0.5)  # until it waits
        terminal.type(b"\x03")
        terminal.until(between)
        terminal.finish()
    open_gate(gate)
    assert l.run("wait", "--batch", "shifted").returncode == 0


def test_attach_follows_resizes(l):
    with live_run(l, "resized-1") as name:
        with Tmux(l, 80, 24, "attach", name) as t:
            t.settled("step 30/100", "CPU")
            # Lines of the panel take at most 79 columns where they can. A terminal that becomes
            # narrower than that wraps them before it tells anybody, and a panel that is drawn at that
            # moment cannot know how many rows are to be erased.
            strict = True
            for columns, rows in ((200, 50), (120, 30), (80, 24), (60, 16), (40, 10), (19, 24),
                                  (80, 3), (120, 5), (80, 24)):
                strict = strict and columns >= 80
                t.resize(columns, rows)
                if rows < 4 or columns < 20:
                    t.until_true(lambda screen: "running" not in screen.rstrip().split("\n")[-4:],
                                 "no panel without room")
                else:
                    t.until_true(lambda screen: one_panel(screen, columns, rows, strict),
                                 "one panel at %dx%d" % (columns, rows))
            t.type("C-c")
            screen = t.settled("gpuctl attach resized-1")
            # Above it may stand what the small sizes left.
            assert "── resized-1" not in screen[screen.rindex("no line end yet"):], screen


def one_panel(screen, columns, rows, strict):
    """Whether the panel stands at the end of the screen and, if `strict`, nothing of an older one
    above it."""
    lines = screen.rstrip().split("\n")
    titles = [i for i, line in enumerate(lines) if "── resized-1 · running" in line]
    steps = [i for i, line in enumerate(lines) if "step 30/100" in line]
    if not titles or len(lines[titles[-1]].rstrip()) > columns - 1:
        return False
    if strict and (len(titles) > 1 or len(steps) > 1):
        return False
    return rows < 5 or bool(steps) and steps[-1] == titles[-1] + 1


def test_lists(l):
    with live_run(l, "listed-1"):
        for columns, rows in SIZES:
            for name, args, wanted in (
                    ("ps", ["ps", "--tag", "listed"], "listed-1"),
                    ("metrics", ["metrics", "listed-1"], "loss"),
                    ("show", ["show", "listed-1"], "command"),
                    ("help", ["--help"], "gpuctl")):
                with Tmux(l, columns, rows, *args) as t:
                    t.until(END + " 0")
                    assert wanted in t.screen("-S", "-"), t.screen("-S", "-")
                    if name in ("ps", "metrics"):
                        # What the command moved up over its first line went into tmux's history.
                        history = [] if name == "ps" else ["-S", "-"]
                        compare(name, columns, rows, without_end(t.screen(*history)))
            with Tmux(l, columns, rows, "top") as t:
                compare("top", columns, rows, t.settled("listed-1", "30/100"))
                t.type("q")
                t.until(END + " 0")


def without_end(screen):
    return re.sub(END + r" \d+\n*$", "", screen)


SMI = """#!/bin/sh
# Stands in for nvidia-smi: eight GPUs, one of which waits for the others.
while sleep 1; do
  echo "index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], temperature.gpu, power.draw [W]"
  for i in 0 1 2 3 4 5 6 7; do
    if [ $i = 2 ]; then
      echo "$i, NVIDIA H100 80GB HBM3, 3, 20480, 81920, 41, 90.0"
    else
      echo "$i, NVIDIA H100 80GB HBM3, 97, 71680, 81920, $((60 + i)), 400.0"
    fi
  done
done
"""


def test_several_gpus(l):
    smi = os.path.join(l.dir, "nvidia-smi")
    with open(smi, "w") as file:
        file.write(SMI)
    os.chmod(smi, 0o700)
    before = dict(l.env)
    # With a list of runs of its own: no other node has answered for this machine before.
    l.env.update(GPUCTL_NVIDIA_SMI=smi, GPUCTL_NODE_ROOT=l.root + "-gpus",
                 GPUCTL_STATE_DIR=os.path.join(l.dir, "state-gpus"))
    # An agent that gpuctl starts would look for the machine's own nvidia-smi.
    start_agent(l, l.env, l.root + "-gpus")
    try:
        with live_run(l, "gpus-1") as name:
            for columns, rows in SIZES:
                with Tmux(l, columns, rows, "attach", name) as t:
                    screen = t.settled("step 30/100", "8 GPUs")
                    compare("attach_gpus", columns, rows, newest(screen, rows))
                with Tmux(l, columns, rows, "top") as t:
                    wanted = ("gpus-1", "8x 3-97%") if columns >= 80 else ("gpus-1",)
                    compare("top_gpus", columns, rows, t.settled(*wanted))
                    t.type("q")
    finally:
        l.env.clear()
        l.env.update(before)


def test_colours_and_none(l):
    with live_run(l, "colour-1") as name:
        colour = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")
        with Tmux(l, 80, 24, "attach", name) as t:
            t.settled("step 30/100", "CPU")
            t.until_true(lambda _: colour.search(t.screen("-e")), "a colour")
        for env in ({"NO_COLOR": "1"}, {"CLICOLOR": "0"}):
            with Tmux(l, 80, 24, "attach", name, **env) as t:
                screen = t.settled("step 30/100", "CPU")
                assert not colour.search(t.screen("-e")), (env, t.screen("-e"))
                assert "step 30/100" in screen


def test_a_dumb_terminal_gets_plain_lines(l):
    with live_run(l, "dumb-1") as name:
        for env in ({"TERM": "dumb"}, {"CI": "1"}):
            before = dict(l.env)
            l.env.update(env)
            try:
                t = Terminal(l, "attach", name)
                t.until(b"step 30 of 100")
                t.type(b"\x03")
                assert t.finish() == 0, t.text
                assert b"\x1b" not in t.text, (env, t.text)
                listed = Terminal(l, "ps")
                assert listed.finish() == 0 and b"dumb-1" in listed.text, listed.text
                assert b"\x1b" not in listed.text, listed.text
            finally:
                l.env.clear()
                l.env.update(before)


def test_piped_output_is_the_jobs_alone(l):
    l.run("launch", "-d", "--no-workdir", "--name", "piped-1", "--", "bash", "-c",
          "echo one; echo two >&2; printf three")
    done = l.run("attach", "piped-1")
    assert sorted(done.stdout.split(b"\n")) == [b"one", b"three", b"two"] or \
        done.stdout in (b"one\ntwo\nthree", b"two\none\nthree"), done.stdout
    assert b"\x1b" not in done.stdout + done.stderr, done
    listed = l.run("ps", "-a")
    assert b"\x1b" not in listed.stdout + listed.stderr and b"piped-1" in listed.stdout, listed


if __name__ == "__main__":
    run_tests(globals())

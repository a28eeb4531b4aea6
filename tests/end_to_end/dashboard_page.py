#!/usr/bin/env python3
"""What the page of gpuctl dashboard shows, in Chromium, while real runs stream; and that the keyboard
and a screen reader are enough for it.

  dashboard_page.py GPUCTL FAKE_JOB NPM_DIR [TEST...]

Puts playwright-core into NPM_DIR unless it is there. Without Chromium, npm or its network it exits
with 77, or with 1 when GPUCTL_TRUTHS is "required". GPUCTL_SHOTS=DIR keeps the screenshots there.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "trainer/tests"))
import npm_packages  # noqa: E402
from dashboard import board_of, fill, run_named, stepping_job  # noqa: E402
from runs import DEADLINE_S, cmdline, open_gate, run_tests, wait_until  # noqa: E402

SHOTS = os.environ.get("GPUCTL_SHOTS", "")
BROWSER = None


class Browser:
    def __init__(self, folder, program):
        self.process = subprocess.Popen(["node", os.path.join(HERE, "browser.mjs"), folder, program],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, command, **options):
        self.process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the browser ended"
        answer = json.loads(line)
        assert "error" not in answer, (command, options, answer["error"])
        return answer["value"]

    def wait(self, script):
        try:
            self.do("wait", script=script, seconds=DEADLINE_S / 3)
        except AssertionError:
            self.shot("not-so")
            text = self.do("eval", script="document.body.innerText")
            raise AssertionError("never so: %s\n%s\n%s" % (script, text[:3000], self.do("errors"))) from None

    def wait_text(self, selector, *wanted):
        """Waits until the text of the first element has all of these in it."""
        self.wait("(() => { const e = document.querySelector(%s); return e && %s.every((w) => e.innerText.includes(w)); })()"
                  % (json.dumps(selector), json.dumps(list(wanted))))

    def wait_row(self, *wanted):
        """Waits until a row of the list has all of these in it."""
        self.wait("[...document.querySelectorAll('.row:not(.head)')].some((r) => %s.every((w) => r.innerText.includes(w)))"
                  % json.dumps(list(wanted)))

    def open_run(self, name):
        """Opens a run by the keyboard alone."""
        self.do("press", keys=["/"])
        self.do("type", text=name)
        self.wait("document.querySelector('.row.active')?.innerText.includes(%s)" % json.dumps(name))
        self.do("press", keys=["Enter", "Enter"])
        self.wait_text("#detail-title", name)

    def text(self, selector):
        return self.do("eval", script="document.querySelector(%s).innerText" % json.dumps(selector))

    def count(self, selector):
        return self.do("eval", script="[...document.querySelectorAll(%s)].filter((e) => e.offsetParent !== null || e.getClientRects().length).length"
                       % json.dumps(selector))

    def shot(self, name):
        if SHOTS:
            os.makedirs(SHOTS, exist_ok=True)
            self.do("shot", path=os.path.join(SHOTS, name + ".png"))

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=DEADLINE_S)


def check_page(board, *, errors=()):
    """Nothing went elsewhere, nothing went wrong, nobody was told the address."""
    for request in BROWSER.do("requests"):
        assert request["url"].startswith(("http://127.0.0.1:%d/" % board.port, "data:")), request
        assert not request["referrer"], request
    said = [line for line in BROWSER.do("errors") if not any(part in line for part in errors)]
    assert said == [], said
    # Nothing is wider than the window.
    wide = BROWSER.do("eval", script="document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, "the page scrolls sideways"
    list_wide = BROWSER.do("eval", script="(() => { const l = document.querySelector('.list'); return l.clientWidth > 0 && l.scrollWidth > l.clientWidth; })()")
    assert not list_wide, "the list scrolls sideways"


def check_contrast():
    """Text can be told from its ground: 4.5 to 1, as WCAG AA wants."""
    low = BROWSER.do("eval", script=r"""(() => {
      const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return { r: m[0], g: m[1], b: m[2], a: m[3] ?? 1 }; };
      const lum = ({ r, g, b }) => { const f = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
        return .2126 * f(r) + .7152 * f(g) + .0722 * f(b); };
      const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a === 1) return c; }
        return { r: 255, g: 255, b: 255 }; };
      const found = [];
      for (const e of document.querySelectorAll('body *')) {
        if (!e.getClientRects().length || e.closest('.hidden, canvas, button:disabled')) continue;
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
        const a = lum(parse(getComputedStyle(e).color)), b = lum(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        if (ratio < 4.5) found.push(`${e.className || e.tagName} "${e.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
      }
      return found; })()""")
    assert low == [], low


CURVE = ("import json,math,os,sys,time\n"
         "f=open(os.environ['GPUCTL_METRICS'],'w',buffering=1)\n"
         "k=float(sys.argv[1])\n"
         "def step(i):\n"
         "  f.write(json.dumps({'type':'step','step':i,'total_steps':400,'loss':k+3*math.exp(-i/60)+0.05*math.sin(i),\n"
         "    'lr':1e-3*min(1,i/40)*(1-i/500),'tokens_per_s':52000+900*math.sin(i/5)})+'\\n')\n"
         "  if i%50==0: f.write(json.dumps({'type':'eval','step':i,'eval_loss':k+0.2+3*math.exp(-i/60),'bleu':i/10})+'\\n')\n"
         "  if i%100==0: f.write(json.dumps({'type':'checkpoint','step':i})+'\\n')\n"
         "  print('step %d/400 loss %.4f'%(i,k+3*math.exp(-i/60)))\n"
         "for i in range(1,241): step(i)\n"
         "sys.stdout.flush()\n"
         "open(sys.argv[2]).read()\n"
         "for i in range(241,301): step(i)\n"
         "sys.stdout.flush()\n"
         "open(sys.argv[2]).read()\n"
         "for i in range(301,401): step(i)\n")


def curve_job(l, name, base, *more):
    """A run with a curve of 400 steps, that waits at its gate after step 240 and after step 300."""
    gate = os.path.join(l.dir, name + ".gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", name, *more, "--", "python3", "-c", CURVE, str(base), gate)
    return gate


def test_one_run_live(l):
    gate = curve_job(l, "curve-1", 1.0, "--tag", "paper")
    with board_of(l) as board:
        BROWSER.do("open", url=board.url, height=1000)
        BROWSER.wait_row("curve-1", "running", "240 / 400")
        BROWSER.wait_text(".summary", "1 run lives")
        assert BROWSER.text(".link") == "live"
        BROWSER.shot("list")
        BROWSER.open_run("curve-1")
        BROWSER.wait_text(".detail", "curve-1", "running", "Loss", "Tokens per second", "step 240/400 loss")
        BROWSER.wait("document.querySelectorAll('.chart:not([hidden]) canvas').length >= 3")
        assert BROWSER.do("eval", script="document.activeElement.id") == "detail-title"
        # The drawing says in words what it shows, and there is a table.
        said = BROWSER.do("eval", script="document.querySelector('.chart-place').getAttribute('aria-label')")
        assert re.fullmatch(r"Loss by step\. Newest: train 1\.\d+, eval 1\.\d+", said), said
        BROWSER.wait_text(".facts", "240 / 400")
        BROWSER.wait_text(".own", "The job's own numbers", "bleu", "20")
        # Something is drawn: not only axes.
        colours = BROWSER.do("eval", script="""(() => { const c = document.querySelector('.chart canvas');
          const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
          for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 128 && d[i + 2] > 150 && d[i] < 90) n += 1; return n; })()""")
        assert colours > 200, colours
        BROWSER.shot("detail")
        check_contrast()
        open_gate(gate)
        BROWSER.wait_text(".facts", "300 / 400")
        BROWSER.wait_text(".log", "step 300/400 loss")
        # After a reload the same run is open.
        BROWSER.do("reload")
        BROWSER.wait_text(".detail", "curve-1", "300 / 400")
        BROWSER.do("scheme", scheme="dark")
        BROWSER.wait("getComputedStyle(document.body).backgroundColor === 'rgb(16, 19, 24)'")
        BROWSER.wait("document.querySelectorAll('.chart:not([hidden]) canvas').length >= 3")
        check_contrast()
        BROWSER.shot("detail-dark")
        BROWSER.do("scheme", scheme="light")
        open_gate(gate)
        BROWSER.wait_text(".badge", "succeeded")
        BROWSER.wait("document.querySelector('[role=status]').textContent.includes('curve-1: succeeded')")
        assert BROWSER.count("button.danger") == 0
        BROWSER.do("press", keys=["Escape", "Escape"])
        BROWSER.wait("!document.querySelector('.detail')")
        assert BROWSER.do("eval", script="document.activeElement.getAttribute('role')") == "grid"
        check_page(board)


def test_narrow(l):
    curve_job(l, "narrow-with-a-rather-long-name-1", 2.0)
    with board_of(l) as board:
        BROWSER.do("open", url=board.url, width=360, height=740)
        BROWSER.wait_row("narrow-with", "running", "240 / 400")
        check_page(board)
        BROWSER.shot("narrow-list")
        BROWSER.open_run("narrow-with")
        BROWSER.wait("document.querySelectorAll('.chart:not([hidden]) canvas').length >= 3")
        assert BROWSER.count(".pane") == 0
        check_page(board)
        BROWSER.shot("narrow-detail")
        BROWSER.do("press", keys=["Escape", "Escape"])
        for width in (320, 400, 401, 540, 541, 740, 741, 1040, 1041, 1400):
            BROWSER.do("size", width=width, height=700)
            check_page(board)
        BROWSER.open_run("narrow-with")
        BROWSER.do("size", width=1000, height=700)
        BROWSER.wait("document.querySelector('.pane').getClientRects().length === 1")
        check_page(board)
        BROWSER.shot("middle")
    l.run("stop", "narrow-with-a-rather-long-name-1")


def test_compare(l):
    gates = [curve_job(l, "arm-%d" % i, 0.5 * i) for i in (1, 2, 3)]
    with board_of(l) as board:
        BROWSER.do("open", url=board.url, height=1000)
        for i in (1, 2, 3):
            BROWSER.wait("[...document.querySelectorAll('.row')].some((r) => r.innerText.includes('arm-%d') && r.innerText.includes('240 / 400'))" % i)
        BROWSER.do("press", keys=["/"])
        BROWSER.do("type", text="arm-")
        BROWSER.wait_text(".count", "3 runs")
        BROWSER.do("press", keys=["Enter", "Home", "c", "j", "c", "ArrowDown", "c", "v"])
        BROWSER.wait_text("#compare-title", "Comparison of 3 runs")
        BROWSER.wait("document.querySelectorAll('.compared tbody tr').length === 3")
        BROWSER.wait("[...document.querySelectorAll('.chart-place')][0].getAttribute('aria-label').split(', ').length >= 6")
        said = BROWSER.do("eval", script="document.querySelector('.chart-place').getAttribute('aria-label')")
        for i in (1, 2, 3):
            assert "arm-%d train" % i in said and "arm-%d eval" % i in said, said
        # No two lines have the same dashes: colour is not all that tells them apart.
        dashes = BROWSER.do("eval", script="[...document.querySelectorAll('.sample line')].map((l) => l.getAttribute('stroke-dasharray'))")
        assert len(set(dashes)) == 3, dashes
        BROWSER.shot("compare")
        open_gate(gates[0])
        BROWSER.wait("[...document.querySelectorAll('.compared tr')].some((r) => r.innerText.includes('arm-1') && r.innerText.includes('300 / 400'))")
        BROWSER.do("scheme", scheme="dark")
        check_contrast()
        BROWSER.shot("compare-dark")
        BROWSER.do("press", keys=["Escape", "Escape"])
        BROWSER.wait("!document.querySelector('.compared')")
        check_page(board)
    l.run("stop", "arm-1", "arm-2", "arm-3")


def test_stop_and_pull_from_the_page(l):
    gate = os.path.join(l.dir, "page.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "acting-1", "--", l.fake_job, "--steps", "9", "--checkpoint-every",
          "2", "--barrier", "step:4=" + gate)
    with board_of(l) as board:
        BROWSER.do("open", url=board.url, height=900)
        BROWSER.wait_row("acting-1", "running")
        BROWSER.open_run("acting-1")
        BROWSER.do("click", selector="button:has-text('Pull newest checkpoint')")
        BROWSER.wait_text(".actions", "pull done", "verified")
        BROWSER.wait_text(".detail", os.path.join(l.work, "acting-1"))
        BROWSER.do("click", selector="button:has-text('Stop…')")
        BROWSER.wait_text("dialog", "Stop acting-1?", "SIGTERM")
        # What Enter does is harmless.
        assert BROWSER.do("eval", script="document.activeElement.innerText") == "Leave it running"
        BROWSER.shot("stop")
        BROWSER.do("press", keys=["Escape"])
        BROWSER.wait("!document.querySelector('dialog')")
        assert run_named(l, "acting-1")["status"] == "running"
        BROWSER.do("click", selector="button:has-text('Stop…')")
        BROWSER.do("click", selector="button:has-text('Stop the run')")
        BROWSER.wait_text(".badge", "stopped")
        BROWSER.wait_text(".actions", "stop done", "it has ended: stopped")
        BROWSER.shot("stopped")
        check_contrast()
        check_page(board)
    assert run_named(l, "acting-1")["status"] == "stopped"


def test_a_lost_node_and_a_lost_dashboard(l):
    gate = stepping_job(l, "silent-1")
    with board_of(l) as board:
        BROWSER.do("open", url=board.url)
        BROWSER.wait_row("silent-1", "running", "3 / 9")
        stopped = [pid for pid in l.node_pids() if b"server" in cmdline(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            BROWSER.wait_row("last heard")
            BROWSER.open_run("silent-1")
            BROWSER.wait_text(".remark", "last heard")
            BROWSER.shot("silent")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        BROWSER.wait("document.querySelector('.remark').hidden")
        open_gate(gate)
        BROWSER.wait_text(".badge", "succeeded")
        check_page(board)
        port = board.port
        # gpuctl dashboard ends, and the page says so.
        board.process.send_signal(signal.SIGINT)
        board.process.wait(timeout=DEADLINE_S)
        BROWSER.wait_text(".lost", "does not answer", "the runs go on")
        BROWSER.shot("lost")
        board.process = subprocess.Popen(["true"])
        board.end = lambda: None
        assert port


SMI = """#!/bin/sh
# Stands in for nvidia-smi: two busy GPUs, once a second, as long as the agent reads.
n=0
while :; do
  echo "index, name, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W], temperature.gpu"
  n=$((n + 1))
  for i in 0 1; do
    echo "$i, NVIDIA H100 80GB HBM3, GPU-0000-$i, 81559, 61000, $((90 + n % 8)), $((600 + n % 9 * 8)).50, $((60 + n % 5 + i * 3))"
  done
  sleep 1 || exit
done
"""


def test_gpus(l):
    path = os.path.join(l.dir, "nvidia-smi")
    with open(path, "w") as file:
        file.write(SMI)
    os.chmod(path, 0o700)
    # A laptop and a node of their own.
    world = dict(l.env, GPUCTL_NVIDIA_SMI=path, GPUCTL_NODE_ROOT=l.root + "-gpus",
                 GPUCTL_STATE_DIR=l.env["GPUCTL_STATE_DIR"] + "-gpus", GPUCTL_CACHE_DIR=l.env["GPUCTL_CACHE_DIR"] + "-gpus")
    old, l.env = l.env, world
    try:
        agent = os.path.join(os.path.dirname(l.gpuctl), "gpuctl-agent")
        subprocess.run([agent, "guard", "--root", world["GPUCTL_NODE_ROOT"], "--detach"], env=world, check=True, timeout=300)
        curve_job(l, "busy-1", 1.5)
        with board_of(l) as board:
            BROWSER.do("open", url=board.url, height=1300)
            BROWSER.wait_row("busy-1", "2× 9")
            BROWSER.open_run("busy-1")
            BROWSER.wait_text(".detail", "GPU power", "GPUs now", "0: NVIDIA H100 80GB HBM3", "1: NVIDIA H100")
            BROWSER.wait("document.querySelectorAll('.chart:not([hidden]) canvas').length === 6")
            said = BROWSER.do("eval", script="[...document.querySelectorAll('.chart-place')].map((e) => e.getAttribute('aria-label')).join('; ')")
            assert re.search(r"GPU over time\. Newest: use 9\d %, memory 75 %", said), said
            assert re.search(r"GPU power over time\. Newest: power 1\d\d\d W", said), said
            assert re.search(r"GPU temperature over time\. Newest: temperature 6\d °C", said), said
            BROWSER.wait_text("section[aria-labelledby=gpus-title] tbody", "60 GB / 80 GB", "W", "°C")
            BROWSER.shot("gpus")
            check_contrast()
            check_page(board)
        l.run("stop", "busy-1")
    finally:
        l.env = old


def test_nothing_yet(l):
    with tempfile.TemporaryDirectory(dir=l.dir) as state:
        fresh = dict(l.env, GPUCTL_STATE_DIR=state)
        old, l.env = l.env, fresh
        try:
            with board_of(l) as board:
                BROWSER.do("open", url=board.url)
                BROWSER.wait_text(".empty", "There are no runs yet", "gpuctl launch")
                BROWSER.shot("empty")
                check_contrast()
                check_page(board)
        finally:
            l.env = old


def test_hostile_text(l):
    evil = "<img src=x onerror=document.title=1><script>document.title=2</script>"
    l.run("launch", "--no-workdir", "--name", "hostile-1", "--", "bash", "-c",
          "echo '%s'; printf '\\033[31mred\\033[0m \\342\\200\\256txet\\n'; printf '%%0.sW' {1..6000}; echo; "
          "echo '{\"type\":\"step\",\"step\":1,\"loss\":NaN}' > $GPUCTL_METRICS; "
          "echo '{\"type\":\"step\",\"step\":2,\"loss\":\"nan\"}' > $GPUCTL_METRICS" % evil)
    l.run("tag", "hostile-1", "--note", evil)
    with board_of(l) as board:
        BROWSER.do("open", url=board.url)
        BROWSER.wait_row("hostile-1", "succeeded")
        BROWSER.open_run("hostile-1")
        BROWSER.wait_text(".log", evil, "red \\u202etxet", "bytes more")
        BROWSER.wait_text(".detail", "Note", evil)
        assert BROWSER.count(".detail img, .detail script") == 0
        assert BROWSER.do("eval", script="document.title").startswith("gpuctl")
        BROWSER.shot("hostile")
        check_page(board)


def test_ten_thousand_runs(l):
    l.run("launch", "--no-workdir", "--name", "seed-1", "--", "true")
    database = os.path.join(l.env["GPUCTL_STATE_DIR"], "state.db")
    fill(database, 10000)
    with board_of(l) as board:
        BROWSER.do("open", url=board.url)
        BROWSER.wait("/^\\d+ of 10\\d\\d\\d runs/.test(document.querySelector('.count').innerText)")
        # Only what is in view is in the page.
        assert BROWSER.count(".row") < 60
        BROWSER.shot("many")
        for wanted in (400, 600):
            BROWSER.do("press", keys=["End"])
            BROWSER.wait("parseInt(document.querySelector('.count').innerText) >= %d" % wanted)
        BROWSER.do("press", keys=["/"])
        BROWSER.do("type", text="old-77")
        BROWSER.wait("[...document.querySelectorAll('.row')].some((r) => r.innerText.includes('old-7777'))")
        assert BROWSER.text(".count").startswith("111 runs"), BROWSER.text(".count")
        BROWSER.do("press", keys=["Enter", "Enter"])
        BROWSER.wait("document.querySelector('#detail-title').innerText.startsWith('old-77')")
        check_page(board)


def test_a_batch_shows_parameters_and_what_waits(l):
    gate = os.path.join(l.dir, "sweep.gate")
    os.mkfifo(gate)
    l.run("submit", "--name", "sweep", "--host", "local", "--no-workdir", "--sweep", "lr=1e-4,2e-4,4e-4", "--",
          "bash", "-c", "echo step 1; read x < " + gate)
    with board_of(l) as board:
        BROWSER.do("open", url=board.url)
        BROWSER.wait_row("sweep-1", "lr=1e-4", "running")
        BROWSER.wait_text(".waiting summary", "2 runs wait for their start")
        BROWSER.do("eval", script="document.querySelector('.waiting summary').click()")
        BROWSER.wait_text(".waiting", "sweep-2", "lr=2e-4", "sweep-3", "lr=4e-4",
                          "one runs at a time")
        BROWSER.shot("batch")
        check_page(board)
        check_contrast()
        BROWSER.open_run("sweep-1")
        BROWSER.wait_text(".detail", "Parameters", "lr=1e-4")
        check_page(board)
        l.run("cancel", "sweep")
        BROWSER.wait("document.querySelector('.waiting').hidden")
    open_gate(gate)
    l.run("wait", "sweep-1")


def test_the_keyboard_and_a_screen_reader_are_enough(l):
    gate = stepping_job(l, "spoken-1")
    with board_of(l) as board:
        BROWSER.do("open", url=board.url)
        BROWSER.wait_row("spoken-1", "running")
        tree = BROWSER.do("tree")
        roles = {(node["role"], node["name"]) for node in tree}
        for wanted in (("grid", "Runs"), ("columnheader", "Loss"), ("searchbox", "Filter runs by name, state, machine, tag or command"),
                       ("checkbox", "compare spoken-1"), ("button", "Keys"), ("heading", "gpuctl")):
            assert wanted in roles, (wanted, sorted(roles)[:60])
        active = BROWSER.do("eval", script="document.getElementById(document.querySelector('[role=grid]').getAttribute('aria-activedescendant'))?.innerText")
        assert "spoken-1" in active or active, active
        BROWSER.do("press", keys=["?"])
        BROWSER.wait_text("dialog", "Keys", "filter", "compare")
        BROWSER.shot("help")
        inside = BROWSER.do("eval", script="(() => { const form = document.querySelector('dialog[open] form'); const right = form.getBoundingClientRect().right; return [...form.querySelectorAll('*')].every((e) => e.getBoundingClientRect().right <= right + 1); })()")
        assert inside, "the help is wider than its window"
        BROWSER.do("press", keys=["Escape", "/"])
        BROWSER.do("type", text="spoken")
        BROWSER.wait_text(".count", "1 run")
        BROWSER.do("press", keys=["ArrowDown", "Enter"])
        BROWSER.wait_text("#detail-title", "spoken-1")
        # Each stop of the tab key can be seen, and has a name.
        seen = []
        for _ in range(24):
            BROWSER.do("press", keys=["Tab"])
            at = BROWSER.do("eval", script="""(() => { const e = document.activeElement; if (e === document.body) return null;
              const s = getComputedStyle(e); return { tag: e.tagName, ring: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2,
                name: e.getAttribute('aria-label') || e.innerText || e.title || '' }; })()""")
            if at is None:
                break
            seen.append(at)
        assert len(seen) >= 5, seen
        assert all(at["ring"] for at in seen), [at for at in seen if not at["ring"]]
        assert all(at["name"] for at in seen), [at for at in seen if not at["name"]]

        def images():
            return [node["name"] for node in BROWSER.do("tree")
                    if node["role"] in ("image", "img", "graphics-document")]

        wait_until(lambda: any(name.startswith("Loss by step. Newest: train 1.5") for name in images()),
                   "the drawing has a name that tells it")
        check_page(board)
    open_gate(gate)
    l.run("wait", "spoken-1")


def find_browser(npm_dir):
    """Returns the path of Chromium and the folder of playwright-core, or why there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        return None, "Chromium is not installed"
    if not shutil.which("node") or not npm_packages.install("browser", npm_dir):
        return None, "npm did not bring playwright-core"
    return program, ""


def main():
    global BROWSER
    npm_dir = sys.argv.pop(3)
    program, why = find_browser(npm_dir)
    if program is None:
        required = os.environ.get("GPUCTL_TRUTHS") == "required"
        print("dashboard_page: %s: %s" % ("failed" if required else "skipped", why))
        sys.exit(1 if required else 77)
    BROWSER = Browser(npm_dir, program)
    try:
        run_tests(globals())
    finally:
        BROWSER.close()


if __name__ == "__main__":
    main()

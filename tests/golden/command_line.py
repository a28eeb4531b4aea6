#!/usr/bin/env python3
"""Compares gpuctl's output, piped and on a terminal, with tests/golden/expected.

  command_line.py GPUCTL EXPECTED_DIR

GPUCTL_UPDATE_GOLDEN=1 rewrites the expected files instead. Needs no node: every command here ends
before or at the attempt to reach one. The only market runs in this process.
"""
import http.server
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import termios
import threading


class Bench:
    def __init__(self, gpuctl):
        self.gpuctl = gpuctl
        # On a terminal messages are broken between words, by the length of this path, too.
        self.dir = tempfile.mkdtemp(prefix="gpuctl-golden-", dir="/tmp")
        self.work = os.path.join(self.dir, "work")
        os.mkdir(self.work)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": self.dir,
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "GPUCTL_STATE_DIR": os.path.join(self.dir, "state"),
            "GPUCTL_CACHE_DIR": os.path.join(self.dir, "cache"),
            "GPUCTL_CONFIG_DIR": os.path.join(self.dir, "config"),
            # The machine's own keychain is not used.
            "GPUCTL_KEY_STORE": "file",
        }

    def write(self, name, text, size=None):
        path = os.path.join(self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
            if size is not None:
                file.truncate(size)

    def clean(self, text):
        text = text.replace("\r\n", "\n").replace(self.gpuctl, "gpuctl")
        text = text.replace(os.path.realpath(self.dir), "DIR").replace(self.dir, "DIR")
        text = re.sub(r"\br-[0-9a-f]{12}\b", "r-ID", text)
        text = re.sub(r"\bj-[0-9a-f]{12}\b", "j-ID", text)
        # Readable names are random.
        return re.sub(r"\b[a-z]+-[a-z]+-\d+\b", "NAME", text)

    def piped(self, args, stdin="", **env):
        done = subprocess.run([self.gpuctl] + args, cwd=self.work, env={**self.env, **env},
                              input=stdin.encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=300)
        return "".join(["exit %d\n" % done.returncode, "--- stdout\n", done.stdout.decode(),
                        "--- stderr\n", done.stderr.decode()])

    def opened_key(self):
        """Returns the message about a key file that others can read."""
        key = os.path.join(self.env["GPUCTL_CONFIG_DIR"], "keys", "runpod")
        assert os.stat(key).st_mode & 0o777 == 0o600, "keys are for their owner alone"
        os.chmod(key, 0o644)
        try:
            return self.piped(["offers"])
        finally:
            os.chmod(key, 0o600)

    def typed(self, args, answer, **env):
        """Types `answer` at the prompt of a terminal. No echo of it may appear, now or later."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([self.gpuctl] + args, cwd=self.work, env={**self.env, **env},
                                   stdin=theirs, stdout=theirs, stderr=theirs,
                                   start_new_session=True)
        seen = b""
        while not seen.endswith(b"): "):
            seen += os.read(ours, 4096)
        os.write(ours, answer.encode())
        code = process.wait(timeout=300)
        assert termios.tcgetattr(theirs)[3] & termios.ECHO, "the terminal stays without echo"
        os.close(theirs)
        try:
            while True:
                more = os.read(ours, 4096)
                if not more:
                    break
                seen += more
        except OSError:  # Linux's sign that the other end is closed
            pass
        os.close(ours)
        return "exit %d\n--- terminal\n%s" % (code, seen.decode())

    def tty(self, args, **env):
        command = " ".join(shlex.quote(word) for word in [self.gpuctl] + args)
        done = subprocess.run(["script", "-qec", command, "/dev/null"], cwd=self.work,
                              env={**self.env, **env}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, timeout=300)
        return "exit %d\n--- terminal\n%s" % (done.returncode, done.stdout.decode())


class Market(http.server.BaseHTTPRequestHandler):
    """Runpod's list and catalog, for one key; requests with another key are refused."""
    GPU = {"id": "NVIDIA H100 80GB HBM3", "name": "H100 SXM", "manufacturer": "NVIDIA",
           "memory": 80, "secure": True, "community": False, "price": {"secure": 2.99},
           "maxCount": {"secure": 8}, "availability": "HIGH",
           "dataCenters": [{"id": "US-TX-3", "name": "US-TX-3", "availability": "HIGH"}],
           "cudaVersions": [{"version": "12.8", "available": True}]}

    def do_GET(self):
        status, body = 200, {"pods": []}
        if self.headers["Authorization"] != "Bearer good-key":
            status, body = 401, {"title": "Unauthorized", "detail": "bad key", "status": 401}
        elif "/catalog/gpus" in self.path:
            body = {"gpus": [self.GPU] if "cloud=SECURE" in self.path else []}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


RUN_FILE = """name: sft
resources: {provider: local}
env: {WANDB_MODE: offline}
run: |
  echo hello
  python train.py
limits: {time: 6h}
retry: {max: 3, on: [lost, "exit:75"]}
"""


def cases(bench):
    bench.write("run.yaml", RUN_FILE)
    bench.write("typo.yaml", "run: echo\nresources:\n  gpus: H100\n")
    bench.write("broken.yaml", "run: [echo\n")
    bench.write("rented.yaml", "run: echo\nresources: {gpu: H100, max_price: 3.5}\n")
    bench.write("key", "not a key\n")
    # The plan does not count it.
    bench.write("../tree/train.py", "print()\n")
    bench.write("../tree/.gitignore", "data/\n*.log\n")
    bench.write("../tree/.gpuctlignore", "!keep.log\n")
    bench.write("../tree/keep.log", "kept\n")
    bench.write("../tree/.env", "TOKEN=x\n")
    bench.write("../tree/data/raw.bin", "", 2000)
    # Not read, because they are too large.
    for number in range(3):
        bench.write("../large/data/raw/%d.bin" % number, "", 11 * 10**8)
    for number in range(10**4 + 1):
        bench.write("../many/node_modules/all/%d" % number, "")
    bench.write("../large/model.bin", "", 2 * 10**9)
    bench.write("../large/train.py", "print()\n")
    no_work = ["launch", "--no-workdir"]
    closed = ["--host", "ada@127.0.0.1:1"]
    both = {
        "help": ["--help"],
        "help_launch": ["launch", "--help"],
        "help_attach": ["attach", "-h"],
        "help_by_word": ["help", "pull"],
        "version": ["--version"],
        "no_verb": [],
        "unknown_verb": ["lauch"],
        "unknown_flag": ["ps", "--al"],
        "unknown_format": ["ps", "-o", "jsn"],
        "unknown_run": ["attach", "amber"],
        "ps_empty": ["ps"],
        "top_json": ["top", "-o", "json"],
        "launch_nothing": ["launch"],
        "launch_missing_file": ["launch", "nosuch.yaml"],
        "launch_command_without_dashes": ["launch", "python"],
        "launch_words_without_dashes": ["launch", "python3", "run.yaml"],
        "launch_typo": ["launch", "typo.yaml"],
        "launch_broken_yaml": ["launch", "broken.yaml"],
        "launch_rented_field": ["launch", "rented.yaml"],
        "launch_unknown_provider": no_work + ["--provider", "locla", "--", "true"],
        "launch_later_provider": no_work + ["--provider", "vast", "--", "true"],
        "launch_unknown_gpu": no_work + ["--gpu", "H10O", "--", "true"],
        "launch_bad_time": no_work + ["--time", "6", "--", "true"],
        "submit_bad_time": ["submit", "--time", "1x", "--", "true"],
        "launch_bad_host": no_work + ["--host", "-oProxyCommand=x", "--", "true"],
        "launch_missing_key": no_work + closed + ["-i", "nokey", "--", "true"],
        "launch_missing_secret": no_work + ["--secret", "NO_SUCH_TOKEN", "--", "true"],
        "launch_unreachable": no_work + closed + ["--name", "probe", "--", "true"],
        "launch_dry_run": ["launch", "--dry-run", "run.yaml"],
        "launch_large": ["launch", "--dry-run", "--workdir", "../large", "--", "true"],
        "launch_many": ["launch", "--dry-run", "--workdir", "../many", "--", "true"],
        "launch_many_yes": ["launch", "--dry-run", "-y", "--workdir", "../many", "--", "true"],
        "launch_include_nothing": ["launch", "--include", "nosuch", "--", "true"],
        "help_verify": ["verify", "--help"],
        "verify_nothing": ["verify", "nothing"],
        "help_sync": ["sync", "--help"],
        "sync_nothing": ["sync"],
        "sync_dry_run": ["sync", "--dry-run", "--workdir", "../tree"],
        "sync_explain": ["sync", "--workdir", "../tree", "--explain", "../tree/train.py",
                         "../tree/.env", "../tree/keep.log", "../tree/data/raw.bin",
                         "../tree/other.log", "../tree/.git/config"],
        "sync_explain_elsewhere": ["sync", "--explain", "../tree/train.py"],
        "help_offers": ["offers", "--help"],
        "offers_without_keys": ["offers", "--gpu", "H100"],
        "offers_of_one_without_key": ["offers", "--provider", "vast"],
        "offers_unknown_provider": ["offers", "--provider", "vats"],
        "offers_local": ["offers", "--provider", "local"],
        "offers_unknown_gpu": ["offers", "--gpu", "H10O"],
        "offers_bad_price": ["offers", "--max-price", "cheap"],
        "help_login": ["login", "--help"],
        "login_where": ["login"],
        "login_unknown": ["login", "lamda"],
        "login_remove_nothing": ["login", "vast", "--remove"],
        "wait_for_what": ["wait", "x", "--for", "dne"],
        "exec_nothing": ["exec", "x"],
        "debug_what": ["debug", "jbo", "x"],
        "down_nothing": ["down"],
        "help_show": ["show", "--help"],
        "show_nothing": ["show"],
        "show_unknown": ["show", "amber"],
        "diff_one": ["diff", "amber"],
        "tag_unknown": ["tag", "amber", "word"],
        "ps_bad_tag": ["ps", "--tag", "two words"],
        "ps_bad_since": ["ps", "--since", "soon"],
        "ps_live_and_all": ["ps", "-a", "--live"],
        "logs_bad_grep": ["logs", "amber", "--grep", "(open"],
        "logs_timestamps_follow": ["logs", "amber", "--timestamps", "-f"],
        "launch_bad_tag": ["launch", "--tag", "two words", "--", "true"],
        "launch_like_unknown": ["launch", "--like", "amber"],
        "launch_like_and_file": ["launch", "typo.yaml", "--like", "amber"],
    }
    for name, args in both.items():
        yield name + ".piped", lambda args=args: bench.piped(args)
        # The number of panels drawn before a launch fails depends on time.
        term = "dumb" if name == "launch_unreachable" else "xterm"
        yield name + ".tty", lambda args=args, term=term: bench.tty(args, TERM=term)
    yield "login_no_key.piped", lambda: bench.piped(["login", "runpod"])
    yield "login_no_such_key.piped", lambda: bench.piped(["login", "runpod"], stdin="two words\n")
    market = {"GPUCTL_RUNPOD_URL": bench.market_url}
    yield "login_bad_key.piped", lambda: bench.piped(["login", "runpod"], stdin="bad-key\n",
                                                     **market)
    yield "login.piped", lambda: bench.piped(["login", "runpod"], stdin="good-key\n", **market)
    yield "login.tty", lambda: bench.typed(["login", "runpod"], "good-key\r", **market)
    yield "login_ctrl_c.tty", lambda: bench.typed(["login", "runpod"], "good\x03", **market)
    yield "offers.piped", lambda: bench.piped(["offers", "--gpu", "H100"], **market)
    yield "offers_none_fits.piped", lambda: bench.piped(["offers", "--gpu", "H100:1",
                                                         "--max-price", "2"], **market)
    yield "offers_explain.piped", lambda: bench.piped(["offers", "--gpu", "A100-80GB",
                                                       "--explain"], **market)
    yield "json_offers.piped", lambda: bench.piped(["offers", "--gpu", "H100", "--json"], **market)
    yield "offers_key_others_can_read.piped", bench.opened_key
    yield "login_remove.piped", lambda: bench.piped(["login", "runpod", "--remove"])
    json_only = {
        "json_offers_without_keys": ["offers", "--json"],
        "json_error": ["attach", "amber", "--json"],
        "json_error_before_verb": ["--json", "lauch"],
        "json_ps": ["ps", "-o", "json"],
        "json_ps_lines": ["ps", "-a", "-o", "jsonl"],
        "json_dry_run": ["launch", "--dry-run", "run.yaml", "--json"],
        "json_sync_dry_run": ["sync", "--dry-run", "--workdir", "../tree", "--json"],
        "json_sync_dry_run_lines": ["sync", "--dry-run", "--workdir", "../tree", "-o", "jsonl"],
        "json_sync_explain": ["sync", "--workdir", "../tree", "--json", "--explain",
                              "../tree/.env", "../tree/data/raw.bin", "../tree/train.py"],
        "json_unreachable": no_work + closed + ["--json", "--", "true"],
    }
    for name, args in json_only.items():
        yield name + ".piped", lambda args=args: bench.piped(args)


def main():
    gpuctl, expected_dir = os.path.abspath(sys.argv[1]), sys.argv[2]
    update = os.environ.get("GPUCTL_UPDATE_GOLDEN") == "1"
    bench = Bench(gpuctl)
    market = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Market)
    threading.Thread(target=market.serve_forever, daemon=True).start()
    bench.market_url = "http://127.0.0.1:%d" % market.server_port
    failed = []
    try:
        for name, run in cases(bench):
            shutil.rmtree(bench.env["GPUCTL_STATE_DIR"], ignore_errors=True)
            text = bench.clean(run())
            path = os.path.join(expected_dir, name + ".txt")
            if update:
                with open(path, "w") as file:
                    file.write(text)
                continue
            try:
                with open(path) as file:
                    wanted = file.read()
            except FileNotFoundError:
                wanted = "(no such file: run with GPUCTL_UPDATE_GOLDEN=1 and read what it writes)"
            if text != wanted:
                failed.append(name)
                print("=== %s\n--- expected\n%s\n--- got\n%s" % (name, wanted, text))
    finally:
        market.shutdown()
        shutil.rmtree(bench.dir, ignore_errors=True)
    if failed:
        print("differ: " + " ".join(failed))
        sys.exit(1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The commands of README.md, docs/ and examples/, run in order as they stand there.

  documents.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]

The machines come from the simulated markets, and `you@machine` is an sshd on loopback. A command
that is in no story and that no other test runs fails the test, as does a verb or a flag that the
text names and gpuctl does not have.
"""
import contextlib
import glob
import json
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys

from fine_tune import write_model, write_rows
from rent_world import SERVICES, RentWorld, run_tests, write
from runs import Terminal, ssh_server
from simulator import KEYS

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGES = ["README.md", "examples/README.md"] + sorted(
    os.path.relpath(path, SOURCE) for path in glob.glob(os.path.join(SOURCE, "docs", "*.md")))
TRAINER_PAGES = ["trainer/README.md"] + sorted(
    os.path.relpath(path, SOURCE)
    for path in glob.glob(os.path.join(SOURCE, "trainer", "docs", "*.md")))
# Commands that another test runs, with that test's file and what is in it.
ELSEWHERE = {
    r"sudo apt install \./gpuctl_.*\.deb": ("tests/package/release_test.py", "dpkg"),
    r"tar xf gpuctl-.*-linux-x86_64\.tar\.gz": ("tests/package/release_test.py", "tar"),
    r"tar xf gpuctl-.*-macos-arm64\.tar\.gz": ("tests/package/mac_client_test.py", "tarfile"),
    r"export PATH=\$PWD/gpuctl-.*/bin:\$PATH": ("tests/package/release_test.py", "bin/gpuctl"),
    r"\./quickstart( --cloudsim)?": (".ci/run", "./quickstart"),
    r"gpuctl (launch run\.yaml --host gpu1,gpu2|(logs|stop) train( --node 1)?)": (
        "tests/gang/laptop.py", '"--host", self.them.hosts'),
    r"gpuctl launch run\.yaml --gpu H100:8 --(dry-run|down)": (
        "tests/end_to_end/gang_rented.py", '"--dry-run"'),
    r"\./test": (".ci/run", "./test"),
    r"gpuctl keep --install": ("tests/integration/keep_install_test.py", "--install"),
    r"gpuctl node fetch linux-aarch64( --from FILE)?": ("tests/end_to_end/platforms.py", "fetch"),
    r"(\$ )?gpuctl (launch run\.yaml|attach bytes|pull bytes|ps)": ("quickstart", "gpuctl"),
    r"gpuctl launch run\.yaml --provider local": ("tests/end_to_end/examples.py", "launch"),
    r"cd examples/pytorch": ("tests/end_to_end/examples.py", "pytorch"),
    r"cd examples/fine-tune": ("tests/end_to_end/train_verbs.py", "check_page"),
    r"gpuctl (preflight run\.yaml|pull fine-tune|(generate|merge) fine-tune .*|export tuned .*)": (
        "tests/end_to_end/train_verbs.py", "check_page"),
    r"deploy/packages\.sh build page trainer test": ("test", "deploy/packages.sh"),
    r"cmake --(build --)?preset dev": ("test", "cmake --"),
    r"ctest --test-dir build/dev -L unit": ("test", "ctest"),
    r"gpuctl (submit|queue|cancel|wait --batch|pull) (.* )?(sweep|nightly).*": (
        "tests/end_to_end/batches.py", "submit"),
    r"gpuctl rm --forget (--dry-run |-y )?sweep.*": ("tests/end_to_end/batches.py", '"rm", "--forget"'),
    r"gpuctl launch --gpu RTX4090 --time 30m --checkpoints .* --down --pull -- python3 train\.py": (
        "tests/end_to_end/rent.py", '"--down"'),
    r"gpuctl launch .* --forward 8888 -- jupyter lab .*": (
        "tests/end_to_end/reach_programs.py", "jupyter"),
    r"gpuctl launch --gpu RTX4090 --setup 'python3 -m venv .*": (
        "tests/end_to_end/setup.py", "python3 -m venv $GPUCTL_ENV_DIR"),
    r"gpuctl queue": ("tests/end_to_end/batches.py", '"queue"'),
    r"gpuctl config( .*)?": ("tests/end_to_end/config.py", '"config", "set"'),
    r"gpuctl run-schema > run\.schema\.json": ("tests/end_to_end/run_schema.py", "run-schema"),
    r"gpuctl dashboard( --no-open)?": ("tests/end_to_end/dashboard.py", "--no-open"),
    r"gpuctl completion fish \| source": ("tests/end_to_end/completion.py", "completion fish"),
    r"gpuctl (ssh|exec -t|forward) amber-fox-3.*": ("tests/end_to_end/reach.py", "forward"),
    r"(ssh|scp) .*gpuctl-amber-fox-3.*": ("tests/end_to_end/reach.py", "scp"),
    r"gpuctl debug links": ("tests/end_to_end/warm_link.py", '"debug", "links"'),
    r"gpuctl doctor --self-test": ("tests/end_to_end/self_test.py", "--self-test"),
    r"build/dev/bin/gpuctl doctor": ("tests/end_to_end/documents.py", "doctor"),
    r"deploy/packages\.sh build page mac": ("test", "sets+=(mac)"),
    r"deploy/mac-client .*": ("tests/package/mac_client_test.py", "deploy/mac-client"),
    r"deploy/release .*": ("tests/package/release_test.py", "deploy/release"),
    r"ssh-keygen -Y verify .*": ("tests/package/release_test.py", "verify"),
    r"gpuctl launch -d (--gpu H100:8|--on @last) --gpus 2 -- .*":
        ("tests/end_to_end/slots_rented.py", "The lines of docs/run-file.md"),
    r"gpuctl (offers|launch) --provider slurm .*": ("tests/slurm/runs_test.py", '"launch"'),
    r"sha256sum --ignore-missing -c SHA256SUMS": ("tests/package/release_test.py", "SHA256SUMS"),
}
# Commands for which there is no such machine here: nobody runs them.
NOT_RUN = [r"brew install --formula \./gpuctl\.rb",
           r"(rsync|code) .*gpuctl-amber-fox-3.*"]
PROGRAMS = {"gpuctl", "sudo", "tar", "export", "brew", "cmake", "ctest", "ssh-keygen", "sha256sum",
            "cd", "./quickstart", "./test", "deploy/packages.sh", "deploy/mac-client",
            "deploy/release", "build/dev/bin/gpuctl", "ssh", "scp", "rsync", "code"}
TRAIN_PY = """import json, hashlib, os
for step in range(1, 4):
    print("step %d/3 loss %.4f" % (step, 3 / step), flush=True)
folder = os.environ["GPUCTL_CHECKPOINT_DIR"] + "/"
os.mkdir(folder + ".tmp-1")
weights = b"weights" * 1000
open(folder + ".tmp-1/w.bin", "wb").write(weights)
json.dump({"format": 1, "step": 3, "files": [{"path": "w.bin", "size": len(weights),
           "sha256": hashlib.sha256(weights).hexdigest()}]}, open(folder + ".tmp-1/manifest.json", "w"))
os.rename(folder + ".tmp-1", folder + "step-00000003")
"""


def read(page):
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        return file.read()


def commands(page):
    """Returns the command lines of the page's blocks, without prompts and comments."""
    found = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL):
        if kind not in ("", "sh"):
            continue
        for line in block.splitlines():
            line = re.split(r"\s+#\s", line.removeprefix("$ "))[0].strip()
            if line.split(" ")[0] in PROGRAMS:
                found.append(line)
    return found


def is_elsewhere(line):
    return any(re.fullmatch(pattern, line) for pattern in [*ELSEWHERE, *NOT_RUN])


def laptop_of_a_newcomer(w):
    """Takes away what the tests' laptops have and a newcomer's has not, and makes the project."""
    for service in SERVICES:
        del w.env["GPUCTL_%s_API_KEY" % service.upper()]
    for name in ("train.py", "train.sh"):
        write(os.path.join(w.work, name), TRAIN_PY if name == "train.py" else "echo trained\n", 0o755)
    # The commands say python, which not every system has.
    os.makedirs(w.dir + "/bin", exist_ok=True)
    os.symlink(sys.executable, w.dir + "/bin/python")
    w.env["PATH"] = w.dir + "/bin:" + w.env["PATH"]


def answer_yes(w, words, question):
    """Runs it on a terminal, and says yes to its question. Returns what was on the screen."""
    terminal = Terminal(w, *words)
    terminal.until(question)
    terminal.type(b"y\n")
    code = terminal.finish()
    assert code == 0, (words, code, terminal.text[-2000:])
    return terminal.text


def follow(w, line, machine):
    """Runs one line as a person would who says yes. `machine`: what stands for you@machine."""
    words = shlex.split(line)[1:]
    if words[0] == "login":
        w.run(*words, stdin=KEYS[words[1]].encode() + b"\n")
    elif words[0] == "down":
        answer_yes(w, words, b"[y/N]")
    elif words[0] == "launch" and "--gpu" in words and "-y" not in words and "--dry-run" not in words \
            and "--host" not in words:
        answer_yes(w, words, b"Rent it?")
    elif words[0] == "submit" and "--gpu" in words:
        answer_yes(w, words, b"Submit it?")
    else:
        if "--host" in words:
            # No machine here has a GPU.
            at = words.index("--gpu")
            del words[at:at + 2]
            at = words.index("you@machine")
            words[at:at + 1] = machine
        # What is not rented must not use the home of the user who tests.
        own = {"GPUCTL_NODE_ROOT": w.root} \
            if words[0] in ("launch", "doctor") and "--gpu" not in words else {}
        w.run(*words, **own)


def tell(page):
    """Runs the commands of the page that no other test runs."""
    def test(w):
        laptop_of_a_newcomer(w)
        lines = [line for line in commands(page) if not is_elsewhere(line)]
        assert lines, "nothing to run: is the list of programs complete?"
        with contextlib.ExitStack() as stack:
            machine = []
            if any("--host" in line for line in lines):
                port, folder, _ = stack.enter_context(ssh_server(w))
                user = pwd.getpwuid(os.geteuid()).pw_name
                machine = ["%s@127.0.0.1:%d" % (user, port), "-i", folder + "/user"]
            for line in lines:
                assert line.startswith("gpuctl "), "no test runs: " + line
                follow(w, line, machine)
        for pid in w.node_pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for service in SERVICES:
            w.env["GPUCTL_%s_API_KEY" % service.upper()] = KEYS[service]
    return test


test_readme = tell("README.md")
test_renting = tell("docs/renting.md")
test_first_run = tell("docs/first-run.md")
test_installing = tell("docs/installing.md")


def scripts(page):
    """Returns the whole scripts of a page: its blocks of `bash`."""
    return re.findall(r"^```bash\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)


def test_scripts(w):
    """Each script of docs/scripts.md, as it stands there, without a terminal and with little else
    in the environment. One script finds what those before it left, as in a pipeline."""
    write(w.work + "/train.py", TRAIN_PY)
    wanted = [(0, ["nightly-1: succeeded, step 3, loss 1"]), (0, ["it failed with 3"]),
              (0, ["nothing is wrong"]),
              (0, ["NOT_FOUND, exit code 2: ", "checked-1\t3"]), (0, []),
              (0, ["grid-1", "1e-4"]), (0, []), (0, []), (0, []), (0, []), (0, []),
              (0, ["1\n2\n3\n4\n"])]
    found = scripts("docs/scripts.md")
    assert len(found) == len(wanted), (len(found), len(wanted))
    env = {name: value for name, value in w.env.items()
           if name.startswith("GPUCTL_") or name == "HOME"}
    env["GPUCTL_NODE_ROOT"] = w.root
    env["PATH"] = os.path.dirname(w.gpuctl) + ":" + os.environ["PATH"]
    for script, (code, parts) in zip(found, wanted):
        own = dict(env)
        if "--gpu " in script or "reap" in script:
            del own["GPUCTL_NODE_ROOT"]  # rented machines have their own
        done = subprocess.run(["bash", "-c", script], cwd=w.work, env=own, timeout=300,
                              stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode == code, (script, done)
        for part in parts:
            assert part in done.stdout.decode(), (script, part, done)
    assert os.path.isdir(w.work + "/results/step-00000003")
    assert os.path.isdir(w.work + "/paid-results/step-00000003")
    with open(w.work + "/ps.schema.json", encoding="utf-8") as file:
        assert json.load(file)["title"] == "gpuctl ps"


def test_every_script_is_run(_):
    for page in PAGES:
        assert page == "docs/scripts.md" or not scripts(page), "nobody runs the scripts of " + page


def test_an_example_is_planned_on_a_rented_machine(w):
    """Its run is the business of examples.py; here are no GPUs."""
    (line,) = [line for line in commands("examples/README.md") if not is_elsewhere(line)]
    w.work = os.path.join(SOURCE, "examples", "pytorch")
    plan = w.json(*shlex.split(line)[1:], "--dry-run")["plan"]
    assert plan["limits"]["time_s"] == 1800 and "RTX 4090" in plan["offer"]["description"], plan


def test_the_readme_begins_with_one_screen(_):
    screen = read("README.md").split("\n## ")[0].rstrip("\n").split("\n")
    assert len(screen) <= 30, len(screen)


def test_every_command_is_run(_):
    told = {"README.md", "docs/renting.md", "docs/first-run.md", "docs/installing.md",
            "examples/README.md"}
    for page in PAGES:
        for line in commands(page):
            assert page in told or is_elsewhere(line), "nobody runs this line of %s: %s" % (page, line)
    for pattern, (path, word) in ELSEWHERE.items():
        assert any(re.fullmatch(pattern, re.split(r"\s+#\s", line)[0]) for page in PAGES
                   for line in commands(page)), "no page has " + pattern
        assert word in read(path), (path, word)


def test_verbs_and_flags_of_the_text_exist(w):
    helps = {}
    verbs = set(re.findall(r"^  ([a-z-]+) +", w.run("--help").stdout.decode(), re.MULTILINE))
    assert len(verbs) > 20, verbs
    checked = 0
    for page in PAGES + TRAINER_PAGES + ["CHANGELOG.md", "deploy/README.md"]:
        for text in re.findall(r"`gpuctl ([^`]+)`", read(page)):
            words = text.split(" -- ")[0].split()
            if words[0].startswith("-") or not re.fullmatch("[a-z-]+", words[0]):
                continue
            assert words[0] in verbs, "%s: gpuctl %s" % (page, text)
            verb = words[:2] if words[:2] in (["node", "fetch"],) else words[:1]
            if words[0] == "debug":
                continue
            if tuple(verb) not in helps:
                helps[tuple(verb)] = w.run(*verb, "--help").stdout.decode()
            for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text.split(" -- ")[0]):
                assert re.search(re.escape(flag) + r"\b", helps[tuple(verb)]), \
                    "%s: gpuctl %s: %s has no %s" % (page, text, " ".join(verb), flag)
                checked += 1
    assert checked > 10, checked


def test_the_links_of_the_pages_lead_somewhere(_):
    for page in PAGES + TRAINER_PAGES:
        for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", read(page)):
            if target and "://" not in target:
                path = os.path.join(SOURCE, os.path.dirname(page), target)
                assert os.path.exists(path), "%s: %s" % (page, target)
        for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]*)\)", read(page)):
            path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                       for title in re.findall(r"^#+ (.*)", read(path), re.MULTILINE)}
            assert anchor in anchors, "%s: %s#%s" % (page, target, anchor)


def run_files():
    return re.findall(r"^```yaml\n(.*?)^```$", read("docs/run-file.md"), re.MULTILINE | re.DOTALL)


def test_the_run_file_of_the_page_is_read(w):
    """With each of its fields; what it names is made first."""
    text, *_ = run_files()
    # The volume is no volume of these accounts, and lambda has no private images.
    text = re.sub(r"^  volume: .*\n", "", text, flags=re.MULTILINE)
    write(w.work + "/run.yaml", text)
    write(w.work + "/data/math/a.txt", "1 + 1 = 2\n")
    plan = w.json("launch", "run.yaml", "--dry-run", HF_TOKEN="a", GHCR_TOKEN="b")["plan"]
    assert (plan["name"], plan["image"], plan["secrets"], plan["env"]) == \
        ("math-sft", "ghcr.io/me/train:1", ["HF_TOKEN"], ["WANDB_MODE"]), plan
    assert 6.6 < plan["limits"].pop("salvage_cost_usd") < 6.7, plan
    assert plan["limits"] == {"time_s": 6 * 3600, "cost_usd": 20.0, "idle_s": 600, "market_end_s": None,
                              "salvage_s": plan["limits"]["salvage_s"], "lease_s": 72 * 3600}, plan


def test_the_run_files_with_a_setup_are_read(w):
    _, *texts, _ = run_files()
    for text in filter(lambda text: "setup:" in text, texts):
        write(w.work + "/run.yaml", text)
        plan = w.json("launch", "run.yaml", "--dry-run", "--provider", "local")["plan"]
        assert plan["setup"], plan


def test_the_run_file_with_processes_is_read(w):
    text, = filter(lambda text: text.startswith("resources: {gpu: H100:8}\nprocesses: gpus"), run_files())
    # This machine has no such GPUs.
    write(w.work + "/run.yaml", text.split("\n", 1)[1])
    plan = w.json("launch", "run.yaml", "--dry-run", "--provider", "local")["plan"]
    assert plan["processes"] == "gpus", plan


def test_the_run_file_for_fine_tuning_is_read(w):
    *_, text = run_files()
    write(w.work + "/run.yaml", text)
    write_model(w.work + "/models/Qwen3-0.6B", max_position_embeddings=4096)
    write_rows(w.work + "/rows.jsonl")
    planned = w.run("launch", "run.yaml", "--dry-run", "--provider", "local")
    assert b"/models/Qwen3-0.6B at models/Qwen3-0.6B: " in planned.stdout, planned
    assert b"prepared " in planned.stderr and b" at .gpuctl/data: " in planned.stdout, planned


if __name__ == "__main__":
    run_tests(globals())

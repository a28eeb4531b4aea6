#!/usr/bin/env python3
"""The environment of a job: `setup` once for each machine and content of its inputs.

  setup.py GPUCTL FAKE_JOB [TEST...]

Nothing is downloaded: pip itself installs a wheel that the test makes. A stand-in for uv does what
uv documents about UV_PROJECT_ENVIRONMENT, UV_CACHE_DIR and UV_NO_SYNC, and one for conda makes what
`conda env create` makes.
"""
import json
import os
import random
import re
import signal
import stat
import time

from runs import Terminal, cmdline, is_locked, open_gate, run_tests, wait_until

UV = r"""#!/bin/bash
# Stands in for uv: `sync` makes the project's environment, `run` syncs and runs a command in it.
set -e
env=${UV_PROJECT_ENVIRONMENT:-.venv}
make() {
  echo "uv: syncs $env" >&2
  mkdir -p "$UV_CACHE_DIR" "$env/bin" "$env/lib/python3.11/site-packages/demo-1.2.dist-info"
  if [ -e "$UV_CACHE_DIR/demo" ]; then echo "uv: from the cache" >&2; else echo x > "$UV_CACHE_DIR/demo"; fi
  printf 'home = /usr/bin\nversion_info = 3.11.2\n' > "$env/pyvenv.cfg"
  printf 'Name: demo\nVersion: 1.2\n' > "$env/lib/python3.11/site-packages/demo-1.2.dist-info/METADATA"
  ln -sf /usr/bin/python3 "$env/bin/python"
}
case $1 in
  sync) make;;
  run) shift; [ -n "$UV_NO_SYNC" ] || make; PATH=$PWD/$env/bin:$env/bin:$PATH exec "$@";;
esac
"""


def write(l, name, text, mode=0o644):
    path = os.path.join(l.work, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def give_uv(l):
    path = os.path.join(l.dir, "tools")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "uv"), "w") as file:
        file.write(UV)
    os.chmod(os.path.join(path, "uv"), stat.S_IRWXU)
    l.env["PATH"] = path + ":" + l.env["PATH"]


def run_of(l, name):
    return next(run for run in l.json("ps", "-a")["runs"] if run["name"] == name)


def envs(l):
    path = os.path.join(l.root, "envs")
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def test_once_for_the_same_inputs(l):
    write(l, "requirements.txt", "torch\n")
    write(l, "run.yaml", "name: twice\n"
          "setup: |\n  echo making\n  cat requirements.txt > $GPUCTL_ENV_DIR/made-of\n"
          "run: cat $GPUCTL_ENV_DIR/made-of\n")
    plan = l.run("launch", "--dry-run", "run.yaml").stdout
    assert b"setup     echo making" in plan and b"once for each machine" in plan, plan
    assert "echo making" in json.dumps(l.json("launch", "--dry-run", "run.yaml"))
    first = l.run("launch", "run.yaml").stdout
    assert b"making\n" in first and first.endswith(b"torch\n"), first
    second = l.run("launch", "run.yaml").stdout
    assert b"making" not in second and b"there already" in second and second.endswith(b"torch\n")
    assert l.json("show", "twice-1")["setup"]["state"] == "made"
    reused = l.json("show", "twice-2")["setup"]
    assert reused["state"] == "reused" and reused["environment"] == envs(l)[0], reused
    shown = l.run("show", "twice-1").stdout
    assert b"made in" in shown and b"echo making" in shown, shown
    # Another content, and a flag in place of the file's.
    write(l, "requirements.txt", "jax\n")
    assert l.run("launch", "run.yaml").stdout.endswith(b"jax\n")
    assert len(envs(l)) == 2
    flag = l.run("launch", "run.yaml", "--setup", "echo flag > $GPUCTL_ENV_DIR/made-of").stdout
    assert flag.endswith(b"flag\n"), flag
    # What it was launched with is launched again.
    like = l.run("launch", "--like", "twice-4").stdout
    assert like.endswith(b"flag\n") and b"there already" in like, like


def test_state_while_it_runs_and_failure(l):
    gate = os.path.join(l.dir, "setup.gate")
    os.mkfifo(gate)
    l.run("launch", "-d", "--no-workdir", "--name", "slow", "--setup",
          "echo loss=3; echo step 7/9; read x < " + gate, "--", "echo", "ran")
    wait_until(lambda: run_of(l, "slow-1")["status"] == "setting up", "it sets up")
    run = run_of(l, "slow-1")
    assert run["state"] == "JOB_STATE_RUNNING" and run["setup"]["state"] == "running", run
    assert b"setting up" in l.run("ps").stdout
    assert b"for " in l.run("show", "slow-1").stdout
    l.run("wait", "slow-1", "--for", "running", "--timeout", "1s", code=124)
    t = Terminal(l, "attach", "slow-1", columns=120)
    t.until(b"setting up")
    # A client that dies, and a server that does, change nothing.
    os.kill(t.pid, signal.SIGKILL)
    t.finish()
    for pid in list(l.node_pids()):
        if b"server" in cmdline(pid).split(b"\0"):
            os.kill(pid, signal.SIGKILL)
    open_gate(gate)
    attached = l.run("attach", "slow-1").stdout
    assert b"step 7/9\n" in attached and attached.endswith(b"ran\n"), attached
    run = l.json("show", "slow-1")
    # What a setup prints are no numbers of the run.
    assert run["step"] is None and run["loss"] is None and run["setup"]["took_s"] > 0.5, run
    failed = l.run("launch", "--no-workdir", "--name", "bad", "--retry-max", "2", "--retry-on",
                   "failed", "--setup", "echo so >&2; exit 5", "--", "echo", "never", code=5)
    assert b"its setup failed: exited with code 5" in failed.stderr, failed.stderr
    assert b"never\n" not in failed.stdout.replace(b"echo never", b"")
    run = l.json("show", "bad-1")
    assert (run["exit_code"], run["source"], run["reason"], run["attempt"]) == (5, "job", "setup", 1), run
    assert run["setup"]["state"] == "failed", run


def test_stop_and_time_limit_end_it(l):
    l.run("launch", "-d", "--no-workdir", "--name", "stopped", "--grace", "2s", "--setup",
          "sleep 1000", "--", "true")
    wait_until(lambda: run_of(l, "stopped-1")["status"] == "setting up", "it sets up")
    l.run("stop", "stopped-1")
    wait_until(lambda: run_of(l, "stopped-1")["status"] == "stopped", "it is stopped")
    done = l.run("launch", "--no-workdir", "--name", "limited", "--time", "1s", "--grace", "1s",
                 "--setup", "sleep 1000", "--", "true", code=119)
    assert b"reached its time limit" in done.stderr, done.stderr
    assert not any(is_locked(os.path.join(l.root, "envs", env, "lock")) for env in envs(l))


def test_uv_with_and_without_setup(l):
    give_uv(l)
    write(l, "uv.lock", "version = 1\n")
    write(l, "train.py", "import sys; print('prefix', sys.executable)\n")
    bare = l.run("launch", "--name", "bare", "--", "uv", "run", "python", "train.py")
    assert b"uv: syncs .venv" in bare.stdout and b"from the cache" not in bare.stdout, bare.stdout
    again = l.run("launch", "--name", "bare", "--", "uv", "run", "python", "train.py")
    assert b"uv: from the cache" in again.stdout, again.stdout
    assert os.path.exists(os.path.join(l.root, "caches/uv/demo"))
    for turn in range(2):
        made = l.run("launch", "--name", "with", "--setup", "uv sync --extra cuda", "--", "uv",
                     "run", "python", "train.py").stdout
        prefix = os.path.join(l.root, "envs", envs(l)[0], "env")
        assert ("prefix " + prefix).encode() in made, made
        # `uv run` takes the environment as it is: others use it, too.
        assert made.count(b"uv: syncs") == 1 - turn, made
    # Its packages came home with the streams, and need no machine.
    shown = l.json("show", "with-2")
    assert shown["packages"] == ["python==3.11.2", "demo==1.2"], shown["packages"]


def wheel(directory, name, version):
    """Writes a wheel with one module, which says its version."""
    import zipfile
    os.makedirs(directory, exist_ok=True)
    info = "%s-%s.dist-info/" % (name, version)
    members = {
        name + ".py": "version = %r\n" % version,
        info + "METADATA": "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version),
        info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join("%s,,\n" % path for path in [*members, info + "RECORD"])
    path = os.path.join(directory, "%s-%s-py3-none-any.whl" % (name, version))
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in [*members.items(), (info + "RECORD", record)]:
            archive.writestr(member, text)


def test_pip_itself(l):
    """Debian's venv and pip, with a wheel that is made here, so that nothing is downloaded."""
    wheel(os.path.join(l.work, "wheels"), "gpuctl_little", "1.5")
    write(l, "requirements.txt", "gpuctl_little\n")
    write(l, "train.py", "import sys, gpuctl_little, importlib.metadata as known\n"
          "print('uses', gpuctl_little.version, sys.prefix)\n"
          "print('finds', *sorted(d.metadata['Name'] + '==' + d.version\n"
          "                       for d in known.distributions()))\n")
    setup = ("/usr/bin/python3 -m venv $GPUCTL_ENV_DIR\n"
             "pip install --no-index --find-links wheels -r requirements.txt")
    found = []
    for turn in range(2):
        done = l.run("launch", "--name", "pip", "--setup", setup, "--", "python", "train.py")
        (env,) = envs(l)
        prefix = os.path.join(l.root, "envs", env, "env")
        assert ("uses 1.5 %s\n" % prefix).encode() in done.stdout, done
        assert (b"Successfully installed gpuctl_little-1.5" in done.stdout.replace(b"-little", b"_little")) \
            == (turn == 0), done
        found.append(done.stdout.decode().split("\nfinds ")[1].split())
        # What is recorded is what the job's own Python finds.
        python, *packages = l.json("show", "pip-%d" % (turn + 1))["packages"]
        assert python.startswith("python==3."), python
        assert sorted(one.lower() for one in packages) == \
            sorted(one.lower() for one in found[-1]), (packages, found)
        assert not any(one.startswith(".venv") for one in os.listdir(l.work))
    # Another version of the wheel is another environment.
    wheel(os.path.join(l.work, "wheels"), "gpuctl_little", "2.0")
    done = l.run("launch", "--name", "pip", "--setup", setup, "--", "python", "train.py")
    assert b"uses 2.0 " in done.stdout and len(envs(l)) == 2, done


def test_doctor_says_what_the_machine_keeps(l):
    l.run("launch", "--no-workdir", "--setup", "head -c 3000000 /dev/urandom > $GPUCTL_ENV_DIR/x",
          "--", "true")
    said = l.run("doctor").stdout
    assert re.search(rb"ok    kept there: environments 3\.\d+ MB, .*runs \d+", said), said
    assert b"gpuctl prune removes finished runs, rm -rf " in said and b"/envs" in said, said


def test_a_python_that_refuses_pip_gets_a_hint(l):
    """What pip says on Debian 12 and Ubuntu 24, in a setup, in a job and behind exec."""
    refuses = "echo 'error: externally-managed-environment' >&2; exit 1"
    hint = b"HINT: pip does not change the system's Python there; a setup: of python3 -m venv"
    done = l.run("launch", "--no-workdir", "--name", "pep", "--setup", refuses, "--", "true", code=1)
    assert hint in b" ".join(done.stderr.split()), done
    done = l.run("wait", "pep-1", code=1)
    assert hint in b" ".join(done.stderr.split()), done
    done = l.run("exec", "pep-1", "--", "bash", "-c", refuses, code=1)
    assert hint in b" ".join(done.stderr.split()), done
    # What succeeds needs none.
    done = l.run("exec", "pep-1", "--", "bash", "-c", refuses.replace("1", "0"))
    assert b"HINT" not in done.stderr, done


CONDA = r"""#!/bin/bash
# Stands in for conda: `env create -f FILE -p PREFIX` makes what conda would, of the names in FILE.
set -e
[ "$1 $2 $3 $4 $5" = "env create -y -f environment.yml" ] && [ "$6" = -p ]
mkdir -p "$7/conda-meta" "$7/bin" "$7/lib/python3.10/site-packages" "$CONDA_PKGS_DIRS"
printf '#!/bin/sh\necho the python of %s\n' "$7" > "$7/bin/python"
chmod +x "$7/bin/python"
while read -r dash package; do
  [ "$dash" = - ] || continue
  mkdir "$7/lib/python3.10/site-packages/${package/=/-}.dist-info"
done < environment.yml
"""


def test_what_conda_makes(l):
    """A stand-in for conda: conda itself is not here."""
    path = os.path.join(l.dir, "tools")
    os.makedirs(path)
    with open(os.path.join(path, "conda"), "w") as file:
        file.write(CONDA)
    os.chmod(os.path.join(path, "conda"), stat.S_IRWXU)
    l.env["PATH"] = path + ":" + l.env["PATH"]
    write(l, "environment.yml", "dependencies:\n- numpy=1.26\n")
    setup = "conda env create -y -f environment.yml -p $GPUCTL_ENV_DIR"
    for version in ("1.26", "2.0"):
        write(l, "environment.yml", "dependencies:\n- numpy=%s\n" % version)
        done = l.run("launch", "--name", "conda", "--setup", setup, "--", "bash", "-c",
                     "python; echo $CONDA_PREFIX")
        lines = done.stdout.decode().splitlines()
        assert lines[-2] == "the python of " + lines[-1] and lines[-1].startswith(l.root), lines
        assert l.json("show", "conda")["packages"] == ["python==3.10", "numpy==" + version]
    assert len(envs(l)) == 2


def test_packages_of_a_job_without_setup(l):
    """The machine lists them after the job's first minute."""
    site = os.path.join(l.dir, "venv/lib/python3.11/site-packages/mine-7.dist-info")
    os.makedirs(site)
    os.makedirs(os.path.join(l.dir, "venv/bin"))
    os.symlink("/usr/bin/python3", os.path.join(l.dir, "venv/bin/python"))
    with open(os.path.join(l.dir, "venv/pyvenv.cfg"), "w") as file:
        file.write("home = /usr/bin\nversion = 3.11.2\n")
    l.run("launch", "-d", "--no-workdir", "--name", "bare", "--",
          os.path.join(l.dir, "venv/bin/python"), "-c", "import time; time.sleep(600)")
    end = time.monotonic() + 300
    while "mine==7" not in (l.json("show", "bare-1")["packages"] or []):
        assert time.monotonic() < end, l.json("show", "bare-1")["packages"]
        l.run("ps")  # asks the machine for what is new
        time.sleep(1)
    l.run("stop", "bare-1")
    wait_until(lambda: run_of(l, "bare-1")["status"] == "stopped", "it is stopped")


def test_two_launches_make_one_environment(l):
    write(l, "requirements.txt", "a\n")
    log = os.path.join(l.dir, "made.log")
    script = "echo made >> %s; sleep 0.5; touch $GPUCTL_ENV_DIR/x" % log
    l.run("launch", "--no-workdir", "--", "true")  # the agent is there
    both = [l.start("launch", "--name", "both", "--setup", script, "--", "ls",
                    "/proc/self/cwd") for _ in range(3)]
    outs = [one.communicate(timeout=300) for one in both]
    assert [one.returncode for one in both] == [0, 0, 0], outs
    with open(log) as file:
        assert file.read() == "made\n"
    assert len(envs(l)) == 1


def test_killed_processes_leave_no_half_environment(l):
    seed = int(os.environ.get("GPUCTL_TEST_SEED", "11"))
    print("seed", seed)
    chance = random.Random(seed)
    script = ("for i in $(seq 30); do echo $i > $GPUCTL_ENV_DIR/$i; sleep 0.01; done; "
              "echo all > $GPUCTL_ENV_DIR/all")
    for turn in range(6):
        name = "killed%d" % turn
        this = script + " # %d" % (turn // 2)
        l.run("launch", "-d", "--no-workdir", "--name", name, "--retry-max", "3", "--retry-on",
              "lost", "--retry-backoff", "0s", "--setup", this, "--", "bash", "-c",
              "ls $GPUCTL_ENV_DIR | wc -l; cat $GPUCTL_ENV_DIR/all")
        time.sleep(chance.random() * 0.4)
        victims = [pid for pid in l.node_pids()
                   if any(word in cmdline(pid) for word in (b"gpuctl-shim", b"server"))]
        if victims:
            os.kill(chance.choice(victims), signal.SIGKILL)
        l.run("wait", name + "-1", code=None)
        again = l.run("launch", "--no-workdir", "--setup", this, "--", "bash", "-c",
                      "ls $GPUCTL_ENV_DIR | wc -l; cat $GPUCTL_ENV_DIR/all").stdout
        assert again.endswith(b"31\nall\n"), again


def test_bad_setups_are_refused(l):
    write(l, "run.yaml", "setup: [a, b]\nrun: true\n")
    assert b"setup" in l.run("launch", "run.yaml", code=2).stderr
    write(l, "run.yaml", "setup: %s\nrun: true\n" % ("x" * 140000))
    done = l.run("launch", "--no-workdir", "run.yaml", code=2)
    assert b"setup: has" in done.stderr, done.stderr
    # Nothing but space is none.
    assert l.run("launch", "--no-workdir", "--setup", " \n", "--", "echo", "x").stdout == b"x\n"
    assert envs(l) == []


if __name__ == "__main__":
    run_tests(globals(), apart=True)

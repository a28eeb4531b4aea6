#!/usr/bin/env python3
"""The defaults for launches, config.toml and gpuctl.toml, over the real path.

  config.py GPUCTL FAKE_JOB [TEST...]
"""
import contextlib
import json
import os
import shutil
import subprocess

from runs import run_tests
from sync import write


def fresh(l):
    """Removes what an earlier test configured."""
    shutil.rmtree(os.path.dirname(user_file(l)), ignore_errors=True)
    for name in ("gpuctl.toml", "run.yaml"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(l.work, name))


def project(l, text):
    write(os.path.join(l.work, "gpuctl.toml"), text.encode())


def user_file(l):
    return os.path.join(l.dir, ".config", "gpuctl", "config.toml")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def plan(l, *args, **env):
    return json.loads(l.run("launch", "--dry-run", "--json", *args, **env).stdout)["plan"]


def test_a_flag_a_variable_the_run_file_the_project_the_user(l):
    fresh(l)
    run = ["run.yaml", "--", "true"]
    write(os.path.join(l.work, "run.yaml"), b"name: x\n")
    assert plan(l, *run)["limits"]["time_s"] == 24 * 3600
    l.run("config", "set", "limits.time", "6h")
    made = plan(l, *run)
    assert made["limits"]["time_s"] == 6 * 3600
    assert made["defaults"] == [{"key": "limits.time", "value": "6h", "from": user_file(l) + ":2"}]
    l.run("config", "set", "time", "5h", "--project")
    assert plan(l, *run)["limits"]["time_s"] == 5 * 3600
    text = l.run("launch", "--dry-run", *run).stdout.decode()
    assert "default   limits.time 5h, from %s/gpuctl.toml:2\n" % os.path.realpath(l.work) in text, text
    write(os.path.join(l.work, "run.yaml"), b"limits: {time: 4h}\n")
    made = plan(l, *run)
    assert made["limits"]["time_s"] == 4 * 3600 and made["defaults"] == [], made
    assert plan(l, *run, GPUCTL_LIMITS_TIME="3h")["limits"]["time_s"] == 3 * 3600
    made = plan(l, "--time", "2h", *run, GPUCTL_LIMITS_TIME="3h")
    assert made["limits"]["time_s"] == 2 * 3600 and made["defaults"] == [], made


def test_a_project_weakens_nothing(l):
    fresh(l)
    l.run("config", "set", "limits.time", "6h")
    project(l, "[limits]\ntime = '48h'\n")
    done = l.run("launch", "--dry-run", "--", "true")
    assert b"6h 00m running time" in done.stdout, done
    assert b"limits.time does not count: a project can only lower it" in done.stderr, done
    marker = os.path.join(l.dir, "marker")
    project(l, "[notify]\ncommand = 'touch %s'\n" % marker)
    done = l.run("launch", "--", "false", code=2)
    assert b"gpuctl.toml:2:1: notify.command cannot come from a project" in done.stderr, done
    assert not os.path.exists(marker) and all(run["command"] != "false" for run in l.json("ps", "-a")["runs"])


def test_settings_of_rented_machines_do_not_trouble_others(l):
    fresh(l)
    l.run("config", "set", "max_price", "2.50")
    l.run("config", "set", "image", "ghcr.io/me/x:1")
    assert l.run("launch", "--", "echo", "here").stdout == b"here\n"
    assert plan(l, "--", "true")["defaults"] == []


def test_errors_name_the_place(l):
    fresh(l)
    project(l, "# ä\n[limits]\n  tiem = '6h'\n")
    done = l.run("launch", "--dry-run", "--", "true", code=2)
    assert done.stderr.decode() == (
        "gpuctl: {0}:3:3: unknown setting \"limits.tiem\" (did you mean \"limits.time\"?)\n"
        "  3 |   tiem = '6h'\n    |   ^\nHINT: correct {0} there\n".format(
            os.path.realpath(l.work) + "/gpuctl.toml")), done.stderr.decode()
    for text in ("[limits\n", "\x00", "[limits]\ntime = 5\n", "a = [[[[", "run = 'x'\n"):
        project(l, text)
        assert b"gpuctl.toml:" in l.run("config", code=2).stderr, text
    done = l.run("launch", "--dry-run", "--", "true", code=2, GPUCTL_MAX_PRICE="cheap")
    assert b"gpuctl.toml" in done.stderr  # the file first
    project(l, "")
    done = l.run("launch", "--dry-run", "--", "true", code=2, GPUCTL_MAX_PRICE="cheap")
    assert b"GPUCTL_MAX_PRICE: " in done.stderr, done


def test_set_keeps_comments_and_refuses_what_is_wrong(l):
    fresh(l)
    path = user_file(l)
    write(path, b"# mine\n\n[limits]   # all of them\ntime = '6h' # long\n")
    l.run("config", "set", "time", "7h")
    l.run("config", "set", "cost", "12.5")
    l.run("config", "set", "region", "US,EU")
    text = ("# mine\n\n[limits]   # all of them\ntime = \"7h\" # long\ncost = 12.5\n\n"
            "[resources]\nregion = [\"US\", \"EU\"]\n")
    assert read(path) == text, read(path)
    for args in (("time", "soon"), ("tme", "6h"), ("provider", "aws"), ("time",),
                 ("time", "1h", "2h"), ("webhook", "nonsense!")):
        l.run("config", "set", *args, code=2)
    l.run("config", "set", "notify.command", "touch x", "--project", code=2)
    assert read(path) == text and not os.path.exists(l.work + "/gpuctl.toml")
    assert l.run("config", "get", "region").stdout == b"US\nEU\n"
    l.run("config", "get", "grace", code=1)
    rows = {row["key"]: row for row in l.json("config")["settings"]}
    assert rows["limits.cost"]["value"] == 12.5 and rows["limits.cost"]["origin"] == "user"
    assert rows["grace"]["value"] is None
    l.run("config", "unset", "region")
    l.run("config", "unset", "region", code=1)
    assert read(path).startswith("# mine\n") and "region" not in read(path)
    assert l.run("config", "path").stdout.decode() == path + "\n"


def test_a_webhook_is_not_shown(l):
    fresh(l)
    l.run("config", "set", "notify.webhook", "https://hooks.example/T0/canary-5")
    for args in (("config",), ("config", "-o", "json"), ("launch", "--dry-run", "--", "true")):
        done = l.run(*args)
        assert b"canary-5" not in done.stdout + done.stderr, done
    assert os.stat(user_file(l)).st_mode & 0o077 == 0


def test_several_at_once_lose_nothing(l):
    fresh(l)
    keys = {"limits.time": "6h", "limits.cost": "4", "resources.max_price": "2", "grace": "5m",
            "resources.image": "a:1", "resources.spot": "true", "output_limit": "2GiB"}
    processes = [l.start("config", "set", key, value) for key, value in keys.items()]
    for process in processes:
        assert process.wait(60) == 0, process.stderr.read()
        process.stdout.close()
        process.stderr.close()
    rows = {row["key"]: row["value"] for row in l.json("config")["settings"]
            if row["origin"] == "user"}
    assert set(rows) == set(keys), rows


def test_a_link_stays_a_link_and_a_full_disk_loses_nothing(l):
    fresh(l)
    dotfiles = os.path.join(l.dir, "dotfiles.toml")
    write(dotfiles, b"grace = '5m'\n")
    os.makedirs(os.path.dirname(user_file(l)))
    os.symlink(dotfiles, user_file(l))
    l.run("config", "set", "time", "6h")
    assert os.path.islink(user_file(l)) and "time" in read(dotfiles)
    before = read(dotfiles)
    done = subprocess.run(["bash", "-c", "ulimit -f 0; trap '' XFSZ; exec \"$0\" config set time 9h",
                           l.gpuctl], cwd=l.work, env=l.env, capture_output=True, timeout=300,
                          check=False)
    assert done.returncode != 0 and read(dotfiles) == before, done


if __name__ == "__main__":
    run_tests(globals())

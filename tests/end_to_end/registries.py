#!/usr/bin/env python3
"""Private images at the markets that take images: the login at their registry, and where it is kept.

  registries.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import json
import os
import threading
import time

from keep import JOB, log_of, pulled
from rent_world import eventually, run_tests, write

GPU = ["--gpu", "RTX-4090"]
IMAGE = "ghcr.io/team/private-tool:1"
PASSWORD = "canary!31415-pass/word=+"
LOGIN = ["--image", IMAGE, "--registry", "ada:GHCR_TOKEN@ghcr.io"]


class CommandLines:
    """with CommandLines() as seen: …; looks at every process's words all the time."""

    def __init__(self):
        self.text = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.over.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    with open("/proc/%s/cmdline" % pid, "rb") as file:
                        self.text.add(file.read())
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.over.set()
        self.thread.join()


def check_nowhere(w, password, *done, least=5):
    """Expects the password in no output and in no file of ours, of the work directory or the
    machines. There must be at least so many files."""
    secret = password.encode()
    for each in done:
        assert secret not in each.stdout and secret not in each.stderr, each
    looked = 0
    for top in (w.dir, w.sim.dir):
        for folder, _, files in os.walk(top):
            for name in files:
                path = os.path.join(folder, name)
                if not os.path.isfile(path) or os.path.islink(path):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    with open(path, "rb") as file:
                        assert secret not in file.read(), path
                    looked += 1
    assert looked >= least, looked


def entries(w):
    return {entry["id"]: entry["name"] for entry in w.sim.books()["registries"]}


def test_a_private_image_with_its_login_runs_and_its_password_is_nowhere(w):
    w.sim.registry("ghcr.io", "ada", PASSWORD)
    secret = {"GHCR_TOKEN": PASSWORD}
    with CommandLines() as seen:
        done = []
        for service, name in (("vast", "one"), ("runpod", "two")):
            done.append(w.rent("--provider", service, "--fresh", "--trace", "--name", name, *GPU,
                               *LOGIN, "--", "echo", "it runs", **secret))
            assert done[-1].stdout == b"it runs\n", done[-1]
            assert b"trace: POST" in done[-1].stderr or b"trace: PUT" in done[-1].stderr, done[-1]
        done.append(w.rent("--provider", "runpod", "--spot", "--name", "three", "--trace", *GPU,
                           *LOGIN, "--", "echo", "spot", **secret))
        assert done[-1].stdout == b"spot\n", done[-1]
        for verb in (["ps", "-a", "--json"], ["instances", "--json"], ["keep", "--dry-run"]):
            done.append(w.run(*verb, code=None))
    assert any(b"launch" in words and b"--registry" in words for words in seen.text)
    assert not any(PASSWORD.encode() in words for words in seen.text)
    check_nowhere(w, PASSWORD, *done)
    assert len(w.creates("vast")) == 1 and len(w.creates("runpod")) == 2, w.creates()
    # Both pods use one entry, whose name shows no password. It goes when nothing uses it any more.
    assert len(entries(w)) == 1, entries(w)
    assert w.run("down", "two", "-y").returncode == 0 and len(entries(w)) == 1
    done = w.run("down", "--all", "-y")
    assert b"runpod keeps 1 registry login less" in done.stderr and entries(w) == {}, done


def check_refusal(w, service, *more, said, password="wrong-canary", **env):
    before = len(w.creates(service))
    # It does not wait for a machine that never comes: a run of a verb has a minute here.
    done = w.rent("--provider", service, "--fresh", "--trace", *GPU, "--image", IMAGE, *more, "--",
                  "true", code=122, GHCR_TOKEN=password, **env)
    assert said in done.stderr and b"its image cannot be pulled" in done.stderr, done
    assert len(w.creates(service)) == before + 1, w.creates(service)
    assert w.alive() == [] and w.excluded() == [], w.excluded()
    check_nowhere(w, password, done)
    assert entries(w) == {}, "a login of no use stays with the market"
    return done


def test_a_wrong_login_ends_the_launch_at_once_and_blames_no_machine(w):
    w.sim.registry("ghcr.io", "ada", PASSWORD)
    for service in ("vast", "runpod"):
        done = check_refusal(w, service, "--registry", "ada:GHCR_TOKEN",
                             said=b"unauthorized: incorrect username or password")
        assert b"the login was that of ada at ghcr.io" in done.stderr, done
        assert b"HINT: no machine is to blame: docker login ghcr.io -u ada" in done.stderr, done
        assert b"GHCR_TOKEN" in done.stderr, done
        # Without a login the hint names what is missing.
        done = check_refusal(w, service, said=b"pull access denied for " + IMAGE.encode())
        assert b"HINT: " in done.stderr and b"--registry USER:SECRET" in done.stderr, done


def check_unasked(w, *args, said, code=2, **env):
    done = w.rent(*args, "--", "true", code=code, **env)
    assert said.encode() in done.stderr and b"HINT: " in done.stderr, done
    error = json.loads(w.rent(*args, "--json", "--", "true", code=code, **env).stdout)["error"]
    assert said in error["message"] and error["hint"], error
    # No market was asked at all.
    assert w.sim.requests() == [], w.sim.requests()
    return done


def test_what_cannot_work_is_refused_before_anybody_is_asked(w):
    secret = {"GHCR_TOKEN": PASSWORD}
    vast = ["--provider", "vast", *GPU]
    check_unasked(w, *vast, *LOGIN, said="secret GHCR_TOKEN, the password of resources.registry, "
                  "has no value here")
    check_unasked(w, *vast, "--registry", "ada:GHCR_TOKEN", said="there is no image", **secret)
    check_unasked(w, *vast, "--image", "team/private-tool", "--registry", "ada:GHCR_TOKEN@ghcr.io",
                  said="the image team/private-tool comes from docker.io", **secret)
    check_unasked(w, "--provider", "lambda", "--gpu", "A10", *LOGIN,
                  said="lambda runs no container images", **secret)
    check_unasked(w, "--provider", "local", "--registry", "ada:GHCR_TOKEN", "--image", IMAGE,
                  said="is for rented machines", **secret)
    check_unasked(w, "--host", "ada@127.0.0.1", *LOGIN, said="is for rented machines", **secret)
    # Vast's one line cannot hold every password, and Runpod's entry can.
    done = check_unasked(w, *vast, *LOGIN, said="the password has characters that cannot be "
                         "written there", GHCR_TOKEN="canary 27182 \"quoted\"")
    check_nowhere(w, "27182", done, least=0)
    # Somebody wrote the password itself. It stays out of what is printed.
    for registry in ("ada:canary-27182@ghcr.io", "ada:canary_27182@ghcr.io"):
        done = check_unasked(w, *vast, "--image", IMAGE, "--registry", registry,
                             said="name of a secret")
        check_nowhere(w, "27182", done, least=0)
    # The key of an account goes to no registry.
    check_unasked(w, *vast, "--image", IMAGE, "--registry", "ada:VAST_API_KEY",
                  said="gpuctl sends it to no registry", VAST_API_KEY="sim-vast-key")


def test_the_run_file_and_the_plan_know_it(w):
    w.sim.registry("registry.example:5000", "robot$ci", "with \"quotes\" and spaces")
    path = os.path.join(w.work, "run.yaml")
    image = "registry.example:5000/private/tool"
    write(path, "resources:\n  gpu: RTX-4090\n  image: %s\n  registry: {server: "
          "registry.example:5000, username: robot$ci, password: CI_TOKEN}\nrun: echo from a file\n"
          % image)
    secret = {"CI_TOKEN": "with \"quotes\" and spaces"}
    plan = w.json("launch", path, "--dry-run", **secret)["plan"]
    assert plan["image"] == image and plan["provider"] == "runpod", plan
    assert plan["registry"] == {"server": "registry.example:5000", "username": "robot$ci",
                                "password": "CI_TOKEN"}, plan
    text = w.run("launch", path, "--dry-run", **secret).stdout
    assert b"image     " + image.encode() in text and b"secret CI_TOKEN" in text, text
    assert b"no offers from lambda" in text and b"no offers from vast" in text, text
    assert b"quotes" not in text, text
    assert w.creates() == [] and entries(w) == {}
    done = w.run("launch", path, "-y", "--no-workdir", **secret)
    assert done.stdout == b"from a file\n", done
    check_nowhere(w, secret["CI_TOKEN"].replace('"', '\\"'), done)
    w.run("launch", path, "-y", code=2)
    write(path, "resources: {image: x, registry: {user: ada}}\nrun: echo\n")
    assert b"did you mean \"username\"?" in w.run("launch", path, code=2).stderr


def test_a_machine_with_an_image_is_not_given_to_another_run(w):
    """What it was rented with is not known, so each run with an image gets one of its own."""
    w.sim.registry("ghcr.io", "ada", PASSWORD)
    flags = ["--provider", "vast", *GPU, *LOGIN, "--", "true"]
    w.rent(*flags, GHCR_TOKEN=PASSWORD)
    w.rent(*flags, GHCR_TOKEN=PASSWORD)
    assert len(w.creates("vast")) == 2, w.creates("vast")


def test_a_changed_login_gets_its_own_entry_and_the_old_one_goes(w):
    runpod = ["--provider", "runpod", "--fresh", "-d", *GPU, *LOGIN, "--", "sleep", "600"]
    for password in ("first-password", "first-password", "second-password"):
        w.sim.registry("ghcr.io", "ada", password)
        w.rent("--name", "r", *runpod, GHCR_TOKEN=password)
    names = entries(w)
    assert len(names) == 2, names
    others = [w.sim.call("runpod", "POST", "/v2/registries", {
        "name": name, "username": "u", "password": "p"}).json["id"]
        for name in ("dockerhub", "gpuctl-00000000-registry-0123456789abcdef")]
    # A pod uses each of them.
    w.run("reap", "-y", "--no-wait")
    assert set(entries(w)) == set(names) | set(others), entries(w)
    w.run("down", "r-1", "-y")
    w.run("down", "r-2", "-y")
    assert len(set(entries(w)) & set(names)) == 1, entries(w)
    # A machine that went without us leaves it to reap.
    (book,) = w.alive()
    w.sim.change("runpod", book["id"], "end")
    done = w.run("reap", "-y", "--no-wait", code=None)
    assert b"runpod keeps 1 registry login less" in done.stderr, done
    # Those of the user and of another owner stay.
    assert set(entries(w)) == set(others), entries(w)


def test_two_launches_and_a_reap_at_once(w):
    """Nobody removes the login with which another is about to rent."""
    w.sim.registry("ghcr.io", "ada", PASSWORD)
    w.env["GHCR_TOKEN"] = PASSWORD
    flags = ["launch", "-y", "--no-workdir", "-d", "--fresh", "--provider", "runpod", *GPU, *LOGIN]
    hold = w.sim.hold(service="runpod", route="create", phase="before")
    first = w.start(*flags, "--name", "a", "--", "sleep", "600")
    w.sim.wait_hold(hold)
    assert len(entries(w)) == 1 and w.alive() == []
    # Its create is on its way, and no pod uses the login yet.
    w.run("reap", "-y", "--no-wait", code=None)
    assert len(entries(w)) == 1, "reap removed the login of a launch"
    second = w.start(*flags, "--name", "b", "--", "sleep", "600")
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, (out, err)
    w.sim.release(hold)
    out, err = first.communicate(timeout=300)
    assert first.returncode == 0, (out, err)
    assert len(entries(w)) == 1 and len(w.alive()) == 2, (entries(w), w.alive())
    w.run("down", "--all", "-y", "--force")
    assert entries(w) == {}


def test_a_stored_secret_is_enough_for_keep(w):
    """keep has no environment of the user's."""
    w.env["GPUCTL_KEY_STORE"] = "file"
    w.sim.registry("ghcr.io", "ada", PASSWORD)
    done = w.rent("-d", "--spot", "--cost", "5", "--name", "taken", "--retry-max", "2",
                  "--retry-on", "preempted", "--provider", "vast", *GPU, *LOGIN, "--", "bash", "-c",
                  JOB, GHCR_TOKEN=PASSWORD)
    assert b"gpuctl login --secret GHCR_TOKEN keeps it" in done.stderr, done
    pulled(w, "taken")
    (book,) = w.alive()
    w.sim.change("vast", book["id"], "preempt")
    w.run("keep", code=None)
    w.advance(200)
    w.run("keep", code=None)
    (line,) = [line for line in log_of(w) if line.startswith("resume taken-1: FAILED")]
    assert "secret GHCR_TOKEN, the password of resources.registry, has no value here" in line, line
    assert len(w.creates("vast")) == 1, w.creates("vast")
    # Stored without being seen.
    with CommandLines() as seen:
        done = w.run("login", "--secret", "GHCR_TOKEN", stdin=PASSWORD.encode() + b"\n")
    path = os.path.join(w.env["GPUCTL_CONFIG_DIR"], "secrets", "GHCR_TOKEN")
    assert done.stdout == b"the value of GHCR_TOKEN is kept in %s\n" % path.encode(), done
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert not any(PASSWORD.encode() in words for words in seen.text)
    eventually(lambda: w.run("keep", code=None) and "resume taken-1: goes on as taken-2" in
               "\n".join(log_of(w)), "the run is resumed")
    assert w.run("attach", "taken-2").stdout.endswith(b"went on from forty-two\n")
    w.run("down", "--all", "--force")
    # A launch without the variable finds it as well, also for the job.
    done = w.rent("--provider", "vast", *GPU, *LOGIN, "--secret", "GHCR_TOKEN", "--", "bash", "-c",
                  "echo ${#GHCR_TOKEN}")
    assert done.stdout == b"%d\n" % len(PASSWORD), done
    done = w.json("login", "--secret", "GHCR_TOKEN", "--remove")
    assert (done["secret"], done["action"], done["places"]) == ("GHCR_TOKEN", "removed", [path])
    assert not os.path.exists(path)
    check_nowhere(w, PASSWORD)
    assert b"HINT: " in w.run("login", "--secret", "not-a-name", code=2).stderr
    w.run("login", "--secret", "A", "vast", code=2)


if __name__ == "__main__":
    run_tests(globals())

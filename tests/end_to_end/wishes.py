#!/usr/bin/env python3
"""What launch --down and --pull asked for is done although the gpuctl that was told is gone.

  wishes.py GPUCTL FAKE_JOB CLOUDSIM [TEST...]
"""
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess

from keep import end_job, JOB, log_of, take, VAST
from rent_world import eventually, run_tests
from runs import Terminal


def install(w):
    """Makes gpuctl believe that a scheduler of this computer calls gpuctl keep."""
    units = os.path.join(w.dir, "units", "systemd", "user")
    os.makedirs(units, exist_ok=True)
    w.env["XDG_CONFIG_HOME"] = os.path.join(w.dir, "units")
    with open(units + "/gpuctl-keep.timer", "w", encoding="utf-8") as file:
        file.write("[Timer]\nOnUnitActiveSec=300s\n")
    os.makedirs(w.env["GPUCTL_STATE_DIR"], exist_ok=True)
    open(os.path.join(w.env["GPUCTL_STATE_DIR"], "keep.installed"), "w", encoding="utf-8").close()


def wishes(w, name):
    return w.json("show", name)["wishes"]


def show(w, *flags, name="held", job=JOB, machine=None):
    """Starts a launch that shows its run, and waits until the job runs."""
    child = w.start("launch", "-y", "--no-workdir", "--name", name, *flags, *(machine or VAST), "--",
                    "bash", "-c", job)
    runs(w, name, child)
    return child


def runs(w, name, child=None):
    def does():
        assert child is None or child.poll() is None, child.communicate()
        done = w.run("ps", "--json", code=None)
        return b'"status":"running"' in done.stdout and name.encode() in done.stdout
    eventually(does, "%s runs" % name)


def die(child, how=signal.SIGKILL):
    child.send_signal(how)
    return child.communicate(timeout=300)[1]


def saved(w, name="held-1"):
    return glob.glob(os.path.join(w.work, name, "**", "weights"), recursive=True)


def over(w, name):
    w.run("wait", name, code=None)


def releases(w):
    return len([r for r in w.sim.requests("vast") if r["route"] == "terminate"])


def test_a_killed_launch_is_ended_by_keep(w):
    for how in (signal.SIGHUP, signal.SIGKILL):
        child = show(w, "--down", name="held")
        name = w.json("ps")["runs"][0]["name"]
        (wish,) = wishes(w, name)
        assert wish == {"to": os.path.join(w.work, name), "pull": False, "keep": 0, "down": True,
                        "by": "gpuctl"}, wish
        assert b"down by" not in w.run("ps").stdout
        # It looks after that itself while it lives.
        w.run("keep")
        assert len(w.alive()) == 1 and not saved(w, name)
        said = die(child, how)
        if how == signal.SIGHUP:
            assert b"nobody brings its results home now" in said, said
        assert wishes(w, name)[0]["by"] is None
        assert b"running, down by nobody" in w.run("ps").stdout, w.run("ps")
        w.run("keep")
        assert len(w.alive()) == 1, "its job runs"
        end_job(w)
        over(w, name)
        dry = w.run("keep", "--dry-run").stderr
        assert ("would bring results to %s" % os.path.join(w.work, name)).encode() in dry, dry
        assert len(w.alive()) == 1 and not saved(w, name)
        w.run("keep")
        assert w.alive() == [] and len(saved(w, name)) == 1, log_of(w)
        assert wishes(w, name) == []
        line, = [line for line in log_of(w) if line.startswith("wish " + name)]
        assert line.endswith("was given back"), line
        w.run("keep")
        assert len(log_of(w)) == len([l for l in log_of(w)]) and log_of(w)[-1] == line, log_of(w)


def test_a_closed_terminal_says_who_does_it(w):
    install(w)
    terminal = Terminal(w, "launch", "-y", "--no-workdir", "--name", "held", "--down", *VAST, "--",
                        "bash", "-c", JOB)
    runs(w, "held")
    assert b"needs this gpuctl to live" not in terminal.text, terminal.text
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)
    assert wishes(w, "held-1")[0]["by"] == "keep"
    assert b"running, down by keep" in w.run("ps").stdout
    shown = w.run("show", "held-1").stdout
    assert b"then its machine is given back; gpuctl keep does that" in shown, shown
    end_job(w)
    over(w, "held-1")
    w.run("keep")
    assert w.alive() == [] and len(saved(w)) == 1, log_of(w)


def test_the_plan_says_what_a_closed_terminal_means(w):
    def plan():
        done = w.run("launch", "--json", "--no-workdir", "--dry-run", "--down", *VAST, "--", "true")
        return json.loads(done.stdout)["plan"]
    assert plan()["needs_this_gpuctl"] == ["--down"]
    done = w.run("launch", "--no-workdir", "--dry-run", "--down", *VAST, "--", "true")
    text = b" ".join(done.stdout.split())
    assert b"gpuctl keep --install does it also then" in text, done
    done = w.rent("--down", *VAST, "--", "true")
    assert done.stderr.startswith(b"gpuctl: --down needs this gpuctl to live"), done
    install(w)
    assert plan()["needs_this_gpuctl"] == []
    done = w.rent("--down", *VAST, "--", "true")
    assert b"needs this gpuctl to live" not in done.stderr, done


def test_detached_runs_are_ended_too(w):
    refused = w.rent("-d", "--down", *VAST, "--", "true", code=2)
    assert b"HINT: gpuctl keep --install" in refused.stderr and w.creates() == [], refused
    install(w)
    said = w.rent("-d", "--down", "--name", "held", *VAST, "--", "bash", "-c", JOB).stderr
    assert b"at its end gpuctl keep brings its results to" in said, said
    end_job(w)
    over(w, "held-1")
    assert len(w.alive()) == 1
    w.run("keep")
    assert w.alive() == [] and len(saved(w)) == 1 and wishes(w, "held-1") == [], log_of(w)


def test_attach_takes_over(w):
    die(show(w, "--down", "--pull=2"))
    (wish,) = wishes(w, "held-1")
    assert wish["pull"] and wish["keep"] == 2 and wish["down"], wish
    other = os.path.join(w.dir, "elsewhere")
    os.mkdir(other)
    child = subprocess.Popen([w.gpuctl, "attach", "held-1"], cwd=other, env=w.env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
    eventually(lambda: saved(w), "its checkpoint comes to where it was asked for")
    # The first gpuctl may have brought that checkpoint already.
    eventually(lambda: wishes(w, "held-1")[0]["by"] == "gpuctl", "attach does what was asked for")
    w.run("keep", "--forget", "held-1", code=1)
    end_job(w)
    err = child.communicate(timeout=300)[1]
    assert child.returncode == 0 and b"as was asked before: results to" in err, err
    assert w.alive() == [] and wishes(w, "held-1") == [] and os.listdir(other) == [], err


def test_what_its_user_ends_or_forgets_is_nobodys(w):
    die(show(w, "--down"))
    w.run("down", "held-1", "--force")
    assert w.alive() == [] and wishes(w, "held-1") == []
    w.run("keep", code=None)
    assert not saved(w), "it was given up"
    die(show(w, "--down", name="kept"))
    dropped = w.json("keep", "--forget", "kept-1")
    assert dropped["name"] == "kept-1" and dropped["forgotten"] == 1, dropped
    w.run("keep", "--forget", "kept-1", code=1)
    end_job(w)
    over(w, "kept-1")
    w.run("keep")
    assert len(w.alive()) == 1 and not saved(w, "kept-1"), log_of(w)
    assert glob.glob(os.path.join(w.env["GPUCTL_STATE_DIR"], "locks", "wish-*")) == []


def test_results_go_nowhere_else(w):
    """The directory was on a disk that is not there: nothing is lost, and the machine waits."""
    die(show(w, "--down"))
    end_job(w)
    over(w, "held-1")
    os.rename(w.work, w.work + ".gone")
    here, w.work = w.work, w.dir
    w.run("keep", code=1)
    assert len(w.alive()) == 1 and not os.path.exists(here), log_of(w)
    assert any("there is no directory " + here in line for line in log_of(w)), log_of(w)
    os.rename(here + ".gone", here)
    w.work = here
    w.run("keep")
    assert w.alive() == [] and len(saved(w)) == 1, log_of(w)


def test_a_killed_keep_loses_nothing_and_does_nothing_twice(w):
    die(show(w, "--down", "--pull", job=JOB.replace(
        "echo forty-two > weights", "head -c 3000000 /dev/urandom > weights")))
    end_job(w)
    over(w, "held-1")
    home = os.path.join(w.work, "held-1")
    # Each time a little later: before the pull, in it, before the release, in it.
    hold = None
    for moment in ("begun", "bringing", "releasing"):
        if moment == "releasing":
            hold = w.sim.hold(service="vast", route="terminate", nth_request=1, phase="before")
        child = w.start("keep")
        if moment == "bringing":
            eventually(lambda: os.path.exists(home), "something comes")
        elif moment == "releasing":
            w.sim.wait_hold(hold)
            assert len(saved(w)) == 1, "results come first"
        for pid in w.processes():
            with contextlib.suppress(OSError):
                with open("/proc/%d/cmdline" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                if words[1:2] == [b"keep"]:
                    os.kill(pid, signal.SIGKILL)
        child.communicate(timeout=300)
    w.sim.release(hold, drop=True)
    assert len(w.alive()) == 1 and len(wishes(w, "held-1")) == 1
    w.run("keep")
    assert w.alive() == [] and wishes(w, "held-1") == [], log_of(w)
    assert len(saved(w)) == 1 and os.path.getsize(saved(w)[0]) == 3000000
    w.run("verify", "held-1")


def test_two_keeps_do_it_once(w):
    die(show(w, "--down"))
    end_job(w)
    over(w, "held-1")
    wish_id = wish_ids(w)[0]
    both = [w.start("keep", "--wish", wish_id) for _ in range(2)]
    for child in both:
        child.communicate(timeout=300)
        assert child.returncode == 0
    w.run("keep")
    assert w.alive() == [] and releases(w) == 1, w.sim.requests("vast")


def wish_ids(w):
    return [os.path.basename(path)[len("wish-"):]
            for path in glob.glob(os.path.join(w.env["GPUCTL_STATE_DIR"], "locks", "wish-*"))]


def test_a_run_that_goes_on_takes_it_along(w):
    machine = ["--spot", "--cost", "5", "--retry-max", "2", "--retry-on", "preempted", *VAST]
    die(show(w, "--down", "--pull", machine=machine))
    w.run("keep")
    assert saved(w), "checkpoints come home meanwhile"
    take(w)
    w.run("keep", code=None)
    assert len(wishes(w, "held-1")) == 1, "it goes on first"
    w.advance(300)
    w.run("keep", code=None)
    assert wishes(w, "held-1") == [], log_of(w)
    (wish,) = wishes(w, "held-2")
    assert wish["down"] and wish["to"] == os.path.join(w.work, "held-2"), wish
    over(w, "held-2")
    w.run("keep")
    assert w.alive() == [] and wishes(w, "held-2") == [], log_of(w)


def test_checkpoints_of_a_closed_attach_come_home(w):
    w.rent("-d", "--name", "held", *VAST, "--", "bash", "-c", JOB)
    child = w.start("attach", "held-1", "--pull=1")
    eventually(lambda: saved(w), "the first checkpoint")
    die(child)
    shutil.rmtree(os.path.join(w.work, "held-1"))
    w.run("keep")
    assert len(saved(w)) == 1, log_of(w)
    end_job(w)
    over(w, "held-1")
    w.run("keep")
    assert wishes(w, "held-1") == [] and len(w.alive()) == 1, "nobody asked for its end"


def test_a_launch_that_dies_before_its_job_leaves_no_machine(w):
    hold = w.sim.hold(service="vast", route="describe", nth_request=1, phase="before")
    child = w.start("launch", "-y", "--no-workdir", "--down", "--name", "held", *VAST, "--", "true")
    w.sim.wait_hold(hold)
    die(child)
    w.sim.release(hold, drop=True)
    w.run("keep", code=None)
    assert w.alive() == [] and wish_ids(w) == [], log_of(w)


if __name__ == "__main__":
    run_tests(globals())

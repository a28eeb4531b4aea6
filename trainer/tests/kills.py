"""Kills runs of the trainer with SIGKILL, and lets them go on, until they are through."""

import os
import random
import signal
import time

# Where a kill meets a run: while it begins or resumes, at work, in the writing of a checkpoint, in
# an evaluation.
MOMENTS = ("start", "work", "writing", "evaluation")


class Watch:
    """What a run that goes on has done by now."""

    def __init__(self, process, checkpoints, metrics):
        self.process, self.checkpoints, self.metrics = process, checkpoints, metrics
        self.known = os.path.getsize(metrics) if os.path.exists(metrics) else 0

    def new_lines(self):
        if not os.path.exists(self.metrics):
            return ""
        with open(self.metrics, encoding="utf-8") as file:
            file.seek(self.known)
            return file.read()

    def writes(self):
        return os.path.isdir(self.checkpoints) and any(
            name.startswith(".tmp-step-0") for name in os.listdir(self.checkpoints))

    def evaluates(self, every):
        lines = self.new_lines().splitlines()
        return bool(lines) and '"type":"step"' in lines[-1] and any(
            f'"step":{step},' in lines[-1] for step in range(0, 10000, every))

    def pause(self, seconds, most_steps):
        """Waits that long, or until the run has done more steps: it may meet a machine that is less
        busy than the one of Timing, and would be through."""
        until, begun = time.monotonic() + seconds, self.steps()
        self.wait(lambda: time.monotonic() >= until or self.steps() > begun + most_steps)

    def steps(self):
        return self.new_lines().count('"type":"step"')

    def wait(self, condition):
        """Waits until something is so, or the run is through."""
        while self.process.poll() is None and not condition():
            time.sleep(0.001)


def wait_for(moment, watch, chooser, timing):
    if moment == "start":
        watch.pause(chooser.uniform(0, 0.9 * timing.begins), 0)
        return
    if moment == "work":
        watch.wait(watch.new_lines)
        watch.pause(chooser.uniform(0, 2 * timing.step), 3)
    elif moment == "writing":
        watch.wait(watch.writes)
        time.sleep(chooser.choice((0, chooser.uniform(0, 0.01))))
    else:
        watch.wait(lambda: watch.evaluates(timing.eval_every))
        watch.pause(chooser.uniform(0, timing.step), 2)


def newest_step(checkpoints):
    """Returns the step of the newest checkpoint, or 0."""
    names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
    return max([0] + [int(name[5:]) for name in names if name.startswith("step-")])


class Timing:
    """How long a run takes: seconds until its first step, and of a step."""

    def __init__(self, test, words, settings):
        self.steps, self.eval_every = settings["train.steps"], settings["train.eval_every"]
        metrics = words[words.index("--checkpoint-dir") + 1] + ".timing"
        began = time.monotonic()
        process = test.start(*without_checkpoints(words), GPUCTL_METRICS=metrics)
        watch = Watch(process, "", metrics)
        watch.wait(watch.new_lines)
        first, steps = time.monotonic(), max(1, self.steps // 6)
        watch.wait(lambda: watch.steps() > steps)
        self.begins, self.step = first - began, (time.monotonic() - first) / steps
        process.kill()
        process.communicate()


def without_checkpoints(words):
    place = words.index("--checkpoint-dir")
    return words[:place] + words[place + 2:]


def kill_and_resume(test, what, words, metrics, kills, timing, seed=1):
    """Lets a run go on until it is through, after `kills` kills. Returns whether it got there."""
    checkpoints = words[words.index("--checkpoint-dir") + 1]
    chooser = random.Random(f"{what} {seed}")
    moments = MOMENTS if timing.eval_every else MOMENTS[:3]
    met = dict.fromkeys(moments, 0)
    while True:
        killed = sum(met.values())
        process = test.start(*words, "--resume", "auto", GPUCTL_METRICS=metrics)
        if killed < kills:
            # Near its end, before it works: there must be something left for the other kills.
            ends = newest_step(checkpoints) > timing.steps - 5
            moment = "start" if ends else moments[killed % len(moments)]
            watch = Watch(process, checkpoints, metrics)
            wait_for(moment, watch, chooser, timing)
            process.kill()
            met[moment] += 1
        _, error = process.communicate()
        if process.returncode == 0:
            break
        if process.returncode != -signal.SIGKILL:
            test.check(f"{what}: a killed run goes on", False, process.returncode, error)
            return False
    test.check(f"{what}: a run goes on after {killed} kills: {met}", killed == kills, kills)
    return killed == kills

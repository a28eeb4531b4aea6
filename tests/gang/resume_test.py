#!/usr/bin/env python3
"""Runs on several machines that go on: resume, and launch --like.

  resume_test.py GPUCTL [TEST...|--long]      --long: those that take half a minute and more

Each machine is a set of namespaces with its own sshd (machines.py). It needs root.
"""
import json
import os
import re
import sys

import machines
from laptop import Laptop, Skipped, run_tests, wait_for_end
from machines import Machines, wait_until
from runs import SAVE
from runs_test import losses

# Says with what it goes on, and what that says; as its argument says, it saves and fails.
JOB = SAVE + """
    where=${GPUCTL_RESUME_FROM:-nothing}
    echo "node $GPUCTL_NODE_RANK of $GPUCTL_NODES attempt $GPUCTL_ATTEMPT from ${where#$PWD/}"
    if [ -d "$where" ]; then echo "weights $(cat $where/weights)"; fi
    """


def told(laptop, run, node):
    return laptop.ask("logs", run, "--node", str(node)).stdout.splitlines()


def test_what_one_machine_wrote_goes_to_all():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("job.sh", JOB + """
            [ -d "$where" ] && [ $GPUCTL_ATTEMPT = 1 ] && exit 9
            [ -d "$where" ] && exit 0
            [ $GPUCTL_NODE_RANK = 0 ] && save 2
            sleep 1; exit 3
            """)
        laptop.launch("--name", "first", "--retry-max", "1", "--retry-on", "failed", "--retry-backoff", "1s",
                      "--grace", "2s", "--", "bash", "job.sh", code=3)
        # Each retry of that run began anew or from its own checkpoint; it is over now.
        laptop.ask("resume", "first-1", code=1)  # nothing is at home
        laptop.ask("pull", "first-1")
        done = laptop.ask("resume", "first-1.node1", code=None)
        assert done.returncode == 0, done.stderr
        run = json.loads(laptop.ask("show", "first-2", "--json").stdout)
        assert run["resumed_from"] == "first-1" or run["resumed_from"], run
        for node in range(2):
            lines = told(laptop, "first-2", node)
            # The first attempt ends where one has failed. The second one, too, begins with what the run
            # brought: nothing newer is there.
            assert lines[-2:] == ["node %d of 2 attempt 2 from .gpuctl-resume" % node, "weights 2"], lines
        wait_for_end(them)
        laptop.close()


def test_each_machine_gets_its_own():
    with Machines(2) as them:
        laptop = Laptop(them)
        # Both have step 2, with other content; rank 0 alone has step 3.
        laptop.write("job.sh", JOB.replace("echo $1 >", "echo $((GPUCTL_NODE_RANK + 4)) >") + """
            [ -d "$where" ] && exit 0
            save 2
            [ $GPUCTL_NODE_RANK = 0 ] && save 3
            sleep 1; exit 3
            """)
        laptop.launch("--name", "own", "--grace", "2s", "--", "bash", "job.sh", code=3)
        laptop.ask("pull", "own-1")
        done = laptop.ask("resume", "own-1", code=1)
        assert "not every machine of the run has one of that step at home" in done.stderr, done.stderr
        laptop.ask("pull", "own-1", "--node", "0", "--checkpoint", "2")
        for name in ("own-1/step-2", "own-1/step-3", "own-1.node1/step-2"):
            assert os.path.isdir(os.path.join(laptop.work, name)), os.listdir(laptop.work)
        done = laptop.ask("resume", "own-1")
        assert "not every machine of the run has one of that step at home" in done.stderr, done.stderr
        assert [told(laptop, "own-2", node)[1] for node in range(2)] == ["weights 4", "weights 5"]
        wait_for_end(them)
        laptop.close()


def test_on_another_number_of_machines():
    with Machines(3) as them:
        laptop = Laptop(them)
        laptop.write("job.sh", JOB + """
            [ -d "$where" ] && exit 0
            save 2
            sleep 1; exit 3
            """)
        first = ",".join(them.hosts.split(",")[:2])
        key = ["-i", them.dir + "/key"]
        laptop.ask("launch", "--host", first, *key, "--name", "more", "--grace", "2s", "--", "bash", "job.sh", code=3)
        laptop.ask("pull", "more-1")
        laptop.ask("resume", "more-1", "--host", them.hosts, *key)
        assert [told(laptop, "more-2", node)[0] for node in range(3)] == [
            "node %d of 3 attempt 1 from .gpuctl-resume" % node for node in range(3)]
        laptop.ask("resume", "more-1", "--host", them.hosts.split(",")[2], *key)
        (line, weights) = laptop.ask("logs", "more-3").stdout.splitlines()
        assert (line, weights) == ("node 0 of 1 attempt 1 from .gpuctl-resume", "weights 2"), line
        # The same once more, from the beginning, where it was.
        laptop.ask("launch", "--like", "more-1", code=3)
        assert told(laptop, "more-4", 1) == ["node 1 of 2 attempt 1 from nothing"]
        wait_for_end(them)
        laptop.close()


def test_the_built_in_trainer_goes_on():
    if not os.path.exists(os.path.join(os.path.dirname(Laptop.gpuctl), "gpuctl-trainer")):
        raise Skipped("no gpuctl-trainer beside gpuctl")
    run = """
        name: {name}
        workdir: .
        trainer:
          build: {build}
          model: {{layers: 2, d_model: 64, heads: 4, kv_heads: 2, ffn: 128, context: 64}}
          data: {{paths: [texts], held_out_fraction: 0.1}}
          optimizer: {{lr: 1e-3}}
          train: {{steps: 200, batch: 8, micro_batch: 1, seed: 1, log_every: 1, device: cpu, threads: 1}}
          checkpoint: {{every: 50, keep_last: 2}}
        """
    with Machines(2) as them:
        laptop = Laptop(them)
        os.mkdir(os.path.join(laptop.work, "texts"))
        laptop.write("texts/text.md", "".join("%d times %d is %d.\n" % (a, b, a * b)
                                              for a in range(60) for b in range(60)))
        laptop.write("alone.yaml", run.format(name="alone", build="auto"))
        laptop.run(laptop.command("launch", "--host", "local", "alone.yaml"))
        alone = losses(laptop, "alone-1")
        laptop.write("all.yaml", run.format(name="all", build="kit"))
        live = laptop.start("all.yaml")
        wait_until(lambda: "step-00000050" in laptop.ask("logs", "all-1", code=None).stdout, "a checkpoint", 200)
        laptop.ask("stop", "all-1")
        live.communicate()
        laptop.ask("pull", "all-1")
        laptop.ask("resume", "all-1")
        text = laptop.ask("logs", "all-2").stdout
        (start,) = (int(found) for found in re.findall(r"^resume .* at step (\d+)", text, re.M))
        own = losses(laptop, "all-2")
        assert start >= 50 and set(own) == set(range(start + 1, 201)), (start, sorted(own)[:3])
        off = max(abs(own[step] - alone[step]) / alone[step] for step in range(start + 1, start + 11))
        assert off < 1e-2, off
        print("  went on from step %d; losses within %.1e of one process" % (start, off))
        wait_for_end(them)
        laptop.close()


LONG = (test_the_built_in_trainer_goes_on, test_on_another_number_of_machines)


def main():
    machines.enter()
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    argv = [arg for arg in sys.argv[1:] if arg != "--long"]
    if "--long" in sys.argv:
        tests = {test.__name__: test for test in LONG}
    sys.exit(run_tests(argv, tests))


if __name__ == "__main__":
    main()

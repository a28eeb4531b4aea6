#!/usr/bin/env python3
"""Runs on several machines: joining, the end of all, and whatever breaks in between.

  runs_test.py GPUCTL [TEST...|--long]

Each machine is a set of namespaces with its own sshd (machines.py). It needs root.
"""
import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time

import machines
from laptop import (SLEEPER, Laptop, Skipped, last, nothing_runs, run_tests, types, variables, wait_for_end,
                    wait_for_jobs)
from machines import Machines, wait_until
from runs import SAVE

JOIN_S = 6

VARIABLES = """
for name in GPUCTL_NODES GPUCTL_NODE_RANK RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT \
    GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME; do eval "echo $name=\\$$name"; done
"""


def test_all_begin_together(size=2):
    with Machines(size) as them:
        laptop = Laptop(them)
        laptop.write("show.sh", VARIABLES)
        laptop.launch("--name", "many", "--", "sh", "show.sh")
        said = [variables(laptop.ask("logs", "many-1", "--node", str(rank)).stdout) for rank in range(size)]
        for rank, one in enumerate(said):
            assert one["GPUCTL_NODES"] == one["WORLD_SIZE"] == str(size), one
            assert one["GPUCTL_NODE_RANK"] == one["RANK"] == str(rank) and one["LOCAL_RANK"] == "0", one
            assert one["MASTER_ADDR"] == "10.88.0.11", one
            assert one["MASTER_PORT"] == said[0]["MASTER_PORT"] and int(one["MASTER_PORT"]) > 0, one
            assert one["GLOO_SOCKET_IFNAME"] == one["NCCL_SOCKET_IFNAME"] == "eth0", one
        wait_for_end(them)
        # One line, and its members where they are asked for.
        runs = json.loads(laptop.ask("ps", "-a", "--json").stdout)["runs"]
        assert [run["name"] for run in runs] == ["many-1"], runs
        shown = json.loads(laptop.ask("show", "many-1", "--json").stdout)
        assert [member["rank"] for member in shown["members"]] == list(range(1, size)), shown["members"]
        assert all(member["exit_code"] == 0 for member in shown["members"]), shown["members"]
        laptop.ask("rm", "--force", "many-1")
        assert all(not machine.jobs() for machine in them.all)
        laptop.close()


def test_four_machines():
    test_all_begin_together(4)


def test_the_first_error_is_the_runs():
    with Machines(2) as them:
        laptop = Laptop(them)
        # The others save at SIGTERM and end with 0, which is no success of the run.
        laptop.write("job.sh", """
            if [ "$RANK" = 1 ]; then sleep 2; echo the reason; exit 7; fi
            trap 'echo saved; exit 0' TERM; while :; do sleep 0.1; done
            """)
        done = laptop.launch("--name", "bad", "--grace", "5s", "--", "bash", "job.sh", code=7)
        assert "saved" in done.stdout, done.stdout
        assert "ended with exit code 7" in done.stderr and "  the reason" in done.stderr, done.stderr
        wait_for_end(them)
        run = json.loads(laptop.ask("show", "bad-1", "--json").stdout)
        assert run["status"] == "failed" and run["exit_code"] == 7, run
        laptop.close()


def test_a_stop_stops_all():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.launch("--name", "stopped", "-d", *SLEEPER)
        wait_for_jobs(them)
        laptop.ask("stop", "stopped-1")
        wait_for_end(them)
        assert [last(machine)["reason"] for machine in them.all] == ["user", "user"]
        laptop.close()


WRITER = SAVE + """
    save 7
    mkdir -p out
    echo "result of $RANK" > out/result-$RANK.txt
    """


def hidden(laptop):
    """Returns how many members' rows the list of runs has."""
    with contextlib.closing(sqlite3.connect(laptop.dir + "/state/state.db")) as database:
        return database.execute("SELECT COUNT(*) FROM runs WHERE leader <> ''").fetchone()[0]


def results(laptop):
    """Returns the files that came home, by their places below the work directory."""
    return sorted(os.path.relpath(os.path.join(folder, name), laptop.work)
                  for folder, _, names in os.walk(laptop.work) for name in names
                  if name.startswith("result-"))


def both(name):
    return ["%s.node1/out/result-1.txt" % name, "%s/out/result-0.txt" % name]


def test_results_of_all_come_home_and_go():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("job.sh", WRITER)
        writes = ["--artifacts", "out/*", "--", "bash", "job.sh"]
        laptop.launch("--name", "pulled", "--pull", *writes)
        for home in ("pulled-1", "pulled-1.node1"):
            assert os.path.exists(os.path.join(laptop.work, home, "step-7", "weights")), home
        laptop.ask("pull", "pulled-1")
        assert results(laptop) == both("pulled-1"), results(laptop)
        laptop.launch("--name", "downed", "--down", *writes)
        assert results(laptop) == both("downed-1") + both("pulled-1"), results(laptop)

        # keep does it where nobody shows the run, and knows the members' ends.
        laptop.launch("--name", "kept", "-d", "--pull", *writes)
        wait_for_end(them)
        laptop.ask("keep")
        assert results(laptop) == both("downed-1") + both("kept-1") + both("pulled-1"), results(laptop)

        def known():
            # A pass asks for a few seconds, which may be too few here.
            laptop.ask("keep")
            shown = json.loads(laptop.ask("show", "kept-1", "--json").stdout)
            return [member["exit_code"] for member in shown["members"]] == [0]
        wait_until(known, "keep knows the member's end")

        # One machine's alone, and what each brought.
        shutil.rmtree(os.path.join(laptop.work, "kept-1"))
        shutil.rmtree(os.path.join(laptop.work, "kept-1.node1"))
        laptop.ask("pull", "kept-1", "--node", "1", "--to", "one/")
        assert results(laptop) == both("downed-1") + ["one/out/result-1.txt"] + both("pulled-1")
        said = json.loads(laptop.ask("pull", "kept-1", "--json").stdout)
        assert [one["path"] for one in said["files"]] == ["work/out/result-0.txt"], said
        assert [[one["path"] for one in member["files"]] for member in said["members"]] == [
            ["work/out/result-1.txt"]], said
        laptop.ask("pull", "kept-1", "--node", "2", code=2)

        # prune knows the members' jobs, and rm takes their rows.
        done = laptop.ask("prune", "-y")
        assert "another list" not in done.stderr, done.stderr
        assert not any(machine.jobs() for machine in them.all), done
        assert hidden(laptop) == 3
        done = laptop.ask("rm", "--forget", "kept-1.node1", code=2)
        assert "kept-1.node1 is a part of kept-1" in done.stderr, done.stderr
        assert hidden(laptop) == 3
        them.all[1].link("down")
        done = laptop.ask("rm", "--forget", "kept-1", code=None)
        assert done.returncode != 0 and "kept-1.node1 stays" in done.stderr, done.stderr
        assert "a part of it stays in the list" in done.stderr, done.stderr
        them.all[1].link("up")
        laptop.ask("rm", "--forget", "kept-1", "downed-1", "pulled-1")
        assert hidden(laptop) == 0
        assert json.loads(laptop.ask("ps", "-a", "--json").stdout)["runs"] == []
        laptop.close()


def test_down_ends_the_others_of_one_that_does_not_answer():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.launch("--name", "both", "-d", *SLEEPER)
        wait_for_jobs(them)
        laptop.ask("down", "both-1", "-y")
        wait_for_end(them)
        assert [last(machine)["reason"] for machine in them.all] == ["user", "user"]
        shown = json.loads(laptop.ask("show", "both-1", "--json").stdout)
        assert shown["members"][0]["exit_code"] is not None, shown["members"]
        laptop.ask("rm", "--force", "both-1")
        for silent in (1, 0):
            laptop.launch("--name", "silent", "-d", *SLEEPER)
            wait_for_jobs(them)
            them.all[silent].link("down")
            name = "silent-%d" % (2 - silent)
            done = laptop.ask("down", name, "-y", code=None)
            assert done.returncode not in (0, 130), done
            assert them.all[silent].host in done.stderr, done.stderr
            assert last(them.all[1 - silent])["event"] == "exited", last(them.all[1 - silent])
            assert silent == 0 or name + ".node1 on" in done.stderr, done.stderr
            them.all[silent].link("up")
            wait_for_end(them)
            laptop.ask("ps", "-u")
            laptop.ask("rm", "--force", name)
        laptop.close()


def test_a_dead_server_is_not_noticed():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.launch("--name", "steady", "-d", *SLEEPER)
        wait_for_jobs(them)
        for machine in them.all:
            assert machine.kill("gpuctl-agent server")
            assert machine.kill("gpuctl-agent guard")
        end = time.monotonic() + 14  # longer than a silence that ends it
        while time.monotonic() < end:
            assert all(machine.processes("the-job") for machine in them.all)
            time.sleep(0.2)
        laptop.ask("stop", "steady-1")
        wait_for_end(them)
        laptop.close()


def test_a_dead_rank_keeper_or_machine_ends_all():
    with Machines(2) as them:
        laptop = Laptop(them)
        for number, (name, harm) in enumerate((
                ("rank", lambda machine: machine.kill("the-job")),
                ("shim", lambda machine: machine.kill("gpuctl-shim ")),
                ("keeper", lambda machine: machine.kill("gpuctl-agent gang")),
                ("link", lambda machine: machine.link("down")))):
            laptop.launch("--name", name, "-d", *SLEEPER)
            wait_for_jobs(them)
            assert harm(them.all[1]) != 0
            began = time.monotonic()
            wait_for_end(them, seconds=240)
            took = time.monotonic() - began
            print("  %s: all ended after %.1f s" % (name, took))
            if name == "link":
                assert took < 10 + 2 + 8, took  # silence, grace, and what a busy machine needs
                them.all[1].link("up")
            done = laptop.ask("attach", name + "-1", code=None)
            assert done.returncode not in (0, 130), done
            assert "node 1" in done.stderr, done.stderr
            assert number >= 0
        laptop.close()


PRINTER = """
    exec 3>>printed
    i=0
    while :; do
      i=$((i + 1)); echo "line $i"; echo $i >&3
      [ $((i % 20)) = 0 ] && sleep 0.02
    done
    """


def printed(machine):
    """Returns how many lines the machine's only job says that it has printed."""
    folder = os.path.join(machine.home, ".gpuctl", "jobs")
    count = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(folder, name, "work", "printed")) as file:
                count = max([count] + [int(line) for line in file if line.endswith("\n")])
    return count


def check_lines(laptop, them, name):
    """Every line that a member printed is in `logs --node`, once and in its order."""
    for rank, machine in enumerate(them.all):
        lines = laptop.ask("logs", name, "--node", str(rank)).stdout.splitlines()
        count = printed(machine)
        assert count > 100, count
        # The last one may have been printed and not counted.
        assert lines == ["line %d" % (i + 1) for i in range(len(lines))], (rank, len(lines))
        assert count <= len(lines) <= count + 1, (rank, count, len(lines))
        print("  %s, node %d: %d lines printed, 0 lost" % (name, rank, count))


def test_no_line_is_lost():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("print.sh", PRINTER)
        argv = ["--grace", "2s", "--", "bash", "-c", "exec -a the-job bash print.sh"]

        # Agents, bridges and laptops die again and again, and all goes on.
        process = laptop.start("--name", "agents", *argv)
        wait_for_jobs(them)
        for words in ("gpuctl-agent server", "gpuctl-agent bridge", "gpuctl-agent guard"):
            before = [printed(machine) for machine in them.all]
            for machine in them.all:
                machine.kill(words)
            wait_until(lambda b=before: all(printed(machine) > count + 50 for machine, count in zip(them.all, b)),
                       "the jobs go on without " + words)
            process.kill()
            process.communicate()
            process = subprocess.Popen(laptop.command("attach", "agents-1"), cwd=laptop.work, env=laptop.env,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        laptop.ask("stop", "agents-1")
        process.communicate(timeout=300)
        wait_for_end(them)
        check_lines(laptop, them, "agents-1")
        laptop.ask("rm", "--force", "agents-1")

        # A keeper's end is that of all, and nothing of what was printed before is lost.
        for rank in (1, 0):
            laptop.launch("--name", "keeper", "-d", *argv)
            wait_for_jobs(them)
            wait_until(lambda: all(printed(machine) > 200 for machine in them.all), "all print")
            assert them.all[rank].kill("gpuctl-agent gang")
            wait_for_end(them)
            name = "keeper-%d" % (2 - rank)
            assert laptop.ask("attach", name, code=None).returncode not in (0, 130)
            check_lines(laptop, them, name)
            laptop.ask("rm", "--force", name)
        laptop.close()


def started(machine):
    return any("started" in types(events) for events in machine.jobs().values())


def test_a_laptop_that_dies_at_any_step():
    """No run is started in part, and nothing is left behind, whenever gpuctl is killed."""
    halves = wholes = nones = 0
    with Machines(2, environment={"GPUCTL_GANG_JOIN_S": str(JOIN_S)}) as them:
        laptop = Laptop(them)
        laptop.launch("--name", "first", "--no-workdir", "--", "true")  # programs are there from now on
        wait_for_end(them)
        laptop.ask("rm", "--force", "first-1")
        for step in range(14):
            signal_number = signal.SIGKILL if step % 2 == 0 else signal.SIGINT
            process = laptop.start("--name", "step%d" % step, *SLEEPER)
            if step < 4:
                # As soon as the first machine holds a job.
                wait_until(lambda: them.all[0].jobs() or process.poll() is not None, "a job is held")
            else:
                time.sleep(0.05 * step)
            process.send_signal(signal_number)
            process.communicate()
            # Those that are held end by themselves; what has begun goes on everywhere.
            settled = lambda: all(  # noqa: E731
                events and (events[-1]["event"] in ("exited", "lost") or "started" in types(events))
                for machine in them.all for events in machine.jobs().values())
            wait_until(settled, "each job has begun or has ended")
            time.sleep(1.5)
            began = [started(machine) for machine in them.all]
            halves += any(began) and not all(began)
            wholes += all(began)
            nones += not any(began)
            for machine in them.all:
                machine.kill("the-job")
            wait_for_end(them)
            for machine in them.all:
                for name in machine.jobs():
                    shutil.rmtree(os.path.join(machine.home, ".gpuctl", "jobs", name))
    print("  %d whole, %d not started, %d in part" % (wholes, nones, halves))
    assert halves == 0 and nones > 0
    laptop.close()


def test_who_does_not_come_is_named():
    with Machines(2, environment={"GPUCTL_GANG_JOIN_S": str(JOIN_S)}) as them:
        # The machines reach the laptop and not each other.
        for machine in them.all:
            machines.run("bridge", "link", "set", "dev", machine.veth, "isolated", "on")
        laptop = Laptop(them)
        done = laptop.launch("--name", "apart", *SLEEPER, code=None)
        assert done.returncode != 0
        assert "node 1 (%s) did not come within %d s" % (them.all[1].host, JOIN_S) in done.stderr or \
            "did not come within" in done.stderr, done.stderr
        wait_for_end(them)
        assert not any(started(machine) for machine in them.all)
        laptop.close()


def test_an_address_that_swallows_packets():
    """Rank 0 has an address that the others cannot reach and that answers nothing."""
    with Machines(2) as them:
        them.all[0].ip("link", "add", "swallow", "type", "bridge")
        them.all[0].ip("address", "add", "10.77.0.1/24", "dev", "swallow")
        them.all[0].ip("link", "set", "swallow", "up")
        laptop = Laptop(them)
        laptop.launch("--name", "firewall", "--no-workdir", "--", "bash", "-c", "echo MASTER_ADDR=$MASTER_ADDR")
        assert variables(laptop.ask("logs", "firewall-1", "--node", "1").stdout)["MASTER_ADDR"] == "10.88.0.11"
        laptop.close()


def test_a_private_network_comes_before_a_public_one():
    """All machines have a public address, which is older; what torch sends takes the private one."""
    with Machines(2) as them:
        for machine in them.all:
            machine.ip("address", "flush", "dev", "eth0")
            for address in ("198.51.100.%d/24" % (10 + machine.number), machine.address + "/24"):
                machine.ip("address", "add", address, "dev", "eth0")
            machine.ip("route", "add", "default", "via", "10.88.0.1")
        laptop = Laptop(them)
        laptop.launch("--name", "private", "--no-workdir", "--", "bash", "-c", "echo MASTER_ADDR=$MASTER_ADDR")
        assert variables(laptop.ask("logs", "private-1", "--node", "1").stdout)["MASTER_ADDR"] == "10.88.0.11"
        laptop.close()


def test_two_gangs_at_once():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("show.sh", VARIABLES + "sleep 3\n")
        others = [laptop.start("--name", "twin%d" % number, "--", "sh", "show.sh") for number in range(2)]
        for other in others:
            _, error = other.communicate(timeout=300)
            assert other.returncode == 0, error.decode()
        ports = set()
        for number in range(2):
            said = [variables(laptop.ask("logs", "twin%d-1" % number, "--node", str(rank)).stdout)
                    for rank in range(2)]
            assert said[0]["MASTER_PORT"] == said[1]["MASTER_PORT"], said
            ports.add(said[0]["MASTER_PORT"])
        assert len(ports) == 2, ports
        wait_for_end(them)
        laptop.close()


def test_a_retry_is_everybodys():
    with Machines(2) as them:
        laptop = Laptop(them)
        # Rank 0 saves steps 1 and 2; rank 1 fails in the first attempt.
        laptop.write("job.sh", SAVE + """
            echo "attempt $GPUCTL_ATTEMPT from ${GPUCTL_RESUME_FROM##*/} port $MASTER_PORT"
            if [ "$GPUCTL_ATTEMPT" = 2 ]; then exit 0; fi
            if [ "$RANK" = 1 ]; then sleep 3; exit 9; fi
            for step in 1 2; do save $step; done
            sleep 600
            """)
        said = laptop.launch("--name", "again", "--retry-max", "1", "--retry-on", "failed", "--retry-backoff", "1s",
                             "--grace", "2s", "--", "bash", "job.sh").stderr
        assert "again-1: attempt 2 goes on from checkpoint step-2" in said, said
        first, second = (laptop.ask("logs", "again-1", "--node", str(rank)).stdout.splitlines()
                         for rank in range(2))
        assert [line.split(" port")[0] for line in first] == ["attempt 1 from ", "attempt 2 from step-2"], first
        assert [line.split()[1] for line in second] == ["1", "2"], second
        assert first[1].split()[-1] == second[1].split()[-1], (first, second)
        laptop.ask("pull", "again-1")
        home = [name for _, names, _ in os.walk(os.path.join(laptop.work, "again-1")) for name in names]
        assert "step-2" in home, home
        wait_for_end(them)
        laptop.close()


def test_a_retry_without_a_common_checkpoint_begins_anew_and_says_so():
    with Machines(2) as them:
        laptop = Laptop(them)
        # Each has a step that the other has not.
        laptop.write("job.sh", SAVE + """
            echo "attempt $GPUCTL_ATTEMPT from ${GPUCTL_RESUME_FROM##*/}"
            if [ "$GPUCTL_ATTEMPT" = 2 ]; then exit 0; fi
            save $((RANK + 1))
            if [ "$RANK" = 1 ]; then sleep 3; exit 9; fi
            sleep 600
            """)
        said = laptop.launch("--name", "anew", "--retry-max", "1", "--retry-on", "failed", "--retry-backoff", "1s",
                             "--grace", "2s", "--", "bash", "job.sh").stderr
        assert "anew-1: attempt 2 begins anew: no checkpoint is whole on all machines" in said, said
        for rank in range(2):
            lines = laptop.ask("logs", "anew-1", "--node", str(rank)).stdout.splitlines()
            assert lines == ["attempt 1 from ", "attempt 2 from "], lines
        wait_for_end(them)
        laptop.close()


def test_a_taken_port_is_tried_again_once():
    """Rank 0 finds MASTER_PORT taken, as by a program that took it after it was chosen."""
    script = """
        import os, socket, sys, time
        port = int(os.environ["MASTER_PORT"])
        taken = int(os.environ["GPUCTL_ATTEMPT"]) <= int(sys.argv[1])
        if os.environ["RANK"] == "0":
            first = socket.socket()
            if taken:
                first.bind((os.environ["MASTER_ADDR"], port))
                first.listen()
            try:
                second = socket.socket()
                second.bind((os.environ["MASTER_ADDR"], port))
            except OSError as error:
                sys.exit("port %d: %s" % (port, error.strerror))
        elif taken:
            time.sleep(600)
        print("port=%d" % port)
        """
    # The machines have a /root of their own, so that a Python below it is not there.
    python = shutil.which("python3", path=machines.PATH)
    if not python:
        raise Skipped("no python3 that the machines see")
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("job.py", script)
        laptop.launch("--name", "port", "--grace", "2s", "--", python, "job.py", "1")
        said = [laptop.ask("logs", "port-1", "--node", str(rank)).stdout for rank in range(2)]
        assert "Address already in use" in said[0], said
        assert variables(said[0])["port"] == variables(said[1])["port"], said
        assert ("port %s:" % variables(said[0])["port"]) not in said[0], said
        # Once: then it is an error like others.
        laptop.launch("--name", "port", "--grace", "2s", "--", python, "job.py", "2", code=1)
        said = laptop.ask("logs", "port-2").stdout
        assert said.count("Address already in use") == 2, said
        wait_for_end(them)
        laptop.close()


def test_processes_on_several_machines():
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("show.sh", "echo rank=$RANK local=$LOCAL_RANK of $LOCAL_WORLD_SIZE node=$GPUCTL_NODE_RANK "
                                "world=$WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT by $GLOO_SOCKET_IFNAME\n")
        laptop.write("run.yaml", "run: sh show.sh\nname: ranks\nprocesses: 2\nresources: {nodes: 2}\n")
        laptop.run([Laptop.gpuctl, "launch", "run.yaml", "--host", them.hosts, "-i", them.dir + "/key"])
        lines = set()
        for node in range(2):
            said = laptop.ask("logs", "ranks-1", "--node", str(node)).stdout
            lines.update("rank=" + line.split("rank=", 1)[1] for line in said.splitlines())
        meeting = {line.split(" at ")[1] for line in lines}
        assert len(meeting) == 1 and meeting.pop().startswith("10.88.0.11:"), lines
        assert {line.split(" at ")[0] for line in lines} == {
            "rank=%d local=%d of 2 node=%d world=4" % (2 * node + local, local, node)
            for node in range(2) for local in range(2)}, lines
        assert all(line.endswith(" by eth0") for line in lines), lines
        # The output of one process is found by its number among all.
        only = laptop.ask("logs", "ranks-1", "--node", "1", "--rank", "3").stdout
        assert only.startswith("rank=3 "), only
        wait_for_end(them)
        laptop.close()


SMI = """#!/bin/sh
# Stands in for nvidia-smi, which needs its time: lists GPUs as long as the agent reads, or once.
[ "$1" != -L ] || { for i in %s; do echo "GPU $i: NVIDIA H100 80GB HBM3 (UUID: GPU-0000-$i)"; done; exit; }
while :; do
  echo "index, name, uuid, memory.total [MiB], utilization.gpu [%%]"
  for i in %s; do sleep 0.7; echo "$i, NVIDIA H100 80GB HBM3, GPU-0000-$i, 81559, 0"; done
  sleep 1 || exit
done
"""


def test_a_process_for_each_gpu_of_several_machines():
    """Where one machine has fewer GPUs, the ranks would not add up: nothing is started."""
    for other, code in (("0", 2), ("0 1", 0)):
        with Machines(2, environment={"GPUCTL_NVIDIA_SMI": "/root/nvidia-smi"}) as them:
            for machine, gpus in zip(them.all, ("0 1", other)):
                with open(machine.home + "/nvidia-smi", "w") as file:
                    file.write(SMI % (gpus, gpus))
                    os.fchmod(file.fileno(), 0o755)
            laptop = Laptop(them)
            laptop.write("run.yaml", "run: echo world=$WORLD_SIZE rank=$RANK\nname: each\nprocesses: gpus\n"
                                     "resources: {nodes: 2}\n")
            if code == 0:  # One machine alone, whose agent starts only now.
                laptop.run([Laptop.gpuctl, "launch", "--name", "alone", "--gpu", "H100:2", "--host", them.all[0].host, "-i",
                            them.dir + "/key", "--no-workdir", "--", "true"])
            done = laptop.run([Laptop.gpuctl, "launch", "run.yaml", "--host", them.hosts, "-i", them.dir + "/key"], code)
            said = {line for node in range(2) if code == 0 for line in re.findall(
                "world=.*", laptop.ask("logs", "each-1", "--node", str(node)).stdout)}
            if code == 0:
                assert said == {"world=4 rank=%d" % rank for rank in range(4)}, said
            else:
                assert "%s has 2 GPUs, %s has 1" % tuple(
                    machine.host + ":22" for machine in them.all) in done.stderr, done.stderr
                assert not any(machine.jobs() for machine in them.all)
                assert not json.loads(laptop.ask("ps", "-a", "--json").stdout)["runs"]
            laptop.close()


DDP = """
    import os
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    rows = torch.arange(64.0).reshape(16, 4) / 64
    mine = rows[dist.get_rank()::dist.get_world_size()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        loss = (model(mine) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
    total = sum(parameter.sum() for parameter in model.parameters()).item()
    print("RESULT=%.6f" % total)
    """


def python_with_torch():
    # The machines have a /root of their own, so that a Python below it is not there.
    python = shutil.which("python3", path=machines.PATH)
    if not python or subprocess.run([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                                    capture_output=True, check=False).returncode != 0:
        raise Skipped("%s has no torch with Gloo" % python)
    return python


def test_data_parallel_training_with_processes():
    python = python_with_torch()
    with Machines(2) as them:
        laptop = Laptop(them)
        laptop.write("train.py", DDP)
        laptop.write("train.yaml", "run: %s train.py\nname: ddp\nprocesses: 2\nresources: {nodes: 2}\n" % python)
        laptop.run([Laptop.gpuctl, "launch", "train.yaml", "--host", them.hosts, "-i", them.dir + "/key"])
        ends = re.findall(r"RESULT=(\S+)", "".join(
            laptop.ask("logs", "ddp-1", "--node", str(node)).stdout for node in range(2)))
        assert len(ends) == 4 and len(set(ends)) == 1, ends
        laptop.close()


def test_data_parallel_training():
    python = python_with_torch()
    results = {}
    for size in (2, 4):
        with Machines(size) as them:
            laptop = Laptop(them)
            laptop.write("train.py", DDP)
            laptop.launch("--name", "ddp", "--", python, "train.py")
            each = {variables(laptop.ask("logs", "ddp-1", "--node", str(rank)).stdout)["RESULT"]
                    for rank in range(size)}
            assert len(each) == 1, each
            results[size] = float(each.pop())
            laptop.close()
    # The same rows in the same steps, however they are divided.
    assert abs(results[2] - results[4]) < 1e-4, results


def losses(laptop, run):
    """Returns {step: loss} of a run of the trainer."""
    table = csv.DictReader(io.StringIO(laptop.ask("metrics", run, "--csv").stdout))
    return {int(row["step"]): float(row["loss"]) for row in table if row["loss"]}


def test_the_built_in_trainer():
    """On 2 and 4 machines it learns what one process learns, also when a rank is killed meanwhile."""
    if not os.path.exists(os.path.join(os.path.dirname(Laptop.gpuctl), "gpuctl-trainer")):
        raise Skipped("no gpuctl-trainer beside gpuctl")
    run = """
        name: {name}
        workdir: .
        trainer:
          build: kit
          model: {{layers: 2, d_model: 64, heads: 4, kv_heads: 2, ffn: 128, context: 64}}
          data: {{paths: [texts], held_out_fraction: 0.1}}
          optimizer: {{lr: 1e-3}}
          train: {{steps: 300, batch: 8, micro_batch: 1, seed: 1, log_every: 1, device: cpu, threads: 1}}
          checkpoint: {{every: 50, keep_last: 2}}
        retry: {{on: [failed], max: 1, backoff: 1s}}
        """
    alone = None
    for size in (2, 4):
        with Machines(size) as them:
            laptop = Laptop(them)
            os.mkdir(os.path.join(laptop.work, "texts"))
            laptop.write("texts/text.md", "".join("%d times %d is %d.\n" % (a, b, a * b)
                                                  for a in range(60) for b in range(60)))
            if alone is None:
                laptop.write("alone.yaml", run.replace("build: kit", "build: auto").format(name="alone"))
                laptop.run(laptop.command("launch", "--host", "local", "alone.yaml"))
                alone = losses(laptop, "alone-1")
                assert len(alone) == 300 and alone[300] < alone[1] - 1, alone
            laptop.write("all.yaml", run.format(name="all"))
            live = laptop.start("all.yaml")
            wait_until(lambda: "step-00000050" in laptop.ask("logs", "all-1", code=None).stdout,
                       "a checkpoint", 200)
            assert them.all[-1].kill("gpuctl-trainer") != 0
            out, err = (text.decode() for text in live.communicate())
            assert live.returncode == 0, (out[-3000:], err[-3000:])
            own = losses(laptop, "all-1")
            assert set(own) == set(alone)
            # The second attempt went on from a checkpoint of rank 0, of which the others have none.
            text = laptop.ask("logs", "all-1").stdout
            (start,) = (int(found) for found in re.findall(r"^resum.*step-(\d+)", text, re.M))
            assert start >= 50 and start % 50 == 0, text
            off = {step: abs(own[step] - alone[step]) / alone[step] for step in own}
            first, again = max(off[step] for step in range(1, 21)), off[start + 1]
            # Sums in another order differ in the last bits, and every step makes more of it.
            assert first < 1e-6 and again < 1e-2, (first, again)
            print("  %d machines: losses within %.1e of one process; %.1e after a kill and step %d"
                  % (size, first, again, start))
            wait_for_end(them)
            laptop.close()


# They need what is not everywhere, so they are a test of their own, which is told as skipped.
BY_NAME = (test_data_parallel_training, test_data_parallel_training_with_processes)
# These take half a minute each.
LONG = (test_the_built_in_trainer, test_results_of_all_come_home_and_go, test_down_ends_the_others_of_one_that_does_not_answer,
        test_no_line_is_lost)


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    program, *names = sys.argv[1:]
    if names == ["--long"]:
        names = [test.__name__ for test in LONG]
    elif not names:
        names = [name for name, test in tests.items() if test not in BY_NAME + LONG]
    return run_tests([program, *names], tests)


if __name__ == "__main__":
    machines.enter()
    sys.exit(main())

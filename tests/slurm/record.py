#!/usr/bin/env python3
"""Records what a real Slurm answers, for tests of what reads it.

  record.py [FOLDER]     the default is recorded/, beside this file

For each answer there is NAME.out, what the command printed, and NAME.err where it printed errors.
commands.txt has a line for each: name, exit code, seconds, command; 124 is ours: the command had not
ended after LIMIT_S. The formats of squeue and sinfo are those of provisioning/slurm/slurm_text.h, and
times are Unix seconds, as its reader wants them. It takes six minutes. The nodes are called n1 and n2,
the user ada.
"""
import os
import re
import shlex
import sys
import tempfile
import time

from cluster import HERE, SKIPPED, Cluster, requirements

LIMIT_S = 25
HEADER = os.path.join(HERE, "../../provisioning/slurm/slurm_text.h")
ENVIRONMENT = ["env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s"]


def format_of(name):
    """Returns the constant `name` of the header."""
    with open(HEADER) as file:
        return re.search(r'\b%s = "([^"]+)";' % name, file.read()).group(1)


JOBS = format_of("kSqueueFormat")
ENDS = "JobID,JobName,State,ExitCode,DerivedExitCode,Submit,Start,End,NodeList,Reason,Comment"
SINFO = ["sinfo", "-h", "-o", format_of("kSinfoFormat")]
NODES = ["sinfo", "-h", "-N", "-O",
         "NodeHost:64,Partition:64,StateCompact:32,CPUsState:32,Memory:32,Gres:128,GresUsed:128"]
SQUEUE = ["squeue", "-h", "--me", "-o", JOBS]
SACCT = ["sacct", "-X", "-D", "-P", "-n", "-o", ENDS]


class Recorder:
    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.lines = []

    def record(self, name, argv, **options):
        """Runs a command as the user, and keeps what it said."""
        began = time.monotonic()
        done = self.cluster.run([*ENVIRONMENT, *argv], timeout=LIMIT_S, check=False, **options)
        seconds = time.monotonic() - began
        for end, text in (("out", done.stdout), ("err", done.stderr)):
            path = os.path.join(self.folder, "%s.%s" % (name, end))
            if text or end == "out":
                with open(path, "w") as file:
                    file.write(text)
            elif os.path.exists(path):
                os.unlink(path)
        self.lines.append("%s\t%d\t%.0f\t%s\n" % (name, done.returncode, seconds, shlex.join(argv)))
        with open(os.path.join(self.folder, "commands.txt"), "w") as file:
            file.writelines(self.lines)
        print(self.lines[-1], end="", flush=True)
        return done

    def submit(self, name, *options, wrap="sleep 3600"):
        """Records a submission."""
        return self.record(name, ["sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", wrap])


def as_root(cluster, *words):
    cluster.machines["login"].run(list(words))


def record_submissions(r):
    r.record("version", ["sinfo", "--version"])
    r.record("sinfo_idle", SINFO)
    r.record("sinfo_nodes_idle", NODES)
    r.record("squeue_empty", SQUEUE)
    r.record("sacct_fields", ["sacct", "-e"])
    r.record("squeue_unknown", ["squeue", "-h", "-j", "999999", "-o", JOBS])
    r.record("sacct_unknown", [*SACCT, "-j", "999999"])
    r.record("scancel_unknown", ["scancel", "999999"])
    r.record("scancel_unknown_verbose", ["scancel", "-v", "999999"])
    r.record("scancel_no_number", ["scancel", "12x"])
    tests = {"ok": ["--gres=gpu:h100:2", "-t", "60"], "ok_two_nodes": ["-N2", "--gres=gpu:4", "-t", "60"],
             "too_many_gpus": ["--gres=gpu:h100:5"], "wrong_gres": ["--gres=gpu:a100:1"],
             "wrong_partition": ["-p", "nowhere"], "too_long": ["-t", "2-0"],
             "too_many_nodes": ["-N3"], "too_much_memory": ["--mem=1T"], "wrong_feature": ["-C", "nothing"],
             "wrong_account": ["-A", "nobody"], "wrong_qos": ["--qos=nothing"], "bad_time": ["-t", "soon"]}
    for name, options in tests.items():
        r.record("test_only_" + name, ["sbatch", "--test-only", *options, "--wrap", "true"])
    for name, options in tests.items():
        # What is accepted here pends, mostly for ever; it is seen by squeue and ended.
        r.submit("sbatch_" + name, "-J", name, *options)
    # A job that is held is not looked at before it is released.
    r.submit("sbatch_held_wrong_gres", "-J", "held_wrong_gres", "-H", "--gres=gpu:a100:1")
    r.cluster.wait_until(lambda: r.cluster.run(["squeue", "-h", "--me", "-t", "R"]).stdout, "one runs")
    r.record("squeue_odd", SQUEUE)
    r.record("scancel_all", ["scancel", "-u", "ada"])
    r.cluster.wait_until(lambda: not r.cluster.run(["squeue", "-h", "--me"]).stdout, "all are gone")


def record_waiting(r):
    c = r.cluster
    for name in c.names:
        as_root(c, "scontrol", "update", "nodename=" + name, "availablefeatures=fast",
                "activefeatures=fast")
    failed = c.sbatch("exit 3", "-J", "fails")
    c.wait_sacct(failed, "FAILED")
    odd = c.sbatch("sleep 3600", "-J", "constrained", "-C", "fast", "-H")
    for name in c.names:
        as_root(c, "scontrol", "update", "nodename=" + name, "availablefeatures=", "activefeatures=")
    c.run(["scontrol", "release", odd])
    c.wait_until(lambda: c.squeue(odd, "%r") not in ("None", "Priority"), "the reason is known")
    r.record("squeue_bad_constraints", ["squeue", "-h", "-j", odd, "-o", JOBS])
    running = c.sbatch("trap '' TERM; while :; do sleep 1; done", "-J", "runs", "-w", "n1",
                       "--gres=gpu:h100:4", "-t", "60")
    c.wait_state(running, "RUNNING")
    r.record("test_only_later", ["sbatch", "--test-only", "-w", "n1", "--gres=gpu:1", "--wrap", "true"])
    array = c.sbatch("sleep 3600", "-J", "array", "--array=0-9%2", "-w", "n2", "--gres=gpu:1", "-t", "30")
    c.wait_until(lambda: c.run(["squeue", "-h", "-r", "-t", "R", "-j", array, "-o", "%i"]).stdout.count("\n") == 2,
                 "two tasks of the array run")
    c.sbatch("true", "-J", "resources", "--gres=gpu:4", "-N2", "-t", "60")
    c.sbatch("true", "-J", "priority", "--gres=gpu:4", "-N2", "-t", "60")
    c.sbatch("true", "-J", "held", "-H")
    by_admin = c.sbatch("true", "-J", "held-by-admin", "-H")
    as_root(c, "scontrol", "hold", by_admin)
    c.sbatch("true", "-J", "after", "-d", "afterok:" + running)
    c.sbatch("true", "-J", "never", "-d", "afterok:" + failed)
    c.sbatch("true", "-J", "too-long", "-t", "2-0")
    c.sbatch("true", "-J", "begins", "-b", "now+1hour")
    c.sbatch("true", "-J", "a|b", "-H")
    c.sbatch("true", "-J", "größe 1", "-H")
    c.sbatch("true", "-J", "singleton", "-H", "-d", "singleton")
    c.sbatch("true", "-J", "two\nlines|1", "-H")
    reasons = {"resources": "Resources", "priority": "Priority", "never": "DependencyNeverSatisfied",
               "too-long": "PartitionTimeLimit", "begins": "BeginTime"}

    def settled():
        seen = dict(line.split("\t") for line in c.run(
            ["squeue", "-h", "--me", "-o", "%j\t%r"]).stdout.splitlines() if line.count("\t") == 1)
        return all(seen.get(name) == reason for name, reason in reasons.items())

    c.wait_until(settled, "all reasons are known")
    r.record("squeue_waiting", SQUEUE)
    r.record("squeue_waiting_tasks", ["squeue", "-h", "-r", "--me", "-o", JOBS])
    r.record("squeue_start", ["squeue", "-h", "--me", "--start", "-o", JOBS])
    r.record("squeue_of_a_job", ["squeue", "-h", "-j", running, "-o", JOBS])
    r.record("squeue_by_name", ["squeue", "-h", "--me", "-n", "runs,resources", "-o", JOBS])
    r.record("squeue_of_everybody", ["squeue", "-h", "-o", JOBS])
    r.record("squeue_times_and_limits", ["squeue", "-h", "--me", "-o", "%i|%T|%r|%S|%e|%l|%Q"])
    r.record("sinfo_busy", SINFO)
    r.record("sinfo_nodes_busy", NODES)
    r.record("sacct_alive", [*SACCT, "-S", "now-1hour"])
    r.record("sacct_array", [*SACCT, "-j", array])
    r.record("scontrol_job", ["scontrol", "-o", "show", "job", running])
    as_root(c, "scontrol", "suspend", running)
    r.record("squeue_suspended", ["squeue", "-h", "-j", running, "-o", JOBS])
    as_root(c, "scontrol", "resume", running)
    r.record("scancel_known", ["scancel", running])
    c.wait_state(running, "COMPLETING")
    r.record("squeue_completing", ["squeue", "-h", "-j", running, "-o", JOBS])
    r.record("scancel_completing", ["scancel", running])
    c.wait_until(lambda: c.squeue(running) in ("CANCELLED", ""), "the job is over")
    r.record("squeue_just_over", ["squeue", "-h", "-j", running, "-o", JOBS])
    r.record("squeue_just_over_all_states", ["squeue", "-h", "-t", "all", "-j", running, "-o", JOBS])
    r.record("scancel_over", ["scancel", running])
    r.record("sacct_cancelled", [*SACCT, "-j", running])
    c.scancel("-u", "ada")
    c.wait_until(lambda: not c.run(["squeue", "-h", "--me"]).stdout, "all are gone")


def record_ends(r):
    c = r.cluster
    again = c.sbatch("sleep 3", "-J", "again")
    c.wait_state(again, "RUNNING")
    c.run(["scontrol", "requeue", again])
    submitted = {
        "timeout": c.sbatch("sleep 3600", "-J", "timeout", "-t", "1"),
        "completed": c.sbatch("true", "-J", "completed"),
        "exit": c.sbatch("exit 37", "-J", "exit"),
        "signal": c.sbatch("kill -SEGV $$", "-J", "signal"),
        "oom": c.sbatch("head -c 300M /dev/zero | tail -c 250M | wc -c", "-J", "oom", "--mem=50M"),
        "steps": c.sbatch("srun -n1 sh -c 'exit 5'; exit 0", "-J", "steps"),
        "cancelled-pending": c.sbatch("true", "-J", "cancelled-pending", "-H"),
    }
    c.scancel(submitted["cancelled-pending"])
    r.record("sacct_cancelled_pending", [*SACCT, "-j", submitted["cancelled-pending"]])
    r.record("sacct_cancelled_pending_by_name", [*SACCT, "-S", "now-1hour", "--name=cancelled-pending"])
    deadline = c.sbatch("true", "-J", "deadline", "-d", "afterany:" + submitted["timeout"], "-t", "1",
                        "--deadline=now+65seconds")
    by_root = c.sbatch("sleep 3600", "-J", "cancelled-by-root")
    c.wait_state(by_root, "RUNNING")
    as_root(c, "scancel", by_root)
    c.wait_sacct(submitted["exit"], "FAILED")
    low = c.low_priority_job("sleep 3600", "-J", "preempted", "-w", "n1")
    stays_away = c.low_priority_job("sleep 3600", "-J", "preempted-no-requeue", "-w", "n2", "--no-requeue")
    c.wait_until(lambda: c.squeue(stays_away) == c.squeue(low) == "RUNNING", "both run")
    urgent = [c.sbatch("sleep 20", "-J", "urgent", "-w", name, "--gres=gpu:4") for name in c.names]
    c.wait_until(lambda: c.squeue(low) == "PENDING", "the job is back in the queue")
    r.record("squeue_all_states", ["squeue", "-h", "-t", "all", "--me", "-o", JOBS])
    r.record("squeue_preempted", ["squeue", "-h", "-j", low, "-o", JOBS])
    c.wait_sacct(stays_away, "PREEMPTED")
    r.record("sacct_preempted", [*SACCT, "-j", "%s,%s" % (low, stays_away)])
    c.wait_sacct(submitted["timeout"], "TIMEOUT", seconds=180)
    for job in urgent:
        c.wait_sacct(job, "COMPLETED")
    c.scancel(low)
    r.record("sacct_preempted_then_cancelled", [*SACCT, "-j", low])
    c.wait_sacct(deadline, "DEADLINE", seconds=180)
    r.record("sacct_deadline", [*SACCT, "-j", deadline])
    # A node that is cut off.
    back, lost = (c.sbatch("sleep 3600", "-J", name, "-w", "n2", *more) for name, more in (
        ("requeued", ["--requeue"]), ("lost", ["--no-requeue"])))
    c.wait_until(lambda: c.squeue(back) == c.squeue(lost) == "RUNNING", "both run")
    c.cut("n2")
    c.wait_until(lambda: (c.states() or ["", ""])[1].startswith("down"), "the node is down")
    r.record("sinfo_down", SINFO)
    r.record("sinfo_nodes_down", NODES)
    r.record("squeue_requeued", ["squeue", "-h", "-j", back, "-o", JOBS])
    c.wait_sacct(lost, "NODE_FAIL")
    r.record("sacct_node_fail", [*SACCT, "-j", "%s,%s" % (back, lost)])
    away = c.sbatch("true", "-J", "node-away", "-w", "n2")
    c.wait_until(lambda: c.squeue(away, "%r") not in ("None", "Priority", ""), "the reason is known")
    r.record("squeue_node_down", ["squeue", "-h", "--me", "-o", JOBS])
    c.heal("n2")
    c.wait_until(lambda: not (c.states() or ["", "down"])[1].startswith("down"), "the node is back")
    for name, job in {**submitted, "cancelled": by_root, "requeued": back, "lost": lost, "deadline": deadline,
                      "preempted": stays_away}.items():
        r.record("end_" + name.replace("-", "_"), ["sacct", "-X", "-D", "-P", "-n", "-j", job, "-o",
                                                    "State,ExitCode"])
    r.record("sacct_all", [*SACCT, "-S", "now-1hour"])
    by_user = c.sbatch("sleep 3600", "-J", "requeued-by-hand")
    c.wait_state(by_user, "RUNNING")
    c.run(["scontrol", "requeue", by_user])
    c.wait_state(by_user, "PENDING")
    r.record("squeue_requeued_by_hand", ["squeue", "-h", "-j", by_user, "-o", JOBS])
    r.record("sacct_requeued_by_hand", [*SACCT, "-j", by_user])
    c.wait_sacct(again, "COMPLETED", seconds=300)
    r.record("sacct_requeued_then_completed", [*SACCT, "-j", again])
    c.scancel("-u", "ada")


def record_silence(r):
    c = r.cluster
    commands = {"squeue": SQUEUE, "sinfo": SINFO, "sacct": [*SACCT, "-S", "now-1minute"], "scancel": ["scancel", "1"],
                "sbatch": ["sbatch", "--parsable", "--wrap", "true"], "srun": ["srun", "true"],
                "scontrol": ["scontrol", "show", "job", "1"],
                "test_only": ["sbatch", "--test-only", "--wrap", "true"]}
    c.stop_controller()
    for name, argv in commands.items():
        r.record("hung_" + name, argv)
    c.continue_controller()
    c.wait_until(lambda: c.states() is not None, "the controller answers")
    c.kill_controller()
    for name, argv in commands.items():
        r.record("dead_" + name, argv)
    c.start_controller()


def record_arrays(folder, lines):
    """Six tasks, of which two run at once: those of a batch, under the name of the first one's lease."""
    with tempfile.TemporaryDirectory() as directory, Cluster(directory, config=["MaxArraySize=11"]) as c:
        r = Recorder(c, folder)
        r.lines = lines
        tasks = ["squeue", "-h", "-r", "-t", "all", "-o", JOBS, "-j"]
        ends = ["sacct", "-X", "-D", "-P", "-n", "-o", "State,ExitCode,ElapsedRaw,TimelimitRaw", "-j"]
        r.record("array_config", ["scontrol", "show", "config"])
        holding, _ = c.fill(0)
        r.submit("array_too_large", "--array=0-11")
        array = r.submit("array_submitted", "--array=0-5%2", "-J", "gpuctl-00ff12ab-012345678000", "--gres=gpu:h100:1",
                         "-t", "30", "--no-requeue", wrap="sleep 3600").stdout.strip()
        r.record("array_waiting", ["squeue", "-h", "-r", "--me", "-o", JOBS])
        r.record("array_in_one_line", SQUEUE)
        r.record("array_task_waiting", [*tasks, array + "_3"])
        r.record("array_task_unknown", [*tasks, array + "_55"])
        r.record("array_task_cancelled", ["scancel", array + "_3"])
        r.record("array_task_gone", [*tasks, array + "_3"])
        r.record("array_task_gone_in_books", [*ends, array + "_3"])
        r.record("array_task_held", ["scontrol", "hold", array + "_4"])
        r.record("array_task_on_hold", [*tasks, array + "_4"])
        c.scancel(array + "_4")
        c.wait_sacct(array + "_4", "CANCELLED")
        r.record("array_task_held_in_books", [*ends, array + "_4"])
        c.scancel(*holding)
        c.wait_until(lambda: c.run(["squeue", "-h", "-r", "-t", "R", "-j", array, "-o", "%i"]).stdout.count("\n") == 2,
                     "two tasks run")
        r.record("array_running", ["squeue", "-h", "-r", "--me", "-o", JOBS])
        c.scancel(array + "_0")
        c.wait_sacct(array + "_0", "CANCELLED")
        c.wait_until(lambda: c.squeue(array + "_0") == "", "it is over")
        r.record("array_task_over", [*tasks, array + "_0"])
        r.record("array_task_over_in_books", [*ends, array + "_0"])
        r.record("array_srun", ["srun", "--jobid=" + array + "_1", "true"])
        r.record("array_number_of_task", ["squeue", "-h", "-t", "RUNNING", "-j", array + "_1", "-o", "%A"])
        c.scancel(array)


PROLOG = """#!/bin/sh
while [ -e /tmp/prolog-waits ]; do sleep 0.1; done
[ ! -e /tmp/prolog-fails ]
"""


def record_limits(folder, lines):
    config = ["AccountingStorageEnforce=associations,limits,qos", "Prolog=/etc/slurm/prolog",
              "PrologSlurmctld=/etc/slurm/prolog"]
    with tempfile.TemporaryDirectory() as directory, \
            Cluster(directory, config=config, programs={"prolog": PROLOG}) as c:
        r = Recorder(c, folder)
        r.lines = lines
        r.submit("sbatch_enforced_wrong_account", "-A", "nobody")
        r.submit("sbatch_enforced_wrong_qos", "--qos=nothing")
        r.record("test_only_enforced_wrong_account", ["sbatch", "--test-only", "-A", "nobody", "--wrap", "true"])

        def pend(name, *options):
            job = c.sbatch("sleep 3600", "-J", name, *options)
            c.wait_until(lambda: c.squeue(job, "%r") not in ("None", ""), "the reason is known")
            r.record("squeue_" + name, ["squeue", "-h", "-j", job, "-o", JOBS])
            c.scancel(job)
            c.wait_until(lambda: not c.run(["squeue", "-h", "--me"]).stdout, "all are gone")

        def manage(*words):
            as_root(c, "sacctmgr", "-i", "-Q", "modify", *words)

        manage("user", "ada", "set", "MaxWall=30")
        pend("limit_of_time", "-t", "60")
        manage("user", "ada", "set", "MaxWall=-1", "GrpTRES=gres/gpu=2")
        pend("limit_of_gpus", "--gres=gpu:4")
        manage("user", "ada", "set", "GrpTRES=gres/gpu=-1")
        manage("qos", "normal", "set", "MaxTRESPerUser=gres/gpu=2")
        pend("limit_of_qos", "--gres=gpu:4")
        manage("qos", "normal", "set", "MaxTRESPerUser=gres/gpu=-1")
        manage("user", "ada", "set", "MaxSubmitJobs=0")
        r.submit("sbatch_limit_of_submissions")
        manage("user", "ada", "set", "MaxSubmitJobs=-1")
        as_root(c, "scontrol", "update", "partition=main", "state=down")
        pend("partition_down")
        r.record("sinfo_partition_down", SINFO)
        as_root(c, "scontrol", "update", "partition=main", "state=drain")
        r.submit("sbatch_partition_drained")
        as_root(c, "scontrol", "update", "partition=main", "state=up")
        as_root(c, "scontrol", "create", "reservation", "starttime=now+30minutes", "duration=60", "users=root",
                "flags=maint,ignore_jobs", "nodes=ALL", "reservationname=maintenance")
        pend("maintenance", "-t", "60")
        r.record("test_only_maintenance", ["sbatch", "--test-only", "-t", "60", "--wrap", "true"])
        as_root(c, "scontrol", "delete", "reservationname=maintenance")
        c.machines["login"].run(["touch", "/tmp/prolog-waits"])
        job = c.sbatch("sleep 3600", "-J", "configuring", "-w", "n1")
        c.wait_state(job, "CONFIGURING")
        r.record("squeue_configuring", ["squeue", "-h", "-j", job, "-o", JOBS])
        c.machines["login"].run(["rm", "/tmp/prolog-waits"])
        c.wait_state(job, "RUNNING")
        c.scancel(job)
        c.machines["n1"].run(["touch", "/tmp/prolog-fails"])
        job = c.sbatch("sleep 3600", "-J", "launch-fails", "-w", "n1")
        c.wait_until(lambda: "launch failed" in c.squeue(job, "%r"), "the start has failed")
        r.record("squeue_launch_failed", ["squeue", "-h", "-j", job, "-o", JOBS])
        r.record("sacct_launch_failed", [*SACCT, "-j", job])
        c.scancel(job)
        r.record("sinfo_drained", SINFO)
        pend("nodes_drained", "-N2")


def record_without_accounting(folder, lines):
    with tempfile.TemporaryDirectory() as directory, Cluster(directory, accounting=False, gpus="") as c:
        r = Recorder(c, folder)
        r.lines = lines
        r.record("sinfo_untyped", SINFO)
        r.record("sinfo_nodes_untyped", NODES)
        r.record("sacct_without_accounting", SACCT)
        r.submit("sbatch_untyped", "--gres=gpu:h100:1")


def main():
    reason = requirements()
    if reason:
        print("NOT RECORDED: " + reason)
        return SKIPPED
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "recorded"))
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, Cluster(directory, constrain_memory=True) as cluster:
        r = Recorder(cluster, folder)
        record_submissions(r)
        record_waiting(r)
        record_ends(r)
        record_silence(r)
    record_arrays(folder, r.lines)
    record_limits(folder, r.lines)
    record_without_accounting(folder, r.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())

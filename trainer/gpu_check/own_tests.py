"""The checks of gpu_check that run the trainer's own tests on the device."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import families
import programs

TESTS = os.path.dirname(os.path.abspath(families.__file__))
# They need neither tokenizers nor other programs.
RUNS = ("prepared_runs", "pair_runs", "lora_runs")


def variables_of(session):
    return {} if session.device == "cpu" else {"TRAINER_TEST_DEVICE": "cuda:0"}


def check_unit_tests(session):
    if session.unit_tests is None:
        return session.report("unit", None, why="there is no GoogleTest here")
    result = session.directory + "/unit_tests.json"
    environment = {**os.environ, **variables_of(session)}
    ended = subprocess.run([session.unit_tests, "--gtest_brief=1", "--gtest_output=json:" + result],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                           universal_newlines=True, timeout=session.left())
    if not os.path.exists(result):
        return session.report("unit", False, why=f"ended with {ended.returncode}: "
                              + ended.stdout[-1500:] + programs.crash_site(
                                  session, [session.unit_tests], ended.returncode, environment))
    with open(result, encoding="utf-8") as file:
        tests = [{**test, "suite": suite["name"]} for suite in json.load(file)["testsuites"]
                 for test in suite["testsuite"]]
    failed = {f"{test['suite']}.{test['name']}": test["failures"][0]["failure"][:600]
              for test in tests if test.get("failures")}
    skipped = [f"{test['suite']}.{test['name']}" for test in tests if test["result"] == "SKIPPED"]
    session.report("unit", ended.returncode == 0 and not failed, tests=len(tests),
                   skipped=skipped, failed=failed)


def run_one(session, name):
    began = time.monotonic()
    environment = {**os.environ, **variables_of(session)}
    ended = subprocess.run([sys.executable, f"{TESTS}/{name}.py", session.trainer],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                           universal_newlines=True, timeout=session.left())
    seconds = round(time.monotonic() - began, 1)
    if ended.returncode == 77:
        return session.report("runs", None, of=name, why=ended.stdout.strip()[-300:])
    lines = ended.stdout.splitlines()
    facts = {"of": name, "seconds": seconds, "checks": sum(line.startswith("ok ") for line in lines)}
    if ended.returncode != 0:
        facts["why"] = "\n".join(line for line in lines if not line.startswith("ok "))[-2500:]
    session.report("runs", ended.returncode == 0, **facts)


def check_runs(session):
    """Whole runs of the trainer, side by side."""
    with ThreadPoolExecutor(min(len(RUNS), os.cpu_count() or 2)) as pool:
        for future in [pool.submit(run_one, session, name)
                       for name in (RUNS[:1] if session.small else RUNS)]:
            try:
                future.result()
            except subprocess.TimeoutExpired as error:
                session.report("runs", False, why=f"{error.cmd[1]} did not end in time")

#!/usr/bin/env python3
"""Runs the live test against the simulated markets: so it is ready when somebody has keys.

  rehearsal.py GPUCTL FAKE_JOB CLOUDSIM
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "end_to_end"))
from rent_world import SERVICES, RentWorld, run_tests  # noqa: E402


def live(w, *providers, **env):
    return subprocess.run([sys.executable, os.path.join(HERE, "live.py"), w.gpuctl, *providers],
                          env={**w.env, **env}, cwd=w.work, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          check=False)


def test_each_market_is_rented_at_once_and_given_back(w):
    done = live(w)
    assert done.returncode == 0, done.stdout.decode()
    assert sorted(book["service"] for book in w.books()) == sorted(SERVICES), w.books()
    assert w.alive() == [] and b"spent: $" in done.stdout, done.stdout.decode()


def test_without_a_key_it_does_not_pass(w):
    done = live(w, "vast", GPUCTL_VAST_API_KEY="")
    assert done.returncode != 0 and b"nothing is proven" in done.stdout, done.stdout.decode()


def test_a_market_that_refuses_fails_it_and_leaves_nothing(w):
    w.sim.fault("vast", "create", "500_after", times=-1)
    w.sim.fault("runpod", "create", "out_of_stock", times=-1)
    done = live(w, "vast", "runpod")
    assert done.returncode != 0 and b"FAILED runpod" in done.stdout, done.stdout.decode()
    assert w.alive() == [], w.books()


if __name__ == "__main__":
    run_tests(globals())

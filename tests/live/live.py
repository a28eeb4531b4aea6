#!/usr/bin/env python3
"""Rents one small machine at each real market whose key is in the environment, runs a job there,
brings its file home and gives the machine back. It spends money: a dollar at most for each market.

  live.py GPUCTL [PROVIDER...]

Keys: GPUCTL_RUNPOD_API_KEY, GPUCTL_LAMBDA_API_KEY, GPUCTL_VAST_API_KEY. Without any the test fails:
it never passes without having rented. The ledger is kept in the directory that it prints until
everything has ended; after a crash, gpuctl reap with that directory ends what is left.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

PROVIDERS = ("runpod", "lambda", "vast")
COST_USD = "1"
TIME = "10m"
# The cheapest machine with any GPU of that memory; a launch waits for it for a while.
GPU = os.environ.get("GPUCTL_LIVE_GPU", "8GB..200GB")
MAX_USD_PER_HOUR = "2.50"
LAUNCH_WITHIN_S = 2400
OTHERS_WITHIN_S = 900
JOB = ("nvidia-smi --query-gpu=name --format=csv,noheader; "
       "mkdir -p out; echo \"$TOKEN $(cat given.txt)\" > out/result.txt")


class Live:
    def __init__(self, gpuctl, directory):
        self.gpuctl, self.work = gpuctl, os.path.join(directory, "work")
        os.makedirs(self.work)
        self.env = {**os.environ, "GPUCTL_STATE_DIR": os.path.join(directory, "state"),
                    "GPUCTL_CONFIG_DIR": os.path.join(directory, "config")}

    def run(self, *args, within_s=OTHERS_WITHIN_S, check=True):
        print("$ gpuctl %s" % " ".join(args), flush=True)
        done = subprocess.run([self.gpuctl, *args], cwd=self.work, env=self.env, timeout=within_s,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        if "--json" not in args:
            sys.stdout.write(done.stdout.decode(errors="replace"))
        assert done.returncode == 0 or not check, "gpuctl %s: exit %d" % (args[0], done.returncode)
        return done.stdout

    def json(self, *args):
        return json.loads(self.run(*args, "--json"))

    def try_market(self, provider):
        name, token = "live-" + provider, "token of " + provider
        with open(os.path.join(self.work, "given.txt"), "w", encoding="utf-8") as file:
            file.write("and a file\n")
        out = self.run("launch", "-y", "--fresh", "--name", name, "--provider", provider, "--gpu",
                       GPU, "--max-price", MAX_USD_PER_HOUR, "--cost", COST_USD, "--time", TIME,
                       "--env", "TOKEN=" + token, "--artifacts", "out/*", "--", "bash", "-c", JOB,
                       within_s=LAUNCH_WITHIN_S)
        assert out.strip(), "nvidia-smi said nothing"
        mine = [one for one in self.json("instances")["instances"] if one["whose"] == "ours"]
        assert len(mine) == 1 and mine[0]["provider"] == provider, mine
        run = next(one for one in self.json("ps", "-a")["runs"] if one["name"].startswith(name))
        self.run("pull", run["name"])
        with open(os.path.join(self.work, run["name"], "out", "result.txt"),
                  encoding="utf-8") as file:
            assert file.read() == token + " and a file\n"
        self.run("verify", run["name"])
        self.run("down", "-y", run["name"])

    def end_everything(self):
        self.run("down", "--all", "--force", check=False)
        self.run("reap", "-y", check=False)
        left = self.json("instances")
        mine = [one for one in left["instances"] if one["whose"] in ("ours", "launching", "leak")]
        assert mine == [] and left["unknown"] == [], left
        total = self.json("cost")["total"]
        print("spent: $%.4f to $%.4f" % (total["spent_low_usd"], total["spent_high_usd"]))
        return total["spent_high_usd"]


def main():
    asked = sys.argv[2:] or list(PROVIDERS)
    with_key = [p for p in asked if os.environ.get("GPUCTL_%s_API_KEY" % p.upper())]
    if not with_key:
        sys.exit("no key of %s is in the environment (GPUCTL_RUNPOD_API_KEY=...): nothing was "
                 "rented, and nothing is proven" % ", ".join(asked))
    directory = tempfile.mkdtemp(prefix="gpuctl-live-")
    print("state: GPUCTL_STATE_DIR=%s/state GPUCTL_CONFIG_DIR=%s/config" % (directory, directory))
    live, failed = Live(os.path.abspath(sys.argv[1]), directory), []
    for provider in with_key:
        try:
            live.try_market(provider)
            print("ok     %s" % provider, flush=True)
        except (AssertionError, OSError, ValueError, StopIteration,
                subprocess.TimeoutExpired) as error:
            print("FAILED %s: %s" % (provider, error), flush=True)
            failed.append(provider)
            live.run("down", "--all", "--force", check=False)
    spent = live.end_everything()
    assert spent <= float(COST_USD) * len(with_key), "it cost more than was allowed"
    shutil.rmtree(directory)
    sys.exit("failed: %s" % ", ".join(failed) if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The provider contract (tests/contract) over a real Slurm.

  contract_test.py SLURM_CONTRACT_TEST
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import SKIPPED, Cluster, requirements  # noqa: E402


def main(argv):
    reason = requirements()
    if reason:
        print("skipped: " + reason)
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory, Cluster(directory) as c:
        ssh = c.ssh()
        env = {**os.environ, "GPUCTL_TEST_SSH": "\n".join([shutil.which(ssh[0]), *ssh[1:]])}
        code = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, check=False).returncode
        if code != 0:
            print(c.logs()[-6000:])
        return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

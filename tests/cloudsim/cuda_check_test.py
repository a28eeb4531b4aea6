#!/usr/bin/env python3
"""gpuctl-cuda-check with the simulated driver: each device, and copies between them.

  cuda_check_test.py GPUCTL_CUDA_CHECK DIRECTORY_OF_LIBCUDA
"""
import os
import subprocess
import sys

PROGRAM, LIBRARIES = sys.argv[1:3]


def check(**env):
    done = subprocess.run([PROGRAM], env={**os.environ, "LD_LIBRARY_PATH": LIBRARIES, **env},
                          stdout=subprocess.PIPE, timeout=300)
    return done.returncode, done.stdout.decode()


def expect(wanted, **env):
    found = check(**{"GPUCTL_SIM_" + name: value for name, value in env.items()})
    assert found == wanted, (env, found, wanted)


expect((0, "ok 1\n"), CUDA_DEVICES="1")
expect((0, "ok 2, direct copies in 2 of 2 directions\n"), CUDA_DEVICES="2")
# Neighbours reach each other there; the others' copies go through the processor's memory.
expect((0, "ok 8, direct copies in 8 of 56 directions\n"), CUDA_DEVICES="8")
expect((5, "the driver has no device\n"), CUDA_DEVICES="0")
expect((4, "cuInit: error 999\n"), CUDA_DEVICES="8", CUDA_ERROR="999")
expect((4, "from device 7 to device 0: cuMemcpyPeer: error 719\n"), CUDA_DEVICES="8", CUDA_PEER="719")
expect((4, "from device 3 to device 0: a copy brings wrong bytes\n"), CUDA_DEVICES="4", CUDA_PEER="-1")
# One device has no others to reach.
expect((0, "ok 1\n"), CUDA_DEVICES="1", CUDA_PEER="719")
print("ok")

#!/usr/bin/env python3
"""Builds the programs for nodes on another machine by ssh: an sshd of its own on a loopback port.

  node_host_test.py SOURCE     as root, with the packages of `deploy/packages.sh build`
"""
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = sys.argv[1]
PLATFORM = f"linux-{os.uname().machine}"


class NodeHostTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        for name in ["host", "user"]:
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)],
                           check=True)
        os.mkdir(self.path("there"))
        with open(self.path("config"), "w", encoding="utf-8") as file:
            file.write(f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.path('host')}\n"
                       f"AuthorizedKeysFile {self.path('user.pub')}\nStrictModes no\nUsePAM no\n"
                       f"PidFile none\nPermitRootLogin yes\nSetEnv TMPDIR={self.path('there')}\n")
        os.makedirs("/run/sshd", exist_ok=True)
        server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", self.path("config")],
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.1)

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_a_host_builds_for_its_processor_and_keeps_nothing(self):
        ssh = (f"ssh -p {self.port} -i {self.path('user')} -o StrictHostKeyChecking=no "
               f"-o UserKnownHostsFile={self.path('known')} -o BatchMode=yes -F none")
        with open(self.path("log"), "w+", encoding="utf-8") as log:
            done = subprocess.run(
                [os.path.join(SOURCE, "deploy/node-programs"), "--on", "127.0.0.1", "--ssh", ssh,
                 "--out", self.path("out")], check=False, stdout=log, stderr=log,
                env={**os.environ, "GPUCTL_CACHE_DIR": self.path("cache")})
            log.seek(0)
            self.assertEqual(done.returncode, 0, log.read()[-4000:])
        with open(self.path("out/node/manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(list(manifest["platforms"]), [PLATFORM])
        agent = os.path.join(self.path("cache"), "node", manifest["version"], PLATFORM,
                             "gpuctl-agent")
        level = subprocess.run([agent, "api-level"], check=True, capture_output=True, text=True)
        self.assertEqual(level.stdout, f"{manifest['api_level']}\n")
        self.assertEqual(os.listdir(self.path("there")), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

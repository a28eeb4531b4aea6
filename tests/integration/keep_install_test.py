"""keep --install for real. It uses the system's own crontab program, in a mount namespace with
private crontabs, runs the installed line as cron does, and reads the unit files and the plist with
the programs that know them.

    keep_install_test.py GPUCTL GPUCTL-CLOUDSIM KEEP_SCHEDULE_TEXT
"""
import json
import os
import plistlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cloudsim"))
from simulator import KEYS, Simulator  # noqa: E402

GPUCTL, CLOUDSIM, TEXT = map(os.path.abspath, sys.argv[1:4])
SPOOL = "/var/spool/cron/crontabs"
FOREIGN = ("MAILTO=\"\"\n# backups; not gpuctl keep\n\n0 1 * * *\tbackup 100\\%  \n"
           "# gpuctl keep\n")


class Crontabs:
    """The system's crontab program with a spool of its own; `bin` has it for $PATH."""

    def __init__(self, directory):
        self.holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
             f"mount -t tmpfs none {SPOOL} && echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = self.holder.stdout.readline()
        assert ready == "ready\n", "no namespace of our own for the crontabs: unshare failed"
        self.bin = os.path.join(directory, "bin")
        os.mkdir(self.bin)
        wrapper = os.path.join(self.bin, "crontab")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec nsenter --preserve-credentials --user --mount --target "
                       f"{self.holder.pid} {shutil.which('crontab')} \"$@\"\n")
        os.chmod(wrapper, 0o755)
        # Without a user manager, whatever this computer has.
        with open(os.path.join(self.bin, "systemctl"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 1\n")
        os.chmod(os.path.join(self.bin, "systemctl"), 0o755)

    def close(self):
        self.holder.communicate("")

    def run(self, *args, text=None):
        return subprocess.run([os.path.join(self.bin, "crontab"), *args], input=text, text=True,
                              capture_output=True, check=False)

    def table(self):
        shown = self.run("-l")
        return shown.stdout if shown.returncode == 0 else None


@unittest.skipUnless(sys.platform == "linux", "cron is Linux's")
class CronTest(unittest.TestCase):
    def setUp(self):
        self.assertTrue(shutil.which("crontab"), "cron is not installed: deploy/packages.sh test")
        directory = tempfile.TemporaryDirectory(prefix="keep-install-")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name
        self.real = subprocess.run(["crontab", "-l"], capture_output=True, check=False).stdout
        self.cron = Crontabs(self.dir)
        self.addCleanup(self.cron.close)
        self.sim = Simulator(CLOUDSIM, "--no-rate-limits", "--boot-s", "0.2")
        self.addCleanup(self.sim.stop)
        # A shell with a key in its environment, and one XDG setting.
        self.env = {name: value for name, value in os.environ.items()
                    if not name.endswith("_API_KEY")}
        self.env.update(HOME=os.path.join(self.dir, "home"),
                        PATH=self.cron.bin + ":" + os.environ["PATH"],
                        GPUCTL_KEY_STORE="file", GPUCTL_VAST_URL=self.sim.url + "/vast",
                        GPUCTL_VAST_API_KEY=KEYS["vast"],
                        GPUCTL_STATE_DIR=os.path.join(self.dir, "state of 100%"),
                        XDG_CONFIG_HOME=os.path.join(self.dir, "it's config"))
        os.mkdir(self.env["HOME"])

    def tearDown(self):
        now = subprocess.run(["crontab", "-l"], capture_output=True, check=False).stdout
        self.assertEqual(now, self.real, "the crontab of this computer's user was touched")

    def gpuctl(self, *args, code=0, text=None):
        done = subprocess.run([GPUCTL, *args], env=self.env, cwd=self.dir, input=text, text=True,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, code, done)
        return done

    def run_as_cron(self, line):
        """Runs a line by crontab(5): five fields, then a command for SHELL, up to an unescaped
        "%"."""
        command = line.split(None, 5)[5]
        self.assertIsNone(re.search(r"(?<!\\)%", command), command)
        user = pwd.getpwuid(os.getuid()).pw_name
        return subprocess.run(
            ["/bin/sh", "-c", command.replace("\\%", "%")], cwd=self.env["HOME"], text=True,
            env={"HOME": self.env["HOME"], "LOGNAME": user, "SHELL": "/bin/sh",
                 "PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, capture_output=True,
            check=False)

    def leak(self):
        """Makes a machine whose launch is killed before the node gets its limits."""
        hold = self.sim.hold(service="vast", route="describe", nth_request=1, phase="before")
        client = subprocess.Popen(
            [GPUCTL, "launch", "-y", "--no-workdir", "--provider", "vast", "--", "true"],
            env=self.env, cwd=self.dir, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.sim.wait_hold(hold)
        client.send_signal(signal.SIGKILL)
        client.wait()
        self.sim.release(hold, drop=True)
        (book,) = self.sim.books()["instances"]
        self.assertTrue(book["alive"])

    def test_the_line_ends_a_leak(self):
        self.leak()
        # Cron could not use a key that only the shell has.
        refused = self.gpuctl("keep", "--install", code=120)
        self.assertIn("the key of vast, which is in $GPUCTL_VAST_API_KEY", refused.stderr)
        self.assertIn("HINT: GPUCTL_KEY_STORE=file gpuctl login vast", refused.stderr)
        self.assertIsNone(self.cron.table())
        self.gpuctl("login", "vast", text=KEYS["vast"] + "\n")
        told = self.gpuctl("keep", "--install", "--every", "30m", "--dry-run").stdout
        self.assertIn("would put this line into your crontab", told)
        self.assertIsNone(self.cron.table())
        installed = self.gpuctl("keep", "--install", "--every", "30m")
        self.assertIn("runs every 30m", installed.stderr)
        (line,) = self.cron.table().splitlines()
        self.assertTrue(line.startswith("*/30 * * * * "), line)
        self.assertIn("  " + line, told.splitlines())
        told = self.gpuctl("keep", "--uninstall", "--dry-run").stdout
        self.assertIn("would remove what calls gpuctl keep every 30m", told)
        self.assertEqual(self.cron.table().splitlines(), [line])
        self.assertNotIn(KEYS["vast"], line)

        done = self.run_as_cron(line)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        (book,) = self.sim.books()["instances"]
        self.assertFalse(book["alive"], "the leak bills on")
        self.assertEqual(book["ended_by"], KEYS["vast"])
        with open(os.path.join(self.env["GPUCTL_STATE_DIR"], "keep.stderr"), encoding="utf-8") as log:
            self.assertIn("its launch ended before the node took over: ended", log.read())

    def test_the_line_of_an_older_version_goes_and_the_status_tells(self):
        self.gpuctl("login", "vast", text=KEYS["vast"] + "\n")
        old = "*/10 * * * * '/opt/gpuctl' reap -y 2>>'/tmp/reap.log' # gpuctl reap\n"
        self.assertEqual(self.cron.run("-", text=FOREIGN + old).returncode, 0)
        self.assertIn("not installed", self.gpuctl("keep", "--status").stdout)
        said = self.gpuctl("reap", "--install").stderr
        self.assertIn("gpuctl keep took over from reap --install", said)
        lines = self.cron.table().splitlines(keepends=True)
        self.assertEqual("".join(lines[:-1]), FOREIGN)
        self.assertTrue(lines[-1].startswith("*/5 * * * * "), lines)
        status = json.loads(self.gpuctl("keep", "--status", "--json").stdout)
        self.assertEqual((status["installed"], status["every_s"], status["late"]),
                         ("cron", 300, False))
        self.gpuctl("reap", "--uninstall")
        self.assertEqual(self.cron.table(), FOREIGN)

    def test_other_lines_stay(self):
        self.gpuctl("login", "vast", text=KEYS["vast"] + "\n")
        self.assertEqual(self.cron.run("-", text=FOREIGN).returncode, 0)
        self.gpuctl("keep", "--install")
        first = self.cron.table()
        self.gpuctl("keep", "--install")
        self.assertEqual(self.cron.table(), first)
        self.gpuctl("keep", "--install", "--every", "2h")
        lines = self.cron.table().splitlines(keepends=True)
        self.assertEqual("".join(lines[:-1]), FOREIGN)
        self.assertIn("0 */2 * * * ", lines[-1])
        # Lines that the user adds later stay, too.
        more = "".join(lines) + "5 5 * * * other\n"
        self.assertEqual(self.cron.run("-", text=more).returncode, 0)
        for _ in range(2):
            self.gpuctl("keep", "--uninstall")
            self.assertEqual(self.cron.table(), FOREIGN + "5 5 * * * other\n")


class UnitsTest(unittest.TestCase):
    """Tests with a path that every format must quote."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="reap-units-")
        self.addCleanup(directory.cleanup)
        self.dir = directory.name
        self.program = os.path.join(self.dir, "my <tools> & 50% $HOME", "gpuctl")
        self.state = os.path.join(self.dir, "state of 100% $x \\ \"q\" <&>")
        os.mkdir(os.path.dirname(self.program))
        shutil.copy("/bin/true", self.program)
        subprocess.run([TEXT, self.program, self.state, self.dir], check=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def test_plist(self):
        with open(self.path("gpuctl.keep.plist"), "rb") as file:
            plist = plistlib.load(file, fmt=plistlib.FMT_XML)
        self.assertEqual(plist, {
            "Label": "gpuctl.keep", "ProgramArguments": [self.program, "keep"],
            "EnvironmentVariables": {"GPUCTL_STATE_DIR": self.state}, "StartInterval": 600,
            "RunAtLoad": True, "StandardErrorPath": self.state + "/keep.stderr"})

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze")
    def test_units(self):
        runtime = self.path("run")
        os.mkdir(runtime, 0o700)
        for unit in ("gpuctl-keep.service", "gpuctl-keep.timer"):
            done = subprocess.run(
                ["systemd-analyze", "verify", "--user", "--man=no", self.path(unit)],
                env={"HOME": self.dir, "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": runtime},
                text=True, capture_output=True, check=False)
            self.assertNotIn("gpuctl-keep", done.stdout + done.stderr)
            self.assertEqual(done.returncode, 0, done)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)

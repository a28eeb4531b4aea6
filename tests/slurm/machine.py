"""A machine of the test cluster, seen from inside: the first process of its namespaces.

  unshare --mount --uts --ipc --net --pid --fork --kill-child python3 machine.py SETTINGS

SETTINGS is JSON; cluster.py writes it. This process gives the machine its name, its files and its
devices, prints {"pid": N} with its own number outside, and then only waits: it reaps what has ended,
and it lets sshd serve each connection of a listening socket that it was given. It ends with its
standard input, which is the cluster's lifeline, and the kernel ends everything else in the machine
with it.
"""
import ctypes
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys

MS_BIND, MS_NOSUID = 4096, 2
LIBC = ctypes.CDLL(None, use_errno=True)
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
               "LANG": "C.UTF-8"}
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9),
           "tty": (5, 0)}
NVIDIA_MAJOR = 195

# Stands in for nvidia-smi: lists the node's GPUs once, or every second when it is told to loop. It
# answers what it is asked for, and knows nothing but names, numbers and sizes.
SMI = """#!/bin/bash
fields= loop=
for word in "$@"; do
  case $word in
    --query-gpu=*) IFS=, read -ra fields <<< "${word#*=}" ;;
    -l | --loop=* | -lms | --loop-ms=*) loop=yes ;;
  esac
done
if [ -z "$fields" ]; then
  for i in @INDICES@; do echo "GPU $i: NVIDIA H100 80GB HBM3 (UUID: GPU-@NODE@-$i)"; done
  exit
fi
while :; do
  case "$*" in *noheader*) ;; *) (IFS=,; echo "${fields[*]}") | sed 's/,/, /g' ;; esac
  for i in @INDICES@; do
    line=
    for field in "${fields[@]}"; do
      case $field in
        index) value=$i ;;
        name | gpu_name) value="NVIDIA H100 80GB HBM3" ;;
        uuid | gpu_uuid) value=GPU-@NODE@-$i ;;
        memory.total) value=81559 ;;
        memory.used | utilization.*) value=0 ;;
        driver_version) value=535.161.08 ;;
        *) value="[N/A]" ;;
      esac
      line="$line${line:+, }$value"
    done
    echo "$line"
  done
  [ -n "$loop" ] || exit 0
  sleep 1 || exit
done
"""


def mount(what, where, kind=None, flags=0, data=None):
    words = [None if word is None else os.fsencode(word) for word in (what, where, kind)]
    if LIBC.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), where)


def bind(what, where):
    mount(what, where, flags=MS_BIND)


def memory(where, mode="0755"):
    mount("tmpfs", where, "tmpfs", MS_NOSUID, "mode=" + mode)


def make_devices(gpus):
    """/dev with the few devices that programs need, and the GPUs."""
    mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755")
    nodes = {**DEVICES, **{"nvidia%d" % i: (NVIDIA_MAJOR, i) for i in range(gpus)}}
    for name, (major, minor) in nodes.items():
        os.mknod("/dev/" + name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod("/dev/" + name, 0o666)
    for name, to in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"),
                     ("stderr", "fd/2"), ("ptmx", "pts/ptmx")):
        os.symlink(to, "/dev/" + name)
    for name in ("pts", "shm"):
        os.mkdir("/dev/" + name)
    mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620,gid=5")
    memory("/dev/shm", "1777")


def make_smi(name, gpus):
    """A /usr/local/bin that has nvidia-smi besides what was there."""
    os.mkdir("/run/usr-local-bin")
    bind("/usr/local/bin", "/run/usr-local-bin")
    memory("/usr/local/bin")
    for program in os.listdir("/run/usr-local-bin"):
        os.symlink("/run/usr-local-bin/" + program, "/usr/local/bin/" + program)
    path = "/usr/local/bin/nvidia-smi"
    if os.path.lexists(path):
        os.unlink(path)
    with open(path, "w") as file:
        file.write(SMI.replace("@NODE@", name).replace("@INDICES@", " ".join(map(str, range(gpus)))))
    os.chmod(path, 0o755)


def furnish(settings):
    """Mounts what this machine has of its own over what it shares with the host."""
    directory, name, gpus = settings["dir"], settings["name"], settings["gpus"]
    socket.sethostname(name)
    mount("proc", "/proc", "proc")
    memory("/run")
    for folder in ("logs", "munge", "mysqld", "slurmctld", "slurmd", "sshd", "own"):
        os.mkdir("/run/" + folder)
    bind(os.path.join(directory, "logs"), "/run/logs")
    for file in ("munge.key", "slurmdbd.conf", "host_key"):
        # The owner of each must be who reads it, and nobody else may.
        with open(os.path.join(directory, "secret", file), "rb") as source:
            content = source.read()
        with open(os.open("/run/own/" + file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as to:
            to.write(content)
    bind(os.path.join(directory, "slurm"), "/etc/slurm")
    for file in ("passwd", "group", "shadow", "hosts"):
        bind(os.path.join(directory, "etc", file), "/etc/" + file)
    for own, at in settings["cgroups"]:
        bind(own, at)
    make_devices(gpus)
    if gpus:
        make_smi(name, gpus)
    # From here on the cluster's own directory may be hidden.
    bind(settings["home"], "/home")
    memory("/tmp", "1777")
    memory("/var/tmp", "1777")
    os.chdir("/")


def serve(listener):
    """One connection for sshd."""
    try:
        connection, _ = listener.accept()
    except OSError:  # the client has gone again
        return
    connection.setblocking(True)
    with connection:
        child = subprocess.Popen(
            ["/usr/sbin/sshd", "-i", "-f", "/etc/slurm/sshd_config", "-E", "/run/logs/sshd.log"],
            stdin=connection, stdout=connection, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
            start_new_session=True)
        child.returncode = 0  # it is reaped below


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main():
    settings = json.loads(sys.argv[1])
    outside = int(os.readlink("/proc/self"))  # /proc is still the host's
    furnish(settings)
    listener = None
    if settings["listener"] is not None:
        listener = socket.socket(fileno=settings["listener"])
        listener.setblocking(False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    print(json.dumps({"pid": outside}), flush=True)
    waited = [0, woken] + ([listener] if listener else [])
    while True:
        ready = select.select(waited, [], [])[0]
        if 0 in ready and not os.read(0, 1):
            return
        if woken in ready:
            os.read(woken, 4096)
        reap()
        if listener in ready:
            serve(listener)


if __name__ == "__main__":
    main()

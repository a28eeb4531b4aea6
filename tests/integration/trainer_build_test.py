#!/usr/bin/env python3
"""trainer/build.sh: the trainer compiled as on a node, by the sources that gpuctl sends.

    trainer_build_test.py TRAINER-SRC GPUCTL-TRAINER [TEST...]

One test compiles against this machine's LibTorch, by ccache where it is there, and compares a
training with GPUCTL-TRAINER, which CMake built. The others have a compiler that only pretends.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SOURCES = os.path.abspath(sys.argv[1])
TRAINER = os.path.abspath(sys.argv[2])

# A compiler that writes a line for each file, and waits at a gate when there is one. Its program is
# a script.
PRETENDER = r"""#!/bin/sh
case " $* " in
  *" --version "*) echo "g++ (pretended) ${FAKE_VERSION:-12}.1.0"; exit 0 ;;
  *" -dumpversion "*) echo "${FAKE_VERSION:-12}"; exit 0 ;;
esac
echo "$*" >> "$FAKE_LOG"
case " $* " in *" -c "*"$FAKE_FAILS"*) [ -z "$FAKE_FAILS" ] || { echo "no such type" >&2; exit 1; } ;; esac
while [ $# -gt 0 ]; do
  if [ "$1" = -o ]; then output=$2; fi
  if [ "$1" = -c ]; then only=yes; fi
  shift
done
if [ -n "$only" ]; then
  while [ -n "$FAKE_GATE" ] && [ ! -e "$FAKE_GATE" ]; do sleep 0.05; done
  echo object > "$output"
else
  echo "#!/bin/sh" > "$output"
  echo "[ -z \"$FAKE_BROKEN\" ] || { echo libtorch_cpu.so: not found; exit 127; }" >> "$output"
  echo 'echo "ran $*"' >> "$output"
  chmod +x "$output"
fi
"""


class World:
    def __init__(self):
        # pylint: disable=consider-using-with
        self.directory = tempfile.TemporaryDirectory(prefix="trainer-build-")
        self.dir = self.directory.name
        self.env = {"PATH": os.environ["PATH"], "HOME": self.path("home"),
                    "GPUCTL_TORCH": self.torch("2.9.1", cuda=False), "CXX": self.path("cxx"),
                    "FAKE_LOG": self.path("log"), "FAKE_FAILS": "", "FAKE_GATE": "",
                    "FAKE_BROKEN": "", "GPUCTL_TRAINER_CACHE": self.path("cache")}
        self.write("cxx", PRETENDER, 0o755)
        self.processes = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content, mode=0o644):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content)
        os.chmod(self.path(name), mode)

    def torch(self, version, cuda):
        """Makes a folder that looks like LibTorch. Returns its path."""
        major, minor, patch = version.split(".")
        name = "torch-%s-%s" % (version, cuda)
        # Newer ones have it in another place.
        old = "/include/torch/csrc/api/include/torch/version.h"
        newer = minor.isdigit() and int(minor) > 9
        self.write(name + old, "#include <torch/headeronly/version.h>\n")
        self.write(name + ("/include/torch/headeronly/version.h" if newer else old),
                   "#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n"
                   "#define TORCH_VERSION_PATCH %s\n" % (major, minor, patch))
        for library in ("cpu", "cuda") if cuda else ("cpu",):
            self.write("%s/lib/libtorch_%s.so" % (name, library), "")
        return self.path(name)

    def library(self, path, source):
        """Compiles a shared library."""
        self.write("library.cc", source)
        subprocess.run(["g++", "-shared", "-fPIC", "-o", path, self.path("library.cc")], check=True)

    def start(self, *arguments, **env):
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            ["sh", SOURCES + "/build.sh", *arguments], env={**self.env, **env},
            cwd=env.get("PWD", self.dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        self.processes.append(process)
        return process

    def run(self, *arguments, code=0, **env):
        process = self.start(*arguments, **env)
        # Every source of the trainer, on a machine that may do other things too.
        out, err = process.communicate(timeout=3000)
        out, err = out.decode(), err.decode()
        assert process.returncode == code, (process.returncode, out, err)
        return out, err

    def compiled(self):
        """Returns the number of calls that compiled a file."""
        if not os.path.exists(self.path("log")):
            return 0
        with open(self.path("log"), encoding="utf-8") as file:
            return sum(" -c " in line for line in file)

    def kept(self):
        """Returns the files in the cache, with the kind of a key as K."""
        found = []
        for at, _, names in os.walk(self.path("cache")):
            found += [os.path.join(*os.path.relpath(os.path.join(at, n), self.path("cache"))
                                   .split("/")[1:]) for n in names]
        return sorted(found)

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        self.directory.cleanup()


def source_count():
    return sum(name.endswith(".cc") for _, _, names in os.walk(SOURCES + "/trainer")
               for name in names)


def eventually(holds, what):
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def losses(trainer, w, name):
    """Trains for a few steps. Returns the lines of metrics, without what depends on the time."""
    w.write("texts/a.txt", "the quick brown fox jumps over the lazy dog\n" * 200)
    w.write("run.json", json.dumps({
        "model": {"layers": 2, "d_model": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "context": 32},
        "data": {"paths": [w.path("texts")]}, "checkpoint": {"dir": w.path("ckpt-" + name)},
        "train": {"steps": 6, "batch": 4, "threads": 2, "eval_every": 3, "device": "cpu"}}))
    metrics = w.path("metrics-" + name)
    open(metrics, "wb").close()  # pylint: disable=consider-using-with
    subprocess.run([*trainer, "train", "--config", w.path("run.json")], check=True, timeout=300,
                   stdout=subprocess.DEVNULL, env={**os.environ, "GPUCTL_METRICS": metrics})
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [{key: line[key] for key in ("type", "step", "loss", "grad_norm") if key in line}
            for line in lines]


def test_trains_as_the_trainer_of_cmake(w):
    compiler = "ccache g++" if shutil.which("ccache") else "g++"
    env = {"CXX": compiler, "HOME": os.environ.get("HOME", "/root"),
           "GPUCTL_TORCH": os.environ.get("GPUCTL_TORCH", "")}
    begin = time.monotonic()
    out, err = w.run("--build", **env)
    program = out.strip()
    print("       built in %.1f s" % (time.monotonic() - begin))
    assert "1 of %d: " % source_count() in err and " built the trainer for torch " in err, err
    built = losses([program], w, "built")
    assert built == losses([TRAINER], w, "cmake"), built
    assert sum(line["type"] == "step" for line in built) == 6, built
    assert w.kept() == ["gpuctl-trainer", "lock"], w.kept()
    # The second time nothing is compiled.
    out, err = w.run("--help", **env)
    assert out.startswith("gpuctl-trainer: trains"), out
    assert " of %d: " % source_count() not in err and "was built here for torch" in err, err
    # It hashes with its own code; here is another one.
    subprocess.run("cd %s/step-00000006 && python3 - <<'END'\n"
                   "import hashlib, json\n"
                   "for f in json.load(open('manifest.json'))['files']:\n"
                   "    assert hashlib.sha256(open(f['path'], 'rb').read()).hexdigest() == f['sha256']\n"
                   "END\n" % w.path("ckpt-built"), shell=True, check=True)


def test_one_compiles_and_another_waits(w):
    gate = w.path("gate")
    first = w.start("one", FAKE_GATE=gate)
    eventually(lambda: w.compiled() > 0, "the first compiles")
    second = w.start("two", FAKE_GATE=gate)
    assert b"waiting for it" in second.stderr.readline()
    w.write("gate", "")
    assert first.communicate(timeout=300)[0] == b"ran one\n"
    assert second.communicate(timeout=300)[0] == b"ran two\n"
    assert w.compiled() == source_count(), w.compiled()
    # Another compiler, other flags or another torch are another program.
    for env in ({"FAKE_VERSION": "13"}, {"GPUCTL_TRAINER_CXXFLAGS": "-O0"},
                {"GPUCTL_TORCH": w.torch("2.10.0", cuda=True)}):
        before = w.compiled()
        w.run("three", **env)
        assert w.compiled() == before + source_count(), env


def test_two_at_once_where_nothing_locks(w):
    """As on a network volume, or without util-linux."""
    w.write("bin/flock", "#!/bin/sh\nexit 1\n", 0o755)
    env = {"PATH": w.path("bin") + ":" + w.env["PATH"], "FAKE_GATE": w.path("gate")}
    both = [w.start(name, **env) for name in ("one", "two")]
    eventually(lambda: w.compiled() > 2, "both compile")
    w.write("gate", "")
    said = [process.communicate(timeout=300) for process in both]
    assert [out for out, _ in said] == [b"ran one\n", b"ran two\n"], said
    assert [p.returncode for p in both] == [0, 0] and w.kept() == ["gpuctl-trainer", "lock"], said


def test_a_killed_build_leaves_nothing_that_counts(w):
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = w.start("one", FAKE_GATE=w.path("gate"))
        before = w.compiled()
        eventually(lambda old=before: w.compiled() > old, "it compiles")
        os.killpg(process.pid, number)
        process.communicate(timeout=300)
        assert "gpuctl-trainer" not in w.kept(), w.kept()
        if number == signal.SIGTERM:
            assert process.returncode == 143 and w.kept() == ["lock"], (process.returncode, w.kept())
    w.write("gate", "")
    before = w.compiled()
    assert w.run("two", FAKE_GATE=w.path("gate"))[0] == "ran two\n"
    assert w.compiled() == before + source_count()
    assert w.kept() == ["gpuctl-trainer", "lock"], w.kept()


def test_the_volume_keeps_it_else_the_node(w):
    job = w.path("node/jobs/abc/work")
    os.makedirs(job)
    os.makedirs(w.path("volume"))
    env = {"GPUCTL_TRAINER_CACHE": "", "PWD": job}
    (program,) = w.run("--build", GPUCTL_VOLUME=w.path("volume"), **env)[0].split()
    assert program.startswith(w.path("volume/.gpuctl/trainer/")), program
    (program,) = w.run("--build", **env)[0].split()
    assert program.startswith(w.path("node/trainer/")), program
    # A volume that cannot be written to is not used. (A file: root may write everywhere else.)
    w.write("file", "")
    before = w.compiled()
    assert w.run("--build", GPUCTL_VOLUME=w.path("file"), **env)[0].split() == [program]
    assert w.compiled() == before
    (program,) = w.run("--build", GPUCTL_TRAINER_CACHE="")[0].split()
    assert program.startswith(w.path("home/.gpuctl/trainer/")), program


def test_what_is_missing_is_named_with_a_way_out(w):
    kit = "trainer.build: kit (--trainer build=kit)"
    w.write("empty-torch/version.py", "__version__ = '2.9.1'\n")
    for env, kind, cause, hint in (
            ({"GPUCTL_TORCH": w.path("nothing")}, "torch", "is no Python with torch", "correct GPUCTL_TORCH"),
            ({"GPUCTL_TORCH": w.path("empty-torch")}, "torch", "no Python with torch", "correct GPUCTL_TORCH"),
            ({"GPUCTL_TORCH": w.torch("x.y.z", cuda=False)}, "torch", "cannot be read", "another one"),
            ({"CXX": w.path("nothing")}, "compiler", "torch 2.9.1 is in ", "apt-get install g++"),
            ({"FAKE_VERSION": "8"}, "compiler", "torch 2.9.1 needs g++ 9 or later", "newer g++"),
            ({"FAKE_VERSION": "10", "GPUCTL_TORCH": w.torch("2.12.0", cuda=False)}, "compiler",
             "torch 2.12.0 needs g++ 11 or later", "newer g++")):
        out, err = w.run("train", code=69, **env)
        assert out == "" and cause in err and hint in err and kit in err, err
        out, _ = w.run("--check", code=69, **env)
        fields = out.rstrip("\n").split("\t")
        assert fields[:3] == ["gpuctl-trainer-check", "no", kind] and cause in fields[3], out
        assert hint in fields[4] and len(fields) == 5, out
    assert w.compiled() == 0
    # Nothing is found anywhere: a PATH with the shell's programs only.
    os.makedirs(w.path("bin"))
    for name in ("sh", "sed", "tr", "uname", "head", "dirname"):
        os.symlink(shutil.which(name), w.path("bin/" + name))
    if not os.path.exists("/usr/include/torch"):
        out, err = w.run("train", code=69, GPUCTL_TORCH="", PATH=w.path("bin"))
        assert "there is no torch" in err and "an image with PyTorch" in err and kit in err, err


def test_a_build_that_fails_says_so(w):
    _, err = w.run("train", code=69, FAKE_FAILS="attention.cc")
    assert "no such type" in err and "does not compile for torch 2.9.1" in err, err
    assert w.kept() == ["lock"], w.kept()
    _, err = w.run("train", code=69, FAKE_BROKEN="yes")
    assert "libtorch_cpu.so: not found" in err and "does not start" in err, err
    assert w.kept() == ["lock"], w.kept()


def test_a_torch_with_cuda_comes_first(w):
    """Of the Pythons that are found; and the check works without the sources."""
    for name, cuda in (("python3", False), ("python", True)):
        folder = w.torch("2.9.1", cuda=cuda)
        w.write("bin/" + name, "#!/bin/sh\necho %s\n" % folder, 0o755)
    env = {**w.env, "GPUCTL_TORCH": "", "PATH": w.path("bin") + ":" + w.env["PATH"]}
    with open(SOURCES + "/build.sh", "rb") as script:
        done = subprocess.run(["sh", "-s", "--", "--check"], stdin=script, env=env, check=True,
                              stdout=subprocess.PIPE, timeout=300)
    assert done.stdout.decode().rstrip("\n").split("\t") == [
        "gpuctl-trainer-check", "yes", "cuda",
        "torch 2.9.1 in %s, g++ (pretended) 12.1.0" % w.torch("2.9.1", cuda=True)], done.stdout
    w.run("one", GPUCTL_TORCH="", PATH=env["PATH"])
    with open(w.path("log"), encoding="utf-8") as file:
        linked = file.read().splitlines()[-1]
    assert "-ltorch -ltorch_cpu -ltorch_cuda -lc10 -lc10_cuda" in linked, linked
    assert "-Wl,-rpath,%s/lib" % w.torch("2.9.1", cuda=True) in linked, linked


# std::filesystem as a wheel of torch brings it: made for another version's structures.
OTHER_FILESYSTEM = """
#include <cstdlib>
extern "C" unsigned long other()
    asm("_ZNSt10filesystem10remove_allERKNS_7__cxx114pathERSt10error_code");
unsigned long other() { abort(); }
"""
REMOVES_A_FOLDER = """
#include <filesystem>
int main(int, char** words) {
  std::error_code error;
  return std::filesystem::remove_all(words[1], error) == 2 ? 0 : 1;
}
"""


def test_what_torch_has_of_the_cxx_library_is_not_used(w):
    folder = w.torch("2.9.1", cuda=False)
    for name in ("torch", "c10"):
        w.library(folder + "/lib/lib%s.so" % name, "")
    w.library(folder + "/lib/libtorch_cpu.so", OTHER_FILESYSTEM)
    flags, libraries = w.run("--compiler", CXX="g++")[0].splitlines()
    w.write("main.cc", REMOVES_A_FOLDER)
    w.write("folder/file", "")
    subprocess.run("%s -o %s %s %s" % (flags.replace("-std=c++17", "-std=c++17 -O0"),
                                       w.path("main"), w.path("main.cc"), libraries),
                   shell=True, check=True)
    subprocess.run([w.path("main"), w.path("folder")], check=True, timeout=300)
    assert not os.path.exists(w.path("folder"))


def main():
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    for name in sys.argv[3:] or list(tests):
        begin = time.monotonic()
        world = World()
        try:
            tests[name](world)
            print("ok     %s (%.1f s)" % (name, time.monotonic() - begin), flush=True)
        except Exception:  # pylint: disable=broad-except
            failed.append(name)
            print("FAILED %s\n%s" % (name, traceback.format_exc()), flush=True)
        finally:
            world.end()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Who may include whom, and words that may not appear: the table of ARCHITECTURE.md, enforced.

  layering_test.py ROOT        checks the sources below ROOT
  layering_test.py --self-test plants one violation of each rule and expects it to be found
"""
import os
import re
import subprocess
import sys
import tempfile

# from -> (folders whose headers it may include beside its own, reason). "proto" are the generated
# messages, "grpc" the generated service. The longest matching folder counts.
LAYERS = {
    "proto": ([], "wire types are a leaf"),
    "common": (["proto"], "a leaf that both sides stand on"),
    "provisioning": (["common", "proto"], "no ssh, no gRPC service: testable with no network"),
    "client": (["provisioning", "common", "proto", "grpc", "trainer/config", "trainer/base"],
               "the only place that knows both money and links"),
    "agent": (["agent/shim", "common", "proto", "grpc"], "never sees libssh"),
    "agent/shim": (["common", "proto"], "small enough never to need an upgrade"),
    "trainer": ([], "runs alone from a shell, against any LibTorch"),
}

# Libraries that only some layers may see: (how the include begins, layers, reason).
LIBRARIES = [
    (("grpcpp/", "grpc/"), {"client", "agent"}, "gRPC ends at the two ends of a link"),
    (("libssh/",), {"client"}, "ssh is the client's"),
    (("sqlite3.h",), {"client", "provisioning"}, "the ledger and the list of runs"),
    (("curl/",), {"provisioning"}, "no HTTP but to the rental markets"),
    (("yaml-cpp/", "CLI/"), {"client"}, "the command line is the client's"),
    (("utf8proc.h",), {"client", "common"},
     "widths are the client's, names that a file system takes for one are common's"),
    (("torch/", "ATen/", "c10/"), {"trainer"}, "LibTorch is the trainer's"),
    (("google/", "absl/"), {"common", "provisioning", "client", "agent", "agent/shim"},
     "LibTorch carries its own protobuf, so the trainer has none"),
    (("spdlog/", "fmt/"), {"common"}, "common/log.h stands before it"),
]

OUR_FOLDERS = ("common/", "provisioning/", "client/", "agent/", "trainer/", "tests/", "bench/",
               "gpuctl/v1/")
SOURCES = (".h", ".cc", ".cu")
MAX_LINES = 800

CODE = ("common", "provisioning", "client", "agent", "trainer", "tests", "bench")
# (name, pattern, folders, files it does not hold for, reason); tried on code without comments and
# strings.
WORDS = [
    ("sleeping or reading the clock",
     r"\bsleep_for\b|\bsleep_until\b|\busleep\s*\(|\bnanosleep\s*\(|(?<![\w.:>])sleep\s*\("
     r"|\babsl::SleepFor\b|\babsl::Now\s*\(\)|\bsystem_clock::now\b",
     CODE, r"^common/(fake_)?clock\b", "time comes from a Clock"),
    ("kill(pid, 0)", r"\bkill\s*\([^;]*,\s*0\s*\)", CODE, None,
     "a zombie answers; liveness is a lock"),
    ("system() or popen()", r"(?<![\w.>:])(std::|::)?system\s*\(|\bpopen\s*\(", CODE, None,
     "no shell between us and a program"),
    ("name services", r"\b(getaddrinfo|gethostby\w+|getpw(nam|uid|ent)\w*|getgr(nam|gid|ent)\w*"
     r"|getservby\w+|getnameinfo|initgroups)\s*\(",
     ("agent", "common"), None, "a static binary crashes under another distribution's nsswitch"),
    ("switched off", r"\bDISABLED_\w+", CODE, None,
     "a test that does not run is no test"),
]
HEADER_WORDS = [
    ("using namespace", r"\busing\s+namespace\b", "it changes what every includer means"),
]


def strip(text):
    """`text` without comments, and with empty strings, keeping its lines."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^(\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL)

    def replace(match):
        lines = "\n" * match.group(0).count("\n")
        return '""' + lines if match.group(0)[0] in "\"R" else lines or " "

    return pattern.sub(replace, text)


def layer_of(path):
    fitting = [layer for layer in LAYERS if path.startswith(layer + "/")]
    return max(fitting, key=len) if fitting else None


def target_of(include):
    """The layer an include leads to, "library" for what is not ours."""
    if include.startswith("gpuctl/v1/"):
        return "grpc" if include.endswith(".grpc.pb.h") else "proto"
    if not include.startswith(OUR_FOLDERS):
        return "library"
    return layer_of(include) or include.split("/")[0]


def may_include(source, layer, include):
    """None when `source` may include `include`, else the reason why not."""
    target = target_of(include)
    # Tests, and what only tests of that folder use.
    is_test = source.endswith("_test.cc") or os.path.basename(source).startswith("test_")
    if target == "library":
        for prefixes, layers, reason in LIBRARIES:
            if include.startswith(prefixes) and layer not in layers:
                return reason
        return None
    allowed, reason = LAYERS[layer]
    if target == layer or target in allowed or (is_test and target == "tests"):
        return None
    # trainer/config is a folder of the trainer's.
    if any("/" in folder and include.startswith(folder + "/") for folder in allowed):
        return None
    return reason


def check_file(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        text = file.read()
    problems = []
    layer = layer_of(path)
    if layer:
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
            if not match:
                continue
            reason = may_include(path, layer, match.group(1))
            if reason:
                problems.append(f"{path}:{number}: {layer} includes {match.group(1)}: {reason}")
    code = strip(text)
    rules = [(name, pattern, reason) for name, pattern, folders, exempt, reason in WORDS
             if path.split("/")[0] in folders and not (exempt and re.search(exempt, path))]
    if path.endswith(".h"):
        rules += HEADER_WORDS
    for name, pattern, reason in rules:
        for match in re.finditer(pattern, code):
            number = code.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{number}: {name}: {reason}")
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME)\b", line):
            problems.append(f"{path}:{number}: TODO: finish it or leave it out")
    if text.count("\n") > MAX_LINES:
        problems.append(f"{path}: longer than {MAX_LINES} lines: split it")
    return problems


def sources(root):
    """Tracked and new files when ROOT is a git checkout, else everything below it."""
    listing = subprocess.run(
        ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=False, capture_output=True)
    if listing.returncode == 0 and os.path.exists(os.path.join(root, ".git")):
        paths = listing.stdout.decode("utf-8", "replace").split("\0")
    else:
        paths = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, names in os.walk(root) for name in names]
    return sorted(path for path in set(paths)
                  if path.endswith(SOURCES) and path.split("/")[0] in CODE
                  and os.path.isfile(os.path.join(root, path)))


def check(root):
    paths = sources(root)
    return paths, [problem for path in paths for problem in check_file(root, path)]


# (path, contents, what must be found; None: nothing)
PLANTED = [
    ("common/a.cc", '#include "client/link.h"\n', "common includes client/link.h"),
    ("common/a.cc", '#include "gpuctl/v1/agent.grpc.pb.h"\n', "common includes"),
    ("common/a.cc", '#include <grpcpp/grpcpp.h>\n', "common includes grpcpp/"),
    ("common/a.cc", '#include "gpuctl/v1/run.pb.h"\n', None),
    ("common/a.cc", '#include "tests/temp_dir.h"\n', "common includes tests/"),
    ("common/a_test.cc", '#include "tests/temp_dir.h"\n', None),
    ("provisioning/local/a.cc", '  # include "client/link.h"\n', "provisioning includes"),
    ("provisioning/a.cc", '#include <libssh/libssh.h>\n', "ssh is the client's"),
    ("agent/a.cc", '#include <utf8proc.h>\n', "agent includes utf8proc.h"),
    ("common/a.cc", '#include <utf8proc.h>\n', None),
    ("client/a.cc", '#include "agent/job_table.h"\n', "client includes agent/"),
    ("client/a.cc", '#include "trainer/config/config.h"\n', None),
    ("client/a.cc", '#include "trainer/model/gpt.h"\n', "client includes trainer/model"),
    ("agent/a.cc", '#include "client/link.h"\n', "agent includes client/"),
    ("agent/a.cc", '#include "agent/shim/sweep.h"\n#include "gpuctl/v1/agent.grpc.pb.h"\n', None),
    ("agent/a.cc", '#include "libssh/libssh.h"\n', "ssh is the client's"),
    ("agent/shim/a.cc", '#include "agent/job_table.h"\n', "agent/shim includes agent/"),
    ("agent/shim/a.cc", '#include "gpuctl/v1/agent.grpc.pb.h"\n', "agent/shim includes"),
    ("trainer/a.cc", '#include "common/files.h"\n', "trainer includes common/"),
    ("trainer/a.cc", '#include <absl/status/status.h>\n', "trainer includes absl/"),
    ("trainer/a.cc", '#include <google/protobuf/message.h>\n', "trainer includes google/"),
    ("trainer/a.cc", '#include <torch/torch.h>\n#include "trainer/base/error.h"\n', None),
    ("common/a.cc", "void F() { std::this_thread::sleep_for(x); }\n", "sleeping"),
    ("client/a.cc", "auto t = absl::Now();\n", "sleeping"),
    ("trainer/a.cc", "auto t = std::chrono::system_clock::now();\n", "sleeping"),
    ("common/clock.cc", "auto t = absl::Now();\n", None),
    ("agent/a.cc", "bool b = kill(pid, 0) == 0;\n", "kill(pid, 0)"),
    ("agent/a.cc", "kill(pid, SIGTERM); f(x, 0);\n", None),
    ("agent/a.cc", "// kill(pid, 0) is not used\nconst char* s = \"popen(\";\n", None),
    ("client/a.cc", "int r = system(command);\n", "system()"),
    ("client/a.cc", "FILE* f = popen(command, mode);\n", "system()"),
    ("client/a.cc", "auto x = file_system(1); y.system(2);\n", None),
    ("agent/a.cc", "getaddrinfo(host, port, &hints, &result);\n", "name services"),
    ("common/a.cc", "auto* p = getpwuid(getuid());\n", "name services"),
    ("client/a.cc", "getaddrinfo(host, port, &hints, &result);\n", None),
    ("common/a.h", "using namespace std;\n", "using namespace"),
    ("common/a_test.cc", "using namespace std;\n", None),
    ("common/a_test.cc", "TEST(A, DISABLED_B) {}\n", "switched off"),
    ("common/a.cc", "// TO" + "DO: later\n", "TODO"),
    ("common/a.cc", "\n" * 801, "longer than"),
]


def self_test():
    failures = 0
    for path, contents, expected in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(contents)
            _, problems = check(root)
        found = any(expected in problem for problem in problems) if expected else not problems
        if not found:
            failures += 1
            print(f"planted {contents[:60]!r} in {path}: expected {expected}, found {problems}")
    print(f"{len(PLANTED)} planted, {failures} judged wrongly")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    paths, problems = check(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{len(paths)} sources, {len(problems)} problems")
    # A checkout without sources would pass by finding nothing.
    return 1 if problems or len(paths) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks which room may include which, and words that must not appear.

  layering_test.py ROOT         checks the sources below ROOT, and the tables of its ARCHITECTURE.md
  layering_test.py --write ROOT writes these tables again, from ROOMS and LIBRARIES
  layering_test.py --self-test  checks that a planted violation of each row and rule is found
"""
import os
import re
import subprocess
import sys
import tempfile

# A folder below a top folder is a room. A row names the room, what it is, and what it may include
# beside itself: rooms of its own top folder, and other folders with all that is below them. A row
# forbids everything that it does not name. A row may name only rooms of rows above it. "proto" are
# the generated messages, "grpc" is the generated service. A top folder's own row is for the files
# that lie in no room.
ROOMS = {
    "proto": ("the messages between laptop and node", []),

    "common/base": ("status macros, mutex, clock, ids; no files", []),
    "common/files": ("files: durable writes, safe paths, locks, hashes", ["common/base"]),
    "common/process": ("child processes, pipes, signals, descriptors",
                       ["common/base", "common/files"]),
    "common/job": ("the files in a job's directory: lifecycle, streams, checkpoints",
                   ["common/base", "common/files", "proto"]),
    "common/metrics": ("numbers from the lines that jobs write and print, and alerts on them; pure",
                       ["common/base"]),
    "common/delta": ("parts and chunks of a file that an older version of it has, anywhere",
                     ["common/base", "common/files", "proto"]),
    "common/packing": ("compression of what goes over one connection", ["common/base", "proto"]),
    "common/tree": ("manifests, scans and assembly of directory trees",
                    ["common/base", "common/files", "common/delta", "proto"]),
    "common/transfer": ("the frames of push and pull, and both their ends",
                        ["common/base", "common/files", "common/delta", "common/packing",
                         "common/tree", "proto"]),
    "common/release": ("how a rented instance ends its own bill, for each market; pure", []),
    "common/sqlite": ("SQLite: databases and statements", ["common/base", "common/files"]),

    "trainer/base": ("errors, files, text; needs no LibTorch", []),
    "trainer/config": ("a run's settings, with their checks; the families of models; needs no LibTorch",
                       ["trainer/base"]),
    "trainer/unicode": ("regular expressions and normal forms, as Hugging Face's library has them; "
                        "not sent to nodes", ["trainer/base"]),
    "trainer/tokenizer": ("tokenizer.json: text to ids and back; not sent to nodes",
                          ["trainer/base", "trainer/unicode"]),
    "trainer/jinja_values": ("values of chat templates, with Python's operators and methods and Jinja's "
                             "filters and tests", ["trainer/base", "trainer/unicode"]),
    "trainer/jinja": ("reads and renders chat templates; not sent to nodes",
                      ["trainer/base", "trainer/unicode", "trainer/jinja_values"]),
    "trainer/chat": ("conversations to texts, by a model's template; not sent to nodes",
                     ["trainer/base", "trainer/jinja"]),
    "trainer/data": ("batches of text; needs no LibTorch", ["trainer/base", "trainer/config"]),
    "trainer/prepare": ("rows of text to the tokens that the trainer reads; not sent to nodes",
                        ["trainer/base", "trainer/unicode", "trainer/config", "trainer/tokenizer",
                         "trainer/chat", "trainer/data"]),
    "trainer/checkpoint": ("checkpoints and model folders: writing and reading",
                           ["trainer/base", "trainer/config"]),
    "trainer/cpu": ("matrix products and the model's loops for the CPU; need no LibTorch",
                    ["trainer/base"]),
    "trainer/linear": ("matrix products; matrices with adapters beside them, or in 4 bits; parts "
                       "computed again; a frozen head's loss",
                       ["trainer/base", "trainer/cpu"]),
    "trainer/interchange": ("models in the formats of other programs; needs no LibTorch",
                            ["trainer/base", "trainer/config", "trainer/checkpoint"]),
    "trainer/adapters": ("PEFT's adapters: reading, merging, other formats; needs no LibTorch",
                         ["trainer/base", "trainer/config", "trainer/checkpoint",
                          "trainer/interchange"]),
    "trainer/model": ("the model, and its functions with their gradients",
                      ["trainer/base", "trainer/config", "trainer/checkpoint", "trainer/linear",
                       "trainer/cpu"]),
    "trainer/lora": ("adapters beside frozen weights: where they are, PEFT's files",
                     ["trainer/base", "trainer/config", "trainer/checkpoint", "trainer/linear",
                      "trainer/model"]),
    "trainer/optimizer": ("AdamW, and its moments in fp32 or 8 bits",
                          ["trainer/base", "trainer/checkpoint", "trainer/model"]),
    "trainer/ranks": ("the processes of a run: joining, sums over all of them, who is gone",
                      ["trainer/base"]),
    "trainer/step": ("one optimizer step: workers, gradients, AdamW; devices and their memory",
                     ["trainer/base", "trainer/config", "trainer/data", "trainer/checkpoint",
                      "trainer/cpu", "trainer/linear", "trainer/model", "trainer/lora",
                      "trainer/optimizer", "trainer/ranks"]),
    "trainer/train": ("the training loop: resuming, evaluation, metrics, generation",
                      ["trainer/base", "trainer/config", "trainer/data", "trainer/checkpoint",
                       "trainer/linear", "trainer/model", "trainer/lora", "trainer/ranks", "trainer/step"]),
    "trainer/preflight": ("a run tried on a slice, before it is begun; what it will need",
                          ["trainer/base", "trainer/config", "trainer/data", "trainer/checkpoint",
                           "trainer/model", "trainer/lora", "trainer/step", "trainer/train"]),
    "trainer/cli": ("the trainer's command line",
                    ["trainer/base", "trainer/config", "trainer/tokenizer", "trainer/chat",
                     "trainer/prepare", "trainer/data", "trainer/checkpoint",
                     "trainer/interchange", "trainer/adapters", "trainer/linear", "trainer/model",
                     "trainer/lora", "trainer/ranks", "trainer/step", "trainer/train",
                     "trainer/preflight"]),
    "trainer/tests": ("code that the trainer's tests share",
                      ["trainer/base", "trainer/config", "trainer/tokenizer", "trainer/jinja", "trainer/data",
                       "trainer/checkpoint", "trainer/linear", "trainer/model", "trainer/lora",
                       "trainer/optimizer", "trainer/step", "trainer/train"]),

    "provisioning/http": ("one HTTP exchange; layers for retries, rates, traces", ["common"]),
    "provisioning/market": ("the types and the interface of a market; offers, names, regions",
                            ["provisioning/http", "common"]),
    "provisioning/rest": ("what adapters of REST APIs share: requests, lists, keys, instances",
                          ["provisioning/http", "provisioning/market", "common"]),
    "provisioning/runpod": ("the adapter of Runpod",
                            ["provisioning/http", "provisioning/market", "provisioning/rest",
                             "common"]),
    "provisioning/lambda": ("the adapter of Lambda Cloud",
                            ["provisioning/http", "provisioning/market", "provisioning/rest",
                             "common"]),
    "provisioning/vast": ("the adapter of Vast.ai",
                          ["provisioning/http", "provisioning/market", "provisioning/rest",
                             "common"]),
    "provisioning/digitalocean": ("the adapter of DigitalOcean",
                                  ["provisioning/http", "provisioning/market", "provisioning/rest",
                                   "common"]),
    "provisioning/shadeform": ("the adapter of Shadeform",
                               ["provisioning/http", "provisioning/market", "provisioning/rest",
                                "common"]),
    "provisioning/huggingface": ("the adapter of Hugging Face Jobs",
                                 ["provisioning/http", "provisioning/market", "provisioning/rest",
                                  "common"]),
    "provisioning/slurm": ("a cluster's scheduler as a market",
                           ["provisioning/market", "provisioning/rest", "common"]),
    "provisioning/ledger": ("the ledger of rented machines", ["provisioning/market", "common"]),
    "provisioning/rental": ("renting, releasing, comparing the ledger with the markets",
                            ["provisioning/ledger", "provisioning/market", "common"]),
    "provisioning": ("the list of all markets",
                     ["provisioning/http", "provisioning/market", "provisioning/runpod",
                      "provisioning/lambda", "provisioning/vast", "provisioning/digitalocean",
                      "provisioning/shadeform", "provisioning/huggingface",
                      "provisioning/slurm", "common"]),

    "agent/base": ("operating system code for agent and shim; no gRPC, no OpenSSL",
                   ["common/base", "common/files", "common/process", "common/job", "common/release",
                    "proto"]),
    "agent/envs": ("what the setup of jobs made: keys, markers, packages, removal",
                   ["agent/base", "common/base", "common/files", "common/job", "proto"]),
    "agent/ranks": ("a job's command as several processes with ranks, and one output of theirs",
                    ["agent/base", "common/base", "common/process"]),
    "agent/capture": ("what a job prints and measures, on its way into its streams",
                      ["agent/base", "common/base", "common/job"]),
    "agent/shim": ("the process that owns a job",
                   ["agent/base", "agent/capture", "agent/envs", "agent/ranks", "common/base", "common/files", "common/process", "common/job",
                    "common/release", "proto"]),
    "agent/bundle": ("the programs that clients send to the node",
                     ["common/base", "common/files", "common/process", "common/job"]),
    "agent/https": ("one HTTPS request, from a static program",
                    ["common/base", "common/files", "common/process"]),
    "agent/telemetry": ("measurements of GPUs and machine, once a second",
                        ["agent/base", "common/base", "common/files", "common/process",
                         "common/job", "proto"]),
    "agent/store": ("stored trees: which files are right, and what jobs get of them",
                    ["common", "proto"]),
    "agent/trees": ("the node's side of transfers, and merges into work directories",
                    ["agent/store", "common", "proto"]),
    "agent/results": ("which of a job's files are results: scripts' checkpoints, files beside "
                      "checkpoints, files behind symlinks",
                      ["common/base", "common/files", "common/job", "common/tree", "proto"]),
    "agent/slots": ("the node's GPUs, and which waiting job gets which",
                    ["agent/base", "common/base", "common/files", "common/job", "proto"]),
    "agent/gang": ("the members of a run on several machines: joining, signs of life, the end of all",
                   ["agent/base", "common/base", "common/files", "common/job", "proto"]),
    "agent/share": ("content that one node of a run gives the others, behind a slow line to the client",
                    ["agent/gang", "agent/https", "agent/store", "agent/trees", "common", "proto"]),
    "agent/jobs": ("the jobs: state, start, watch and removal, from their directories",
                   ["agent/base", "agent/gang", "agent/results", "agent/slots", "agent/store", "agent/trees", "common",
                    "proto"]),
    "agent/limits": ("the limits of jobs and machine, and the end of a rented machine",
                     ["agent/base", "agent/https", "agent/jobs", "agent/telemetry",
                      "common/base", "common/files", "common/process", "common/job",
                      "common/metrics", "common/release", "proto"]),
    "agent/ssh": ("an ssh server for one connection, by the node's own sshd, inside a Slurm allocation",
                  ["agent/base", "agent/limits", "common"]),
    "agent/hold": ("the end of all jobs, when the node's Slurm allocation ends; the copy of their "
                   "results on the cluster's shared file system",
                   ["agent/base", "agent/jobs", "common/base", "common/files", "common/process",
                    "common/job", "common/release", "proto"]),
    "agent/restart": ("what the next start of a Slurm allocation needs, on the cluster's shared file "
                      "system; the root that it makes of that",
                      ["agent/base", "agent/bundle", "agent/hold", "agent/jobs", "agent/limits",
                       "agent/store", "agent/trees", "common/base", "common/files",
                       "common/process", "common/job", "common/release", "common/transfer",
                       "proto"]),
    "agent": ("the processes: server, guard, bridge",
              ["agent/base", "agent/bundle", "agent/envs", "agent/https", "agent/telemetry",
               "agent/trees", "agent/gang", "agent/share", "agent/ssh", "agent/hold", "agent/restart", "agent/jobs", "agent/limits", "agent/slots", "common", "proto", "grpc"]),
    "agent/cuda_check": ("a separate program that tests each GPU", []),

    "client/base": ("sizes, exit codes, paths, small programs; knows no run, node or market",
                    ["common"]),
    "client/ignore": ("the rules for files that are not sent; never touches a network",
                      ["client/base", "common"]),
    "client/terminal": ("safe text for terminals; only it writes to stdout and stderr",
                        ["client/base", "common"]),
    "client/metrics": ("the state and the curves of a training, from its numbers; pure",
                       ["client/base", "common"]),
    "client/history": ("a training's numbers step by step, as event files and drawings; pure",
                       ["client/base", "client/metrics", "common", "proto"]),
    "client/programs": ("the programs for nodes: for which machines, where they are, what is sent",
                        ["client/base", "common"]),
    "client/words": ("words that users write: those of other tools, patterns of results; pure",
                     ["client/base", "common"]),
    "client/spec": ("the run file: reading, checking, making a JobSpec; pure",
                    ["client/base", "client/words", "provisioning", "trainer/config", "trainer/base", "common",
                     "proto"]),
    "client/schemas": ("the JSON Schemas of what is printed as JSON, each as one document; pure",
                       ["client/base", "common"]),
    "client/link": ("ssh sessions and gRPC channels over them; only it sees libssh",
                    ["client/base", "client/programs", "common", "proto", "grpc"]),
    "client/runs": ("the list of runs, a run's state, the context of each verb",
                    ["client/base", "client/terminal", "common", "proto"]),
    "client/wishes": ("what was asked for the end of a run, and which process looks after it",
                      ["client/base", "client/runs", "common"]),
    "client/batch": ("batches of runs: their store, parameters, which run starts next, results",
                     ["client/base", "client/words", "client/spec", "client/runs", "provisioning",
                      "common", "proto"]),
    "client/streams": ("a job's streams: copying them to the laptop, reading the copy",
                       ["client/base", "client/terminal", "client/metrics", "client/history",
                        "client/link", "common", "proto", "grpc"]),
    "client/config": ("the run file from the disk, and the settings below it: config.toml, "
                      "gpuctl.toml, the environment",
                      ["client/base", "client/terminal", "client/spec", "client/runs",
                      "provisioning", "common"]),
    "client/guess": ("a run file guessed from a directory; runs nothing",
                     ["client/base", "common"]),
    "client/hosts": ("machines as users name them to ssh",
                     ["client/base", "client/spec", "provisioning", "common"]),
    "client/cluster": ("a cluster's login node, and its allocations as nodes",
                       ["client/base", "client/terminal", "client/programs", "client/hosts",
                        "client/link", "client/runs", "provisioning", "common"]),
    "client/workdir": ("what a run sends: work directory, data; scans only",
                       ["client/base", "client/ignore", "client/terminal", "client/spec",
                        "client/runs", "common", "proto"]),
    "client/trainer": ("the built-in trainer for a node: compiled there, or sent as a kit; its "
                       "model and data, checked and prepared here",
                       ["client/base", "client/programs", "client/ignore", "client/terminal",
                        "client/spec", "client/link", "client/runs", "client/workdir",
                        "trainer/base", "trainer/config", "trainer/data", "trainer/checkpoint", "trainer/prepare",
                        "common", "proto"]),
    "client/sftp": ("a node's files by plain SFTP, where no agent runs",
                    ["client/base", "client/link", "common"]),
    "client/transfer": ("transfer of trees and files; by SFTP where no agent runs",
                        ["client/base", "client/terminal", "client/link", "client/sftp", "client/runs", "common",
                         "proto"]),
    "client/keys": ("the markets' keys, and the clients of markets that use them",
                    ["client/base", "client/terminal", "client/runs", "client/config",
                     "client/cluster", "provisioning", "common"]),
    "client/bill": ("what rented machines cost: sums, limits, forecasts, for people and scripts",
                    ["client/base", "client/runs", "provisioning", "common"]),
    "client/market": ("offers, volumes, prices, and what we rent now",
                      ["client/base", "client/programs", "client/terminal", "client/spec",
                       "client/runs", "client/bill", "client/keys", "provisioning", "common"]),
    "client/warm": ("connections that a process of ours keeps for the commands that follow",
                    ["client/base", "client/programs", "client/link", "common"]),
    "client/node": ("links to nodes, single calls, errors with hints",
                    ["client/base", "client/programs", "client/terminal", "client/spec", "client/link",
                     "client/runs", "client/config", "client/cluster", "client/warm", "client/keys",
                     "client/market", "provisioning", "common", "proto", "grpc"]),
    "client/follow": ("following a run in a verb, and recording its end",
                      ["client/base", "client/terminal", "client/runs", "client/streams", "client/cluster",
                       "client/keys", "client/market", "client/node", "provisioning", "common", "proto"]),
    "client/due": ("machines that are due to end, what their nodes say of it, what listings found",
                   ["client/base", "client/programs", "client/terminal", "client/link", "client/runs",
                    "client/keys", "client/bill", "client/market", "client/node", "provisioning",
                    "common", "proto"]),
    "client/rent": ("renting a working machine from offers; limits",
                    ["client/base", "client/programs", "client/terminal", "client/spec",
                     "client/link", "client/runs", "client/cluster", "client/keys", "client/bill", "client/market",
                     "client/due", "client/node", "provisioning", "common", "proto"]),
    "client/home": ("which results of a run are at home, and which of them stay there",
                    ["client/base", "client/runs", "common", "proto"]),
    "client/results": ("checkpoints and files of a run: pulling, recording, verifying",
                       ["client/base", "client/terminal", "client/metrics", "client/link", "client/sftp",
                        "client/runs", "client/streams", "client/transfer", "client/node",
                        "client/home", "common", "proto"]),
    "client/notify": ("the end of a run, told once: on the screen, by a command, to a webhook",
                      ["client/base", "client/terminal", "client/metrics", "client/spec",
                       "client/runs", "client/streams", "client/config", "client/keys",
                       "client/bill", "client/market", "provisioning", "common", "proto"]),
    "client/reach": ("shells, commands and ports of a run's machine, by the user's own OpenSSH",
                     ["client/base", "client/programs", "client/terminal", "client/spec",
                      "client/link", "client/runs", "client/streams", "client/cluster", "client/node",
                      "common", "proto"]),
    "client/show": ("the display of a run on the terminal",
                    ["client/base", "client/terminal", "client/metrics", "client/spec", "client/link",
                     "client/runs", "client/streams", "client/bill", "client/market", "client/node",
                     "client/follow", "client/results", "client/notify", "client/reach", "common", "proto"]),
    "client/top": ("the screen of several live runs",
                   ["client/base", "client/terminal", "client/metrics", "client/runs",
                    "client/streams", "client/bill", "client/market", "client/follow", "provisioning", "common"]),
    "client/keep": ("what gpuctl keep does for runs while nobody watches, its log, and the system's "
                    "scheduler that calls it",
                    ["client/base", "client/spec", "client/runs", "client/wishes", "client/keys",
                     "client/bill", "client/market", "provisioning", "common"]),
    "client/plan": ("what a launch or a resumption will do: its flags, its plan, and what people "
                    "see of it",
                    ["client/base", "client/words", "client/hosts", "client/terminal", "client/spec",
                     "client/runs", "client/streams", "client/config", "client/workdir",
                     "client/trainer",
                     "client/keys", "client/bill", "client/market", "client/node", "client/rent", "client/home",
                     "client/results", "provisioning", "common", "proto"]),
    "client/launch": ("launching and resuming a job; giving its machine back",
                      ["client/base", "client/programs", "client/terminal", "client/metrics",
                       "client/spec", "client/link", "client/runs", "client/streams", "client/config",
                       "client/workdir",
                       "client/trainer", "client/transfer", "client/keys", "client/bill", "client/market",
                       "client/due", "client/node",
                       "client/follow", "client/rent", "client/plan", "client/home", "client/results",
                       "client/reach", "client/show", "client/wishes",
                       "provisioning", "common", "proto"]),
    "client/dispatch": ("starts the runs of batches, each in a process of its own",
                        ["client/base", "client/terminal", "client/spec", "client/runs",
                         "client/batch", "client/streams", "client/bill", "client/market", "client/node",
                         "client/follow", "client/rent", "client/plan", "client/launch", "provisioning",
                         "common", "proto"]),
    "client/dashboard": ("the page in the browser: its server, what it is told, what it asks for",
                         ["client/base", "client/terminal", "client/metrics", "client/history",
                          "client/runs", "client/batch", "client/streams", "client/bill", "client/market",
                          "client/follow", "client/dispatch", "client/top", "provisioning",
                          "common"]),
    "client/self_test": ("doctor --self-test: tries what gpuctl relies on, a part in each file",
                         ["client/base", "client/programs", "client/terminal", "client/metrics",
                          "client/link", "client/runs", "client/keys", "client/show",
                          "client/keep", "provisioning", "common"]),
    "client/verbs": ("one file for each verb, the list of verbs, the command line",
                     ["client/base", "client/hosts", "client/programs", "client/ignore", "client/terminal",
                      "client/words", "client/metrics", "client/history", "client/spec", "client/schemas", "client/link",
                      "client/sftp",
                      "client/runs", "client/streams", "client/config", "client/guess", "client/workdir",
                      "client/trainer", "client/transfer",
                      "client/cluster", "client/keys", "client/bill", "client/market", "client/due", "client/node", "client/follow",
                      "client/rent", "client/home", "client/results", "client/notify", "client/reach",
                      "client/show", "client/batch", "client/plan", "client/launch", "client/dispatch", "client/keep",
                      "client/top", "client/dashboard", "client/self_test", "client/warm",
                      "client/wishes", "provisioning", "trainer/config", "trainer/data", "trainer/checkpoint",
                      "trainer/prepare", "trainer/adapters",
                      "common", "proto"]),
    "client": ("main()", ["client/verbs", "common"]),
}
TOPS = ("proto", "common", "provisioning", "client", "agent", "trainer")

# A library: (prefixes of its includes, the rooms that may include it, reason). "common/*" means all
# rooms of common. The first row that fits an include decides. Every room may include a library
# without a row.
LIBRARIES = [
    (("grpcpp/", "grpc/"), ("client/link", "client/streams", "client/node", "agent"),
     "only the two ends of a link use gRPC"),
    (("libssh/",), ("client/link", "client/sftp", "client/warm"), "only links use ssh"),
    (("sqlite3.h",), ("common/sqlite",), "one wrapper opens all databases"),
    (("curl/",), ("provisioning/http",), "HTTP is only for the rental markets"),
    (("httplib.h",), (), "only tests use this server"),
    (("yaml-cpp/",), ("client/spec",), "only the run file is YAML"),
    (("CLI/",), ("client/base",), "verbs use FlagSet instead"),
    (("toml++/",), ("client/config",), "only the configuration is TOML"),
    (("ares.h", "openssl/x509"), ("agent/https",),
     "only one room of the agent makes HTTPS requests"),
    (("openssl/ssl.h", "openssl/err.h"), ("agent/https", "agent/share"), "only two rooms of the agent speak TLS"),
    (("openssl/",), ("agent/https", "agent/share", "common/files"), "only they hash or speak TLS"),
    (("zstd.h",), ("common/packing", "common/transfer"), "only frames are compressed"),
    (("utf8proc.h",), ("common/tree", "client/terminal", "trainer/unicode",
      "trainer/jinja_values"), "only they measure, fold or normalize text"),
    (("pcre2.h",), ("client/verbs", "trainer/unicode"),
     "nodes have no PCRE2, and only tokenizers and logs --grep need it"),
    (("torch/", "ATen/", "c10/"),
     ("trainer/checkpoint", "trainer/linear", "trainer/model", "trainer/lora", "trainer/optimizer",
      "trainer/ranks", "trainer/step", "trainer/train", "trainer/preflight", "trainer/cli",
      "trainer/tests"),
     "only the trainer uses LibTorch"),
    (("google/", "absl/"), ("common/*", "provisioning/*", "client/*", "agent/*"),
     "LibTorch has its own protobuf, so the trainer must not link ours"),
    (("spdlog/", "fmt/"), ("common/base",), "other code uses common/base/log.h"),
]

SOURCES = (".h", ".cc", ".cu")
MAX_FILE_LINES = 800
# Lines without tests. client/verbs may be longer: it has one file for each verb.
MAX_ROOM_LINES = 2600
LARGE_ROOMS = ("client/verbs",)

PRODUCT = ("common", "provisioning", "client", "agent", "trainer")
CODE = (*PRODUCT, "tests", "bench")
# (name, pattern, folders, pattern of exempt files, reason). The pattern is searched in code without
# comments and strings.
WORDS = [
    ("sleeping or reading the clock",
     r"\bsleep_for\b|\bsleep_until\b|\busleep\s*\(|\bnanosleep\s*\(|(?<![\w.:>])sleep\s*\("
     r"|\babsl::SleepFor\b|\babsl::Now\s*\(\)|\bsystem_clock::now\b",
     CODE, r"^common/base/(fake_)?clock\b", "read the time from a Clock, and sleep with it"),
    ("kill(pid, 0)", r"\bkill\s*\([^;]*,\s*0\s*\)", CODE, None,
     "it succeeds for a zombie; test a lock instead"),
    ("system() or popen()", r"(?<![\w.>:])(std::|::)?system\s*\(|\bpopen\s*\(", CODE, None,
     "start programs without a shell"),
    ("name services", r"\b(getaddrinfo|gethostby\w+|getpw(nam|uid|ent)\w*|getgr(nam|gid|ent)\w*"
     r"|getservby\w+|getnameinfo|initgroups)\s*\(",
     ("agent", "common"), None, "another distribution's nsswitch crashes a static binary in them"),
    ("printing past the console",
     r"\bstd::(cout|cerr|clog|cin)\b|\bf?printf\s*\(|\bf?puts\s*\(|\bperror\s*\("
     r"|\bWrite(All|OrWake)?\s*\(\s*(STD(OUT|ERR)_FILENO|[12])\s*,"
     r"|\bwrite\s*\(\s*(STD(OUT|ERR)_FILENO|[12])\s*,",
     ("client",), r"^client/terminal/console\.cc$|_test\.cc$",
     "client/terminal/console makes all output safe for a terminal"),
    ("opening the ledger", r"\bLedger::Open(IfThere)?\s*\(", ("client",),
     r"^client/market/holdings\.cc$|_test\.cc$", "only a verb's Holdings opens it"),
    ("opening the list of runs", r"\bcontext_?\.Store\s*\(\)", ("client",),
     r"^client/verbs/|_test\.cc$", "a verb opens it and hands it down"),
    ("switched off", r"\bDISABLED_\w+", CODE, None,
     "a disabled test tests nothing"),
]
HEADER_WORDS = [
    ("using namespace", r"\busing\s+namespace\b", "it changes names in each file that includes it"),
]


def strip(text):
    """Returns `text` without comments and with empty strings; line numbers stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^(\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL)

    def replace(match):
        lines = "\n" * match.group(0).count("\n")
        return '""' + lines if match.group(0)[0] in "\"R" else lines or " "

    return pattern.sub(replace, text)


def is_test(path):
    """True for tests, and for files that only tests of that folder use."""
    return path.endswith("_test.cc") or os.path.basename(path).startswith("test_")


def room_of(path):
    """Returns the room of a file or an include; None when it is not ours."""
    parts = path.split("/")
    if parts[0] in ("tests", "bench"):
        return parts[0]
    if parts[0] not in TOPS:
        return None
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def within(room, folder):
    return room == folder or room.startswith(folder + "/")


def library_reason(room, include):
    """Returns None when `room` may include `include` of a library, else the reason."""
    for prefixes, rooms, reason in LIBRARIES:
        if include.startswith(prefixes):
            fits = any(room == allowed or (allowed.endswith("/*") and within(room, allowed[:-2]))
                       for allowed in rooms)
            return None if fits else reason
    return None


def may_include(source, include):
    """Returns None when `source` may include `include`, else the reason."""
    room = room_of(source)
    if include.startswith("gpuctl/v1/"):
        target = "grpc" if include.endswith(".grpc.pb.h") else "proto"
    else:
        target = room_of(include)
    if target is None:
        # Tests may include any library: they start servers and compare with other libraries.
        return None if is_test(source) else library_reason(room, include)
    if target == room:
        return None
    # A test may also use rooms of rows above its own, and code for tests.
    order = list(ROOMS)
    if is_test(source) and (target in ("tests", "trainer/tests") or
                            (target in order and order.index(target) < order.index(room))):
        return None
    what, allowed = ROOMS[room]
    if any(within(target, folder) if folder in TOPS else target == folder for folder in allowed):
        return None
    return f"not in its row ({what})"


def check_includes(path, text):
    if room_of(path) not in ROOMS:
        if path.split("/")[0] in TOPS:
            return [f"{path}: {room_of(path)} is no room of ROOMS"]
        return []
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        reason = match and may_include(path, match.group(1))
        if reason:
            problems.append(
                f"{path}:{number}: {room_of(path)} includes {match.group(1)}: {reason}")
    return problems


def check_words(path, text):
    problems = []
    code = strip(text)
    rules = [(name, pattern, reason) for name, pattern, folders, exempt, reason in WORDS
             if path.split("/")[0] in folders and not (exempt and re.search(exempt, path))]
    if path.endswith(".h"):
        rules += HEADER_WORDS
    for name, pattern, reason in rules:
        for match in re.finditer(pattern, code):
            number = code.count("\n", 0, match.start()) + 1
            problems.append(f"{path}:{number}: {name}: {reason}")
    in_product = path.split("/")[0] in PRODUCT and not is_test(path)
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\b(TODO|FIXME)\b", line):
            problems.append(f"{path}:{number}: TODO: finish it or leave it out")
        if in_product and re.search(r"GPUCTL_TEST_(?!CLOCK\b)\w+", line):
            problems.append(f"{path}:{number}: a switch for tests: tests link programs of their "
                            "own, or set a field")
    if text.count("\n") > MAX_FILE_LINES:
        problems.append(f"{path}: longer than {MAX_FILE_LINES} lines: split it")
    return problems


def check_circles(texts):
    """Finds units that include each other in a circle; a unit is a header with its source."""
    def unit(path):
        return os.path.splitext(path)[0]

    arrows = {}
    for path, text in texts.items():
        if is_test(path) or path.split("/")[0] not in TOPS:
            continue
        for include in re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.MULTILINE):
            if include in texts and unit(include) != unit(path):
                arrows.setdefault(unit(path), set()).add(unit(include))
    # Search depth first: an include of a unit that is still open closes a circle.
    problems, state = [], {}

    def visit(name, way):
        state[name] = "open"
        for target in sorted(arrows.get(name, ())):
            if state.get(target) == "open":
                circle = way[way.index(target):] + [target]
                problems.append("include circle: " + " -> ".join(circle))
            elif target not in state:
                visit(target, way + [target])
        state[name] = "done"

    for name in sorted(arrows):
        if name not in state:
            visit(name, [name])
    return problems


def check_rooms(texts):
    """Checks the order of the rows and the size of the rooms."""
    problems, seen = [], []
    for room, (_, allowed) in ROOMS.items():
        for name in allowed:
            if name not in seen and name not in TOPS and name != "grpc":
                problems.append(f"ROOMS: {room} names {name}, which is not above it")
        seen.append(room)
    for room in ROOMS:
        lines = sum(text.count("\n") for path, text in texts.items()
                    if room_of(path) == room and not is_test(path))
        if lines > MAX_ROOM_LINES and room not in LARGE_ROOMS:
            problems.append(f"{room}: {lines} lines, more than {MAX_ROOM_LINES}: divide it")
    return problems


def table(top):
    """Returns the rooms of `top` as a table for ARCHITECTURE.md."""
    def names(room, allowed):
        own = [name.split("/", 1)[1] for name in allowed if name.startswith(top + "/")]
        other = [f"`{name}`" for name in allowed if not name.startswith(top + "/")]
        return ", ".join(own + other) or "–"

    rows = [f"| `{room}/` | {what} | {names(room, allowed)} |"
            for room, (what, allowed) in ROOMS.items() if within(room, top)]
    return "\n".join(["| room | what it is | may include |", "|---|---|---|"] + rows) + "\n"


def picture(top):
    """Returns a picture of the rooms of `top` by level: each includes only lower levels."""
    floors, drawn = {}, {}
    for room, (_, allowed) in ROOMS.items():
        if room.startswith(top + "/"):
            floors[room] = 1 + max([floors[name] for name in allowed if name in floors] or [0])
            drawn.setdefault(floors[room], []).append(room.split("/", 1)[1])
    width = max(len("   ".join(names)) for names in drawn.values()) + 4
    lines = [" " * 4 + "_" * width]
    for floor in sorted(drawn, reverse=True):
        lines.append(f"{floor:3} |" + "   ".join(drawn[floor]).center(width) + "|")
    lines.append(" " * 4 + "-" * width)
    return "\n".join(["```"] + lines + ["```"]) + "\n"


def library_table():
    rows = []
    for prefixes, rooms, reason in LIBRARIES:
        names = ", ".join(f"`{prefix}`" for prefix in prefixes)
        rows.append(f"| {names} | {', '.join(rooms) or 'tests'} | {reason} |")
    return "\n".join(["| headers | rooms | why |", "|---|---|---|"] + rows) + "\n"


def with_tables(text):
    """Returns `text` with a new table between each pair of marks."""
    def replace(match):
        name = match.group(2)
        if name.startswith("house_of_"):
            content = picture(name.removeprefix("house_of_"))
        else:
            content = library_table() if name == "libraries" else table(name)
        return match.group(1) + content + match.group(4)

    return re.sub(r"(<!-- table: (\w+), by tests/lint/layering_test.py -->\n)(.*?)(<!-- end -->)",
                  replace, text, flags=re.DOTALL)


def check_tables(root):
    path = os.path.join(root, "ARCHITECTURE.md")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        text = file.read()
    problems = []
    for name in ("common", "provisioning", "agent", "client", "trainer", "house_of_client",
                 "libraries"):
        if f"<!-- table: {name}, by" not in text:
            problems.append(f"ARCHITECTURE.md: no table of {name}")
    if with_tables(text) != text:
        problems.append("ARCHITECTURE.md: its tables are not those of ROOMS and LIBRARIES: "
                        "layering_test.py --write ROOT")
    return problems


def sources(root):
    """Returns tracked and new files when ROOT is a git checkout, else all files below it."""
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
    texts = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            texts[path] = file.read()
    problems = check_rooms(texts) + check_circles(texts) + check_tables(root)
    for path, text in texts.items():
        problems += check_includes(path, text) + check_words(path, text)
    return list(texts), problems


# (path, contents, a part of the problem that must be found; None: no problem). Each row of ROOMS
# and LIBRARIES has one.
PLANTED = [
    # Rooms.
    ("proto/a.h", '#include "common/base/ids.h"\n', None),  # not C++ of ours: not looked at
    ("common/base/a.cc", '#include "common/files/files.h"\n', "common/base includes common/files"),
    ("common/base/a.cc", '#include "client/link/link.h"\n', "common/base includes client/link"),
    ("common/files/a.cc", '#include "common/tree/manifest.h"\n', "common/files includes common/t"),
    ("common/process/a.cc", '#include "common/job/lifecycle.h"\n', "common/process includes"),
    ("common/job/a.cc", '#include "common/tree/manifest.h"\n', "common/job includes common/tree"),
    ("common/job/a.cc", '#include "gpuctl/v1/run.pb.h"\n', None),
    ("common/metrics/a.cc", '#include "common/job/lifecycle.h"\n', "common/metrics includes"),
    ("common/packing/a.cc", '#include "common/files/files.h"\n', "common/packing includes"),
    ("common/delta/a.cc", '#include "common/tree/manifest.h"\n', "common/delta includes"),
    ("common/tree/a.cc", '#include "common/transfer/push.h"\n', "common/tree includes common/tr"),
    ("common/transfer/a.cc", '#include "common/job/lifecycle.h"\n', "common/transfer includes"),
    ("common/transfer/a.cc", '#include "gpuctl/v1/agent.grpc.pb.h"\n', "common/transfer includes"),
    ("common/release/a.cc", '#include "common/files/files.h"\n', "common/release includes"),
    ("common/sqlite/a.cc", '#include "common/tree/manifest.h"\n', "common/sqlite includes"),
    ("common/base/a.cc", '#include "tests/support/temp_dir.h"\n', "common/base includes tests/"),
    ("common/base/a_test.cc", '#include "tests/support/temp_dir.h"\n', None),
    ("common/transfer/a_test.cc", '#include "common/process/pipe.h"\n', None),
    ("common/base/a_test.cc", '#include "common/files/files.h"\n', "common/base includes"),
    ("trainer/base/a.cc", '#include "trainer/config/config.h"\n', "trainer/base includes"),
    ("trainer/base/a.cc", '#include "common/files/files.h"\n', "trainer/base includes common/"),
    ("trainer/config/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/config includes"),
    ("trainer/unicode/a.cc", '#include "trainer/tokenizer/bpe.h"\n', "trainer/unicode includes"),
    ("trainer/tokenizer/a.cc", '#include "trainer/data/corpus.h"\n', "trainer/tokenizer includes"),
    ("trainer/jinja_values/a.cc", '#include "trainer/jinja/run.h"\n', "trainer/jinja_values incl"),
    ("trainer/jinja/a.cc", '#include "trainer/tokenizer/bpe.h"\n', "trainer/jinja includes"),
    ("trainer/chat/a.cc", '#include "trainer/jinja_values/value.h"\n', "trainer/chat includes"),
    ("trainer/prepare/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/prepare includes"),
    ("trainer/data/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/data includes"),
    ("trainer/ranks/a.cc", '#include "trainer/step/stepper.h"\n', "trainer/ranks includes"),
    ("trainer/step/a.cc", '#include "trainer/train/report.h"\n', "trainer/step includes"),
    ("trainer/checkpoint/a.cc", '#include "trainer/optimizer/adamw.h"\n', "trainer/checkpoint incl"),
    ("trainer/interchange/a.cc", '#include "trainer/tokenizer/bpe.h"\n', "trainer/interchange incl"),
    ("trainer/adapters/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/adapters includes"),
    ("trainer/cpu/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/cpu includes"),
    ("trainer/model/a.cc", '#include "trainer/optimizer/adamw.h"\n', "trainer/model includes"),
    ("trainer/linear/a.cc", '#include "trainer/model/gpt.h"\n', "trainer/linear includes"),
    ("trainer/optimizer/a.cc", '#include "trainer/step/stepper.h"\n', "trainer/optimizer incl"),
    ("trainer/lora/a.cc", '#include "trainer/optimizer/adamw.h"\n', "trainer/lora includes"),
    ("trainer/model/a.cc", '#include "trainer/lora/layout.h"\n', "trainer/model includes"),
    ("trainer/train/a.cc", '#include "trainer/cli/args.h"\n', "trainer/train includes"),
    ("trainer/train/a.cc", '#include "trainer/preflight/preflight.h"\n', "trainer/train includes"),
    ("trainer/preflight/a.cc", '#include "trainer/cli/args.h"\n', "trainer/preflight includes"),
    ("trainer/cli/a.cc", '#include "trainer/tests/tiny.h"\n', "trainer/cli includes trainer/te"),
    ("trainer/tests/a.cc", '#include "trainer/cli/args.h"\n', "trainer/tests includes"),
    ("provisioning/http/a.cc", '#include "provisioning/market/types.h"\n', "provisioning/http inc"),
    ("provisioning/market/a.cc", '#include "provisioning/vast/vast_api.h"\n', "g/market includes"),
    ("provisioning/runpod/a.cc", '#include "provisioning/vast/vast_api.h"\n', "g/runpod includes"),
    ("provisioning/lambda/a.cc", '#include "provisioning/ledger/lease.h"\n', "g/lambda includes"),
    ("provisioning/vast/a.cc", '#include "gpuctl/v1/run.pb.h"\n', "provisioning/vast includes"),
    ("provisioning/rest/a.cc", '#include "provisioning/ledger/lease.h"\n', "g/rest includes"),
    ("provisioning/digitalocean/a.cc", '#include "provisioning/vast/vast_api.h"\n',
     "g/digitalocean includes"),
    ("provisioning/shadeform/a.cc", '#include "provisioning/vast/vast_api.h"\n',
     "g/shadeform includes"),
    ("provisioning/huggingface/a.cc", '#include "provisioning/vast/vast_api.h"\n',
     "g/huggingface includes"),
    ("provisioning/slurm/a.cc", '#include "provisioning/http/http.h"\n', "g/slurm includes"),
    ("provisioning/ledger/a.cc", '#include "provisioning/rental/rental.h"\n', "g/ledger includes"),
    ("provisioning/rental/a.cc", '#include "provisioning/vast/vast_api.h"\n', "g/rental includes"),
    ("provisioning/a.cc", '#include "provisioning/ledger/lease.h"\n', "provisioning includes"),
    ("provisioning/a.cc", '  # include "client/link/link.h"\n', "provisioning includes client/"),
    ("agent/base/a.cc", '#include "agent/jobs/watch.h"\n', "agent/base includes agent/jobs"),
    ("agent/ranks/a.cc", '#include "agent/shim/child.h"\n', "agent/ranks includes agent/shim"),
    ("agent/share/a.cc", '#include "agent/jobs/watch.h"\n', "agent/share includes agent/jobs"),
    ("agent/capture/a.cc", '#include "agent/shim/child.h"\n', "agent/capture includes agent/shim"),
    ("agent/shim/a.cc", '#include "agent/jobs/watch.h"\n', "agent/shim includes agent/jobs"),
    ("agent/shim/a.cc", '#include "gpuctl/v1/agent.grpc.pb.h"\n', "agent/shim includes"),
    ("agent/envs/a.cc", '#include "agent/jobs/watch.h"\n', "agent/envs includes agent/jobs"),
    ("agent/bundle/a.cc", '#include "common/tree/manifest.h"\n', "agent/bundle includes"),
    ("agent/https/a.cc", '#include "agent/base/platform.h"\n', "agent/https includes"),
    ("agent/telemetry/a.cc", '#include "common/transfer/push.h"\n', "agent/telemetry includes"),
    ("agent/store/a.cc", '#include "agent/trees/receive.h"\n', "agent/store includes"),
    ("agent/trees/a.cc", '#include "agent/jobs/job_table.h"\n', "agent/trees includes"),
    ("agent/results/a.cc", '#include "agent/jobs/job_table.h"\n', "agent/results includes"),
    ("agent/slots/a.cc", '#include "agent/jobs/job_table.h"\n', "agent/slots includes"),
    ("agent/gang/a.cc", '#include "agent/jobs/job_table.h"\n', "agent/gang includes agent/jobs"),
    ("agent/jobs/a.cc", '#include "agent/limits/contact.h"\n', "agent/jobs includes"),
    ("agent/limits/a.cc", '#include "common/tree/manifest.h"\n', "agent/limits includes"),
    ("agent/ssh/a.cc", '#include "agent/jobs/job_table.h"\n', "agent/ssh includes agent/jobs"),
    ("agent/hold/a.cc", '#include "agent/limits/contact.h"\n', "agent/hold includes agent/limits"),
    ("agent/restart/a.cc", '#include "agent/slots/gpu_claim.h"\n', "agent/restart includes agent/slots"),
    ("agent/a.cc", '#include "agent/shim/supervisor.h"\n', "agent includes agent/shim"),
    ("agent/a.cc", '#include "client/link/link.h"\n', "agent includes client/link"),
    ("agent/cuda_check/main.cc", '#include "common/base/ids.h"\n', "agent/cuda_check includes"),
    ("client/base/a.cc", '#include "client/terminal/table.h"\n', "client/base includes"),
    ("client/hosts/a.cc", '#include "client/link/link.h"\n', "client/hosts includes"),
    ("client/cluster/a.cc", '#include "client/keys/key_store.h"\n', "client/cluster includes"),
    ("client/ignore/a.cc", '#include "client/link/link.h"\n', "client/ignore includes"),
    ("client/terminal/a.cc", '#include "client/runs/context.h"\n', "client/terminal includes"),
    ("client/metrics/a.cc", '#include "client/terminal/table.h"\n', "client/metrics includes"),
    ("client/batch/a.cc", '#include "client/launch/launch.h"\n', "client/batch includes"),
    ("client/dispatch/a.cc", '#include "client/show/panel.h"\n', "client/dispatch includes"),
    ("client/history/a.cc", '#include "client/terminal/table.h"\n', "client/history includes"),
    ("client/schemas/a.cc", '#include "client/terminal/table.h"\n', "client/schemas includes"),
    ("client/words/a.cc", '#include "client/spec/run_spec.h"\n', "client/words includes"),
    ("client/spec/a.cc", '#include "client/runs/run_store.h"\n', "client/spec includes"),
    ("client/spec/a.cc", '#include "trainer/model/gpt.h"\n', "client/spec includes trainer/mo"),
    ("client/spec/a.cc", '#include "trainer/config/config.h"\n', None),
    ("client/programs/a.cc", '#include "client/link/link.h"\n', "client/programs includes"),
    ("client/link/a.cc", '#include "client/terminal/console.h"\n', "client/link includes"),
    ("client/link/a.cc", '#include "agent/jobs/job_table.h"\n', "client/link includes agent/"),
    ("client/runs/a.cc", '#include "provisioning/market/types.h"\n', "client/runs includes"),
    ("client/streams/a.cc", '#include "client/runs/run_store.h"\n', "client/streams includes"),
    ("client/config/a.cc", '#include "client/launch/launch.h"\n', "client/config includes client/l"),
    ("client/verbs/a.cc", "#include <toml++/toml.h>\n", "only the configuration is TOML"),
    ("client/guess/a.cc", '#include "client/spec/run_spec.h"\n', "client/guess includes client/s"),
    ("client/notify/a.cc", '#include "client/show/show_run.h"\n', "client/notify includes client/"),
    ("client/workdir/a.cc", '#include "client/transfer/tree_transfer.h"\n', "client/workdir incl"),
    ("client/trainer/a.cc", '#include "client/transfer/tree_transfer.h"\n', "client/trainer incl"),
    ("client/verbs/a.cc", '#include "trainer/preflight/preflight.h"\n', "client/verbs includes"),
    ("client/verbs/a.cc", '#include "trainer/adapters/merge.h"\n', None),
    ("client/transfer/a.cc", '#include "client/workdir/workdir.h"\n', "client/transfer includes"),
    ("client/sftp/a.cc", '#include "client/transfer/sftp_tree.h"\n', "client/sftp includes"),
    ("client/warm/a.cc", '#include "client/node/make_links.h"\n', "client/warm includes"),
    ("client/keys/a.cc", '#include "client/market/holdings.h"\n', "client/keys includes"),
    ("client/bill/a.cc", '#include "client/market/holdings.h"\n', "client/bill includes"),
    ("client/market/a.cc", '#include "client/rent/claim_node.h"\n', "client/market includes"),
    ("client/node/a.cc", '#include "client/streams/mirror.h"\n', "client/node includes"),
    ("client/follow/a.cc", '#include "client/show/panel.h"\n', "client/follow includes"),
    ("client/due/a.cc", '#include "client/rent/rent_node.h"\n', "client/due includes"),
    ("client/rent/a.cc", '#include "client/follow/catch_up.h"\n', "client/rent includes"),
    ("client/home/a.cc", '#include "client/results/pull_results.h"\n', "client/home includes"),
    ("client/results/a.cc", '#include "client/keys/key_store.h"\n', "client/results includes"),
    ("client/reach/a.cc", '#include "client/show/panel.h"\n', "client/reach includes"),
    ("client/show/a.cc", '#include "client/plan/launch_plan.h"\n', "client/show includes"),
    ("client/keep/a.cc", '#include "client/launch/launch.h"\n', "client/keep includes"),
    ("client/self_test/a.cc", '#include "client/launch/launch.h"\n', "client/self_test includes"),
    ("client/launch/a.cc", '#include "client/verbs/verb.h"\n', "client/launch includes"),
    ("client/wishes/a.cc", '#include "client/launch/launch.h"\n', "client/wishes includes"),
    ("client/plan/a.cc", '#include "client/launch/launch.h"\n', "client/plan includes"),
    ("client/top/a.cc", '#include "client/show/panel.h"\n', "client/top includes"),
    ("client/dashboard/a.cc", '#include "client/show/panel.h"\n', "client/dashboard includes"),
    ("client/verbs/a.cc", '#include "agent/jobs/job_table.h"\n', "client/verbs includes agent/"),
    ("client/main.cc", '#include "client/launch/launch_run.h"\n', "client includes client/launch"),
    ("client/new_room/a.cc", "", "is no room of ROOMS"),
    # Libraries.
    ("client/launch/a.cc", "#include <grpcpp/grpcpp.h>\n", "only the two ends of a link"),
    ("agent/jobs/a.cc", "#include <grpcpp/grpcpp.h>\n", "only the two ends of a link"),
    ("client/node/a.cc", "#include <grpcpp/grpcpp.h>\n", None),
    ("client/transfer/a.cc", "#include <libssh/libssh.h>\n", "only links use ssh"),
    ("agent/a.cc", '#include "libssh/libssh.h"\n', "only links use ssh"),
    ("client/runs/a.cc", "#include <sqlite3.h>\n", "one wrapper opens all databases"),
    ("provisioning/vast/a.cc", "#include <curl/curl.h>\n", "HTTP is only"),
    ("client/verbs/a.cc", "#include <httplib.h>\n", "only tests use this server"),
    ("provisioning/http/a_test.cc", "#include <httplib.h>\n", None),
    ("client/launch/a.cc", "#include <yaml-cpp/yaml.h>\n", "only the run file is YAML"),
    ("client/verbs/a.cc", "#include <CLI/CLI.hpp>\n", "verbs use FlagSet"),
    ("agent/limits/a.cc", "#include <ares.h>\n", "only one room of the agent makes HTTPS requests"),
    ("client/link/a.cc", "#include <openssl/evp.h>\n", "only they hash or speak TLS"),
    ("agent/trees/a.cc", "#include <openssl/ssl.h>\n", "only two rooms of the agent"),
    ("common/tree/a.cc", "#include <zstd.h>\n", "only frames are compressed"),
    ("client/show/a.cc", "#include <utf8proc.h>\n", "only they measure"),
    ("trainer/tokenizer/a.cc", "#include <pcre2.h>\n", "nodes have no PCRE2"),
    ("trainer/data/a.cc", "#include <torch/torch.h>\n", "only the trainer uses LibTorch"),
    ("trainer/interchange/a.cc", "#include <ATen/ATen.h>\n", "only the trainer uses LibTorch"),
    ("trainer/model/a.cc", "#include <torch/torch.h>\n", None),
    ("trainer/base/a.cc", "#include <absl/status/status.h>\n", "LibTorch has its own"),
    ("trainer/train/a.cc", "#include <google/protobuf/message.h>\n", "LibTorch has its own"),
    ("common/files/a.cc", "#include <spdlog/spdlog.h>\n", "other code uses common/base/log.h"),
    # Words and sizes.
    ("common/files/a.cc", "void F() { std::this_thread::sleep_for(x); }\n", "sleeping"),
    ("client/show/a.cc", "auto t = absl::Now();\n", "sleeping"),
    ("trainer/train/a.cc", "auto t = std::chrono::system_clock::now();\n", "sleeping"),
    ("common/base/clock.cc", "auto t = absl::Now();\n", None),
    ("agent/jobs/a.cc", "bool b = kill(pid, 0) == 0;\n", "kill(pid, 0)"),
    ("agent/jobs/a.cc", "kill(pid, SIGTERM); f(x, 0);\n", None),
    ("agent/jobs/a.cc", "// kill(pid, 0) is not used\nconst char* s = \"popen(\";\n", None),
    ("client/base/a.cc", "int r = system(command);\n", "system()"),
    ("client/base/a.cc", "FILE* f = popen(command, mode);\n", "system()"),
    ("client/base/a.cc", "auto x = file_system(1); y.system(2);\n", None),
    ("agent/https/a.cc", "getaddrinfo(host, port, &hints, &result);\n", "name services"),
    ("common/base/a.cc", "auto* p = getpwuid(getuid());\n", "name services"),
    ("client/link/a.cc", "getaddrinfo(host, port, &hints, &result);\n", None),
    ("client/show/a.cc", "std::cerr << text;\n", "printing past the console"),
    ("client/show/a.cc", "fprintf(stderr, text);\n", "printing past the console"),
    ("client/show/a.cc", "(void)write(STDOUT_FILENO, text, size);\n", "printing past the console"),
    ("client/show/a.cc", "snprintf(text, size, format); write(fd, text, size);\n", None),
    ("client/main.cc", "std::fputs(text, stderr);\n", "printing past the console"),
    ("client/terminal/console.cc", "std::fputs(text, stderr);\n", None),
    ("client/follow/a.cc", "auto a = Ledger::OpenIfThere(dir, clock);\n", "opening the ledger"),
    ("client/market/holdings.cc", "auto a = Ledger::Open(dir, clock);\n", None),
    ("client/follow/a.cc", "auto a = context_.Store();\n", "opening the list of runs"),
    ("client/verbs/a.cc", "auto a = context.Store();\n", None),
    ("client/rent/a.cc", 'auto a = getenv("GPUCTL_TEST_FAST");\n', "a switch for tests"),
    ("client/base/a.cc", 'auto a = getenv("GPUCTL_TEST_CLOCK");\n', None),
    ("common/base/a.h", "using namespace std;\n", "using namespace"),
    ("common/base/a_test.cc", "using namespace std;\n", None),
    ("common/base/a_test.cc", "TEST(A, DISABLED_B) {}\n", "switched off"),
    ("common/base/a.cc", "// TO" + "DO: later\n", "TODO"),
    ("common/base/a.cc", "\n" * 801, "longer than"),
]


def plant(files):
    """Returns what check() finds in a tree with only these files."""
    with tempfile.TemporaryDirectory() as root:
        for path, contents in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(contents)
        return check(root)[1]


def self_test():
    cases = [({path: contents}, expected) for path, contents, expected in PLANTED]
    cases += [
        ({"client/show/a.h": '#include "client/show/b.h"\n',
          "client/show/b.cc": '#include "client/show/c.h"\n', "client/show/b.h": "",
          "client/show/c.h": '#include "client/show/a.h"\n'}, "include circle"),
        ({"client/show/a.h": '#include "client/show/b.h"\n', "client/show/b.h": "",
          "client/show/c.h": '#include "client/show/a.h"\n#include "client/show/b.h"\n'}, None),
        ({f"client/show/a{i}.cc": "\n" * 700 for i in range(4)}, "client/show: 2800 lines"),
        ({f"client/verbs/a{i}.cc": "\n" * 700 for i in range(4)}, None),
        ({"ARCHITECTURE.md": "no tables\n"}, "no table of client"),
        ({"ARCHITECTURE.md": "<!-- table: client, by tests/lint/layering_test.py -->\n"
                             "| `client/base/` | all | all |\n<!-- end -->\n"}, "not those of"),
    ]
    failures = 0
    for files, expected in cases:
        problems = plant(files)
        found = any(expected in problem for problem in problems) if expected else not problems
        if not found:
            failures += 1
            print(f"planted {str(files)[:90]}: expected {expected}, found {problems}")
    # A row without a planted violation may not be enforced.
    for room in ROOMS:
        if room != "proto" and not any(room_of(path) == room and expected
                                       for path, _, expected in PLANTED):
            failures += 1
            print(f"nothing is planted in {room}")
    for prefixes, _, reason in LIBRARIES:
        if not any(expected and expected in reason for _, _, expected in PLANTED):
            failures += 1
            print(f"nothing is planted against {prefixes}")
    print(f"{len(cases)} planted, {failures} judged wrongly or missing")
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) == 3 and sys.argv[1] == "--write":
        path = os.path.join(sys.argv[2], "ARCHITECTURE.md")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(with_tables(text))
        return 0
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    paths, problems = check(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{len(paths)} sources, {len(problems)} problems")
    # A checkout without sources has no problems, but must not pass.
    return 1 if problems or len(paths) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())

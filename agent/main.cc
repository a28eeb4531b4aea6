// gpuctl-agent: every program of a node except the shim.
#include <stdio.h>
#include <stdlib.h>

#include <exception>
#include <string>

#include "absl/strings/numbers.h"
#include "agent/archive.h"
#include "agent/bridge.h"
#include "agent/gang/keeper.h"
#include "agent/guard.h"
#include "agent/guard_control.h"
#include "agent/hold/keep_results.h"
#include "agent/limits/contact.h"
#include "agent/limits/limits_report.h"
#include "agent/limits/self_release.h"
#include "agent/restart/restart_kit.h"
#include "agent/restart/staged.h"
#include "agent/restart/start_again.h"
#include "agent/self_check.h"
#include "agent/server.h"
#include "agent/share/share.h"
#include "agent/ssh/serve_ssh.h"
#include "agent/trees/receive.h"
#include "agent/trees/send.h"
#include "agent/trees/take.h"
#include "agent/unpack.h"
#include "common/base/api_level.h"
#include "common/base/clock.h"
#include "common/base/heap.h"
#include "common/base/program_version.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/process/process.h"

namespace {

constexpr char kUsage[] =
    "usage: gpuctl-agent COMMAND [--root DIR]\n"
    "  bridge     stdin and stdout <-> the agent (what gpuctl runs over ssh)\n"
    "  receive    takes a tree from stdin into the content store\n"
    "  send       gives a job's file or directory to stdout\n"
    "  give       gives the stored trees to other nodes that know a key, until its stdin ends\n"
    "  fetch      takes trees from a node that gives them\n"
    "  guard      keeps the server alive and enforces limits\n"
    "  gang       keeps a member of a run on several machines: --job ID, its ticket on stdin\n"
    "  hold       the guard of a Slurm allocation, run by its batch script; ends all jobs at "
    "SIGTERM\n"
    "  keep-results --to PLACE  copies what the allocation's jobs write to PLACE, until SIGTERM\n"
    "  start-again --from PLACE  makes the root of an allocation that Slurm has started again\n"
    "  stage --to PLACE --job JOB  lets a run wait in PLACE for the allocation's first start\n"
    "  archive --from PLACE  the bridge to what was kept there; archive-send: as send; need no "
    "DIR\n"
    "             --in-queue: Slurm will start the allocation again\n"
    "  store-receive --to PLACE  as receive, into PLACE, which nodes may share; needs no DIR\n"
    "  take --from PLACE --tree DIGEST  brings what was sent there into the content store;\n"
    "             --keep: it stays there, too\n"
    "  serve-ssh  an ssh server for one connection on stdin and stdout, by the node's sshd\n"
    "  server     serves gRPC on DIR/agent.sock\n"
    "  shutdown   ends guard and server when no job runs\n"
    "  release    asks the provider to end this machine, as its limits would; --dry-run\n"
    "  limits     says which limit ends this machine, and when; no contact\n"
    "  contact    tells the limits that somebody is here while process --pid PID lives\n"
    "  self-check what it can know of processes here, by trying it; needs no DIR\n"
    "  sha256 FILE\n"
    "  unpack FILE [BEFORE BYTES]  makes FILE out of what a client packed with this program\n"
    "             at hand; the first BYTES of stdin become the file BEFORE\n"
    "  api-level  the level of the protocol it speaks\n"
    "  --version  its version, platform and level\n"
    "DIR is ~/.gpuctl unless given.\n";

std::string DefaultRoot() {
  const char* home = getenv("HOME");
  return gpuctl::JoinPath(home != nullptr && *home != '\0' ? home : "/root", ".gpuctl");
}

int PrintSha256(const char* path) {
  const absl::StatusOr<std::string> digest = gpuctl::Sha256HexOfFile(path);
  if (!digest.ok()) {
    fprintf(stderr, "gpuctl-agent: %s\n", std::string(digest.status().message()).c_str());
    return 1;
  }
  printf("%s\n", digest->c_str());
  return 0;
}

int Run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "sha256" && argc == 3) return PrintSha256(argv[2]);
  if (command == "unpack" && (argc == 3 || argc == 5)) {
    gpuctl::PlainFile before;
    if (argc == 5) {
      before.path = argv[3];
      if (!absl::SimpleAtoi(argv[4], &before.size)) {
        fprintf(stderr, "%s", kUsage);
        return 2;
      }
    }
    return gpuctl::RunUnpack(gpuctl::SelfPath(argv[0]), argv[2], before, 0);
  }
  if (command == "self-check" && argc == 3 && argv[2] == std::string("--wait")) {
    // Its own child: it ends with its parent.
    while (getchar() != EOF) {
    }
    return 0;
  }
  if (command == "api-level" && argc == 2) {
    printf("%d\n", static_cast<int>(gpuctl::kApiLevel));
    return 0;
  }
  if (command == "--version" && argc == 2) {
    printf("%s\n", gpuctl::ProgramVersion("gpuctl-agent").c_str());
    return 0;
  }
  std::string root = DefaultRoot();
  std::string place, tree;
  gpuctl::GuardOptions guard;
  bool dry_run = false;
  bool wait = false;
  bool in_queue = false;
  bool keep = false;
  pid_t pid = 0;
  std::string job;
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--root" && i + 1 < argc) {
      root = argv[++i];
    } else if ((flag == "--to" || flag == "--from") && i + 1 < argc) {
      place = argv[++i];
    } else if (flag == "--tree" && i + 1 < argc) {
      tree = argv[++i];
    } else if (flag == "--lock-fd" && i + 1 < argc) {
      guard.lock_fd = atoi(argv[++i]);
    } else if (flag == "--handover-fd" && i + 1 < argc) {
      guard.handover_fd = atoi(argv[++i]);
    } else if (flag == "--claim-until" && i + 1 < argc) {
      if (!absl::SimpleAtoi(argv[++i], &guard.claim_until_s)) {
        fputs(kUsage, stderr);
        return 2;
      }
    } else if (flag == "--end") {
      guard.end = true;
    } else if (flag == "--detach") {
      guard.detach = true;
    } else if (flag == "--wait") {
      wait = true;
    } else if (flag == "--in-queue") {
      in_queue = true;
    } else if (flag == "--keep") {
      keep = true;
    } else if (flag == "--dry-run") {
      dry_run = true;
    } else if (flag == "--job" && i + 1 < argc) {
      job = argv[++i];
    } else if (flag == "--pid" && i + 1 < argc) {
      pid = atoi(argv[++i]);
    } else {
      fputs(kUsage, stderr);
      return 2;
    }
  }
  guard.root = root;
  guard.bundle_dir = gpuctl::DirName(gpuctl::SelfPath(argv[0]));
  if (command == "bridge") return gpuctl::RunBridge({root, guard.bundle_dir, wait});
  if (command == "keep-results" && !place.empty()) {
    gpuctl::RestartKit kit(guard.bundle_dir);
    return gpuctl::RunKeepResults(root, place, [&kit](const auto& from, const std::string& to) {
      return kit.Keep(from, to);
    });
  }
  if (command == "stage" && !place.empty()) return gpuctl::RunStage(place, job, guard.bundle_dir);
  if (command == "start-again" && !place.empty()) return gpuctl::RunStartAgain(root, place);
  if (command == "archive" && !place.empty()) {
    return gpuctl::RunArchive(place, guard.bundle_dir, in_queue);
  }
  if (command == "archive-send" && !place.empty()) return gpuctl::RunArchiveSend(place);
  if (command == "store-receive" && !place.empty()) return gpuctl::RunReceive(place, 0, 1);
  if (command == "take" && !place.empty()) return gpuctl::RunTake(root, place, tree, keep);
  guard.hold = command == "hold";
  if (command == "guard" || guard.hold) return gpuctl::RunGuard(guard);
  if (command == "server") return gpuctl::RunServer({root, guard.bundle_dir});
  if (command == "receive" || command == "send") {
    const gpuctl::Contact contact(gpuctl::RootPaths(root), gpuctl::Clock::Real());
    return command == "send" ? gpuctl::RunSend(root, 0, 1) : gpuctl::RunReceive(root, 0, 1);
  }
  if (command == "give" || command == "fetch") {
    const gpuctl::Contact contact(gpuctl::RootPaths(root), gpuctl::Clock::Real());
    return command == "give" ? gpuctl::RunGive(root) : gpuctl::RunFetch(root);
  }
  if (command == "serve-ssh") return gpuctl::RunServeSsh(root);
  if (command == "gang") return gpuctl::RunKeeper(root, job);
  if (command == "contact") return gpuctl::RunContact(root, pid);
  if (command == "limits") return gpuctl::RunLimits(root);
  if (command == "release") {
    return gpuctl::RunRelease(root, gpuctl::JoinPath(guard.bundle_dir, "roots.pem"), dry_run);
  }
  if (command == "self-check") return gpuctl::RunSelfCheck(gpuctl::SelfPath(argv[0]), root);
  if (command == "shutdown") return gpuctl::RunShutdown(root);
  fputs(kUsage, command == "--help" || command == "help" ? stdout : stderr);
  return command == "--help" || command == "help" ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  gpuctl::KeepHeap();
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    fprintf(stderr, "gpuctl-agent: bug: %s\n", error.what());
    return 70;
  }
}

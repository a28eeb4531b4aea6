#include "tests/cloudsim/children.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"

namespace gpuctl::cloudsim {
namespace {

struct ProcessLine {
  pid_t parent = 0;
  bool zombie = false;
};

// Returns all processes of the machine, by pid.
std::map<pid_t, ProcessLine> ReadProcesses() {
  std::map<pid_t, ProcessLine> processes;
  const auto names = ListDirectory("/proc");
  if (!names.ok()) return processes;
  for (const std::string& name : *names) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(name, &pid)) continue;
    const std::string stat = ReadFileToString(absl::StrCat("/proc/", pid, "/stat")).value_or("");
    const size_t end = stat.rfind(')');
    if (end == std::string::npos) continue;
    const std::vector<std::string> fields = absl::StrSplit(stat.substr(end + 2), ' ');
    if (fields.size() < 2) continue;
    ProcessLine line;
    line.zombie = fields[0] == "Z" || fields[0] == "X";
    if (absl::SimpleAtoi(fields[1], &line.parent)) processes[pid] = line;
  }
  return processes;
}

bool HasTag(pid_t pid, const std::string& tag) {
  const std::string environment =
      ReadFileToString(absl::StrCat("/proc/", pid, "/environ")).value_or("");
  const std::string entry = absl::StrCat("GPUCTL_SIM_NODE=", tag);
  for (const absl::string_view one : absl::StrSplit(environment, '\0')) {
    if (one == entry) return true;
  }
  return false;
}

}  // namespace

Children& Children::Get() {
  static auto* const children = new Children;
  return *children;
}

// Orphans of a node's processes become children of this process.
Children::Children() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

absl::StatusOr<pid_t> Children::Spawn(SpawnOptions options, const std::string& tag) {
  options.env.push_back(absl::StrCat("GPUCTL_SIM_NODE=", tag));
  options.new_session = true;
  MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(const pid_t pid, gpuctl::Spawn(options));
  started_[tag].insert(pid);
  return pid;
}

void Children::Reap() {
  MutexLock lock(mutex_);
  for (;;) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid <= 0) return;
    for (auto& node : started_) node.second.erase(pid);
  }
}

std::vector<pid_t> Children::Pids(const std::string& tag) {
  MutexLock lock(mutex_);
  const std::map<pid_t, ProcessLine> processes = ReadProcesses();
  const std::set<pid_t> started = started_[tag];
  std::vector<pid_t> found;
  for (const auto& [pid, line] : processes) {
    if (line.zombie || pid == getpid()) continue;
    bool ours = HasTag(pid, tag);
    pid_t ancestor = pid;
    for (int depth = 0; !ours && depth < 64 && ancestor > 1; ++depth) {
      ours = started.count(ancestor) > 0;
      const auto next = processes.find(ancestor);
      if (next == processes.end() || ancestor == getpid()) break;
      ancestor = next->second.parent;
    }
    if (ours) found.push_back(pid);
  }
  return found;
}

void Children::KillAll(const std::string& tag) {
  for (int i = 0; i < 2000; ++i) {
    const std::vector<pid_t> pids = Pids(tag);
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    Reap();
    if (pids.empty()) break;
    poll(nullptr, 0, 1);
  }
  MutexLock lock(mutex_);
  started_.erase(tag);
}

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& argv) {
  ASSIGN_OR_RETURN(FdPair pipe, MakePipe("run a program"));
  SpawnOptions options;
  options.argv = argv;
  options.stdout_fd = pipe.second.get();
  RETURN_IF_ERROR(Children::Get().Spawn(options, "").status());
  pipe.second.reset();
  std::string output;
  char buffer[4096];
  for (;;) {
    const ssize_t got = read(pipe.first.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return output;
    output.append(buffer, static_cast<size_t>(got));
  }
}

}  // namespace gpuctl::cloudsim

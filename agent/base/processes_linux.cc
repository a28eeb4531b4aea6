#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agent/base/processes.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

struct Stat {
  ProcessId id;
  pid_t parent = 0;
  char state = '?';
  bool alive() const { return state != 'Z' && state != 'X'; }
};

std::optional<Stat> ReadStat(pid_t pid) {
  const auto text = ReadFileToString(absl::StrCat("/proc/", pid, "/stat"));
  if (!text.ok()) return std::nullopt;
  // The command's name is in parentheses and may contain anything. The fields begin after the last
  // one.
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text->size()) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(*text).substr(name_end + 2), ' ');
  constexpr size_t kState = 0, kParent = 1, kStartTime = 19;  // numbered from field 3 of proc(5)
  Stat stat;
  stat.id.pid = pid;
  if (fields.size() <= kStartTime || fields[kState].empty() ||
      !absl::SimpleAtoi(fields[kParent], &stat.parent) ||
      !absl::SimpleAtoi(fields[kStartTime], &stat.id.start_time_ticks)) {
    return std::nullopt;
  }
  stat.state = fields[kState][0];
  return stat;
}

std::vector<pid_t> AllPids() {
  std::vector<pid_t> pids;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return pids;
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && pid > 0) pids.push_back(pid);
  }
  closedir(proc);
  return pids;
}

// True when the process was started with `marker` in its environment, and without `but_not`.
bool HasMarker(pid_t pid, absl::string_view marker, absl::string_view but_not) {
  constexpr int64_t kMostBytes = 8 << 20;
  const auto block = ReadFileToString(absl::StrCat("/proc/", pid, "/environ"), kMostBytes);
  if (!block.ok()) return false;
  bool marked = false;
  for (const absl::string_view entry : absl::StrSplit(*block, '\0')) {
    marked = marked || entry == marker;
    if (!but_not.empty() && entry == but_not) return false;
  }
  return marked;
}

std::vector<ProcessId> Marked(absl::string_view marker, absl::string_view but_not) {
  std::vector<ProcessId> found;
  for (const pid_t pid : AllPids()) {
    if (pid == getpid() || !HasMarker(pid, marker, but_not)) continue;
    const std::optional<Stat> stat = ReadStat(pid);
    if (stat.has_value() && stat->alive()) found.push_back(stat->id);
  }
  return found;
}

}  // namespace

ProcessId IdentityOf(pid_t pid) {
  const std::optional<Stat> stat = ReadStat(pid);
  return stat.has_value() ? stat->id : ProcessId{pid, 0};
}

std::vector<ProcessId> Descendants(pid_t ancestor) {
  std::vector<Stat> all;
  for (const pid_t pid : AllPids()) {
    if (const auto stat = ReadStat(pid); stat.has_value()) all.push_back(*stat);
  }
  absl::flat_hash_set<pid_t> family = {ancestor};
  std::vector<ProcessId> found;
  // A child's pid may be smaller than its parent's, so one pass is not enough.
  for (bool grew = true; grew;) {
    grew = false;
    for (const Stat& stat : all) {
      if (!family.contains(stat.parent) || !family.insert(stat.id.pid).second) continue;
      grew = true;
      if (stat.alive()) found.push_back(stat.id);
    }
  }
  return found;
}

std::vector<ProcessId> MarkedProcesses(absl::string_view job_id) {
  return Marked(absl::StrCat("GPUCTL_JOB_ID=", job_id), "");
}

std::vector<ProcessId> JobProcesses(absl::string_view job_id) {
  return Marked(absl::StrCat("GPUCTL_JOB_ID=", job_id), "GPUCTL_EXEC=1");
}

std::vector<ProcessId> ProcessesWith(absl::string_view assignment) {
  return Marked(assignment, "");
}

bool IsAlive(const ProcessId& process) {
  const std::optional<Stat> now = ReadStat(process.pid);
  return now.has_value() && now->id == process && now->alive();
}

bool SendSignal(const ProcessId& process, int signal) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
  // The descriptor holds on to the process, so that the check of its start time and the signal
  // concern the same one. Kernels before 5.3 have no such descriptor.
  const UniqueFd pinned(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pinned.valid() && errno == ESRCH) return false;
#endif
  const std::optional<Stat> now = ReadStat(process.pid);
  if (!now.has_value() || now->id != process) return false;
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
  if (pinned.valid()) {
    return syscall(SYS_pidfd_send_signal, pinned.get(), signal, nullptr, 0) == 0;
  }
#endif
  return kill(process.pid, signal) == 0;
}

}  // namespace gpuctl

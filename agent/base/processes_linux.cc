#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

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
  bool of_kernel = false;
  bool has_environment = false;  // maybe an empty one; not in exec, and not when it ends
  bool empty_environment = false;
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
  constexpr size_t kFlags = 6, kStartCode = 23, kEnvStart = 47, kEnvEnd = 48;
  constexpr uint64_t kKernelThread = 0x00200000;  // PF_KTHREAD
  uint64_t flags = 0, code = 0, begin = 0, end = 0;
  stat.of_kernel = absl::SimpleAtoi(fields[kFlags], &flags) && (flags & kKernelThread) != 0;
  // In exec the end of the environment is first its beginning. Where its code lies is set last.
  stat.has_environment = fields.size() > kEnvEnd && absl::SimpleAtoi(fields[kStartCode], &code) &&
                         absl::SimpleAtoi(fields[kEnvStart], &begin) &&
                         absl::SimpleAtoi(fields[kEnvEnd], &end) && code > 1 &&
                         end != 0;  // 1: not for our eyes
  stat.empty_environment = stat.has_environment && begin == end;
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

// True when an environment has the entry `assignment` (NAME=value). A shell that reads its own
// environment may have ended the name with a zero for that moment, as bash does.
bool HasEntry(absl::string_view block, absl::string_view assignment) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  absl::string_view before;
  for (const absl::string_view entry : absl::StrSplit(block, '\0')) {
    if (entry == assignment || (before == parts.first && entry == parts.second)) return true;
    before = entry;
  }
  return false;
}

enum class Marked { kYes, kNo, kUnsure };

// Returns whether the process was started with `marker` in its environment, and without `but_not`.
// A process has no environment for a moment in exec, and at its end.
Marked HasMarker(pid_t pid, absl::string_view marker, absl::string_view but_not) {
  constexpr int64_t kMostBytes = 8 << 20;
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const auto block = ReadFileToString(absl::StrCat("/proc/", pid, "/environ"), kMostBytes);
    // Another user's, or gone.
    if (absl::IsFailedPrecondition(block.status()) || absl::IsNotFound(block.status())) {
      return Marked::kNo;
    }
    if (block.ok() && !block->empty()) {
      if (!but_not.empty() && HasEntry(*block, but_not)) return Marked::kNo;
      return HasEntry(*block, marker) ? Marked::kYes : Marked::kNo;
    }
    const std::optional<Stat> stat = ReadStat(pid);
    // No descriptor and no memory are passing troubles.
    if (!stat.has_value() && absl::IsResourceExhausted(block.status())) return Marked::kUnsure;
    if (!stat.has_value() || !stat->alive() || stat->of_kernel) return Marked::kNo;
    if (block.ok() && stat->empty_environment) return Marked::kNo;
    if (!stat->has_environment) sched_yield();  // else it has one since a moment ago
  }
  return Marked::kUnsure;
}

ProcessSearch Search(absl::string_view marker, absl::string_view but_not) {
  ProcessSearch search;
  const std::vector<pid_t> pids = AllPids();
  search.unsure = pids.empty() && errno != ENOENT;  // no descriptor or no memory for the list
  for (const pid_t pid : pids) {
    if (pid == getpid()) continue;
    const Marked marked = HasMarker(pid, marker, but_not);
    if (marked == Marked::kNo) continue;
    const std::optional<Stat> stat = ReadStat(pid);
    if (!stat.has_value() || !stat->alive()) continue;
    if (marked == Marked::kUnsure) {
      search.unsure = true;
    } else {
      search.found.push_back(stat->id);
    }
  }
  return search;
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
  return Search(absl::StrCat("GPUCTL_JOB_ID=", job_id), "").found;
}

ProcessSearch SearchJobProcesses(absl::string_view job_id) {
  return Search(absl::StrCat("GPUCTL_JOB_ID=", job_id), "GPUCTL_EXEC=1");
}

ProcessSearch SearchProcessesWith(absl::string_view assignment) { return Search(assignment, ""); }

bool IsAlive(const ProcessId& process) {
  const std::optional<Stat> now = ReadStat(process.pid);
  return now.has_value() && now->id == process && now->alive();
}

bool StandsStill(const ProcessId& process) {
  const std::optional<Stat> now = ReadStat(process.pid);
  return !now.has_value() || now->id != process || !now->alive() || now->state == 'T' ||
         now->state == 't';
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

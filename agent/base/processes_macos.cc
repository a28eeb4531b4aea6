#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/proc.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "agent/base/processes.h"

// macOS has no /proc. sysctl(3) lists all processes (KERN_PROC_ALL), and shows the arguments and
// the environment of those of the same user (KERN_PROCARGS2). It hides the environment of Apple's
// own programs, such as /bin/sh, so those of a job are found by their parents alone.

namespace gpuctl {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;

ProcessId IdOf(const kinfo_proc& process) {
  const timeval& started = process.kp_proc.p_starttime;
  return {process.kp_proc.p_pid,
          static_cast<int64_t>(started.tv_sec) * kMicrosPerSecond + started.tv_usec};
}

bool IsZombie(const kinfo_proc& process) { return process.kp_proc.p_stat == SZOMB; }

// Returns the processes that a query selects; empty when they cannot be listed.
std::vector<kinfo_proc> List(std::vector<int> query) {
  const auto words = static_cast<u_int>(query.size());
  std::vector<kinfo_proc> processes;
  // Processes may start between the question for the size and that for the list.
  for (int tries = 0; tries < 10; ++tries) {
    size_t bytes = 0;
    if (sysctl(query.data(), words, nullptr, &bytes, nullptr, 0) != 0) return {};
    bytes += bytes / 8 + sizeof(kinfo_proc);
    processes.resize(bytes / sizeof(kinfo_proc));
    bytes = processes.size() * sizeof(kinfo_proc);
    if (sysctl(query.data(), words, processes.data(), &bytes, nullptr, 0) == 0) {
      processes.resize(bytes / sizeof(kinfo_proc));
      return processes;
    }
    if (errno != ENOMEM) return {};
  }
  return {};
}

std::vector<kinfo_proc> AllProcesses() { return List({CTL_KERN, KERN_PROC, KERN_PROC_ALL, 0}); }

std::optional<kinfo_proc> Find(pid_t pid) {
  const std::vector<kinfo_proc> found = List({CTL_KERN, KERN_PROC, KERN_PROC_PID, pid});
  if (found.size() != 1 || found[0].kp_proc.p_pid != pid) return std::nullopt;
  return found[0];
}

// Returns the "NAME=value" entries with which a process was started; empty for one of another user.
std::vector<std::string> EnvironmentOf(pid_t pid) {
  int query[] = {CTL_KERN, KERN_ARGMAX};
  int most = 0;
  size_t bytes = sizeof(most);
  if (sysctl(query, 2, &most, &bytes, nullptr, 0) != 0 || most <= 0) return {};
  std::string block(static_cast<size_t>(most), '\0');
  int arguments_query[] = {CTL_KERN, KERN_PROCARGS2, pid};
  constexpr int kMostTries = 20;
  for (int tries = 1;; ++tries) {
    bytes = block.size();
    if (sysctl(arguments_query, 3, block.data(), &bytes, nullptr, 0) == 0) break;
    // A process that is in exec has none for a moment.
    if (tries == kMostTries || (errno != EINVAL && errno != EIO)) return {};
    sched_yield();
  }
  block.resize(bytes);
  // The number of arguments, the program's path, zeros, the arguments, the environment.
  int arguments = 0;
  if (block.size() < sizeof(arguments)) return {};
  std::memcpy(&arguments, block.data(), sizeof(arguments));
  size_t at = block.find('\0', sizeof(arguments));
  at = at == std::string::npos ? at : block.find_first_not_of('\0', at);
  std::vector<std::string> entries;
  for (int skipped = 0; at < block.size();) {
    const size_t end = std::min(block.find('\0', at), block.size());
    if (skipped < arguments) {
      ++skipped;
    } else if (end > at) {
      entries.push_back(block.substr(at, end - at));
    } else {
      break;
    }
    at = end + 1;
  }
  return entries;
}

ProcessSearch Search(absl::string_view marker, absl::string_view but_not) {
  ProcessSearch search;
  for (const kinfo_proc& process : AllProcesses()) {
    const pid_t pid = process.kp_proc.p_pid;
    if (pid == getpid() || IsZombie(process)) continue;
    bool marked = false, other = false;
    for (const std::string& entry : EnvironmentOf(pid)) {
      marked = marked || entry == marker;
      other = other || (!but_not.empty() && entry == but_not);
    }
    if (marked && !other) search.found.push_back(IdOf(process));
  }
  return search;
}

}  // namespace

ProcessId IdentityOf(pid_t pid) {
  const std::optional<kinfo_proc> process = Find(pid);
  return process.has_value() ? IdOf(*process) : ProcessId{pid, 0};
}

std::vector<ProcessId> Descendants(pid_t ancestor) {
  const std::vector<kinfo_proc> all = AllProcesses();
  std::set<pid_t> family = {ancestor};
  std::vector<ProcessId> found;
  // A child's pid may be smaller than its parent's, so one pass is not enough.
  for (bool grew = true; grew;) {
    grew = false;
    for (const kinfo_proc& process : all) {
      if (family.count(process.kp_eproc.e_ppid) == 0) continue;
      if (!family.insert(process.kp_proc.p_pid).second) continue;
      grew = true;
      if (!IsZombie(process)) found.push_back(IdOf(process));
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
  const std::optional<kinfo_proc> now = Find(process.pid);
  return now.has_value() && IdOf(*now) == process && !IsZombie(*now);
}

bool StandsStill(const ProcessId& process) {
  const std::optional<kinfo_proc> now = Find(process.pid);
  return !now.has_value() || IdOf(*now) != process || IsZombie(*now) ||
         now->kp_proc.p_stat == SSTOP;
}

bool SendSignal(const ProcessId& process, int signal) {
  const std::optional<kinfo_proc> now = Find(process.pid);
  return now.has_value() && IdOf(*now) == process && kill(process.pid, signal) == 0;
}

}  // namespace gpuctl

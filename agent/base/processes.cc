#include "agent/base/processes.h"

#include <signal.h>

#include <algorithm>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "agent/base/job_cgroup.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(500);
constexpr absl::Duration kLookSoon = absl::Milliseconds(20);
constexpr int kCleanLooks = 2;
constexpr absl::Duration kUnsureAtMost = absl::Minutes(1);
// A sweep kills what it finds; what it cannot tell holds it up no longer than that.
constexpr absl::Duration kSweepUnsureAtMost = absl::Seconds(1);

// Kills the listed processes, and others by `kill_more`, until none is left and `more_left` is
// false.
absl::Status Sweep(absl::string_view what, absl::Duration patience, Clock& clock,
                   const std::function<ProcessSearch()>& search,
                   const std::function<void()>& kill_more, const std::function<bool()>& more_left) {
  constexpr absl::Duration kInterval = absl::Milliseconds(2);
  const absl::Duration begin = clock.SinceBoot();
  const absl::Duration end = begin + patience;
  while (true) {
    kill_more();
    // The list is made anew each time, because a process may have forked before the signal.
    const auto [left, may_be_more] = search();
    const bool unsure = may_be_more && clock.SinceBoot() < begin + kSweepUnsureAtMost;
    if (left.empty() && !unsure && !more_left()) return absl::OkStatus();
    for (const ProcessId& process : left) SendSignal(process, SIGKILL);
    if (clock.SinceBoot() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("sweep ", what, ": a process does not die",
                       left.empty() ? "" : absl::StrCat(" (", left.front().pid, ")")));
    }
    clock.SleepFor(kInterval);
  }
}

// What makes others faster than it can be frozen is signalled as it is.
constexpr int kFreezeRounds = 50;
// What does not stand still after that many looks waits for a device, or for a child (vfork).
constexpr int kIdleRounds = 10;

}  // namespace

std::vector<ProcessId> Freeze(const std::function<ProcessSearch()>& list) {
  std::vector<ProcessId> frozen;
  int idle = 0, quiet = 0;  // rounds without a new process; those in which none can come
  for (int round = 0; round < kFreezeRounds && idle < kIdleRounds && quiet < 2; ++round) {
    const size_t before = frozen.size();
    // A fork that has begun ends before its process stands still.
    const bool still = absl::c_all_of(frozen, StandsStill);
    const ProcessSearch tree = list();
    for (const ProcessId& process : tree.found) {
      if (absl::c_linear_search(frozen, process)) continue;
      SendSignal(process, SIGSTOP);
      frozen.push_back(process);
    }
    idle = frozen.size() == before ? idle + 1 : 0;
    // Twice, because a process may make a child and end behind the list's back.
    quiet = idle > 0 && still && !tree.unsure ? quiet + 1 : 0;
  }
  return frozen;
}

std::vector<ProcessId> TerminateOnce(const std::function<ProcessSearch()>& list) {
  // A child that is made between the list and the signal would never get it; a frozen process makes
  // none.
  std::vector<ProcessId> tree = Freeze(list);
  for (const ProcessId& process : tree) SendSignal(process, SIGTERM);
  // Children first: a shell with job control would take a child that is still stopped for one that
  // its user has suspended.
  for (auto it = tree.rbegin(); it != tree.rend(); ++it) SendSignal(*it, SIGCONT);
  return tree;
}

std::vector<ProcessId> JobProcesses(absl::string_view job_id) {
  return SearchJobProcesses(job_id).found;
}

std::vector<ProcessId> ProcessesWith(absl::string_view assignment) {
  return SearchProcessesWith(assignment).found;
}

std::optional<absl::Duration> OrphanSearch::Look() {
  const ProcessSearch search = SearchJobProcesses(job_id_);
  const absl::Duration now = clock_.SinceBoot();
  unsure_since_ = search.unsure ? std::min(unsure_since_, now) : absl::InfiniteDuration();
  const bool unsure = search.unsure && now - unsure_since_ < kUnsureAtMost;
  clean_looks_ = search.found.empty() && !unsure ? clean_looks_ + 1 : 0;
  if (clean_looks_ >= kCleanLooks) return std::nullopt;
  return search.found.empty() ? kLookSoon : kLookInterval;
}

absl::Status SweepJob(const JobPaths& paths, absl::string_view job_id, absl::Duration patience,
                      Clock& clock) {
  const absl::Status status = Sweep(
      absl::StrCat("job ", job_id), patience, clock, [&] { return SearchJobProcesses(job_id); },
      [&] { KillJobCgroup(paths, job_id); }, [&] { return JobCgroupHasProcesses(paths, job_id); });
  if (status.ok()) RemoveJobCgroup(paths, job_id);
  return status;
}

absl::Status SweepJob(absl::string_view job_id, absl::Duration patience, Clock& clock) {
  return Sweep(
      absl::StrCat("job ", job_id), patience, clock, [&] { return SearchJobProcesses(job_id); },
      [] {}, [] { return false; });
}

absl::Status SweepProcessesWith(absl::string_view assignment, absl::Duration patience,
                                Clock& clock) {
  return Sweep(
      assignment, patience, clock, [&] { return SearchProcessesWith(assignment); }, [] {},
      [] { return false; });
}

}  // namespace gpuctl

#include "agent/self_check.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/base/node_root.h"
#include "agent/base/platform.h"
#include "agent/base/processes.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kSeenWithin = absl::Seconds(3);

void Print(bool ok, absl::string_view name, const std::string& found, const std::string& fix) {
  printf("%s\t%s\t%s\t%s\n", ok ? "ok" : "FAIL", std::string(name).c_str(), found.c_str(),
         ok ? "" : fix.c_str());
}

bool Has(const std::vector<ProcessId>& processes, pid_t pid) {
  return std::any_of(processes.begin(), processes.end(),
                     [pid](const ProcessId& process) { return process.pid == pid; });
}

// A child in a session of its own that reads its stdin until we are gone.
class Child {
 public:
  Child(std::vector<std::string> argv, const std::string& job_id) {
    absl::StatusOr<FdPair> ends = MakePipe("make a pipe");
    if (!ends.ok()) return;
    end_ = std::move(ends->second);
    SpawnOptions options;
    options.argv = std::move(argv);
    options.stdin_fd = ends->first.get();
    options.new_session = true;
    options.env = {absl::StrCat("GPUCTL_JOB_ID=", job_id)};
    const absl::StatusOr<pid_t> pid = Spawn(options);
    if (pid.ok()) id_ = IdentityOf(*pid);
  }
  ~Child() {
    if (id_.pid > 0) End();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Kills it. True when it was alive before, by its identity, and is not afterwards.
  bool End() {
    const bool was = IsAlive(id_) && SendSignal(id_, SIGKILL);
    end_.reset();
    int status = 0;
    while (waitpid(id_.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const bool is = IsAlive(id_);
    id_.pid = 0;
    return was && !is;
  }
  const ProcessId& id() const { return id_; }

 private:
  UniqueFd end_;
  ProcessId id_;
};

// True when `holds` does so within a moment: what was just started may not be listed yet.
template <typename Condition>
bool Soon(const Condition& holds) {
  Clock& clock = Clock::Real();
  for (const absl::Duration end = clock.SinceBoot() + kSeenWithin; clock.SinceBoot() < end;) {
    if (holds()) return true;
    clock.SleepFor(absl::Milliseconds(10));
  }
  return false;
}

void CheckProcesses(const std::string& program) {
  const std::string job_id = NewJobId();
  Child own({program, "self-check", "--wait"}, job_id);
  const Child foreign({"/bin/cat"}, job_id);
  const bool started = own.id().pid > 0 && own.id().start_time_ticks != 0;
  Print(started && own.id() == IdentityOf(own.id().pid), "process start times",
        started ? "a process is told from a later one with its pid"
                : "the start time of a process is not known",
        "gpuctl may take a later process for an earlier one: mount /proc");
  const bool descends = Soon([&] {
    const std::vector<ProcessId> all = Descendants(getpid());
    return Has(all, own.id().pid) && Has(all, foreign.id().pid);
  });
  Print(descends, "descendants",
        descends ? "children in sessions of their own are found"
                 : "children in sessions of their own are not found",
        "what a job starts in the background may outlive it: mount /proc, for this user");
  const bool own_marked = Soon([&] { return Has(JobProcesses(job_id), own.id().pid); });
  const bool foreign_marked =
      own_marked && Soon([&] { return Has(JobProcesses(job_id), foreign.id().pid); });
  const bool adopts = BecomeSubreaper();
  ResignSubreaper();
  // One of the two ways must find a process whose parent is gone.
  const std::string orphans = adopts ? "orphans are adopted" : "orphans are not adopted here";
  Print(
      own_marked && (foreign_marked || adopts), "processes of a job",
      foreign_marked ? absl::StrCat("found by their environment; ", orphans)
      : own_marked
          ? absl::StrCat("found by their environment, but not the system's own programs; ", orphans)
          : absl::StrCat("not found by their environment; ", orphans),
      "a program such as /bin/sh that a job starts in a session of its own, and leaves, outlives "
      "stop: end it in the job's handler of SIGTERM");
  const bool ended = own.End();
  Print(ended, "signals to processes",
        ended ? "a process was killed, and is known to be gone"
              : "a process that was killed is not known to be gone",
        "report it: gpuctl cannot tell here whether a job lives");
}

}  // namespace

int RunSelfCheck(const std::string& program, const std::string& root) {
  const std::string boot = BootId();
  Print(boot != "unknown" && !boot.empty(), "boot id",
        boot == "unknown" ? "not known" : absl::StrCat("known: ", boot),
        "gpuctl does not notice here that a restart ended a job: mount /proc");
  std::string there = root;
  while (there.size() > 1 && !PathExists(there)) there = DirName(there);
  const std::string network = NetworkFileSystem(there);
  Print(network.empty(), "node root",
        network.empty() ? absl::StrCat(root, ": on a local file system")
                        : absl::StrCat(root, ": on a network file system (", network,
                                       "), where locks tell nothing"),
        "export GPUCTL_NODE_ROOT=/a/local/directory");
  CheckProcesses(program);
  return 0;
}

}  // namespace gpuctl

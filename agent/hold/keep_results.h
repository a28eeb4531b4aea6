// `gpuctl-agent keep-results`: keeps what an allocation's jobs write on the cluster's shared file
// system, in a process of its own, because such a file system may hang.
#ifndef GPUCTL_AGENT_HOLD_KEEP_RESULTS_H_
#define GPUCTL_AGENT_HOLD_KEEP_RESULTS_H_

#include <sys/types.h>

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The exit code of a keeper that has found the directory not to be shared.
inline constexpr int kExitNotShared = 3;
// The exit code of a keeper whose allocation Slurm has started again elsewhere.
inline constexpr int kExitReplaced = 4;
inline constexpr char kKeepNoMore = 'e';

// Waits until `directory` has the token, at most `patience`: a network file system may show what
// another machine has just made only seconds later. NOT_FOUND when it does not come, and at once
// when `stop` returns true.
absl::Status FindToken(const std::string& directory, const std::string& token,
                       absl::Duration patience, const std::function<bool()>& stop, Clock& clock);

// What a keeper also does while jobs run, every few seconds, on a thread of its own. Gets the
// node's root, and the directory of results. ABORTED: Slurm has started the allocation again
// elsewhere, and nothing here counts any more.
using KeepAlso = std::function<absl::Status(const RootPaths& from, const std::string& directory)>;

// Runs until its stdin ends, or has kKeepNoMore: that is the allocation's end, so it copies
// everything once more then, and writes end.json (kept_layout.h). It ignores SIGTERM, which some
// clusters send to every process of an allocation. Returns 0 then, kExitNotShared,
// kExitReplaced, or 1 after printing why.
int RunKeepResults(const std::string& root, const std::string& directory, const KeepAlso& also);

// The holder's keeper of results, where the batch script's environment asks for one. Used by one
// thread.
class ResultsKeeperProcess {
 public:
  ResultsKeeperProcess(const RootPaths& paths, Clock& clock);
  // Starts it, or starts it again, with this program. Call it every second.
  void Tend(const std::string& program);
  // Tell it of each child that has ended, with waitpid's status.
  void Ended(pid_t pid, int status);
  // True when it has ended with kExitReplaced.
  bool replaced() const { return replaced_; }
  // Tells it that another program takes its place, and the holder's.
  void Leave();
  // Asks it to end. True when it has, when there is none, and after a minute. Call it again and
  // again, and no Tend any more.
  bool Finish();

 private:
  const RootPaths paths_;
  Clock& clock_;
  const std::string directory_;  // empty: nothing is to be kept
  pid_t pid_ = -1;
  UniqueFd control_;  // its stdin
  bool given_up_ = false;
  bool replaced_ = false;
  absl::Duration next_start_ = -absl::InfiniteDuration();
  absl::Duration asked_ = absl::InfiniteDuration();
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_KEEP_RESULTS_H_

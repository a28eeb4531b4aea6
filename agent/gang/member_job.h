// The job of a gang's member, as its keeper sees it and ends it: by its files and its lock, as the
// server does, so that neither needs the other.
#ifndef GPUCTL_AGENT_GANG_MEMBER_JOB_H_
#define GPUCTL_AGENT_GANG_MEMBER_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/gang/gang_words.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// One attempt, as of one look.
struct MemberView {
  bool begun = false;
  std::string stopping;        // why it is being stopped; "" while it is not
  std::optional<GangEnd> end;  // its last line
};

// Not thread-safe.
class MemberJob {
 public:
  MemberJob(JobPaths paths, StoredSpec stored, Clock& clock)
      : paths_(std::move(paths)), stored_(std::move(stored)), clock_(clock) {}

  const JobPaths& paths() const { return paths_; }
  const gpuctl::v1::Gang& gang() const { return stored_.spec.gang(); }

  // True when the attempt has the GPUs that it needs.
  bool HasGpus(int attempt) const;
  // True when the job's policy wants another attempt after this one was lost.
  bool RetriesLost(int attempt) const;
  // True when this job's own settings allow an attempt after this one, whatever others say, and
  // nobody has stopped it. `more`: attempts that count as no retry.
  bool MayRetry(int attempt, int more) const;
  absl::Duration grace() const { return absl::Milliseconds(stored_.spec.grace_ms()); }
  // Looks at the lifecycle. Nothing of the attempt is known when that cannot be read.
  MemberView Look(int attempt) const;
  // Ends the attempt for this reason: with the job's grace when it has begun, else at once. Does
  // nothing to an attempt that has ended. Call it again until Look shows the end; it tells the shim
  // once.
  void End(int attempt, const std::string& reason);
  // Records what the whole gang came to, behind the job's own end: the code and reason of the
  // member that ended first. Waits a few seconds for the shim to be gone.
  absl::Status Conclude(int attempt, const GangOutcome& outcome);
  // Makes sure that the attempt after this one is announced.
  absl::Status Announce(int attempt, int64_t delay_ms);
  // True when the end of the job's output says that `port` was taken.
  bool SaysPortWasTaken(int port) const;
  // Returns the steps of the newest checkpoints. The hashes of the first few are right, and the
  // sizes of all. May take long.
  static std::vector<int64_t> WholeSteps(const JobPaths& paths);

 private:
  const JobPaths paths_;
  const StoredSpec stored_;
  Clock& clock_;
  int told_ = 0;  // the attempt whose shim was told to end
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_MEMBER_JOB_H_

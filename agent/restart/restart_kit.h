// What the next start of a Slurm allocation needs, kept on the cluster's shared file system while
// the jobs run: `gpuctl-agent keep-results` does that. With it, Slurm may start the allocation
// again by itself, on any node, and nobody else is needed (agent/restart/start_again.h).
#ifndef GPUCTL_AGENT_RESTART_RESTART_KIT_H_
#define GPUCTL_AGENT_RESTART_RESTART_KIT_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// Tells Slurm whether to start the allocation again when it takes it away (`scontrol update
// Requeue=`).
using TellSlurm = std::function<absl::Status(const std::string& job, bool again)>;

// True for a job whose retry asks for it, and that can begin another attempt with nothing but what
// lies on the file system: one with secrets, or a part of a run on several machines, cannot.
bool MayStartAgain(const gpuctl::v1::JobSpec& spec);
// The same for its next attempt: false when the retries are used up, or the job is over.
bool MayStartAgain(const gpuctl::v1::JobSpec& spec, const Lifecycle& lifecycle);

// The same for a job of `copy`, with what is known of its past: one that was accepted before the
// first start of its allocation (agent/restart/staged.h) may begin whatever its retry says.
bool MayGoOn(const RootPaths& copy, const gpuctl::v1::JobSpec& spec, const Lifecycle& lifecycle);

// Copies the programs of an agent to `again`, so that the next start has them as if a client had
// sent them.
absl::Status KeepPrograms(const std::string& bundle_dir, const RootPaths& again);

// Return the jobs that a root has accepted, and the digests of the stored trees that a job needs.
std::vector<std::string> JobsOfRoot(const RootPaths& paths);
std::vector<std::string> TreesOf(const gpuctl::v1::JobSpec& spec);

// Asks Slurm for the state of an allocation: "PENDING"; "" when it knows none. UNAVAILABLE when it
// does not say.
absl::StatusOr<std::string> StateInSlurm(const std::string& job);

// For an allocation in Slurm's queue, after a job in it was stopped (NoteStopped): takes it out of
// the queue when no other job of `copy` goes on. OK when its next start, if there is one, comes
// after that note. UNAVAILABLE when it has started already, or Slurm does not answer.
absl::Status SettleInQueue(const RootPaths& copy, const std::string& directory);

// Used by one thread.
class RestartKit {
 public:
  // `bundle_dir` has the agent's programs.
  explicit RestartKit(std::string bundle_dir, TellSlurm tell = nullptr);
  // Copies what is missing of the programs and the content of jobs that may start again, then says
  // so to Slurm and in the root (GoesOnAfterwards); and takes that back when no job is left that
  // may. `directory` is that of the lease's results. ABORTED when a later start of the allocation
  // has begun. After another error the jobs that it concerns do not start again.
  absl::Status Keep(const RootPaths& from, const std::string& directory);

 private:
  absl::Status Tell(const RootPaths& from, const std::string& job,
                    const std::set<std::string>& who);

  const std::string bundle_dir_;
  const TellSlurm tell_;
  std::optional<std::set<std::string>> told_;
  std::string limits_;  // the content that was copied
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RESTART_RESTART_KIT_H_

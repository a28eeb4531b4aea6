// What Slurm's commands print. Formats are asked for by format strings: the JSON of these commands
// depends on the version and the build, and scontrol has none. Pure.
#ifndef GPUCTL_PROVISIONING_SLURM_SLURM_TEXT_H_
#define GPUCTL_PROVISIONING_SLURM_SLURM_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// One "gpu" of a generic resource: "gpu:a100:4(S:0-1)" has the type "a100", "gpu:4" has none.
struct GpuGres {
  std::string type;
  int count = 0;
};
// Returns the GPUs in a list of generic resources as sinfo and squeue print it.
std::vector<GpuGres> ParseGpuGres(absl::string_view text);

// Returns a time as Slurm prints it: "1-02:03:04", "02:03:04", "03:04" (minutes and seconds), "30"
// (minutes); infinite for "infinite" and "UNLIMITED". Absent for anything else: "INVALID",
// "NOT_SET".
std::optional<absl::Duration> ParseSlurmTime(absl::string_view text);

// Nodes of one partition that are alike.
struct PartitionRow {
  std::string partition;
  bool usual = false;  // the cluster's default
  bool up = false;
  absl::Duration longest;  // a job may last; infinite: no limit
  int64_t nodes = 0;
  std::vector<GpuGres> gpus;  // of one node
  std::string state;          // "idle", "mix", "alloc", "down*", …
  int64_t cpus = 0;
  int64_t memory_mib = 0;
};
// The format of sinfo for ParseSinfo.
inline constexpr absl::string_view kSinfoFormat = "%P|%a|%l|%D|%G|%t|%c|%m";
// UNKNOWN for a line with another number of fields.
absl::StatusOr<std::vector<PartitionRow>> ParseSinfo(absl::string_view text);
// True for a state from which a node comes back by itself.
bool NodeStateServes(absl::string_view state);

// A job as squeue has it.
struct JobRow {
  std::string id;  // "123"; of an array "123_4" or "123_[4-9]"
  std::string state;
  std::string reason;
  int64_t starts_s = 0;     // or started, in Unix seconds; 0: not known
  int64_t submitted_s = 0;  // the same
  std::optional<absl::Duration> left;
  std::vector<GpuGres> gpus;  // of one node
  std::string partition;
  std::string nodes;
  std::string name;
};
// The format of squeue for ParseSqueue, with SLURM_TIME_FORMAT=%s. The name is last, because it may
// contain anything, also ends of lines; "|;" ends a job.
inline constexpr absl::string_view kSqueueFormat = "%i|%T|%S|%V|%L|%b|%P|%N|%r|%j|;";
// UNKNOWN for an answer that is none, or was cut.
absl::StatusOr<std::vector<JobRow>> ParseSqueue(absl::string_view text);

// What a state of a job means for a machine. `reason` is that of a job that waits.
struct JobMeaning {
  Instance::State state = Instance::State::kStarting;
  bool gone = false;       // it is over
  bool taken = false;      // and the cluster took it away before its time
  bool suspended = false;  // it has its node, and its processes are stopped
  bool held = false;       // it waits until a person releases it
  std::string message;     // for people: the words of Slurm, and what they mean where that helps
};
JobMeaning MeaningOf(absl::string_view state, absl::string_view reason);

// Returns when a job would start, in Unix seconds, by what `sbatch --test-only` writes to stderr
// with SLURM_TIME_FORMAT=%s; 0 where it does not say.
int64_t StartInTestOnly(absl::string_view text);

// Returns the number of the job that `sbatch --parsable` made: "123" of "123" and "123;cluster".
// Empty for anything else.
std::string JobOfSbatch(absl::string_view text);

// Returns how many tasks an array may have, by what `scontrol show config` prints; 0: none has any.
// UNKNOWN where it does not say.
absl::StatusOr<int64_t> MostTasksInConfig(absl::string_view text);

// Returns the status of a command that failed, with its words. `making`: of a command that makes a
// job, which may exist although the command failed.
//   UNAVAILABLE        the controller does not answer
//   DEADLINE_EXCEEDED  the same, and the job may exist
//   NOT_FOUND          there is no such job
//   RESOURCE_EXHAUSTED the account's or the cluster's limits
//   PERMISSION_DENIED  the user has no right
//   INVALID_ARGUMENT   the request is one that the cluster never takes
//   UNKNOWN            anything else
absl::Status StatusOfFailure(absl::string_view doing, int exit_code, absl::string_view err,
                             bool making);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_SLURM_SLURM_TEXT_H_

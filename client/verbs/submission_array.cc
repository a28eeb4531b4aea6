// Whether the runs of a batch become tasks of an array, where the user asks for that.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/rent/lease_limits.h"
#include "client/rent/leave_in_queue.h"
#include "client/spec/launch_record.h"
#include "client/verbs/submission.h"
#include "common/base/status_macros.h"
#include "provisioning/market/provider.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// Returns all by which the allocation of one run differs from that of another.
std::string AllocationOf(const RunSpec& spec) {
  std::vector<std::string> gpus;
  for (const GpuRequirement& gpu : spec.gpu) {
    gpus.push_back(absl::StrCat(gpu.text, ":", gpu.name, ":", gpu.count));
  }
  return absl::StrJoin(
      {absl::StrJoin(gpus, ","), absl::StrJoin(spec.regions, ","), absl::StrCat(spec.disk_bytes),
       absl::FormatDuration(MostLifetime(spec)), spec.slurm.partition, spec.slurm.account,
       spec.slurm.qos, spec.slurm.constraint, absl::FormatDuration(spec.slurm.time),
       absl::StrJoin(spec.slurm.flags, "\n")},
      "\t");
}

}  // namespace

absl::Status Submission::CheckArrayFlags() const {
  if (schedule_.has_value()) {
    return UsageError("--array does not go with every:, which starts one run at each time",
                      "gpuctl submit --help");
  }
  for (const Source& source : sources_) {
    const RunSpec& spec = source.record.spec;
    const bool on_cluster = source.plan.rents && hosts_.empty() && spec.providers.size() == 1 &&
                            spec.providers.front() == kClusterProvider;
    if (!on_cluster) {
      return UsageError(
          "--array is for runs on a Slurm cluster alone",
          absl::StrCat("add --provider ", kClusterProvider, ", and name no other machine"));
    }
    if (spec.gpus.has_value()) {
      return UsageError("--array gives each run an allocation, and --gpus lets runs share one",
                        "leave one of them out");
    }
  }
  return absl::OkStatus();
}

absl::Status Submission::WhyNoArray() const {
  std::string first_allocation;
  for (const Entry& entry : entries_) {
    ASSIGN_OR_RETURN(const LaunchRecord record, ParseLaunchRecord(entry.launch_json));
    RETURN_IF_ERROR(CanBeLeft(record.spec));
    const std::string allocation = AllocationOf(record.spec);
    if (first_allocation.empty()) first_allocation = allocation;
    if (allocation != first_allocation) {
      return absl::FailedPreconditionError("its runs need different allocations");
    }
  }
  ASSIGN_OR_RETURN(const std::vector<Market> markets,
                   holdings_.Open({std::string(kClusterProvider)}));
  return markets.front().provider->MostInArray().status();
}

absl::Status Submission::PlanArray() {
  const bool goes_on = before_.has_value() && !replaces_;
  if (goes_on) batch_.array = before_->batch.array;
  if (!flags_.array) return absl::OkStatus();
  RETURN_IF_ERROR(CheckArrayFlags());
  if (goes_on) return absl::OkStatus();
  const absl::Status why = WhyNoArray();
  if (!why.ok() && !absl::IsFailedPrecondition(why)) return why;
  batch_.array = why.ok();
  one_by_one_ = std::string(why.message());
  return absl::OkStatus();
}

void Submission::AddArray(std::vector<std::string>& lines) const {
  if (batch_.array) {
    const bool limited = batch_.max_parallel < static_cast<int>(entries_.size());
    lines.push_back(absl::StrCat("array     one array of Slurm: each run is a task, ",
                                 limited
                                     ? absl::StrCat("at most ", batch_.max_parallel, " run at once")
                                     : "all may run at once",
                                 ", and its allocation ends with it"));
  } else if (!one_by_one_.empty()) {
    lines.push_back(
        absl::StrCat("warning   no array, so the runs are submitted one by one: ", one_by_one_));
  }
}

}  // namespace gpuctl

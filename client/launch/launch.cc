#include "client/launch/launch.h"

#include <string>

#include "common/job/job_layout.h"
#include "provisioning/markets.h"

namespace gpuctl {

void CompleteJob(const LaunchPlan& plan, const NodeTarget& target, const ChosenTrainer* trainer,
                 gpuctl::v1::JobSpec& job) {
  if (trainer != nullptr) {
    SetTrainerStart(trainer->start, job);
    if (trainer->tree.has_value()) AddDataTrees({*trainer->tree}, "", job);
  }
  if (target.provider == kClusterProvider) {
    for (const std::string& pattern : plan.row.checkpoint_patterns) {
      job.mutable_kept()->add_checkpoints(pattern);
    }
    for (const std::string& pattern : plan.row.artifact_patterns) {
      job.mutable_kept()->add_artifacts(pattern);
    }
  }
}

Launch BeginLaunch(const LaunchPlan& plan, const NodeTarget& target, const ChosenTrainer* trainer) {
  gpuctl::v1::JobSpec job = plan.job;
  CompleteJob(plan, target, trainer, job);
  const StoredSpec stored{SpecDigest(job), job};
  Launch launch;
  launch.row = plan.row;
  launch.row.target = target;
  launch.row.spec_json = FormatStoredSpec(stored);
  *launch.start.mutable_spec() = stored.spec;
  launch.start.set_spec_digest(stored.spec_digest);
  for (const auto& [name, value] : plan.secrets) (*launch.start.mutable_secrets())[name] = value;
  return launch;
}

}  // namespace gpuctl

#include "client/launch/launch.h"

#include "common/job/job_layout.h"

namespace gpuctl {

Launch BeginLaunch(const LaunchPlan& plan, const NodeTarget& target, const ChosenTrainer* trainer) {
  gpuctl::v1::JobSpec job = plan.job;
  if (trainer != nullptr) {
    SetTrainerStart(trainer->start, job);
    if (trainer->tree.has_value()) AddDataTrees({*trainer->tree}, "", job);
  }
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

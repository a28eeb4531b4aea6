#include "client/node/tell_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace gpuctl {

gpuctl::v1::NodeLimits MakeNodeLimits(const Lease& lease, const NodeLimitFacts& facts,
                                      int64_t now_ms) {
  gpuctl::v1::NodeLimits message;
  message.set_revision(now_ms);
  message.set_lease_id(lease.lease_id);
  message.set_provider(lease.provider);
  message.set_instance_id(lease.instance_id);
  message.set_release_base_url(facts.release_base_url);
  message.set_rate_usd_per_hour(lease.usd_per_hour());
  message.set_spent_before_usd(facts.spent_usd);
  message.set_billing_started_ms(lease.intended_ms);
  message.set_cost_usd(lease.limits.cost_usd);
  message.set_idle_s(lease.limits.idle_s);
  // 0 means no limit.
  message.set_salvage_s(std::max(int64_t{1}, lease.limits.salvage_s));
  message.set_lease_s(lease.limits.contact_s);
  message.set_grace_ms(absl::ToInt64Milliseconds(facts.grace));
  message.set_self_release(facts.self_release);
  message.set_checkpoints_only(facts.checkpoints_only);
  message.set_upload_usd_per_gb(lease.upload_usd_per_gb);
  message.set_download_usd_per_gb(lease.download_usd_per_gb);
  message.set_sent_before_bytes(lease.sent_count);
  message.set_received_before_bytes(lease.received_count);
  return message;
}

absl::StatusOr<gpuctl::v1::NodeLimitsState> SendNodeLimits(NodeCalls& calls,
                                                           const gpuctl::v1::NodeLimits& limits) {
  ASSIGN_OR_RETURN(gpuctl::v1::NodeLimitsState state, calls.SetNodeLimits(limits));
  if (state.limits().revision() != limits.revision()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "set the node's limits: newer ones hold, of lease ", state.limits().lease_id()));
  }
  return state;
}

absl::StatusOr<gpuctl::v1::NodeLimitsState> TellHome(NodeCalls& calls, const RunRow& row,
                                                     std::optional<int64_t> step, bool all) {
  gpuctl::v1::MarkHomeRequest request;
  gpuctl::v1::JobHome& home = *request.add_jobs();
  home.set_job_id(row.job_id);
  if (step.has_value()) home.set_checkpoint_step(*step);
  home.set_all_home(all);
  return calls.MarkHome(request);
}

bool IsJobOver(const gpuctl::v1::HelloReply& node, const std::string& job_id) {
  for (const gpuctl::v1::Job& job : node.jobs()) {
    if (job.job_id() == job_id) return job.state() == gpuctl::v1::JOB_STATE_FINISHED;
  }
  return false;
}

}  // namespace gpuctl

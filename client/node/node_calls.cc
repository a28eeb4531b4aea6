#include "client/node/node_calls.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/link/agent_calls.h"
#include "client/link/api_check.h"
#include "client/node/explain_error.h"
#include "client/terminal/console.h"
#include "common/base/api_level.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

// The size of a page of files, and the most files that a list may have: a node's answer must fit
// into the laptop's memory.
constexpr int64_t kListPageBytes = 2 << 20;
constexpr int kMostListedFiles = 2'000'000;

constexpr int64_t kCallTimeoutMs = 30'000;
constexpr absl::Duration kGpusListedWithin = absl::Seconds(20);
constexpr absl::Duration kAskForGpusEvery = absl::Milliseconds(200);
// Longest time between the end of a link's stream and the report of its reason.
constexpr absl::Duration kLinkEndPatience = absl::Seconds(1);

}  // namespace

absl::StatusOr<NodeCalls> NodeCalls::Connect(CommandContext& context, LinkFactory& links,
                                             const NodeTarget& target) {
  const absl::Duration begin = context.clock.SinceBoot();
  absl::StatusOr<std::unique_ptr<Link>> link = links.ConnectForCalls();
  if (context.trace) {
    context.Trace(absl::StrFormat("link to %s: %s in %.1f ms", target.name,
                                  absl::StatusCodeToString(link.status().code()),
                                  absl::ToDoubleMilliseconds(context.clock.SinceBoot() - begin)));
  }
  if (!link.ok()) return ExplainLinkError(link.status(), target);
  return NodeCalls(context, links, target, *std::move(link));
}

template <typename Request, typename Reply, typename Method>
absl::Status NodeCalls::Try(const char* name, const Request& request, Method method, Reply& reply) {
  const absl::Duration begin = context_.clock.SinceBoot();
  grpc::ClientContext call;
  call.set_deadline(gpr_time_from_millis(kCallTimeoutMs, GPR_TIMESPAN));
  const grpc::Status status = ((*link_->agent().stub).*method)(&call, request, &reply);
  if (context_.trace) {
    context_.Trace(absl::StrFormat("%s: %s in %.1f ms", name,
                                   absl::StatusCodeToString(FromGrpc(status).code()),
                                   absl::ToDoubleMilliseconds(context_.clock.SinceBoot() - begin)));
  }
  absl::Status failure = FromGrpc(status);
  if (absl::IsDeadlineExceeded(failure)) failure = absl::UnavailableError("no answer for 30 s");
  // gRPC knows only that its socket was closed; the link knows the reason a moment later.
  const absl::Duration patience_ends = context_.clock.SinceBoot() + kLinkEndPatience;
  while (absl::IsUnavailable(failure) && status.error_code() != grpc::DEADLINE_EXCEEDED &&
         link_->status().ok() && context_.clock.SinceBoot() < patience_ends) {
    context_.clock.SleepFor(absl::Milliseconds(2));
  }
  if (absl::IsUnavailable(failure) && !link_->status().ok()) failure = link_->status();
  return Annotate(failure, name);
}

template <typename Request, typename Reply, typename Method>
absl::StatusOr<Reply> NodeCalls::Call(const char* name, const Request& request, Method method) {
  Reply reply;
  // An earlier call may have lost the link without getting another one.
  absl::Status status =
      link_ == nullptr ? absl::UnavailableError("no link") : Try(name, request, method, reply);
  if (absl::IsUnavailable(status)) {
    // Its destruction tells the factory what the next link has to repair first.
    link_.reset();
    absl::StatusOr<std::unique_ptr<Link>> link = links_.ConnectForCalls();
    if (!link.ok()) return ExplainLinkError(link.status(), target_);
    link_ = *std::move(link);
    status = Try(name, request, method, reply);
    if (absl::IsUnavailable(status)) return ExplainLinkError(status, target_);
  }
  if (FaultOf(status) == LinkFault::kServerStuck) return ExplainLinkError(status, target_);
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<std::vector<gpuctl::v1::Job>> NodeCalls::ListJobs() {
  std::vector<gpuctl::v1::Job> jobs;
  gpuctl::v1::ListJobsRequest request;
  for (bool more = true; more;) {
    const absl::StatusOr<gpuctl::v1::ListJobsReply> page =
        Call<gpuctl::v1::ListJobsRequest, gpuctl::v1::ListJobsReply>(
            "list the node's jobs", request, &gpuctl::v1::Agent::StubInterface::ListJobs);
    if (absl::IsUnimplemented(page.status())) {
      ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, Hello());
      return std::vector<gpuctl::v1::Job>(node.jobs().begin(), node.jobs().end());
    }
    RETURN_IF_ERROR(page.status());
    jobs.insert(jobs.end(), page->jobs().begin(), page->jobs().end());
    more = page->more() && page->jobs_size() > 0;
    if (more) request.set_after_job_id(jobs.back().job_id());
  }
  return jobs;
}

absl::StatusOr<gpuctl::v1::HelloReply> NodeCalls::Hello(const std::vector<std::string>& job_ids) {
  gpuctl::v1::HelloRequest request;
  request.set_jobs(gpuctl::v1::HelloRequest::JOBS_LIVE);
  for (const std::string& job_id : job_ids) request.add_job_ids(job_id);
  request.set_api_level(kApiLevel);
  request.set_client_version(GPUCTL_VERSION);
  ASSIGN_OR_RETURN(
      gpuctl::v1::HelloReply reply,
      (Call<gpuctl::v1::HelloRequest, gpuctl::v1::HelloReply>(
          "ask the node who it is", request, &gpuctl::v1::Agent::StubInterface::Hello)));
  const absl::Status enough = CheckApiLevel(reply);
  if (!enough.ok()) return ExplainLinkError(enough, target_);
  return reply;
}

absl::StatusOr<gpuctl::v1::HelloReply> NodeCalls::HelloWithGpus(Clock& clock) {
  const absl::Duration end = clock.SinceBoot() + kGpusListedWithin;
  for (;;) {
    ASSIGN_OR_RETURN(gpuctl::v1::HelloReply hello, Hello());
    if (hello.has_gpu_slots() || clock.SinceBoot() >= end) return hello;
    clock.SleepFor(kAskForGpusEvery);
  }
}

absl::StatusOr<gpuctl::v1::Job> NodeCalls::StartJob(const gpuctl::v1::StartJobRequest& request) {
  return Call<gpuctl::v1::StartJobRequest, gpuctl::v1::Job>(
      "start the job", request, &gpuctl::v1::Agent::StubInterface::StartJob);
}

absl::StatusOr<gpuctl::v1::Job> NodeCalls::StopJob(const std::string& job_id,
                                                   const std::string& reason,
                                                   const std::string& node_id) {
  gpuctl::v1::StopJobRequest request;
  request.set_job_id(job_id);
  request.set_reason(reason);
  request.set_expected_node_id(node_id);
  return Call<gpuctl::v1::StopJobRequest, gpuctl::v1::Job>(
      "stop the job", request, &gpuctl::v1::Agent::StubInterface::StopJob);
}

absl::StatusOr<gpuctl::v1::Job> NodeCalls::SetJobTime(const std::string& job_id,
                                                      absl::Duration time,
                                                      const std::string& node_id) {
  gpuctl::v1::SetJobTimeRequest request;
  request.set_job_id(job_id);
  request.set_time_s(absl::ToInt64Seconds(time));
  request.set_expected_node_id(node_id);
  return Call<gpuctl::v1::SetJobTimeRequest, gpuctl::v1::Job>(
      "set the job's time", request, &gpuctl::v1::Agent::StubInterface::SetJobTime);
}

absl::StatusOr<gpuctl::v1::ListArtifactsReply> NodeCalls::ListArtifacts(
    const std::string& job_id, const std::string& pattern,
    const std::vector<std::string>& checkpoint_patterns) {
  gpuctl::v1::ListArtifactsRequest request;
  request.set_job_id(job_id);
  request.set_pattern(pattern);
  for (const std::string& each : checkpoint_patterns) request.add_checkpoint_patterns(each);
  request.set_behind_links(true);
  request.set_beside_checkpoints(true);
  request.set_page_bytes(kListPageBytes);
  const auto call = [&] {
    return Call<gpuctl::v1::ListArtifactsRequest, gpuctl::v1::ListArtifactsReply>(
        "list the job's files", request, &gpuctl::v1::Agent::StubInterface::ListArtifacts);
  };
  ASSIGN_OR_RETURN(gpuctl::v1::ListArtifactsReply all, call());
  for (bool more = all.more(); more;) {
    if (all.files_size() == 0 || all.files_size() > kMostListedFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("list the job's files: more than ", kMostListedFiles, " match ", pattern));
    }
    const std::string after = all.files(all.files_size() - 1).path();
    request.set_after(after);
    ASSIGN_OR_RETURN(gpuctl::v1::ListArtifactsReply page, call());
    // A node that sends the same page again would do so for ever.
    if (page.files_size() > 0 && !PathLess(after, page.files(0).path())) {
      return absl::DataLossError("list the job's files: the node sent a page twice");
    }
    more = page.more() && page.files_size() > 0;
    page.clear_checkpoints();
    all.MergeFrom(page);
  }
  all.clear_more();
  return all;
}

absl::StatusOr<gpuctl::v1::NodeLimitsState> NodeCalls::SetNodeLimits(
    const gpuctl::v1::NodeLimits& limits) {
  return Call<gpuctl::v1::NodeLimits, gpuctl::v1::NodeLimitsState>(
      "set the node's limits", limits, &gpuctl::v1::Agent::StubInterface::SetNodeLimits);
}

absl::StatusOr<gpuctl::v1::RemoveJobReply> NodeCalls::RemoveJob(
    const std::string& job_id, bool dry_run, const std::vector<std::string>& patterns) {
  gpuctl::v1::RemoveJobRequest request;
  request.set_job_id(job_id);
  request.set_dry_run(dry_run);
  for (const std::string& each : patterns) request.add_patterns(each);
  return Call<gpuctl::v1::RemoveJobRequest, gpuctl::v1::RemoveJobReply>(
      "remove what it left", request, &gpuctl::v1::Agent::StubInterface::RemoveJob);
}

absl::StatusOr<gpuctl::v1::NodeLimitsState> NodeCalls::MarkHome(
    const gpuctl::v1::MarkHomeRequest& request) {
  return Call<gpuctl::v1::MarkHomeRequest, gpuctl::v1::NodeLimitsState>(
      "tell the node what is home", request, &gpuctl::v1::Agent::StubInterface::MarkHome);
}

}  // namespace gpuctl

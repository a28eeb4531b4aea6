#include "agent/service.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/jobs/artifacts.h"
#include "agent/jobs/watch.h"
#include "agent/limits/limits_report.h"
#include "agent/limits/node_limits_store.h"
#include "common/base/api_level.h"
#include "common/base/status_macros.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

// The limit of Watch calls. Each holds a thread; more would be a mistake of the other side.
constexpr int kMaxWatchers = 256;
// The limit of the jobs in a reply to Hello; gRPC's clients refuse a message above 4 MiB.
constexpr size_t kMostHelloJobBytes = 3 << 20;
constexpr int kMostListedJobs = 1000;

template <typename T>
grpc::Status ToGrpc(absl::StatusOr<T> result, T* reply) {
  if (!result.ok()) return ToGrpcStatus(result.status());
  *reply = *std::move(result);
  return grpc::Status::OK;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      DetailToSend(status).SerializeAsString());
}

AgentService::AgentService(const RootPaths& paths, std::string node_id, std::string version,
                           JobTable& jobs, Telemetry& telemetry, Clock& clock)
    : paths_(paths),
      node_id_(std::move(node_id)),
      version_(std::move(version)),
      jobs_(jobs),
      telemetry_(telemetry),
      clock_(clock),
      boot_id_(BootId()) {}

grpc::Status AgentService::Hello(grpc::ServerContext* context,
                                 const gpuctl::v1::HelloRequest* request,
                                 gpuctl::v1::HelloReply* reply) {
  (void)context;
  reply->set_api_level(kApiLevel);
  reply->set_version(version_);
  reply->set_node_id(node_id_);
  reply->set_boot_id(BootId());
  const bool live = request->jobs() == gpuctl::v1::HelloRequest::JOBS_LIVE;
  std::vector<gpuctl::v1::Job> jobs =
      live ? jobs_.ListLive({request->job_ids().begin(), request->job_ids().end()})
           : jobs_.ListWithin(kMostHelloJobBytes);
  for (gpuctl::v1::Job& job : jobs) *reply->add_jobs() = std::move(job);
  struct statvfs disk {};
  if (statvfs(paths_.root.c_str(), &disk) == 0) {
    reply->set_disk_free_bytes(static_cast<int64_t>(disk.f_bavail * disk.f_frsize));
    reply->set_disk_total_bytes(static_cast<int64_t>(disk.f_blocks * disk.f_frsize));
  }
  reply->set_memory_bytes(sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
  reply->set_cpus(static_cast<int32_t>(std::thread::hardware_concurrency()));
  // The slots come first: they say that the list, which follows, is complete.
  if (auto slots = jobs_.Slots()) *reply->mutable_gpu_slots() = *std::move(slots);
  Telemetry::Listed listed = telemetry_.ListedGpus();
  for (gpuctl::v1::Gpu& gpu : listed.gpus) *reply->add_gpus() = std::move(gpu);
  char hostname[256] = "";
  gethostname(hostname, sizeof(hostname) - 1);
  reply->set_hostname(hostname);
  reply->set_root(paths_.root);
  if (auto limits = DescribeNodeLimits(paths_, boot_id_, clock_)) {
    *reply->mutable_limits() = *std::move(limits);
  }
  if (auto boot = ReadBootNote(paths_)) *reply->mutable_boot() = *std::move(boot);
  return grpc::Status::OK;
}

grpc::Status AgentService::ListJobs(grpc::ServerContext* context,
                                    const gpuctl::v1::ListJobsRequest* request,
                                    gpuctl::v1::ListJobsReply* reply) {
  (void)context;
  const bool limited = request->limit() > 0 && request->limit() < kMostListedJobs;
  const size_t limit = static_cast<size_t>(limited ? request->limit() : kMostListedJobs);
  std::vector<gpuctl::v1::Job> jobs = jobs_.ListAfter(request->after_job_id(), limit + 1);
  reply->set_more(jobs.size() > limit);
  if (reply->more()) jobs.resize(limit);
  for (gpuctl::v1::Job& job : jobs) *reply->add_jobs() = std::move(job);
  return grpc::Status::OK;
}

grpc::Status AgentService::StartJob(grpc::ServerContext* context,
                                    const gpuctl::v1::StartJobRequest* request,
                                    gpuctl::v1::Job* reply) {
  (void)context;
  return ToGrpc(jobs_.Start(*request), reply);
}

grpc::Status AgentService::StopJob(grpc::ServerContext* context,
                                   const gpuctl::v1::StopJobRequest* request,
                                   gpuctl::v1::Job* reply) {
  (void)context;
  return ToGrpc(jobs_.Stop(*request), reply);
}

grpc::Status AgentService::SetJobTime(grpc::ServerContext* context,
                                      const gpuctl::v1::SetJobTimeRequest* request,
                                      gpuctl::v1::Job* reply) {
  (void)context;
  return ToGrpc(jobs_.SetTime(*request), reply);
}

grpc::Status AgentService::Watch(grpc::ServerContext* context,
                                 const gpuctl::v1::WatchRequest* request,
                                 grpc::ServerWriter<gpuctl::v1::WatchReply>* writer) {
  const WatchKey key(request->job_id(), request->client_id());
  uint64_t self = 0;
  {
    MutexLock lock(mutex_);
    if (watchers_ >= kMaxWatchers) {
      return ToGrpcStatus(absl::ResourceExhaustedError(
          absl::StrCat("watch: ", watchers_, " watchers already; detach some")));
    }
    ++watchers_;
    self = next_watch_++;
    newest_watch_[key] = self;
  }
  auto is_newest = [&] {
    MutexLock lock(mutex_);
    const auto it = newest_watch_.find(key);
    return it != newest_watch_.end() && it->second == self;
  };
  WatchSession::Callbacks callbacks;
  callbacks.send = [&](const gpuctl::v1::WatchReply& reply) { return writer->Write(reply); };
  callbacks.is_over = [&] { return context->IsCancelled() || !is_newest(); };
  callbacks.is_accepting = [&] { return jobs_.IsAccepting(request->job_id()); };
  callbacks.complete = [&](gpuctl::v1::Job& job) { jobs_.AddPlace(job); };
  WatchSession session(paths_, node_id_, *request, std::move(callbacks), clock_);
  absl::Status status = session.Run();
  MutexLock lock(mutex_);
  --watchers_;
  const auto it = newest_watch_.find(key);
  if (it != newest_watch_.end() && it->second == self) {
    newest_watch_.erase(it);
  } else if (absl::IsCancelled(status)) {
    status = absl::AbortedError("watch: superseded by a newer one of this client");
  }
  return ToGrpcStatus(status);
}

grpc::Status AgentService::ListArtifacts(grpc::ServerContext* context,
                                         const gpuctl::v1::ListArtifactsRequest* request,
                                         gpuctl::v1::ListArtifactsReply* reply) {
  (void)context;
  return ToGrpc(gpuctl::ListArtifacts(paths_.Job(request->job_id()), *request, clock_), reply);
}

grpc::Status AgentService::SetNodeLimits(grpc::ServerContext* context,
                                         const gpuctl::v1::NodeLimits* request,
                                         gpuctl::v1::NodeLimitsState* reply) {
  (void)context;
  MutexLock lock(limits_mutex_);
  const absl::Status stored = StoreNodeLimits(paths_, *request, StampNow(boot_id_, clock_));
  if (stored.ok()) *reply = DescribeNodeLimits(paths_, boot_id_, clock_).value_or(*reply);
  return ToGrpcStatus(stored);
}

grpc::Status AgentService::RemoveJob(grpc::ServerContext* context,
                                     const gpuctl::v1::RemoveJobRequest* request,
                                     gpuctl::v1::RemoveJobReply* reply) {
  (void)context;
  return ToGrpc(jobs_.Remove(*request), reply);
}

grpc::Status AgentService::MarkHome(grpc::ServerContext* context,
                                    const gpuctl::v1::MarkHomeRequest* request,
                                    gpuctl::v1::NodeLimitsState* reply) {
  (void)context;
  MutexLock lock(limits_mutex_);
  const absl::Status marked = gpuctl::MarkHome(paths_, *request);
  if (marked.ok()) *reply = DescribeNodeLimits(paths_, boot_id_, clock_).value_or(*reply);
  return ToGrpcStatus(marked);
}

}  // namespace gpuctl

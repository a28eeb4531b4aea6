// The gRPC service: translates calls and statuses. It has no logic of its own.
#ifndef GPUCTL_AGENT_SERVICE_H_
#define GPUCTL_AGENT_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "agent/jobs/job_table.h"
#include "agent/telemetry/telemetry.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "gpuctl/v1/agent.grpc.pb.h"

namespace gpuctl {

// Returns the status that a client gets, with its detail.
grpc::Status ToGrpcStatus(const absl::Status& status);

// The service's calls. Thread-safe, because gRPC uses one thread for each call. Everything passed
// in must outlive it.
class AgentService final : public gpuctl::v1::Agent::Service {
 public:
  AgentService(const RootPaths& paths, std::string node_id, std::string version, JobTable& jobs,
               Telemetry& telemetry, Clock& clock);

  grpc::Status Hello(grpc::ServerContext* context, const gpuctl::v1::HelloRequest* request,
                     gpuctl::v1::HelloReply* reply) override;
  grpc::Status ListJobs(grpc::ServerContext* context, const gpuctl::v1::ListJobsRequest* request,
                        gpuctl::v1::ListJobsReply* reply) override;
  grpc::Status StartJob(grpc::ServerContext* context, const gpuctl::v1::StartJobRequest* request,
                        gpuctl::v1::Job* reply) override;
  grpc::Status StopJob(grpc::ServerContext* context, const gpuctl::v1::StopJobRequest* request,
                       gpuctl::v1::Job* reply) override;
  grpc::Status SetJobTime(grpc::ServerContext* context,
                          const gpuctl::v1::SetJobTimeRequest* request,
                          gpuctl::v1::Job* reply) override;
  grpc::Status Watch(grpc::ServerContext* context, const gpuctl::v1::WatchRequest* request,
                     grpc::ServerWriter<gpuctl::v1::WatchReply>* writer) override;
  grpc::Status ListArtifacts(grpc::ServerContext* context,
                             const gpuctl::v1::ListArtifactsRequest* request,
                             gpuctl::v1::ListArtifactsReply* reply) override;
  grpc::Status SetNodeLimits(grpc::ServerContext* context, const gpuctl::v1::NodeLimits* request,
                             gpuctl::v1::NodeLimitsState* reply) override;
  grpc::Status RemoveJob(grpc::ServerContext* context, const gpuctl::v1::RemoveJobRequest* request,
                         gpuctl::v1::RemoveJobReply* reply) override;
  grpc::Status MarkHome(grpc::ServerContext* context, const gpuctl::v1::MarkHomeRequest* request,
                        gpuctl::v1::NodeLimitsState* reply) override;

 private:
  using WatchKey = std::pair<std::string, std::string>;  // job id, client id

  const RootPaths& paths_;
  const std::string node_id_;
  const std::string version_;
  JobTable& jobs_;
  Telemetry& telemetry_;
  Clock& clock_;
  const std::string boot_id_;
  Mutex limits_mutex_;  // allows one writer of limits.json and home.json
  Mutex mutex_;
  // The newest Watch of each client and job. An older Watch sees that it is not the newest, and
  // ends.
  std::map<WatchKey, uint64_t> newest_watch_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_watch_ ABSL_GUARDED_BY(mutex_) = 1;
  int watchers_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SERVICE_H_

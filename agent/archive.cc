#include "agent/archive.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/time_stamp.h"
#include "agent/bridge.h"
#include "agent/bundle/bundle.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/whole_copy.h"
#include "agent/jobs/artifacts.h"
#include "agent/jobs/job_state.h"
#include "agent/jobs/job_table.h"
#include "agent/jobs/shim_launcher.h"
#include "agent/jobs/watch.h"
#include "agent/limits/node_limits_store.h"
#include "agent/restart/restart_kit.h"
#include "agent/restart/staged.h"
#include "agent/restart/start_again.h"
#include "agent/service.h"
#include "agent/trees/send.h"
#include "common/base/api_level.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

// Nothing is started here.
class NoLauncher : public ShimLauncher {
 public:
  absl::Status Launch(const JobPaths&, int, const Secrets&) override {
    return absl::FailedPreconditionError("the allocation is over");
  }
  void Reap() override {}
  bool IsStarting(const JobPaths&) override { return false; }
  bool JobsMayLive() const override { return false; }
};

grpc::Status IsOverStatus() {
  return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                      "the allocation is over; what was kept of it can be read and removed");
}

// The calls that read, and the removal of a job.
class ArchiveService final : public gpuctl::v1::Agent::Service {
 public:
  ArchiveService(const RootPaths& paths, bool in_queue, std::string node_id, std::string version,
                 Clock& clock)
      : paths_(paths),
        in_queue_(in_queue),
        node_id_(std::move(node_id)),
        version_(std::move(version)),
        clock_(clock),
        jobs_(paths, node_id_, launcher_, clock) {}

  grpc::Status Hello(grpc::ServerContext*, const gpuctl::v1::HelloRequest*,
                     gpuctl::v1::HelloReply* reply) override {
    reply->set_api_level(kApiLevel);
    reply->set_version(version_);
    reply->set_node_id(node_id_);
    reply->set_boot_id(BootId());
    for (gpuctl::v1::Job& job : jobs_.ListWithin(kMostJobBytes)) {
      *reply->add_jobs() = AsInQueue(std::move(job));
    }
    reply->set_root(paths_.root);
    const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths_);
    if (in_queue_ && stored.ok()) *reply->mutable_limits()->mutable_limits() = stored->limits;
    return grpc::Status::OK;
  }

  grpc::Status ListJobs(grpc::ServerContext*, const gpuctl::v1::ListJobsRequest* request,
                        gpuctl::v1::ListJobsReply* reply) override {
    for (gpuctl::v1::Job& job : jobs_.ListAfter(request->after_job_id(), kMostJobs)) {
      *reply->add_jobs() = AsInQueue(std::move(job));
    }
    return grpc::Status::OK;
  }

  grpc::Status Watch(grpc::ServerContext* context, const gpuctl::v1::WatchRequest* request,
                     grpc::ServerWriter<gpuctl::v1::WatchReply>* writer) override {
    WatchSession::Callbacks callbacks;
    absl::Duration sent = clock_.SinceBoot();
    callbacks.send = [&](const gpuctl::v1::WatchReply& reply) {
      if (IsTakenBack(request->job_id(), reply)) return false;
      const bool written = writer->Write(reply);
      if (reply.chunks_size() > 0) sent = clock_.SinceBoot();
      return written;
    };
    // No more comes here before the allocation's next start, and that is elsewhere.
    callbacks.is_over = [&] {
      return context->IsCancelled() || (in_queue_ && clock_.SinceBoot() - sent > kAllSentAfter);
    };
    callbacks.goes_on = in_queue_;
    callbacks.complete = [&](gpuctl::v1::Job& job) { job = AsInQueue(std::move(job)); };
    callbacks.is_accepting = [] { return false; };
    // Nobody will read more of it: for whoever follows the job, it is lost.
    if (const absl::Status damaged = Damaged(request->job_id()); !damaged.ok() && !in_queue_) {
      return ToGrpcStatus(absl::NotFoundError(damaged.message()));
    }
    return ToGrpcStatus(
        WatchSession(paths_, node_id_, *request, std::move(callbacks), clock_).Run());
  }

  grpc::Status ListArtifacts(grpc::ServerContext*, const gpuctl::v1::ListArtifactsRequest* request,
                             gpuctl::v1::ListArtifactsReply* reply) override {
    absl::StatusOr<gpuctl::v1::ListArtifactsReply> listed =
        gpuctl::ListArtifacts(paths_.Job(request->job_id()), *request, clock_);
    if (listed.ok()) *reply = *std::move(listed);
    const JobPaths job = paths_.Job(request->job_id());
    if (listed.ok() && request->after().empty()) reply->set_missing(MissingInCopy(job, clock_));
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
    if (in_queue_ && !reply->missing().empty() && !IsWholeCopy(job) && lifecycle.ok() &&
        !IsOver(*lifecycle)) {
      reply->set_missing(
          "not all results were on the shared file system when the allocation was put back into "
          "the queue; what is there is whole, and the run goes on with it");
    }
    return ToGrpcStatus(listed.status());
  }

  grpc::Status RemoveJob(grpc::ServerContext*, const gpuctl::v1::RemoveJobRequest* request,
                         gpuctl::v1::RemoveJobReply* reply) override {
    if (in_queue_) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "the allocation is in Slurm's queue again, and its jobs go on");
    }
    if (const absl::Status damaged = Damaged(request->job_id()); !damaged.ok()) {
      if (request->dry_run()) return ToGrpcStatus(damaged);
      reply->set_removed(true);
      return ToGrpcStatus(RemoveTree(paths_.Job(request->job_id()).dir));
    }
    absl::StatusOr<gpuctl::v1::RemoveJobReply> removed = jobs_.Remove(*request);
    if (removed.ok()) *reply = *std::move(removed);
    return ToGrpcStatus(removed.status());
  }

  // No limit waits for that.
  grpc::Status MarkHome(grpc::ServerContext*, const gpuctl::v1::MarkHomeRequest*,
                        gpuctl::v1::NodeLimitsState*) override {
    return grpc::Status::OK;
  }
  grpc::Status StartJob(grpc::ServerContext*, const gpuctl::v1::StartJobRequest* request,
                        gpuctl::v1::Job* reply) override {
    if (!in_queue_ || !IsStaged(paths_)) return IsOverStatus();
    absl::StatusOr<gpuctl::v1::Job> job = StartStaged(*request);
    if (job.ok()) *reply = AsInQueue(*std::move(job));
    return ToGrpcStatus(job.status());
  }
  grpc::Status StopJob(grpc::ServerContext*, const gpuctl::v1::StopJobRequest* request,
                       gpuctl::v1::Job* reply) override {
    if (!in_queue_) return IsOverStatus();
    absl::StatusOr<gpuctl::v1::Job> stopped = StopInQueue(*request);
    if (stopped.ok()) *reply = *std::move(stopped);
    return ToGrpcStatus(stopped.status());
  }
  // The next start takes both from here.
  grpc::Status SetJobTime(grpc::ServerContext*, const gpuctl::v1::SetJobTimeRequest* request,
                          gpuctl::v1::Job* reply) override {
    if (!in_queue_) return IsOverStatus();
    absl::StatusOr<gpuctl::v1::Job> job = SetTimeInQueue(*request);
    if (job.ok()) *reply = AsInQueue(*std::move(job));
    return ToGrpcStatus(job.status());
  }
  grpc::Status SetNodeLimits(grpc::ServerContext*, const gpuctl::v1::NodeLimits* request,
                             gpuctl::v1::NodeLimitsState* reply) override {
    if (!in_queue_) return IsOverStatus();
    absl::Status set = StoreNodeLimits(paths_, *request, StampNow(BootId(), clock_));
    if (set.ok()) set = StillWaits();
    const absl::StatusOr<StoredLimits> stored = ReadNodeLimits(paths_);
    if (set.ok() && stored.ok()) *reply->mutable_limits() = stored->limits;
    // The batch script's holder ends with them, and the allocation with it.
    reply->set_can_release(true);
    return ToGrpcStatus(set);
  }

 private:
  // DATA_LOSS for a job of which a part was kept that cannot be read.
  absl::Status Damaged(const std::string& job_id) const {
    if (!IsValidId(job_id) || !PathExists(paths_.Job(job_id).spec)) return absl::OkStatus();
    const absl::Status read = ReadStoredSpec(paths_.Job(job_id)).status();
    if (!absl::IsDataLoss(read)) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("what was kept of the job is damaged: ", read.message()));
  }

  // A job whose node failed waits, too.
  gpuctl::v1::Job AsInQueue(gpuctl::v1::Job job) const {
    if (in_queue_ && IsStaged(paths_) && job.state() == gpuctl::v1::JOB_STATE_PENDING) {
      job.set_state(gpuctl::v1::JOB_STATE_QUEUED);
      job.mutable_queue();
    }
    if (in_queue_ && IsStaged(paths_) && job.state() == gpuctl::v1::JOB_STATE_QUEUED) {
      const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(paths_.Job(job.job_id()));
      job.mutable_queue()->set_scheduler("Slurm");
      if (lifecycle.ok()) job.mutable_queue()->set_since_ms(QueuedSinceMs(*lifecycle));
    }
    if (!in_queue_ || job.state() != gpuctl::v1::JOB_STATE_LOST) return job;
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(paths_.Job(job.job_id()));
    if (lifecycle.ok() && !IsOver(*lifecycle)) job.set_state(gpuctl::v1::JOB_STATE_RETRY_WAIT);
    return job;
  }

  // Returns whether the job of a request is over.
  template <typename Request>
  absl::StatusOr<bool> IsKeptOver(const Request& request) const {
    if (!request.expected_node_id().empty() && request.expected_node_id() != node_id_) {
      return DetailedError(absl::StatusCode::kFailedPrecondition,
                           "another allocation was kept here",
                           gpuctl::v1::ErrorDetail::KIND_NODE_CHANGED, node_id_);
    }
    if (!IsValidId(request.job_id())) return absl::InvalidArgumentError("bad job id");
    RETURN_IF_ERROR(DeriveJob(paths_.Job(request.job_id())).status());
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(paths_.Job(request.job_id())));
    return IsOver(lifecycle);
  }

  absl::StatusOr<gpuctl::v1::Job> SetTimeInQueue(const gpuctl::v1::SetJobTimeRequest& request) {
    ASSIGN_OR_RETURN(const bool over, IsKeptOver(request));
    if (over) return absl::FailedPreconditionError("set the job's time: it is over");
    if (request.time_s() <= 0) return absl::InvalidArgumentError("set the job's time: it is 0");
    const JobPaths job = paths_.Job(request.job_id());
    RETURN_IF_ERROR(WriteFileAtomic(job.time_limit, absl::StrCat(request.time_s(), "\n")));
    RETURN_IF_ERROR(StillWaits());
    return DeriveJob(job);
  }

  // True when a message is about a job whose start is over, and was none: the client must not take
  // it for accepted. Waits for that.
  bool IsTakenBack(const std::string& job_id, const gpuctl::v1::WatchReply& reply) {
    if (!IsStaged(paths_) || reply.headers_size() + reply.chunks_size() == 0) return false;
    MutexLock lock(mutex_);
    return !PathExists(paths_.Job(job_id).spec);
  }

  absl::StatusOr<gpuctl::v1::Job> StartStaged(const gpuctl::v1::StartJobRequest& request) {
    MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const gpuctl::v1::Job job, AcceptStaged(paths_, node_id_, request, clock_));
    const std::optional<AllocationStart> start = ParseAllocationStart(BaseName(paths_.root));
    absl::StatusOr<std::string> state = StateInSlurm(start->job);
    for (int asked = 1; !state.ok() && asked < kTimesAsked; ++asked) {
      state = StateInSlurm(start->job);
    }
    if (state.ok() && *state == "PENDING") return job;
    const absl::Status back = TakeBackStaged(paths_, request.spec().job_id());
    // The start has it.
    if (absl::IsNotFound(back)) return job;
    RETURN_IF_ERROR(back);
    return state.ok() ? HasBegun() : state.status();
  }

  // The client tries again, and finds the node.
  static absl::Status HasBegun() {
    return absl::UnavailableError("Slurm has just started the allocation");
  }
  // OK while what is written here is found by the allocation's next start.
  absl::Status StillWaits() const {
    const std::optional<AllocationStart> start = ParseAllocationStart(BaseName(paths_.root));
    if (!start.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string state, StateInSlurm(start->job));
    const bool waits = state.empty() || state == "PENDING" || state == "COMPLETING";
    return waits ? absl::OkStatus() : HasBegun();
  }

  absl::StatusOr<gpuctl::v1::Job> StopInQueue(const gpuctl::v1::StopJobRequest& request) {
    ASSIGN_OR_RETURN(const bool over, IsKeptOver(request));
    const JobPaths job = paths_.Job(request.job_id());
    if (!over) {
      const std::string directory(DirName(paths_.root));
      // First, so that a start which comes from here on finds it.
      RETURN_IF_ERROR(NoteStopped(directory, request.job_id(), request.reason()));
      RETURN_IF_ERROR(SettleInQueue(paths_, directory));
      RETURN_IF_ERROR(EndKept(job, paths_.root, request.reason(), clock_));
    }
    return DeriveJob(job);
  }

  static constexpr absl::Duration kAllSentAfter = absl::Seconds(2);
  static constexpr int kTimesAsked = 3;
  static constexpr size_t kMostJobBytes = 3 << 20;
  static constexpr size_t kMostJobs = 1000;

  const RootPaths& paths_;
  const bool in_queue_;
  const std::string node_id_;
  const std::string version_;
  Clock& clock_;
  Mutex mutex_;  // one start at a time
  NoLauncher launcher_;
  JobTable jobs_;
};

absl::Status Serve(const RootPaths& paths, const std::string& bundle_dir, bool in_queue) {
  ASSIGN_OR_RETURN(const std::string stored, ReadFileToString(paths.node_id, 4096));
  const std::string node_id(absl::StripAsciiWhitespace(stored));
  const std::string version = absl::StrCat(BundleVersion(bundle_dir));
  if (!in_queue) EndAllKept(paths, Clock::Real());
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return ErrnoStatus(errno, "socketpair");
  const UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  for (const int fd : pair) fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(theirs.get(), F_SETFL, fcntl(theirs.get(), F_GETFL) | O_NONBLOCK);
  ArchiveService service(paths, in_queue, node_id, version, Clock::Real());
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("no server could be started");
  grpc::AddInsecureChannelFromFd(server.get(), theirs.release());
  RETURN_IF_ERROR(
      WriteAll(1, absl::StrCat("\nGPUCTL-BRIDGE 1 ", version, " ", node_id, " ", BootId(), "\n"),
               "to the client"));
  CopyStdio(ours.get());
  server->Shutdown(std::chrono::system_clock::time_point());
  return absl::OkStatus();
}

absl::StatusOr<std::string> OwnNewestCopy(const std::string& directory) {
  // Nothing was kept where there is no such directory.
  if (PathExists(directory)) RETURN_IF_ERROR(CheckOwnDirectory(directory));
  return NewestCopy(directory);
}

// Returns the exit code after telling why.
int Refuse(const absl::Status& status) {
  fprintf(stderr, "gpuctl-agent: archive: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) ? kExitNothingKept : 1;
}

}  // namespace

int RunArchive(const std::string& directory, const std::string& bundle_dir, bool in_queue) {
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<std::string> copy = OwnNewestCopy(directory);
  if (!copy.ok()) return Refuse(copy.status());
  const RootPaths paths(*copy);
  const absl::Status served = Serve(paths, bundle_dir, in_queue);
  return served.ok() ? 0 : Refuse(served);
}

int RunArchiveSend(const std::string& directory) {
  const absl::StatusOr<std::string> copy = OwnNewestCopy(directory);
  return copy.ok() ? RunSend(*copy, 0, 1) : Refuse(copy.status());
}

}  // namespace gpuctl

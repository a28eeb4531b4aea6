#include "tests/support/fake_node.h"

#include <fcntl.h>
#include <grpc/support/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_context.h>
#include <grpcpp/server_posix.h>
#include <sys/wait.h>

#include <cerrno>
#include <utility>

#include "absl/time/time.h"
#include "client/link/agent_calls.h"
#include "common/base/api_level.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/process/pipe.h"
#include "common/process/process.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(2);

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
          DetailToSend(status).SerializeAsString()};
}

// A shell command that runs on this machine.
class HereCommand : public RemoteCommand {
 public:
  static absl::StatusOr<std::unique_ptr<RemoteCommand>> Start(const std::string& command) {
    ASSIGN_OR_RETURN(FdPair pair, MakeSocketPair("start a command"));
    UniqueFd ours = std::move(pair.first);
    const UniqueFd theirs = std::move(pair.second);
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", command};
    options.stdin_fd = theirs.get();
    options.stdout_fd = theirs.get();
    const absl::StatusOr<pid_t> pid = Spawn(options);
    if (!pid.ok()) return pid.status();
    return std::unique_ptr<RemoteCommand>(new HereCommand(std::move(ours), *pid));
  }
  ~HereCommand() override {
    ours_.reset();
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  int fd() override { return ours_.get(); }
  absl::StatusOr<int> Wait() override {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return ErrnoStatus(errno, "wait for a command");
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Stderr() override { return ""; }

 private:
  HereCommand(UniqueFd ours, pid_t pid) : ours_(std::move(ours)), pid_(pid) {}
  UniqueFd ours_;
  pid_t pid_;
};

}  // namespace

NodeScript::NodeScript() {
  hello.set_api_level(kApiLevel);
  hello.set_node_id("n-1");
  hello.set_disk_free_bytes(int64_t{1} << 40);
  limits_state.set_can_release(true);
}

void NodeScript::Gpus(const std::string& name, int64_t memory_bytes, int count) {
  hello.clear_gpus();
  for (int i = 0; i < count; ++i) {
    gpuctl::v1::Gpu& gpu = *hello.add_gpus();
    gpu.set_index(i);
    gpu.set_name(name);
    gpu.set_memory_bytes(memory_bytes);
  }
}

namespace {

class Service : public gpuctl::v1::Agent::Service {
 public:
  explicit Service(NodeScript& script) : script_(script) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    // As a link does. gRPC's own transport within a process is not safe with calls that are
    // cancelled.
    FdPair pair = MakeSocketPair("make a channel").value();
    for (const int fd : {pair.first.get(), pair.second.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
    grpc::AddInsecureChannelFromFd(server_.get(), pair.first.release());
    channel_ = NodeChannel(std::move(pair.second));
  }
  ~Service() override { Stop(); }

  // Ends every call; later ones fail at once.
  void Stop() {
    if (!stopped_.exchange(true)) server_->Shutdown(gpr_inf_past(GPR_CLOCK_REALTIME));
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  grpc::Status Hello(grpc::ServerContext*, const gpuctl::v1::HelloRequest*,
                     gpuctl::v1::HelloReply* reply) override {
    *reply = script_.hello;
    return grpc::Status::OK;
  }
  grpc::Status SetNodeLimits(grpc::ServerContext*, const gpuctl::v1::NodeLimits* request,
                             gpuctl::v1::NodeLimitsState* reply) override {
    if (!script_.set_limits.ok()) return ToGrpc(script_.set_limits);
    script_.limits_set.push_back(*request);
    *reply = script_.limits_state;
    *reply->mutable_limits() = *request;
    return grpc::Status::OK;
  }
  grpc::Status StartJob(grpc::ServerContext* context, const gpuctl::v1::StartJobRequest* request,
                        gpuctl::v1::Job* reply) override {
    script_.starts.push_back(*request);
    absl::Status answer = script_.start;
    if (!script_.first_starts.empty()) {
      answer = script_.first_starts.front();
      script_.first_starts.pop_front();
    }
    ++script_.start_calls;
    while (script_.starts_hang && !context->IsCancelled()) Clock::Real().SleepFor(kLook);
    if (!answer.ok()) return ToGrpc(answer);
    reply->set_job_id(request->spec().job_id());
    reply->set_state(gpuctl::v1::JOB_STATE_PENDING);
    script_.has_job = true;
    return grpc::Status::OK;
  }
  grpc::Status StopJob(grpc::ServerContext* context, const gpuctl::v1::StopJobRequest* request,
                       gpuctl::v1::Job* reply) override {
    script_.stops.push_back(*request);
    ++script_.stop_calls;
    while (script_.stops_hang && !context->IsCancelled()) Clock::Real().SleepFor(kLook);
    if (!script_.stop.ok()) return ToGrpc(script_.stop);
    reply->set_job_id(request->job_id());
    reply->set_state(script_.stop_state);
    script_.stopped = true;
    return grpc::Status::OK;
  }
  grpc::Status RemoveJob(grpc::ServerContext*, const gpuctl::v1::RemoveJobRequest*,
                         gpuctl::v1::RemoveJobReply* reply) override {
    *reply = script_.removal;
    return grpc::Status::OK;
  }
  grpc::Status ListArtifacts(grpc::ServerContext*, const gpuctl::v1::ListArtifactsRequest*,
                             gpuctl::v1::ListArtifactsReply* reply) override {
    *reply = script_.artifacts;
    return grpc::Status::OK;
  }
  grpc::Status Watch(grpc::ServerContext* context, const gpuctl::v1::WatchRequest* request,
                     grpc::ServerWriter<gpuctl::v1::WatchReply>* writer) override {
    ++script_.watches;
    while (request->wait_for_job_ms() > 0 && !script_.has_job) {
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
      Clock::Real().SleepFor(kLook);
    }
    if (Send(script_.watch, *writer)) return grpc::Status::OK;
    if (!script_.watch_end.ok()) return ToGrpc(script_.watch_end);
    bool sent = script_.when_stopped.empty();
    while (!context->IsCancelled()) {
      if (!sent && script_.stopped) {
        if (Send(script_.when_stopped, *writer)) return grpc::Status::OK;
        sent = true;
      }
      Clock::Real().SleepFor(kLook);
    }
    return grpc::Status::CANCELLED;
  }

 private:
  // Returns true when the last one said that the job is over.
  static bool Send(const std::vector<gpuctl::v1::WatchReply>& replies,
                   grpc::ServerWriter<gpuctl::v1::WatchReply>& writer) {
    for (const gpuctl::v1::WatchReply& reply : replies) {
      writer.Write(reply);
      if (reply.complete()) return true;
    }
    return false;
  }

  NodeScript& script_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::atomic<bool> stopped_{false};
};

// A link with a server of its own, so that the link's end ends only its own calls.
class FakeLink : public Link {
 public:
  explicit FakeLink(NodeScript& script)
      : service_(script), agent_{gpuctl::v1::Agent::NewStub(service_.channel())} {}
  const AgentCalls& agent() override { return agent_; }
  absl::Status status() override {
    return broken_ ? absl::UnavailableError("the link was broken") : absl::OkStatus();
  }
  absl::Duration Silence() override { return absl::ZeroDuration(); }
  void Break() override {
    broken_ = true;
    service_.Stop();
  }

 private:
  Service service_;
  const AgentCalls agent_;
  std::atomic<bool> broken_{false};
};

class FakeLinks : public LinkFactory {
 public:
  explicit FakeLinks(NodeScript& script) : script_(script) {}
  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    ++script_.connects;
    if (!script_.connect.ok()) return script_.connect;
    return std::make_unique<FakeLink>(script_);
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string& command) override {
    return HereCommand::Start(command);
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string& arguments) override {
    if (!script_.run_agent) return absl::UnimplementedError("no agent runs here");
    return script_.run_agent(arguments);
  }
  // Returns null on success: a test cannot use the session itself.
  absl::StatusOr<std::unique_ptr<SshSession>> OpenSshSession() override {
    ++script_.ssh_tries;
    if (!script_.ssh.ok()) return script_.ssh;
    return std::unique_ptr<SshSession>();
  }

 private:
  NodeScript& script_;
};

}  // namespace

std::unique_ptr<LinkFactory> FakeNode::Links() { return std::make_unique<FakeLinks>(script_); }

}  // namespace gpuctl

// A node's agent in memory, without a server: every call gives what the fuzzer's bytes say.
#ifndef GPUCTL_TESTS_FUZZ_SCRIPTED_AGENT_H_
#define GPUCTL_TESTS_FUZZ_SCRIPTED_AGENT_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/link/agent_calls.h"
#include "client/link/link.h"

namespace gpuctl {

// The replies of one Watch, and its end.
struct WatchScript {
  std::vector<gpuctl::v1::WatchReply> replies;
  grpc::Status end;
};
// The Watches of a node, in order. After them it is gone.
using WatchScripts = std::deque<WatchScript>;

class ScriptedReader : public grpc::ClientReaderInterface<gpuctl::v1::WatchReply> {
 public:
  explicit ScriptedReader(WatchScript script) : script_(std::move(script)) {}
  bool NextMessageSize(uint32_t* size) override {
    *size = 0;
    return next_ < script_.replies.size();
  }
  bool Read(gpuctl::v1::WatchReply* reply) override {
    if (next_ == script_.replies.size()) return false;
    *reply = script_.replies[next_++];
    return true;
  }
  void WaitForInitialMetadata() override {}
  grpc::Status Finish() override { return script_.end; }

 private:
  const WatchScript script_;
  size_t next_ = 0;
};

// Each Watch takes the next script. Every other call gives UNIMPLEMENTED.
class ScriptedStub : public gpuctl::v1::Agent::StubInterface {
 public:
  explicit ScriptedStub(WatchScripts& scripts) : scripts_(scripts) {}

#define GPUCTL_SCRIPTED_CALL(NAME, REQUEST, REPLY)                                         \
  grpc::Status NAME(grpc::ClientContext*, const gpuctl::v1::REQUEST&, gpuctl::v1::REPLY*)  \
      override {                                                                           \
    return grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "not scripted");                  \
  }                                                                                        \
  grpc::ClientAsyncResponseReaderInterface<gpuctl::v1::REPLY>* Async##NAME##Raw(           \
      grpc::ClientContext*, const gpuctl::v1::REQUEST&, grpc::CompletionQueue*) override { \
    return nullptr;                                                                        \
  }                                                                                        \
  grpc::ClientAsyncResponseReaderInterface<gpuctl::v1::REPLY>* PrepareAsync##NAME##Raw(    \
      grpc::ClientContext*, const gpuctl::v1::REQUEST&, grpc::CompletionQueue*) override { \
    return nullptr;                                                                        \
  }
  GPUCTL_SCRIPTED_CALL(Hello, HelloRequest, HelloReply)
  GPUCTL_SCRIPTED_CALL(ListJobs, ListJobsRequest, ListJobsReply)
  GPUCTL_SCRIPTED_CALL(StartJob, StartJobRequest, Job)
  GPUCTL_SCRIPTED_CALL(StopJob, StopJobRequest, Job)
  GPUCTL_SCRIPTED_CALL(SetJobTime, SetJobTimeRequest, Job)
  GPUCTL_SCRIPTED_CALL(ListArtifacts, ListArtifactsRequest, ListArtifactsReply)
  GPUCTL_SCRIPTED_CALL(SetNodeLimits, NodeLimits, NodeLimitsState)
  GPUCTL_SCRIPTED_CALL(MarkHome, MarkHomeRequest, NodeLimitsState)
  GPUCTL_SCRIPTED_CALL(RemoveJob, RemoveJobRequest, RemoveJobReply)
#undef GPUCTL_SCRIPTED_CALL

 private:
  grpc::ClientReaderInterface<gpuctl::v1::WatchReply>* WatchRaw(
      grpc::ClientContext*, const gpuctl::v1::WatchRequest&) override {
    WatchScript script{{}, grpc::Status(grpc::StatusCode::UNAVAILABLE, "no script is left")};
    if (!scripts_.empty()) {
      script = std::move(scripts_.front());
      scripts_.pop_front();
    }
    return new ScriptedReader(std::move(script));  // the caller's unique_ptr takes it
  }
  grpc::ClientAsyncReaderInterface<gpuctl::v1::WatchReply>* AsyncWatchRaw(
      grpc::ClientContext*, const gpuctl::v1::WatchRequest&, grpc::CompletionQueue*,
      void*) override {
    return nullptr;
  }
  grpc::ClientAsyncReaderInterface<gpuctl::v1::WatchReply>* PrepareAsyncWatchRaw(
      grpc::ClientContext*, const gpuctl::v1::WatchRequest&, grpc::CompletionQueue*) override {
    return nullptr;
  }

  WatchScripts& scripts_;
};

class ScriptedLink : public Link {
 public:
  // `scripts` outlives the link.
  explicit ScriptedLink(WatchScripts& scripts) {
    calls_.stub = std::make_unique<ScriptedStub>(scripts);
  }
  const AgentCalls& agent() override { return calls_; }
  absl::Status status() override { return absl::UnavailableError("the script is over"); }
  absl::Duration Silence() override { return absl::ZeroDuration(); }
  void Break() override {}

 private:
  AgentCalls calls_;
};

// Makes links as long as there are scripts.
class ScriptedLinks : public LinkFactory {
 public:
  explicit ScriptedLinks(WatchScripts scripts) : scripts_(std::move(scripts)) {}
  absl::StatusOr<std::unique_ptr<Link>> Connect() override {
    if (scripts_.empty()) return absl::UnavailableError("no script is left");
    return std::make_unique<ScriptedLink>(scripts_);
  }
  absl::StatusOr<std::unique_ptr<RemoteCommand>> Run(const std::string&) override {
    return absl::UnimplementedError("not scripted");
  }
  absl::StatusOr<std::unique_ptr<AgentStream>> RunAgent(const std::string&) override {
    return absl::UnimplementedError("not scripted");
  }

 private:
  WatchScripts scripts_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_FUZZ_SCRIPTED_AGENT_H_

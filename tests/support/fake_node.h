// A node in memory: its agent answers what a test says, over gRPC within the process; its commands
// run on this machine.
#ifndef GPUCTL_TESTS_SUPPORT_FAKE_NODE_H_
#define GPUCTL_TESTS_SUPPORT_FAKE_NODE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What a node answers, and what it was told. Set it before a link is made; read it after the calls.
struct NodeScript {
  NodeScript();
  // `count` GPUs that the driver calls `name`.
  void Gpus(const std::string& name, int64_t memory_bytes, int count);

  absl::Status ssh;      // what a bare ssh session ends with; OK: it is let in
  absl::Status connect;  // the same for a link
  gpuctl::v1::HelloReply hello;
  absl::Status start;                         // what StartJob answers; OK: the node has the job
  std::deque<absl::Status> first_starts;      // what the first ones answer, before that
  bool starts_hang = false;                   // they answer when the client has gone
  std::vector<gpuctl::v1::WatchReply> watch;  // what each Watch is sent, once its job is there
  absl::Status watch_end;                     // how it ends then; OK: it stays open
  absl::Status stop;                          // what StopJob answers
  // What a Watch that is open is sent after a StopJob.
  std::vector<gpuctl::v1::WatchReply> when_stopped;
  gpuctl::v1::NodeLimitsState limits_state;  // `limits` in it become those that were set
  std::function<absl::StatusOr<std::unique_ptr<AgentStream>>(const std::string& arguments)>
      run_agent;

  std::vector<gpuctl::v1::NodeLimits> limits_set;
  std::vector<gpuctl::v1::StartJobRequest> starts;
  std::vector<gpuctl::v1::StopJobRequest> stops;
  std::atomic<int> ssh_tries{0};
  std::atomic<int> connects{0};
  std::atomic<int> watches{0};
  std::atomic<int> start_calls{0};
  std::atomic<bool> has_job{false};  // a StartJob was answered OK
  std::atomic<bool> stopped{false};  // a StopJob was
};

class FakeNode {
 public:
  NodeScript& script() { return script_; }
  // Makes links to it; they end before it does.
  std::unique_ptr<LinkFactory> Links();

 private:
  NodeScript script_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAKE_NODE_H_

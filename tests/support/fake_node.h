// A node in memory. Its agent gives a test's answers over gRPC within the process; its commands run
// on this machine.
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

// A node's answers, and a record of the calls to it. Set it before a link is made; read it after
// the calls.
struct NodeScript {
  NodeScript();
  // Adds `count` GPUs that the driver calls `name`.
  void Gpus(const std::string& name, int64_t memory_bytes, int count);

  absl::Status ssh;      // the error of a bare ssh session; OK: it works
  absl::Status connect;  // the error of a link; OK: it works
  gpuctl::v1::HelloReply hello;
  absl::Status start;                         // the answer to StartJob; OK: the node has the job
  std::deque<absl::Status> first_starts;      // the answers to the first ones, before that
  bool starts_hang = false;                   // True: they answer when the client has gone
  std::vector<gpuctl::v1::WatchReply> watch;  // the replies to each Watch, once its job is there
  absl::Status watch_end;                     // the end of Watch after them; OK: it stays open
  absl::Status stop;                          // the answer to StopJob
  gpuctl::v1::JobState stop_state = gpuctl::v1::JOB_STATE_RUNNING;  // the job's state in it
  std::atomic<bool> stops_hang{false};  // True: StopJob answers when this is false again
  // The replies to an open Watch after a StopJob.
  std::vector<gpuctl::v1::WatchReply> when_stopped;
  gpuctl::v1::RemoveJobReply removal;        // the answer to RemoveJob
  gpuctl::v1::ListArtifactsReply artifacts;  // the answer to ListArtifacts, whatever it asks for
  gpuctl::v1::NodeLimitsState limits_state;  // its `limits` change when limits are set
  absl::Status set_limits;                   // the answer to SetNodeLimits; OK: limits_state
  std::function<absl::StatusOr<std::unique_ptr<AgentStream>>(const std::string& arguments)>
      run_agent;

  std::vector<gpuctl::v1::NodeLimits> limits_set;
  std::vector<gpuctl::v1::StartJobRequest> starts;
  std::vector<gpuctl::v1::StopJobRequest> stops;
  std::atomic<int> ssh_tries{0};
  std::atomic<int> connects{0};
  std::atomic<int> watches{0};
  std::atomic<int> start_calls{0};
  std::atomic<int> stop_calls{0};
  std::atomic<bool> has_job{false};  // a StartJob was answered OK
  std::atomic<bool> stopped{false};  // a StopJob was
};

class FakeNode {
 public:
  NodeScript& script() { return script_; }
  // Makes links to the node; it outlives them.
  std::unique_ptr<LinkFactory> Links();

 private:
  NodeScript script_;
};

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_FAKE_NODE_H_

// One Watch call, which sends a job's streams from a client's cursors on.
#ifndef GPUCTL_AGENT_JOBS_WATCH_H_
#define GPUCTL_AGENT_JOBS_WATCH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/base/change_notifier.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"
#include "common/job/stream_file.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

class WatchSession {
 public:
  struct Callbacks {
    // Sends a reply. Blocks while the client does not read, which gives back-pressure. False when
    // the client is gone.
    std::function<bool(const gpuctl::v1::WatchReply&)> send;
    // True when the call was cancelled or a newer call has replaced it.
    std::function<bool()> is_over;
    // True while the node copies the content of the job, which will appear then.
    std::function<bool()> is_accepting;
    // Adds what the job's files do not tell: its place in the queue. May be empty.
    std::function<void(gpuctl::v1::Job&)> complete = nullptr;
    // True for the copy of a job that will go on elsewhere, unless its lifecycle says otherwise.
    bool goes_on = false;
  };

  WatchSession(const RootPaths& root, std::string node_id, gpuctl::v1::WatchRequest request,
               Callbacks callbacks, Clock& clock);

  // Runs until the job is over and everything is sent (OK), or the client is gone (CANCELLED).
  // NOT_FOUND when the job did not appear in the time the request allows, and is not being
  // accepted, and after all that was kept of a job (JobPaths::kept) whose end was not.
  absl::Status Run();

 private:
  struct StreamState {
    gpuctl::v1::Stream id;
    StreamReader reader;
    int64_t offset = 0;
    std::string directory;  // watched for changes
  };

  absl::Status WaitForJob();
  void OpenStreams(const gpuctl::v1::JobSpec& spec);
  absl::Status SendHeadersAndTail();
  absl::Status AddHeader(StreamState& stream, gpuctl::v1::WatchReply& reply);
  absl::Status AddTail(StreamState& output, gpuctl::v1::WatchReply& reply);
  // Fills `reply` with up to kMessageBytes of the bytes that are ready. Returns their number.
  absl::StatusOr<int64_t> Fill(gpuctl::v1::WatchReply& reply);
  absl::StatusOr<int64_t> FillFrom(StreamState& stream, int64_t room,
                                   gpuctl::v1::WatchReply& reply);
  enum class Progress { kRunning, kEnding, kOver };
  absl::StatusOr<Progress> GetProgress();
  absl::Status AddHeartbeat(gpuctl::v1::WatchReply& reply);
  absl::Status Send(const gpuctl::v1::WatchReply& reply);

  const RootPaths& root_;
  const std::string node_id_;
  const gpuctl::v1::WatchRequest request_;
  const Callbacks callbacks_;
  Clock& clock_;
  JobPaths job_;
  ChangeNotifier notifier_;
  std::vector<StreamState> streams_;  // small ones first
  std::string buffer_;
  absl::Duration last_heartbeat_;
  absl::Duration last_sent_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_JOBS_WATCH_H_

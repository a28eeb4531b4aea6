// A Follower on its own thread, and its news for the main thread.
#ifndef GPUCTL_CLIENT_FOLLOW_FOLLOW_SESSION_H_
#define GPUCTL_CLIENT_FOLLOW_FOLLOW_SESSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/base/worker.h"
#include "client/market/still_rented.h"
#include "client/runs/context.h"
#include "client/runs/queue_state.h"
#include "client/streams/follower.h"
#include "common/base/link_fault.h"

namespace gpuctl {

// The state of the link, and new data since the last call.
struct FollowNews {
  bool linked = false;
  bool ever_linked = false;
  bool by_other = false;                   // another gpuctl has the link, and stores the data
  std::optional<absl::Status> answer;      // by_other: of the node to the last question beside it
  absl::Status link_error;                 // of the last attempt
  std::optional<absl::Duration> heard_at;  // time since boot of the node's last sign of life
  std::optional<absl::Duration> silence;   // from then to the call of Take
  bool accepted = false;
  bool no_room = false;                               // for the output, on this disk
  bool heartbeat = false;                             // a heartbeat has come
  std::optional<QueueState> queue;                    // while the job waits for GPUs
  int64_t node_output_size = -1;                      // from the last heartbeat or answer; -1: none
  std::vector<std::string> notices;                   // since the last call
  std::vector<std::pair<int64_t, std::string>> tail;  // display tail, since the last call
  bool done = false;
  absl::Status result;  // when done

  void Forget() {
    notices.clear();
    tail.clear();
  }
};

class FollowSession : private FollowObserver {
 public:
  // Follows `row`'s job and keeps the row's acceptance and "last heard" up to date. With
  // `fail_fast`, an unreachable node ends the session while the job is not accepted; a node that
  // accepts the connection and breaks the link gets a few trials. While the link to a rented
  // machine is down, asks its market; a missing machine ends the session with NOT_FOUND (see
  // MarketCheck).
  FollowSession(CommandContext& context, RunStore& store, const RunRow& row, FollowOptions options,
                LinkFactory& links, bool fail_fast);
  // Stops and waits for the thread.
  ~FollowSession() override;

  // Starts the thread; `until` runs on it.
  absl::Status Start(std::function<bool()> until = nullptr);
  // Stops the session and waits for the thread, at most `patience`. Returns false when it is still
  // inside a connection attempt (see ExitAtOnce).
  bool Finish(absl::Duration patience);
  // Stops this process as Ctrl-Z does, without the mirror's lock: other commands must not wait for
  // it. Returns when the process goes on.
  void StopProcess();
  // From any thread; also while Finish has given up on the thread.
  StartAnswer start_answer() const { return follower_.start_answer(); }
  // Readable when there may be news. Take clears it.
  int wake_fd() const { return worker_.wake_fd(); }
  FollowNews Take();

 private:
  void OnStored() override;
  void OnOther(bool grew) override;
  void OnAnswer(const absl::StatusOr<JobAnswer>& answer) override;
  void OnMirrorTaken() override;
  void OnTail(int64_t offset, absl::string_view data) override;
  void OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) override;
  void OnConnected() override;
  void OnLinkUp() override;
  void OnLinkDown(const absl::Status& status, absl::Duration retry_in) override;
  absl::Status OnNode(const std::string& node_id) override;
  absl::Status OnAccepted(const gpuctl::v1::Job& job, const std::string& node_id) override;
  void OnRoom(bool is_there) override;
  void OnNotice(absl::string_view text) override;
  // Called when a link broke for `fault`, or was not made.
  bool MachineIsLost(LinkFault fault);
  void Heard();
  // Keeps the place of a job that waits for GPUs.
  void TakeQueue(const gpuctl::v1::Job& job);

  CommandContext& context_;
  RunStore& store_;
  const std::string run_id_;
  const std::string mirror_dir_;
  const bool fail_fast_;
  const bool of_cluster_;  // the machine is an allocation

  // Used by the thread only.
  bool connected_ = false;  // the current link connected
  int broken_links_ = 0;
  absl::Status gone_;   // what the market says of an allocation that is over
  int since_gone_ = 0;  // links that were not made since then
  MarketCheck market_check_;
  int64_t heard_ms_;
  int64_t heard_stored_ms_;
  absl::Duration heard_stored_at_ = -absl::InfiniteDuration();
  absl::Status fatal_;  // the reason why it stopped itself

  Follower follower_;
  Worker<FollowNews> worker_;  // last: its destructor waits for the thread, which uses the others
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_FOLLOW_SESSION_H_

// Copies a job's streams to the laptop: connects, starts the job if that has not happened yet,
// watches, stores, and does all of it again when the link breaks.
#ifndef GPUCTL_CLIENT_STREAMS_FOLLOWER_H_
#define GPUCTL_CLIENT_STREAMS_FOLLOWER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link/link.h"
#include "client/streams/mirror.h"
#include "common/base/clock.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The events of a Follower for its owner, on the thread that called Follow.
class FollowObserver {
 public:
  virtual ~FollowObserver() = default;
  // Tells that the mirror grew. The owner may read it, but must not block for long: another thread
  // writes to the terminal.
  virtual void OnStored() {}
  // Tells that another process writes the mirror, and this one reads it. `grew`: since the last
  // such call.
  virtual void OnOther(bool grew) { (void)grew; }
  // Gets the newest bytes of the output, from `offset` on: to show, not stored.
  virtual void OnTail(int64_t offset, absl::string_view data) { (void)offset, (void)data; }
  virtual void OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) { (void)heartbeat; }
  // Tells that a connection to the node was made. OnLinkUp comes later, or never: a server that a
  // newer one is replacing ends the link.
  virtual void OnConnected() {}
  // Tell that the link is up, or was lost with this status; the next try is after `retry_in`.
  virtual void OnLinkUp() {}
  virtual void OnLinkDown(const absl::Status& status, absl::Duration retry_in) {
    (void)status, (void)retry_in;
  }
  // Gets the node that will be asked to start the job, before the request. Record it durably: after
  // this another node never starts the job. An error stops everything.
  virtual absl::Status OnNode(const std::string& node_id) {
    (void)node_id;
    return absl::OkStatus();
  }
  // Tells that the node has accepted the job (for the first time, or again). Record it: from now on
  // a node that does not know the job has lost it.
  virtual absl::Status OnAccepted(const gpuctl::v1::Job& job, const std::string& node_id) {
    (void)job, (void)node_id;
    return absl::OkStatus();
  }
  // Gets a message for the user: bytes are missing, or were set aside.
  virtual void OnNotice(absl::string_view text) { (void)text; }
};

// How a launch starts its job: one value that goes from launch through show to here.
struct StartRequest {
  gpuctl::v1::StartJobRequest start;
  // Pushes the content of start.spec().manifest_digest() when the node lacks it. Empty when the job
  // has none.
  std::function<absl::Status()> push_content;
  // The node that last answered for the job's machine. Empty: the first that answers. If the
  // machine was rebuilt meanwhile, the new node takes its place, as long as none was asked to start
  // the job.
  std::string node_id;
  // Called once when the show of the launch ends in an error, before all else. `interrupted`
  // returns true after Ctrl-C. May be empty.
  std::function<void(const std::function<bool()>& interrupted)> on_failure;
};

struct FollowOptions {
  std::string job_id;
  std::string client_id;
  std::string mirror_dir;
  int64_t output_segment_bytes = 0;
  // The request that starts the job if no node has accepted it yet. Absent: only watch.
  std::optional<StartRequest> start;
  // The node that accepted the job, or may have. If another node answers, the job is lost. Empty
  // when none was asked.
  std::string node_id;
  int64_t display_tail_bytes = 0;
  // Time after which an unreachable node is given up; infinite for attach on a terminal.
  absl::Duration give_up_after = absl::InfiniteDuration();
  // Time without a byte after which a link is dead; the server's heartbeats come every 5 s.
  absl::Duration dead_after = absl::Seconds(15);
};

// What is known of the answer to StartJob.
enum class StartAnswer {
  kNotAsked,
  kUnknown,   // a node was asked, and may have accepted
  kRefused,   // the node answered, and has no job
  kAccepted,  // the node has the job
};

class Follower {
 public:
  // All must outlive the Follower.
  Follower(FollowOptions options, LinkFactory& links, FollowObserver& observer, Clock& clock);
  ~Follower();

  // Returns OK when the job is over and everything is stored, or when `until` (checked after each
  // message) returned true. Errors:
  //   CANCELLED      Stop was called
  //   NOT_FOUND      the job is lost: another node answers, or this one does not know it any more
  //   UNAVAILABLE    not reachable for give_up_after; the job is unaffected
  //   others         as StartJob or the mirror gave them
  // While another process writes the mirror, follows that mirror instead.
  absl::Status Follow(const std::function<bool()>& until = nullptr);

  // Makes Follow return soon. Safe from any thread, not from a signal handler.
  void Stop();
  // From any thread.
  StartAnswer start_answer() const { return start_answer_; }

 private:
  struct Live;  // the parts that Stop may use: the link and the calls in flight
  class Start;  // a StartJob call on its own thread
  enum class Next { kDone, kRelink, kPush };

  absl::StatusOr<Next> FollowLink(Link& link, const std::function<bool()>& until);
  // Returns the question for what comes after the mirror's end.
  absl::StatusOr<gpuctl::v1::WatchRequest> RequestFromHere();
  absl::StatusOr<Next> WatchOnce(Link& link, const std::function<bool()>& until);
  absl::Status Handle(const gpuctl::v1::WatchReply& reply);
  absl::StatusOr<Next> HandleStart(Start& start);
  absl::Status ChooseNode(Link& link);
  absl::Status FollowOther(const std::function<bool()>& until);
  // Waits; returns false when Stop was called meanwhile.
  bool Pause(absl::Duration duration);

  FollowOptions options_;
  const bool fresh_;     // no node was asked to start the job before
  std::string node_id_;  // the one that is asked, or was
  LinkFactory& links_;
  FollowObserver& observer_;
  Clock& clock_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<Live> live_;
  std::atomic<StartAnswer> start_answer_{StartAnswer::kNotAsked};
  bool accepted_;
  bool asked_ = false;  // a StartJob was sent and its answer never came
  bool tail_shown_ = false;
  bool heard_ = false;       // the current link brought a message
  bool ever_heard_ = false;  // some link brought a message; from then on errors are temporary
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_FOLLOWER_H_

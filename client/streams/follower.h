// Brings a job's streams home: links, starts the job if that has not happened yet, watches, stores,
// and does all of it again when the link breaks.
#ifndef GPUCTL_CLIENT_STREAMS_FOLLOWER_H_
#define GPUCTL_CLIENT_STREAMS_FOLLOWER_H_

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

// What a Follower tells its owner, on the thread that called Follow.
class FollowObserver {
 public:
  virtual ~FollowObserver() = default;
  // The mirror grew. Read it; do not block for long (the terminal is somebody else's thread).
  virtual void OnStored() {}
  // Another process writes the mirror, and is followed instead; `grew` since the last such call.
  virtual void OnOther(bool grew) { (void)grew; }
  // The newest bytes of the output, ending at `end_offset`; shown and not stored.
  virtual void OnTail(int64_t offset, absl::string_view data) { (void)offset, (void)data; }
  virtual void OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) { (void)heartbeat; }
  // The node let us in. What is heard of it comes later, or never: a server that is just making way
  // for a newer one ends the link.
  virtual void OnConnected() {}
  // The link is up, or was lost with this status; `retry_in` until the next try.
  virtual void OnLinkUp() {}
  virtual void OnLinkDown(const absl::Status& status, absl::Duration retry_in) {
    (void)status, (void)retry_in;
  }
  // The node that will be asked to start the job, before it is asked. Record it durably: after this
  // another node never starts the job. An error stops everything.
  virtual absl::Status OnNode(const std::string& node_id) {
    (void)node_id;
    return absl::OkStatus();
  }
  // The node has accepted the job (its first time for this run, or again). Record it: from now on a
  // node that does not know the job has lost it.
  virtual absl::Status OnAccepted(const gpuctl::v1::Job& job, const std::string& node_id) {
    (void)job, (void)node_id;
    return absl::OkStatus();
  }
  // Something the user should read: bytes missing, bytes set aside.
  virtual void OnNotice(absl::string_view text) { (void)text; }
};

// How a launch starts its job: one value that goes from launch through show to here.
struct StartRequest {
  gpuctl::v1::StartJobRequest start;
  // Pushes the content of start.spec().manifest_digest(); called when the node lacks it. Empty when
  // the job has none.
  std::function<absl::Status()> push_content;
  // The node that the job's machine was last. Empty: the first that answers. Another one takes its
  // place as long as none was asked to start the job.
  std::string node_id;
  // Called once when showing the launch ends in an error, before anything else is done about that.
  // `interrupted` returns true after Ctrl-C. Empty: nothing is to be done.
  std::function<void(const std::function<bool()>& interrupted)> on_failure;
};

struct FollowOptions {
  std::string job_id;
  std::string client_id;
  std::string mirror_dir;
  int64_t output_segment_bytes = 0;
  // Starts the job if it has not been accepted yet. Absent: only watch.
  std::optional<StartRequest> start;
  // The node that accepted the job, or may have; another one has lost it. Empty when none was
  // asked.
  std::string node_id;
  int64_t display_tail_bytes = 0;
  // Give up on an unreachable node after this long; infinite for attach on a terminal.
  absl::Duration give_up_after = absl::InfiniteDuration();
  // A link that brings no byte for this long is dead; the server's heartbeats come every 5 s.
  absl::Duration dead_after = absl::Seconds(15);
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
  // While another process writes the mirror, follows what that one stores instead.
  absl::Status Follow(const std::function<bool()>& until = nullptr);

  // From any thread; Follow returns soon after. Not from a signal handler.
  void Stop();

 private:
  struct Live;  // what Stop may touch: the link and the calls in flight
  class Start;  // a StartJob call on a thread of its own
  enum class Next { kDone, kRelink, kPush };

  absl::StatusOr<Next> FollowLink(Link& link, const std::function<bool()>& until);
  absl::StatusOr<Next> WatchOnce(Link& link, const std::function<bool()>& until);
  absl::Status Handle(const gpuctl::v1::WatchReply& reply);
  absl::StatusOr<Next> HandleStart(Start& start);
  absl::Status ChooseNode(Link& link);
  absl::Status FollowOther(const std::function<bool()>& until);
  // Waits; false when Stop was called meanwhile.
  bool Pause(absl::Duration duration);

  FollowOptions options_;
  const bool fresh_;     // no node was asked to start the job before
  std::string node_id_;  // the one that is asked, or was
  LinkFactory& links_;
  FollowObserver& observer_;
  Clock& clock_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<Live> live_;
  bool accepted_;
  bool asked_ = false;  // a StartJob was sent whose answer never came
  bool tail_shown_ = false;
  bool heard_ = false;       // the current link brought something
  bool ever_heard_ = false;  // some link did; errors are temporary from then on
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_FOLLOWER_H_

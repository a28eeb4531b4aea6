// Brings a job's streams home: links, starts the job if that has not happened yet, watches, stores,
// and does all of it again when the link breaks.
#ifndef GPUCTL_CLIENT_FOLLOW_H_
#define GPUCTL_CLIENT_FOLLOW_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/link.h"
#include "common/clock.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// What a Follower tells its owner, on the thread that called Follow.
class FollowObserver {
 public:
  virtual ~FollowObserver() = default;
  // The mirror grew. Read it; do not block for long (the terminal is somebody else's thread).
  virtual void OnStored() {}
  // The newest bytes of the output, ending at `end_offset`; shown and not stored.
  virtual void OnTail(int64_t offset, absl::string_view data) { (void)offset, (void)data; }
  virtual void OnHeartbeat(const gpuctl::v1::Heartbeat& heartbeat) { (void)heartbeat; }
  // The link is up, or was lost with this status; `retry_in` until the next try.
  virtual void OnLinkUp() {}
  virtual void OnLinkDown(const absl::Status& status, absl::Duration retry_in) {
    (void)status, (void)retry_in;
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

struct FollowOptions {
  std::string job_id;
  std::string client_id;
  std::string mirror_dir;
  int64_t output_segment_bytes = 0;
  // Start the job with this if it has not been accepted yet. Absent: only watch.
  std::optional<gpuctl::v1::StartJobRequest> start;
  // Called when the node lacks the content of start->spec.manifest_digest(). Pushes it.
  std::function<absl::Status()> push_content;
  // The node that accepted the job; another one has lost it. Empty when none has yet.
  std::string node_id;
  int64_t display_tail_bytes = 0;
  // Give up on an unreachable node after this long; infinite for attach on a terminal.
  absl::Duration give_up_after = absl::InfiniteDuration();
};

class Follower {
 public:
  // All must outlive the Follower.
  Follower(FollowOptions options, LinkFactory& links, FollowObserver& observer, Clock& clock);

  // Returns OK when the job is over and everything is stored, or when `until` (checked after each
  // message) returned true. Errors:
  //   CANCELLED      Stop was called
  //   NOT_FOUND      the job is lost: another node answers, or this one does not know it any more
  //   UNAVAILABLE    not reachable for give_up_after; the job is unaffected
  //   others         as StartJob or the mirror gave them
  absl::Status Follow(const std::function<bool()>& until = nullptr);

  // From any thread or a signal-handling thread; Follow returns soon after.
  void Stop();

 private:
  absl::Status FollowOnce(const std::function<bool()>& until, bool& heard);
  FollowOptions options_;
  LinkFactory& links_;
  FollowObserver& observer_;
  Clock& clock_;
  std::atomic<bool> stop_{false};
  bool accepted_ = false;
  bool tail_shown_ = false;
  struct Live;
  std::shared_ptr<Live> live_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_H_

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
#include "client/streams/ask_job.h"
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
  // Gets what the node said while another process writes the mirror: it may have more than the
  // mirror.
  virtual void OnAnswer(const absl::StatusOr<JobAnswer>& answer) { (void)answer; }
  // Tells that the other process has released the mirror, and this one writes it now.
  virtual void OnMirrorTaken() {}
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
  // Tells that there is no room for the output on this disk, or is again. Only the lifecycle is
  // stored without.
  virtual void OnRoom(bool is_there) { (void)is_there; }
  // Gets a message for the user: bytes are missing, or were set aside.
  virtual void OnNotice(absl::string_view text) { (void)text; }
};

// The place of a start behind others. Both are called on the thread of Follow, and may be empty.
struct StartTurn {
  // Returns when the node may be asked to start the job; called once a link is there. `stopped`
  // returns true when there is nothing to wait for any more.
  std::function<void(const std::function<bool()>& stopped)> wait;
  // Called once the node has accepted the job.
  std::function<void()> done;
};

// How a launch starts its job: one value that goes from launch through show to here.
struct StartRequest {
  gpuctl::v1::StartJobRequest start;
  // Pushes the content of start.spec().manifest_digest() when the node lacks it. Empty when the job
  // has none.
  std::function<absl::Status()> push_content;
  // Its place behind other starts on the same node.
  StartTurn turn;
  // The node that last answered for the job's machine. Empty: the first that answers. If the
  // machine was rebuilt meanwhile, the new node takes its place, as long as none was asked to start
  // the job.
  std::string node_id;
  // The run's mirror, held since before the run was in the list: another gpuctl that finds the run
  // waits for this one, and does not take it for a run whose launch has died.
  std::shared_ptr<Mirror> mirror;
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
  bool brings_home = false;  // new checkpoints come home meanwhile
  // The job is a part of a run on several machines: it is over only when its node says so, because
  // its last line may still follow.
  bool of_several = false;
  // True: the link may share a connection with other processes. For a follow that ends soon.
  bool shares_connection = false;
  // Time after which an unreachable node is given up; infinite for attach on a terminal.
  absl::Duration give_up_after = absl::InfiniteDuration();
  // Time without a byte after which a link is dead; the server's heartbeats come every 5 s.
  absl::Duration dead_after = absl::Seconds(15);
  // Time without new bytes in a mirror that another process writes, after which the node is asked.
  absl::Duration ask_beside_after = absl::Seconds(2);
  // Returns the bytes that are free on the disk of a directory, -1 when that is unknown. Empty: the
  // file system is asked. With less than kLeastFreeBytes only the lifecycle is stored.
  std::function<int64_t(const std::string& dir)> free_bytes;
};

// The room on the laptop's disk that a mirror leaves to everybody else.
constexpr int64_t kLeastFreeBytes = int64_t{256} << 20;

// What is known of the answer to StartJob.
enum class StartAnswer {
  kNotAsked,
  kUnknown,   // a node was asked, and may have accepted
  kRefused,   // the node answered, and has no job
  kAccepted,  // the node has the job
};

struct FollowerLive;  // the parts of a Follower that other threads use

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
  // While another process writes the mirror, follows that mirror instead. When that process does
  // not store what the node has (it is stopped), the node's word counts: OK when the job is over
  // there, although not everything is stored.
  absl::Status Follow(const std::function<bool()>& until = nullptr);

  // Makes Follow return soon. Safe from any thread, not from a signal handler.
  void Stop();
  // Makes Follow release the mirror and rest until Resume, for a process that is about to stop.
  // Waits at most `patience` for that. Does nothing before the node has accepted the job: then the
  // mirror shows others that a launch is at work. Safe from any thread but Follow's.
  void Suspend(absl::Duration patience);
  void Resume();
  // From any thread.
  StartAnswer start_answer() const { return start_answer_; }

 private:
  class Start;  // a StartJob call on its own thread
  enum class Next { kDone, kAgain, kRelink, kPush };

  absl::StatusOr<Next> FollowLink(Link& link, const std::function<bool()>& until);
  // Returns the question for what comes after the mirror's end.
  absl::StatusOr<gpuctl::v1::WatchRequest> RequestFromHere();
  // Decides what follows a Watch that the node ended with "ended".
  absl::StatusOr<Next> AfterWatch(const absl::Status& ended, bool was_accepted) const;
  absl::StatusOr<Next> WatchOnce(Link& link, const std::function<bool()>& until);
  absl::Status Handle(const gpuctl::v1::WatchReply& reply);
  absl::StatusOr<Next> HandleStart(Start& start, Link& link);
  absl::Status ChooseNode(Link& link);
  absl::Status FollowMirror(const std::function<bool()>& until);
  // Returns true when nothing more is to be followed.
  absl::StatusOr<bool> FollowOther(const std::function<bool()>& until);
  // Opens the mirror. Returns false when another process has it.
  absl::StatusOr<bool> TakeMirror();
  absl::StatusOr<std::unique_ptr<Link>> Connect();
  // Rests while suspended, without the mirror.
  void RestWhileSuspended();
  // Waits; ends early when Suspend is called. Returns false when Stop was called meanwhile.
  bool Pause(absl::Duration duration);
  bool RoomIsBack();

  FollowOptions options_;
  const bool fresh_;     // no node was asked to start the job before
  std::string node_id_;  // the one that is asked, or was
  LinkFactory& links_;
  FollowObserver& observer_;
  Clock& clock_;
  std::shared_ptr<Mirror> mirror_;
  std::unique_ptr<FollowerLive> live_;
  std::atomic<StartAnswer> start_answer_{StartAnswer::kNotAsked};
  std::atomic<bool> accepted_;
  absl::Duration look_for_room_at_;  // since boot
  bool asked_ = false;               // a StartJob was sent and its answer never came
  bool tail_shown_ = false;
  bool heard_ = false;       // the current link brought a message
  bool ever_heard_ = false;  // some link brought a message; from then on errors are temporary
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_FOLLOWER_H_

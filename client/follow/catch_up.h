// Brings a run up to date without showing it, and makes the options of its Follower.
#ifndef GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_
#define GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/streams/follower.h"

namespace gpuctl {

struct FollowNews;
class FollowSession;
class LinkFactory;

// Returns options for a job to watch, not to start.
absl::StatusOr<FollowOptions> WatchOptions(CommandContext& context, RunStore& store,
                                           const RunRow& row);

enum class Caught { kUp, kOver, kNot };
// Brings the mirror up to date without showing anything. Returns kOver when the job is over and all
// data is here, kUp when the mirror has all data that the node had at the start, or when `until`
// returned true. Returns kNot after `give_up_after` without the node; *error has the reason. Also
// returns kNot when another process writes the mirror and does not store what the node has; then
// row.end tells whether the job is over. An ended run that is all here costs nothing; what is
// missing of one is brought, and AskAgain may undo its end. Ctrl-Z stops the process.
absl::StatusOr<Caught> CatchUp(CommandContext& context, RunStore& store, RunRow& row,
                               absl::Duration give_up_after, absl::Status* error);

// A catch-up whose waiting is left to the caller, so that several can be at work on one thread.
// Prepare and, unless it has the result, Start come first; then Step whenever the session has news
// and after each look_every().
class CatchUpWork {
 public:
  // All are used until this object is destroyed.
  CatchUpWork(CommandContext& context, RunStore& store, RunRow& row);
  // Waits for the session's thread.
  ~CatchUpWork();

  // Both return what CatchUp returns, once that is known.
  absl::StatusOr<std::optional<Caught>> Prepare(absl::Duration give_up_after);
  absl::StatusOr<std::optional<Caught>> Step();
  // The handlers of signals are to be installed before.
  absl::Status Start();
  FollowSession* session() const;
  absl::Duration look_every() const;
  // Why the node could not be asked.
  const absl::Status& error() const { return error_; }
  // The last error of the link; OK when there was none.
  const absl::Status& link_error() const { return link_error_; }
  // True when the node has answered, or another process that follows the run goes on.
  bool heard() const { return heard_; }
  // True while the link is up; and the time since the node's last sign of life, as of the last
  // Step.
  bool linked() const { return linked_; }
  std::optional<absl::Duration> silence() const { return silence_; }
  // True while this disk has no room for more than the lifecycle, as of the last Step.
  bool no_room() const { return no_room_; }
  // What the user is to hear, since the last call.
  std::vector<std::string> TakeNotices() { return std::exchange(notices_, {}); }

 private:
  struct Parts;
  absl::StatusOr<Caught> AfterEnd(const FollowNews& news);

  CommandContext& context_;
  RunStore& store_;
  RunRow& row_;
  std::unique_ptr<Parts> parts_;
  absl::Status error_, link_error_;
  bool heard_ = false, linked_ = false, no_room_ = false;
  std::optional<absl::Duration> silence_;
  std::vector<std::string> notices_;
};

// Follows until `until` is true (called on another thread, after each message), the job's end, or
// `timeout` (DEADLINE_EXCEEDED). Ctrl-C returns CANCELLED.
absl::Status FollowQuietly(CommandContext& context, RunStore& store, RunRow& row,
                           LinkFactory& links, absl::Duration timeout, absl::Duration give_up_after,
                           const std::function<bool()>& until);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_FOLLOW_CATCH_UP_H_

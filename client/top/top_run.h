// One run of gpuctl top: it is followed while it lives, and read from its mirror.
#ifndef GPUCTL_CLIENT_TOP_TOP_RUN_H_
#define GPUCTL_CLIENT_TOP_TOP_RUN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/follow/catch_up.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/streams/mirror_reader.h"
#include "client/top/top_screen.h"

namespace gpuctl {

class TopRunFollower {
 public:
  // `context` and `store` outlive it.
  static absl::StatusOr<std::unique_ptr<TopRunFollower>> Make(CommandContext& context,
                                                              RunStore& store, RunRow row);
  TopRunFollower(const TopRunFollower&) = delete;
  TopRunFollower& operator=(const TopRunFollower&) = delete;

  // Takes what came, and begins or renews the link where that is due. `may_link`: whether one more
  // link may be begun.
  void Step(bool may_link);
  // Tells it what the list of runs has now.
  void SetRow(const RunRow& row);
  // Ends the link; false when its thread does not end within `patience` (see ExitAtOnce).
  bool Unlink(absl::Duration patience);

  // Readable when there may be news; -1 without a link.
  int wake_fd() const;
  bool linked() const { return work_ != nullptr; }
  const RunRow& row() const { return row_; }
  bool ended() const { return row_.end.has_value(); }
  // Its state, from its mirror; with its place in the queue while it waits for GPUs.
  RunStatus Status() const;
  // Its numbers, as of the last Step.
  const MirrorReader& mirror() const { return mirror_; }
  // Why its numbers may be old; "" when they are not.
  std::string Remark() const;
  // What the screen shows, but for its cost. Valid until the next call of Step.
  TopRun View();
  // Since the last call, for the user.
  std::vector<std::string> TakeNotices();

 private:
  TopRunFollower(CommandContext& context, RunStore& store, RunRow row,
                 const std::string& mirror_dir)
      : context_(context),
        store_(store),
        row_(std::move(row)),
        mirror_dir_(mirror_dir),
        mirror_(mirror_dir, row_.output_segment_bytes) {}

  void Begin();
  void Settle(const absl::StatusOr<std::optional<Caught>>& caught);

  CommandContext& context_;
  RunStore& store_;
  RunRow row_;
  const std::string mirror_dir_;
  MirrorReader mirror_;
  std::unique_ptr<CatchUpWork> work_, ending_;      // use row_; the second one's thread is to end
  absl::Duration retry_at_ = absl::ZeroDuration();  // since boot
  absl::Status error_;                              // why there is no link
  std::vector<std::string> notices_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TOP_TOP_RUN_H_

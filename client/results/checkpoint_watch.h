// Downloads new checkpoints during a run, on its own thread with its own links, so that it never
// delays the run's output.
#ifndef GPUCTL_CLIENT_RESULTS_CHECKPOINT_WATCH_H_
#define GPUCTL_CLIENT_RESULTS_CHECKPOINT_WATCH_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/base/worker.h"
#include "client/link/link.h"
#include "client/node/node_calls.h"
#include "client/runs/context.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_store.h"
#include "common/base/backoff.h"
#include "common/base/mutex.h"

namespace gpuctl {

// Interval between requests for the node's list.
constexpr absl::Duration kCheckpointLookEvery = absl::Seconds(3);

struct CheckpointWatchOptions {
  std::string to;
  bool own_directory = false;  // `to` is the default directory: made with a .gpuctlignore in it
  int keep = 0;                // how many of the newest stay at home; 0: all
  int streams = 1;             // of each transfer
  bool once = false;  // ends when all that is there now is at home, also while the job runs
};

// Parses the number of --pull or --keep; an error names `flag`. "true", a flag without value, is 0.
absl::StatusOr<int> ParseKeep(const std::string& text, const char* flag);

// Returns the options of --pull[=N] of `attach` and `launch`; nothing when it was not given.
absl::StatusOr<std::optional<CheckpointWatchOptions>> ParsePullFlag(const std::string& text,
                                                                    const std::string& run_name);

class CheckpointWatch {
 public:
  // Only the watch's thread uses `links`.
  CheckpointWatch(CommandContext& context, const RunRow& row, std::unique_ptr<LinkFactory> links,
                  CheckpointWatchOptions options);
  // Cancels and waits for the thread, which may be inside a transfer.
  ~CheckpointWatch();

  absl::Status Start();
  // Tells that the job is over. The thread ends after a last look, which downloads the rest.
  void RunIsOver();
  // Ends the thread, and waits at most `patience`. Returns false when it is still inside a transfer
  // (see ExitAtOnce); received parts stay for the next pull.
  bool Cancel(absl::Duration patience);

  struct Brought {
    std::string path;
    int64_t step = -1;
    bool foreign = false;
    int64_t bytes = 0;
  };
  struct News {
    std::vector<std::string> notices;  // since the last call
    std::vector<Brought> brought;      // since the last call
    // The error of the first checkpoint that did not come home, and does not by itself.
    absl::Status missed;
    bool done = false;

    void Forget() {
      notices.clear();
      brought.clear();
    }
  };
  // Readable when there may be news. Take clears it.
  int wake_fd() const { return worker_.wake_fd(); }
  News Take() { return worker_.Take(); }

 private:
  void Run();
  // Looks once; returns true when another look is due at once.
  absl::StatusOr<bool> Look();
  absl::StatusOr<bool> Bring(const gpuctl::v1::CheckpointInfo& checkpoint);
  // Ends the salvage of a node with limits; `all` after the last look.
  void TellNode(bool all);
  // True when everything of the ended run is home: all checkpoints that were listed, and no other
  // result is asked for; a run without any checkpoint only when its job made nothing.
  bool AllIsHome();
  bool OthersAreHome();
  absl::Status Prune();
  bool Wanted(const std::vector<PulledItem>& items, const gpuctl::v1::CheckpointInfo& checkpoint);
  void Fail(const absl::Status& status);
  void Tell(std::string notice);
  bool over();
  bool cancelled();

  CommandContext& context_;
  const RunRow row_;
  const std::unique_ptr<LinkFactory> links_;
  const CheckpointWatchOptions options_;

  // Used by the thread only.
  std::unique_ptr<NodeCalls> calls_;
  std::unique_ptr<PulledRecord> record_;
  Backoff backoff_;
  std::set<std::string> given_up_;  // path and time of checkpoints whose errors do not go away
  std::string told_failure_;
  bool limited_ = false;         // the node has limits
  bool missed_ = false;          // a checkpoint could not be downloaded
  bool none_listed_ = true;      // the newest list had no checkpoint
  bool files_listed_ = false;    // it had files that belong to no checkpoint
  bool unreached_ = false;       // one lies behind a symlink that leads to no directory
  std::optional<int64_t> step_;  // step of the newest trainer's checkpoint at home

  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;

  Worker<News> worker_;  // last member: its destructor waits for the thread, which uses the others
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_CHECKPOINT_WATCH_H_

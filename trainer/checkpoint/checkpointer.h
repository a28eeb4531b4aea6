// Writes checkpoints while training continues, and keeps only the wanted ones.

#ifndef TRAINER_CHECKPOINT_CHECKPOINTER_H_
#define TRAINER_CHECKPOINT_CHECKPOINTER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/checkpoint/checkpoint.h"

namespace gpuctl::trainer {

// The result of one snapshot.
struct CheckpointReport {
  int64_t step = 0;
  std::string path;
  std::string failure;              // "" if it was published
  ExitCode code = ExitCode::kDone;  // of the failure
  double seconds = 0;               // time to write, while training continues
  double stall_seconds = 0;         // time that training waited: for copying and for a busy writer
  std::vector<std::string> problems;  // errors of pruning; the checkpoint is valid
};

class Checkpointer {
 public:
  // Writes below `root`. Of the checkpoints up to the one just written, keeps the newest
  // `keep_last` and the `keep_best` with the lowest "held_out_loss" in state.json.
  Checkpointer(std::string root, int64_t keep_last, int64_t keep_best);
  ~Checkpointer();  // waits for the writer
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Waits until the writer is free, calls `take`, gives the snapshot to the writer and returns.
  // `take` gets the snapshot before, which has been written, so that it can use its memory again.
  // What it throws comes through, and nothing is written then.
  void Save(const std::function<Snapshot(Snapshot written)>& take);

  // Keeps the memory of `room` for the first Save, as that of a snapshot before. Not after a Save.
  void Keep(Snapshot room);

  // Writes the snapshot at once, while training waits. Its tensors may be the live ones.
  void SaveNow(const Snapshot& snapshot);

  // Waits until the writer is idle.
  void Wait();

  // Returns the oldest report that nobody has taken yet.
  std::optional<CheckpointReport> TakeReport();

 private:
  void Serve();
  CheckpointReport Write(const Snapshot& snapshot) const;

  const std::string root_;
  const int64_t keep_last_;
  const int64_t keep_best_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> pending_;        // guarded by mutex_
  Snapshot written_;                       // guarded by mutex_; the one before, for its memory
  double stall_seconds_ = 0;               // guarded by mutex_; of pending_
  bool writing_ = false;                   // guarded by mutex_
  bool leaving_ = false;                   // guarded by mutex_
  std::vector<CheckpointReport> reports_;  // guarded by mutex_
  std::thread writer_;
};

// Removes the checkpoints that the rule above does not keep, never the one of `step` nor a later
// one. Returns those that could not be removed.
std::vector<std::string> PruneCheckpoints(const std::string& root, int64_t step, int64_t keep_last,
                                          int64_t keep_best);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_CHECKPOINTER_H_

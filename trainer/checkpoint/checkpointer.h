// Writes checkpoints behind the training step and keeps only those wanted.

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

#include "trainer/checkpoint/checkpoint.h"

namespace gpuctl::trainer {

// What became of one snapshot.
struct CheckpointReport {
  int64_t step = 0;
  std::string path;
  std::string failure;                // "" if it was published
  double seconds = 0;                 // writing, behind the step
  double stall_seconds = 0;           // what the step waited: copying, and a writer still busy
  std::vector<std::string> problems;  // pruning that did not work; the checkpoint stands
};

class Checkpointer {
 public:
  // Writes below `root`. Of the checkpoints up to the one just written, the newest `keep_last` and
  // the `keep_best` of lowest "held_out_loss" in state.json are kept.
  Checkpointer(std::string root, int64_t keep_last, int64_t keep_best);
  ~Checkpointer();  // waits for the writer
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  // Waits until the writer is free, calls `take`, hands the snapshot over and returns.
  void Save(const std::function<Snapshot()>& take);

  // Waits until nothing is being written.
  void Wait();

  // The oldest report that nobody has taken yet.
  std::optional<CheckpointReport> TakeReport();

 private:
  void Serve();

  const std::string root_;
  const int64_t keep_last_;
  const int64_t keep_best_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Snapshot> pending_;        // guarded by mutex_
  double stall_seconds_ = 0;               // guarded by mutex_; of pending_
  bool writing_ = false;                   // guarded by mutex_
  bool leaving_ = false;                   // guarded by mutex_
  std::vector<CheckpointReport> reports_;  // guarded by mutex_
  std::thread writer_;
};

// Removes what the rule above does not keep, never the one of `step` nor any later one. Returns
// what could not be removed.
std::vector<std::string> PruneCheckpoints(const std::string& root, int64_t step, int64_t keep_last,
                                          int64_t keep_best);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_CHECKPOINTER_H_

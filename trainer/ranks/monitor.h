// Watches that all processes of a run are alive. A collective operation waits for ever for a
// process that is gone; the monitor knows within seconds, and knows which one it is. Uses no
// LibTorch.
//
// Each rank counts up its own number in the store every half second. Rank 0 sees which one stands
// still and tells it to all. The store is rank 0's, so its silence or end is seen by the others
// themselves.

#ifndef TRAINER_RANKS_MONITOR_H_
#define TRAINER_RANKS_MONITOR_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/ranks/store.h"

namespace gpuctl::trainer {

class Monitor {
 public:
  // Begins to watch, with a connection of its own. A rank that is silent for `silence` seconds is
  // gone. When there is trouble and nobody has called Notice after a few seconds, because the
  // process waits for what never comes, calls `end` with the trouble, on a thread of its own; it
  // does not return.
  Monitor(const Ranks& ranks, double silence, std::unique_ptr<Store> store,
          std::function<void(const std::string& trouble)> end);
  // Tells nobody; see Leave and Fail.
  ~Monitor();

  // Returns "", or what has happened to another rank: "rank 1 is gone: …".
  std::string Trouble() const;
  // An operation with the others failed. Looks closer for a dead rank, and returns the trouble, or
  // "" when none shows in time.
  std::string FindTrouble();
  // The caller ends because of the trouble. Rank 0 may finish a checkpoint before; the others,
  // which may wait for rank 0, are ended all the same.
  void Notice() {
    if (ranks_.rank == 0) noticed_ = true;
  }
  // This rank ends with an error: tells the others, unless there was trouble before. On rank 0,
  // which has the store, waits until they know, for a few seconds at most. The process must end
  // then: this is not to be destroyed, because its threads may wait for a rank that stands still.
  void Fail(const std::string& message);
  // This rank is through. On rank 0 waits for the others.
  void Leave();

 private:
  using Clock = std::chrono::steady_clock;

  void Beat();
  void Watch();
  void Look();
  void Tell(const std::string& trouble);
  void Learn(const std::string& trouble);
  void WaitForOthers(const char* key, int64_t count, double seconds);
  void Stop();
  double silence() const { return suspects_ ? kSuspectedSilence : silence_; }

  static constexpr double kSuspectedSilence = 2.5;  // seconds

  const Ranks ranks_;
  const double silence_;
  const std::unique_ptr<Store> store_;
  const std::function<void(const std::string&)> end_;
  struct Peer {
    int64_t beats = -1;
    double seen = 0;  // this process's time
    bool left = false;
  };
  std::vector<Peer> peers_;  // of Beat's thread, on rank 0
  std::atomic<bool> suspects_{false};
  std::atomic<bool> noticed_{false};
  std::atomic<bool> answered_{true};  // since Watch looked last
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string trouble_;   // guarded by mutex_
  bool leaving_ = false;  // guarded by mutex_
  double time_ = 0;       // of Beat's thread: seconds in which this process ran
  std::thread beat_;
  std::thread watch_;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_MONITOR_H_

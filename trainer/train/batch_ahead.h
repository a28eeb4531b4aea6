// The batches of a run, each prepared while the one before it trains.

#ifndef TRAINER_TRAIN_BATCH_AHEAD_H_
#define TRAINER_TRAIN_BATCH_AHEAD_H_

#include <cstdint>
#include <functional>
#include <future>
#include <utility>

#include "trainer/step/stepper.h"

namespace gpuctl::trainer {

class BatchAhead {
 public:
  // `make` returns the batch whose first window has this number. With `ahead` a thread calls it for
  // the next batch; without, Take does.
  BatchAhead(std::function<Batch(int64_t first_window)> make, bool ahead)
      : make_(std::move(make)), ahead_(ahead) {}
  ~BatchAhead() {
    if (next_.valid()) next_.wait();  // it uses what `make` refers to
  }
  BatchAhead(const BatchAhead&) = delete;
  BatchAhead& operator=(const BatchAhead&) = delete;

  // Returns make(first), and throws what it throws. Then begins with make(next).
  Batch Take(int64_t first, int64_t next) {
    if (!ahead_) return make_(first);
    Batch batch = next_.valid() && next_first_ == first ? next_.get() : make_(first);
    next_ = std::async(std::launch::async, make_, next);
    next_first_ = next;
    return batch;
  }

 private:
  const std::function<Batch(int64_t)> make_;
  const bool ahead_;
  std::future<Batch> next_;
  int64_t next_first_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_TRAIN_BATCH_AHEAD_H_

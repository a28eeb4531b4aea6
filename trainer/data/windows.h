// Decides the order of the windows of a token stream.
//
// A window has `context` inputs, and the same tokens shifted by one as targets. The order is a pure
// function of (seed, number of the window since the run began): resuming needs only that number,
// and nothing is shuffled in memory.

#ifndef TRAINER_DATA_WINDOWS_H_
#define TRAINER_DATA_WINDOWS_H_

#include <cstdint>
#include <vector>

#include "trainer/data/corpus.h"

namespace gpuctl::trainer {

constexpr int64_t kIgnore = -1;  // a target that is not scored

// Where a window is written: `context` numbers each. For each token, `starts` has the place in the
// window where its document begins; only windows with several documents write it.
struct WindowSlot {
  int64_t* inputs;
  int64_t* targets;
  int64_t* starts;
};

// Training windows. Each epoch visits every window once, in its own order, after shifting all of
// them by a seeded offset below `context`.
class TrainingWindows {
 public:
  // `stream` must outlive the object. Throws Error(kBadData) if it is shorter than two windows.
  TrainingWindows(const TokenStream& stream, int64_t context, uint64_t seed);

  int64_t windows_per_epoch() const { return count_; }
  // Returns the position of the first token of the `number`-th window of the run.
  int64_t Start(int64_t number) const;
  // Writes `context` inputs and targets. Returns how many targets are scored.
  int64_t Fill(int64_t number, int64_t* inputs, int64_t* targets) const;

 private:
  const TokenStream& stream_;
  int64_t context_;
  uint64_t seed_;
  int64_t count_;
};

// Held-out windows: consecutive, not overlapping; at most `limit` of them, evenly spaced.
class HeldOutWindows {
 public:
  // `stream` must outlive the object. Throws Error(kBadData) if nothing can be scored.
  HeldOutWindows(const TokenStream& stream, int64_t context, int64_t limit);

  int64_t count() const { return static_cast<int64_t>(starts_.size()); }
  // Does the same; fills a window beyond the end with kBos and kIgnore.
  int64_t Fill(int64_t index, int64_t* inputs, int64_t* targets) const;

 private:
  const TokenStream& stream_;
  int64_t context_;
  std::vector<int64_t> starts_;
};

// Returns the mean of -log p(next|previous) over exactly the targets that `windows` scores, in nats
// per byte.
double BigramEntropy(const TokenStream& train, const HeldOutWindows& windows, int64_t context);

// Returns one value of a permutation of 0 .. count-1 (a Feistel network, applied until the value is
// in range). `epoch` is below 2^32.
int64_t Permute(int64_t index, int64_t count, uint64_t seed, uint64_t epoch);

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_WINDOWS_H_

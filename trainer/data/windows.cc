#include "trainer/data/windows.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/philox.h"
#include "trainer/base/text.h"
#include "trainer/data/bigram.h"

namespace gpuctl::trainer {
namespace {

int64_t FillFrom(const TokenStream& stream, int64_t start, int64_t context, int64_t* inputs,
                 int64_t* targets) {
  const auto size = static_cast<int64_t>(stream.size());
  int64_t scored = 0;
  for (int64_t t = 0; t < context; ++t) {
    const int64_t at = start + t;
    inputs[t] = at < size ? stream[static_cast<size_t>(at)] : kBos;
    const int64_t next = at + 1 < size ? stream[static_cast<size_t>(at + 1)] : kBos;
    targets[t] = next == kBos ? kIgnore : next;
    if (targets[t] != kIgnore) ++scored;
  }
  return scored;
}

}  // namespace

int64_t Permute(int64_t index, int64_t count, uint64_t seed, uint64_t epoch) {
  uint64_t half_bits = 1;
  while ((uint64_t{1} << (2 * half_bits)) < static_cast<uint64_t>(count)) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t mixed = Random64(seed, RandomStream::kOrder, epoch, (round << 56) | right);
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

TrainingWindows::TrainingWindows(const TokenStream& stream, int64_t context, uint64_t seed)
    : stream_(stream),
      context_(context),
      seed_(seed),
      count_((static_cast<int64_t>(stream.size()) - context) / context) {
  if (count_ < 1) {
    throw DataError(Format("cut windows: %zu training tokens are fewer than two windows of %lld",
                           stream.size(), static_cast<long long>(context)),
                    "give more text or a smaller model.context");
  }
}

int64_t TrainingWindows::Start(int64_t number) const {
  const auto epoch = static_cast<uint64_t>(number / count_);
  const uint64_t offset =
      Random64(seed_, RandomStream::kOffset, epoch, 0) % static_cast<uint64_t>(context_);
  return static_cast<int64_t>(offset) + context_ * Permute(number % count_, count_, seed_, epoch);
}

int64_t TrainingWindows::Fill(int64_t number, int64_t* inputs, int64_t* targets) const {
  return FillFrom(stream_, Start(number), context_, inputs, targets);
}

HeldOutWindows::HeldOutWindows(const TokenStream& stream, int64_t context, int64_t limit)
    : stream_(stream), context_(context) {
  const auto size = static_cast<int64_t>(stream.size());
  if (size < 2) throw DataError("cut windows: the held-out part is empty", "give more text");
  const int64_t all = (size - 2) / context + 1;
  const int64_t taken = std::min(all, limit);
  for (int64_t i = 0; i < taken; ++i) starts_.push_back(i * all / taken * context);
}

int64_t HeldOutWindows::Fill(int64_t index, int64_t* inputs, int64_t* targets) const {
  return FillFrom(stream_, starts_[static_cast<size_t>(index)], context_, inputs, targets);
}

double BigramEntropy(const TokenStream& train, const HeldOutWindows& windows, int64_t context) {
  const BigramModel bigrams(train);
  std::vector<int64_t> inputs(static_cast<size_t>(context));
  std::vector<int64_t> targets(static_cast<size_t>(context));
  double sum = 0;
  int64_t scored = 0;
  for (int64_t i = 0; i < windows.count(); ++i) {
    scored += windows.Fill(i, inputs.data(), targets.data());
    for (size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] == kIgnore) continue;
      sum -=
          bigrams.LogProbability(static_cast<int32_t>(inputs[t]), static_cast<int32_t>(targets[t]));
    }
  }
  return scored > 0 ? sum / static_cast<double>(scored) : 0.0;
}

}  // namespace gpuctl::trainer

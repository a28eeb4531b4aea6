#include "trainer/data/bigram.h"

#include <cmath>

namespace gpuctl::trainer {
namespace {
constexpr size_t kBytes = 256;
}  // namespace

BigramModel::BigramModel(const TokenStream& stream)
    : pairs_(kByteVocabulary * kBytes),
      totals_(kByteVocabulary),
      distinct_(kByteVocabulary),
      unigram_(kBytes) {
  std::vector<int64_t> counts(kBytes);
  int64_t total = 0;
  for (size_t i = 0; i < stream.size(); ++i) {
    if (stream[i] == kBos) continue;
    ++counts[stream[i]];
    ++total;
    if (i == 0) continue;
    int64_t& pair = pairs_[stream[i - 1] * kBytes + stream[i]];
    if (pair++ == 0) ++distinct_[stream[i - 1]];
    ++totals_[stream[i - 1]];
  }
  for (size_t b = 0; b < kBytes; ++b) {
    unigram_[b] = static_cast<double>(counts[b] + 1) / static_cast<double>(total + 256);
  }
}

double BigramModel::LogProbability(int32_t previous, int32_t next) const {
  const auto a = static_cast<size_t>(previous);
  const auto b = static_cast<size_t>(next);
  if (totals_[a] == 0) return std::log(unigram_[b]);
  const auto backoff = static_cast<double>(distinct_[a]);
  return std::log((static_cast<double>(pairs_[a * kBytes + b]) + backoff * unigram_[b]) /
                  (static_cast<double>(totals_[a]) + backoff));
}

}  // namespace gpuctl::trainer

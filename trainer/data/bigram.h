// Measures how well the previous byte alone predicts the next. A language model must be better.

#ifndef TRAINER_DATA_BIGRAM_H_
#define TRAINER_DATA_BIGRAM_H_

#include <cstdint>
#include <vector>

#include "trainer/data/corpus.h"

namespace gpuctl::trainer {

// Byte bigrams counted on one stream, smoothed by Witten-Bell:
//   p(b|a) = (n(ab) + d(a) p(b)) / (n(a) + d(a)),   p(b) = (n(b) + 1) / (n + 256)
// with d(a) the number of distinct followers of a. It predicts sparse rows better than plain
// add-one, so it is harder to beat.
class BigramModel {
 public:
  explicit BigramModel(const TokenStream& stream);

  // Returns the natural log of p(next | previous). `next` must be a byte, `previous` a byte or
  // kBos.
  double LogProbability(int32_t previous, int32_t next) const;

 private:
  std::vector<int64_t> pairs_;     // [257][256]
  std::vector<int64_t> totals_;    // [257] n(a)
  std::vector<int64_t> distinct_;  // [257] d(a)
  std::vector<double> unigram_;    // [256] p(b)
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_DATA_BIGRAM_H_

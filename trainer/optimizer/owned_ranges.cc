#include "trainer/optimizer/owned_ranges.h"

#include <algorithm>

namespace gpuctl::trainer {
namespace {

constexpr int64_t kOwnedAlignment = 16384;  // elements, as of shards

int64_t CountElements(const ParameterSpec& spec) {
  int64_t count = 1;
  for (const int64_t extent : spec.shape) count *= extent;
  return count;
}

// Returns the first place from `wanted` on where a part may end.
int64_t CutFrom(const ParameterSpec& spec, bool in_8_bits, int64_t wanted) {
  const int64_t size = CountElements(spec);
  int64_t end = (wanted + kOwnedAlignment - 1) / kOwnedAlignment * kOwnedAlignment;
  while (end < size && NextMomentCut(spec, in_8_bits, end) != end) end += kOwnedAlignment;
  return std::min(size, end);
}

}  // namespace

std::vector<std::vector<ElementRange>> DivideElements(const std::vector<ParameterSpec>& specs,
                                                      const std::vector<size_t>& trained,
                                                      bool in_8_bits, int64_t ranks) {
  std::vector<std::vector<ElementRange>> owned(static_cast<size_t>(ranks),
                                               std::vector<ElementRange>(specs.size()));
  int64_t total = 0;
  for (const size_t i : trained) total += CountElements(specs[i]);
  const int64_t share = std::max<int64_t>(1, (total + ranks - 1) / ranks);
  int64_t at = 0;
  for (const size_t i : trained) {
    const int64_t size = CountElements(specs[i]);
    for (int64_t begin = 0; begin < size;) {
      const int64_t rank = std::min(ranks - 1, (at + begin) / share);
      const int64_t end =
          rank == ranks - 1 ? size : CutFrom(specs[i], in_8_bits, (rank + 1) * share - at);
      owned[static_cast<size_t>(rank)][i] = {begin, end};
      begin = end;
    }
    at += size;
  }
  return owned;
}

}  // namespace gpuctl::trainer

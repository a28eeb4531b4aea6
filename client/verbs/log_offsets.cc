#include "client/verbs/log_offsets.h"

#include <algorithm>

#include "common/base/status_macros.h"

namespace gpuctl {

int64_t OffsetAt(const std::vector<OutputStamp>& stamps, int64_t time_ms) {
  int64_t offset = 0;
  for (const OutputStamp& stamp : stamps) {
    if (stamp.time_ms <= time_ms) offset = std::max(offset, stamp.offset);
  }
  return offset;
}

absl::StatusOr<int64_t> OffsetOfLastLines(
    int64_t begin, int64_t end, int lines,
    const std::function<absl::StatusOr<std::string>(int64_t from, int64_t to)>& read) {
  constexpr int64_t kBlock = 256 << 10;
  if (lines <= 0) return end;
  int64_t newlines = 0;
  for (int64_t block_end = end; block_end > begin;) {
    const int64_t block_begin = std::max(begin, block_end - kBlock);
    ASSIGN_OR_RETURN(const std::string bytes, read(block_begin, block_end));
    for (size_t i = bytes.size(); i > 0; --i) {
      const int64_t at = block_begin + static_cast<int64_t>(i) - 1;
      // The newline at the end of the last line separates no lines.
      if (bytes[i - 1] != '\n' || at == end - 1) continue;
      if (++newlines == lines) return at + 1;
    }
    block_end = block_begin;
  }
  return begin;
}

}  // namespace gpuctl

// The range of a job's output that was shown: each byte at most once, in order. Pure.
#ifndef GPUCTL_CLIENT_SHOW_SHOWN_RANGE_H_
#define GPUCTL_CLIENT_SHOW_SHOWN_RANGE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace gpuctl {

class ShownRange {
 public:
  // Bytes before `begin` will not be shown.
  explicit ShownRange(int64_t begin) : next_(begin) {}

  // Returns the part of `data`, which lies at `offset`, that is not shown yet; afterwards it counts
  // as shown. `skipped` gets the number of bytes before it that will never be shown.
  absl::string_view Take(int64_t offset, absl::string_view data, int64_t& skipped) {
    skipped = 0;
    const int64_t end = offset + static_cast<int64_t>(data.size());
    if (end <= next_) return {};
    if (offset > next_) skipped = offset - next_;
    const int64_t begin = offset > next_ ? offset : next_;
    next_ = end;
    return data.substr(static_cast<size_t>(begin - offset));
  }

  // Returns the offset of the first byte that was not shown yet.
  int64_t next() const { return next_; }

 private:
  int64_t next_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_SHOWN_RANGE_H_

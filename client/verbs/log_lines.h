// Chooses lines of a run's output, and puts times before them.
#ifndef GPUCTL_CLIENT_VERBS_LOG_LINES_H_
#define GPUCTL_CLIENT_VERBS_LOG_LINES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/verbs/line_pattern.h"
#include "client/verbs/log_offsets.h"

namespace gpuctl {

// Returns the latest time at which the byte at `offset` was not there yet; 0 when none is known.
// `stamps` are sorted by offset.
int64_t TimeBefore(const std::vector<OutputStamp>& stamps, int64_t offset);

// Takes the output piece by piece.
class LogLines {
 public:
  struct Options {
    std::optional<LinePattern> pattern;  // absent: every line
    // Before each line, its time as TimeBefore tells it; absent: none.
    std::optional<std::vector<OutputStamp>> stamps;
    int last = -1;  // so many of the chosen lines, the last ones; -1: all
  };
  // Gets whole lines with their ends; returns false when it wants no more.
  using Sink = std::function<absl::StatusOr<bool>(absl::string_view lines)>;

  // A line that is longer than this counts as several.
  static constexpr size_t kLongestLine = 1 << 20;

  LogLines(Options options, Sink sink);

  // Takes the bytes of the output at `offset`. Returns false when the sink wants no more.
  absl::StatusOr<bool> Add(int64_t offset, absl::string_view bytes);
  // The last lines are known now: gives them, and from now on each chosen line.
  absl::StatusOr<bool> GiveLast();
  // Takes the end of the output; a line without its end counts.
  absl::Status Finish();
  // True when a line was chosen, even if it was not one of the last ones.
  bool chose() const { return chose_; }

 private:
  absl::Status AddLine(absl::string_view line, bool ended);
  absl::StatusOr<bool> Flush();

  Options options_;
  const Sink sink_;
  std::string partial_;
  int64_t begin_ = 0;  // offset of partial_
  bool chose_ = false;
  int64_t next_ = -1;  // offset of the next byte; -1: none has come
  std::string ready_;
  std::list<std::string> newest_;  // with `last`
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_LOG_LINES_H_

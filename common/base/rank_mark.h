// The marks at the beginning of lines in the output of a job with several processes. A mark says
// which process printed the line.
//
//   3| text    rank 3 printed the line "text"
//   3+ text    rank 3 printed "text" and has not ended its line; its next text goes on there
//   3>| text   like 3|, and the newline before it is none of rank 0's: rank 0 was in the middle of
//   3>+ text   a line, which goes on behind this one
//   gpuctl| …  the launcher says something; also gpuctl>|
//
// Lines of rank 0 have no mark, except those that would look as if they had one: these begin with
// "0| ". So each line is read in exactly one way, whatever a process prints. Pure.
#ifndef GPUCTL_COMMON_BASE_RANK_MARK_H_
#define GPUCTL_COMMON_BASE_RANK_MARK_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

// The rank of the launcher's own lines.
constexpr int kLauncherRank = -1;
// The number of the last process that a job can have, counted over all its machines.
constexpr int kHighestRank = 99'999;

struct RankMark {
  int rank = 0;
  bool interrupts = false;  // the newline before the mark is not rank 0's
  bool ended = true;        // the newline behind the text is the process's own
  size_t size = 0;          // bytes of the mark itself
};

// Returns the mark with which `line` begins; nothing when it has none.
std::optional<RankMark> ParseRankMark(absl::string_view line);

// True when `text` has no newline and bytes behind it could make a mark of its beginning.
bool MayBecomeRankMark(absl::string_view text);

// Appends a mark. `rank` is kLauncherRank or 0 to kHighestRank.
void AppendRankMark(int rank, bool interrupts, bool ended, std::string& out);

// Takes an output apart again. Not thread-safe.
class RankReader {
 public:
  // Gets text of one process, in order; `rank` is kLauncherRank for the launcher's lines.
  using Sink = std::function<void(int rank, absl::string_view text)>;

  // Takes the next bytes of the output. What may still become a mark, and the newline that may be
  // none of rank 0's, wait for the next call.
  void Read(absl::string_view bytes, const Sink& sink);
  // Takes the end of the output, or of one attempt's part of it: the next byte begins a line.
  void End(const Sink& sink);

 private:
  void Begin(absl::string_view& bytes, const Sink& sink);

  bool at_start_ = true;
  int rank_ = 0;          // of the line that is being read
  bool ended_ = true;     // its newline is the process's own
  bool newline_ = false;  // one of rank 0's that waits for what follows
  std::string start_;     // the beginning of a line that may become a mark
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_RANK_MARK_H_

// Makes one output of those of a job's processes: whole lines, marked as common/base/rank_mark.h
// says. Pure.
#ifndef GPUCTL_AGENT_RANKS_MERGER_H_
#define GPUCTL_AGENT_RANKS_MERGER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// Takes the bytes of each process and appends to an output. Rank 0's bytes come as they are, whole
// lines and whole drawings of a progress bar first. Another process's line comes when it has ended.
// What such a process wrote over with '\r' is left out, so that of its bars only the last drawing
// of each line comes, and bars of several processes do not mix on a screen. Not thread-safe.
class RankMerger {
 public:
  // A line of another process than rank 0 that is longer comes in pieces, so that a process that
  // never ends a line costs no memory.
  static constexpr size_t kLongestPiece = 1 << 20;

  // `first_rank` is the rank of the process with number 0 here.
  RankMerger(int first_rank, int processes);

  // Takes bytes of the process with the number `local`.
  void Add(int local, absl::string_view bytes, std::string& out);
  // Tells that the process writes no more: appends the line that it has not ended.
  void End(int local, std::string& out);
  // Appends a line of the launcher's own.
  void Say(absl::string_view line, std::string& out);

  // True while a part of rank 0's line waits for its end.
  bool holds() const { return !held_.empty(); }
  // Appends that part.
  void Flush(std::string& out);

 private:
  bool IsZero(int local) const { return first_rank_ + local == 0; }
  void AddZero(absl::string_view bytes, std::string& out);
  void AppendZero(absl::string_view text, std::string& out);
  void AppendMarked(int rank, absl::string_view text, bool ended, std::string& out);

  const int first_rank_;
  std::vector<std::string> lines_;  // of the others, unfinished
  std::string held_;                // rank 0's newest bytes
  bool in_line_ = false;            // the output ends in the middle of a line of rank 0
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_RANKS_MERGER_H_

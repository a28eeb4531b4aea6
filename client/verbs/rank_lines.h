// The lines of one process, out of the output of a job with several.
#ifndef GPUCTL_CLIENT_VERBS_RANK_LINES_H_
#define GPUCTL_CLIENT_VERBS_RANK_LINES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/verbs/log_lines.h"
#include "common/base/rank_mark.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

// Takes the output piece by piece and gives `lines` what the process with the number `rank` printed
// there, without marks. What a setup or another attempt without ranks printed is left out.
class RankLines {
 public:
  // Leaves out lines that begin before `begin`.
  RankLines(int rank, std::vector<OutputPart> parts, int64_t begin, LogLines& lines);

  // Tells the parts that are known now: those from before, and perhaps more.
  void Learn(std::vector<OutputPart> parts) { parts_ = std::move(parts); }
  // Returns up to which byte the output can be taken apart: behind it another part may begin.
  int64_t readable() const;

  // Takes the bytes of the output at `offset`. Returns false when nobody wants more.
  absl::StatusOr<bool> Add(int64_t offset, absl::string_view bytes);
  // Takes the end of the output, and tells it to the lines.
  absl::Status Finish();

 private:
  void Take(int rank, absl::string_view text);
  void Pass();
  // What follows begins a line.
  void EndPart();

  const int rank_;
  std::vector<OutputPart> parts_;
  const int64_t begin_;
  LogLines& lines_;
  RankReader reader_;
  size_t part_ = 0;    // the first part further on
  int64_t next_ = -1;  // offset of the next byte; -1: none has come
  int64_t at_ = 0;     // of what the reader gets
  bool torn_ = false;  // in a line whose beginning is not there
  std::string line_;
  int64_t line_at_ = 0;  // offset of its beginning
  absl::Status status_;
  bool more_ = true;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_RANK_LINES_H_

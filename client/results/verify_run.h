// Whether what is at home of a run is what came from the node. Asks no node.
#ifndef GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_
#define GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/results/pulled_record.h"

namespace gpuctl {

struct Problem {
  enum class Kind {
    kMissing,  // not there
    kChanged,  // another size, or other content and another time: somebody wrote to it
    kCorrupt,  // other content, though nothing says that it was written to
  };
  Kind kind = Kind::kMissing;
  std::string path;
  std::string why;
};
const char* ProblemWord(Problem::Kind kind);

struct Verified {
  int64_t output_bytes = 0;
  bool complete = false;  // the job is over and all of its output is here
  int64_t skipped_lines = 0;
  int64_t checkpoints = 0;
  int64_t files = 0;  // of all that was pulled
  int64_t bytes = 0;
  std::vector<Problem> problems;
};

struct VerifyOptions {
  bool read_data = false;  // else presence and sizes
  // The run's end is recorded: all of its output was here once.
  bool ended = false;
  std::function<void(int64_t bytes)> progress;  // content read so far; may be empty
};

// Checks the copy of the job's streams in `run_dir`: no byte of the output missing in between but
// those that lifecycle says were cut, and the sizes that its last line names. Then everything that
// was pulled, by the record in `run_dir`, and, when data is read, the trainer's checkpoints by
// their own manifests too.
absl::StatusOr<Verified> VerifyRun(const std::string& run_dir, int64_t output_segment_bytes,
                                   const VerifyOptions& options);

// What is wrong with the files of `item`.
std::vector<Problem> CheckItem(const PulledItem& item, const VerifyOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_

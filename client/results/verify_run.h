// Checks that a run's local results are those that came from the node. Asks no node.
#ifndef GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_
#define GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/runs/output_loss.h"
#include "client/runs/pulled_record.h"

namespace gpuctl {

struct Problem {
  enum class Kind {
    kMissing,  // not there
    kChanged,  // size differs, or content and time differ: somebody wrote to it
    kCorrupt,  // content differs, but not the time: no sign of a write
  };
  Kind kind = Kind::kMissing;
  std::string path;
  std::string why;
};
const char* ProblemWord(Problem::Kind kind);

struct Verified {
  int64_t output_bytes = 0;
  // True when the job is over and all of its output is here. False when the node lost some of it.
  bool complete = false;
  bool over = false;          // the job is over, and all that the node stored is here
  int64_t removed_bytes = 0;  // of the beginning, past the output limit
  OutputLoss loss;            // what the node could not store
  int64_t skipped_lines = 0;
  int64_t checkpoints = 0;
  int64_t files = 0;  // all pulled files
  int64_t bytes = 0;
  std::vector<Problem> problems;
};

struct VerifyOptions {
  bool read_data = false;  // read content; else check presence and sizes only
  // True when the run's end is recorded: all of its output was here once.
  bool ended = false;
  std::function<void(int64_t bytes)> progress;  // content read so far; may be empty
};

// Checks the copy of the job's streams in `run_dir`: the output has no gaps but the bytes that
// lifecycle says were dropped, and the streams have the sizes that its last line names. Then checks
// everything that was pulled, by the record in `run_dir`. When data is read, also checks the
// trainer's checkpoints by their own manifests.
absl::StatusOr<Verified> VerifyRun(const std::string& run_dir, int64_t output_segment_bytes,
                                   const VerifyOptions& options);

// Returns the problems of the files of `item`.
std::vector<Problem> CheckItem(const PulledItem& item, const VerifyOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_VERIFY_RUN_H_

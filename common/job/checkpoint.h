// Checkpoint directories as the built-in trainer publishes them: a directory "step-<number>" with a
// manifest.json {"format":1,"step":N,"files":[{"path","size","sha256"}…]}, renamed into place when
// whole.
#ifndef GPUCTL_COMMON_JOB_CHECKPOINT_H_
#define GPUCTL_COMMON_JOB_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct CheckpointFile {
  std::string path;  // relative to the checkpoint directory
  int64_t size = 0;
  std::string sha256;  // hex
};

struct CheckpointManifest {
  int64_t step = 0;
  std::vector<CheckpointFile> files;
};

// Parses such a manifest. INVALID_ARGUMENT for anything else, also for paths that leave the
// directory.
absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(absl::string_view json);

struct CheckpointDir {
  std::string path;  // as `dir` was given
  CheckpointManifest manifest;
};

// Returns the published checkpoints directly under `dir`, in ascending order of step: those with a
// readable manifest whose files exist with their sizes. A missing `dir` has none. Does not read
// content.
absl::StatusOr<std::vector<CheckpointDir>> ListCheckpoints(const std::string& dir);

// Reads every file. DATA_LOSS names the first that is missing or differs.
absl::Status VerifyCheckpoint(const CheckpointDir& checkpoint);

// Returns the newest checkpoint under `dir` whose content verifies. NOT_FOUND when there is none.
absl::StatusOr<CheckpointDir> NewestVerifiedCheckpoint(const std::string& dir);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_CHECKPOINT_H_

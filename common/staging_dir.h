// A directory in which something is put together before it is published by rename. A crash leaves
// it behind; the lock in it tells such leftovers from one that is in use.
#ifndef GPUCTL_COMMON_STAGING_DIR_H_
#define GPUCTL_COMMON_STAGING_DIR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/unique_fd.h"

namespace gpuctl {

class StagingDir {
 public:
  // Makes `parent`/.gpuctl-partial-<random>, mode 0700, and holds its lock.
  static absl::StatusOr<StagingDir> Create(const std::string& parent);

  StagingDir(StagingDir&&) = default;
  StagingDir& operator=(StagingDir&&) = delete;
  // Removes what is left in it.
  ~StagingDir();

  const std::string& path() const { return path_; }

 private:
  StagingDir(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
};

// Removes the staging directories in `parent` that nobody holds. Safe beside Create.
absl::Status RemoveAbandonedStaging(const std::string& parent);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_STAGING_DIR_H_

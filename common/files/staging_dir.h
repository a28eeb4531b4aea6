// A directory in which something is put together before it is published by rename. A crash leaves
// it behind; the lock in it tells such leftovers from one that is in use.
#ifndef GPUCTL_COMMON_FILES_STAGING_DIR_H_
#define GPUCTL_COMMON_FILES_STAGING_DIR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// How the names of staging directories begin.
constexpr absl::string_view kStagingPrefix = ".gpuctl-partial-";

class StagingDir {
 public:
  // Makes `parent`/.gpuctl-partial-<random>, mode 0700, and holds its lock.
  static absl::StatusOr<StagingDir> Create(const std::string& parent);

  StagingDir(StagingDir&&) = default;
  StagingDir& operator=(StagingDir&&) = delete;
  // Removes what is left in it, unless it is to be kept.
  ~StagingDir();

  const std::string& path() const { return path_; }
  // Leaves it, abandoned, to be found by a later try.
  void Keep() { keep_ = true; }

 private:
  StagingDir(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
  UniqueFd helpers_;  // of one that was taken over: nobody helps with it any more
  bool keep_ = false;

  friend absl::StatusOr<std::vector<StagingDir>> TakeAbandonedStaging(const std::string& parent);
};

// For another process that helps to fill the staging directory at `path`: as long as it holds the
// result, nobody takes the directory over. UNAVAILABLE when somebody has.
absl::StatusOr<UniqueFd> HelpWithStaging(const std::string& path);

// Whether nobody holds or helps with the staging directory at `path` at this moment.
bool IsAbandonedStaging(const std::string& path);

// Takes over the staging directories in `parent` that nobody holds or helps with, the newest first.
// Each is removed with its object. Safe beside Create.
absl::StatusOr<std::vector<StagingDir>> TakeAbandonedStaging(const std::string& parent);

// Removes them.
absl::Status RemoveAbandonedStaging(const std::string& parent);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_STAGING_DIR_H_

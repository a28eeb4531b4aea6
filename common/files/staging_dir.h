// A directory in which something is built before a rename publishes it. A crash leaves it behind;
// the lock in it tells leftovers from directories in use.
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

// The prefix of the names of staging directories.
constexpr absl::string_view kStagingPrefix = ".gpuctl-partial-";

class StagingDir {
 public:
  // Makes `parent`/.gpuctl-partial-<random>, mode 0700, and holds its lock.
  static absl::StatusOr<StagingDir> Create(const std::string& parent);

  StagingDir(StagingDir&&) = default;
  StagingDir& operator=(StagingDir&&) = delete;
  // Removes the directory and what is left in it, unless Keep was called.
  ~StagingDir();

  const std::string& path() const { return path_; }
  // Leaves the directory behind, abandoned, for a later try to find.
  void Keep() { keep_ = true; }

 private:
  StagingDir(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
  UniqueFd helpers_;  // of a directory that was taken over: keeps new helpers out
  bool keep_ = false;

  friend absl::StatusOr<std::vector<StagingDir>> TakeAbandonedStaging(const std::string& parent);
};

// Lets another process help to fill the staging directory at `path`. While that process holds the
// result, nobody takes the directory over. UNAVAILABLE when somebody already has.
absl::StatusOr<UniqueFd> HelpWithStaging(const std::string& path);

// True when nobody holds or helps with the staging directory at `path` at this moment.
bool IsAbandonedStaging(const std::string& path);

// Takes over the staging directories in `parent` that this user made and nobody holds or helps
// with, the newest first.
// Each object removes its directory when it ends. Safe while others call Create.
absl::StatusOr<std::vector<StagingDir>> TakeAbandonedStaging(const std::string& parent);

// Removes the staging directories in `parent` that nobody holds or helps with.
absl::Status RemoveAbandonedStaging(const std::string& parent);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_STAGING_DIR_H_

#include "client/workdir.h"

#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/quantity.h"
#include "common/files.h"
#include "common/hash_cache.h"
#include "common/manifest.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "common/tree.h"

namespace gpuctl {
namespace {

// Counts what would be sent while the scan asks about each path, so that a home directory is
// refused before it is read.
class SizeCheck {
 public:
  SizeCheck(std::string root, bool allow_large)
      : root_(std::move(root)), allow_large_(allow_large) {}

  bool Skip(const std::string& path, bool is_directory) {
    if (exceeded_ || BaseName(path) == ".git") return true;
    if (is_directory) return false;
    struct stat info = {};
    if (lstat(JoinPath(root_, path).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
    ++files_;
    bytes_ += info.st_size;
    largest_.emplace_back(info.st_size, path);
    std::sort(largest_.rbegin(), largest_.rend());
    if (largest_.size() > 3) largest_.pop_back();
    exceeded_ = !allow_large_ && (files_ > kMaxUnaskedFiles || bytes_ > kMaxUnaskedBytes);
    return exceeded_;
  }

  absl::Status Check() const {
    if (!exceeded_) return absl::OkStatus();
    std::vector<std::string> names;
    for (const auto& [size, path] : largest_) {
      names.push_back(absl::StrCat(path, " (", FormatBytes(size), ")"));
    }
    return WithExitCode(
        WithHint(absl::FailedPreconditionError(absl::StrCat(
                     "send the work directory ", root_, ": it has more than ",
                     files_ > kMaxUnaskedFiles ? absl::StrCat(kMaxUnaskedFiles, " files")
                                               : FormatBytes(kMaxUnaskedBytes),
                     "; the largest so far: ", absl::StrJoin(names, ", "))),
                 "-y sends it all the same, --workdir DIR sends another, --no-workdir none"),
        kExitUsage);
  }

  int64_t files() const { return files_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::string root_;
  bool allow_large_, exceeded_ = false;
  int64_t files_ = 0, bytes_ = 0;
  std::vector<std::pair<int64_t, std::string>> largest_;
};

}  // namespace

absl::StatusOr<Workdir> ScanWorkdir(CommandContext& context, const std::string& path,
                                    bool allow_large) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr || !IsDirectory(resolved)) {
    return UsageError(absl::StrCat("work directory ", path, ": no such directory"),
                      "it is relative to the run file, or to here without one");
  }
  Workdir workdir;
  workdir.path = resolved;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  RETURN_IF_ERROR(MakeDirectories(paths.hash_cache()));
  HashCache cache(JoinPath(paths.hash_cache(), Sha256HexOf(workdir.path).substr(0, 24)),
                  context.clock);
  SizeCheck size(workdir.path, allow_large);
  ScanOptions options;
  options.skip = [&size](const std::string& file, bool is_directory) {
    return size.Skip(file, is_directory);
  };
  options.skipped = &workdir.skipped;
  options.cache = &cache;
  absl::StatusOr<gpuctl::v1::Manifest> manifest = ScanTree(workdir.path, options);
  RETURN_IF_ERROR(size.Check());
  if (!manifest.ok()) {
    // Unreadable files are about files, not about credentials.
    return WithExitCode(
        WithHint(manifest.status(), "make it readable, or send another directory: --workdir DIR"),
        kExitUsage);
  }
  // Losing the cache costs time only.
  (void)cache.Save();
  workdir.manifest = *std::move(manifest);
  workdir.digest = ManifestDigest(workdir.manifest);
  workdir.files = size.files();
  workdir.bytes = size.bytes();
  return workdir;
}

}  // namespace gpuctl

#include "agent/envs/cache_sweep.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/envs/env_store.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr char kGone[] = ".gone-";

// Returns when the directory or what is directly in it changed last, in ms since 1970.
int64_t LastChangeMs(const std::string& dir) {
  struct stat info {};
  int64_t last = lstat(dir.c_str(), &info) == 0 ? ModifiedMs(info) : 0;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (lstat(JoinPath(dir, name).c_str(), &info) == 0) last = std::max(last, ModifiedMs(info));
  }
  return last;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SweepCaches(const RootPaths& root, int64_t want_free_bytes,
                                                     const std::function<bool()>& in_use) {
  std::vector<std::string> removed;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(root.caches);
  if (absl::IsNotFound(names.status())) return removed;
  RETURN_IF_ERROR(names.status());
  std::vector<std::pair<int64_t, std::string>> caches;
  for (const std::string& name : *names) {
    const std::string dir = JoinPath(root.caches, name);
    if (absl::StartsWith(name, kGone)) {
      RETURN_IF_ERROR(RemoveTree(dir));
    } else {
      caches.emplace_back(LastChangeMs(dir), name);
    }
  }
  std::sort(caches.begin(), caches.end());
  for (const auto& [changed, name] : caches) {
    const int64_t free = FreeBytesAt(root.caches);
    if (free < 0 || free >= want_free_bytes || in_use()) break;
    // Renamed first, so that a job that begins meanwhile finds a whole cache or none.
    const std::string gone = JoinPath(root.caches, absl::StrCat(kGone, name));
    if (file_ops::Rename(JoinPath(root.caches, name), gone) != 0) {
      return ErrnoStatus(errno, absl::StrCat("remove the cache ", name));
    }
    RETURN_IF_ERROR(RemoveTree(gone));
    removed.push_back(name);
  }
  return removed;
}

}  // namespace gpuctl

#include "agent/bundle/bundle_sweep.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/bundle/bundle.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kPinned = absl::Hours(24);
// The prefix of unfinished deliveries, from client/programs/bundle_delivery.cc.
constexpr char kPartial[] = ".partial-";
constexpr char kDoomed[] = ".partial-swept-";

// Returns the directories of the running programs of all processes that can be ours.
absl::StatusOr<std::set<std::string>> DirectoriesRunFrom() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory("/proc"));
  std::set<std::string> dirs;
  for (const std::string& name : names) {
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string process = JoinPath("/proc", name);
    char program[PATH_MAX];
    const ssize_t length = readlink(JoinPath(process, "exe").c_str(), program, sizeof(program));
    if (length > 0) {
      dirs.insert(DirName(absl::string_view(program, static_cast<size_t>(length))));
      continue;
    }
    // It ended meanwhile, is a zombie, or belongs to the kernel.
    if (errno == ENOENT || errno == ESRCH) continue;
    // The program of a shim that holds secrets cannot be read; its command line names it.
    const absl::StatusOr<std::string> words = ReadFileToString(JoinPath(process, "cmdline"));
    if (absl::IsNotFound(words.status())) continue;
    if (!words.ok()) return words.status();
    const std::string first = words->substr(0, words->find('\0'));
    if (!absl::StartsWith(first, "/")) continue;
    char resolved[PATH_MAX];
    dirs.insert(DirName(realpath(first.c_str(), resolved) != nullptr ? resolved : first));
  }
  // Our own process is always visible. Without it this is not a list of processes.
  if (dirs.empty()) return absl::UnavailableError("list processes: there are none");
  return dirs;
}

bool WasUsedLately(const std::string& path, Clock& clock) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return true;
  return clock.Now() - absl::FromTimeT(info.st_mtime) < kPinned;
}

bool IsDigest(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == name.npos;
}

}  // namespace

void NoteBundleUse(const std::string& bundle_dir) {
  // Only a sweep needs this time, so an error is ignored.
  (void)utimensat(AT_FDCWD, bundle_dir.c_str(), nullptr, 0);
}

absl::StatusOr<std::vector<std::string>> SweepBundles(const RootPaths& paths, Clock& clock) {
  std::vector<std::string> removed;
  char resolved[PATH_MAX];
  if (realpath(paths.bin.c_str(), resolved) == nullptr) return removed;
  const std::string bin = resolved;
  const absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(bin, kBundleLock));
  // Somebody is adopting a bundle; a later sweep will do the work.
  if (absl::IsUnavailable(lock.status())) return removed;
  RETURN_IF_ERROR(lock.status());
  const std::string current = CurrentBundle(paths);
  // Without it the newest bundle is unknown.
  if (current.empty()) return removed;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(bin));
  std::string before;
  for (const std::string& name : names) {
    const std::string path = JoinPath(bin, name);
    if (!IsDigest(name) || path == current) continue;
    if (before.empty() || IsNewerBundle(path, before)) before = path;
  }
  ASSIGN_OR_RETURN(const std::set<std::string> run_from, DirectoriesRunFrom());
  for (const std::string& name : names) {
    const std::string path = JoinPath(bin, name);
    const bool partial = absl::StartsWith(name, kPartial);
    if ((!IsDigest(name) && !partial) || path == current || path == before ||
        run_from.count(path) > 0 || WasUsedLately(path, clock)) {
      continue;
    }
    // Rename it first. Nothing more can start from it, and a second look finds processes started
    // since the first.
    const std::string doomed = partial ? path : JoinPath(bin, absl::StrCat(kDoomed, RandomHex(6)));
    if (!partial && file_ops::Rename(path, doomed) != 0) {
      return ErrnoStatus(errno, absl::StrCat("sweep bundles: rename ", path));
    }
    const absl::StatusOr<std::set<std::string>> run_now = DirectoriesRunFrom();
    if (!run_now.ok() || run_now->count(doomed) > 0) {
      if (!partial) (void)file_ops::Rename(doomed, path);
      continue;
    }
    RETURN_IF_ERROR(RemoveTree(doomed));
    removed.push_back(name);
  }
  return removed;
}

}  // namespace gpuctl

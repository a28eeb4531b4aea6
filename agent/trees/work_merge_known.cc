// WorkMerge's records of large files put into place, by inode and times, so that the next merge
// does not read them again.
#include <fcntl.h>
#include <sys/stat.h>

#include <optional>

#include "agent/store/tree_trust.h"
#include "agent/trees/work_merge.h"
#include "common/base/clock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

std::optional<FileIdentity> IdentityOf(DirWalk& walk, const std::string& path) {
  const absl::StatusOr<int> dir = walk.Open(ParentPath(path));
  struct stat info {};
  if (!dir.ok() || fstatat(*dir, BaseName(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  return FileIdentity::Of(info);
}

// True when both are the same file. A rename changes only the ctime.
bool IsSameFile(const FileIdentity& a, const FileIdentity& b) {
  return a.device == b.device && a.inode == b.inode && a.size == b.size && a.mtime_ns == b.mtime_ns;
}

}  // namespace

// True when the large file is that of `base`, according to its times. Call it in the order of
// paths.
bool WorkMerge::IsKnown(DirWalk& live, const FileEntry& base) {
  if (known_ == nullptr) return false;
  const std::optional<FileIdentity> identity = IdentityOf(live, base.path());
  if (!identity.has_value()) return false;
  const std::optional<HashCache::Hashes> found = known_->Find(base.path(), *identity);
  if (!found.has_value() || found->sha256 != base.sha256()) return false;
  still_known_[base.path()] = *identity;
  return true;
}

// Records the identities of the large files that will be put into place.
void WorkMerge::NotePlaced() {
  int64_t last_write_ns = 0;
  const Manifest& theirs = builder_->manifest();
  DirWalk staged(builder_->root_fd());
  for (int64_t i = 0; i < theirs.size(); ++i) {
    if (!builder_->Wants(i)) continue;
    const FileEntry entry = theirs[i];
    if (entry.size() <= kPartBytes) continue;
    const std::optional<FileIdentity> identity = IdentityOf(staged, entry.path());
    if (!identity.has_value()) continue;
    placed_[entry.path()] = *identity;
    last_write_ns = std::max(last_write_ns, identity->mtime_ns);
  }
  // The job's later writes then have another time.
  PassClockTick(last_write_ns);
}

// Takes the identity of a large file again that was just renamed to `path`: its ctime changed. What
// the job writes from here on changes it once more.
void WorkMerge::NoteRenamed(DirWalk& live, const std::string& path) {
  const auto placed = placed_.find(path);
  if (placed == placed_.end()) return;
  const std::optional<FileIdentity> now = IdentityOf(live, path);
  if (now.has_value() && IsSameFile(placed->second, *now)) {
    placed->second = *now;
  } else {
    placed_.erase(placed);
  }
}

// Saves the large files that were put into place and the unchanged ones. Losing this costs only
// time.
void WorkMerge::SaveKnown() {
  if (!placed_.empty()) PassClockTick(absl::ToUnixNanos(Clock::Real().Now()));
  const Manifest& theirs = builder_->manifest();
  DirWalk live(live_fd_.get());
  for (int64_t i = 0; i < theirs.size(); ++i) {
    const FileEntry entry = theirs[i];
    if (entry.size() <= kPartBytes || kept_.count(entry.path()) > 0) continue;
    const std::optional<FileIdentity> now = IdentityOf(live, entry.path());
    if (!now.has_value()) continue;
    const auto before = still_known_.find(entry.path());
    const auto placed = placed_.find(entry.path());
    if ((placed != placed_.end() && placed->second == *now) ||
        (before != still_known_.end() && before->second == *now)) {
      known_->Keep(entry.path(), *now, {entry.sha256(), entry.part_sha256()});
    }
  }
  (void)known_->Save();
}

}  // namespace gpuctl

// WorkMerge's second half: it moves the received files into place as planned.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/trees/live_entry.h"
#include "agent/trees/work_merge.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sync_fs.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// The largest number of directories synced one by one. For more, one sync of the whole file system
// is cheaper.
constexpr size_t kSyncEachAtMost = 32;
// The largest number of replaced large files kept open. The room of further ones is freed at once.
constexpr size_t kMaxReplacedFiles = 64;

// Removes a file, unless somebody has changed it since it was seen: then errno is ESTALE.
int UnlinkAsSeen(int dir, const std::string& name, const FileIdentity& seen,
                 const std::string& shown) {
  if (file_ops::Fault(file_ops::Op::kUnlink, shown) != 0) return -1;
  const std::optional<struct stat> now = StatAt(dir, name);
  if (!now.has_value() || !(FileIdentity::Of(*now) == seen)) {
    errno = ESTALE;
    return -1;
  }
  return UnlinkBelow(dir, name, 0, shown);
}

}  // namespace

absl::StatusOr<gpuctl::v1::MergeReport> WorkMerge::ApplyFresh() {
  const UniqueFd work(file_ops::Open(job_.work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!work.valid()) return ErrnoStatus(errno, absl::StrCat("open ", job_.work));
  DirWalk walk(work.get(), 0755);
  ASSIGN_OR_RETURN(const int parent, walk.OpenOrMake(ParentPath(fresh_into_)));
  if (file_ops::Fault(file_ops::Op::kRename, fresh_into_) != 0 ||
      renameat(AT_FDCWD, builder_->tree_path().c_str(), parent, BaseName(fresh_into_).c_str()) !=
          0) {
    return PathError("put into place", fresh_into_);
  }
  if (file_ops::Sync(parent) != 0) return PathError("sync", fresh_into_);
  for (const FileEntry& entry : builder_->manifest()) {
    report_.set_written(report_.written() + (entry.kind() != FileEntry::KIND_DIRECTORY));
  }
  return report_;
}

absl::StatusOr<gpuctl::v1::MergeReport> WorkMerge::Apply() {
  if (!fresh_into_.empty()) return ApplyFresh();
  const Manifest& theirs = builder_->manifest();
  if (known_ != nullptr) NotePlaced();
  if (saves_base_) {
    ASSIGN_OR_RETURN(base_, work_base_.Read());
    RETURN_IF_ERROR(work_base_.Begin(base_, theirs, IsKept()));
  }
  DirWalk staged(builder_->root_fd());
  DirWalk live(live_fd_.get(), 0755);
  std::string moved;  // "path/" of a directory that moved with all below it
  for (int64_t i = 0; i < theirs.size(); ++i) {
    if (!builder_->Wants(i)) continue;
    const FileEntry entry = theirs[i];
    if (late_.count(entry.path()) > 0) continue;
    if (!moved.empty() && absl::StartsWith(entry.path(), moved)) {
      report_.set_written(report_.written() + (entry.kind() != FileEntry::KIND_DIRECTORY));
      continue;
    }
    ASSIGN_OR_RETURN(const bool whole, Place(staged, live, entry));
    moved = whole ? absl::StrCat(entry.path(), "/") : "";
  }
  RETURN_IF_ERROR(RemoveTaken());
  (void)std::exchange(base_, Manifest());  // frees memory; it is read entry by entry from here on
  RETURN_IF_ERROR(PlaceLate());
  RETURN_IF_ERROR(SyncTouched());
  if (saves_base_) {
    SaveKnown();
    RETURN_IF_ERROR(kept_.empty() && spared_.empty() ? work_base_.End(theirs)
                                                     : work_base_.End(theirs, IsKept()));
  }
  return report_;
}

bool WorkMerge::IsAsSeen(const std::string& path, const struct stat& info) const {
  const auto seen = seen_.find(path);
  return seen != seen_.end() && seen->second.identity == FileIdentity::Of(info);
}

// Moves one entry into place. True when a directory was moved with everything in it.
absl::StatusOr<bool> WorkMerge::Place(DirWalk& staged, DirWalk& live, const FileEntry& entry) {
  const std::string name = BaseName(entry.path());
  const absl::StatusOr<int> to = live.OpenOrMake(ParentPath(entry.path()));
  if (absl::IsInvalidArgument(to.status())) {
    // The job has put something else in the place of the directory.
    NoteKept(entry.path(), seen_.count(entry.path()) > 0);
    return false;
  }
  if (!to.ok()) return to.status();
  const bool is_directory = entry.kind() == FileEntry::KIND_DIRECTORY;
  const std::optional<struct stat> info = StatAt(*to, name);
  if (is_directory && info.has_value() && S_ISDIR(info->st_mode)) {
    ASSIGN_OR_RETURN(const int dir, live.Open(entry.path()));
    if (SetMode(dir, entry.mode()) != 0) return PathError("set mode of", entry.path());
    return false;
  }
  if (info.has_value() && (overwrite_ && !is_directory ? !MayOverwrite(*info, entry)
                                                       : !IsAsSeen(entry.path(), *info))) {
    NoteKept(entry.path(), seen_.count(entry.path()) > 0);
    return false;
  }
  NoteTouched(entry.path());
  if (is_directory && info.has_value() && UnlinkBelow(*to, name, 0, entry.path()) != 0) {
    return PathError("replace", entry.path());
  }
  if (info.has_value() && S_ISREG(info->st_mode) && info->st_size > kPartBytes &&
      replaced_files_.size() < kMaxReplacedFiles) {
    replaced_files_.emplace_back(OpenBelow(*to, name, O_RDONLY | O_NONBLOCK, 0, entry.path()));
  }
  ASSIGN_OR_RETURN(const int from, staged.Open(ParentPath(entry.path())));
  if (RenameBelow(from, name, *to, name, entry.path()) != 0) {
    return PathError("put into place", entry.path());
  }
  if (is_directory) return true;
  NoteRenamed(live, entry.path());
  report_.set_written(report_.written() + 1);
  return false;
}

// Records a change in the directory of `path`, which may have been made for it.
void WorkMerge::NoteTouched(absl::string_view path) {
  do {
    path = ParentPath(path);
  } while (touched_.emplace(path).second && !path.empty());
}

// Syncs the renames and removals.
absl::Status WorkMerge::SyncTouched() {
  if (touched_.size() > kSyncEachAtMost) {
    if (SyncFileSystem(live_fd_.get()) == 0) return absl::OkStatus();
    if (errno != ENOSYS) return PathError("sync", "work");
  }
  DirWalk live(live_fd_.get());
  for (const std::string& directory : touched_) {
    const absl::StatusOr<int> dir = live.Open(directory);
    // The directory was removed later, perhaps to be replaced by a file.
    if (absl::IsNotFound(dir.status()) || absl::IsInvalidArgument(dir.status())) continue;
    RETURN_IF_ERROR(dir.status());
    if (file_ops::Sync(*dir) != 0) return PathError("sync", directory);
  }
  return absl::OkStatus();
}

// Moves files into the place of directories that RemoveTaken has removed.
absl::Status WorkMerge::PlaceLate() {
  const Manifest& theirs = builder_->manifest();
  DirWalk staged(builder_->root_fd());
  DirWalk live(live_fd_.get(), 0755);
  for (int64_t i = 0; i < theirs.size() && !late_.empty(); ++i) {
    if (!builder_->Wants(i)) continue;
    const FileEntry entry = theirs[i];
    if (late_.count(entry.path()) == 0) continue;
    const absl::StatusOr<int> to = live.OpenOrMake(ParentPath(entry.path()));
    if (to.ok() && StatAt(*to, BaseName(entry.path())).has_value()) {
      NoteKept(entry.path(), true);
    } else {
      RETURN_IF_ERROR(Place(staged, live, entry).status());
    }
  }
  return absl::OkStatus();
}

// Removes entries that the laptop no longer has, deepest first.
absl::Status WorkMerge::RemoveTaken() {
  const Manifest& theirs = builder_->manifest();
  DirWalk live(live_fd_.get());
  int64_t t = theirs.size() - 1;
  for (int64_t b = base_.size() - 1; b >= 0; --b) {
    const FileEntry entry = base_[b];
    while (t >= 0 && PathLess(entry.path(), theirs[t].path())) --t;
    if (t >= 0 && theirs[t].path() == entry.path() && late_.count(entry.path()) == 0) continue;
    if (spared_.count(entry.path()) > 0) continue;
    const absl::StatusOr<int> dir = live.Open(ParentPath(entry.path()));
    const std::string name = BaseName(entry.path());
    const std::optional<struct stat> info = dir.ok() ? StatAt(*dir, name) : std::nullopt;
    if (!info.has_value()) continue;
    NoteTouched(entry.path());
    if (entry.kind() == FileEntry::KIND_DIRECTORY) {
      // A directory with something of the job's stays.
      if (S_ISDIR(info->st_mode) && UnlinkBelow(*dir, name, AT_REMOVEDIR, entry.path()) != 0 &&
          errno != ENOTEMPTY && errno != EEXIST && errno != EBUSY) {
        return PathError("remove", entry.path());
      }
      continue;
    }
    std::string hashes;
    ASSIGN_OR_RETURN(const FileEntry now, LookAt(*dir, name, *info, hashes));
    if (!SameContent(now, entry)) {
      NoteKept(entry.path(), true);
      continue;
    }
    if (UnlinkAsSeen(*dir, name, FileIdentity::Of(*info), entry.path()) != 0) {
      if (errno != ESTALE) return PathError("remove", entry.path());
      NoteKept(entry.path(), true);
      continue;
    }
    report_.set_removed(report_.removed() + 1);
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

#include "agent/work_merge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/tree_store.h"
#include "common/clock.h"
#include "common/dir_walk.h"
#include "common/file_hasher.h"
#include "common/file_lock.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/sync_fs.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr int kMaxNamed = 1000;
// Directories; beyond it one sync of the whole file system is cheaper.
constexpr size_t kSyncEachAtMost = 32;
// Longer than the step in which a local file system's times advance.
constexpr absl::Duration kClockTicks = absl::Milliseconds(20);

bool SameContent(const FileEntry& a, const FileEntry& b) {
  return a.kind() == b.kind() && a.size() == b.size() && a.sha256() == b.sha256() &&
         a.symlink_target() == b.symlink_target();
}

std::optional<struct stat> StatAt(int dir, const std::string& name) {
  struct stat info {};
  if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

absl::Status PathError(absl::string_view doing, absl::string_view path) {
  return ErrnoStatus(errno, absl::StrCat(doing, " ", absl::CHexEscape(path)));
}

// What is at `name` now, as an entry; a file is read. `hashes` gets those of its parts.
absl::StatusOr<FileEntry> Look(int dir, const std::string& name, const struct stat& info,
                               std::string& hashes) {
  FileEntry entry;
  entry.set_mode(info.st_mode & 0777);
  if (S_ISDIR(info.st_mode)) {
    entry.set_kind(FileEntry::KIND_DIRECTORY);
  } else if (S_ISLNK(info.st_mode)) {
    char target[4097];
    const ssize_t size = readlinkat(dir, name.c_str(), target, sizeof(target));
    if (size < 0) return PathError("look at", name);
    entry.set_kind(FileEntry::KIND_SYMLINK);
    entry.set_symlink_target(std::string(target, static_cast<size_t>(size)));
  } else if (S_ISREG(info.st_mode)) {
    const UniqueFd fd(OpenBelow(dir, name, O_RDONLY | O_NONBLOCK, 0, name));
    if (!fd.valid()) return PathError("look at", name);
    std::vector<FileHasher::File> files = {{fd.get(), int64_t{info.st_size}, {}, absl::OkStatus()}};
    FileHasher().Hash(files, nullptr);
    RETURN_IF_ERROR(files[0].status);
    entry.set_kind(FileEntry::KIND_FILE);
    entry.set_size(int64_t{info.st_size});
    hashes = files[0].part_hashes;
    SetHashes(hashes, entry);
  }
  return entry;
}

}  // namespace

std::string WorkManifestPath(const JobPaths& job) { return JoinPath(job.dir, "work.manifest"); }

void WorkMerge::NoteKept(const std::string& path, bool in_base) {
  if (!kept_.emplace(path, in_base).second) return;
  report_.set_kept_count(report_.kept_count() + 1);
  if (report_.kept_size() < kMaxNamed) report_.add_kept(path);
}

namespace {

// What was pushed before; empty when nothing was.
absl::StatusOr<Manifest> ReadBase(const JobPaths& job) {
  absl::StatusOr<std::string> bytes = ReadFileToString(WorkManifestPath(job), kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status())) return Manifest();
  if (!bytes.ok()) return bytes.status();
  return ParseManifest(*std::move(bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkMerge>> WorkMerge::Plan(const JobPaths& job,
                                                           const std::string& into, Manifest theirs,
                                                           bool overwrite) {
  if (!IsDirectory(job.work)) {
    return absl::NotFoundError("sync: the job has no work directory here");
  }
  std::unique_ptr<WorkMerge> merge(new WorkMerge(job, overwrite));
  absl::StatusOr<UniqueFd> lock = TryLock(JoinPath(job.dir, "sync.lock"));
  if (absl::IsUnavailable(lock.status())) {
    return absl::FailedPreconditionError("sync: another one into this work directory is going on");
  }
  if (!lock.ok()) return lock.status();
  merge->lock_ = *std::move(lock);
  const UniqueFd work(file_ops::Open(job.work, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!work.valid()) return ErrnoStatus(errno, absl::StrCat("open ", job.work));
  DirWalk walk(work.get());
  const absl::StatusOr<int> target = walk.Open(into);
  if (absl::IsNotFound(target.status())) {
    // All of it is new: it appears at once, by one rename.
    merge->fresh_into_ = into;
    ASSIGN_OR_RETURN(merge->builder_, TreeBuilder::Begin(job.dir, std::move(theirs)));
    return merge;
  }
  if (!target.ok()) return target.status();
  merge->live_fd_.reset(OpenBelow(*target, ".", O_RDONLY | O_DIRECTORY, 0, into));
  if (!merge->live_fd_.valid()) return PathError("open", into);
  if (!overwrite && into.empty()) {
    ASSIGN_OR_RETURN(merge->base_, ReadBase(job));
    merge->saves_base_ = true;
    merge->known_ =
        std::make_unique<HashCache>(JoinPath(job.dir, "work.hashes"), Clock::Real(), kClockTicks);
  }
  RETURN_IF_ERROR(merge->Decide(theirs));
  (void)std::exchange(merge->base_, Manifest());  // takes room; Apply reads it again
  ASSIGN_OR_RETURN(merge->builder_,
                   TreeBuilder::Begin(job.dir, std::move(theirs), std::move(merge->wanted_)));
  const absl::Status taken = merge->TakeFromLive();
  if (taken.ok()) return merge;
  merge->builder_->Keep();
  return taken;
}

absl::Status WorkMerge::Decide(const Manifest& theirs) {
  wanted_.assign(static_cast<size_t>(theirs.size()), false);
  DirWalk live(live_fd_.get());
  int64_t b = 0;
  for (int64_t i = 0; i < theirs.size(); ++i) {
    const FileEntry entry = theirs[i];
    while (b < base_.size() && PathLess(base_[b].path(), entry.path())) ++b;
    std::optional<FileEntry> base;
    if (b < base_.size() && base_[b].path() == entry.path()) base = base_[b];
    if (base.has_value() && SameContent(*base, entry) && base->mode() == entry.mode()) {
      if (entry.size() > kPartBytes) (void)IsKnown(live, entry);
      continue;
    }
    ASSIGN_OR_RETURN(const bool wanted, MayWrite(live, entry, base));
    wanted_[static_cast<size_t>(i)] = wanted;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkMerge::MayWrite(DirWalk& live, const FileEntry& entry,
                                         const std::optional<FileEntry>& base) {
  const absl::StatusOr<int> dir = live.Open(ParentPath(entry.path()));
  if (!replaced_.empty() && absl::StartsWith(entry.path(), replaced_)) return true;
  if (!dir.ok() && !absl::IsNotFound(dir.status())) {
    // Where a directory is wanted the job has a file, or a symlink to somewhere else.
    NoteKept(entry.path(), base.has_value());
    return false;
  }
  const std::string name = BaseName(entry.path());
  const std::optional<struct stat> info = dir.ok() ? StatAt(*dir, name) : std::nullopt;
  if (!info.has_value()) {
    // What is new on the laptop is new here. What was there and is not any more, the job removed.
    if (!base.has_value() || overwrite_) return true;
    NoteKept(entry.path(), true);
    return false;
  }
  const bool both_directories = S_ISDIR(info->st_mode) && entry.kind() == FileEntry::KIND_DIRECTORY;
  if (both_directories) return true;
  std::string hashes;
  FileEntry now;
  if (base.has_value() && base->size() > kPartBytes && IsKnown(live, *base)) {
    now = *base;
    now.set_mode(info->st_mode & 0777);
    hashes = now.part_sha256();
  } else {
    ASSIGN_OR_RETURN(now, Look(*dir, name, *info, hashes));
  }
  if (SameContent(now, entry) && now.mode() == entry.mode()) return false;
  const bool untouched = base.has_value() && SameContent(now, *base);
  if (S_ISDIR(info->st_mode) || entry.kind() == FileEntry::KIND_DIRECTORY) {
    // Too much would go with it, were one replaced by the other without asking.
    if (!untouched) {
      NoteKept(entry.path(), base.has_value());
      return false;
    }
    if (S_ISDIR(info->st_mode)) {
      late_.insert(entry.path());
      return true;
    }
    replaced_ = absl::StrCat(entry.path(), "/");
  } else if (!untouched && !SameContent(now, entry) && !overwrite_) {
    NoteKept(entry.path(), base.has_value());
    return false;
  }
  seen_[entry.path()] = {FileIdentity::Of(*info), std::move(hashes)};
  return true;
}

absl::Status WorkMerge::TakeFromLive() {
  DirWalk live(live_fd_.get());
  const Manifest& theirs = builder_->manifest();
  for (int64_t i = 0; i < theirs.size() && !seen_.empty(); ++i) {
    if (!builder_->missing().Has(i)) continue;
    const FileEntry entry = theirs[i];
    const auto seen = seen_.find(entry.path());
    if (seen == seen_.end() || seen->second.part_hashes.empty()) continue;
    ASSIGN_OR_RETURN(const int dir, live.Open(ParentPath(entry.path())));
    RETURN_IF_ERROR(builder_->TakeKnown(dir, BaseName(entry.path()), i, seen->second.part_hashes));
  }
  return absl::OkStatus();
}

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
  if (known_ != nullptr) NotePlaced();
  const Manifest& theirs = builder_->manifest();
  DirWalk staged(builder_->root_fd());
  DirWalk live(live_fd_.get(), 0755);
  std::string moved;  // "path/" of a directory that went over with all below it
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
  if (saves_base_) {
    ASSIGN_OR_RETURN(base_, ReadBase(job_));
  }
  RETURN_IF_ERROR(RemoveTaken());
  RETURN_IF_ERROR(PlaceLate());
  RETURN_IF_ERROR(SyncTouched());
  RETURN_IF_ERROR(SaveBase());
  return report_;
}

bool WorkMerge::IsAsSeen(const std::string& path, const struct stat& info) const {
  const auto seen = seen_.find(path);
  return seen != seen_.end() && seen->second.identity == FileIdentity::Of(info);
}

// True when a directory was moved with everything in it.
absl::StatusOr<bool> WorkMerge::Place(DirWalk& staged, DirWalk& live, const FileEntry& entry) {
  const std::string name = BaseName(entry.path());
  const absl::StatusOr<int> to = live.OpenOrMake(ParentPath(entry.path()));
  if (absl::IsInvalidArgument(to.status())) {
    // The job has put something else where the directory was.
    NoteKept(entry.path(), seen_.count(entry.path()) > 0);
    return false;
  }
  if (!to.ok()) return to.status();
  const bool is_directory = entry.kind() == FileEntry::KIND_DIRECTORY;
  const std::optional<struct stat> info = StatAt(*to, name);
  if (is_directory && info.has_value() && S_ISDIR(info->st_mode)) {
    ASSIGN_OR_RETURN(const int dir, live.Open(entry.path()));
    if (fchmod(dir, entry.mode()) != 0) return PathError("set mode of", entry.path());
    return false;
  }
  if (info.has_value() && (is_directory || !overwrite_) && !IsAsSeen(entry.path(), *info)) {
    NoteKept(entry.path(), seen_.count(entry.path()) > 0);
    return false;
  }
  NoteTouched(entry.path());
  if (is_directory && info.has_value() && UnlinkBelow(*to, name, 0, entry.path()) != 0) {
    return PathError("replace", entry.path());
  }
  ASSIGN_OR_RETURN(const int from, staged.Open(ParentPath(entry.path())));
  if (RenameBelow(from, name, *to, name, entry.path()) != 0) {
    return PathError("put into place", entry.path());
  }
  if (is_directory) return true;
  report_.set_written(report_.written() + 1);
  return false;
}

// Something is done in the directory of `path`, which may have been made for it.
void WorkMerge::NoteTouched(absl::string_view path) {
  do {
    path = ParentPath(path);
  } while (touched_.emplace(path).second && !path.empty());
}

// What was renamed and removed, to stable storage.
absl::Status WorkMerge::SyncTouched() {
  if (touched_.size() > kSyncEachAtMost) {
    if (SyncFileSystem(live_fd_.get()) == 0) return absl::OkStatus();
    if (errno != ENOSYS) return PathError("sync", "work");
  }
  DirWalk live(live_fd_.get());
  for (const std::string& directory : touched_) {
    const absl::StatusOr<int> dir = live.Open(directory);
    // Removed later on, perhaps for a file in its place.
    if (absl::IsNotFound(dir.status()) || absl::IsInvalidArgument(dir.status())) continue;
    RETURN_IF_ERROR(dir.status());
    if (file_ops::Sync(*dir) != 0) return PathError("sync", directory);
  }
  return absl::OkStatus();
}

// Files in the place of directories: where RemoveTaken left nothing of them.
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

// What the laptop has no more, deepest first.
absl::Status WorkMerge::RemoveTaken() {
  const Manifest& theirs = builder_->manifest();
  DirWalk live(live_fd_.get());
  int64_t t = theirs.size() - 1;
  for (int64_t b = base_.size() - 1; b >= 0; --b) {
    const FileEntry entry = base_[b];
    while (t >= 0 && PathLess(entry.path(), theirs[t].path())) --t;
    if (t >= 0 && theirs[t].path() == entry.path() && late_.count(entry.path()) == 0) continue;
    const absl::StatusOr<int> dir = live.Open(ParentPath(entry.path()));
    const std::string name = BaseName(entry.path());
    const std::optional<struct stat> info = dir.ok() ? StatAt(*dir, name) : std::nullopt;
    if (!info.has_value()) continue;
    NoteTouched(entry.path());
    if (entry.kind() == FileEntry::KIND_DIRECTORY) {
      // One that holds something of the job's stays.
      if (S_ISDIR(info->st_mode) && UnlinkBelow(*dir, name, AT_REMOVEDIR, entry.path()) != 0 &&
          errno != ENOTEMPTY && errno != EEXIST && errno != EBUSY) {
        return PathError("remove", entry.path());
      }
      continue;
    }
    std::string hashes;
    ASSIGN_OR_RETURN(const FileEntry now, Look(*dir, name, *info, hashes));
    if (!SameContent(now, entry)) {
      NoteKept(entry.path(), true);
      continue;
    }
    if (UnlinkBelow(*dir, name, 0, entry.path()) != 0) {
      return PathError("remove", entry.path());
    }
    report_.set_removed(report_.removed() + 1);
  }
  return absl::OkStatus();
}

// The base of the next merge: what was pushed now; of what was kept, what was pushed before.
absl::Status WorkMerge::SaveBase() {
  if (!saves_base_) return absl::OkStatus();
  SaveKnown();
  const Manifest& theirs = builder_->manifest();
  if (kept_.empty()) return WriteFileAtomic(WorkManifestPath(job_), theirs.bytes());
  Manifest next;
  int64_t b = 0;
  int64_t t = 0;
  while (b < base_.size() || t < theirs.size()) {
    const std::string base_path = b < base_.size() ? base_[b].path() : "";
    const std::string their_path = t < theirs.size() ? theirs[t].path() : "";
    const bool from_base =
        t == theirs.size() || (b < base_.size() && !PathLess(their_path, base_path));
    const std::string& path = from_base ? base_path : their_path;
    const bool kept = kept_.count(path) > 0;
    const bool both = b < base_.size() && t < theirs.size() && base_path == their_path;
    if (kept && from_base) next.Append(base_[b]);
    if (!kept && (both || !from_base)) next.Append(theirs[t]);
    if (both) {
      ++b;
      ++t;
    } else {
      ++(from_base ? b : t);
    }
  }
  // A directory that was kept as a file, or the like, takes what is below it out of the comparison.
  if (!ValidateManifest(next).ok()) return absl::OkStatus();
  return WriteFileAtomic(WorkManifestPath(job_), next.bytes());
}

}  // namespace gpuctl

#include "agent/trees/work_merge.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/store/tree_trust.h"
#include "agent/trees/live_entry.h"
#include "agent/trees/silent_push.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr int kMaxNamed = 1000;
// The number of tries for the lock of a push that has just ended.
constexpr int kTries = 50;
constexpr absl::Duration kBetweenTries = absl::Milliseconds(20);

}  // namespace

void WorkMerge::NoteKept(const std::string& path, bool in_base) {
  if (!kept_.emplace(path, in_base).second) return;
  report_.set_kept_count(report_.kept_count() + 1);
  if (report_.kept_size() < kMaxNamed) report_.add_kept(path);
}

absl::StatusOr<std::unique_ptr<WorkMerge>> WorkMerge::Plan(const JobPaths& job,
                                                           const std::string& into, Manifest theirs,
                                                           bool overwrite) {
  if (!IsDirectory(job.work)) {
    return absl::NotFoundError("sync: the job has no work directory here");
  }
  std::unique_ptr<WorkMerge> merge(new WorkMerge(job, overwrite));
  absl::StatusOr<UniqueFd> lock = TryLock(SyncLockPath(job));
  if (absl::IsUnavailable(lock.status()) && EndSilentPushes(job.dir)) {
    for (int i = 0; i < kTries && absl::IsUnavailable(lock.status()); ++i) {
      Clock::Real().SleepFor(kBetweenTries);
      lock = TryLock(SyncLockPath(job));
    }
  }
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
    // All of it is new, so it appears at once, by one rename.
    merge->fresh_into_ = into;
    ASSIGN_OR_RETURN(merge->builder_, TreeBuilder::Begin(job.dir, std::move(theirs)));
    return merge;
  }
  if (!target.ok()) return target.status();
  merge->live_fd_.reset(OpenBelow(*target, ".", O_RDONLY | O_DIRECTORY, 0, into));
  if (!merge->live_fd_.valid()) return PathError("open", into);
  if (!overwrite && into.empty()) {
    RETURN_IF_ERROR(merge->work_base_.Settle(merge->live_fd_.get()));
    ASSIGN_OR_RETURN(merge->base_, merge->work_base_.Read());
    merge->saves_base_ = true;
    merge->known_ = std::make_unique<HashCache>(JoinPath(job.dir, "work.hashes"), Clock::Real(),
                                                kFileClockTick);
  }
  RETURN_IF_ERROR(merge->Decide(theirs));
  (void)std::exchange(merge->base_, Manifest());  // frees memory; Apply reads it again
  ASSIGN_OR_RETURN(merge->builder_,
                   TreeBuilder::Begin(job.dir, std::move(theirs), std::move(merge->wanted_),
                                      Leftover::kGoesWhenSimilar));
  const absl::Status taken = merge->TakeFromLive();
  if (taken.ok()) return merge;
  merge->builder_->Keep();
  return taken;
}

void WorkMerge::NoteTaken(const FileEntry& entry) {
  taken_.push_back(
      absl::StrCat(entry.path(), entry.kind() == FileEntry::KIND_DIRECTORY ? "/" : ""));
}

void WorkMerge::Spare(size_t index) { spared_.emplace(absl::StripSuffix(taken_[index], "/")); }

absl::Status WorkMerge::Decide(const Manifest& theirs) {
  wanted_.assign(static_cast<size_t>(theirs.size()), false);
  DirWalk live(live_fd_.get());
  int64_t b = 0;
  for (int64_t i = 0; i < theirs.size(); ++i) {
    const FileEntry entry = theirs[i];
    for (; b < base_.size() && PathLess(base_[b].path(), entry.path()); ++b) NoteTaken(base_[b]);
    std::optional<FileEntry> base;
    if (b < base_.size() && base_[b].path() == entry.path()) base = base_[b];
    b += base.has_value();
    if (base.has_value() && SameContent(*base, entry) && base->mode() == entry.mode()) {
      if (entry.size() > kPartBytes) (void)IsKnown(live, entry);
      continue;
    }
    ASSIGN_OR_RETURN(const bool wanted, MayWrite(live, entry, base));
    wanted_[static_cast<size_t>(i)] = wanted;
  }
  for (; b < base_.size(); ++b) NoteTaken(base_[b]);
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkMerge::MayWrite(DirWalk& live, const FileEntry& entry,
                                         const std::optional<FileEntry>& base) {
  if (!absent_.empty() && !base.has_value() && absl::StartsWith(entry.path(), absent_)) return true;
  const absl::StatusOr<int> dir = live.Open(ParentPath(entry.path()));
  if (!replaced_.empty() && absl::StartsWith(entry.path(), replaced_)) return true;
  if (!dir.ok() && !absl::IsNotFound(dir.status())) {
    // The job has a file, or a symlink to somewhere else, in the place of the directory.
    NoteKept(entry.path(), base.has_value());
    return false;
  }
  const std::string name = BaseName(entry.path());
  const std::optional<struct stat> info = dir.ok() ? StatAt(*dir, name) : std::nullopt;
  if (!info.has_value()) {
    // An entry that is new on the laptop is new here. An entry of the base that is not here was
    // removed by the job.
    if (entry.kind() == FileEntry::KIND_DIRECTORY) absent_ = absl::StrCat(entry.path(), "/");
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
    ASSIGN_OR_RETURN(now, LookAt(*dir, name, *info, hashes));
  }
  if (SameContent(now, entry) && now.mode() == entry.mode()) return false;
  const bool untouched = base.has_value() && SameContent(now, *base);
  if (S_ISDIR(info->st_mode) || entry.kind() == FileEntry::KIND_DIRECTORY) {
    // Replacing one kind by the other could lose too much.
    if (!untouched) {
      NoteKept(entry.path(), base.has_value());
      return false;
    }
    if (S_ISDIR(info->st_mode)) {
      late_.insert(entry.path());
      return true;
    }
    replaced_ = absl::StrCat(entry.path(), "/");
  } else if (overwrite_ ? !MayOverwrite(*info, entry) : !untouched && !SameContent(now, entry)) {
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
    RETURN_IF_ERROR(builder_->TakeKnown(dir, BaseName(entry.path()), i, seen->second.part_hashes,
                                        seen->second.identity));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

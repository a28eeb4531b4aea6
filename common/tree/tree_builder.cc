#include "common/tree/tree_builder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/copy_file.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sync_fs.h"
#include "common/tree/content_index.h"
#include "common/tree/file_hasher.h"
#include "common/tree/name_clash.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr size_t kContentHashBytes = 32;
constexpr absl::Duration kKeepLeftoversFor = absl::Hours(3 * 24);

// Returns the index of `path`, or -1 when the manifest does not have it.
int64_t FindPath(const Manifest& manifest, const std::string& path) {
  int64_t low = 0;
  int64_t high = manifest.size();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (PathLess(manifest[middle].path(), path)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < manifest.size() && manifest[low].path() == path ? low : -1;
}

// A regular file opened for reading, and its identity at that time.
struct Source {
  UniqueFd fd;
  int64_t size = 0;
  FileIdentity identity;
  // True when it has other names, perhaps in a stored tree or where a job reads: changes are
  // visible there.
  bool is_shared = false;
};
std::optional<Source> OpenSource(int dir_fd, const std::string& name) {
  Source source;
  source.fd.reset(OpenBelow(dir_fd, name, O_RDONLY | O_NONBLOCK, 0, name));
  struct stat info {};
  if (!source.fd.valid() || fstat(source.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return std::nullopt;
  }
  source.size = int64_t{info.st_size};
  source.identity = FileIdentity::Of(info);
  source.is_shared = info.st_nlink > 1;
  return source;
}

// True when nobody wrote to the file since it had the identity `then`. The mtime can be set back,
// the ctime cannot; a link that came or went looks like a write.
bool IsUnwritten(const Source& source, const FileIdentity& then) {
  struct stat info {};
  return fstat(source.fd.get(), &info) == 0 && FileIdentity::Of(info) == then;
}

// True when what an earlier try left is worth its room. A look at it changes the directory's time.
bool IsYoung(const std::string& staging_path) {
  struct stat info {};
  return stat(StagedManifestPath(staging_path).c_str(), &info) == 0 &&
         Clock::Real().Now() - absl::FromTimeT(info.st_mtime) < kKeepLeftoversFor;
}

bool ShareAFile(const Manifest& one, const Manifest& other) {
  for (const FileEntry& entry : other) {
    if (entry.kind() == FileEntry::KIND_FILE && FindPath(one, entry.path()) >= 0) return true;
  }
  return false;
}

std::string HashOf(const Source& source) {
  std::vector<FileHasher::File> files = {{source.fd.get(), source.size, {}, absl::OkStatus()}};
  FileHasher().Hash(files, nullptr);
  return files[0].status.ok() ? files[0].part_hashes : "";
}

}  // namespace

std::string StagedManifestPath(const std::string& staging_path) {
  return JoinPath(staging_path, "manifest");
}

std::string StagedTreePath(const std::string& staging_path) {
  return JoinPath(staging_path, "tree");
}

absl::StatusOr<Manifest> ReadStagedManifest(const std::string& staging_path) {
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadFileToString(StagedManifestPath(staging_path), kMaxManifestBytes));
  return ParseManifest(std::move(bytes));
}

TreeBuilder::TreeBuilder(StagingDir staging, Manifest manifest, std::vector<bool> wanted)
    : staging_(std::move(staging)),
      manifest_(std::move(manifest)),
      wanted_(std::move(wanted)),
      missing_(MissingContent::AllOf(manifest_)) {
  for (int64_t i = 0; i < manifest_.size(); ++i) {
    if (!Wants(i)) missing_.RemoveFile(i);
  }
}

std::string TreeBuilder::tree_path() const { return StagedTreePath(staging_.path()); }

absl::StatusOr<std::unique_ptr<TreeBuilder>> TreeBuilder::Begin(const std::string& parent,
                                                                Manifest manifest,
                                                                std::vector<bool> wanted,
                                                                Leftover leftover) {
  ASSIGN_OR_RETURN(std::vector<StagingDir> earlier, TakeAbandonedStaging(parent));
  auto builder = BeginWith(parent, std::move(manifest), std::move(wanted), leftover, earlier);
  // If this try fails, too, it must not lose the content of the earlier ones.
  if (!builder.ok()) {
    for (StagingDir& old : earlier) old.Keep();
  }
  return builder;
}

absl::StatusOr<std::unique_ptr<TreeBuilder>> TreeBuilder::BeginWith(
    const std::string& parent, Manifest manifest, std::vector<bool> wanted, Leftover leftover,
    std::vector<StagingDir>& earlier) {
  ASSIGN_OR_RETURN(StagingDir staging, StagingDir::Create(parent));
  std::unique_ptr<TreeBuilder> builder(
      new TreeBuilder(std::move(staging), std::move(manifest), std::move(wanted)));
  const std::string tree = builder->tree_path();
  if (file_ops::MkDir(tree, 0777) != 0) {
    return ErrnoStatus(errno, absl::StrCat("make directory ", tree));
  }
  builder->root_fd_.reset(file_ops::Open(tree, O_RDONLY | O_DIRECTORY));
  if (!builder->root_fd_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", tree));
  const NameFolding folding = ProbeNameFolding(builder->root_fd_.get());
  if (folding.any()) RETURN_IF_ERROR(CheckNameClashes(builder->manifest_, folding));
  const std::string manifest_path = StagedManifestPath(builder->staging_path());
  const UniqueFd fd(file_ops::Open(manifest_path, O_WRONLY | O_CREAT | O_EXCL));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", manifest_path));
  absl::Status written = WriteAll(fd.get(), builder->manifest_.bytes(), manifest_path);
  if (absl::IsResourceExhausted(written) && !earlier.empty()) {
    // The earlier tries may fill the disk, and without room they are useless.
    earlier.clear();
    if (ftruncate(fd.get(), 0) != 0 || lseek(fd.get(), 0, SEEK_SET) != 0) {
      return ErrnoStatus(errno, absl::StrCat("write ", manifest_path));
    }
    written = WriteAll(fd.get(), builder->manifest_.bytes(), manifest_path);
  }
  RETURN_IF_ERROR(written);
  for (StagingDir& old : earlier) {
    const absl::StatusOr<Manifest> staged = ReadStagedManifest(old.path());
    const UniqueFd old_fd(
        file_ops::Open(StagedTreePath(old.path()), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!staged.ok() || !old_fd.valid()) continue;
    const int64_t before = builder->missing_.Bytes(builder->manifest_);
    const absl::Status taken = builder->TakeFrom(old_fd.get(), *staged, Reuse::kMove, false);
    if (!taken.ok()) {
      builder->Keep();
      return taken;
    }
    // What was left by a transfer of something else is for the one that goes on with that.
    const bool used = builder->missing_.Bytes(builder->manifest_) < before ||
                      staged->bytes() == builder->manifest_.bytes();
    const bool superseded =
        leftover == Leftover::kGoesWhenSimilar && ShareAFile(builder->manifest_, *staged);
    if (!used && !superseded && IsYoung(old.path())) old.Keep();
  }
  return builder;
}

absl::Status TreeBuilder::TakeFrom(int source_fd, const Manifest& source, Reuse how,
                                   bool verified) {
  ContentIndex wanted(manifest_, missing_);
  if (wanted.empty()) return absl::OkStatus();
  DirWalk walk(source_fd);
  for (const FileEntry& entry : source) {
    if (entry.kind() != FileEntry::KIND_FILE || entry.size() == 0) continue;
    int64_t same = wanted.Next(entry);
    const int64_t here =
        entry.size() > kPartBytes && same < 0 ? FindPath(manifest_, entry.path()) : -1;
    if (same < 0 && here < 0) continue;
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    if (!dir.ok()) continue;
    const std::string name = BaseName(entry.path());
    while (same >= 0) {
      const int64_t next = wanted.Next(entry, same);
      // A moved file is not available for a second entry with the same content.
      const Reuse manner = how == Reuse::kMove && next >= 0 ? Reuse::kCopy : how;
      RETURN_IF_ERROR(entry.size() > kPartBytes && !verified
                          ? TakeParts(*dir, name, same, manner)
                          : TakeWhole(*dir, name, same, manner, verified));
      // The file is not what `source` says. It will not fit the next entries either.
      if (missing_.Has(same)) break;
      same = next;
    }
    if (here >= 0 && missing_.Has(here)) {
      RETURN_IF_ERROR(TakeParts(*dir, name, here, how, verified ? &entry.part_sha256() : nullptr));
    }
  }
  take_steps_ += wanted.steps();
  return absl::OkStatus();
}

absl::Status TreeBuilder::TakeSamePaths(int source_fd) {
  DirWalk walk(source_fd);
  for (int64_t i = 0; i < manifest_.size(); ++i) {
    if (!missing_.Has(i)) continue;
    const FileEntry entry = manifest_[i];
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    if (!dir.ok()) continue;
    const std::string name = BaseName(entry.path());
    RETURN_IF_ERROR(entry.size() > kPartBytes ? TakeParts(*dir, name, i, Reuse::kCopy)
                                              : TakeWhole(*dir, name, i, Reuse::kCopy, false));
  }
  return absl::OkStatus();
}

absl::Status TreeBuilder::TakeWhole(int source_dir, const std::string& name, int64_t index,
                                    Reuse how, bool verified) {
  const FileEntry entry = manifest_[index];
  ++take_steps_;
  const std::optional<Source> source = OpenSource(source_dir, name);
  if (!source.has_value() || source->size != entry.size()) return absl::OkStatus();
  if (!verified) {
    FileEntry found;
    SetHashes(HashOf(*source), found);
    if (found.sha256() != entry.sha256()) return absl::OkStatus();
  }
  DirWalk walk(root_fd_.get());
  ASSIGN_OR_RETURN(const int dir, walk.OpenOrMake(ParentPath(entry.path())));
  const std::string target = BaseName(entry.path());
  struct stat info {};
  const bool mode_fits =
      fstat(source->fd.get(), &info) == 0 && (info.st_mode & 0777) == entry.mode();
  if (how == Reuse::kMove && (mode_fits || !source->is_shared)) {
    if (RenameBelow(source_dir, name, dir, target, entry.path()) != 0 ||
        (!mode_fits && SetMode(source->fd.get(), entry.mode()) != 0)) {
      return PathError("take over", entry.path());
    }
  } else {
    const bool linked = how == Reuse::kLink && mode_fits &&
                        linkat(source_dir, name.c_str(), dir, target.c_str(), 0) == 0;
    if (!linked) {
      const UniqueFd copy(OpenBelow(dir, target, O_WRONLY | O_CREAT | O_TRUNC, 0600, entry.path()));
      if (!copy.valid()) return PathError("create", entry.path());
      ASSIGN_OR_RETURN(const int64_t copied, CopyFileContent(source->fd.get(), copy.get(),
                                                             absl::CHexEscape(entry.path())));
      if (copied != entry.size() || !IsUnwritten(*source, source->identity)) {
        return absl::OkStatus();
      }
      if (SetMode(copy.get(), entry.mode()) != 0) return PathError("set mode of", entry.path());
    }
  }
  missing_.RemoveFile(index);
  return absl::OkStatus();
}

absl::Status TreeBuilder::TakeKnown(int source_dir, const std::string& name, int64_t index,
                                    const std::string& part_hashes, const FileIdentity& then) {
  const FileEntry entry = manifest_[index];
  if (entry.size() > kPartBytes) {
    return TakeParts(source_dir, name, index, Reuse::kCopy, &part_hashes, &then);
  }
  if (part_hashes != entry.sha256()) return absl::OkStatus();
  return TakeWhole(source_dir, name, index, Reuse::kCopy, false);
}

absl::Status TreeBuilder::TakeParts(int source_dir, const std::string& name, int64_t index,
                                    Reuse how, const std::string* part_hashes,
                                    const FileIdentity* then) {
  const FileEntry entry = manifest_[index];
  ++take_steps_;
  const std::optional<Source> source = OpenSource(source_dir, name);
  if (!source.has_value() || entry.size() <= kPartBytes) return absl::OkStatus();
  const std::string hashes = part_hashes != nullptr ? *part_hashes : HashOf(*source);
  const int64_t count = PartCount(entry.size());
  std::vector<int64_t> same;
  for (int64_t part = 0;
       part < std::min(count, static_cast<int64_t>(hashes.size() / kContentHashBytes)); ++part) {
    const absl::string_view hash = absl::string_view(hashes).substr(
        static_cast<size_t>(part) * kContentHashBytes, kContentHashBytes);
    if (missing_.Has(index, part) && hash == PartHash(entry, part)) same.push_back(part);
  }
  // A file that is moved away will be written to, and is no older version to read.
  if (how != Reuse::kMove) NoteOlder(index, source->fd.get(), source->size, hashes);
  if (same.empty()) return absl::OkStatus();
  DirWalk walk(root_fd_.get());
  ASSIGN_OR_RETURN(const int dir, walk.OpenOrMake(ParentPath(entry.path())));
  const std::string target = BaseName(entry.path());
  struct stat present {};
  const bool begun = fstatat(dir, target.c_str(), &present, AT_SYMLINK_NOFOLLOW) == 0;
  // A moved file will be written to: its other parts get other content.
  if (how == Reuse::kMove && !begun && !source->is_shared) {
    if (RenameBelow(source_dir, name, dir, target, entry.path()) != 0 ||
        fchmod(source->fd.get(), 0600) != 0) {
      return PathError("take over", entry.path());
    }
  } else {
    const UniqueFd copy(OpenBelow(dir, target, O_WRONLY | O_CREAT, 0600, entry.path()));
    if (!copy.valid() || file_ops::Truncate(copy.get(), entry.size()) != 0) {
      return PathError("create", entry.path());
    }
    for (const int64_t part : same) {
      const int64_t length = std::min(kPartBytes, entry.size() - part * kPartBytes);
      ASSIGN_OR_RETURN(const int64_t copied,
                       CopyFileRange(source->fd.get(), copy.get(), part * kPartBytes, length,
                                     absl::CHexEscape(entry.path())));
      if (copied != length) return absl::OkStatus();  // it shrinks meanwhile
      BeginWriteBack(copy.get(), part * kPartBytes, length);
    }
    // The copied content may differ from the hashed content.
    if (!IsUnwritten(*source, then != nullptr ? *then : source->identity)) return absl::OkStatus();
  }
  for (const int64_t part : same) missing_.RemovePart(index, part, count);
  return absl::OkStatus();
}

absl::Status TreeBuilder::MakeEmptyFiles() {
  DirWalk walk(root_fd_.get());
  for (int64_t i = 0; i < manifest_.size(); ++i) {
    if (!Wants(i)) continue;
    const FileEntry entry = manifest_[i];
    const bool in_parts = entry.size() > kPartBytes;
    if (entry.kind() != FileEntry::KIND_FILE || (entry.size() > 0 && !in_parts)) continue;
    ASSIGN_OR_RETURN(const int dir, walk.OpenOrMake(ParentPath(entry.path())));
    const std::string name = BaseName(entry.path());
    struct stat info {};
    // A correct file is not touched: it may be a hard link to a stored tree's file.
    if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
        int64_t{info.st_size} == entry.size() && (info.st_mode & 07777) == entry.mode()) {
      continue;
    }
    const UniqueFd fd(
        OpenBelow(dir, name, in_parts ? O_RDWR : O_WRONLY | O_CREAT | O_TRUNC, 0600, entry.path()));
    if (!fd.valid()) return PathError("create", entry.path());
    // A file taken over from an earlier try may have been longer.
    if (in_parts && file_ops::Truncate(fd.get(), entry.size()) != 0) {
      return PathError("write", entry.path());
    }
    if (SetMode(fd.get(), entry.mode()) != 0) return PathError("set mode of", entry.path());
  }
  return absl::OkStatus();
}

absl::Status TreeBuilder::Finish() {
  if (!missing_.empty()) {
    return absl::DataLossError("receive tree: the peer ended before all of it was here");
  }
  RETURN_IF_ERROR(MakeTreeDirectories(root_fd_.get(), manifest_, wanted_));
  RETURN_IF_ERROR(MakeEmptyFiles());
  RETURN_IF_ERROR(FinishTree(root_fd_.get(), manifest_, wanted_));
  return SyncTree(tree_path(), manifest_, wanted_);
}

}  // namespace gpuctl

#include "agent/trees/tree_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/staging_dir.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr absl::string_view kManifestEnding = ".manifest";
// The modification time of every stored file, in Unix seconds: 2001-09-09, which no job's clock
// shows.
constexpr int64_t kStoredMtime = 1'000'000'000;
constexpr int64_t kSweepEverySeconds = 600;
// The largest number of trees to search. More would take longer than they save.
constexpr size_t kTreesToLookInto = 16;

std::string TreePath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, digest);
}

std::string ManifestPath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, absl::StrCat(digest, kManifestEnding));
}

absl::StatusOr<Manifest> ReadManifestOf(const std::string& trees, absl::string_view digest) {
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadFileToString(ManifestPath(trees, digest), kMaxManifestBytes));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(std::move(bytes)));
  if (manifest.Digest() != digest) return absl::DataLossError("manifest differs");
  return manifest;
}

// Calls `visit` with each file of the tree: its directory and its present stat.
template <typename Visit>
absl::Status ForEachFile(int root_fd, const Manifest& manifest, const Visit& visit) {
  DirWalk walk(root_fd);
  for (const FileEntry& entry : manifest) {
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    const absl::StatusOr<int> dir = walk.Open(ParentPath(entry.path()));
    // The trees visited here are complete.
    if (absl::IsNotFound(dir.status()) || absl::IsInvalidArgument(dir.status())) {
      return absl::DataLossError(dir.status().message());
    }
    if (!dir.ok()) return dir.status();
    RETURN_IF_ERROR(visit(*dir, BaseName(entry.path()), entry));
  }
  return absl::OkStatus();
}

absl::Status MarkStored(int root_fd, const Manifest& manifest) {
  return ForEachFile(root_fd, manifest,
                     [](int dir, const std::string& name, const FileEntry& entry) -> absl::Status {
                       const struct timespec times[2] = {{kStoredMtime, 0}, {kStoredMtime, 0}};
                       struct stat info {};
                       if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
                         if (int64_t{info.st_mtime} == kStoredMtime) return absl::OkStatus();
                         // It is shared with another tree and was written to: the mark must not
                         // hide that.
                         if (info.st_nlink > 1) {
                           return absl::DataLossError(
                               absl::StrCat(absl::CHexEscape(entry.path()), " was written to"));
                         }
                         if (utimensat(dir, name.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) {
                           return absl::OkStatus();
                         }
                       }
                       return PathError("set the time of", entry.path());
                     });
}

absl::Status CheckUntouched(int root_fd, const Manifest& manifest) {
  return ForEachFile(
      root_fd, manifest,
      [](int dir, const std::string& name, const FileEntry& entry) -> absl::Status {
        struct stat info {};
        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
          if (errno != ENOENT) return PathError("check", entry.path());
          return absl::DataLossError(absl::StrCat(absl::CHexEscape(entry.path()), " is gone"));
        }
        if (S_ISREG(info.st_mode) && int64_t{info.st_size} == entry.size() &&
            int64_t{info.st_mtime} == kStoredMtime) {
          return absl::OkStatus();
        }
        return absl::DataLossError(absl::StrCat(absl::CHexEscape(entry.path()), " was written to"));
      });
}

absl::Status LinkTree(int from_fd, int to_fd, const Manifest& manifest) {
  RETURN_IF_ERROR(MakeTreeDirectories(to_fd, manifest));
  DirWalk to(to_fd);
  RETURN_IF_ERROR(
      ForEachFile(from_fd, manifest,
                  [&](int dir, const std::string& name, const FileEntry& entry) -> absl::Status {
                    ASSIGN_OR_RETURN(const int to_dir, to.Open(ParentPath(entry.path())));
                    if (file_ops::Fault(file_ops::Op::kLink, entry.path()) != 0 ||
                        linkat(dir, name.c_str(), to_dir, name.c_str(), 0) != 0) {
                      return PathError("link", entry.path());
                    }
                    return absl::OkStatus();
                  }));
  return FinishTree(to_fd, manifest);
}

void RemoveStoredTree(const std::string& trees, absl::string_view digest) {
  // One rename makes it an abandoned directory. Half a tree must never have its own name, because
  // the next push would take it for a whole one.
  const std::string doomed = JoinPath(trees, absl::StrCat(kStagingPrefix, RandomHex(8)));
  if (file_ops::Rename(TreePath(trees, digest), doomed) != 0 && errno != ENOENT) return;
  (void)file_ops::Unlink(ManifestPath(trees, digest));
  (void)RemoveTree(doomed);
}

struct StoredTree {
  int64_t used_s = 0;
  std::string digest;
};

std::vector<StoredTree> ListStoredTrees(const std::string& trees) {
  std::vector<StoredTree> found;
  const auto names = ListDirectory(trees);
  if (!names.ok()) return found;
  for (const std::string& name : *names) {
    struct stat info {};
    const absl::string_view digest = absl::StripSuffix(name, kManifestEnding);
    if (!absl::EndsWith(name, kManifestEnding) || !IsManifestDigest(digest)) continue;
    if (lstat(JoinPath(trees, name).c_str(), &info) == 0) {
      found.push_back({int64_t{info.st_mtime}, std::string(digest)});
    }
  }
  std::sort(found.begin(), found.end(), [](const StoredTree& a, const StoredTree& b) {
    return std::pair(-a.used_s, a.digest) < std::pair(-b.used_s, b.digest);
  });
  return found;
}

absl::Status MaterializeInto(const std::string& trees, absl::string_view digest,
                             const std::string& to, const Manifest& manifest, bool link) {
  const std::string tree = TreePath(trees, digest);
  const UniqueFd from_fd(file_ops::Open(tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!from_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", tree));
  RETURN_IF_ERROR(CheckUntouched(from_fd.get(), manifest));
  if (!link) {
    RETURN_IF_ERROR(CopyTree(tree, to, manifest));
  } else {
    if (file_ops::MkDir(to) != 0) return ErrnoStatus(errno, absl::StrCat("make directory ", to));
    const UniqueFd to_fd(file_ops::Open(to, O_RDONLY | O_DIRECTORY));
    if (!to_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", to));
    RETURN_IF_ERROR(LinkTree(from_fd.get(), to_fd.get(), manifest));
  }
  return SyncTree(to, manifest);
}

absl::Status Materialize(const std::string& trees, absl::string_view digest, const std::string& to,
                         const std::string& manifest_to, bool link) {
  const std::string doing = absl::StrCat("copy tree ", digest);
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, false));
  if (!UseStoredTree(trees, digest)) {
    return absl::NotFoundError(absl::StrCat(doing, ": it is not stored"));
  }
  const auto gone = [&](absl::string_view cause) {
    RemoveStoredTree(trees, digest);
    return absl::DataLossError(absl::StrCat(doing, ": ", cause));
  };
  const absl::StatusOr<Manifest> manifest = ReadManifestOf(trees, digest);
  if (!manifest.ok()) return gone(manifest.status().message());
  if (PathExists(to)) return absl::AlreadyExistsError(absl::StrCat(doing, ": ", to, " exists"));
  absl::Status status = MaterializeInto(trees, digest, to, *manifest, link);
  if (status.ok() && !manifest_to.empty()) {
    status = WriteFileAtomic(manifest_to, manifest->bytes());
  }
  if (status.ok()) return status;
  (void)RemoveTree(to);
  if (absl::IsDataLoss(status)) return gone(status.message());
  return Annotate(status, doing);
}

}  // namespace

bool IsManifestDigest(absl::string_view digest) {
  return digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == digest.npos;
}

bool IsStoredContent(const struct stat& info) { return int64_t{info.st_mtime} == kStoredMtime; }

bool HasStoredTree(const std::string& trees, absl::string_view digest) {
  // A tree without its manifest could not be copied. The next push brings both.
  return IsManifestDigest(digest) && IsDirectory(TreePath(trees, digest)) &&
         PathExists(ManifestPath(trees, digest));
}

bool UseStoredTree(const std::string& trees, absl::string_view digest) {
  return HasStoredTree(trees, digest) &&
         utimensat(AT_FDCWD, ManifestPath(trees, digest).c_str(), nullptr, 0) == 0;
}

absl::Status PublishTree(const std::string& trees, const std::string& digest,
                         TreeBuilder& builder) {
  RETURN_IF_ERROR(MarkStored(builder.root_fd(), builder.manifest()));
  // The manifest comes first, and from the staging directory, so that no leftover is in a place
  // that nobody cleans.
  const std::string staged = JoinPath(builder.staging_path(), "published");
  RETURN_IF_ERROR(WriteFileAtomic(staged, builder.manifest().bytes()));
  if (file_ops::Rename(staged, ManifestPath(trees, digest)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("publish manifest ", digest));
  }
  const std::string tree = TreePath(trees, digest);
  if (file_ops::Rename(builder.tree_path(), tree) != 0) {
    const int error_number = errno;
    // Another push of the same tree was faster. (An empty tree is replaced by an equal one.)
    if ((error_number == ENOTEMPTY || error_number == EEXIST) && IsDirectory(tree)) {
      return absl::OkStatus();
    }
    return ErrnoStatus(error_number, absl::StrCat("publish tree ", digest));
  }
  return SyncDirectory(trees);
}

absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to) {
  return Materialize(trees, digest, to, manifest_to, false);
}

absl::Status LinkStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to) {
  return Materialize(trees, digest, to, "", true);
}

absl::Status TakeFromStoredTrees(const std::string& trees, TreeBuilder& builder, Reuse how) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, false));
  size_t looked_into = 0;
  for (const StoredTree& stored : ListStoredTrees(trees)) {
    if (builder.missing().empty() || ++looked_into > kTreesToLookInto) break;
    const absl::StatusOr<Manifest> manifest = ReadManifestOf(trees, stored.digest);
    const UniqueFd fd(
        file_ops::Open(TreePath(trees, stored.digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!manifest.ok() || !fd.valid() || !CheckUntouched(fd.get(), *manifest).ok()) continue;
    RETURN_IF_ERROR(builder.TakeFrom(fd.get(), *manifest, how, true));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> LockTreeStore(const std::string& trees, bool exclusive) {
  const std::string path = JoinPath(trees, ".lock");
  UniqueFd fd(file_ops::Open(path, O_RDWR | O_CREAT));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  while (flock(fd.get(), exclusive ? LOCK_EX : LOCK_SH) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", path));
  }
  return fd;
}

namespace {

// Returns the bytes on disk that only this tree uses, without content shared with other trees.
int64_t BytesFreedWith(const std::string& trees, const std::string& digest) {
  const absl::StatusOr<Manifest> manifest = ReadManifestOf(trees, digest);
  const UniqueFd fd(file_ops::Open(TreePath(trees, digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  int64_t bytes = 0;
  if (!manifest.ok() || !fd.valid()) return bytes;
  std::map<uint64_t, uint64_t> links;  // for files with several links: how many are in this tree
  (void)ForEachFile(fd.get(), *manifest,
                    [&](int dir, const std::string& name, const FileEntry&) -> absl::Status {
                      struct stat info {};
                      if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
                        return absl::OkStatus();
                      const auto all = static_cast<uint64_t>(info.st_nlink);
                      if (all == 1 || ++links[static_cast<uint64_t>(info.st_ino)] == all) {
                        bytes += int64_t{info.st_blocks} * 512;
                      }
                      return absl::OkStatus();
                    });
  return bytes;
}

// Removes pushes that nobody continued, last changed before `before_s`.
absl::Status RemoveOldStaging(const std::string& trees, int64_t before_s) {
  ASSIGN_OR_RETURN(std::vector<StagingDir> abandoned, TakeAbandonedStaging(trees));
  for (StagingDir& staging : abandoned) {
    struct stat info {};
    // Without its manifest nobody can continue it.
    if (lstat(StagedManifestPath(staging.path()).c_str(), &info) == 0 &&
        int64_t{info.st_mtime} >= before_s) {
      staging.Keep();
    }
  }
  return absl::OkStatus();
}

// Returns the bytes on disk of all trees; shared content counts once.
int64_t BytesStored(const std::string& trees, const std::vector<StoredTree>& stored) {
  double bytes = 0;
  for (const StoredTree& tree : stored) {
    const absl::StatusOr<Manifest> manifest = ReadManifestOf(trees, tree.digest);
    const UniqueFd fd(
        file_ops::Open(TreePath(trees, tree.digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!manifest.ok() || !fd.valid()) continue;
    (void)ForEachFile(fd.get(), *manifest,
                      [&](int dir, const std::string& name, const FileEntry&) -> absl::Status {
                        struct stat info {};
                        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
                          bytes += static_cast<double>(info.st_blocks) * 512 /
                                   static_cast<double>(std::max<int64_t>(1, info.st_nlink));
                        }
                        return absl::OkStatus();
                      });
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

absl::StatusOr<int64_t> SweepTreeStore(const std::string& trees, const SweepOptions& options) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, true));
  RETURN_IF_ERROR(RemoveOldStaging(trees, options.now_s - options.pinned_s));
  std::vector<StoredTree> stored = ListStoredTrees(trees);
  int64_t bytes = BytesStored(trees, stored);
  int64_t freed = 0;
  while (bytes > options.max_bytes && !stored.empty()) {
    const StoredTree oldest = stored.back();
    stored.pop_back();
    if (options.now_s - oldest.used_s < options.pinned_s) break;
    const int64_t own = BytesFreedWith(trees, oldest.digest);
    RemoveStoredTree(trees, oldest.digest);
    bytes -= own;
    freed += own;
  }
  return freed;
}

absl::Status SweepIfDue(const std::string& trees, Clock& clock) {
  struct statvfs disk {};
  if (statvfs(trees.c_str(), &disk) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at ", trees));
  }
  const auto unit = static_cast<int64_t>(disk.f_frsize);
  const int64_t total = static_cast<int64_t>(disk.f_blocks) * unit;
  const int64_t free = static_cast<int64_t>(disk.f_bavail) * unit;
  const int64_t wanting = std::max<int64_t>(0, total / 10 - free);
  SweepOptions options;
  options.max_bytes = std::max<int64_t>(0, total / 4 - wanting);
  options.now_s = absl::ToUnixSeconds(clock.Now());
  const std::string mark = JoinPath(trees, ".swept");
  struct stat swept {};
  const bool lately = stat(mark.c_str(), &swept) == 0 &&
                      options.now_s - int64_t{swept.st_mtime} < kSweepEverySeconds;
  if (lately && wanting == 0) return absl::OkStatus();
  RETURN_IF_ERROR(SweepTreeStore(trees, options).status());
  const UniqueFd fd(file_ops::Open(mark, O_WRONLY | O_CREAT));
  if (!fd.valid() || futimens(fd.get(), nullptr) != 0) {
    return ErrnoStatus(errno, absl::StrCat("note the sweep in ", mark));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

#include "agent/store/tree_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "agent/store/stored_files.h"
#include "agent/store/tree_trust.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/staging_dir.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

constexpr absl::string_view kManifestEnding = ".manifest";
constexpr int64_t kSweepEverySeconds = 600;
// The largest number of trees to search. More would take longer than they save.
constexpr size_t kTreesToLookInto = 16;

void RemoveStoredTree(const std::string& trees, absl::string_view digest) {
  // One rename makes it an abandoned directory. Half a tree must never have its own name, because
  // the next push would take it for a whole one.
  const std::string doomed = JoinPath(trees, absl::StrCat(kStagingPrefix, RandomHex(8)));
  if (file_ops::Rename(StoredTreePath(trees, digest), doomed) != 0 && errno != ENOENT) return;
  (void)file_ops::Unlink(StoredManifestPath(trees, digest));
  (void)file_ops::Unlink(KnownPath(trees, digest));
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

std::vector<bool> MissingOf(TreeBuilder& builder) {
  std::vector<bool> missing;
  for (int64_t i = 0; i < builder.manifest().size(); ++i) {
    missing.push_back(builder.missing().Has(i));
  }
  return missing;
}

// Takes content from the stored tree `digest`, open at `root_fd`. Files that may have been written
// to are read before. Sets `taken` for entries whose files were known.
absl::Status TakeFromTree(const std::string& trees, absl::string_view digest, int root_fd,
                          const Manifest& manifest, TreeBuilder& builder, Reuse how,
                          std::vector<bool>& taken) {
  const std::vector<bool> known = FindKnown(trees, digest, root_fd, manifest);
  int64_t files = 0;
  for (const FileEntry& entry : manifest) files += entry.kind() == FileEntry::KIND_FILE;
  const int64_t known_count = std::count(known.begin(), known.end(), true);
  const bool all_known = known_count == files;
  // Only for links it pays to take the known files apart: then large ones are linked whole.
  if (known_count == 0 || (!all_known && how != Reuse::kLink)) {
    return builder.TakeFrom(root_fd, manifest, how, /*verified=*/false);
  }
  Manifest known_files;
  Manifest unknown_files;
  for (int64_t i = 0; i < manifest.size() && !all_known; ++i) {
    const FileEntry entry = manifest[i];
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    (known[static_cast<size_t>(i)] ? known_files : unknown_files).Append(entry);
  }
  const std::vector<bool> missing = MissingOf(builder);
  RETURN_IF_ERROR(
      builder.TakeFrom(root_fd, all_known ? manifest : known_files, how, /*verified=*/true));
  for (size_t i = 0; i < taken.size(); ++i) {
    if (missing[i] && !builder.missing().Has(static_cast<int64_t>(i))) taken[i] = true;
  }
  return all_known ? absl::OkStatus()
                   : builder.TakeFrom(root_fd, unknown_files, how, /*verified=*/false);
}

// Returns the present identities of the `taken` files that are linked to the store.
StoredIdentities LookAtTaken(TreeBuilder& builder, const std::vector<bool>& taken) {
  StoredIdentities files(taken.size());
  DirWalk walk(builder.root_fd());
  for (int64_t i = 0; i < builder.manifest().size(); ++i) {
    if (!taken[static_cast<size_t>(i)]) continue;
    const std::string path = builder.manifest()[i].path();
    const absl::StatusOr<int> dir = walk.Open(ParentPath(path));
    struct stat info {};
    // Another mtime shows that somebody wrote to it just now. Publishing reads it again.
    if (dir.ok() && fstatat(*dir, BaseName(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        info.st_nlink > 1 && int64_t{info.st_mtime} == kStoredMtime) {
      files[static_cast<size_t>(i)] = StoredIdentity(info);
    }
  }
  return files;
}

// Removes records without a tree, and unfinished ones.
void RemoveOldRecords(const std::string& trees) {
  for (const std::string& name : ListDirectory(trees).value_or(std::vector<std::string>())) {
    absl::string_view digest = name;
    if (absl::ConsumePrefix(&digest, kKnownPrefix) && !HasStoredTree(trees, digest)) {
      (void)file_ops::Unlink(JoinPath(trees, name));
    }
  }
}

}  // namespace

std::string StoredTreePath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, digest);
}

std::string StoredManifestPath(const std::string& trees, absl::string_view digest) {
  return JoinPath(trees, absl::StrCat(digest, kManifestEnding));
}

absl::StatusOr<Manifest> ReadStoredManifest(const std::string& trees, absl::string_view digest) {
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadFileToString(StoredManifestPath(trees, digest), kMaxManifestBytes));
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(std::move(bytes)));
  if (manifest.Digest() != digest) return absl::DataLossError("manifest differs");
  return manifest;
}

void SetAsideStoredTree(const std::string& trees, absl::string_view digest) {
  absl::StatusOr<StagingDir> aside = StagingDir::Create(trees);
  if (!aside.ok()) return RemoveStoredTree(trees, digest);
  // The tree goes first: without its directory the manifest means nothing.
  const bool moved =
      file_ops::Rename(StoredTreePath(trees, digest), StagedTreePath(aside->path())) == 0 &&
      file_ops::Rename(StoredManifestPath(trees, digest), StagedManifestPath(aside->path())) == 0;
  if (!moved) return RemoveStoredTree(trees, digest);
  (void)file_ops::Unlink(KnownPath(trees, digest));
  aside->Keep();
}

bool IsManifestDigest(absl::string_view digest) {
  return digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == digest.npos;
}

bool HasStoredTree(const std::string& trees, absl::string_view digest) {
  // A tree without its manifest could not be copied. The next push brings both.
  return IsManifestDigest(digest) && IsDirectory(StoredTreePath(trees, digest)) &&
         PathExists(StoredManifestPath(trees, digest));
}

bool UseStoredTree(const std::string& trees, absl::string_view digest) {
  return HasStoredTree(trees, digest) &&
         utimensat(AT_FDCWD, StoredManifestPath(trees, digest).c_str(), nullptr, 0) == 0;
}

absl::Status PublishTree(const std::string& trees, const std::string& digest, TreeBuilder& builder,
                         StoredIdentities taken) {
  const Manifest& manifest = builder.manifest();
  RETURN_IF_ERROR(MarkStored(builder.root_fd(), manifest, taken));
  // The manifest comes first, and from the staging directory, so that no leftover is in a place
  // that nobody cleans.
  const std::string staged = JoinPath(builder.staging_path(), "published");
  RETURN_IF_ERROR(WriteFileAtomic(staged, manifest.bytes()));
  if (file_ops::Rename(staged, StoredManifestPath(trees, digest)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("publish manifest ", digest));
  }
  const std::string tree = StoredTreePath(trees, digest);
  if (file_ops::Rename(builder.tree_path(), tree) != 0) {
    const int error_number = errno;
    // Another push of the same tree was faster. (An empty tree is replaced by an equal one.)
    if ((error_number == ENOTEMPTY || error_number == EEXIST) && IsDirectory(tree)) {
      return absl::OkStatus();
    }
    return ErrnoStatus(error_number, absl::StrCat("publish tree ", digest));
  }
  (void)RememberStored(trees, digest, manifest, taken);  // losing it costs time only
  return SyncDirectory(trees);
}

absl::StatusOr<StoredIdentities> TakeFromStoredTrees(const std::string& trees, TreeBuilder& builder,
                                                     Reuse how) {
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, false));
  const Manifest& wanted = builder.manifest();
  std::vector<bool> taken(static_cast<size_t>(wanted.size()), false);
  size_t looked_into = 0;
  for (const StoredTree& stored : ListStoredTrees(trees)) {
    if (builder.missing().empty() || ++looked_into > kTreesToLookInto) break;
    const absl::StatusOr<Manifest> manifest = ReadStoredManifest(trees, stored.digest);
    const UniqueFd fd(
        file_ops::Open(StoredTreePath(trees, stored.digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!manifest.ok() || !fd.valid()) continue;
    RETURN_IF_ERROR(TakeFromTree(trees, stored.digest, fd.get(), *manifest, builder, how, taken));
  }
  return how == Reuse::kLink ? LookAtTaken(builder, taken) : StoredIdentities();
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
  const absl::StatusOr<Manifest> manifest = ReadStoredManifest(trees, digest);
  const UniqueFd fd(
      file_ops::Open(StoredTreePath(trees, digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  int64_t bytes = 0;
  if (!manifest.ok() || !fd.valid()) return bytes;
  std::map<uint64_t, uint64_t> links;  // for files with several links: how many are in this tree
  (void)ForEachFile(
      fd.get(), *manifest,
      [&](int dir, const std::string& name, const FileEntry&, int64_t) -> absl::Status {
        struct stat info {};
        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return absl::OkStatus();
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
    const absl::StatusOr<Manifest> manifest = ReadStoredManifest(trees, tree.digest);
    const UniqueFd fd(
        file_ops::Open(StoredTreePath(trees, tree.digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (!manifest.ok() || !fd.valid()) continue;
    (void)ForEachFile(
        fd.get(), *manifest,
        [&](int dir, const std::string& name, const FileEntry&, int64_t) -> absl::Status {
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
  RemoveOldRecords(trees);
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

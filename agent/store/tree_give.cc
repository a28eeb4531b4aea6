// Giving stored trees to jobs: see tree_store.h.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/store/stored_files.h"
#include "agent/store/tree_store.h"
#include "agent/store/tree_trust.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/files/copy_file.h"
#include "common/files/files.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// The number of tries to copy a tree that changes meanwhile. What changed is read again each time.
constexpr int kGiveTries = 3;

// A stored tree that is being given, and its verified files.
struct Source {
  const std::string& trees;
  absl::string_view digest;
  const Manifest& manifest;
  int fd = -1;
  StoredIdentities identities;
  int64_t last_link_ns = 0;  // the ctime of the file that was linked last
};

// True when a file of the tree can share its blocks with a new file in the directory of `to`.
bool CanClone(const Source& source, const std::string& to) {
  const std::string probe = absl::StrCat(to, ".", RandomHex(8));
  bool can = false;
  const absl::Status looked = ForEachFile(
      source.fd, source.manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t) -> absl::Status {
        if (entry.size() == 0) return absl::OkStatus();
        const UniqueFd from(openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
        const UniqueFd clone(open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        can = from.valid() && clone.valid() && CloneFile(from.get(), clone.get());
        (void)unlink(probe.c_str());
        return absl::CancelledError();  // one is enough
      });
  return can || looked.ok();  // a tree without content has nothing to share
}

absl::StatusOr<UniqueFd> MakeTarget(const Source& source, const std::string& to) {
  if (file_ops::MkDir(to) != 0) return ErrnoStatus(errno, absl::StrCat("make directory ", to));
  UniqueFd fd(file_ops::Open(to, O_RDONLY | O_DIRECTORY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", to));
  RETURN_IF_ERROR(MakeTreeDirectories(fd.get(), source.manifest));
  return fd;
}

// Links the `chosen` files into the directory `to_fd`. Their identities become those with the
// links.
absl::Status LinkFiles(Source& source, int to_fd, const std::vector<bool>& chosen) {
  DirWalk to(to_fd);
  return ForEachFile(
      source.fd, source.manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        if (!chosen[static_cast<size_t>(i)]) return absl::OkStatus();
        ASSIGN_OR_RETURN(const int to_dir, to.Open(ParentPath(entry.path())));
        if (file_ops::Fault(file_ops::Op::kLink, entry.path()) != 0 ||
            linkat(dir, name.c_str(), to_dir, name.c_str(), 0) != 0) {
          return PathError("link", entry.path());
        }
        return absl::OkStatus();
      });
}

// Takes the identities of linked files again: a link changes the ctime, and nothing else. An entry
// that is not linked may be another name of a linked file.
absl::Status LookAgain(Source& source, const std::vector<bool>& linked) {
  std::set<uint64_t> inodes;
  for (size_t i = 0; i < linked.size(); ++i) {
    if (linked[i]) inodes.insert(source.identities[i].inode);
  }
  return ForEachFile(
      source.fd, source.manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        FileIdentity& identity = source.identities[static_cast<size_t>(i)];
        if (inodes.count(identity.inode) == 0) return absl::OkStatus();
        struct stat info {};
        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
          return PathError("check", entry.path());
        }
        FileIdentity now = StoredIdentity(info);
        source.last_link_ns = std::max(source.last_link_ns, now.ctime_ns);
        std::swap(identity, now);
        now.ctime_ns = identity.ctime_ns;
        if (now == identity) return absl::OkStatus();
        return absl::DataLossError(absl::StrCat(absl::CHexEscape(entry.path()), " was written to"));
      });
}

absl::Status CheckRoom(const std::string& to, int64_t bytes) {
  struct statvfs disk {};
  if (statvfs(to.c_str(), &disk) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", to));
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  if (static_cast<double>(bytes) < free) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("another job may write to the same files, so they are copied: ", bytes,
                   " bytes do not fit on the disk, ", static_cast<int64_t>(free), " are free"));
}

// Copies the files that are not `linked`.
absl::Status CopyFiles(const Source& source, const std::string& to, int to_fd,
                       const std::vector<bool>& linked) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < source.manifest.size(); ++i) {
    const FileEntry entry = source.manifest[i];
    if (entry.kind() == FileEntry::KIND_FILE && !linked[static_cast<size_t>(i)]) {
      bytes += entry.size();
    }
  }
  if (bytes > 0) {
    RETURN_IF_ERROR(CheckRoom(to, bytes));
    Log(LogLevel::kInfo,
        absl::StrCat("copying ", bytes, " bytes of tree ", source.digest,
                     ": this file system has no reflinks, and another job may write there"));
  }
  DirWalk from_walk(source.fd);
  DirWalk to_walk(to_fd);
  for (int64_t i = 0; i < source.manifest.size(); ++i) {
    const FileEntry entry = source.manifest[i];
    if (entry.kind() != FileEntry::KIND_FILE || linked[static_cast<size_t>(i)]) continue;
    RETURN_IF_ERROR(CopyTreeFile(from_walk, to_walk, entry));
  }
  return absl::OkStatus();
}

// Returns which files to link, and for whom: see GiveOptions.
absl::StatusOr<std::vector<bool>> ChooseLinks(const Source& source, const GiveOptions& options) {
  std::vector<bool> chosen(source.identities.size(), false);
  std::set<uint64_t> lent;
  if (!options.modes_bind && options.lent) {
    ASSIGN_OR_RETURN(lent, options.lent());
  }
  std::string note;
  for (int64_t i = 0; i < source.manifest.size(); ++i) {
    const FileEntry entry = source.manifest[i];
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    const uint64_t inode = source.identities[static_cast<size_t>(i)].inode;
    // Two of the job's own files with the same content are not one file either.
    const bool link = options.modes_bind ? (entry.mode() & 0222) == 0
                                         : !options.lent || lent.insert(inode).second;
    chosen[static_cast<size_t>(i)] = link;
    if (link) note.append(reinterpret_cast<const char*>(&inode), sizeof(inode));
  }
  if (options.modes_bind || options.note.empty() || note.empty()) return chosen;
  const UniqueFd fd(file_ops::Open(options.note, O_WRONLY | O_CREAT | O_APPEND));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", options.note));
  RETURN_IF_ERROR(WriteAll(fd.get(), note, options.note));
  if (file_ops::Sync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", options.note));
  return chosen;
}

// Takes the lock that is held from the choice of the files to link until they are linked. Waits.
absl::StatusOr<UniqueFd> LockGiving(const std::string& trees) {
  const std::string path = JoinPath(trees, ".giving");
  UniqueFd fd(file_ops::Open(path, O_RDWR | O_CREAT));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, absl::StrCat("lock ", path));
  }
  return fd;
}

// Verifies the tree, and links files of it into the directory `to_fd`. Returns which.
absl::StatusOr<std::vector<bool>> Link(Source& source, int to_fd, const GiveOptions& options) {
  ASSIGN_OR_RETURN(const UniqueFd giving, LockGiving(source.trees));
  ASSIGN_OR_RETURN(source.identities,
                   VerifyStoredTree(source.trees, source.digest, source.fd, source.manifest));
  ASSIGN_OR_RETURN(std::vector<bool> linked, ChooseLinks(source, options));
  // A job that has ended since then may have written to them. Where modes bind, only their mtime
  // is compared: another user of the store may link the same files now.
  if (!options.modes_bind) {
    RETURN_IF_ERROR(CheckStillSame(source.fd, source.manifest, source.identities, linked));
  }
  RETURN_IF_ERROR(LinkFiles(source, to_fd, linked));
  RETURN_IF_ERROR(LookAgain(source, linked));
  RETURN_IF_ERROR(RememberStored(source.trees, source.digest, source.manifest, source.identities));
  return linked;
}

absl::Status LinkOrCopy(Source& source, const std::string& to, const GiveOptions& options) {
  ASSIGN_OR_RETURN(const UniqueFd to_fd, MakeTarget(source, to));
  ASSIGN_OR_RETURN(std::vector<bool> chosen, Link(source, to_fd.get(), options));
  RETURN_IF_ERROR(CopyFiles(source, to, to_fd.get(), chosen));
  RETURN_IF_ERROR(FinishTree(to_fd.get(), source.manifest));
  RETURN_IF_ERROR(SyncTree(to, source.manifest));
  chosen.flip();
  RETURN_IF_ERROR(CheckStillSame(source.fd, source.manifest, source.identities, chosen));
  // What the job writes to linked files has a later time.
  if (source.last_link_ns > 0) PassClockTick(source.last_link_ns);
  return absl::OkStatus();
}

absl::Status GiveInto(const std::string& trees, absl::string_view digest, const std::string& to,
                      const Manifest& manifest, const std::optional<GiveOptions>& options) {
  const std::string tree = StoredTreePath(trees, digest);
  const UniqueFd from_fd(file_ops::Open(tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!from_fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", tree));
  Source source{trees, digest, manifest, from_fd.get(), {}};
  if (options.has_value() && !(options->may_clone && CanClone(source, to))) {
    return LinkOrCopy(source, to, *options);
  }
  ASSIGN_OR_RETURN(source.identities, VerifyStoredTree(trees, digest, source.fd, manifest));
  RETURN_IF_ERROR(CopyTree(tree, to, manifest));
  // A job that has links may have written meanwhile.
  RETURN_IF_ERROR(CheckStillSame(source.fd, manifest, source.identities));
  return SyncTree(to, manifest);
}

// Copies a tree, or gives it by `options`.
absl::Status Give(const std::string& trees, absl::string_view digest, const std::string& to,
                  const std::string& manifest_to, const std::optional<GiveOptions>& options) {
  const std::string doing = absl::StrCat("copy tree ", digest);
  ASSIGN_OR_RETURN(const UniqueFd lock, LockTreeStore(trees, false));
  if (!UseStoredTree(trees, digest)) {
    return absl::NotFoundError(absl::StrCat(doing, ": it is not stored"));
  }
  const auto gone = [&](absl::string_view cause) {
    SetAsideStoredTree(trees, digest);
    return absl::DataLossError(absl::StrCat(doing, ": ", cause));
  };
  const absl::StatusOr<Manifest> manifest = ReadStoredManifest(trees, digest);
  if (!manifest.ok()) return gone(manifest.status().message());
  if (PathExists(to)) return absl::AlreadyExistsError(absl::StrCat(doing, ": ", to, " exists"));
  absl::Status status;
  for (int i = 0; i < kGiveTries; ++i) {
    status = GiveInto(trees, digest, to, *manifest, options);
    if (!absl::IsAborted(status)) break;
    (void)RemoveTree(to);
  }
  if (status.ok() && !manifest_to.empty()) {
    status = WriteFileAtomic(manifest_to, manifest->bytes());
  }
  if (status.ok()) return status;
  (void)RemoveTree(to);
  if (absl::IsDataLoss(status)) return gone(status.message());
  return Annotate(status, doing);
}

}  // namespace

bool ModesBind() { return geteuid() != 0; }

absl::Status CopyStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to) {
  return Give(trees, digest, to, manifest_to, std::nullopt);
}

absl::Status LinkStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to) {
  GiveOptions options;
  options.may_clone = false;
  return Give(trees, digest, to, "", options);
}

absl::Status GiveStoredTree(const std::string& trees, absl::string_view digest,
                            const std::string& to, const std::string& manifest_to,
                            const GiveOptions& options) {
  return Give(trees, digest, to, manifest_to, options);
}

void TakeBackStoredTree(const std::string& trees, absl::string_view digest, int from_fd) {
  const absl::StatusOr<UniqueFd> lock = LockTreeStore(trees, false);
  const absl::StatusOr<UniqueFd> giving = LockGiving(trees);
  if (!lock.ok() || !giving.ok() || !HasStoredTree(trees, digest)) return;
  const absl::StatusOr<Manifest> manifest = ReadStoredManifest(trees, digest);
  const UniqueFd fd(
      file_ops::Open(StoredTreePath(trees, digest), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  if (!manifest.ok() || !fd.valid()) return;
  StoredIdentities identities(static_cast<size_t>(manifest->size()));
  KnownFiles known(trees, digest);
  DirWalk walk(from_fd);
  bool changed = false;
  const absl::Status looked = ForEachFile(
      fd.get(), *manifest,
      [&](int dir, const std::string& name, const FileEntry& entry, int64_t i) -> absl::Status {
        struct stat info {};
        struct stat given {};
        if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return absl::OkStatus();
        if (!known.Has(entry, info)) return absl::OkStatus();
        FileIdentity& identity = identities[static_cast<size_t>(i)];
        identity = StoredIdentity(info);
        const absl::StatusOr<int> from_dir = walk.Open(ParentPath(entry.path()));
        if (!from_dir.ok() || fstatat(*from_dir, name.c_str(), &given, AT_SYMLINK_NOFOLLOW) != 0 ||
            given.st_ino != info.st_ino || given.st_dev != info.st_dev ||
            UnlinkBelow(*from_dir, name, 0, entry.path()) != 0 ||
            fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
          return absl::OkStatus();
        }
        FileIdentity now = StoredIdentity(info);
        std::swap(identity, now);
        now.ctime_ns = identity.ctime_ns;
        if (!(now == identity)) identity = FileIdentity();
        changed = true;
        return absl::OkStatus();
      });
  if (looked.ok() && changed) (void)RememberStored(trees, digest, *manifest, identities);
}

}  // namespace gpuctl

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "common/files/copy_file.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/files/sync_fs.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// The largest number of files that are synced one by one. For more, one sync of the whole file
// system is cheaper, although it also writes other programs' data to the disk.
constexpr int kSyncEachAtMost = 32;

absl::Status CopyInto(const std::string& from, const std::string& to, const Manifest& manifest) {
  const UniqueFd from_fd(file_ops::Open(from, O_RDONLY | O_DIRECTORY));
  if (!from_fd.valid()) return ErrnoStatus(errno, absl::StrCat("copy ", from));
  const UniqueFd to_fd(file_ops::Open(to, O_RDONLY | O_DIRECTORY));
  if (!to_fd.valid()) return ErrnoStatus(errno, absl::StrCat("copy to ", to));
  RETURN_IF_ERROR(MakeTreeDirectories(to_fd.get(), manifest));
  DirWalk from_walk(from_fd.get());
  DirWalk to_walk(to_fd.get());
  for (const FileEntry& entry : manifest) {
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    RETURN_IF_ERROR(CopyTreeFile(from_walk, to_walk, entry));
  }
  return FinishTree(to_fd.get(), manifest);
}

bool IsWanted(const std::vector<bool>& wanted, int64_t index) {
  return wanted.empty() || wanted[static_cast<size_t>(index)];
}

absl::Status SyncAt(int dir_fd, const std::string& name, int flags, const std::string& shown) {
  const UniqueFd fd(OpenBelow(dir_fd, name, O_RDONLY | flags, 0, shown));
  if (!fd.valid() || file_ops::Sync(fd.get()) != 0) return PathError("sync", shown);
  return absl::OkStatus();
}

absl::Status SyncEach(int root_fd, const Manifest& manifest, const std::vector<bool>& wanted) {
  DirWalk walk(root_fd);
  std::set<std::string> directories = {""};
  for (int64_t i = 0; i < manifest.size(); ++i) {
    if (!IsWanted(wanted, i)) continue;
    const FileEntry entry = manifest[i];
    const std::string parent(ParentPath(entry.path()));
    // Sync every directory above: those without an entry of their own are new, too.
    for (absl::string_view above = parent; !above.empty(); above = ParentPath(above)) {
      directories.emplace(above);
    }
    if (entry.kind() == FileEntry::KIND_DIRECTORY) directories.insert(entry.path());
    if (entry.kind() != FileEntry::KIND_FILE) continue;
    ASSIGN_OR_RETURN(const int dir_fd, walk.Open(parent));
    RETURN_IF_ERROR(SyncAt(dir_fd, BaseName(entry.path()), 0, entry.path()));
  }
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(const int dir_fd, walk.Open(directory));
    RETURN_IF_ERROR(SyncAt(dir_fd, ".", O_DIRECTORY, directory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyTreeFile(DirWalk& from, DirWalk& to, const FileEntry& entry) {
  const std::string name = BaseName(entry.path());
  ASSIGN_OR_RETURN(const int from_dir, from.Open(ParentPath(entry.path())));
  const UniqueFd source(OpenBelow(from_dir, name, O_RDONLY | O_NONBLOCK, 0, entry.path()));
  if (!source.valid()) return PathError("copy", entry.path());
  ASSIGN_OR_RETURN(const int to_dir, to.OpenOrMake(ParentPath(entry.path())));
  const UniqueFd target(OpenBelow(to_dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600, entry.path()));
  if (!target.valid()) return PathError("create", entry.path());
  const std::string shown = absl::CHexEscape(entry.path());
  ASSIGN_OR_RETURN(const int64_t copied, CopyFileContent(source.get(), target.get(), shown));
  if (copied != entry.size()) {
    return absl::DataLossError(absl::StrCat(shown, ": ", copied, " bytes, not ", entry.size()));
  }
  if (SetMode(target.get(), entry.mode()) != 0) return PathError("set mode of", entry.path());
  return absl::OkStatus();
}

absl::Status MakeTreeDirectories(int root_fd, const Manifest& manifest,
                                 const std::vector<bool>& wanted) {
  DirWalk walk(root_fd);
  for (int64_t i = 0; i < manifest.size(); ++i) {
    if (!IsWanted(wanted, i)) continue;
    const FileEntry entry = manifest[i];
    const bool is_directory = entry.kind() == FileEntry::KIND_DIRECTORY;
    const absl::string_view directory = is_directory ? entry.path() : ParentPath(entry.path());
    RETURN_IF_ERROR(walk.OpenOrMake(directory).status());
  }
  return absl::OkStatus();
}

absl::Status FinishTree(int root_fd, const Manifest& manifest, const std::vector<bool>& wanted) {
  DirWalk walk(root_fd);
  for (int64_t i = 0; i < manifest.size(); ++i) {
    if (!IsWanted(wanted, i)) continue;
    const FileEntry entry = manifest[i];
    if (entry.kind() != FileEntry::KIND_SYMLINK) continue;
    ASSIGN_OR_RETURN(const int dir_fd, walk.OpenOrMake(ParentPath(entry.path())));
    if (file_ops::Fault(file_ops::Op::kLink, entry.path()) != 0 ||
        symlinkat(entry.symlink_target().c_str(), dir_fd, BaseName(entry.path()).c_str()) != 0) {
      return PathError("make symlink", entry.path());
    }
  }
  // Deepest first: when a directory becomes inaccessible, everything below it is done.
  for (int64_t i = manifest.size() - 1; i >= 0; --i) {
    const FileEntry entry = manifest[i];
    if (entry.kind() != FileEntry::KIND_DIRECTORY || !IsWanted(wanted, i)) continue;
    ASSIGN_OR_RETURN(const int dir_fd, walk.Open(entry.path()));
    if (SetMode(dir_fd, entry.mode()) != 0) return PathError("set mode of", entry.path());
  }
  return absl::OkStatus();
}

absl::Status CopyTree(const std::string& from, const std::string& to, const Manifest& manifest) {
  if (file_ops::MkDir(to) != 0) return ErrnoStatus(errno, absl::StrCat("make directory ", to));
  absl::Status status = CopyInto(from, to, manifest);
  if (!status.ok()) (void)RemoveTree(to);
  return status;
}

absl::Status SyncTree(const std::string& root, const Manifest& manifest,
                      const std::vector<bool>& wanted) {
  const UniqueFd fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("sync ", root));
  const int64_t count =
      wanted.empty() ? manifest.size() : std::count(wanted.begin(), wanted.end(), true);
  if (count > kSyncEachAtMost) {
    if (file_ops::Fault(file_ops::Op::kSync, root) != 0) {
      return ErrnoStatus(errno, absl::StrCat("sync ", root));
    }
    if (SyncFileSystem(fd.get()) == 0) return absl::OkStatus();
    if (errno != ENOSYS) return ErrnoStatus(errno, absl::StrCat("sync ", root));
  }
  return SyncEach(fd.get(), manifest, wanted);
}

}  // namespace gpuctl

#include "agent/trees/live_entry.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/relative_path.h"
#include "common/tree/file_hasher.h"
#include "common/tree/manifest.h"

namespace gpuctl {

using gpuctl::v1::FileEntry;

bool SameContent(const FileEntry& a, const FileEntry& b) {
  return a.kind() == b.kind() && a.size() == b.size() && a.sha256() == b.sha256() &&
         a.symlink_target() == b.symlink_target();
}

std::optional<struct stat> StatAt(int dir, const std::string& name) {
  struct stat info {};
  if (fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

bool MayOverwrite(const struct stat& info, const FileEntry& entry) {
  return S_ISREG(info.st_mode) ||
         (S_ISLNK(info.st_mode) && entry.kind() == FileEntry::KIND_SYMLINK);
}

absl::StatusOr<FileEntry> LookAt(int dir, const std::string& name, const struct stat& info,
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
    // The job has removed it meanwhile, or put something else there.
    if (!fd.valid() && (errno == ENOENT || errno == ELOOP)) return entry;
    if (!fd.valid()) return PathError("look at", name);
    std::vector<FileHasher::File> files = {{fd.get(), int64_t{info.st_size}, {}, absl::OkStatus()}};
    FileHasher().Hash(files, nullptr);
    // The job has shortened it meanwhile. It is unlike every entry then.
    if (absl::IsDataLoss(files[0].status)) return entry;
    RETURN_IF_ERROR(files[0].status);
    entry.set_kind(FileEntry::KIND_FILE);
    entry.set_size(int64_t{info.st_size});
    hashes = files[0].part_hashes;
    SetHashes(hashes, entry);
  }
  return entry;
}

}  // namespace gpuctl

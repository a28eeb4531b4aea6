#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/dir_walk.h"
#include "common/files.h"
#include "common/manifest.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "common/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;
using gpuctl::v1::Manifest;

class Scanner {
 public:
  Scanner(std::string shown_root, const ScanOptions& options)
      : shown_root_(std::move(shown_root)), options_(options), buffer_(1 << 18, '\0') {}

  // Adds everything below the directory open at `dir_fd`, whose path is `prefix` ("" or "a/b/").
  absl::Status AddDirectory(int dir_fd, const std::string& prefix) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, Names(dir_fd, prefix));
    for (const std::string& name : names) {
      RETURN_IF_ERROR(AddEntry(dir_fd, name, absl::StrCat(prefix, name)));
    }
    return absl::OkStatus();
  }

  absl::Status AddEntry(int dir_fd, const std::string& name, const std::string& path) {
    struct stat info {};
    if (fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? absl::OkStatus() : Error(errno, path);
    }
    if (options_.skip && options_.skip(path, S_ISDIR(info.st_mode))) return absl::OkStatus();
    FileEntry entry;
    entry.set_path(path);
    entry.set_mode(info.st_mode & 0777);
    if (S_ISREG(info.st_mode)) return AddFile(dir_fd, name, std::move(entry));
    if (S_ISLNK(info.st_mode)) return AddSymlink(dir_fd, name, std::move(entry));
    if (!S_ISDIR(info.st_mode)) {
      if (options_.skipped != nullptr) options_.skipped->push_back(path);
      return absl::OkStatus();
    }
    UniqueFd fd(OpenBelow(dir_fd, name, O_RDONLY | O_DIRECTORY, 0, path));
    if (!fd.valid()) return errno == ENOENT ? absl::OkStatus() : Error(errno, path);
    entry.set_kind(FileEntry::KIND_DIRECTORY);
    *manifest_.add_entries() = std::move(entry);
    return AddDirectory(fd.get(), absl::StrCat(path, "/"));
  }

  absl::StatusOr<Manifest> Finish() {
    auto& entries = *manifest_.mutable_entries();
    std::sort(entries.pointer_begin(), entries.pointer_end(),
              [](const FileEntry* a, const FileEntry* b) { return a->path() < b->path(); });
    RETURN_IF_ERROR(Annotate(ValidateManifest(manifest_), absl::StrCat("scan ", shown_root_)));
    return std::move(manifest_);
  }

 private:
  absl::Status Error(int error_number, const std::string& path) {
    return ErrnoStatus(error_number, absl::StrCat("scan ", JoinPath(shown_root_, path)));
  }

  absl::StatusOr<std::vector<std::string>> Names(int dir_fd, const std::string& prefix) {
    // A descriptor of its own: closedir closes it.
    UniqueFd fd(OpenBelow(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0, prefix));
    DIR* dir = fd.valid() ? fdopendir(fd.get()) : nullptr;
    if (dir == nullptr) return Error(errno, prefix);
    (void)fd.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(dir)) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error_number = errno;
    closedir(dir);
    if (error_number != 0) return Error(error_number, prefix);
    return names;
  }

  absl::Status AddSymlink(int dir_fd, const std::string& name, FileEntry entry) {
    char target[4097];
    const ssize_t size = readlinkat(dir_fd, name.c_str(), target, sizeof(target));
    if (size < 0) return errno == ENOENT ? absl::OkStatus() : Error(errno, entry.path());
    entry.set_kind(FileEntry::KIND_SYMLINK);
    entry.set_mode(0777);  // a symlink has no mode of its own that would mean the same everywhere
    entry.set_symlink_target(std::string(target, static_cast<size_t>(size)));
    *manifest_.add_entries() = std::move(entry);
    return absl::OkStatus();
  }

  absl::Status AddFile(int dir_fd, const std::string& name, FileEntry entry) {
    // Non-blocking, because a FIFO may have taken the file's place since the look at it.
    UniqueFd fd(OpenBelow(dir_fd, name, O_RDONLY | O_NONBLOCK, 0, entry.path()));
    if (!fd.valid()) return errno == ENOENT ? absl::OkStatus() : Error(errno, entry.path());
    for (int attempt = 0; attempt < 2; ++attempt) {
      struct stat before {};
      struct stat after {};
      if (fstat(fd.get(), &before) != 0) return Error(errno, entry.path());
      if (!S_ISREG(before.st_mode)) break;
      const FileIdentity identity = FileIdentity::Of(before);
      std::optional<std::string> sha256;
      if (options_.cache != nullptr) sha256 = options_.cache->Find(entry.path(), identity);
      if (!sha256.has_value()) {
        ASSIGN_OR_RETURN(sha256, Hash(fd.get(), before.st_size, entry.path()));
        if (fstat(fd.get(), &after) != 0) return Error(errno, entry.path());
        if (!(identity == FileIdentity::Of(after))) continue;
        if (options_.cache != nullptr) options_.cache->Put(entry.path(), identity, *sha256);
      }
      entry.set_kind(FileEntry::KIND_FILE);
      entry.set_size(identity.size);
      entry.set_sha256(*sha256);
      *manifest_.add_entries() = std::move(entry);
      return absl::OkStatus();
    }
    return absl::AbortedError(absl::StrCat("scan ", JoinPath(shown_root_, entry.path()),
                                           ": the file changed while it was being read"));
  }

  // Of the first `size` bytes; a file that grows meanwhile is found out by its times.
  absl::StatusOr<std::string> Hash(int fd, int64_t size, const std::string& path) {
    Sha256 hash;
    int64_t offset = 0;
    while (offset < size) {
      const size_t wanted = static_cast<size_t>(
          std::min<int64_t>(size - offset, static_cast<int64_t>(buffer_.size())));
      const ssize_t got = pread(fd, buffer_.data(), wanted, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error(errno, path);
      if (got == 0) break;
      hash.Update({buffer_.data(), static_cast<size_t>(got)});
      offset += got;
      bytes_read_ += got;
      if (options_.progress) options_.progress(bytes_read_);
    }
    return hash.Finish();
  }

  const std::string shown_root_;
  const ScanOptions& options_;
  std::string buffer_;
  int64_t bytes_read_ = 0;
  Manifest manifest_;
};

}  // namespace

absl::StatusOr<Manifest> ScanTree(const std::string& root, const ScanOptions& options) {
  UniqueFd fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("scan ", root));
  return ScanTreeAt(fd.get(), root, options);
}

absl::StatusOr<Manifest> ScanTreeAt(int root_fd, const std::string& shown,
                                    const ScanOptions& options) {
  Scanner scanner(shown, options);
  RETURN_IF_ERROR(scanner.AddDirectory(root_fd, ""));
  return scanner.Finish();
}

absl::StatusOr<Manifest> ScanFileAt(int dir_fd, const std::string& name,
                                    const ScanOptions& options) {
  Scanner scanner("", options);
  RETURN_IF_ERROR(scanner.AddEntry(dir_fd, name, name));
  ASSIGN_OR_RETURN(Manifest manifest, scanner.Finish());
  if (manifest.entries_size() != 1 || manifest.entries(0).kind() != FileEntry::KIND_FILE) {
    return absl::NotFoundError(absl::StrCat("scan ", name, ": no such file"));
  }
  return manifest;
}

}  // namespace gpuctl

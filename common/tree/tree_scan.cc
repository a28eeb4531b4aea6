#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/files/dir_walk.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/file_hasher.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::FileEntry;

// Returns the number of files to have open at a time: enough to keep several threads busy, few
// enough for the limit, which is 256 by default on macOS.
int MaxOpen() {
  struct rlimit limit {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 16;
  return static_cast<int>(std::clamp<rlim_t>(limit.rlim_cur / 4, 16, 256));
}

class Scanner {
 public:
  Scanner(std::string shown_root, const ScanOptions& options)
      : shown_root_(std::move(shown_root)), options_(options) {}

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
    if (options_.skip && options_.skip(path, info)) return absl::OkStatus();
    FileEntry entry;
    entry.set_path(path);
    entry.set_mode(info.st_mode & 0777);
    if (S_ISREG(info.st_mode)) {
      if (options_.notes != nullptr && (info.st_mode & (S_ISUID | S_ISGID)) != 0) {
        options_.notes->set_id.push_back(path);
      }
      return AddFile(dir_fd, name, info, std::move(entry));
    }
    if (S_ISLNK(info.st_mode)) return AddSymlink(dir_fd, name, std::move(entry));
    if (!S_ISDIR(info.st_mode)) {
      if (options_.skipped != nullptr) options_.skipped->push_back(path);
      return absl::OkStatus();
    }
    UniqueFd fd(OpenBelow(dir_fd, name, O_RDONLY | O_DIRECTORY, 0, path));
    if (!fd.valid()) return Vanished(path);
    entry.set_kind(FileEntry::KIND_DIRECTORY);
    RETURN_IF_ERROR(Add(Pending{std::move(entry), {}, {}, {}}));
    return AddDirectory(fd.get(), absl::StrCat(path, "/"));
  }

  absl::StatusOr<Manifest> Finish() {
    RETURN_IF_ERROR(Commit());
    RETURN_IF_ERROR(Annotate(ValidateManifest(manifest_), absl::StrCat("scan ", shown_root_)));
    return std::move(manifest_);
  }

 private:
  absl::Status Error(int error_number, const std::string& path) {
    return ErrnoStatus(error_number, absl::StrCat("scan ", JoinPath(shown_root_, path)));
  }

  // Returns the result of a failed open of something seen a moment ago: OK when it is gone, ABORTED
  // when something else is in its place, else the error in errno.
  absl::Status Vanished(const std::string& path) {
    const int error_number = errno;
    if (error_number == ENOENT) return absl::OkStatus();
    if (error_number == ENOTDIR || error_number == ELOOP || error_number == EINVAL) {
      return Changed(path);
    }
    return Error(error_number, path);
  }

  absl::StatusOr<std::vector<std::string>> Names(int dir_fd, const std::string& prefix) {
    // It opens a second descriptor, because closedir closes it.
    UniqueFd fd(OpenBelow(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0, prefix));
    DIR* dir = fd.valid() ? fdopendir(fd.get()) : nullptr;
    // The directory was removed after it was opened.
    if (dir == nullptr && errno == ENOENT && !prefix.empty()) return std::vector<std::string>();
    if (dir == nullptr) return Error(errno, prefix);
    (void)fd.release();
    std::vector<std::string> names;
    for (errno = 0; const dirent* entry = readdir(dir); errno = 0) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error_number = errno;
    closedir(dir);
    if (error_number != 0) return Error(error_number, prefix);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status AddSymlink(int dir_fd, const std::string& name, FileEntry entry) {
    char target[4097];
    const ssize_t size = readlinkat(dir_fd, name.c_str(), target, sizeof(target));
    if (size < 0) return Vanished(entry.path());
    entry.set_kind(FileEntry::KIND_SYMLINK);
    entry.set_mode(0777);  // a symlink's own mode differs between systems
    entry.set_symlink_target(std::string(target, static_cast<size_t>(size)));
    return Add(Pending{std::move(entry), {}, {}, {}});
  }

  // An entry that waits for its hash, or for that of an earlier entry.
  struct Pending {
    FileEntry entry;
    FileIdentity identity;
    UniqueFd fd;  // of a file to be read
    std::optional<HashCache::Hashes> known;
  };

  absl::Status AddFile(int dir_fd, const std::string& name, const struct stat& info,
                       FileEntry entry) {
    Pending pending;
    pending.identity = FileIdentity::Of(info);
    if (options_.cache != nullptr) {
      pending.known = options_.cache->Find(entry.path(), pending.identity);
    }
    if (!pending.known.has_value()) {
      // Opened non-blocking, because a FIFO may have taken the file's place meanwhile.
      pending.fd.reset(OpenBelow(dir_fd, name, O_RDONLY | O_NONBLOCK, 0, entry.path()));
      if (!pending.fd.valid()) return Vanished(entry.path());
      struct stat opened {};
      if (fstat(pending.fd.get(), &opened) != 0) return Error(errno, entry.path());
      if (!S_ISREG(opened.st_mode)) return Changed(entry.path());
      pending.identity = FileIdentity::Of(opened);
    }
    entry.set_kind(FileEntry::KIND_FILE);
    pending.entry = std::move(entry);
    return Add(std::move(pending));
  }

  absl::Status Add(Pending pending) {
    to_read_ += pending.fd.valid() ? 1 : 0;
    pending_.push_back(std::move(pending));
    return to_read_ >= max_open_ || pending_.size() >= kMaxPending ? Commit() : absl::OkStatus();
  }

  // Hashes all waiting files together and appends the entries in order.
  absl::Status Commit() {
    std::vector<FileHasher::File> files;
    for (const Pending& pending : pending_) {
      if (pending.fd.valid()) {
        files.push_back({pending.fd.get(), pending.identity.size, {}, absl::OkStatus()});
      }
    }
    Hash(files);
    size_t next = 0;
    for (Pending& pending : pending_) {
      FileHasher::File* file = pending.fd.valid() ? &files[next++] : nullptr;
      if (pending.entry.kind() == FileEntry::KIND_FILE) {
        ASSIGN_OR_RETURN(const bool taken, FinishFile(pending, file));
        if (!taken) continue;
      }
      manifest_.Append(pending.entry);
    }
    pending_.clear();
    to_read_ = 0;
    return absl::OkStatus();
  }

  void Hash(std::vector<FileHasher::File>& files) {
    hasher_.Hash(files, [this](int64_t bytes) {
      bytes_read_ += bytes;
      if (options_.progress) options_.progress(bytes_read_);
    });
  }

  // False when the file changed, and is left out.
  absl::StatusOr<bool> FinishFile(Pending& pending, FileHasher::File* file) {
    FileEntry& entry = pending.entry;
    entry.set_size(pending.identity.size);
    Reading reading = Reading::kSettled;
    if (file == nullptr) {
      entry.set_sha256(pending.known->sha256);
      entry.set_part_sha256(pending.known->part_sha256);
    } else {
      ASSIGN_OR_RETURN(reading, TakeHash(pending, *file));
      // What was read of a large file that grows is worth more than a few bytes of a file that an
      // editor is just writing.
      const bool worth =
          reading == Reading::kGrown && options_.notes != nullptr && entry.size() > kPartBytes;
      if (reading != Reading::kSettled && !worth) {
        // It changed while it was read. Read it once more.
        *file = {pending.fd.get(), pending.identity.size, {}, absl::OkStatus()};
        std::vector<FileHasher::File> again = {*file};
        Hash(again);
        ASSIGN_OR_RETURN(reading, TakeHash(pending, again[0]));
      }
    }
    if (options_.times) entry.set_modified_ns(pending.identity.mtime_ns);
    if (reading == Reading::kGrown && options_.notes != nullptr) {
      options_.notes->grown.push_back(entry.path());
      return true;
    }
    if (reading != Reading::kSettled) {
      if (options_.notes == nullptr || !options_.leave_changed) return Changed(entry.path());
      options_.notes->changed.push_back(entry.path());
      return false;
    }
    if (options_.cache != nullptr) {
      options_.cache->Keep(entry.path(), pending.identity, {entry.sha256(), entry.part_sha256()});
    }
    return true;
  }

  enum class Reading { kSettled, kGrown, kChanged };

  // Sets the entry's hashes and size to those of what was read, unless the file changed in another
  // way than by growing. pending.identity becomes the present one.
  absl::StatusOr<Reading> TakeHash(Pending& pending, const FileHasher::File& file) {
    struct stat after {};
    if (fstat(pending.fd.get(), &after) != 0) return Error(errno, pending.entry.path());
    const FileIdentity before = std::exchange(pending.identity, FileIdentity::Of(after));
    const bool settled = pending.identity == before;
    const bool grown = pending.identity.size > before.size && file.status.ok();
    if (!settled && !grown) return Reading::kChanged;
    if (!file.status.ok()) {
      return Annotate(file.status,
                      absl::StrCat("scan ", JoinPath(shown_root_, pending.entry.path())));
    }
    pending.entry.set_size(before.size);
    SetHashes(file.part_hashes, pending.entry);
    return settled ? Reading::kSettled : Reading::kGrown;
  }

  absl::Status Changed(const std::string& path) {
    return absl::AbortedError(absl::StrCat("scan ", JoinPath(shown_root_, path),
                                           ": the file changed while it was being read"));
  }

  static constexpr size_t kMaxPending = 4096;

  const std::string shown_root_;
  const ScanOptions& options_;
  const int max_open_ = MaxOpen();
  FileHasher hasher_;
  std::vector<Pending> pending_;
  int to_read_ = 0;
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
  if (manifest.size() != 1 || manifest[0].kind() != FileEntry::KIND_FILE) {
    return absl::NotFoundError(absl::StrCat("scan ", name, ": no such file"));
  }
  return manifest;
}

absl::StatusOr<Manifest> ScanFilesAt(int root_fd, const std::string& shown,
                                     const std::vector<std::string>& paths,
                                     const ScanOptions& options) {
  Scanner scanner(shown, options);
  DirWalk walk(root_fd);
  for (const std::string& path : paths) {
    const absl::StatusOr<int> dir = walk.Open(ParentPath(path));
    struct stat info {};
    if (!dir.ok() || fstatat(*dir, BaseName(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISDIR(info.st_mode)) {
      continue;
    }
    RETURN_IF_ERROR(scanner.AddEntry(*dir, BaseName(path), path));
  }
  return scanner.Finish();
}

}  // namespace gpuctl

// Remembers the sha256 of files that have not changed, so that scanning an unchanged tree reads no
// content.
#ifndef GPUCTL_COMMON_TREE_HASH_CACHE_H_
#define GPUCTL_COMMON_TREE_HASH_CACHE_H_

#include <sys/stat.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/files/sha256.h"

namespace gpuctl {

// What a file looks like from outside. Writing to a file changes it, except within one tick of the
// file system's clock; see HashCache::Keep.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;

  static FileIdentity Of(const struct stat& info);
  bool operator==(const FileIdentity&) const = default;
};

// One file on disk per scanned tree, read and written in the order of the scan, so that it takes
// the same memory however large the tree is. Not thread-safe.
class HashCache {
 public:
  struct Hashes {
    std::string sha256;       // as in FileEntry
    std::string part_sha256;  // as in FileEntry
    bool operator==(const Hashes&) const = default;
  };

  // Opens the cache stored at `path`; one that is missing, corrupt or of another version is empty.
  // `clock` must outlive the cache. A file that changed less than `settled` ago is not remembered:
  // it could be changed again without a trace in its times. By default that suits every file
  // system.
  HashCache(std::string path, Clock& clock, absl::Duration settled = absl::Seconds(2));
  ~HashCache();
  HashCache(const HashCache&) = delete;
  HashCache& operator=(const HashCache&) = delete;

  // What was remembered for `file` (its path relative to the tree), if it is still as it was. Calls
  // come with paths in the order of PathLess; what was passed over is not found any more.
  std::optional<Hashes> Find(absl::string_view file, const FileIdentity& identity);

  // The file belongs to the tree as it is now. Calls come in the same order, independent of Find's.
  void Keep(absl::string_view file, const FileIdentity& identity, const Hashes& hashes);

  // Stores, atomically, just what was kept; does nothing when the file holds that already. Not
  // synced: after a power loss the cache may be empty. Ends the cache's use.
  absl::Status Save();

 private:
  struct Record {
    std::string file;
    FileIdentity identity;
    Hashes hashes;
  };
  bool ReadRecord(Record& record);
  void OpenOld();

  const std::string path_;
  Clock& clock_;
  const absl::Duration settled_;
  std::FILE* old_ = nullptr;
  int64_t old_left_ = 0;  // bytes of records not read yet
  std::string old_hash_;  // of all records; empty without an old file
  std::optional<Record> next_;
  std::FILE* new_ = nullptr;
  std::string new_path_;
  Sha256 new_hash_;
  bool failed_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_HASH_CACHE_H_

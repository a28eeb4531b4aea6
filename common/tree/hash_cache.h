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

// The attributes that show whether a file changed. Writing to a file changes them, except within
// one tick of the file system's clock; see HashCache::Keep.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;

  static FileIdentity Of(const struct stat& info);
  bool operator==(const FileIdentity&) const = default;
};

// A cache in one file on disk per scanned tree. It reads and writes in the order of the scan, so
// that its memory does not grow with the tree. Not thread-safe.
class HashCache {
 public:
  struct Hashes {
    std::string sha256;       // as in FileEntry
    std::string part_sha256;  // as in FileEntry
    bool operator==(const Hashes&) const = default;
  };

  // Opens the cache stored at `path`. A missing or corrupt file, or one of another version, counts
  // as an empty cache. `clock` must outlive the cache. A file that changed less than `settled` ago
  // is not remembered, because it could change again without a change of its times. The default
  // suits every file system.
  HashCache(std::string path, Clock& clock, absl::Duration settled = absl::Seconds(2));
  ~HashCache();
  HashCache(const HashCache&) = delete;
  HashCache& operator=(const HashCache&) = delete;

  // Returns the hashes remembered for `file` (its path relative to the tree), if its identity is
  // still the same. Call it with paths in the order of PathLess; files that a call passed over are
  // not found later.
  std::optional<Hashes> Find(absl::string_view file, const FileIdentity& identity);

  // Records that the tree has this file now. Calls come in the same order, independently of Find.
  void Keep(absl::string_view file, const FileIdentity& identity, const Hashes& hashes);

  // Stores exactly the kept records, atomically. Does nothing when the file holds them already.
  // Does not sync: after a power loss the cache may be empty. Do not use the cache after this.
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

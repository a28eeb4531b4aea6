// Remembers the sha256 of files that have not changed, so that scanning an unchanged tree reads no
// content.
#ifndef GPUCTL_COMMON_HASH_CACHE_H_
#define GPUCTL_COMMON_HASH_CACHE_H_

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/clock.h"

namespace gpuctl {

// What a file looks like from outside. Writing to a file changes it, except within one tick of the
// file system's clock; see HashCache::Put.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;

  static FileIdentity Of(const struct stat& info);
  bool operator==(const FileIdentity&) const = default;
};

// One file on disk per scanned tree. Not thread-safe.
class HashCache {
 public:
  // Reads the cache stored at `path`; one that is missing, corrupt or of another version is empty.
  // `clock` must outlive the cache.
  HashCache(std::string path, Clock& clock);

  // The 32 raw bytes remembered for `file` (its path relative to the tree), if it is still as it
  // was.
  std::optional<std::string> Find(absl::string_view file, const FileIdentity& identity);

  // Remembers `sha256` (32 raw bytes). A file changed less than two seconds ago is not remembered:
  // it could be changed again without a trace in its times.
  void Put(absl::string_view file, const FileIdentity& identity, absl::string_view sha256);

  // Stores, atomically, the entries that Find returned or Put brought since the cache was read;
  // does nothing when that is what the file holds already.
  absl::Status Save();

 private:
  struct Entry {
    FileIdentity identity;
    std::string sha256;
    bool used = false;
  };
  bool Parse(absl::string_view bytes);
  std::string path_;
  Clock& clock_;
  bool changed_ = false;
  absl::flat_hash_map<std::string, Entry> entries_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_HASH_CACHE_H_

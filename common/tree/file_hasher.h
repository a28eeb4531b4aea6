// Reads and hashes many files, or the parts of large ones, on several threads.
#ifndef GPUCTL_COMMON_TREE_FILE_HASHER_H_
#define GPUCTL_COMMON_TREE_FILE_HASHER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gpuctl {

class FileHasher {
 public:
  // `threads` 0 means one for each processor, at most eight.
  explicit FileHasher(int threads = 0);

  struct File {
    int fd = -1;
    int64_t size = 0;         // the number of bytes to read, from the beginning
    std::string part_hashes;  // gets the sha256 of each part, 32 raw bytes each
    absl::Status status;      // DATA_LOSS when the file is shorter
  };

  // Hashes all files. Calls `progress`, which may be empty, with the bytes of each step, from one
  // thread at a time.
  void Hash(std::vector<File>& files, const std::function<void(int64_t bytes)>& progress);

 private:
  const int threads_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TREE_FILE_HASHER_H_

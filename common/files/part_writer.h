// Writing the content of one file in order, in pieces of any size.
#ifndef GPUCTL_COMMON_FILES_PART_WRITER_H_
#define GPUCTL_COMMON_FILES_PART_WRITER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Writes consecutive bytes of a file, at once or, past the page cache, in blocks. Passing the cache
// saves a copy and its memory, and keeps the machine's working files in the cache. Where the file
// system does not support that, it writes in the ordinary way. Used by one thread.
class PartWriter {
 public:
  // Makes the next bytes go to `offset` of `fd`, which stays the caller's and stays open until
  // Flush. `shown` names the file in errors.
  void Begin(int fd, int64_t offset, bool uncached, std::string shown);
  absl::Status Append(absl::string_view bytes);
  // Writes everything appended to the file. OK does not mean that it is on the disk.
  absl::Status Flush();

 private:
  struct Free {
    void operator()(char* block) const { std::free(block); }
  };
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteBlock(size_t size);

  int fd_ = -1;
  int64_t offset_ = 0;  // of the block's first byte
  bool uncached_ = false;
  std::string shown_;
  std::unique_ptr<char, Free> block_;
  size_t used_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_PART_WRITER_H_

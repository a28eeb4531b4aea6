// Writes the content of one file in order, however it comes in.
#ifndef GPUCTL_COMMON_FILES_PART_WRITER_H_
#define GPUCTL_COMMON_FILES_PART_WRITER_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Consecutive bytes of a file, at once or, past the page cache, in blocks: that spares a copy and
// the memory for it, and leaves in the cache what the machine works with. Where the file system
// does not do that, they are written in the ordinary way. One thread.
class PartWriter {
 public:
  // The next bytes go to `offset` of `fd`, which stays the caller's and open until Flush. Errors
  // call the file `shown`.
  void Begin(int fd, int64_t offset, bool uncached, std::string shown);
  absl::Status Append(absl::string_view bytes);
  // All that was appended is in the file when it returns OK, which is not yet on the disk.
  absl::Status Flush();

 private:
  struct Free {
    void operator()(char* block) const { std::free(block); }
  };
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteBlock(size_t size);

  int fd_ = -1;
  int64_t offset_ = 0;  // of what is in the block
  bool uncached_ = false;
  std::string shown_;
  std::unique_ptr<char, Free> block_;
  size_t used_ = 0;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_PART_WRITER_H_

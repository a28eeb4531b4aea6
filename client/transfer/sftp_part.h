// A file that SFTP is downloading. The next try continues it after checking that the received
// blocks are unchanged.
#ifndef GPUCTL_CLIENT_TRANSFER_SFTP_PART_H_
#define GPUCTL_CLIENT_TRANSFER_SFTP_PART_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/files/sha256.h"

namespace gpuctl {

// Size in bytes of the blocks that are hashed, and that the next try checks.
constexpr int64_t kSftpBlockBytes = int64_t{1} << 20;

class SftpPart {
 public:
  // Opens the file at `path`, which will have `size` bytes; the hashes of its blocks are in the
  // file `path`.blocks beside it. Reads what exists, and cuts the file off at the first block that
  // does not match its hash.
  static absl::StatusOr<SftpPart> Open(const std::string& path, int64_t size);

  // Returns how many bytes are there.
  int64_t offset() const { return offset_; }
  // Appends the bytes at offset(); at most `size` in all.
  absl::Status Append(absl::string_view bytes);
  // Brings the complete file to stable storage.
  absl::Status Finish();

 private:
  SftpPart(std::string path, int64_t size) : path_(std::move(path)), size_(size) {}
  absl::Status Check();
  absl::Status EndBlock();

  std::string path_;
  int64_t size_ = 0;
  int64_t offset_ = 0;
  UniqueFd fd_;
  UniqueFd blocks_;
  Sha256 hash_;  // of the current block
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_SFTP_PART_H_

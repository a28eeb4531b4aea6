// A file on its way home by SFTP: what has come is found again by the next try, and only what is
// still as it came counts.
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

// What comes is hashed, and checked by the next try, in blocks of it.
constexpr int64_t kSftpBlockBytes = int64_t{1} << 20;

class SftpPart {
 public:
  // The file at `path`, which is to have `size` bytes; the hashes of its blocks are in the file
  // `path`.blocks beside it. What is there is read; from the first block on that is not what it was
  // it is cut off.
  static absl::StatusOr<SftpPart> Open(const std::string& path, int64_t size);

  // So many bytes are there.
  int64_t offset() const { return offset_; }
  // The bytes at offset(), no more than `size` in all.
  absl::Status Append(absl::string_view bytes);
  // All have come: brings them to stable storage.
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
  Sha256 hash_;  // of the block that has begun
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TRANSFER_SFTP_PART_H_

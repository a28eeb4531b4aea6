// Bytes to and from a peer, over which frames travel: over descriptors, or in memory between two
// threads.
#ifndef GPUCTL_COMMON_FILES_BYTE_STREAM_H_
#define GPUCTL_COMMON_FILES_BYTE_STREAM_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/byte_buffer.h"

namespace gpuctl {

// A byte stream in both directions, with one reader and one writer, which may be two threads.
// UNAVAILABLE when the peer is gone.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Waits for bytes and adds some of them to `into`. UNAVAILABLE also at the end.
  virtual absl::Status Receive(ByteBuffer& into) = 0;
  // Sends all of `from` and leaves it empty, also after an error. Waits while the peer takes
  // nothing.
  virtual absl::Status Send(ByteBuffer& from) = 0;
  // True when SendFile saves a copy or two.
  virtual bool SendsFiles() const { return false; }
  // Sends `size` bytes of a regular file as it is now. ABORTED when the file ends early; other read
  // errors come back as they are. Zeros are sent for bytes that cannot be read.
  virtual absl::Status SendFile(int fd, int64_t offset, int64_t size);
};

// A stream over two blocking descriptors, often the same one, which stay the caller's. The process
// must ignore SIGPIPE.
class FdStream : public ByteStream {
 public:
  FdStream(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}
  absl::Status Receive(ByteBuffer& into) override;
  absl::Status Send(ByteBuffer& from) override;
  bool SendsFiles() const override { return true; }
  absl::Status SendFile(int fd, int64_t offset, int64_t size) override;

 private:
  const int read_fd_;
  const int write_fd_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FILES_BYTE_STREAM_H_

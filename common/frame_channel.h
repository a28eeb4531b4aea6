// Framed protobuf messages over a byte stream (an ssh exec channel): each is a little-endian u32
// length and that many bytes of a TransferFrame.
#ifndef GPUCTL_COMMON_FRAME_CHANNEL_H_
#define GPUCTL_COMMON_FRAME_CHANNEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/byte_buffer.h"
#include "common/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxFrameBytes = (1 << 20) + 4096;

// A pair of descriptors (often the same one) with one reader and one writer. Does not own them.
// Blocking; used by one thread. The process must ignore SIGPIPE.
class FrameChannel {
 public:
  FrameChannel(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}

  // Buffers; Flush sends. UNAVAILABLE when the peer is gone.
  absl::Status Write(const gpuctl::v1::TransferFrame& frame);
  // From the next frame on: whether frames are compressed together where that makes them smaller.
  absl::Status SetCompression(bool on);
  absl::Status Flush();
  // Writes a Done frame that carries `status`, and flushes.
  absl::Status WriteDone(const absl::Status& status);
  // The next frame. UNAVAILABLE at end of stream, INVALID_ARGUMENT for a length over the limit or
  // bytes that are no frame.
  absl::StatusOr<gpuctl::v1::TransferFrame> Read();
  // Read, and turn a Done frame with an error into that error.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadOrError();

 private:
  absl::Status Fill(size_t wanted);
  absl::Status Unpack(const gpuctl::v1::Packed& packed);
  void Pack();
  int read_fd_;
  int write_fd_;
  ByteBuffer out_;
  ByteBuffer in_;
  std::string unpacked_;  // frames of a Packed that were not read yet
  size_t unpacked_begin_ = 0;
  bool compress_ = false;
};

// A manifest as ManifestPart frames, zstd-compressed. Flushes.
absl::Status WriteManifest(FrameChannel& channel, const Manifest& manifest,
                           bool single_file = false);
// Validated. INVALID_ARGUMENT also when more than kMaxManifestBytes come out of the compression.
absl::StatusOr<Manifest> ReadManifest(FrameChannel& channel, bool* single_file = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_FRAME_CHANNEL_H_

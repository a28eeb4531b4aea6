// Framed protobuf messages over a byte stream (an ssh exec channel): each is a little-endian u32
// length and that many bytes of a TransferFrame.
#ifndef GPUCTL_COMMON_TRANSFER_FRAME_CHANNEL_H_
#define GPUCTL_COMMON_TRANSFER_FRAME_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/byte_buffer.h"
#include "common/transfer/byte_stream.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxFrameBytes = (1 << 20) + 4096;

// Blocking; used by one thread.
class FrameChannel {
 public:
  // The stream stays the caller's.
  explicit FrameChannel(ByteStream& stream) : stream_(stream) {}
  // Over descriptors: see FdStream.
  FrameChannel(int read_fd, int write_fd)
      : own_stream_(std::make_unique<FdStream>(read_fd, write_fd)), stream_(*own_stream_) {}

  // Buffers; Flush sends. UNAVAILABLE when the peer is gone.
  absl::Status Write(const gpuctl::v1::TransferFrame& frame);
  // Writes a FileData frame with `size` bytes of content, which the caller puts where the answer
  // points, and then calls CommitContent. Without that call nothing is written.
  absl::StatusOr<char*> PrepareContent(uint32_t index, int64_t offset, size_t size);
  absl::Status CommitContent();
  // The same with `size` bytes of a file, in the way that spares the most copies. Not while frames
  // are compressed. Errors of the file are SendFile's; the frame is whole then, too.
  absl::Status WriteFileContent(uint32_t index, int64_t offset, int fd, size_t size);
  // Whether that is better than PrepareContent.
  bool SendsFiles() const { return !compress_ && stream_.SendsFiles(); }
  // From the next frame on: whether frames are compressed together where that makes them smaller.
  absl::Status SetCompression(bool on);
  absl::Status Flush();
  // Writes a Done frame that carries `status`, and whether a full disk caused it, and flushes.
  absl::Status WriteDone(const absl::Status& status);
  // The next frame. UNAVAILABLE at end of stream, INVALID_ARGUMENT for a length over the limit or
  // bytes that are no frame.
  absl::StatusOr<gpuctl::v1::TransferFrame> Read();
  // Read, and turn a Done frame with an error into that error, with the fault that its kind means.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadOrError();
  // The same for who takes much content: what a FileData frame's `data` would hold is left where it
  // came, as `content`, until the next call.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadContentOrError(absl::string_view& content);

 private:
  absl::StatusOr<gpuctl::v1::TransferFrame> Read(absl::string_view* content);
  absl::Status Parse(absl::string_view bytes, gpuctl::v1::TransferFrame& frame,
                     absl::string_view* content);
  absl::Status FlushIfLarge();
  absl::Status Fill(size_t wanted);
  absl::Status Unpack(const gpuctl::v1::Packed& packed);
  void Pack();
  std::unique_ptr<ByteStream> own_stream_;
  ByteStream& stream_;
  ByteBuffer out_;
  size_t prepared_ = 0;  // bytes of a frame behind out_'s end
  ByteBuffer in_;
  std::string unpacked_;  // frames of a Packed that were not read yet
  size_t unpacked_begin_ = 0;
  std::string content_;
  bool compress_ = false;
};

// A manifest as ManifestPart frames, zstd-compressed. Flushes.
absl::Status WriteManifest(FrameChannel& channel, const Manifest& manifest,
                           bool single_file = false);
// Validated. INVALID_ARGUMENT also when more than kMaxManifestBytes come out of the compression.
absl::StatusOr<Manifest> ReadManifest(FrameChannel& channel, bool* single_file = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_FRAME_CHANNEL_H_

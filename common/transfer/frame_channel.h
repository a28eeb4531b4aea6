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
#include "common/files/byte_stream.h"
#include "common/packing/packer.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxFrameBytes = (1 << 20) + 4096;

// Writes and reads frames. Its calls block. Used by one thread.
class FrameChannel {
 public:
  // The stream stays the caller's.
  explicit FrameChannel(ByteStream& stream) : stream_(stream) {}
  // A channel over descriptors: see FdStream.
  FrameChannel(int read_fd, int write_fd)
      : own_stream_(std::make_unique<FdStream>(read_fd, write_fd)), stream_(*own_stream_) {}

  // Buffers a frame; Flush sends. UNAVAILABLE when the peer is gone.
  absl::Status Write(const gpuctl::v1::TransferFrame& frame);
  // Begins a FileData frame with `size` bytes of content. The caller puts the content at the
  // returned pointer and calls CommitContent; without that call nothing is written.
  absl::StatusOr<char*> PrepareContent(uint32_t index, int64_t offset, size_t size);
  absl::Status CommitContent();
  // Writes a FileData frame with `size` bytes of a file, with the fewest copies. Not while frames
  // are compressed. Errors of the file are those of SendFile; the frame is whole after them, too.
  absl::Status WriteFileContent(uint32_t index, int64_t offset, int fd, size_t size);
  // True when WriteFileContent is better than PrepareContent.
  bool SendsFiles() const { return !compress_ && stream_.SendsFiles(); }
  // Turns compression on or off from the next frame on. It compresses frames together where that
  // makes them smaller.
  absl::Status SetCompression(bool on);
  // From now on the peer takes compressed frames that refer to earlier ones; see Packer.
  void CompressInStream() { packer_.UseStream(); }
  absl::Status Flush();
  // Writes a Done frame with `status`, which also says when a full disk caused it, and flushes.
  absl::Status WriteDone(const absl::Status& status);
  // Returns the next frame. UNAVAILABLE at the end of the stream, INVALID_ARGUMENT for a length
  // over the limit or bytes that are not a frame.
  absl::StatusOr<gpuctl::v1::TransferFrame> Read();
  // Reads a frame. A Done frame with an error becomes that error, with the fault that its kind
  // means.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadOrError();
  // Does the same for callers that take much content: a FileData frame's data is not copied,
  // `content` shows it in place until the next call.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadContentOrError(absl::string_view& content);

 private:
  absl::StatusOr<gpuctl::v1::TransferFrame> Read(absl::string_view* content);
  absl::Status Parse(absl::string_view bytes, gpuctl::v1::TransferFrame& frame,
                     absl::string_view* content);
  absl::Status FlushIfLarge();
  absl::Status Fill(size_t wanted);
  bool Pack();
  std::unique_ptr<ByteStream> own_stream_;
  ByteStream& stream_;
  ByteBuffer out_;
  size_t prepared_ = 0;  // bytes of a frame after out_'s end
  ByteBuffer in_;
  std::string unpacked_;  // frames of a Packed that were not read yet
  size_t unpacked_begin_ = 0;
  std::string content_;
  bool compress_ = false;
  Packer packer_;
  Unpacker unpacker_;
};

// Writes a manifest as zstd-compressed ManifestPart frames, and flushes. The flags are those of
// ManifestPart.
absl::Status WriteManifest(FrameChannel& channel, const Manifest& manifest,
                           bool single_file = false, bool finds_parts = false,
                           const gpuctl::v1::PullNotes* notes = nullptr);
// Reads and validates a manifest. INVALID_ARGUMENT also when it decompresses to more than
// kMaxManifestBytes. The flags and `notes` may be null.
absl::StatusOr<Manifest> ReadManifest(FrameChannel& channel, bool* single_file = nullptr,
                                      bool* finds_parts = nullptr,
                                      gpuctl::v1::PullNotes* notes = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_FRAME_CHANNEL_H_

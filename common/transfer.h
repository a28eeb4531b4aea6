// Framed protobuf messages over a byte stream (an ssh exec channel), and trees sent through it: the
// two ends of push and pull. Blocking; each function is used by one thread per descriptor.
#ifndef GPUCTL_COMMON_TRANSFER_H_
#define GPUCTL_COMMON_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxFrameBytes = (1 << 20) + 4096;
constexpr int64_t kFileDataBytes = 256 << 10;
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// A pair of descriptors (often the same one) with one reader and one writer. Does not own them.
class FrameChannel {
 public:
  FrameChannel(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {}

  // Buffers; Flush sends. UNAVAILABLE when the peer is gone.
  absl::Status Write(const gpuctl::v1::TransferFrame& frame);
  absl::Status Flush();
  // The next frame. UNAVAILABLE at end of stream, INVALID_ARGUMENT for a length over the limit or
  // bytes that are no frame.
  absl::StatusOr<gpuctl::v1::TransferFrame> Read();
  // Read, and turn a Done frame with an error into that error.
  absl::StatusOr<gpuctl::v1::TransferFrame> ReadOrError();

 private:
  absl::Status Fill(size_t wanted);
  int read_fd_;
  int write_fd_;
  std::string out_;
  std::string in_;
  size_t in_begin_ = 0;
};

// Called with the number of content bytes moved so far.
using TransferProgress = std::function<void(int64_t bytes)>;

absl::Status WriteManifest(FrameChannel& channel, const gpuctl::v1::Manifest& manifest);
// Validated.
absl::StatusOr<gpuctl::v1::Manifest> ReadManifest(FrameChannel& channel);

// Sends the content of every file of `manifest`, read below `root`. A file whose size or content no
// longer matches its entry is ABORTED: it changed while it was being read.
absl::Status SendFiles(FrameChannel& channel, const std::string& root,
                       const gpuctl::v1::Manifest& manifest, const TransferProgress& progress);

// Receives what SendFiles sends into the empty directory `root` and creates everything the manifest
// names. DATA_LOSS when content does not match. Files are created without following symlinks
// (openat below `root`), given their modes, and synced to disk before the return.
absl::Status ReceiveFiles(FrameChannel& channel, const std::string& root,
                          const gpuctl::v1::Manifest& manifest, const TransferProgress& progress);

// Builds the manifest of the tree at `root`: regular files (hashed), directories, symlinks. `skip`
// returns true for relative paths to leave out (a directory with all below it). Anything else
// (sockets, devices) is left out and named in `skipped`.
absl::StatusOr<gpuctl::v1::Manifest> ScanTree(const std::string& root,
                                              const std::function<bool(const std::string&, bool)>& skip,
                                              std::vector<std::string>* skipped = nullptr);

// Copies the verified tree at `from` to the new directory `to` (reflink where the file system can,
// else copy; modes kept). `to` must not exist.
absl::Status CopyTree(const std::string& from, const std::string& to,
                      const gpuctl::v1::Manifest& manifest);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_H_

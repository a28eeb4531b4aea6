// Bytes from a peer, as frames, as a manifest, and as all that a push says.
#include <google/protobuf/stubs/common.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/files.h"
#include "common/frame_channel.h"
#include "common/transfer.h"
#include "common/unique_fd.h"

namespace gpuctl {
namespace {

// So much fits into a pipe everywhere without a reader.
constexpr size_t kMaxInputBytes = 16 << 10;

void Require(bool condition) {
  if (!condition) abort();
}

// A channel on which the peer has said `bytes` and gone.
class Peer {
 public:
  explicit Peer(absl::string_view bytes) {
    int fds[2];
    Require(pipe(fds) == 0);
    in_.reset(fds[0]);
    const UniqueFd out(fds[1]);
    Require(write(out.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  FrameChannel Channel() { return FrameChannel(in_.get(), -1); }

 private:
  UniqueFd in_;
};

void ReadFrames(absl::string_view bytes) {
  Peer peer(bytes);
  FrameChannel channel = peer.Channel();
  while (channel.Read().ok()) {
  }
}

void ReceiveTree(absl::string_view bytes) {
  Peer peer(bytes);
  FrameChannel channel = peer.Channel();
  const auto manifest = ReadManifest(channel);
  if (!manifest.ok() || manifest->entries_size() > 16) return;
  const auto dir = MakeTempDirectory("gpuctl-fuzz-");
  Require(dir.ok());
  const std::string root = JoinPath(*dir, "root");
  Require(MakeDirectories(root).ok());
  const absl::Status status = ReceiveFiles(channel, root, *manifest, nullptr);
  // Nothing beside the root, and what was accepted is what was announced.
  Require(ListDirectory(*dir)->size() == 1);
  if (status.ok()) {
    const auto scanned = ScanTree(root);
    Require(!scanned.ok() || scanned->entries_size() >= manifest->entries_size());
  }
  Require(RemoveTree(*dir).ok());
}

}  // namespace
}  // namespace gpuctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Invalid UTF-8 in a string field would be a line on stderr each time. Newer versions log by
  // Abseil and have no such handler.
  static const auto previous_handler = google::protobuf::SetLogHandler(nullptr);
  (void)previous_handler;
#endif
  if (size > gpuctl::kMaxInputBytes) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  gpuctl::ReadFrames(bytes);
  gpuctl::ReceiveTree(bytes);
  return 0;
}

// Fuzzes bytes from a peer: as frames, as a manifest, as a whole push, and as the list of missing
// content.
#include <fcntl.h>
#include <google/protobuf/stubs/common.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/base/unique_fd.h"
#include "common/delta/offers.h"
#include "common/files/files.h"
#include "common/transfer/frame_channel.h"
#include "common/transfer/missing_frames.h"
#include "common/transfer/pieces.h"
#include "common/tree/missing_content.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

// The most bytes that a pipe takes without a reader on every system.
constexpr size_t kMaxInputBytes = 16 << 10;
constexpr int64_t kMaxFuzzedFileBytes = 64 << 20;

void Require(bool condition) {
  if (!condition) abort();
}

// A channel whose peer has sent `bytes` and left.
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
  while (true) {
    const auto frame = channel.Read();
    if (!frame.ok()) break;
    // Packed frames come out unpacked, whatever they hold.
    Require(!frame->has_packed());
  }
}

// Reads the list of missing content, and checks it against the manifest before it.
void TakeMissing(FrameChannel& channel, const Manifest& manifest) {
  std::string token;
  MissingExtras extras;
  const auto missing = ReadMissing(channel, manifest, &token, &extras);
  if (!missing.ok()) return;
  for (const auto& offer : extras.offers) {
    Require(offer.index() < manifest.size() && CheckOffer(offer).ok());
    (void)MatchOffers("content", {&offer});
  }
  int64_t bytes = 0;
  missing->ForEachPiece(manifest, [&](const Piece& piece) {
    Require(piece.index >= 0 && piece.index < manifest.size());
    const auto entry = manifest[piece.index];
    Require(piece.offset >= 0 && piece.length > 0 && piece.length <= kPartBytes &&
            piece.offset % kPartBytes == 0 && piece.offset <= entry.size() - piece.length);
    bytes += piece.length;
  });
  Require(bytes <= manifest.content_bytes() && bytes == missing->Bytes(manifest));
}

void TakeContent(FrameChannel& channel, const Manifest& manifest) {
  const auto dir = MakeTempDirectory("gpuctl-fuzz-");
  Require(dir.ok());
  const std::string root = JoinPath(*dir, "root");
  Require(MakeDirectories(root).ok());
  MissingContent missing = MissingContent::AllOf(manifest);
  {
    const UniqueFd root_fd(file_ops::Open(root, O_RDONLY | O_DIRECTORY));
    Require(root_fd.valid());
    PieceWriter writer(root_fd.get(), manifest);
    while (true) {
      absl::string_view content;
      const auto frame = channel.ReadContentOrError(content);
      if (!frame.ok() || !frame->has_file_data()) break;
      const auto complete = writer.Take(frame->file_data(), content);
      if (!complete.ok()) break;
      if (!*complete) continue;
      const Piece& piece = writer.piece();
      missing.RemovePart(piece.index, piece.offset / kPartBytes,
                         PartCount(manifest[piece.index].size()));
    }
  }
  // Nothing was written beside the root, and the accepted content is the announced content.
  Require(ListDirectory(*dir)->size() == 1);
  const auto scanned = ScanTree(root);
  for (int64_t i = 0; i < manifest.size(); ++i) {
    const auto entry = manifest[i];
    if (missing.Has(i) || entry.size() == 0) continue;
    bool found = false;
    for (const auto& there : scanned.value()) {
      found = found || (there.path() == entry.path() && there.sha256() == entry.sha256());
    }
    Require(found);
  }
  Require(RemoveTree(*dir).ok());
}

void ReceiveTree(absl::string_view bytes) {
  for (const bool is_missing : {false, true}) {
    Peer peer(bytes);
    FrameChannel channel = peer.Channel();
    const auto manifest = ReadManifest(channel);
    if (!manifest.ok() || manifest->size() > 16) return;
    if (is_missing) {
      TakeMissing(channel, *manifest);
    } else if (manifest->content_bytes() <= kMaxFuzzedFileBytes) {
      TakeContent(channel, *manifest);
    }
  }
}

}  // namespace
}  // namespace gpuctl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  // Invalid UTF-8 in a string field would print a line on stderr each time. Newer versions log with
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

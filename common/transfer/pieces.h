// Reading pieces of files into a channel, and writing them from one.
#ifndef GPUCTL_COMMON_TRANSFER_PIECES_H_
#define GPUCTL_COMMON_TRANSFER_PIECES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/delta/gear.h"
#include "common/files/dir_walk.h"
#include "common/files/part_writer.h"
#include "common/files/sha256.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// The largest number of content bytes in one FileData frame.
constexpr int64_t kFileDataBytes = 256 << 10;

// False for names of files that do not compress: archives, images, weights.
bool MayCompress(absl::string_view path);

// Reads pieces of files below a directory, never through a symlink. Used by one thread.
class PieceReader {
 public:
  // `root_fd` stays the caller's and must outlive the reader.
  explicit PieceReader(int root_fd) : walk_(root_fd) {}

  // Sends `piece` of the regular file at `path`. ABORTED when it is gone or shorter, because it
  // changed meanwhile. Does not flush.
  absl::Status Send(FrameChannel& channel, const Piece& piece, const std::string& path);
  // Does the same, but only refers to what `offers`, which were checked, have of it. Returns the
  // number of bytes that it sent. Holds the piece in memory.
  absl::StatusOr<int64_t> SendRest(FrameChannel& channel, const Piece& piece,
                                   const std::string& path,
                                   const std::vector<const gpuctl::v1::Offer*>& offers);
  // Returns the anchor of the part at `offset`; none where the file ends before it. Errors are
  // those of Send.
  absl::StatusOr<Anchor> AnchorAt(const std::string& path, int64_t offset);

 private:
  absl::Status SendBytes(FrameChannel& channel, uint32_t index, int64_t offset,
                         absl::string_view bytes);
  absl::Status Open(const std::string& path);
  DirWalk walk_;
  std::string path_;  // of fd_
  UniqueFd fd_;
  bool has_holes_ = false;
};

// Writes pieces into files below a directory, never through a symlink, and checks each complete
// piece against the manifest. Files appear when their first piece comes. Used by one thread;
// several writers may work on the same directory if each piece goes to only one of them.
class PieceWriter {
 public:
  // The use of the page cache: keep what is soon read again, or bypass it for large files.
  enum class Cache { kKeep, kPassByLargeFiles };

  // `root_fd` and the manifest must outlive the writer; the manifest must be valid.
  PieceWriter(int root_fd, const Manifest& manifest, Cache cache = Cache::kKeep)
      : walk_(root_fd), manifest_(manifest), cache_(cache) {}

  // Frames may refer to content of the older file whose descriptor `older` returns for an entry
  // (-1: it has none). By default no entry has one.
  void TakeFromOlder(std::function<int(int64_t index)> older) { older_ = std::move(older); }

  // Takes the next frame, whose data is in `content`. True when it completed a piece, which piece()
  // then names. INVALID_ARGUMENT when the frame does not continue the begun piece. DATA_LOSS when a
  // complete piece does not have the manifest's hash; the whole piece then stays missing.
  // UNAVAILABLE instead when the piece has content of an older file, which may have changed: try
  // again.
  absl::StatusOr<bool> Take(const gpuctl::v1::FileData& data, absl::string_view content);
  const Piece& piece() const { return piece_; }
  // Returns the number of bytes of this piece that came from an older file.
  int64_t copied() const { return copied_; }
  // OK unless a piece is half done.
  absl::Status Finish() const;

 private:
  absl::Status Begin(const gpuctl::v1::FileData& data);
  bool PassesCache() const;
  absl::Status TakeZeros(int64_t offset, int64_t size, const std::string& shown);
  absl::Status TakeCopied(int64_t from, int64_t size, const std::string& shown);
  absl::Status CheckPiece(const std::string& shown);
  DirWalk walk_;
  const Manifest& manifest_;
  const Cache cache_;
  gpuctl::v1::FileEntry entry_;
  int64_t entry_index_ = -1;  // of entry_ and fd_
  UniqueFd fd_;
  PartWriter out_;
  bool fresh_ = false;  // the file was empty before
  mode_t mode_ = 0;     // of the file on disk
  Piece piece_;
  int64_t taken_ = 0;
  bool begun_ = false;
  std::optional<Sha256> hash_;
  std::function<int(int64_t index)> older_;
  int64_t copied_ = 0;  // bytes of the piece from an older file
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PIECES_H_

// Pieces of files read for a channel, and written from one.
#ifndef GPUCTL_COMMON_TRANSFER_PIECES_H_
#define GPUCTL_COMMON_TRANSFER_PIECES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/files/part_writer.h"
#include "common/files/sha256.h"
#include "common/transfer/frame_channel.h"
#include "common/tree/manifest.h"
#include "common/tree/missing_content.h"

namespace gpuctl {

// Content bytes in one FileData frame.
constexpr int64_t kFileDataBytes = 256 << 10;

// False for names whose content compression is known to gain nothing on: archives, images, weights.
bool MayCompress(absl::string_view path);

// Reads pieces of files below a directory, never through a symlink. One thread.
class PieceReader {
 public:
  // `root_fd` stays the caller's and must outlive the reader.
  explicit PieceReader(int root_fd) : walk_(root_fd) {}

  // Sends `piece` of the file at `path`, which must be a regular file. ABORTED when it is gone or
  // shorter: it changed since somebody looked. Does not flush.
  absl::Status Send(FrameChannel& channel, const Piece& piece, const std::string& path);

 private:
  absl::Status Open(const std::string& path);
  DirWalk walk_;
  std::string path_;  // of fd_
  UniqueFd fd_;
  bool has_holes_ = false;
};

// Writes pieces into files below a directory, never through a symlink, each checked against the
// manifest once it is complete. Files appear when their first piece comes. One thread; several
// writers may work on the same directory as long as each piece comes to one of them.
class PieceWriter {
 public:
  // Where what is written is soon read again, or not.
  enum class Cache { kKeep, kPassByLargeFiles };

  // Both must outlive the writer; the manifest is valid.
  PieceWriter(int root_fd, const Manifest& manifest, Cache cache = Cache::kKeep)
      : walk_(root_fd), manifest_(manifest), cache_(cache) {}

  // Takes the next frame, whose `data` is in `content`. True when it completed a piece, which
  // piece() then names. INVALID_ARGUMENT for what does not follow the piece that was begun;
  // DATA_LOSS when the content of a complete piece is not what the manifest says; then nothing of
  // it is counted as there.
  absl::StatusOr<bool> Take(const gpuctl::v1::FileData& data, absl::string_view content);
  const Piece& piece() const { return piece_; }
  // OK unless a piece is half done.
  absl::Status Finish() const;

 private:
  absl::Status Begin(const gpuctl::v1::FileData& data);
  bool PassesCache() const;
  absl::Status TakeZeros(int64_t offset, int64_t size, const std::string& shown);
  DirWalk walk_;
  const Manifest& manifest_;
  const Cache cache_;
  gpuctl::v1::FileEntry entry_;
  int64_t entry_index_ = -1;  // of entry_ and fd_
  UniqueFd fd_;
  PartWriter out_;
  bool fresh_ = false;  // nothing was in the file before
  mode_t mode_ = 0;     // that the file has
  Piece piece_;
  int64_t taken_ = 0;
  bool begun_ = false;
  std::optional<Sha256> hash_;
};

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PIECES_H_

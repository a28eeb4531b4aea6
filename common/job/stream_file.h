// Append-only byte streams on disk, the same on node and laptop. common/job/STREAMS.md describes
// them: layout, cursors, proofs, what can go wrong.
#ifndef GPUCTL_COMMON_JOB_STREAM_FILE_H_
#define GPUCTL_COMMON_JOB_STREAM_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

constexpr int64_t kDefaultSegmentBytes = int64_t{256} << 20;
constexpr int64_t kDefaultOutputLimitBytes = int64_t{4} << 30;

// The layout of a stream on disk.
struct StreamShape {
  // The segment size S; 0 means one plain file. Otherwise the stream is a directory of segments:
  // the file named k*S in 20 decimal digits holds the bytes [k*S, (k+1)*S), so any byte's place
  // follows from its offset.
  int64_t segment_bytes = 0;
};

// The largest offset of a stream, so that sums of two offsets do not overflow.
constexpr int64_t kMaxStreamOffset = int64_t{1} << 56;

// The stored range of a stream: [first_offset, size).
struct Extent {
  int64_t first_offset = 0;
  int64_t size = 0;
};

// Reads a stream that somebody else may be appending to or cutting. Not thread-safe.
class StreamReader {
 public:
  StreamReader(std::string path, StreamShape shape);

  // Looks at the disk. A stream that does not exist yet is {0, 0}.
  absl::StatusOr<Extent> GetExtent();

  // Reads up to `size` bytes from `offset` into `buffer`: fewer at a segment's end, 0 at the
  // stream's. OUT_OF_RANGE when the byte at `offset` was cut, or was never stored and later ones
  // are; NextStored then says where to go on.
  absl::StatusOr<int64_t> Read(int64_t offset, char* buffer, int64_t size);

  // Returns the smallest stored offset >= `offset`, or the stream's size when there is none.
  absl::StatusOr<int64_t> NextStored(int64_t offset);

 private:
  absl::StatusOr<int64_t> ReadSegment(int64_t offset, char* buffer, int64_t size);

  std::string path_;
  StreamShape shape_;
  UniqueFd open_segment_;
  int64_t open_segment_start_ = -1;
};

// Writes a stream. A stream has one writer at a time; the owner holds a lock elsewhere. Not
// thread-safe. After an error the extent is the part known to be on disk, and writing may be tried
// again.
class StreamWriter {
 public:
  // Opens or creates a stream; the parent directory must exist. The disk tells where the stream
  // ends.
  static absl::StatusOr<StreamWriter> Open(std::string path, StreamShape shape);

  int64_t first_offset() const { return first_offset_; }
  int64_t size() const { return size_; }

  absl::Status Append(absl::string_view data) { return WriteAt(size_, data); }

  // Appends a newline if the last byte is not one, because the previous owner died in mid-line. A
  // writer of lines calls this once after Open.
  absl::Status TerminateLine();

  // Writes `data` at `offset`, for a mirror. Skips bytes below size(), which are stored already.
  // FAILED_PRECONDITION for an offset past size(), which would leave a gap.
  absl::Status WriteAt(int64_t offset, absl::string_view data);

  // Writes stored bytes once more, at their old place. After a failed Sync the system counts the
  // bytes as written, though they may never reach the disk. A caller who still has them calls this
  // and syncs again. Plain files only.
  absl::Status Rewrite(int64_t offset, absl::string_view data);

  // Declares [size(), offset) lost. The next write goes to `offset`, which must be a multiple of
  // the segment size. Only for bytes that were cut, according to lifecycle.
  absl::Status SkipTo(int64_t offset);

  // The place of the next byte, for splice: a descriptor, a file position, and how many bytes fit
  // before the segment ends. Report the written bytes with Spliced.
  struct Tail {
    int fd;
    int64_t position;
    int64_t room;
  };
  absl::StatusOr<Tail> TailForSplice();
  void Spliced(int64_t bytes);

  // Removes the oldest segments until at most `keep_bytes` + one segment remain, but never the one
  // being written. Returns the new first offset. Calls `announce` with that offset before it
  // removes anything, so that lifecycle is never behind; an error from `announce` stops the cut.
  template <typename Announce>
  absl::StatusOr<int64_t> CutTo(int64_t keep_bytes, Announce announce) {
    const int64_t first = FirstOffsetToKeep(keep_bytes);
    if (first <= first_offset_) return first_offset_;
    if (absl::Status status = announce(first); !status.ok()) return status;
    if (absl::Status status = RemoveBefore(first); !status.ok()) return status;
    return first_offset_;
  }

  // Moves the bytes from `offset` on into one file "<path>.diverged-<suffix>", so that size() ==
  // offset. Returns that name; it gets "-2", "-3" … when it is taken. An offset before
  // first_offset(), or in a hole, must be a multiple of the segment size.
  absl::StatusOr<std::string> SetAside(int64_t offset, absl::string_view suffix);

  // Syncs everything written since the last Sync: segments and their names.
  absl::Status Sync();

 private:
  StreamWriter(std::string path, StreamShape shape) : path_(std::move(path)), shape_(shape) {}
  int64_t FirstOffsetToKeep(int64_t keep_bytes) const;
  absl::Status RemoveBefore(int64_t first_offset);
  absl::Status OpenTail();
  absl::StatusOr<std::string> CopyAside(int64_t offset, absl::string_view suffix);
  std::string SegmentPath(int64_t start) const;

  std::string path_;
  StreamShape shape_;
  int64_t first_offset_ = 0;
  int64_t size_ = 0;
  UniqueFd tail_;
  int64_t tail_start_ = -1;
  bool dirty_ = false;            // the tail has bytes that were not synced
  bool directory_dirty_ = false;  // a segment was created since the last Sync
  std::vector<int64_t> unsynced_segments_;
};

// Returns the start offsets of the segments in directory `path`, ascending. Ignores other names.
absl::StatusOr<std::vector<int64_t>> ListSegments(const std::string& path);

// Evidence that a reader's bytes are the writer's: the raw sha256 of the 4096 bytes before
// `offset`. This window is shorter where fewer bytes are stored before `offset`.
struct StreamProof {
  int64_t offset;
  std::string sha256;
};

// Returns proofs for the reader's end and for ends at doubling distances before it (4 KiB, 8 KiB,
// 16 KiB …), newest first, at most 32. Leaves out ends with no stored byte before them.
absl::StatusOr<std::vector<StreamProof>> MakeProofs(StreamReader& reader);

// The offset where a reader whose end is `cursor` must go on: `cursor` when its newest proof holds,
// else the largest proven offset, else the stream's first offset. A proof counts as holding when
// this side has cut its window, or perhaps a part of it: it cannot be checked. `proofs` may come
// from a peer; offsets outside (0, cursor] are ignored.
struct ResumePoint {
  int64_t offset = 0;
  bool diverged = false;
};
absl::StatusOr<ResumePoint> FindResumePoint(StreamReader& stream, int64_t cursor,
                                            const std::vector<StreamProof>& proofs);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_STREAM_FILE_H_

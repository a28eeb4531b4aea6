// The laptop's copy of a job's streams. It has the same bytes at the same offsets, so its size is
// the cursor. See common/job/STREAMS.md.
#ifndef GPUCTL_CLIENT_STREAMS_MIRROR_H_
#define GPUCTL_CLIENT_STREAMS_MIRROR_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/unique_fd.h"
#include "common/job/lifecycle.h"
#include "common/job/stream_file.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The paths of a mirror's streams. Readers (renderer, logs, ps) need nothing else.
struct MirrorPaths {
  explicit MirrorPaths(std::string mirror_dir);
  std::string dir;
  std::string lock;
  std::string lifecycle;  // file
  std::string beside;     // file: the lifecycle that the node told a process without the lock
  std::string output;     // directory of segments
  std::string metrics;    // file
  std::string telemetry;  // directory of segments
};

// The most bytes of each stream that are kept at home. A node that sends without end must not fill
// the disk. Telemetry keeps its newest bytes, the others their first.
struct MirrorLimits {
  int64_t lifecycle = int64_t{4} << 20;
  int64_t metrics = int64_t{256} << 20;
  int64_t telemetry = int64_t{64} << 20;
  int64_t output = int64_t{16} << 30;

  int64_t Of(gpuctl::v1::Stream stream) const;
};

// The one writer of a mirror. Not thread-safe.
class Mirror {
 public:
  // Creates the directory when needed and takes its lock. UNAVAILABLE when another process (a
  // second attach) writes this mirror: read it and try again later.
  static absl::StatusOr<std::unique_ptr<Mirror>> Open(const std::string& dir,
                                                      int64_t output_segment_bytes,
                                                      const MirrorLimits& limits = {});

  // Returns the cursors that a Watch sends: the end of each stream with its proofs.
  absl::StatusOr<std::vector<gpuctl::v1::Cursor>> Cursors();

  // Prepares a stream for its chunks: sets aside bytes that the node does not have, or skips bytes
  // that the node dropped. Returns a notice for the user when bytes are missing or were set aside.
  absl::StatusOr<std::optional<std::string>> Apply(const gpuctl::v1::StreamHeader& header);
  // Stores a chunk, as far as the stream's limit allows; the rest of a full stream is dropped.
  // Repeats change nothing; a gap is DATA_LOSS.
  absl::Status Apply(const gpuctl::v1::Chunk& chunk);
  // Stores only the lifecycle from now on, or all streams again. The bytes that were left out come
  // with the next Watch, whose cursors name what is stored.
  void StoreOnlyLifecycle(bool only) { only_lifecycle_ = only; }
  bool stores_only_lifecycle() const { return only_lifecycle_; }
  // Returns a notice for the user, once for each stream that became full.
  std::optional<std::string> TakeNotice();

  int64_t size(gpuctl::v1::Stream stream) const;
  absl::Status Sync();

 private:
  Mirror(std::string dir, UniqueFd lock);
  StreamWriter* Find(gpuctl::v1::Stream stream);
  absl::StatusOr<std::string> SetAside(gpuctl::v1::Stream stream, int64_t offset);
  std::string Path(gpuctl::v1::Stream stream) const;
  StreamShape Shape(gpuctl::v1::Stream stream) const;

  MirrorPaths paths_;
  UniqueFd lock_;
  int64_t output_segment_bytes_ = kDefaultSegmentBytes;
  std::map<gpuctl::v1::Stream, StreamWriter> streams_;
  MirrorLimits limits_;
  // Bytes on the disk, with what was set aside, and with what small files take.
  std::map<gpuctl::v1::Stream, int64_t> stored_;
  std::set<gpuctl::v1::Stream> full_;
  bool only_lifecycle_ = false;
  std::optional<std::string> notice_;
};

// Returns the lifecycle stored in a mirror, or what the node told beside it where that is longer;
// empty when there is none yet.
absl::StatusOr<Lifecycle> ReadMirrorLifecycle(const std::string& mirror_dir);

// Stores the node's lifecycle without the mirror's lock. Several processes may do it at once.
absl::Status StoreLifecycleBeside(const std::string& mirror_dir, absl::string_view lifecycle);

// Returns cursors for a Watch that leaves the mirror alone: the lifecycle from its beginning, and
// the end of output and metrics. The mirror may grow meanwhile.
absl::StatusOr<std::vector<gpuctl::v1::Cursor>> CursorsBeside(const std::string& mirror_dir,
                                                              int64_t output_segment_bytes);

// True when the mirrored lifecycle is over and the mirror holds every byte that its last line
// names, or as many as the limits allow.
absl::StatusOr<bool> MirrorIsComplete(const std::string& mirror_dir, int64_t output_segment_bytes,
                                      const MirrorLimits& limits = {});

// The sizes of a mirror's streams.
struct MirrorSizes {
  int64_t lifecycle = 0;
  int64_t output = 0;
  int64_t metrics = 0;
  int64_t telemetry = 0;
};
absl::StatusOr<MirrorSizes> ReadMirrorSizes(const std::string& mirror_dir,
                                            int64_t output_segment_bytes);

// Returns the sum of the bytes stored in all streams so far. It only grows.
absl::StatusOr<int64_t> MirroredBytes(const std::string& mirror_dir, int64_t output_segment_bytes);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_MIRROR_H_

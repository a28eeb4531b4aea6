// Trees sent through a byte stream: the two ends of push (laptop to node) and pull (node to
// laptop). Blocking; each function is used by one thread per channel.
//
//   push: PushBegin ->  <- PushNeed{have}   when needed: manifest, file data, Done ->  <- Done
//   pull: PullBegin ->  <- manifest, file data, Done
//
// Either side may send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_TRANSFER_H_
#define GPUCTL_COMMON_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/frame_channel.h"
#include "common/manifest.h"
#include "common/tree.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// Content bytes in one FileData frame.
constexpr int64_t kFileDataBytes = 256 << 10;

// Called with the number of content bytes moved so far. May be empty.
using TransferProgress = std::function<void(int64_t bytes)>;

// Sends the content of every file of `manifest`, read below `root` without following symlinks, in
// the manifest's order. A file whose size or content no longer matches its entry is ABORTED: it
// changed while it was being read; the receiver then has less than the whole of it. Does not flush.
absl::Status SendFiles(FrameChannel& channel, const std::string& root,
                       const gpuctl::v1::Manifest& manifest, const TransferProgress& progress);
// The same below an open directory.
absl::Status SendFilesAt(FrameChannel& channel, int root_fd, const gpuctl::v1::Manifest& manifest,
                         const TransferProgress& progress);

// Receives what SendFiles sends into the empty directory `root` and creates everything the valid
// `manifest` names. DATA_LOSS when content does not match. Files are created without following
// symlinks (openat below `root`), given their modes, and synced to disk before the return.
absl::Status ReceiveFiles(FrameChannel& channel, const std::string& root,
                          const gpuctl::v1::Manifest& manifest, const TransferProgress& progress);

// Brings the tree at `root`, whose manifest and digest these are, to `gpuctl-agent receive` at the
// other end. OK once the node has stored it durably, or had it already. ABORTED when a file changed
// since the manifest was made: scan again. An error of the node's is returned as the node gave it.
absl::Status PushTree(FrameChannel& channel, const std::string& root,
                      const gpuctl::v1::Manifest& manifest, const std::string& digest,
                      const TransferProgress& progress);

// Brings the file or directory `path` of a job from `gpuctl-agent send` at the other end into the
// new directory `into_dir` (for a file: into_dir/<its name>) and returns its manifest. The
// directory appears by rename, verified and synced; before that everything is in a hidden directory
// beside it, which a later pull removes if this one is killed. ALREADY_EXISTS when `into_dir` is
// there.
absl::StatusOr<gpuctl::v1::Manifest> PullTree(FrameChannel& channel, const std::string& job_id,
                                              const std::string& path, const std::string& into_dir,
                                              const TransferProgress& progress);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_H_

// The sending end of a push: a tree of the laptop brought to `gpuctl-agent receive` on the node.
//
//   first stream:    PushBegin, manifest ->   <- PushNeed {have}, or PushNeed and Missing {token}
//                    FileData…, Done ->       <- MergeReport (into a work directory), Done
//   further streams: PushJoin {token}, FileData…, Done ->   <- Done
//
// The manifest goes out with PushBegin unless the tree is believed to be there. Either side may
// send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_PUSH_H_
#define GPUCTL_COMMON_PUSH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/byte_stream.h"
#include "common/clock.h"
#include "common/frame_channel.h"
#include "common/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// Content bytes and files of one transfer.
struct TransferCount {
  int64_t bytes = 0;
  int64_t total_bytes = 0;  // what has to be moved; what is there already is not in it
  int64_t files = 0;
  int64_t total_files = 0;
  int streams = 1;
};
// Called with what has been moved so far, by one thread at a time. May be empty.
using TransferProgress = std::function<void(const TransferCount&)>;

// One connection to a command on the node, which ends with the last copy of `bytes`.
struct TransferStream {
  std::shared_ptr<ByteStream> bytes;
  absl::Duration round_trip;
  // The network is what is waited for, not a processor: compression pays.
  bool IsSlow() const { return round_trip > absl::Milliseconds(4); }
};
using OpenTransferStream = std::function<absl::StatusOr<TransferStream>()>;

struct TransferOptions {
  // Opens further streams; called from a thread of its own. Empty: one stream is all.
  OpenTransferStream open;
  // Streams at once; 0: as many as gain something, eight at most.
  int streams = 0;
  bool slow_link = false;  // set by PushTree and PullTree
  TransferProgress progress;
};

struct PushTarget {
  std::string job_id;  // empty: the node's store
  std::string into;    // below the job's work directory
  bool overwrite = false;
  // The tree is believed to be there: its manifest waits until the node asks for it.
  bool likely_there = false;
  // Where each entry of the manifest lies below the root, when that is not its own path; one for
  // each entry, or none.
  std::vector<std::string> sources;
};

struct PushOutcome {
  bool was_there = false;
  TransferCount sent;
  gpuctl::v1::MergeReport merge;  // of a push into a work directory
};

// Brings the tree at `root`, whose manifest this is, to the node. OK once the node has it on stable
// storage. ABORTED when a file changed since the manifest was made: scan again. An error of the
// node's is returned as the node gave it. After an error the node keeps what it got, and the next
// push sends the rest.
absl::StatusOr<PushOutcome> PushTree(const TransferStream& stream, const std::string& root,
                                     const Manifest& manifest, const PushTarget& target,
                                     Clock& clock, const TransferOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_PUSH_H_

// The sending end of a push: it brings a tree of the laptop to `gpuctl-agent receive` on the node.
//
//   first stream:    PushBegin, manifest ->   <- PushNeed {have}, or PushNeed and Missing {token}
//                    Anchors ->               <- after PushNeed, if the node sends FindParts
//                                             <- Taken after Missing (into a work directory)
//                    Keep, FileData…, Done -> <- MergeReport (into a work directory), Done
//   further streams: PushJoin {token}, FileData…, Done ->   <- Done
//
// The manifest goes out with PushBegin unless the tree is believed to be there. Either side may
// send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_TRANSFER_PUSH_H_
#define GPUCTL_COMMON_TRANSFER_PUSH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/transfer/transfer.h"
#include "common/tree/manifest.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

struct PushTarget {
  std::string job_id;  // empty: the node's store
  std::string into;    // below the job's work directory
  bool overwrite = false;
  // The tree is believed to be there: its manifest waits until the node asks for it.
  bool likely_there = false;
  // The path below the root of each entry of the manifest, where that is not the entry's own path.
  // One for each entry, or empty.
  std::vector<std::string> sources;
  // For a push into a whole work directory. True for a path of the last push that is not in the
  // tree and stays there all the same. Empty: all of these are removed.
  std::function<bool(const std::string& path, bool is_directory)> stays;
};

struct PushOutcome {
  bool was_there = false;
  TransferCount sent;
  gpuctl::v1::MergeReport merge;  // after a push into a work directory
};

// Sends the tree at `root`, described by `manifest`, to the node. OK once the node has it on stable
// storage. ABORTED when a file changed after the manifest was made: scan again. Returns errors of
// the node as the node sent them. After an error the node keeps what it got, and the next push
// sends the rest.
absl::StatusOr<PushOutcome> PushTree(const TransferStream& stream, const std::string& root,
                                     const Manifest& manifest, const PushTarget& target,
                                     Clock& clock, const TransferOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PUSH_H_

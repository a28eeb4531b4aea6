// The sending end of a push: a tree of the laptop brought to `gpuctl-agent receive` on the node.
//
//   first stream:    PushBegin, manifest ->   <- PushNeed {have}, or PushNeed and Missing {token}
//                    FileData…, Done ->       <- MergeReport (into a work directory), Done
//   further streams: PushJoin {token}, FileData…, Done ->   <- Done
//
// The manifest goes out with PushBegin unless the tree is believed to be there. Either side may
// send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_TRANSFER_PUSH_H_
#define GPUCTL_COMMON_TRANSFER_PUSH_H_

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

#endif  // GPUCTL_COMMON_TRANSFER_PUSH_H_

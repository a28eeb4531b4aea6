// The receiving end of a pull: files of a job brought from `gpuctl-agent send` on the node.
//
//   first stream:    PullBegin ->   <- manifest
//                    Want… ->       <- FileData…       Done ->   <- Done
//   further streams: PullBegin {joins}, then the same without the manifest
//
// Either side may send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_TRANSFER_PULL_H_
#define GPUCTL_COMMON_TRANSFER_PULL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/transfer/transfer.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {

struct PullSubject {
  std::string job_id;
  std::string path;                // a file or directory relative to the job directory
  std::vector<std::string> files;  // not empty: only these below the directory
  // A directory at home that may have some of it already, at the same paths; "" for none.
  std::string have;
};

struct Pulled {
  std::unique_ptr<TreeBuilder> tree;  // finished: verified and synced
  TransferCount received;
  bool is_file = false;  // the subject is a file, alone in the tree under its own name
};

// Brings the subject into a staging directory in `parent`, from where the caller publishes it by
// rename. What an earlier try left there, and what `have` has, is read, checked and not sent again.
// After an error what was received stays for the next try. ABORTED when a file changed meanwhile.
absl::StatusOr<Pulled> PullTree(const TransferStream& stream, const PullSubject& subject,
                                const std::string& parent, Clock& clock,
                                const TransferOptions& options);

// Publishes a pulled directory as the new directory `to`. ALREADY_EXISTS when it is there.
absl::Status PublishPulled(TreeBuilder& tree, const std::string& to);
// Puts everything pulled into the directory `to`, which may have some of it: files by rename.
// FAILED_PRECONDITION when a directory is where a file should go, or the other way round.
absl::Status MergePulled(TreeBuilder& tree, const std::string& to);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PULL_H_

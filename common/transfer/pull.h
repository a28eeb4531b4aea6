// The receiving end of a pull: it brings files of a job home from `gpuctl-agent send` on the node.
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
  std::vector<std::string> files;  // only these below the directory; empty: all
  // A directory at home that may have some of the content already, at the same paths; "" for none.
  std::string have;
};

struct Pulled {
  std::unique_ptr<TreeBuilder> tree;  // finished: verified and synced
  TransferCount received;
  bool is_file = false;  // the subject is one file; the tree holds only it, under its name
};

// Brings the subject into a staging directory in `parent`, from where the caller publishes it by
// rename. Content that an earlier try left there, or that `have` has, is read and checked, not sent
// again. After an error the received content stays for the next try. ABORTED when a file changed
// meanwhile.
absl::StatusOr<Pulled> PullTree(const TransferStream& stream, const PullSubject& subject,
                                const std::string& parent, Clock& clock,
                                const TransferOptions& options);

// Publishes a pulled directory as the new directory `to`. ALREADY_EXISTS when `to` exists.
absl::Status PublishPulled(TreeBuilder& tree, const std::string& to);
// Moves everything pulled into the directory `to`, which may have some of it, file by file with
// rename. FAILED_PRECONDITION when a directory is in the place of a file, or a file in the place of
// a directory.
absl::Status MergePulled(TreeBuilder& tree, const std::string& to);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PULL_H_

// Files of a job brought to the laptop.
#ifndef GPUCTL_CLIENT_RESULTS_PULL_FILES_H_
#define GPUCTL_CLIENT_RESULTS_PULL_FILES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/transfer/tree_transfer.h"
#include "common/transfer/transfer.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// `path`, which exists, without symlinks and relative components.
absl::StatusOr<std::string> AbsolutePath(const std::string& path);

// The directory that results go to when the user names none: what was brought home must not be sent
// back by the next launch, so it gets a .gpuctlignore. One that was there before belongs to the
// user and stays as it is.
absl::Status MakeOwnDestination(const std::string& to);

// Brings a checkpoint into `to`/<its name>, verified: the trainer's against its own manifest, those
// of scripts against the hashes of what the node had when it was asked. It appears by rename,
// whole, and is recorded for `row`. True when it was brought, false when a verified one was there
// already. DATA_LOSS when content does not match; what is there is then kept as it is. ABORTED when
// the node's files are no longer those that `checkpoint` names: somebody writes there again.
// FAILED_PRECONDITION when something else is at its place, such as another run's checkpoint: one
// replaces only its own older content that nobody has touched.
absl::StatusOr<bool> PullCheckpoint(CommandContext& context, LinkFactory& links, const RunRow& row,
                                    const gpuctl::v1::CheckpointInfo& checkpoint,
                                    const std::string& to, const TransferStyle& style);

// Publishes a pulled file or directory as the new `target`.
absl::Status PublishNew(const Pulled& pulled, const std::string& target);

// Records files of the work directory that were brought to the same places below `to`.
absl::Status RecordPulledFiles(CommandContext& context, const RunRow& row, const Manifest& manifest,
                               const std::string& to);

// Records a checkpoint that was brought to `target` in another way, by what it holds there.
absl::Status RecordPulled(CommandContext& context, const RunRow& row,
                          const gpuctl::v1::CheckpointInfo& checkpoint, const std::string& target);

// Brings the files of the work directory that `artifacts` names to the same places below `to`, each
// replacing an older copy by rename; content that is there already is not sent.
absl::StatusOr<TransferCount> PullFiles(CommandContext& context, LinkFactory& links,
                                        const RunRow& row,
                                        const std::vector<gpuctl::v1::Artifact>& artifacts,
                                        const std::string& to, const TransferStyle& style);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_PULL_FILES_H_

// Files of a job brought to the laptop.
#ifndef GPUCTL_CLIENT_PULL_RUN_H_
#define GPUCTL_CLIENT_PULL_RUN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link.h"
#include "common/transfer.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Brings a checkpoint into `to`/<its name> and verifies each file against the checkpoint's own
// manifest. It appears by rename, whole. True when it was brought, false when a verified one was
// there already. DATA_LOSS when content does not match; what is there is then kept as it is.
absl::StatusOr<bool> PullCheckpoint(LinkFactory& links, const std::string& job_id,
                                    const gpuctl::v1::CheckpointInfo& checkpoint,
                                    const std::string& to, const TransferProgress& progress);

// Brings the file `artifact` of the work directory to the same place below `to`, replacing an older
// copy by rename.
absl::Status PullFile(LinkFactory& links, const std::string& job_id,
                      const gpuctl::v1::Artifact& artifact, const std::string& to,
                      const TransferProgress& progress);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PULL_RUN_H_

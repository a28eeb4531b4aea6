// The copy of an allocation's jobs on a cluster's shared file system, as its reader finds it.
//
// DIRECTORY/                     made on the login node by the client, one for each lease
//   token                        what the batch script's environment has, too
//   JOB-RESTART/                 made by the node: one for each start of the allocation
//     node_id  jobs/  node/telemetry/   as in a node's root (ARCHITECTURE.md), without locks and
//     FIFOs jobs/ID/kept.json          {"whole":…,"files":…,"bytes":…,"error":…}; whole: all was
//     copied end.json                   {"whole":…}: the holder has ended, and all was copied that
//     there was tmp/                       what is being copied
#ifndef GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_
#define GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The names of files in a copy.
inline constexpr char kKeptEndFile[] = "end.json";
inline constexpr char kKeptTmp[] = "tmp";

// Returns the copy of the newest start of the allocation in a lease's directory. NOT_FOUND when
// none of its nodes has kept anything there.
absl::StatusOr<std::string> NewestCopy(const std::string& directory);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HOLD_KEPT_LAYOUT_H_

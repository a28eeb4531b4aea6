// The modification times of a tree's files, which manifests do not have.
#ifndef GPUCTL_COMMON_TRANSFER_PULL_TIMES_H_
#define GPUCTL_COMMON_TRANSFER_PULL_TIMES_H_

#include "common/tree/tree_builder.h"

namespace gpuctl {

// Moves the modification times of files out of a manifest that came from a peer, so that it can be
// compared with manifests of trees here. Returns one for each entry, 0 for none.
std::vector<int64_t> TakeTimes(Manifest& manifest);

// Gives the files of a finished tree those times where they are not 0, as far as it can.
void SetTimes(const TreeBuilder& tree, const std::vector<int64_t>& times);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PULL_TIMES_H_

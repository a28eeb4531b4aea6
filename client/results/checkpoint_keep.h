// Which checkpoints come home next and which may go. Pure but for a look at the disk.
#ifndef GPUCTL_CLIENT_RESULTS_CHECKPOINT_KEEP_H_
#define GPUCTL_CLIENT_RESULTS_CHECKPOINT_KEEP_H_

#include <functional>
#include <string>
#include <vector>

#include "client/results/pulled_record.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The newest of `listed` (oldest first) that is wanted, among its newest `keep`, or among all when
// `keep` is 0; null when there is none.
const gpuctl::v1::CheckpointInfo* NextToBring(
    const std::vector<gpuctl::v1::CheckpointInfo>& listed, int keep,
    const std::function<bool(const gpuctl::v1::CheckpointInfo&)>& wanted);

// Whether `checkpoint`, with the content the node has now, was brought to `path` and is still
// there. What the user has done to it since does not matter: it is his.
bool IsHome(const std::vector<PulledItem>& items, const gpuctl::v1::CheckpointInfo& checkpoint,
            const std::string& path);

// Of the checkpoints below `to` (absolute) that are there, those beyond the newest `keep` that pull
// itself made and nobody has touched since. Never the newest; none when `keep` is 0.
std::vector<PulledItem> ToRemove(const std::vector<PulledItem>& items, const std::string& to,
                                 int keep);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_CHECKPOINT_KEEP_H_

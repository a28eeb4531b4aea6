// Chooses which checkpoint to download next and which to remove. Pure but for a look at the disk.
#ifndef GPUCTL_CLIENT_HOME_CHECKPOINT_KEEP_H_
#define GPUCTL_CLIENT_HOME_CHECKPOINT_KEEP_H_

#include <functional>
#include <string>
#include <vector>

#include "client/runs/pulled_record.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the newest of `listed` (oldest first) that is wanted, among its newest `keep`, or among
// all when `keep` is 0; null when there is none.
const gpuctl::v1::CheckpointInfo* NextToBring(
    const std::vector<gpuctl::v1::CheckpointInfo>& listed, int keep,
    const std::function<bool(const gpuctl::v1::CheckpointInfo&)>& wanted);

// True when `checkpoint`, with the node's current content, was downloaded to `path` and still
// exists. Changes by the user do not matter: it is his copy.
bool IsHome(const std::vector<PulledItem>& items, const gpuctl::v1::CheckpointInfo& checkpoint,
            const std::string& path);

// Returns the checkpoints among `items`, newest first, in the order in which the node lists them:
// the trainer's by step, foreign ones by the node's time. The order of their downloads does not
// matter, because a watching pull takes the newest first.
std::vector<PulledItem> NewestFirst(const std::vector<PulledItem>& items);

// Returns the checkpoints below `to` (absolute) that exist, are not among the newest `keep`, were
// made by pull and are unchanged since. Never the newest; none when `keep` is 0.
std::vector<PulledItem> ToRemove(const std::vector<PulledItem>& items, const std::string& to,
                                 int keep);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_HOME_CHECKPOINT_KEEP_H_

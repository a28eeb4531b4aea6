// Checks of a node's list of results against what was asked for.
#ifndef GPUCTL_CLIENT_NODE_LISTING_H_
#define GPUCTL_CLIENT_NODE_LISTING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Checks that a node's list names only what was asked for: files below work/ that match `pattern`
// (when it is empty, files below ckpt/), checkpoints of the trainer, and others that match one of
// `checkpoint_patterns`. Their names at home decide where pull writes, so it sets each name itself,
// as an agent does. Checkpoints of scripts that would share a name get their paths as names.
// DATA_LOSS names what nobody asked for.
absl::Status CheckListing(const std::string& pattern,
                          const std::vector<std::string>& checkpoint_patterns,
                          gpuctl::v1::ListArtifactsReply& reply);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_LISTING_H_

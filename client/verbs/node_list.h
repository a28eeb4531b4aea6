// The programs for nodes as `gpuctl node` lists them and doctor checks them.
#ifndef GPUCTL_CLIENT_VERBS_NODE_LIST_H_
#define GPUCTL_CLIENT_VERBS_NODE_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/programs/node_programs.h"

namespace gpuctl {

struct ListedPrograms {
  NodePlatform platform = NodePlatform::kLinuxX86_64;
  std::string version;  // "" when it is not known: an own build for another platform
  std::optional<int> api_level;
  int64_t bytes = 0;  // of the programs and the roots together
  std::string dir;
  bool fetched = false;
  bool has_cuda_check = false;
  bool has_manifest = false;
  absl::Status match;  // the difference to the manifest; OK without one
};

// Returns the programs by platform. Reads all their files, and asks those of this machine's
// platform for their version where no manifest says it.
std::vector<ListedPrograms> ListNodePrograms(const NodePrograms& programs);

// Returns the platforms of Linux for which `programs` has none.
std::vector<NodePlatform> MissingPlatforms(const NodePrograms& programs);

// Returns "0.1.0, api level 2"; "" when neither is known.
std::string DescribeVersion(const ListedPrograms& programs);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_NODE_LIST_H_

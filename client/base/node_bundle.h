// The programs that a node gets: agent, shim and root certificates.
#ifndef GPUCTL_CLIENT_BASE_NODE_BUNDLE_H_
#define GPUCTL_CLIENT_BASE_NODE_BUNDLE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gpuctl {

struct Bundle {
  std::string agent_path;
  std::string shim_path;
  std::string agent_sha256;
  std::string shim_sha256;
  // Root certificates that the node may trust; "" when the laptop has none beside the agent.
  std::string roots_path;
  std::string roots_sha256;
  std::string digest;   // names the directory on the node
  int64_t version = 0;  // time of the newer file, Unix seconds: a later build replaces an older
};

// Reads the two files. Caches their hashes in `cache_file` by path, inode, size and times.
absl::StatusOr<Bundle> DescribeBundle(const std::string& agent_path, const std::string& shim_path,
                                      const std::string& cache_file);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_NODE_BUNDLE_H_

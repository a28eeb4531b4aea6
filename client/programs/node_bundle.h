// The programs that a node gets: agent, shim and root certificates, for its platform.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_BUNDLE_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_BUNDLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "client/programs/node_programs.h"

namespace gpuctl {

struct Bundle {
  NodePlatform platform = NodePlatform::kLinuxX86_64;
  std::string agent_path;
  std::string shim_path;
  std::string agent_sha256;
  std::string shim_sha256;
  // Root certificates that the node may trust; "" when the laptop has none beside the agent.
  std::string roots_path;
  std::string roots_sha256;
  std::string digest;  // names the directory on the node
  // Unix seconds; a later build replaces an older one. The time of the release's commit, so that
  // all clients of a release say the same; for own builds, and for files that are not those of the
  // manifest, the time of the newer file.
  int64_t version = 0;
};

// Reads the files of `programs`. Caches their hashes in `cache_file` by path, inode, size and
// times. FAILED_PRECONDITION when fetched programs are not what their manifest says.
absl::StatusOr<Bundle> DescribeBundle(const PlatformPrograms& programs,
                                      const std::string& cache_file);

// Reads all files of `programs`. FAILED_PRECONDITION, with the digests of the first that differs,
// when they are not what their manifest says. OK without a manifest.
absl::Status CheckPrograms(const PlatformPrograms& programs);

// Returns the path of the platform's gpuctl-cuda-check; "" when there is none. FAILED_PRECONDITION
// when it was fetched and is not what its manifest says.
absl::StatusOr<std::string> CudaCheckOf(const PlatformPrograms& programs);

// The bundles that can be delivered, one for each platform; each is described when it is first
// asked for. For one thread at a time.
class NodeBundles {
 public:
  // Hashes are cached in <state_dir>/ssh/bundle-hashes-<platform>.
  NodeBundles(NodePrograms programs, std::string state_dir)
      : programs_(std::move(programs)), state_dir_(std::move(state_dir)) {}

  // Returns the bundle for `platform`. The error of NodePrograms::Missing when there is none;
  // FAILED_PRECONDITION when its programs are fetched and not those of the release.
  absl::StatusOr<Bundle> For(NodePlatform platform);
  const NodePrograms& programs() const { return programs_; }

 private:
  const NodePrograms programs_;
  const std::string state_dir_;
  std::map<NodePlatform, absl::StatusOr<Bundle>> known_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_BUNDLE_H_

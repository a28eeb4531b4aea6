// manifest.json of a release: the sizes and digests of the programs for nodes, for each platform.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_MANIFEST_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_MANIFEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/programs/node_platform.h"

namespace gpuctl {

// The names of the programs of a platform, in the order in which lists show them.
inline constexpr const char* kNodeProgramNames[] = {"gpuctl-agent", "gpuctl-shim",
                                                    "gpuctl-cuda-check"};

struct NodeManifest {
  struct File {
    std::string sha256;
    int64_t size = 0;
  };
  struct Platform {
    std::string archive;                // the name of the release archive
    std::string sha256;                 // of the archive
    int64_t size = 0;                   // of the archive
    std::map<std::string, File> files;  // by name
  };
  std::string version;
  int api_level = 0;
  int64_t commit_time_s = 0;  // Unix seconds
  std::map<NodePlatform, Platform> platforms;
  std::string roots_sha256;  // of roots.pem; "" when the manifest does not say

  const Platform* For(NodePlatform platform) const;
};

// Parses manifest.json. DATA_LOSS when it is none: a digest that is no SHA-256 in hex, a missing
// program, an archive's name with a path. Platforms that this gpuctl does not know are skipped.
absl::StatusOr<NodeManifest> ParseNodeManifest(absl::string_view json);

// Returns the manifest that this gpuctl was built with (GPUCTL_NODE_MANIFEST); nothing for a build
// without one.
const std::optional<NodeManifest>& BuiltInManifest();

// Returns the address below which the archives of this release are, with a slash at its end:
// $GPUCTL_NODE_URL, else what gpuctl was built with (GPUCTL_NODE_URL of CMake); "" when there is
// neither.
std::string ReleaseAddress();

// Returns this gpuctl's version: the name of the folder of its fetched programs.
std::string ClientVersion();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_MANIFEST_H_

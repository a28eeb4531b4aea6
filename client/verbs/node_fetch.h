// gpuctl node fetch: brings the programs for nodes of a platform into the cache.
#ifndef GPUCTL_CLIENT_VERBS_NODE_FETCH_H_
#define GPUCTL_CLIENT_VERBS_NODE_FETCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/programs/node_manifest.h"
#include "client/programs/node_platform.h"
#include "provisioning/http/http.h"

namespace gpuctl {

// The most that an archive may have.
constexpr int64_t kMostArchiveBytes = int64_t{64} << 20;

struct FetchOptions {
  // A file, a folder of archives, an https address, or one of this computer; an address that ends
  // with a slash is that of a folder. "": the release's address.
  std::string from;
  std::string into;                      // <cache>/node/<version>
  std::optional<NodeManifest> manifest;  // what must come; absent: whatever `from` has
  std::string version;                   // of the archive, where no manifest names it
  std::function<std::unique_ptr<Http>()> http;
};

struct Fetched {
  std::string dir;        // the folder of the programs
  std::string from;       // the file or address
  int64_t bytes = 0;      // of the archive
  bool verified = false;  // against a manifest
};

// Returns the file or address of the archive for `platform`. INVALID_ARGUMENT for an address that
// is neither https nor of this computer; FAILED_PRECONDITION when there is no release address.
absl::StatusOr<std::string> ArchivePlace(const FetchOptions& options, NodePlatform platform);

// Reads the archive of `platform`, compares it with the manifest, and puts its programs into
// <into>/<platform>, in one step. DATA_LOSS when it is not what the manifest says.
absl::StatusOr<Fetched> FetchNodePrograms(const FetchOptions& options, NodePlatform platform);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_NODE_FETCH_H_

#include "client/base/node_bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/tree/hash_cache.h"

namespace gpuctl {
namespace {

// Returns the file's hash, from the cache under `key` or computed; `modified_s` gets its time. The
// cache needs the keys in their order.
absl::StatusOr<std::string> HashOf(const std::string& path, absl::string_view key, HashCache& cache,
                                   int64_t& modified_s) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  modified_s = info.st_mtime;
  const FileIdentity identity = FileIdentity::Of(info);
  // The hash of the whole file, as the agent's own sha256 command prints it.
  std::optional<HashCache::Hashes> known = cache.Find(key, identity);
  if (!known.has_value()) {
    ASSIGN_OR_RETURN(const std::string hex, Sha256HexOfFile(path));
    known = HashCache::Hashes{absl::HexStringToBytes(hex), ""};
  }
  cache.Keep(key, identity, *known);
  return absl::BytesToHexString(known->sha256);
}

}  // namespace

absl::StatusOr<Bundle> DescribeBundle(const std::string& agent_path, const std::string& shim_path,
                                      const std::string& cache_file) {
  Bundle bundle;
  bundle.agent_path = agent_path;
  bundle.shim_path = shim_path;
  HashCache cache(cache_file, Clock::Real());
  int64_t agent_time = 0;
  int64_t shim_time = 0;
  ASSIGN_OR_RETURN(bundle.agent_sha256, HashOf(agent_path, "agent", cache, agent_time));
  if (const std::string roots = JoinPath(DirName(agent_path), "roots.pem"); PathExists(roots)) {
    int64_t roots_time = 0;
    bundle.roots_path = roots;
    ASSIGN_OR_RETURN(bundle.roots_sha256, HashOf(roots, "roots", cache, roots_time));
  }
  ASSIGN_OR_RETURN(bundle.shim_sha256, HashOf(shim_path, "shim", cache, shim_time));
  bundle.version = std::max(agent_time, shim_time);
  // Only a cache: when it cannot be written the files are hashed again next time.
  (void)MakeDirectories(DirName(cache_file));
  (void)cache.Save();
  bundle.digest =
      Sha256HexOf(absl::StrCat(bundle.agent_sha256, " ", bundle.shim_sha256,
                               bundle.roots_sha256.empty() ? "" : " ", bundle.roots_sha256))
          .substr(0, 32);
  return bundle;
}

}  // namespace gpuctl

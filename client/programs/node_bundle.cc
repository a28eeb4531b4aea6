#include "client/programs/node_bundle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
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

// Compares the programs' hashes, by name, with their manifest. OK without a manifest.
absl::Status CheckHashes(const PlatformPrograms& programs,
                         const std::map<std::string, std::string>& hashes) {
  if (!programs.manifest.has_value()) return absl::OkStatus();
  const NodeManifest::Platform* const made = programs.manifest->For(programs.platform);
  for (const auto& [name, sha256] : hashes) {
    const auto file = made->files.find(name);
    if (file == made->files.end() || file->second.sha256 == sha256) continue;
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            PlatformName(programs.platform), " in ", programs.dir,
            " is not what this gpuctl was made with (", name, ": sha256 ", sha256.substr(0, 12),
            "…, made with ", file->second.sha256.substr(0, 12), "…)")),
        FetchHint({programs.platform}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Bundle> DescribeBundle(const PlatformPrograms& programs,
                                      const std::string& cache_file) {
  Bundle bundle;
  bundle.platform = programs.platform;
  bundle.agent_path = programs.agent;
  bundle.shim_path = programs.shim;
  HashCache cache(cache_file, Clock::Real());
  int64_t agent_time = 0;
  int64_t shim_time = 0;
  ASSIGN_OR_RETURN(bundle.agent_sha256, HashOf(programs.agent, "agent", cache, agent_time));
  if (!programs.roots.empty()) {
    int64_t roots_time = 0;
    bundle.roots_path = programs.roots;
    ASSIGN_OR_RETURN(bundle.roots_sha256, HashOf(programs.roots, "roots", cache, roots_time));
  }
  ASSIGN_OR_RETURN(bundle.shim_sha256, HashOf(programs.shim, "shim", cache, shim_time));
  const absl::Status same = CheckHashes(
      programs, {{"gpuctl-agent", bundle.agent_sha256}, {"gpuctl-shim", bundle.shim_sha256}});
  if (programs.fetched && !same.ok()) return same;
  bundle.version = programs.manifest.has_value() && same.ok() ? programs.manifest->commit_time_s
                                                              : std::max(agent_time, shim_time);
  // Only a cache: when it cannot be written the files are hashed again next time.
  (void)MakeDirectories(DirName(cache_file));
  (void)cache.Save();
  bundle.digest =
      Sha256HexOf(absl::StrCat(bundle.agent_sha256, " ", bundle.shim_sha256,
                               bundle.roots_sha256.empty() ? "" : " ", bundle.roots_sha256))
          .substr(0, 32);
  return bundle;
}

absl::Status CheckPrograms(const PlatformPrograms& programs) {
  if (!programs.manifest.has_value()) return absl::OkStatus();
  for (const std::string& path : {programs.agent, programs.shim, programs.cuda_check}) {
    if (path.empty()) continue;
    ASSIGN_OR_RETURN(const std::string sha256, Sha256HexOfFile(path));
    RETURN_IF_ERROR(CheckHashes(programs, {{BaseName(path), sha256}}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CudaCheckOf(const PlatformPrograms& programs) {
  if (programs.cuda_check.empty() || !programs.fetched) return programs.cuda_check;
  ASSIGN_OR_RETURN(const std::string sha256, Sha256HexOfFile(programs.cuda_check));
  RETURN_IF_ERROR(CheckHashes(programs, {{"gpuctl-cuda-check", sha256}}));
  return programs.cuda_check;
}

absl::StatusOr<Bundle> NodeBundles::For(NodePlatform platform) {
  const auto known = known_.find(platform);
  if (known != known_.end()) return known->second;
  const PlatformPrograms* const programs = programs_.For(platform);
  absl::StatusOr<Bundle> bundle =
      programs == nullptr
          ? absl::StatusOr<Bundle>(programs_.Missing(platform))
          : DescribeBundle(*programs, JoinPath(state_dir_, absl::StrCat("ssh/bundle-hashes-",
                                                                        PlatformName(platform))));
  known_.emplace(platform, bundle);
  return bundle;
}

}  // namespace gpuctl

// The paths of gpuctl's files on the laptop, and of the programs that it delivers.
#ifndef GPUCTL_CLIENT_BASE_PATHS_H_
#define GPUCTL_CLIENT_BASE_PATHS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// XDG directories on every system. GPUCTL_STATE_DIR, GPUCTL_CONFIG_DIR and GPUCTL_CACHE_DIR
// override them.
struct ClientPaths {
  std::string state_dir;   // ~/.local/state/gpuctl
  std::string config_dir;  // ~/.config/gpuctl
  std::string cache_dir;   // ~/.cache/gpuctl

  // Reads the environment, creates nothing. FAILED_PRECONDITION when neither $HOME nor the
  // overrides are set.
  static absl::StatusOr<ClientPaths> FromEnvironment();

  std::string database() const;  // state.db
  std::string MirrorDir(absl::string_view run_id) const;
  std::string hash_cache() const;
  // Return the file with the hashes of the work directory, or of the data tree, at `root`.
  std::string WorkdirHashes(const std::string& root) const;
  std::string DataHashes(const std::string& root) const;
  // Returns the folder of the rows of text that were prepared for the trainer under `key`.
  std::string PreparedRows(absl::string_view key) const;
  // Returns the path of gpuctl's own private key, for machines that it rents; made at first use.
  std::string own_key() const;
};

// Paths of the trainer beside this executable or in <prefix>/libexec/gpuctl; "" for a missing one.
struct BundlePaths {
  std::string trainer;
  std::string trainer_kit;      // <prefix>/share/gpuctl/trainer-kit: the trainer made for sending
  std::string trainer_sources;  // trainer-src: for nodes that compile it

  static BundlePaths Find();
};

// Returns the running executable's own path, symlinks resolved.
std::string ExecutablePath();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_PATHS_H_

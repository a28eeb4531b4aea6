#include "client/base/paths.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Ignores relative paths in XDG's variables, as its specification demands.
absl::StatusOr<std::string> XdgDirectory(const char* override_name, const char* xdg_name,
                                         absl::string_view below_home) {
  if (const std::string path = Environment(override_name); !path.empty()) return path;
  if (const std::string path = Environment(xdg_name); !path.empty() && path[0] == '/') {
    return JoinPath(path, "gpuctl");
  }
  const std::string home = Environment("HOME");
  if (home.empty()) {
    return WithHint(absl::FailedPreconditionError("find gpuctl's files: HOME is not set"),
                    absl::StrCat("export HOME, or ", override_name));
  }
  return JoinPath(JoinPath(home, below_home), "gpuctl");
}

std::string FindProgram(const std::string& name, const std::string& bin_dir) {
  for (const std::string& dir : {bin_dir, JoinPath(DirName(bin_dir), "libexec/gpuctl")}) {
    const std::string path = JoinPath(dir, name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

std::string FindSources(const std::string& bin_dir) {
  for (const std::string& dir : {bin_dir, JoinPath(DirName(bin_dir), "libexec/gpuctl")}) {
    const std::string path = JoinPath(dir, "trainer-src");
    if (PathExists(JoinPath(path, "build.sh"))) return path;
  }
  return "";
}

}  // namespace

absl::StatusOr<ClientPaths> ClientPaths::FromEnvironment() {
  ClientPaths paths;
  ASSIGN_OR_RETURN(paths.state_dir,
                   XdgDirectory("GPUCTL_STATE_DIR", "XDG_STATE_HOME", ".local/state"));
  ASSIGN_OR_RETURN(paths.config_dir,
                   XdgDirectory("GPUCTL_CONFIG_DIR", "XDG_CONFIG_HOME", ".config"));
  ASSIGN_OR_RETURN(paths.cache_dir, XdgDirectory("GPUCTL_CACHE_DIR", "XDG_CACHE_HOME", ".cache"));
  return paths;
}

std::string ClientPaths::database() const { return JoinPath(state_dir, "state.db"); }

std::string ClientPaths::MirrorDir(absl::string_view run_id) const {
  return JoinPath(JoinPath(state_dir, "runs"), run_id);
}

std::string ClientPaths::hash_cache() const { return JoinPath(cache_dir, "hashes"); }

std::string ClientPaths::WorkdirHashes(const std::string& root) const {
  return JoinPath(hash_cache(), Sha256HexOf(root).substr(0, 24));
}

std::string ClientPaths::DataHashes(const std::string& root) const {
  return JoinPath(hash_cache(), absl::StrCat("data-", Sha256HexOf(root).substr(0, 24)));
}

std::string ClientPaths::PreparedRows(absl::string_view key) const {
  return JoinPath(JoinPath(state_dir, "prepared"), key);
}

std::string ClientPaths::own_key() const { return JoinPath(state_dir, "ssh/id_ed25519"); }

BundlePaths BundlePaths::Find() {
  const std::string bin_dir = DirName(ExecutablePath());
  BundlePaths paths;
  paths.trainer = FindProgram("gpuctl-trainer", bin_dir);
  paths.trainer_sources = FindSources(bin_dir);
  const std::string kit = JoinPath(DirName(bin_dir), "share/gpuctl/trainer-kit");
  if (IsDirectory(kit)) paths.trainer_kit = kit;
  return paths;
}

std::string ExecutablePath() {
  char buffer[PATH_MAX];
#ifdef __APPLE__
  uint32_t size = sizeof(buffer);
  if (_NSGetExecutablePath(buffer, &size) != 0) return "";
#else
  const ssize_t length = readlink("/proc/self/exe", buffer, sizeof(buffer) - 1);
  if (length < 0) return "";
  buffer[length] = '\0';
#endif
  char resolved[PATH_MAX];
  return realpath(buffer, resolved) == nullptr ? buffer : resolved;
}

}  // namespace gpuctl

#include "client/cluster/allocation_ssh.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/allocation_step.h"
#include "client/link/ssh_session.h"
#include "client/programs/node_scripts.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// kServeSshWord of agent/ssh/serve_ssh.h.
constexpr char kWord[] = "GPUCTL-SERVE-SSH";
constexpr char kAlias[] = "gpuctl-allocation";
constexpr int64_t kMaxKey = 16 << 10;

}  // namespace

bool IsAllocationTarget(const NodeTarget& target) {
  return target.provider == kClusterProvider &&
         absl::StartsWith(target.name, absl::StrCat(kClusterProvider, "/"));
}

absl::StatusOr<AllocationSsh> PrepareAllocationSsh(const std::string& state_dir) {
  const std::string directory = JoinPath(state_dir, "ssh/allocation");
  AllocationSsh ssh;
  ssh.identity_file = JoinPath(directory, "client_key");
  ssh.known_hosts = JoinPath(directory, "known_hosts");
  ssh.host_key_alias = kAlias;
  const std::string host_key = JoinPath(directory, "host_key");
  RETURN_IF_ERROR(MakeDirectories(directory, 0700));
  ASSIGN_OR_RETURN(std::string server, EnsureKeyPair(host_key, "gpuctl-allocation-host"));
  ASSIGN_OR_RETURN(std::string login, EnsureKeyPair(ssh.identity_file, "gpuctl-allocation-client"));
  ASSIGN_OR_RETURN(const std::string secret, ReadFileToString(host_key, kMaxKey));
  absl::StripAsciiWhitespace(&server);
  absl::StripAsciiWhitespace(&login);
  const std::string line = absl::StrCat(kAlias, " ", server, "\n");
  if (ReadFileToString(ssh.known_hosts, kMaxKey).value_or("") != line) {
    RETURN_IF_ERROR(WriteFileAtomic(ssh.known_hosts, line, 0600));
  }
  ssh.preface = absl::StrCat(kWord, " ", secret.size(), " ", login.size(), "\n", secret, login);
  return ssh;
}

std::string ServeSshScript() {
  return absl::StrCat("r=", RootWord(kHeldRoot),
                      "; exec \"$r/bin/current/gpuctl-agent\" serve-ssh --root \"$r\"");
}

std::string TrySshScript() {
  return absl::StrCat(
      "PATH=$PATH:/usr/sbin:/usr/local/sbin:/sbin; command -v sshd > /dev/null || "
      "exit ",
      kNoSshd);
}

}  // namespace gpuctl

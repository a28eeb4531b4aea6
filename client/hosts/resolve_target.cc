#include "client/hosts/resolve_target.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/run_program.h"
#include "client/hosts/ssh_config.h"
#include "client/spec/run_spec.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

// The name of this computer as a machine, also in `submit --host local`.
constexpr char kThisComputer[] = "local";

// Resolves the host with the user's own ssh configuration, as ssh itself does.
absl::StatusOr<SshHost> ResolveHost(const TargetFlags& flags) {
  absl::StatusOr<SshAddress> named = ParseSshDestination(flags.host);
  if (!named.ok())
    return UsageError(named.status().message(), "for example: --host ada@gpu.example:2222");
  if (flags.port != 0) named->port = flags.port;
  const std::string ssh = FindInPath("ssh");
  if (ssh.empty()) {
    const char* user = std::getenv("USER");
    if (named->user.empty() && user != nullptr) named->user = user;
    if (named->port == 0) named->port = 22;
    if (!flags.identity.empty()) named->identity_files = {flags.identity};
    SshHost host;
    host.address = *std::move(named);
    return host;
  }
  std::vector<std::string> argv = {ssh, "-G", "-T"};
  if (!named->user.empty()) argv.insert(argv.end(), {"-l", named->user});
  if (named->port != 0) argv.insert(argv.end(), {"-p", absl::StrCat(named->port)});
  if (!flags.identity.empty()) argv.insert(argv.end(), {"-i", flags.identity});
  argv.push_back(named->host);
  ASSIGN_OR_RETURN(const std::string text, OutputOf(argv));
  const char* home = std::getenv("HOME");
  return ParseSshConfig(text, home == nullptr ? "" : home);
}

absl::Status CheckTargetFlags(const TargetFlags& flags) {
  if (!flags.provider.empty()) {
    if (absl::Status status = CheckProviderName(flags.provider); !status.ok()) {
      return WithHint(status, "--provider local, or --host USER@HOST");
    }
  }
  if (IsRental(flags.provider)) {
    return UsageError(absl::StrCat("provider ", flags.provider,
                                   " rents machines out, and launch does not rent one yet"),
                      "--provider local, or --host USER@HOST; gpuctl offers lists what there is");
  }
  if (flags.provider == "ssh" && flags.host.empty()) {
    return UsageError("provider ssh needs a machine", "add --host USER@HOST");
  }
  if (flags.host == kThisComputer && (!flags.identity.empty() || flags.port != 0)) {
    return UsageError("--host local is this computer, and takes no -i and -p",
                      "--provider ssh --host local is a machine of that name");
  }
  if (flags.provider == "local" && !flags.host.empty() && flags.host != kThisComputer) {
    return UsageError("provider local is this machine and takes no --host",
                      "leave --provider away to use the host");
  }
  if (flags.host.empty() && (!flags.identity.empty() || flags.port != 0)) {
    return UsageError("-i and -p belong to --host", "add --host USER@HOST");
  }
  if (!flags.identity.empty() && access(flags.identity.c_str(), R_OK) != 0) {
    return UsageError(absl::StrCat("read the key ", flags.identity, ": no such readable file"),
                      "give the private key's file to -i");
  }
  return absl::OkStatus();
}

}  // namespace

std::string ExpandProxyCommand(const std::string& command, const NodeTarget& target) {
  std::string expanded;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] != '%' || i + 1 == command.size()) {
      expanded += command[i];
      continue;
    }
    switch (command[++i]) {
      case 'h':
        expanded += target.host;
        break;
      case 'p':
        absl::StrAppend(&expanded, target.port);
        break;
      case 'r':
        expanded += target.user;
        break;
      case '%':
        expanded += '%';
        break;
      default:
        expanded += '%';
        expanded += command[i];
    }
  }
  return expanded;
}

namespace {

// Returns the root of this computer's own node where HOME is a directory of the user's that is not
// the home directory of the account; else "". The node is started over ssh, which knows only the
// latter.
std::string RootBelowHome() {
  const char* const home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  struct stat info {};
  if (stat(home, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return "";
  const passwd* const account = getpwuid(geteuid());
  if (account == nullptr || account->pw_dir == nullptr) return "";
  struct stat of_account {};
  const bool same = stat(account->pw_dir, &of_account) == 0 && of_account.st_dev == info.st_dev &&
                    of_account.st_ino == info.st_ino;
  return same ? "" : JoinPath(home, ".gpuctl");
}

}  // namespace

absl::StatusOr<NodeTarget> ResolveTarget(const TargetFlags& flags) {
  RETURN_IF_ERROR(CheckTargetFlags(flags));
  NodeTarget target;
  if (const char* root = std::getenv("GPUCTL_NODE_ROOT"); root != nullptr) target.root = root;
  if (flags.host.empty() || (flags.host == kThisComputer && flags.provider != "ssh")) {
    target.provider = "local";
    target.name = "local";
    if (target.root.empty()) target.root = RootBelowHome();
    return target;
  }
  ASSIGN_OR_RETURN(const SshHost host, ResolveHost(flags));
  const SshAddress& address = host.address;
  target.provider = "ssh";
  target.name = SshName(address);
  target.host = address.host;
  target.port = address.port;
  target.user = address.user;
  target.host_key = host.host_key;
  target.identities_only = host.identities_only;
  for (const std::string& file : address.identity_files) {
    // ssh -G also names the usual files that do not exist.
    if (access(file.c_str(), R_OK) != 0) continue;
    // Later commands for this run may start in other directories.
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(file, error).string();
    target.identity_files.push_back(error ? file : absolute);
  }
  target.proxy_command = ExpandProxyCommand(address.proxy_command, target);
  return target;
}

}  // namespace gpuctl

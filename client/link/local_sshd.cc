#include "client/link/local_sshd.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/link/ssh_session.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

// The directory without which sshd refuses to start as root. Debian makes it only when the system's
// own sshd starts.
constexpr char kPrivilegeSeparationDir[] = "/run/sshd";

// Returns a path as one argument of sshd_config(5), which splits at spaces and, in the second of
// the two options below, interprets "%".
std::string Quoted(const std::string& path) {
  return absl::StrCat("\"", absl::StrReplaceAll(path, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

// Returns the option's arguments for a path. Since OpenSSH 10 sshd takes each as a pattern of
// glob(7), before it as a path; so a path for which that differs is given in both forms. A file
// that is not there does no harm.
std::string AuthorizedKeys(const std::string& path) {
  const std::string percent = absl::StrReplaceAll(path, {{"%", "%%"}});
  const std::string pattern =
      absl::StrReplaceAll(percent, {{"\\", "\\\\"}, {"*", "\\*"}, {"?", "\\?"}, {"[", "\\["}});
  if (pattern == percent) return Quoted(percent);
  return absl::StrCat(Quoted(percent), " ", Quoted(pattern));
}

std::string Config(const LocalSshd& sshd, const std::string& authorized_keys) {
  return absl::StrCat("HostKey ", Quoted(sshd.host_key_path), "\nAuthorizedKeysFile ",
                      AuthorizedKeys(authorized_keys),
                      "\nStrictModes no\nUsePAM no\nPubkeyAuthentication yes\n"
                      "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                      "PermitRootLogin prohibit-password\nPidFile none\nLogLevel ERROR\n"
                      "PrintMotd no\nPrintLastLog no\nUseDNS no\nX11Forwarding no\n"
                      "AllowTcpForwarding yes\nAllowAgentForwarding no\nPermitTunnel no\n"
                      "Subsystem sftp internal-sftp\n"
                      // bash reads ~/.bashrc for an ssh command unless SHLVL says that it is
                      // nested. pyenv and the like in there can take longer than the rest of a
                      // start.
                      "SetEnv SHLVL=1\n");
}

}  // namespace

std::string FindSshd() {
  for (const char* path : {"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd",
                           "/opt/homebrew/sbin/sshd", "/sbin/sshd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return "";
}

std::string CurrentUser() {
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : "";
}

absl::StatusOr<LocalSshd> PrepareLocalSshd(const std::string& dir) {
  if (FindSshd().empty()) {
    return absl::FailedPreconditionError("start the local sshd: sshd is not installed");
  }
  if (geteuid() == 0 && !IsDirectory(kPrivilegeSeparationDir)) {
    RETURN_IF_ERROR(MakeDirectories(kPrivilegeSeparationDir, 0755));
  }
  LocalSshd sshd{JoinPath(dir, "sshd_config"), JoinPath(dir, "client_key"),
                 JoinPath(dir, "host_key"), JoinPath(dir, "sshd.log")};
  RETURN_IF_ERROR(MakeDirectories(dir));
  RETURN_IF_ERROR(EnsureKeyPair(sshd.host_key_path, "gpuctl-local-host").status());
  ASSIGN_OR_RETURN(const std::string public_key,
                   EnsureKeyPair(sshd.identity_path, "gpuctl-local-client"));
  const std::string authorized_keys = JoinPath(dir, "authorized_keys");
  auto write_if_other = [](const std::string& path, const std::string& contents) {
    absl::StatusOr<std::string> old = ReadFileToString(path);
    if (old.ok() && *old == contents) return absl::OkStatus();
    return WriteFileAtomic(path, contents, 0600);
  };
  RETURN_IF_ERROR(write_if_other(authorized_keys, absl::StrCat(public_key, "\n")));
  RETURN_IF_ERROR(write_if_other(sshd.config_path, Config(sshd, authorized_keys)));
  return sshd;
}

absl::StatusOr<int> ServeLocalSshd(const LocalSshd& sshd, const UniqueFd& connection) {
  UniqueFd log(file_ops::Open(sshd.log_path, O_WRONLY | O_CREAT | O_APPEND, 0600));
  SpawnOptions options;
  options.argv = {FindSshd(), "-i", "-e", "-f", sshd.config_path};
  options.stdin_fd = connection.get();
  options.stdout_fd = connection.get();
  options.stderr_fd = log.get();
  options.new_session = true;  // a Ctrl-C at gpuctl's terminal must not reach it
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(options));
  return pid;
}

void ReapLater(pid_t pid) {
  static Mutex mutex;
  static auto* const children = new std::vector<pid_t>;
  MutexLock lock(mutex);
  children->erase(std::remove_if(children->begin(), children->end(),
                                 [](pid_t child) { return waitpid(child, nullptr, WNOHANG) != 0; }),
                  children->end());
  children->push_back(pid);
}

absl::StatusOr<UniqueFd> DialLocalSshd(const LocalSshd& sshd) {
  ASSIGN_OR_RETURN(FdPair ends, MakeSocketPair("start the local sshd"));
  ASSIGN_OR_RETURN(const int pid, ServeLocalSshd(sshd, ends.second));
  ReapLater(pid);
  return std::move(ends.first);
}

}  // namespace gpuctl

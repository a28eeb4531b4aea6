#include "client/reach/ssh_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/host_keys.h"
#include "client/base/known_hosts.h"
#include "client/base/run_program.h"
#include "client/base/shell_quote.h"
#include "client/cluster/allocation.h"
#include "client/cluster/allocation_ssh.h"
#include "client/link/local_sshd.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxWord = 120;
constexpr int64_t kForgetAfterMs = int64_t{7} * 24 * 3600 * 1000;
constexpr int64_t kMaxConfigBytes = 4 << 20;

std::string HostsDir(const ClientPaths& paths) { return JoinPath(paths.state_dir, "ssh/hosts"); }

// ssh's configuration has quotes, but versions differ in what a backslash, a dollar or a percent
// sign means in them.
absl::Status CheckPath(absl::string_view path) {
  for (const char c : path) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) ||
        absl::string_view("\"'\\$%*?[").find(c) != absl::string_view::npos) {
      return WithHint(absl::FailedPreconditionError(absl::StrCat(
                          "write ssh's configuration: it cannot hold the path ", path)),
                      "set GPUCTL_STATE_DIR to a path without quotes, $, %, * and the like");
    }
  }
  return absl::OkStatus();
}

// A market's answer has the user's name, so it may be anything.
absl::Status CheckUser(absl::string_view user) {
  bool good = !user.empty() && user.size() <= 64 && user[0] != '-';
  for (const char c : user) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                    absl::string_view("._-@+").find(c) != absl::string_view::npos);
  }
  if (good) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("write ssh's configuration: it cannot hold the user name \"", user, "\""));
}

absl::StatusOr<std::string> Quoted(const std::string& path) {
  RETURN_IF_ERROR(CheckPath(path));
  return absl::StrCat("\"", path, "\"");
}

// Returns a path of this program that an update keeps: the one in PATH where it leads here.
std::string OwnProgram() {
  const std::string own = ExecutablePath();
  const std::string in_path = FindInPath("gpuctl");
  const std::unique_ptr<char, void (*)(void*)> real(realpath(in_path.c_str(), nullptr), free);
  return real != nullptr && in_path[0] == '/' && own == real.get() ? in_path : own;
}

// Returns the command `gpuctl ssh <flag>` as a shell line. Programs that start ssh do not have the
// environment of the shell in which this gpuctl runs.
absl::StatusOr<std::string> OwnCommand(absl::string_view flag) {
  std::string line;
  for (const char* name : {"GPUCTL_STATE_DIR", "GPUCTL_CONFIG_DIR", "GPUCTL_CACHE_DIR"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    RETURN_IF_ERROR(CheckPath(value));
    absl::StrAppend(&line, line.empty() ? "env " : "", name, "=", ShellQuote(value), " ");
  }
  const std::string program = OwnProgram();
  RETURN_IF_ERROR(CheckPath(program));
  return absl::StrCat(line, ShellQuote(program), " ssh ", flag);
}

// True for a line after which the next lines are for some hosts only.
bool IsBlockBegin(absl::string_view line) {
  for (const char* word : {"host", "match"}) {
    const absl::string_view first = line.substr(0, line.find_first_of(" \t=\""));
    if (absl::EqualsIgnoreCase(first, word)) return true;
  }
  return false;
}

bool IsSymlink(const std::string& path) {
  struct stat file {};
  return lstat(path.c_str(), &file) == 0 && S_ISLNK(file.st_mode);
}

}  // namespace

bool IsSshWord(absl::string_view word) {
  if (word.empty() || word.size() > kMaxWord || word[0] == '.' || word[0] == '-') return false;
  for (const char c : word) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        absl::string_view("._-").find(c) == absl::string_view::npos) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<std::string> SshHostBlock(const ClientPaths& paths, absl::string_view word,
                                         const RunRow& row) {
  NodeTarget target = row.target;
  std::optional<AllocationSsh> allocation;
  if (IsAllocationTarget(target)) {
    ASSIGN_OR_RETURN(allocation, PrepareAllocationSsh(paths.state_dir));
    // The user's name there is that on the login node.
    ASSIGN_OR_RETURN(const NodeTarget login_node, TargetOfAllocation(target));
    target.user = login_node.user;
  }
  const std::string user = target.user.empty() ? CurrentUser() : target.user;
  if (!IsSshWord(word)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", word, "\" cannot be a host's name for ssh"));
  }
  RETURN_IF_ERROR(CheckUser(user));
  const bool local = target.provider == "local", users_own = target.provider == "ssh";
  std::vector<std::string> identities = target.identity_files;
  if (local) identities = {JoinPath(paths.state_dir, "ssh/local/client_key")};
  std::string known = HostKeyFile(JoinPath(paths.state_dir, kKnownHostsDir), PinName(target));
  std::string alias = KnownHostAlias(PinName(target));
  if (allocation.has_value()) {
    identities = {allocation->identity_file};
    known = allocation->known_hosts;
    alias = allocation->host_key_alias;
  }
  ASSIGN_OR_RETURN(const std::string known_hosts, Quoted(known));
  ASSIGN_OR_RETURN(const std::string proxy, OwnCommand("--stdio"));
  std::string text = absl::StrCat(
      "Host ", kSshHostPrefix, word, "\n  User ", user, "\n  ProxyCommand ", proxy, " ", row.run_id,
      "\n  HostKeyAlias ", alias, "\n  UserKnownHostsFile ", known_hosts,
      "\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  UpdateHostKeys no\n"
      "  CheckHostIP no\n  ServerAliveInterval 15\n  ServerAliveCountMax 4\n");
  for (const std::string& file : identities) {
    ASSIGN_OR_RETURN(const std::string quoted, Quoted(file));
    absl::StrAppend(&text, "  IdentityFile ", quoted, "\n");
  }
  // A rented machine learns nothing of the user's other keys.
  if (!users_own || target.identities_only) absl::StrAppend(&text, "  IdentitiesOnly yes\n");
  if (!users_own) absl::StrAppend(&text, "  ForwardAgent no\n  ForwardX11 no\n");
  return text;
}

absl::StatusOr<std::string> WriteSshHost(const ClientPaths& paths, absl::string_view word,
                                         const RunRow& row) {
  ASSIGN_OR_RETURN(const std::string text, SshHostBlock(paths, word, row));
  const std::string path = JoinPath(HostsDir(paths), word);
  const absl::StatusOr<std::string> there = ReadFileToString(path, kMaxConfigBytes);
  if (there.ok() && *there == text) {
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // it was used
    return path;
  }
  RETURN_IF_ERROR(MakeDirectories(HostsDir(paths)));
  RETURN_IF_ERROR(WriteFileAtomic(path, text, 0600));
  return path;
}

void ListSshHost(const ClientPaths& paths, const RunRow& row) {
  if (PathExists(SshIncludeFile(paths))) (void)WriteSshHost(paths, row.name, row);
}

void ForgetOldSshHosts(const ClientPaths& paths, int64_t now_ms) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(HostsDir(paths).c_str()), closedir);
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir.get())) {
    if (!IsSshWord(entry->d_name)) continue;
    const std::string path = JoinPath(HostsDir(paths), entry->d_name);
    struct stat file {};
    if (stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) &&
        int64_t{file.st_mtime} * 1000 < now_ms - kForgetAfterMs) {
      unlink(path.c_str());
    }
  }
}

std::string SshIncludeFile(const ClientPaths& paths) {
  return JoinPath(paths.state_dir, "ssh/config");
}

absl::Status WriteSshIncludeFile(const ClientPaths& paths) {
  ASSIGN_OR_RETURN(const std::string prepare, OwnCommand("--prepare"));
  const std::string dir = HostsDir(paths);
  RETURN_IF_ERROR(CheckPath(dir));
  RETURN_IF_ERROR(MakeDirectories(dir));
  // Older versions of ssh give a shell any name that a user, or a repository's address, asks for:
  // one with a quote does not match.
  const std::string text = absl::StrCat(
      "# Made by gpuctl ssh --setup. For a host gpuctl-RUN, ssh asks gpuctl where the run is.\n"
      "Match originalhost \"",
      kSshHostPrefix, "*,!*'*\" exec \"", prepare, " '%n'\"\n  Include \"", dir, "/*\"\n");
  return WriteFileAtomic(SshIncludeFile(paths), text, 0600);
}

absl::StatusOr<std::string> SshIncludeLine(const ClientPaths& paths) {
  const std::string file = SshIncludeFile(paths);
  RETURN_IF_ERROR(CheckPath(file));
  const bool plain = file.find(' ') == std::string::npos;
  return plain ? absl::StrCat("Include ", file) : absl::StrCat("Include \"", file, "\"");
}

bool HasLineInFront(const std::string& path, absl::string_view line) {
  const absl::StatusOr<std::string> text = ReadFileToString(path, kMaxConfigBytes);
  if (!text.ok()) return false;
  for (const absl::string_view there : absl::StrSplit(*text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(there);
    if (stripped == line) return true;
    if (IsBlockBegin(stripped)) return false;
  }
  return false;
}

absl::StatusOr<bool> AddLineInFront(const std::string& path, const std::string& line) {
  if (HasLineInFront(path, line)) return false;
  std::string target = path, before;
  mode_t mode = 0600;
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), free);
  if (real != nullptr) {
    target = real.get();
    struct stat file {};
    if (stat(target.c_str(), &file) == 0) mode = file.st_mode & 0777;
    ASSIGN_OR_RETURN(before, ReadFileToString(target, kMaxConfigBytes));
  } else if (errno != ENOENT || IsSymlink(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("read ", path, ": it cannot be opened, or is a symlink to nothing"));
  } else {
    RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  }
  RETURN_IF_ERROR(
      WriteFileAtomic(target, absl::StrCat(line, "\n", before.empty() ? "" : "\n", before), mode));
  return true;
}

bool KnowsPinnedKey(const ClientPaths& paths, const std::string& node) {
  const absl::StatusOr<std::string> pinned =
      ReadFileToString(HostKeyFile(JoinPath(paths.state_dir, "ssh/host-keys"), node), 4096);
  const absl::StatusOr<std::string> line =
      ReadFileToString(HostKeyFile(JoinPath(paths.state_dir, kKnownHostsDir), node), 64 << 10);
  if (!pinned.ok() || !line.ok()) return false;
  const std::vector<absl::string_view> words =
      absl::StrSplit(absl::StripAsciiWhitespace(*line), ' ');
  return words.size() == 3 && KeyFingerprint(words[2]) == absl::StripAsciiWhitespace(*pinned);
}

}  // namespace gpuctl

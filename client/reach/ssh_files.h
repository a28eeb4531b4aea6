// The configuration by which OpenSSH's own ssh, scp and all that uses them reach a run's machine
// under the name gpuctl-RUN. The way there is always `gpuctl ssh --stdio`, which knows the
// machine's newest address; OpenSSH logs in by itself, with the same keys, and accepts the pinned
// host key only.
#ifndef GPUCTL_CLIENT_REACH_SSH_FILES_H_
#define GPUCTL_CLIENT_REACH_SSH_FILES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/base/paths.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// Begins the names of runs in ssh's configuration.
inline constexpr char kSshHostPrefix[] = "gpuctl-";

// True when `word` may name a run there: a file has this name, and a shell sees it.
bool IsSshWord(absl::string_view word);

// Returns the block "Host gpuctl-<word>" for the run's machine. FAILED_PRECONDITION when a path has
// characters that ssh's configuration cannot hold.
absl::StatusOr<std::string> SshHostBlock(const ClientPaths& paths, absl::string_view word,
                                         const RunRow& row);
// Writes it to its file, a whole configuration by itself, and returns the file's path.
absl::StatusOr<std::string> WriteSshHost(const ClientPaths& paths, absl::string_view word,
                                         const RunRow& row);
// Does the same for the run's name where gpuctl ssh --setup was used, so that editors and shells
// that list the hosts know it before the first connection. Ignores errors.
void ListSshHost(const ClientPaths& paths, const RunRow& row);
// Removes the files of names that nobody used for long. Ignores errors.
void ForgetOldSshHosts(const ClientPaths& paths, int64_t now_ms);

// The file for the line "Include" of the user's configuration. It lets ssh ask gpuctl for the block
// of a host gpuctl-RUN at each connection.
std::string SshIncludeFile(const ClientPaths& paths);
absl::Status WriteSshIncludeFile(const ClientPaths& paths);
// Returns the line itself.
absl::StatusOr<std::string> SshIncludeLine(const ClientPaths& paths);

// Puts `line` in front of the file `path`, the user's own; it makes the file where there is none,
// and keeps its mode and its place behind a symlink. Returns false when HasLineInFront.
absl::StatusOr<bool> AddLineInFront(const std::string& path, const std::string& line);
// True when the file has the line where it counts for all hosts: before every Host and Match.
bool HasLineInFront(const std::string& path, absl::string_view line);

// True when the known_hosts file of `node` has the key that is pinned.
bool KnowsPinnedKey(const ClientPaths& paths, const std::string& node);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_REACH_SSH_FILES_H_

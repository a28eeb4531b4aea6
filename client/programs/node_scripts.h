// What a node's shell runs: which machine is it, what is there, and then the agent. Pure.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_SCRIPTS_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_SCRIPTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/programs/node_bundle.h"

namespace gpuctl {

// Returns the node's root as a shell word: `root` quoted, "$HOME/.gpuctl" when it is empty, and for
// kHeldRoot what a step in the allocation has.
std::string RootWord(const std::string& root);

// Returns a script (POSIX sh, and `test -O`) that becomes the bundle's agent with `arguments`,
// words of the shell, and the root. It exits with 126, and runs nothing, when the root, the bundle
// or a program in it belongs to another user; with 127 when there is no agent.
std::string AgentScript(const std::string& root, const Bundle& bundle, absl::string_view arguments);

// Returns a command line that runs `script` (POSIX sh) and that any login shell passes on
// unchanged.
std::string ShellCommand(const std::string& script);

// Returns a script (POSIX sh) that says, in lines which begin with `mark`, what the node is and
// which of `bundles` it has. It exits with 126 when a part of the root belongs to another user.
std::string LookScript(const std::string& root, const std::vector<Bundle>& bundles,
                       absl::string_view mark);

// What LookScript said.
struct NodeLook {
  std::string uname;                 // "Linux x86_64"; "" when it did not say
  std::vector<std::string> digests;  // of the bundles that are there
};
NodeLook ParseLook(absl::string_view said, absl::string_view mark);

// Returns the beginning of a script by which the agent in `partial`, a shell word, makes the rest
// of `bundle` out of stdin: the roots, if there are any, in so many bytes, and the packed shim. The
// script ends with kUnpacksNothing when the agent is too old for that, and with kUnpackFailed when
// the agent's message says why it could not.
std::string UnpackScript(const std::string& partial, const Bundle& bundle, size_t roots_bytes);
constexpr int kUnpacksNothing = 9;
constexpr int kUnpackFailed = 10;

// Returns a script by which the agent in `partial`, a shell word, hashes itself and the rest, so
// that the node needs no tool for it, prints that, and notes its API level. When the hashes are
// those of `bundle`, `publish` runs.
std::string CheckScript(const std::string& partial, const Bundle& bundle,
                        absl::string_view publish);
// True when CheckScript printed the hashes of `bundle`.
bool HasHashesOf(const Bundle& bundle, absl::string_view said);

// Returns the free space, in KiB, that `df -Pk` printed; nothing when it printed something else.
std::optional<int64_t> FreeKbOf(absl::string_view df);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_SCRIPTS_H_

#include "client/link/bundle_delivery.h"

#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/publish_script.h"
#include "client/programs/node_scripts.h"
#include "common/base/ids.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kStepTimeout = absl::Minutes(10);
// Free space, in KiB, below which a disk counts as full.
constexpr int64_t kFullBelowKb = 1024;

std::string LastLine(absl::string_view text) {
  text = absl::StripTrailingAsciiWhitespace(text);
  return std::string(text.substr(text.find_last_of('\n') + 1));
}

absl::Status CannotRun(absl::string_view message) {
  return WithFault(absl::FailedPreconditionError(message), LinkFault::kAgentCannotRun);
}

absl::StatusOr<std::string> RunScript(SshSession& session, const std::string& script,
                                      absl::string_view input) {
  ASSIGN_OR_RETURN(const SshSession::Result result,
                   session.RunToEnd(ShellCommand(script), input, kStepTimeout));
  if (result.exit_code != 0) {
    return CannotRun(
        absl::StrCat("deliver the agent: exit ", result.exit_code, ": ", LastLine(result.err)));
  }
  return result.out;
}

// Sends a file. `before` runs first, in the same round trip.
absl::Status DeliverFile(SshSession& session, const std::string& local_path,
                         const std::string& target_word, const std::string& before = "") {
  ASSIGN_OR_RETURN(const std::string contents, ReadFileToString(local_path, int64_t{256} << 20));
  const std::string script =
      absl::StrCat(before, "cat > ", target_word, " && chmod 700 ", target_word);
  return RunScript(session, script, contents).status();
}

// Sends the bundle's files; `partial` is the new directory's path on the node, as a shell word.
absl::Status DeliverFiles(SshSession& session, const std::string& partial, const Bundle& bundle) {
  RETURN_IF_ERROR(DeliverFile(session, bundle.shim_path, absl::StrCat(partial, "/gpuctl-shim"),
                              absl::StrCat("umask 077; mkdir -p ", partial, " && echo ",
                                           bundle.version, " > ", partial, "/version && ")));
  RETURN_IF_ERROR(DeliverFile(session, bundle.agent_path, absl::StrCat(partial, "/gpuctl-agent")));
  if (bundle.roots_path.empty()) return absl::OkStatus();
  return DeliverFile(session, bundle.roots_path, absl::StrCat(partial, "/roots.pem"));
}

// True when `df` on the node says that its root's disk is full. The messages of its shell and
// programs do not tell this: they are in the node's language.
bool IsFull(SshSession& session, const std::string& root) {
  const absl::StatusOr<std::string> said =
      RunScript(session, absl::StrCat("df -Pk ", RootWord(root)), "");
  if (!said.ok()) return false;
  const std::optional<int64_t> free_kb = FreeKbOf(*said);
  return free_kb.has_value() && *free_kb < kFullBelowKb;
}

// Sends the bundle into the new directory `partial`, a shell word, checks it and publishes it.
// `uname` is for messages.
absl::Status Install(SshSession& session, const std::string& root, const std::string& partial,
                     const Bundle& bundle, const std::string& uname) {
  if (const absl::Status status = DeliverFiles(session, partial, bundle); !status.ok()) {
    const bool full = FaultOf(status) == LinkFault::kAgentCannotRun && IsFull(session, root);
    return full ? WithFault(status, LinkFault::kNoRoomForAgent) : status;
  }
  // The agent hashes itself and the rest, so the node needs no tool for it. An agent that was
  // damaged on the way does not run or does not print its own hash.
  const absl::StatusOr<std::string> hashes = RunScript(session, HashScript(partial, bundle), "");
  if (!hashes.ok()) {
    return CannotRun(
        absl::StrCat("run the agent on the node (", uname, "): ", hashes.status().message()));
  }
  if (!HasHashesOf(bundle, *hashes)) {
    return WithFault(absl::DataLossError("deliver the agent: it arrived damaged"),
                     LinkFault::kAgentCannotRun);
  }
  const std::string final_dir = absl::StrCat(RootWord(root), "/bin/", bundle.digest);
  return RunScript(session, PublishScript(partial, final_dir), "").status();
}

}  // namespace

absl::StatusOr<Bundle> DeliverBundle(SshSession& session, const std::string& root,
                                     NodeBundles& bundles) {
  // A bundle that cannot be described matters only to a node that needs it.
  std::vector<Bundle> described;
  for (const NodePlatform platform : bundles.programs().platforms()) {
    absl::StatusOr<Bundle> bundle = bundles.For(platform);
    if (bundle.ok()) described.push_back(*std::move(bundle));
  }
  // No greeting of the node's shell contains it.
  const std::string mark = absl::StrCat("gpuctl-", RandomHex(8));
  ASSIGN_OR_RETURN(const std::string said,
                   RunScript(session, LookScript(root, described, mark), ""));
  const NodeLook look = ParseLook(said, mark);
  const absl::StatusOr<NodePlatform> platform = PlatformOfUname(look.uname);
  if (!platform.ok()) {
    return WithExitCode(WithHint(platform.status(), "use a machine with Linux on x86-64 or arm64"),
                        kExitUsage);
  }
  ASSIGN_OR_RETURN(const Bundle bundle, bundles.For(*platform));
  if (absl::c_linear_search(look.digests, bundle.digest)) return bundle;
  const std::string partial = absl::StrCat(RootWord(root), "/bin/.partial-", RandomHex(6));
  const absl::Status installed = Install(session, root, partial, bundle, look.uname);
  if (installed.ok()) return bundle;
  // No agent that could sweep it away may ever run there.
  (void)RunScript(session, absl::StrCat("rm -rf ", partial), "");
  return installed;
}

}  // namespace gpuctl

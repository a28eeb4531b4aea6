#include "client/link/bundle_delivery.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/base/publish_script.h"
#include "client/base/shell_quote.h"
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
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  return lines.empty() ? "" : lines.back();
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

absl::Status DeliverFile(SshSession& session, const std::string& local_path,
                         const std::string& target_word) {
  ASSIGN_OR_RETURN(const std::string contents, ReadFileToString(local_path, int64_t{256} << 20));
  return RunScript(session, absl::StrCat("cat > ", target_word, " && chmod 700 ", target_word),
                   contents)
      .status();
}

// Sends the bundle's files; `partial` is the new directory's path on the node, as a shell word.
absl::Status DeliverFiles(SshSession& session, const std::string& partial, const Bundle& bundle) {
  RETURN_IF_ERROR(RunScript(session,
                            absl::StrCat("umask 077; mkdir -p ", partial, " && echo ",
                                         bundle.version, " > ", partial, "/version"),
                            "")
                      .status());
  RETURN_IF_ERROR(DeliverFile(session, bundle.shim_path, absl::StrCat(partial, "/gpuctl-shim")));
  RETURN_IF_ERROR(DeliverFile(session, bundle.agent_path, absl::StrCat(partial, "/gpuctl-agent")));
  if (bundle.roots_path.empty()) return absl::OkStatus();
  return DeliverFile(session, bundle.roots_path, absl::StrCat(partial, "/roots.pem"));
}

// Returns the beginning of a script, which sets `r` to the root and `b` to the bundle's directory.
// It ends the script when a part of them belongs to another user, who could have put a program of
// his own there.
std::string CheckOwner(const std::string& root, const Bundle& bundle) {
  return absl::StrCat(
      "r=", RootWord(root), "; b=$r/bin/", bundle.digest,
      "; for p in \"$r\" \"$r/bin\" \"$b\" \"$b/gpuctl-agent\" \"$b/gpuctl-shim\"; do "
      "if [ -e \"$p\" ] && [ ! -O \"$p\" ]; then "
      "echo \"$p belongs to another user\" >&2; exit 126; fi; done; ");
}

// True when `df` on the node says that its root's disk is full. The messages of its shell and
// programs do not tell this: they are in the node's language.
bool IsFull(SshSession& session, const std::string& root) {
  const absl::StatusOr<std::string> said =
      RunScript(session, absl::StrCat("df -Pk ", RootWord(root)), "");
  if (!said.ok()) return false;
  const std::string line = LastLine(*said);
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  // "<device> <size> <used> <available> <used>% <mount point>"; the first and the last may contain
  // blanks.
  for (size_t i = 1; i < fields.size(); ++i) {
    int64_t available_kb = 0;
    if (absl::EndsWith(fields[i], "%") && absl::SimpleAtoi(fields[i - 1], &available_kb)) {
      return available_kb < kFullBelowKb;
    }
  }
  return false;
}

}  // namespace

std::string ShellCommand(const std::string& script) {
  return absl::StrCat("exec /bin/sh -c ", ShellQuote(script));
}

std::string RootWord(const std::string& root) {
  return root.empty() ? "\"$HOME/.gpuctl\"" : ShellQuote(root);
}

std::string AgentScript(const std::string& root, const Bundle& bundle,
                        absl::string_view arguments) {
  return absl::StrCat(CheckOwner(root, bundle), "exec \"$b/gpuctl-agent\" ", arguments,
                      " --root \"$r\"");
}

absl::Status DeliverBundle(SshSession& session, const std::string& root, const Bundle& bundle) {
  const std::string final_dir = absl::StrCat(RootWord(root), "/bin/", bundle.digest);
  const std::string partial = absl::StrCat(RootWord(root), "/bin/.partial-", RandomHex(6));
  absl::StatusOr<std::string> there =
      RunScript(session,
                absl::StrCat(CheckOwner(root, bundle),
                             // Nobody else puts anything below it from here on.
                             "if [ -d \"$r\" ]; then chmod go-rwx \"$r\"; fi; "
                             "test -x \"$b/gpuctl-agent\" && echo there || uname -sm"),
                "");
  if (!there.ok()) return there.status();
  if (absl::StrContains(*there, "there")) return absl::OkStatus();
  if (const absl::Status status = DeliverFiles(session, partial, bundle); !status.ok()) {
    const bool full = FaultOf(status) == LinkFault::kAgentCannotRun && IsFull(session, root);
    return full ? WithFault(status, LinkFault::kNoRoomForAgent) : status;
  }
  // The agent hashes itself and the rest, so the node needs no tool for it. An agent that was
  // damaged on the way does not run or does not print its own hash.
  absl::StatusOr<std::string> hashes = RunScript(
      session,
      absl::StrCat(
          "a=", partial,
          "; \"$a/gpuctl-agent\" sha256 \"$a/gpuctl-agent\" && "
          "\"$a/gpuctl-agent\" sha256 \"$a/gpuctl-shim\"",
          bundle.roots_path.empty() ? "" : " && \"$a/gpuctl-agent\" sha256 \"$a/roots.pem\"",
          // An agent without this command is older than API levels.
          " && { \"$a/gpuctl-agent\" api-level > \"$a/api_level\" 2> /dev/null || "
          "rm \"$a/api_level\"; }"),
      "");
  if (!hashes.ok()) {
    return CannotRun(absl::StrCat("run the agent on the node (", absl::StripAsciiWhitespace(*there),
                                  "): ", hashes.status().message()));
  }
  if (!absl::StrContains(*hashes, bundle.agent_sha256) ||
      !absl::StrContains(*hashes, bundle.shim_sha256) ||
      !absl::StrContains(*hashes, bundle.roots_sha256)) {
    return WithFault(absl::DataLossError("deliver the agent: it arrived damaged"),
                     LinkFault::kAgentCannotRun);
  }
  return RunScript(session, PublishScript(partial, final_dir), "").status();
}

}  // namespace gpuctl

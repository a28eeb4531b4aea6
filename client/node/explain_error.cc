#include "client/node/explain_error.h"
#include "client/keys/market_access.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/reach_error.h"
#include "client/base/shell_quote.h"
#include "client/programs/node_programs.h"
#include "common/base/link_fault.h"
#include "common/base/status_macros.h"
#include "common/transfer/error_detail.h"

namespace gpuctl {
namespace {

// True when no character of `path` is special to a shell, and only "." to a pattern.
bool IsHarmlessPath(absl::string_view path) {
  if (path.empty() || path[0] != '/') return false;
  for (const char c : path) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' ||
                       c == '_' || c == '.';
    if (!plain) return false;
  }
  return true;
}

// Returns a hint with the command that ends guard and server of a node's root, if the root is known
// and can be typed.
std::string EndThemHint(const NodeTarget& target, const std::string& root) {
  if (!IsHarmlessPath(root)) {
    return "guard or server hang there. Kill the processes \"gpuctl-agent guard\" and "
           "\"gpuctl-agent server\" on the node; no job ends with them";
  }
  // This harms no job: jobs have their own processes, and the next bridge starts a guard. The
  // brackets keep the pattern from matching the shell that runs the command.
  const std::string command = absl::StrCat(
      "pkill -KILL -f ", ShellQuote(absl::StrCat("[g]puctl-agent (guard|server) --root ", root)));
  return absl::StrCat("guard or server hang there. This ends them, and no job: ",
                      target.provider == "local"
                          ? command
                          : absl::StrCat(LoginCommand(target), " ", ShellQuote(command)));
}

std::string MakeRoom(const NodeTarget& target) {
  return absl::StrCat(
      "make room ", IsPlainWord(target.name) ? absl::StrCat("on ", target.name) : "there",
      " below ", target.root.empty() ? "~/.gpuctl" : target.root, " and repeat this");
}

// Returns the paths of the agents that this gpuctl delivers.
std::string AgentsFound() {
  const NodePrograms programs = NodePrograms::Find();
  std::string paths;
  for (const NodePlatform platform : programs.platforms()) {
    absl::StrAppend(&paths, paths.empty() ? "" : ", ", programs.For(platform)->agent);
  }
  return paths;
}

}  // namespace

std::string LoginCommand(const NodeTarget& target) {
  const std::string who = absl::StrCat(target.user, "@", target.host);
  const bool own_key = target.identities_only && !target.identity_files.empty();
  return absl::StrCat(
      "ssh ", own_key ? absl::StrCat("-i ", ShellQuote(target.identity_files.front()), " ") : "",
      "-p ", target.port, " ", IsPlainWord(who) ? who : "USER@HOST");
}

absl::Status ExplainLinkError(const absl::Status& status, const NodeTarget& target) {
  const bool local = target.provider == "local";
  const absl::Status named = ReachError(status, target.name);
  const bool rented = CheckMarketName(target.provider).ok();
  const std::string doctor =
      local    ? "gpuctl doctor checks what a local run needs"
      : rented ? "gpuctl instances tells how its market sees it"
               : absl::StrCat("gpuctl doctor --host ",
                              IsPlainWord(target.name) ? target.name : "HOST", " finds the cause");
  switch (FaultOf(status)) {
    case LinkFault::kAgentTooOld:
      return WithHint(named,
                      absl::StrCat("the gpuctl-agent of this gpuctl (", AgentsFound(),
                                   ") is of an older build: install both from the same one"));
    case LinkFault::kServerStuck:
      return WithHint(named, EndThemHint(target, DetailOf(status).root()));
    case LinkFault::kNoRoomForAgent:
    case LinkFault::kPeerDiskFull:
      return WithHint(named, MakeRoom(target));
    case LinkFault::kHostKeyChanged:
      return WithHint(
          named,
          "if the machine was rebuilt, delete the file it is pinned in; if not, somebody "
          "may be in between");
    case LinkFault::kForeignHostKey:
      return WithHint(named,
                      "somebody may be in between, so nothing is sent there. gpuctl down ends the "
                      "machine; rent another one");
    default:
      break;
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return WithHint(named,
                      local || rented
                          ? doctor
                          : absl::StrCat("is the machine up, and host and port right? ", doctor));
    case absl::StatusCode::kUnauthenticated:
      // gpuctl made both sides of this login.
      if (local) return WithHint(named, doctor);
      if (const absl::string_view page = SshKeysPage(target.provider); !page.empty()) {
        return WithHint(named,
                        absl::StrCat("is gpuctl's public key still at ", page, "? ", doctor));
      }
      return WithHint(
          named,
          rented ? absl::StrCat("it does not take gpuctl's own key; try: ", LoginCommand(target))
                 : absl::StrCat("name the right key with -i KEY, or try: ", LoginCommand(target)));
    default:
      return WithHint(named, doctor);
  }
}

absl::Status ExplainRefusedJob(const absl::Status& status, const NodeTarget& target) {
  if (DetailOf(status).kind() != gpuctl::v1::ErrorDetail::KIND_TOO_FEW_GPUS) {
    return ExplainFullNode(status, target);
  }
  return WithExitCode(WithHint(Annotate(status, absl::StrCat("on ", target.name)),
                               "ask for fewer with --gpus, or name a larger machine with --host or "
                               "--gpu"),
                      kExitCapacity);
}

absl::Status ExplainFullNode(const absl::Status& status, const NodeTarget& target) {
  switch (FaultOf(status)) {
    case LinkFault::kPeerDiskFull:
      return WithHint(Annotate(status, absl::StrCat("on ", target.name)),
                      absl::StrCat(MakeRoom(target), ": what was sent is kept there"));
    case LinkFault::kNoRoomForAgent:
      return WithHint(Annotate(status, absl::StrCat("on ", target.name)), MakeRoom(target));
    default:
      return status;
  }
}

}  // namespace gpuctl

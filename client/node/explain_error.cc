#include "client/node/explain_error.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/shell_quote.h"
#include "client/link/api_check.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// In the bridge's message: agent/bridge.cc.
constexpr char kCommandFollows[] = "; this ends it, and no job: ";

// `command` as one types it here to have it run there.
std::string OnMachine(const NodeTarget& target, absl::string_view command) {
  if (target.provider == "local") return std::string(command);
  return absl::StrCat(LoginCommand(target), " \"", command, "\"");
}

}  // namespace

std::string LoginCommand(const NodeTarget& target) {
  const std::string who = absl::StrCat(target.user, "@", target.host);
  return absl::StrCat("ssh -p ", target.port, " ", IsPlainWord(who) ? who : "USER@HOST");
}

absl::Status ExplainLinkError(const absl::Status& status, const NodeTarget& target) {
  const bool local = target.provider == "local";
  const absl::Status named = absl::StartsWith(status.message(), "reach ")
                                 ? status
                                 : Annotate(status, absl::StrCat("reach ", target.name));
  const std::string doctor =
      local ? "gpuctl doctor checks what a local run needs"
            : absl::StrCat("gpuctl doctor --host ", IsPlainWord(target.name) ? target.name : "HOST",
                           " finds the cause");
  if (IsAgentTooOld(status)) {
    return WithHint(named,
                    absl::StrCat("the gpuctl-agent beside this gpuctl (", BundlePaths::Find().agent,
                                 ") is of an older build: install both from the same one"));
  }
  if (IsServerStuck(status)) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(named.message(), absl::MaxSplits(kCommandFollows, 1));
    return WithHint(absl::FailedPreconditionError(parts.first),
                    absl::StrCat("guard or server hang there. This ends them, and no job: ",
                                 OnMachine(target, parts.second)));
  }
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return WithHint(
          named,
          local ? doctor : absl::StrCat("is the machine up, and host and port right? ", doctor));
    case absl::StatusCode::kUnauthenticated:
      return WithHint(
          named, absl::StrCat("name the right key with -i KEY, or try: ", LoginCommand(target)));
    case absl::StatusCode::kPermissionDenied:
      if (!absl::StrContains(status.message(), "host key")) return WithHint(named, doctor);
      return WithHint(
          named,
          "if the machine was rebuilt, delete the file it is pinned in; if not, somebody "
          "may be in between");
    default:
      return WithHint(named, doctor);
  }
}

absl::Status ExplainFullNode(const absl::Status& status, const NodeTarget& target) {
  // Its codes are wider: there are other things that can be used up.
  const bool full = absl::StrContains(status.message(), strerror(ENOSPC));
  if (!full && !absl::StrContains(status.message(), strerror(EDQUOT))) return status;
  return WithHint(
      Annotate(status, absl::StrCat("on ", target.name)),
      absl::StrCat("make room ",
                   IsPlainWord(target.name) ? absl::StrCat("on ", target.name) : "there", " below ",
                   target.root.empty() ? "~/.gpuctl" : target.root,
                   " and repeat this: what was sent is kept there"));
}

}  // namespace gpuctl

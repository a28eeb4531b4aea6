#include "client/trainer/torch_check.h"

#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "client/base/shell_quote.h"
#include "client/link/ssh_session.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kMark = "gpuctl-trainer-check\t";
// A Python on a network volume takes its time.
constexpr absl::Duration kAnswersWithin = absl::Minutes(2);
constexpr const char* kPassedOn[] = {"PATH", "GPUCTL_TORCH", "CXX", "VIRTUAL_ENV", "CONDA_PREFIX"};

}  // namespace

absl::StatusOr<TorchAnswer> ParseTorchAnswer(absl::string_view printed) {
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!absl::StartsWith(line, kMark)) continue;
    const std::vector<std::string> fields =
        absl::StrSplit(absl::StripSuffix(line, "\r"), absl::MaxSplits('\t', 4));
    if (fields.size() < 4 || (fields[1] != "yes" && fields[1] != "no")) continue;
    TorchAnswer answer;
    answer.can_build = fields[1] == "yes";
    answer.has_cuda = fields[2] == "cuda";
    answer.text = fields[3];
    if (fields.size() > 4) answer.fix = fields[4];
    return answer;
  }
  return absl::FailedPreconditionError("it does not say whether it has torch and a compiler");
}

absl::StatusOr<TorchAnswer> AskForTorch(LinkFactory& links, absl::string_view script,
                                        const std::map<std::string, std::string>& env) {
  std::string command = "env";
  for (const char* name : kPassedOn) {
    if (const auto found = env.find(name); found != env.end()) {
      absl::StrAppend(&command, " ", ShellQuote(absl::StrCat(name, "=", found->second)));
    }
  }
  absl::StrAppend(&command, " /bin/sh -s -- --check");
  ASSIGN_OR_RETURN(const std::unique_ptr<SshSession> session, links.OpenSshSession());
  ASSIGN_OR_RETURN(const SshSession::Result result,
                   session->RunToEnd(command, script, kAnswersWithin));
  absl::StatusOr<TorchAnswer> answer = ParseTorchAnswer(result.out);
  if (answer.ok()) return answer;
  const absl::string_view said = absl::StripAsciiWhitespace(result.err);
  return absl::FailedPreconditionError(
      absl::StrCat(answer.status().message(), said.empty() ? "" : ": ", said.substr(0, 200)));
}

}  // namespace gpuctl

#include "client/rent/leave_in_queue.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/node/allocation_links.h"
#include "common/base/byte_buffer.h"
#include "common/base/status_macros.h"
#include "common/release/release_route.h"

namespace gpuctl {
namespace {

// Returns the last line that the agent prints, because a login shell may have printed others; ""
// where the agent could not be run.
absl::StatusOr<std::string> Ask(LinkFactory& links, const std::string& arguments) {
  constexpr size_t kMost = 4096;
  ASSIGN_OR_RETURN(const std::unique_ptr<AgentStream> stream, links.RunAgent(arguments));
  ByteBuffer said;
  while (stream->Receive(said).ok() && said.size() < kMost) {
  }
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripAsciiWhitespace(said.view()), '\n');
  absl::string_view last = lines.back();
  return absl::ConsumePrefix(&last, kStageSays) ? std::string(last) : "";
}

}  // namespace

absl::Status CanBeLeft(const RunSpec& spec) {
  const auto needs = [](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(what, " needs gpuctl at its start"));
  };
  if (!spec.secrets.empty()) return needs("a run with secrets");
  if (spec.nodes > 1) return needs("a run on several machines");
  if (!spec.trainer_json.empty()) return needs("a run of the built-in trainer");
  return absl::OkStatus();
}

absl::Status PrepareToLeave(LinkFactory& links, const InstanceId& allocation) {
  const std::string arguments = absl::StrCat(kStageCommand, allocation);
  ASSIGN_OR_RETURN(std::string said, Ask(links, arguments));
  // The second time with programs, where the login node has them no more.
  if (said.empty()) {
    ASSIGN_OR_RETURN(said, Ask(links, arguments));
  }
  if (said == kStageReady) return absl::OkStatus();
  return absl::FailedPreconditionError(said.empty() ? "the login node does not answer" : said);
}

}  // namespace gpuctl

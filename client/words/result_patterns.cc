#include "client/words/result_patterns.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

absl::Status NormalizePattern(absl::string_view where, PatternsOf what, std::string& pattern) {
  const auto refuse = [&](absl::string_view why) {
    return UsageError(absl::StrCat(where, ": \"", pattern, "\" ", why),
                      "patterns are relative to the work directory, such as 'outputs/**'");
  };
  if (absl::StartsWith(pattern, "/")) return refuse("is an absolute path");
  std::vector<absl::string_view> parts;
  for (const absl::string_view part : absl::StrSplit(pattern, '/', absl::SkipEmpty())) {
    if (part == "..") return refuse("leads out of the work directory");
    if (part != ".") parts.push_back(part);
  }
  const bool all_below = what == PatternsOf::kFiles && absl::EndsWith(pattern, "/");
  if (all_below) parts.push_back("**");
  if (parts.empty()) return refuse("names nothing");
  pattern = absl::StrJoin(parts, "/");
  return absl::OkStatus();
}

}  // namespace

absl::Status NormalizePatterns(absl::string_view where, PatternsOf what,
                               std::vector<std::string>& patterns) {
  for (std::string& pattern : patterns) {
    RETURN_IF_ERROR(NormalizePattern(where, what, pattern));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

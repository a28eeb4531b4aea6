#include "client/home/nothing_to_bring.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"

namespace gpuctl {

namespace {

absl::Status Describe(const RunRow& row, const gpuctl::v1::RemoveJobReply& found) {
  constexpr int kNamedFiles = 5;
  std::vector<std::string> patterns = row.checkpoint_patterns;
  patterns.insert(patterns.end(), row.artifact_patterns.begin(), row.artifact_patterns.end());
  const std::string why =
      patterns.empty() ? "it has no checkpoint, and its run file names no checkpoints and artifacts"
                       : absl::StrCat("it has no checkpoint, and nothing matches ",
                                      absl::StrJoin(patterns, ", "));
  const std::string begin = absl::StrCat("pull ", row.name, ": ", why);
  if (found.left_count() == 0) {
    return WithHint(absl::NotFoundError(absl::StrCat(begin, "; the job made no files")),
                    absl::StrCat("gpuctl logs ", row.name, " shows what it printed"));
  }
  std::vector<absl::string_view> names;
  for (int i = 0; i < std::min(kNamedFiles, found.left_size()); ++i) {
    names.push_back(absl::StripPrefix(found.left(i).path(), "work/"));
  }
  return WithHint(absl::NotFoundError(absl::StrCat(
                      begin, "; the job made ", found.left_count(),
                      found.left_count() == 1 ? " file: " : " files: ", absl::StrJoin(names, ", "),
                      found.left_count() > kNamedFiles ? ", …" : "")),
                  absl::StrCat("gpuctl pull ", row.name,
                               " '**' brings all files; a pattern like 'outputs/**' brings some"));
}

}  // namespace

absl::Status NothingToBring(const RunRow& row, const gpuctl::v1::RemoveJobReply& found) {
  return WithCause(Describe(row, found), kNothingToBring);
}

}  // namespace gpuctl

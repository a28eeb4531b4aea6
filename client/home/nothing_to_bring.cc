#include "client/home/nothing_to_bring.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/base/shell_quote.h"
#include "common/base/path_pattern.h"
#include "common/files/files.h"
#include "common/job/checkpoint_layout.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kWork = "work/";

// Returns the path that a checkpoint pattern of the run matches and that is `path` or above it,
// relative to the work directory; "" when there is none.
std::string MatchedByCheckpoints(const RunRow& row, absl::string_view path) {
  if (!absl::ConsumePrefix(&path, kWork)) return "";
  for (size_t end = path.find('/'); true; end = path.find('/', end + 1)) {
    const std::string part(path.substr(0, end));
    if (IsTemporaryName(BaseName(part))) return "";
    for (const std::string& pattern : row.checkpoint_patterns) {
      if (MatchesPattern(std::string(absl::StripSuffix(pattern, "/")), part)) return part;
    }
    if (end == path.npos) return "";
  }
}

// Returns the newest path that the run's checkpoint patterns match; "" when there is none.
std::string NewestMatch(const RunRow& row, const gpuctl::v1::RemoveJobReply& found) {
  std::string newest;
  int64_t newest_ms = 0;
  for (const gpuctl::v1::Artifact& file : found.left()) {
    std::string match = MatchedByCheckpoints(row, file.path());
    if (match.empty() || (!newest.empty() && file.modified_ms() < newest_ms)) continue;
    newest = std::move(match);
    newest_ms = file.modified_ms();
  }
  return newest;
}

// Says what helps with a checkpoint that the node does not take for a whole one.
absl::Status NotWhole(const RunRow& row, const std::string& match,
                      const gpuctl::v1::RemoveJobReply& found) {
  const bool is_file =
      std::any_of(found.left().begin(), found.left().end(),
                  [&match](const auto& file) { return file.path() == absl::StrCat(kWork, match); });
  const bool plain = IsPlainWord(match);
  const std::string pattern =
      plain ? ShellQuote(is_file ? match : absl::StrCat(match, "/**")) : "PATTERN";
  const std::string here = plain ? JoinPath(row.name, match) : "PATH";
  return WithHint(
      absl::NotFoundError(absl::StrCat(
          "pull ", row.name, ": it has no checkpoint that is surely whole: ", match,
          " matches the patterns, but is torn, or was written when the job was killed or failed")),
      absl::StrCat("gpuctl pull ", row.name, " ", pattern,
                   " brings it as it is, and gpuctl resume ", row.name, " --from ", here,
                   " goes on from that"));
}

// Returns the folder of the work directory in which all files are that the job made, if its name
// can be typed as it is; "" when there is none, or when the node did not name all files.
std::string CommonFolder(const gpuctl::v1::RemoveJobReply& found) {
  if (found.left_size() == 0 || found.left_count() != found.left_size()) return "";
  absl::string_view common;
  for (const auto& file : found.left()) {
    absl::string_view path = file.path();
    if (!absl::ConsumePrefix(&path, kWork)) return "";
    const size_t slash = path.find('/');
    if (slash == path.npos) return "";
    const absl::string_view folder = path.substr(0, slash);
    if (!common.empty() && folder != common) return "";
    common = folder;
  }
  return IsPlainWord(common) ? std::string(common) : "";
}

absl::Status Describe(const RunRow& row, const gpuctl::v1::RemoveJobReply& found) {
  if (const std::string match = NewestMatch(row, found); !match.empty()) {
    return NotWhole(row, match, found);
  }
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
    names.push_back(absl::StripPrefix(found.left(i).path(), kWork));
  }
  const std::string folder = CommonFolder(found);
  const std::string hint =
      folder.empty()
          ? "'**' brings all files, those that were sent, too; a pattern like 'outputs/**' "
            "brings some"
          : absl::StrCat(ShellQuote(absl::StrCat(folder, "/**")), " brings them");
  return WithHint(absl::NotFoundError(absl::StrCat(
                      begin, "; the job made ", found.left_count(),
                      found.left_count() == 1 ? " file: " : " files: ", absl::StrJoin(names, ", "),
                      found.left_count() > kNamedFiles ? ", …" : "")),
                  absl::StrCat("gpuctl pull ", row.name, " ", hint));
}

}  // namespace

absl::Status NothingToBring(const RunRow& row, const gpuctl::v1::RemoveJobReply& found) {
  return WithCause(Describe(row, found), kNothingToBring);
}

}  // namespace gpuctl

#include "client/node/listing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr absl::string_view kListedInWork = "work/";
constexpr absl::string_view kListedBeside = "ckpt/";
constexpr absl::string_view kListedStep = "ckpt/step-";
constexpr int64_t kMaxListedBytes = int64_t{1} << 56;

absl::Status NobodyAsked(absl::string_view what, absl::string_view path) {
  return absl::DataLossError(
      absl::StrCat("the node named ", what, " ", path, ", which nobody asked for"));
}

bool IsUsableSize(int64_t size) { return size >= 0 && size <= kMaxListedBytes; }

// Returns the name at home of a script's checkpoint at `path` below work/; nothing when no pattern
// matches.
std::optional<std::string> NameByPattern(const std::vector<std::string>& patterns,
                                         const std::string& path) {
  for (const std::string& each : patterns) {
    const std::string pattern(absl::StripSuffix(each, "/"));
    if (pattern.empty() || !MatchesPattern(pattern, path)) continue;
    const std::string fixed = FixedDirectory(pattern);
    const bool below = !fixed.empty() && absl::StartsWith(path, absl::StrCat(fixed, "/"));
    return below ? path.substr(fixed.size() + 1) : path;
  }
  return std::nullopt;
}

std::optional<std::string> NameOfListed(const std::vector<std::string>& patterns,
                                        const CheckpointInfo& checkpoint) {
  absl::string_view path = checkpoint.path();
  if (!IsSafeRelativePath(path)) return std::nullopt;
  if (checkpoint.kind() == CheckpointInfo::KIND_FOREIGN) {
    if (!absl::ConsumePrefix(&path, kListedInWork)) return std::nullopt;
    return NameByPattern(patterns, std::string(path));
  }
  if (!absl::ConsumePrefix(&path, kListedStep) || checkpoint.is_file() || path.empty() ||
      path.find_first_not_of("0123456789") != path.npos) {
    return std::nullopt;
  }
  return BaseName(checkpoint.path());
}

// True when `behind` is empty, the path itself or a directory above it.
bool IsOnTheWay(absl::string_view path, absl::string_view behind) {
  return behind.empty() || path == behind ||
         (IsSafeRelativePath(behind) && absl::StartsWith(path, absl::StrCat(behind, "/")));
}

// True when all of the checkpoint's files are in it, and its sizes can be added up.
bool HasItsFiles(const CheckpointInfo& checkpoint) {
  const std::string inside = absl::StrCat(checkpoint.path(), "/");
  int64_t sum = 0;
  for (const gpuctl::v1::Artifact& file : checkpoint.files()) {
    const bool of_it = checkpoint.is_file() ? file.path() == checkpoint.path()
                                            : absl::StartsWith(file.path(), inside);
    if (!of_it || !IsSafeRelativePath(file.path()) || !IsUsableSize(file.size())) return false;
    if (file.size() > kMaxListedBytes - sum) return false;
    sum += file.size();
  }
  return IsUsableSize(checkpoint.size());
}

}  // namespace

absl::Status CheckListing(const std::string& pattern,
                          const std::vector<std::string>& checkpoint_patterns,
                          gpuctl::v1::ListArtifactsReply& reply) {
  std::map<std::string, int> names;
  for (CheckpointInfo& checkpoint : *reply.mutable_checkpoints()) {
    const std::optional<std::string> name = NameOfListed(checkpoint_patterns, checkpoint);
    if (!name.has_value() || !HasItsFiles(checkpoint) ||
        !IsOnTheWay(checkpoint.path(), checkpoint.behind())) {
      return NobodyAsked("a checkpoint", checkpoint.path());
    }
    checkpoint.set_name(*name);
    ++names[*name];
  }
  // Which of two gets the short name must not depend on which of them is older.
  for (CheckpointInfo& checkpoint : *reply.mutable_checkpoints()) {
    if (names[checkpoint.name()] < 2 || checkpoint.kind() != CheckpointInfo::KIND_FOREIGN) continue;
    checkpoint.set_name(checkpoint.path().substr(kListedInWork.size()));
  }
  for (const gpuctl::v1::Artifact& file : reply.files()) {
    absl::string_view path = file.path();
    const bool asked =
        absl::ConsumePrefix(&path, pattern.empty() ? kListedBeside : kListedInWork) &&
        IsSafeRelativePath(path) && IsUsableSize(file.size()) &&
        (pattern.empty() || MatchesPattern(pattern, std::string(path))) &&
        file.behind() != file.path() && IsOnTheWay(file.path(), file.behind());
    if (!asked) return NobodyAsked("a file", file.path());
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

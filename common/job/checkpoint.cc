#include "common/job/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/regular_file.h"
#include "common/files/relative_path.h"
#include "nlohmann/json.hpp"

namespace gpuctl {
namespace {

constexpr absl::string_view kDirectoryPrefix = "step-";
constexpr int64_t kMaxCheckpointManifestBytes = 16 << 20;

using Json = nlohmann::json;

absl::Status Invalid(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("parse checkpoint manifest: ", what));
}

// Returns the value at `key` when it is an integer in [0, 2^63).
std::optional<int64_t> NonNegative(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > uint64_t{INT64_MAX}) {
    return std::nullopt;
  }
  const int64_t value = found->get<int64_t>();
  if (value < 0) return std::nullopt;
  return value;
}

std::optional<std::string> Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

bool IsHexSha256(absl::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Returns the number in a checkpoint directory's name, or nothing for any other name.
std::optional<int64_t> StepOfName(absl::string_view name) {
  if (!absl::StartsWith(name, kDirectoryPrefix)) return std::nullopt;
  const absl::string_view digits = name.substr(kDirectoryPrefix.size());
  int64_t step = 0;
  if (digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(digits, &step)) {
    return std::nullopt;
  }
  return step;
}

bool FilesHaveTheirSizes(const CheckpointDir& checkpoint) {
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    struct stat info {};
    if (lstat(JoinPath(checkpoint.path, file.path).c_str(), &info) != 0) return false;
    if (!S_ISREG(info.st_mode) || int64_t{info.st_size} != file.size) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(absl::string_view json) {
  const Json root =
      ParseBoundedJson(json, {.bytes = size_t{kMaxCheckpointManifestBytes}, .depth = 16});
  if (!root.is_object()) return Invalid("not a JSON object");
  if (NonNegative(root, "format") != 1) return Invalid("format is not 1");
  const std::optional<int64_t> step = NonNegative(root, "step");
  if (!step.has_value()) return Invalid("step is not a number from 0 on");
  const auto files = root.find("files");
  if (files == root.end() || !files->is_array()) return Invalid("files is not a list");

  CheckpointManifest manifest;
  manifest.step = *step;
  std::set<std::string> seen;
  for (const Json& entry : *files) {
    if (!entry.is_object()) return Invalid("a file is not an object");
    const std::optional<std::string> path = Text(entry, "path");
    const std::optional<int64_t> size = NonNegative(entry, "size");
    const std::optional<std::string> sha256 = Text(entry, "sha256");
    if (!path.has_value() || !IsSafeRelativePath(*path)) return Invalid("a file's path is unsafe");
    if (!size.has_value()) return Invalid(absl::StrCat(*path, ": size is not a number from 0 on"));
    if (!sha256.has_value() || !IsHexSha256(*sha256)) {
      return Invalid(absl::StrCat(*path, ": sha256 is not 64 hex digits"));
    }
    if (!seen.insert(*path).second) return Invalid(absl::StrCat(*path, ": named twice"));
    manifest.files.push_back({*path, *size, *sha256});
  }
  return manifest;
}

absl::StatusOr<std::vector<CheckpointDir>> ListCheckpoints(const std::string& dir) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointDir>();
  if (!names.ok()) return names.status();
  std::vector<CheckpointDir> checkpoints;
  for (const std::string& name : *names) {
    const std::optional<int64_t> step = StepOfName(name);
    if (!step.has_value()) continue;
    CheckpointDir checkpoint;
    checkpoint.path = JoinPath(dir, name);
    const absl::StatusOr<std::string> json =
        ReadRegularFile(checkpoint.path, "manifest.json", kMaxCheckpointManifestBytes);
    if (!json.ok()) continue;
    absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(*json);
    if (!manifest.ok() || manifest->step != *step) continue;
    checkpoint.manifest = *std::move(manifest);
    if (FilesHaveTheirSizes(checkpoint)) checkpoints.push_back(std::move(checkpoint));
  }
  std::stable_sort(checkpoints.begin(), checkpoints.end(),
                   [](const CheckpointDir& a, const CheckpointDir& b) {
                     return a.manifest.step < b.manifest.step;
                   });
  return checkpoints;
}

absl::Status VerifyCheckpoint(const CheckpointDir& checkpoint) {
  for (const CheckpointFile& file : checkpoint.manifest.files) {
    const std::string path = JoinPath(checkpoint.path, file.path);
    const absl::StatusOr<std::string> sha256 =
        Sha256HexOfRegularFile(checkpoint.path, file.path, file.size);
    if (!sha256.ok()) {
      return absl::DataLossError(absl::StrCat("verify checkpoint: ", sha256.status().message()));
    }
    if (*sha256 != file.sha256) {
      return absl::DataLossError(
          absl::StrCat("verify checkpoint, ", path, ": content differs from manifest.json"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointDir> NewestVerifiedCheckpoint(const std::string& dir) {
  ASSIGN_OR_RETURN(std::vector<CheckpointDir> checkpoints, ListCheckpoints(dir));
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    if (VerifyCheckpoint(*checkpoint).ok()) return std::move(*checkpoint);
  }
  return absl::NotFoundError(
      absl::StrCat("find checkpoint below ", dir, ": no whole one is there"));
}

}  // namespace gpuctl

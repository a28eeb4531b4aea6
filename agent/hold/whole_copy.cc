#include "agent/hold/whole_copy.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "agent/jobs/artifacts.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {
namespace {

constexpr int64_t kMostBytes = 4096;
constexpr int64_t kListBytes = 1 << 20;

// What a job has of the results that its user wants. A file that two patterns match counts twice.
struct ResultCount {
  int64_t files = 0;
  int64_t bytes = 0;
  int64_t checkpoint_files = 0;
  int64_t checkpoint_bytes = 0;
};

absl::StatusOr<ResultCount> CountResults(const JobPaths& job, const gpuctl::v1::KeptResults& wanted,
                                         Clock& clock) {
  ResultCount count;
  gpuctl::v1::ListArtifactsRequest request;
  request.set_job_id(BaseName(job.dir));
  request.set_behind_links(true);
  request.set_page_bytes(kListBytes);
  // With the first list.
  *request.mutable_checkpoint_patterns() = wanted.checkpoints();
  bool first = true;
  std::vector<std::string> patterns = {""};
  patterns.insert(patterns.end(), wanted.artifacts().begin(), wanted.artifacts().end());
  for (const std::string& pattern : patterns) {
    request.set_pattern(pattern);
    request.set_beside_checkpoints(pattern.empty());
    request.clear_after();
    for (bool more = true; more;) {
      ASSIGN_OR_RETURN(const gpuctl::v1::ListArtifactsReply page,
                       ListArtifacts(job, request, clock));
      for (const gpuctl::v1::Artifact& file : page.files()) {
        ++count.files;
        count.bytes += file.size();
      }
      for (const gpuctl::v1::CheckpointInfo& checkpoint : page.checkpoints()) {
        if (!first) break;
        count.checkpoint_files += checkpoint.is_file() ? 1 : checkpoint.files_size();
        count.checkpoint_bytes += checkpoint.size();
      }
      first = false;
      more = page.more() && page.files_size() > 0;
      if (more) request.set_after(page.files(page.files_size() - 1).path());
    }
    request.clear_checkpoint_patterns();
  }
  return count;
}

// Reads the kept.json of a copy; nothing when that does not say that all was copied.
std::optional<nlohmann::json> ReadWholeCopy(const JobPaths& copied) {
  const absl::StatusOr<std::string> kept = ReadFileToString(copied.kept, kMostBytes);
  if (!kept.ok()) return std::nullopt;
  nlohmann::json note = ParseBoundedJson(*kept, {.bytes = kMostBytes, .depth = 4});
  if (!note.is_object()) return std::nullopt;
  const auto whole = note.find("whole");
  if (whole == note.end() || !whole->is_boolean() || !whole->get<bool>()) return std::nullopt;
  return note;
}

}  // namespace

absl::Status NotePartOfCopy(const JobPaths& copied) {
  return WriteFileAtomic(copied.kept, "{\"whole\":false}\n");
}

absl::Status NoteWholeCopy(const JobPaths& copied, const gpuctl::v1::KeptResults& wanted,
                           Clock& clock) {
  ASSIGN_OR_RETURN(const ResultCount count, CountResults(copied, wanted, clock));
  return WriteFileAtomic(copied.kept,
                         absl::StrCat("{\"whole\":true,\"files\":", count.files, ",\"bytes\":",
                                      count.bytes, ",\"checkpoint_files\":", count.checkpoint_files,
                                      ",\"checkpoint_bytes\":", count.checkpoint_bytes, "}\n"));
}

bool IsWholeCopy(const JobPaths& copied) { return ReadWholeCopy(copied).has_value(); }

std::string MissingInCopy(const JobPaths& copied, Clock& clock) {
  if (!PathExists(copied.kept)) return "";
  const std::optional<nlohmann::json> note = ReadWholeCopy(copied);
  if (!note.has_value()) {
    return "the allocation was over before all results were on the shared file system; what is "
           "there is whole, and the rest is lost";
  }
  const auto number = [&note](const char* field) {
    const auto value = note->find(field);
    return value != note->end() && value->is_number_integer() ? value->get<int64_t>() : int64_t{0};
  };
  const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(copied);
  const absl::StatusOr<ResultCount> there =
      stored.ok() ? CountResults(copied, stored->spec.kept(), clock) : stored.status();
  if (!there.ok()) {
    return absl::StrCat("what was kept of it is damaged: ", there.status().message());
  }
  const int64_t files = number("files") + number("checkpoint_files");
  const int64_t left = std::min(there->files, number("files")) +
                       std::min(there->checkpoint_files, number("checkpoint_files"));
  if (left < files) {
    return absl::StrCat("only ", left, " of the ", files,
                        " files that were kept on the shared file system are there");
  }
  if (there->bytes < number("bytes") || there->checkpoint_bytes < number("checkpoint_bytes")) {
    return "files that were kept on the shared file system are shorter than they were";
  }
  return "";
}

}  // namespace gpuctl

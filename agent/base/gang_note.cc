#include "agent/base/gang_note.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMostGangNoteBytes = 64 << 10;

}  // namespace

absl::StatusOr<GangNote> ReadGangNote(const JobPaths& job) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileToString(job.gang, kMostGangNoteBytes));
  const nlohmann::json json = ParseBoundedJson(text, {.bytes = kMostGangNoteBytes, .depth = 4});
  GangNote note;
  try {
    note.attempt = json.at("attempt").get<int>();
    note.address = json.at("address").get<std::string>();
    note.port = json.at("port").get<int>();
    note.interface = json.at("interface").get<std::string>();
    note.resume_step = json.at("resume_step").get<int64_t>();
    note.meeting_addresses = json.at("meeting_addresses").get<std::vector<std::string>>();
    note.meeting_port = json.at("meeting_port").get<int>();
  } catch (const nlohmann::json::exception&) {
    return absl::DataLossError(absl::StrCat("read ", job.gang, ": it is no note of a gang"));
  }
  return note;
}

absl::Status WriteGangNote(const JobPaths& job, const GangNote& note) {
  const nlohmann::ordered_json json = {{"attempt", note.attempt},
                                       {"address", note.address},
                                       {"port", note.port},
                                       {"interface", note.interface},
                                       {"resume_step", note.resume_step},
                                       {"meeting_addresses", note.meeting_addresses},
                                       {"meeting_port", note.meeting_port}};
  return WriteFileAtomic(
      job.gang, json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

bool HasGangNote(const JobPaths& job, int attempt) {
  const absl::StatusOr<GangNote> note = ReadGangNote(job);
  return note.ok() && note->attempt == attempt;
}

}  // namespace gpuctl

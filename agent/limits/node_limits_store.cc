#include "agent/limits/node_limits_store.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "nlohmann/json.hpp"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "agent/jobs/job_table.h"
#include "agent/limits/contact.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"
#include "common/job/lifecycle.h"

namespace gpuctl {

using gpuctl::v1::JobHome;
using gpuctl::v1::NodeLimits;

namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

absl::Status CheckLimits(const NodeLimits& limits) {
  if (limits.revision() <= 0) return absl::InvalidArgumentError("set limits: no revision");
  for (const double usd : {limits.rate_usd_per_hour(), limits.spent_before_usd(), limits.cost_usd(),
                           limits.upload_usd_per_gb(), limits.download_usd_per_gb()}) {
    if (!std::isfinite(usd) || usd < 0) {
      return absl::InvalidArgumentError("set limits: a price is not one");
    }
  }
  for (const int64_t number :
       {limits.idle_s(), limits.salvage_s(), limits.lease_s(), limits.grace_ms()}) {
    if (number < 0) return absl::InvalidArgumentError("set limits: a time is negative");
  }
  if (limits.sent_before_bytes() < 0 || limits.received_before_bytes() < 0) {
    return absl::InvalidArgumentError("set limits: a number of bytes is negative");
  }
  return absl::OkStatus();
}

nlohmann::json ReadJson(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFileToString(path, kMaxFileBytes);
  if (!text.ok()) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(*text, nullptr, false);
}

int64_t IntegerIn(const nlohmann::json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

bool IsLive(const StoredSpec& stored, const gpuctl::v1::Job& job) {
  switch (job.state()) {
    case gpuctl::v1::JOB_STATE_STARTING:
    case gpuctl::v1::JOB_STATE_RUNNING:
    case gpuctl::v1::JOB_STATE_FINISHING:
      return true;
    case gpuctl::v1::JOB_STATE_PENDING:
    case gpuctl::v1::JOB_STATE_RETRY_WAIT:
      // The server will start it. A job that needs secrets waits for a laptop that may never come.
      return stored.spec.secret_names().empty();
    case gpuctl::v1::JOB_STATE_QUEUED:
      return !job.queue().needs_secrets();
    default:
      return false;
  }
}

// Returns when somebody was last here, in Unix milliseconds; 0: nobody ever was.
int64_t LastSeenMs(const RootPaths& paths) {
  if (InContact(paths)) return std::numeric_limits<int64_t>::max();
  const std::optional<TimeStamp> contact = LastContact(paths);
  return contact.has_value() ? contact->time_ms : 0;
}

// `seen_ms`: when somebody was last here. Whoever comes takes a job's output and end along; until
// then they are results that are nowhere else.
bool IsHome(const JobPaths& job, const NodeLimits& limits, const JobHome* home, int64_t seen_ms) {
  if (home != nullptr && home->all_home()) return true;
  if (!limits.checkpoints_only()) return false;
  const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
  const LifecycleEvent* const last = lifecycle.ok() ? LastStateEvent(*lifecycle) : nullptr;
  if (last == nullptr || last->time_ms > seen_ms) return false;
  const absl::StatusOr<std::vector<CheckpointDir>> checkpoints = ListCheckpoints(job.checkpoints);
  // Checkpoints that cannot be read may be worth salvaging.
  if (!checkpoints.ok()) return !PathExists(job.checkpoints);
  for (const CheckpointDir& checkpoint : *checkpoints) {
    if (home == nullptr || !home->has_checkpoint_step() ||
        checkpoint.manifest.step > home->checkpoint_step()) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<StoredLimits> ReadNodeLimits(const RootPaths& paths) {
  ASSIGN_OR_RETURN(const std::string text, ReadFileToString(paths.limits, kMaxFileBytes));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  StoredLimits stored;
  if (json.is_object() && json.contains("accepted") && json.contains("limits")) {
    const std::optional<TimeStamp> accepted = StampFromJson(json["accepted"]);
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(json["limits"].dump(), &stored.limits, options);
    if (accepted.has_value() && parsed.ok()) {
      stored.accepted = *accepted;
      return stored;
    }
  }
  return absl::DataLossError(absl::StrCat("read ", paths.limits, ": not the limits of a lease"));
}

absl::Status StoreNodeLimits(const RootPaths& paths, const NodeLimits& limits,
                             const TimeStamp& now) {
  RETURN_IF_ERROR(CheckLimits(limits));
  const absl::StatusOr<StoredLimits> known = ReadNodeLimits(paths);
  if (!known.ok() || known->limits.revision() < limits.revision()) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string limits_json;
    const auto printed = google::protobuf::util::MessageToJsonString(limits, &limits_json, options);
    if (!printed.ok()) return absl::InternalError("set limits: they cannot be written down");
    RETURN_IF_ERROR(
        WriteFileAtomic(paths.limits, absl::StrCat("{\"accepted\":", StampToJson(now).dump(),
                                                   ",\"limits\":", limits_json, "}\n")));
  }
  return PathExists(paths.claimed) ? absl::OkStatus() : WriteFileAtomic(paths.claimed, "");
}

std::map<std::string, JobHome> ReadHome(const RootPaths& paths) {
  std::map<std::string, JobHome> homes;
  const nlohmann::json json = ReadJson(paths.home);
  if (!json.is_object()) return homes;
  for (const auto& [job_id, entry] : json.items()) {
    if (!entry.is_object()) continue;
    JobHome& home = homes[job_id];
    home.set_job_id(job_id);
    if (entry.contains("checkpoint_step")) {
      home.set_checkpoint_step(IntegerIn(entry, "checkpoint_step"));
    }
    const auto all = entry.find("all_home");
    home.set_all_home(all != entry.end() && all->is_boolean() && all->get<bool>());
  }
  return homes;
}

absl::Status MarkHome(const RootPaths& paths, const gpuctl::v1::MarkHomeRequest& request) {
  std::map<std::string, JobHome> homes = ReadHome(paths);
  for (const JobHome& told : request.jobs()) {
    if (!IsValidId(told.job_id())) return absl::InvalidArgumentError("mark home: bad job id");
    const JobPaths job = paths.Job(told.job_id());
    if (!PathExists(job.spec)) {
      return absl::NotFoundError(absl::StrCat("mark home: there is no job ", told.job_id()));
    }
    JobHome& home = homes[told.job_id()];
    if (told.has_checkpoint_step() &&
        (!home.has_checkpoint_step() || told.checkpoint_step() > home.checkpoint_step())) {
      home.set_checkpoint_step(told.checkpoint_step());
    }
    // Results that a job still writes cannot be home.
    const absl::StatusOr<bool> held = IsLocked(job.lock);
    const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
    if (told.all_home() && held.ok() && !*held && lifecycle.ok() && IsOver(*lifecycle)) {
      home.set_all_home(true);
    }
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [job_id, home] : homes) {
    nlohmann::ordered_json& entry = json[job_id];
    entry = nlohmann::ordered_json::object();
    if (home.has_checkpoint_step()) entry["checkpoint_step"] = home.checkpoint_step();
    entry["all_home"] = home.all_home();
  }
  return WriteFileAtomic(paths.home, json.dump() + "\n");
}

bool ResultsHome(const RootPaths& paths, const NodeLimits& limits,
                 const std::vector<std::string>& job_ids) {
  if (job_ids.empty()) return true;
  const std::map<std::string, JobHome> homes = ReadHome(paths);
  const int64_t seen_ms = LastSeenMs(paths);
  for (const std::string& job_id : job_ids) {
    const auto home = homes.find(job_id);
    const JobHome* const told = home == homes.end() ? nullptr : &home->second;
    if (!IsHome(paths.Job(job_id), limits, told, seen_ms)) return false;
  }
  return true;
}

std::optional<ClockNote> ReadClockNote(const RootPaths& paths) {
  const nlohmann::json json = ReadJson(paths.clock);
  const std::optional<TimeStamp> at = StampFromJson(json);
  if (!at.has_value()) return std::nullopt;
  ClockNote note;
  note.at = *at;
  note.revision = IntegerIn(json, "revision");
  note.billed = absl::Milliseconds(IntegerIn(json, "billed_ms"));
  note.no_job = absl::Milliseconds(IntegerIn(json, "no_job_ms"));
  note.no_contact = absl::Milliseconds(IntegerIn(json, "no_contact_ms"));
  note.jobs_over = IntegerIn(json, "jobs_over");
  note.traffic.sent_bytes = std::max<int64_t>(0, IntegerIn(json, "sent_bytes"));
  note.traffic.received_bytes = std::max<int64_t>(0, IntegerIn(json, "received_bytes"));
  if (json.contains("sent_counter") && json.contains("received_counter")) {
    note.counters =
        NetworkCounters{IntegerIn(json, "received_counter"), IntegerIn(json, "sent_counter")};
  }
  return note;
}

absl::Status WriteClockNote(const RootPaths& paths, const ClockNote& note) {
  nlohmann::ordered_json json = StampToJson(note.at);
  if (note.revision > 0) {
    json["revision"] = note.revision;
    json["billed_ms"] = absl::ToInt64Milliseconds(note.billed);
    json["no_job_ms"] = absl::ToInt64Milliseconds(note.no_job);
    json["no_contact_ms"] = absl::ToInt64Milliseconds(note.no_contact);
    json["jobs_over"] = note.jobs_over;
  }
  if (note.counters.has_value()) {
    json["sent_bytes"] = note.traffic.sent_bytes;
    json["received_bytes"] = note.traffic.received_bytes;
    json["sent_counter"] = note.counters->sent_bytes;
    json["received_counter"] = note.counters->received_bytes;
  }
  return WriteFileAtomic(paths.clock, json.dump() + "\n");
}

JobCensus TakeCensus(const RootPaths& paths) {
  JobCensus census;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(paths.jobs);
  if (!names.ok()) return census;
  for (const std::string& name : *names) {
    const JobPaths job = paths.Job(name);
    const absl::StatusOr<StoredSpec> stored = ReadStoredSpec(job);
    const absl::StatusOr<gpuctl::v1::Job> state = DeriveJob(job);
    if (!stored.ok() || !state.ok()) continue;
    const bool never_began =
        state->state() == gpuctl::v1::JOB_STATE_PENDING ||
        (state->state() == gpuctl::v1::JOB_STATE_QUEUED && state->attempt() == 0);
    if (IsLive(*stored, *state)) {
      census.live.push_back(name);
    } else if (!never_began) {
      census.with_results.push_back(name);
    }
  }
  return census;
}

std::optional<gpuctl::v1::BootNote> ReadBootNote(const RootPaths& paths) {
  const nlohmann::json json = ReadJson(paths.boot);
  if (!json.is_object()) return std::nullopt;
  gpuctl::v1::BootNote note;
  const auto tool = json.find("tool");
  if (tool != json.end() && tool->is_string()) note.set_tool(tool->get<std::string>());
  const auto key = json.find("key");
  note.set_has_key(key != json.end() && key->is_boolean() && key->get<bool>());
  note.set_deadline_ms(IntegerIn(json, "deadline_s") * 1000);
  return note;
}

}  // namespace gpuctl

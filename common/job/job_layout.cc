#include "common/job/job_layout.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxSpecBytes = size_t{64} << 20;

}  // namespace

bool IsTrainerSettings(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, ".gpuctl/trainer") || !absl::ConsumeSuffix(&path, ".json")) {
    return false;
  }
  return path.empty() || (absl::ConsumePrefix(&path, "-") && !path.empty() &&
                          std::all_of(path.begin(), path.end(), absl::ascii_isdigit));
}

JobPaths::JobPaths(std::string job_dir)
    : dir(std::move(job_dir)),
      spec(JoinPath(dir, "spec.json")),
      lock(JoinPath(dir, "shim.lock")),
      control(JoinPath(dir, "control")),
      lifecycle(JoinPath(dir, "lifecycle.jsonl")),
      output(JoinPath(dir, "output")),
      metrics(JoinPath(dir, "metrics.jsonl")),
      metrics_fifo(JoinPath(dir, "metrics")),
      work(JoinPath(dir, "work")),
      checkpoints(JoinPath(dir, "ckpt")),
      shim_stderr(JoinPath(dir, "shim.stderr")),
      cgroup_note(JoinPath(dir, "cgroup")),
      gpus(JoinPath(dir, "gpus.json")),
      environment(JoinPath(dir, "env.json")),
      stop(JoinPath(dir, "stop")),
      time_limit(JoinPath(dir, "time_limit")),
      gang(JoinPath(dir, "gang.json")),
      gang_lock(JoinPath(dir, "gang.lock")),
      kept(JoinPath(dir, "kept.json")) {}

RootPaths::RootPaths(std::string root_dir)
    : root(std::move(root_dir)),
      socket(JoinPath(root, "agent.sock")),
      guard_lock(JoinPath(root, "guard.lock")),
      server_lock(JoinPath(root, "server.lock")),
      guard_control(JoinPath(root, "guard.control")),
      bin(JoinPath(root, "bin")),
      bin_current(JoinPath(root, "bin/current")),
      trees(JoinPath(root, "blobs/trees")),
      jobs(JoinPath(root, "jobs")),
      envs(JoinPath(root, "envs")),
      caches(JoinPath(root, "caches")),
      tombstones(JoinPath(root, "tombstones")),
      node_id(JoinPath(root, "node_id")),
      clock(JoinPath(root, "clock.json")),
      limits(JoinPath(root, "limits.json")),
      home(JoinPath(root, "home.json")),
      claimed(JoinPath(root, "claimed")),
      boot(JoinPath(root, "boot.json")),
      contact(JoinPath(root, "contact.json")),
      contact_lock(JoinPath(root, "contact.lock")),
      release(JoinPath(root, "release.json")),
      telemetry(JoinPath(root, "node/telemetry")),
      log(JoinPath(root, "node/agent.log")),
      server_note(JoinPath(root, "node/server.json")) {}

JobPaths RootPaths::Job(absl::string_view job_id) const { return JobPaths(JoinPath(jobs, job_id)); }

StreamShape OutputShape(const gpuctl::v1::JobSpec& spec) {
  return StreamShape{spec.output_segment_bytes() > 0 ? spec.output_segment_bytes()
                                                     : kDefaultSegmentBytes};
}

int64_t OutputLimit(const gpuctl::v1::JobSpec& spec) {
  return spec.output_limit_bytes() > 0 ? spec.output_limit_bytes() : kDefaultOutputLimitBytes;
}

absl::Duration GraceOf(const gpuctl::v1::JobSpec& spec) {
  constexpr absl::Duration kDefault = absl::Seconds(60);  // as gpuctl/v1/run.proto says
  return spec.grace_ms() > 0 ? absl::Milliseconds(spec.grace_ms()) : kDefault;
}

absl::Duration TimeLimitOf(const JobPaths& paths, const gpuctl::v1::JobSpec& spec) {
  constexpr int64_t kMostBytes = 32;
  int64_t seconds = 0;
  const absl::StatusOr<std::string> changed = ReadFileToString(paths.time_limit, kMostBytes);
  if (changed.ok() && absl::SimpleAtoi(*changed, &seconds) && seconds > 0) {
    return absl::Seconds(seconds);
  }
  return absl::Seconds(std::max<int64_t>(0, spec.limits().time_s()));
}

std::string FormatStoredSpec(const StoredSpec& stored) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string spec_json;
  const auto status = google::protobuf::util::MessageToJsonString(stored.spec, &spec_json, options);
  if (!status.ok()) spec_json = "{}";  // fails only for Any fields; it has none
  const nlohmann::json digest = stored.spec_digest;
  return absl::StrCat(
      "{\"spec_digest\":", digest.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
      ",\"spec\":", spec_json, "}\n");
}

absl::StatusOr<StoredSpec> ParseStoredSpec(absl::string_view json) {
  const nlohmann::json stored = ParseBoundedJson(json, {.bytes = kMaxSpecBytes, .depth = 100});
  const auto invalid = [](absl::string_view why) {
    return absl::DataLossError(absl::StrCat("parse spec.json: ", why));
  };
  if (stored.is_discarded() || !stored.is_object()) return invalid("not a JSON object");
  const auto digest = stored.find("spec_digest");
  const auto spec = stored.find("spec");
  if (digest == stored.end() || !digest->is_string()) return invalid("no spec_digest");
  if (spec == stored.end() || !spec->is_object()) return invalid("no spec");
  StoredSpec result;
  result.spec_digest = digest->get<std::string>();
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // a newer build may have written it
  const auto status = google::protobuf::util::JsonStringToMessage(
      spec->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), &result.spec, options);
  if (!status.ok()) return invalid(status.ToString());
  return result;
}

absl::StatusOr<StoredSpec> ReadStoredSpec(const JobPaths& paths) {
  ASSIGN_OR_RETURN(const std::string contents, ReadFileToString(paths.spec));
  absl::StatusOr<StoredSpec> stored = ParseStoredSpec(contents);
  if (!stored.ok()) return Annotate(stored.status(), absl::StrCat("read ", paths.spec));
  return stored;
}

absl::StatusOr<Lifecycle> ReadLifecycle(const JobPaths& paths) {
  absl::StatusOr<std::string> contents = ReadFileToString(paths.lifecycle);
  if (absl::IsNotFound(contents.status())) return Lifecycle{};
  if (!contents.ok()) return contents.status();
  return ParseLifecycle(*contents);
}

std::string SpecDigest(const gpuctl::v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return Sha256HexOf(bytes);
}

}  // namespace gpuctl

#include "client/verbs/run_record.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/allocation_step.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/home/checkpoint_keep.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/sha256.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kHidden[] = "(hidden)";
constexpr size_t kShownDigest = 12;

// Returns the spec of the launch as JSON, the trainer's settings as an object in it.
Json SpecOf(const std::string& launch_json) {
  Json launch = Json::parse(launch_json, nullptr, false);
  if (!launch.is_object() || !launch.contains("spec")) return Json::object();
  Json spec = std::move(launch["spec"]);
  if (!spec.is_object()) return Json::object();
  if (spec.contains("trainer") && spec["trainer"].is_string()) {
    Json trainer = Json::parse(spec["trainer"].get<std::string>(), nullptr, false);
    spec["trainer"] = trainer.is_object() ? std::move(trainer) : Json();
  }
  return spec;
}

std::string TextOf(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Joined(const Json& list) {
  std::vector<std::string> texts;
  for (const Json& element : list) texts.push_back(TextOf(element));
  return absl::StrJoin(texts, " ");
}

// Adds the values of `json` under names such as "trainer.lora.r". An absent value and an empty one
// are the same.
void Flatten(const Json& json, const std::string& name, std::vector<RecordField>& fields) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      Flatten(value, name.empty() ? key : absl::StrCat(name, ".", key), fields);
    }
    return;
  }
  const std::string text = json.is_null() ? "" : json.is_array() ? Joined(json) : TextOf(json);
  const bool in_env = absl::StartsWith(name, "env.");
  fields.push_back({name, text, in_env ? ShownValue(name.substr(4), text) : text});
}

}  // namespace

bool NamesSecret(absl::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  // Not MAX_TOKENS or TOKENIZERS_PARALLELISM.
  if (absl::EndsWith(upper, "TOKEN") || absl::StrContains(upper, "TOKEN_")) return true;
  for (const char* part : {"SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"}) {
    if (absl::StrContains(upper, part)) return true;
  }
  return upper == "KEY" || absl::EndsWith(upper, "_KEY") || absl::EndsWith(upper, "APIKEY") ||
         upper == "PASS" || absl::EndsWith(upper, "_PASS");
}

std::string ShownValue(absl::string_view name, const std::string& value) {
  return NamesSecret(name) && !value.empty() ? kHidden : value;
}

absl::StatusOr<RunRecord> ReadRunRecord(CommandContext& context, Holdings& holdings,
                                        RunStore& store, const RunRow& row) {
  RunRecord record;
  record.row = row;
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  record.mirror = paths.MirrorDir(row.run_id);
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(record.mirror));
  record.status = DeriveStatus(row, lifecycle);
  AddQueueState(record.mirror, record.status);
  // The copy of the run may be gone.
  if (record.status.over && record.status.started_ms == 0) {
    record.status.started_ms = row.accepted_ms;
  }
  absl::StatusOr<LaunchRecord> launch = ParseLaunchRecord(row.launch_json);
  if (launch.ok()) record.launch = *std::move(launch);
  record.spec = SpecOf(row.launch_json);
  record.source = ParseSourceRecord(row.source_json);
  const absl::StatusOr<StoredSpec> job = ParseStoredSpec(row.spec_json);
  if (job.ok()) record.content = job->spec.manifest_digest();
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(record.machines, MachinesOfRun(*ledger, store, row));
  }
  MirrorReader mirror(record.mirror, row.output_segment_bytes);
  // One stream that cannot be read hides nothing else.
  if (const absl::Status read = mirror.Refresh(); !read.ok()) context.Warn(read.message());
  if (mirror.telemetry().has_value()) record.gpus = mirror.telemetry()->gpus;
  if (record.row.packages.empty()) {
    record.row.packages = absl::StrJoin(PackagesOf(mirror.lifecycle()), "\n");
  }
  const TrainingProgress& progress = mirror.progress();
  record.checkpoint_step = progress.checkpoint_step();
  record.own = mirror.own().Newest();
  if (progress.step() > record.row.step) {
    record.row.step = progress.step();
    record.row.total_steps = progress.total_steps();
    record.row.loss = progress.loss();
  }
  ASSIGN_OR_RETURN(const std::vector<PulledItem> items, PulledRecord(record.mirror).Read());
  record.checkpoints = NewestFirst(items);
  record.home_ms = PulledRecord(record.mirror).AllHomeMs();
  std::string root = row.target.root.empty() ? "~/.gpuctl" : row.target.root;
  // gpuctl exec tells where that is.
  if (root == kHeldRoot) root = absl::StrCat("$", kHeldRootVariable);
  record.on_node = JoinPath(JoinPath(root, "jobs"), row.job_id);
  return record;
}

std::string GpusOf(const RunRecord& record) {
  std::map<std::string, int> counts;
  for (const TelemetrySample::Gpu& gpu : record.gpus) {
    if (!gpu.name.empty()) ++counts[gpu.name];
  }
  std::vector<std::string> texts;
  for (const auto& [name, count] : counts) texts.push_back(FormatGpus(name, count));
  if (!texts.empty()) return absl::StrJoin(texts, ", ");
  if (record.machines.empty() || record.machines.front().lease.gpu_count == 0) return "";
  const Lease& lease = record.machines.front().lease;
  return FormatGpus(lease.gpu_name, lease.gpu_count);
}

std::string DriverOf(const RunRecord& record) {
  std::set<std::string> versions;
  for (const TelemetrySample::Gpu& gpu : record.gpus) {
    if (!gpu.driver_version.empty()) versions.insert(gpu.driver_version);
  }
  return absl::StrJoin(versions, ", ");
}

std::vector<RecordField> PackageFieldsOf(const RunRow& row) {
  std::vector<RecordField> fields;
  for (const absl::string_view line : absl::StrSplit(row.packages, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(absl::string_view("=="), 1));
    fields.push_back({absl::StrCat("package.", parts.first), parts.second, parts.second});
  }
  return fields;
}

int64_t TookMs(const RunRecord& record, int64_t now_ms) {
  const RunStatus& status = record.status;
  if (status.started_ms == 0) return -1;
  const int64_t until_ms = status.over ? status.end.ended_ms : now_ms;
  return std::max<int64_t>(0, until_ms - status.started_ms);
}

std::vector<RecordField> FieldsOf(const RunRecord& record, const std::string& diff,
                                  int64_t now_ms) {
  std::vector<RecordField> fields;
  // `name` is that of the runs, which differs anyway.
  Json spec = record.spec;
  spec.erase("name");
  Flatten(spec, "", fields);
  const auto add = [&fields](const char* name, const std::string& value) {
    fields.push_back({name, value, value});
  };
  const RunRow& row = record.row;
  add("content", record.content.substr(0, kShownDigest));
  const SourceRecord& source = record.source;
  add("commit", source.unknown.empty() ? source.commit : source.unknown);
  add("branch", source.branch);
  RecordField changes{"diff", diff.empty() ? "" : Sha256HexOf(diff), ""};
  if (source.unknown.empty()) {
    changes.value += absl::StrCat(" ", source.changed);
    changes.shown = source.changed == 0 ? "clean"
                                        : absl::StrCat(source.changed, " changed, ",
                                                       FormatBytes(source.diff_bytes));
  }
  fields.push_back(std::move(changes));
  add("provider", row.target.provider);
  add("machine", row.target.name);
  add("gpus", GpusOf(record));
  add("driver", DriverOf(record));
  if (!record.machines.empty()) {
    add("price", DescribeHighestPrice(record.machines));
    add("spent", FormatSpend(SpentByRun(record.machines, now_ms)));
  }
  add("status", WordOf(record.status.phase));
  if (record.status.over) add("end", DescribeEnd(record.status.end));
  add("attempts", record.status.attempt > 0 ? absl::StrCat(record.status.attempt) : "");
  const int64_t took_ms = TookMs(record, now_ms);
  add("took", took_ms < 0 ? "" : HumanDuration(absl::Milliseconds(took_ms)));
  add("step", row.step < 0 ? "" : absl::StrCat(row.step));
  add("loss", row.loss.has_value() ? FormatNumber(*row.loss) : "");
  for (const OwnNumber& own : record.own) {
    const std::string value = FormatNumber(own.value);
    fields.push_back({absl::StrCat("metric.", own.name), value, value});
  }
  add("tags", absl::StrJoin(row.tags, " "));
  return fields;
}

}  // namespace gpuctl

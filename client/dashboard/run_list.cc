#include "client/dashboard/run_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/dashboard/run_series.h"
#include "client/dispatch/dispatch_pass.h"
#include "client/runs/pulled_record.h"
#include "client/runs/queue_state.h"
#include "client/runs/run_status.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kReadListEvery = absl::Seconds(2);
constexpr absl::Duration kReadLeasesEvery = absl::Seconds(10);
constexpr absl::Duration kReadBatchesEvery = absl::Seconds(2);
constexpr absl::Duration kTotalEvery = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Milliseconds(300);

using Json = nlohmann::ordered_json;

Json GpusToJson(const std::optional<TelemetrySample>& telemetry) {
  Json list = Json::array();
  if (!telemetry.has_value()) return list;
  for (const TelemetrySample::Gpu& gpu : telemetry->gpus) {
    list.push_back({{"name", gpu.name},
                    {"utilization_percent", NumberToJson(gpu.utilization_percent)},
                    {"memory_used_bytes", NumberToJson(gpu.memory_used_bytes)},
                    {"memory_total_bytes", NumberToJson(gpu.memory_total_bytes)},
                    {"power_w", NumberToJson(gpu.power_w)},
                    {"temperature_c", NumberToJson(gpu.temperature_c)}});
  }
  return list;
}

Json ObjectOf(const Parameters& parameters) {
  Json object = Json::object();
  for (const auto& [name, value] : parameters) object[name] = value;
  return object;
}

// True when a run's text has `filter`, in lower case, in it.
bool Matches(const RunRow& row, absl::string_view status, const std::string& filter) {
  if (filter.empty()) return true;
  const std::string text = absl::AsciiStrToLower(
      absl::StrCat(row.name, "\n", status, "\n", row.target.name, "\n", row.command, "\n",
                   absl::StrJoin(row.tags, "\n"), "\n", row.run_id));
  return absl::StrContains(text, filter);
}

}  // namespace

RunList::RunList(CommandContext& context, RunStore& store, Holdings& holdings)
    : context_(context), store_(store), holdings_(holdings) {}

TopRunFollower* RunList::Live(const std::string& run_id) const {
  for (const auto& run : live_) {
    if (run->row().run_id == run_id) return run.get();
  }
  return nullptr;
}

// Finds runs that are new, and how others see those that are known.
absl::Status RunList::ReadList() {
  const absl::Duration now = context_.clock.SinceBoot();
  if (now < list_at_) return absl::OkStatus();
  list_at_ = now + kReadListEvery;
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, store_.List(/*live_only=*/true));
  std::map<std::string, RunRow> found;
  for (RunRow& row : rows) found.emplace(row.run_id, std::move(row));
  std::set<std::string> removed;
  for (const auto& run : live_) {
    const std::string& run_id = run->row().run_id;
    if (const auto row = found.find(run_id); row != found.end()) {
      run->SetRow(row->second);
      found.erase(row);
      continue;
    }
    // Another gpuctl recorded its end, or removed it. Of one that ended that is looked up, too.
    absl::StatusOr<RunRow> row = store_.Get(run_id);
    if (row.ok() && row->run_id == run_id) {
      run->SetRow(*row);
    } else if (absl::IsNotFound(row.status()) || (row.ok() && row->run_id != run_id)) {
      removed.insert(run_id);
    }
  }
  live_.erase(std::remove_if(live_.begin(), live_.end(),
                             [&removed](const auto& run) {
                               return removed.count(run->row().run_id) > 0 &&
                                      run->Unlink(absl::ZeroDuration());
                             }),
              live_.end());
  for (auto& [run_id, row] : found) {
    ASSIGN_OR_RETURN(std::unique_ptr<TopRunFollower> run,
                     TopRunFollower::Make(context_, store_, std::move(row)));
    live_.push_back(std::move(run));
  }
  ended_.clear();
  ASSIGN_OR_RETURN(std::vector<RunRow> newest, store_.List(/*live_only=*/false, kNewest));
  for (RunRow& row : newest) {
    if (!row.end.has_value() || Live(row.run_id) != nullptr) continue;
    std::string run_id = row.run_id;
    ended_.emplace(std::move(run_id), std::move(row));
  }
  return ReadLeases();
}

absl::Status RunList::ReadLeases() {
  const absl::Duration now = context_.clock.SinceBoot();
  if (now < leases_at_) return absl::OkStatus();
  leases_at_ = now + kReadLeasesEvery;
  // A laptop that never rented has no ledger to ask.
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
  if (ledger == nullptr) return absl::OkStatus();
  for (const auto& run : live_) RETURN_IF_ERROR(ReadMachines(*ledger, run->row()));
  for (const auto& [run_id, row] : ended_) RETURN_IF_ERROR(ReadMachines(*ledger, row));
  return absl::OkStatus();
}

absl::Status RunList::ReadMachines(Ledger& ledger, const RunRow& row) {
  ASSIGN_OR_RETURN(RunMachines machines, MachinesOfRun(ledger, store_, row));
  if (!machines.empty()) machines_.insert_or_assign(row.run_id, std::move(machines));
  return absl::OkStatus();
}

BatchStore* RunList::Batches() {
  if (batches_ == nullptr) {
    const absl::StatusOr<ClientPaths> paths = context_.Paths();
    if (!paths.ok()) return nullptr;
    absl::StatusOr<std::unique_ptr<BatchStore>> opened = BatchStore::Open(paths->database());
    if (opened.ok()) batches_ = *std::move(opened);
  }
  return batches_.get();
}

absl::Status RunList::ReadBatches() {
  const absl::Duration now = context_.clock.SinceBoot();
  if (now < batches_at_) return absl::OkStatus();
  batches_at_ = now + kReadBatchesEvery;
  BatchStore* const batches = Batches();
  if (batches == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto counts, batches->Waiting());
  int64_t total = 0;
  for (const auto& [batch, count] : counts) total += count;
  Json entries = Json::array();
  if (total > 0) {
    ASSIGN_OR_RETURN(const auto waiting, batches->ListWaiting(kMostWaiting));
    const auto why = WhyTheyWait(context_, holdings_, store_, *batches);
    for (const BatchStore::WaitingEntry& entry : waiting) {
      const bool known = why.ok() && why->count(entry.entry_id) > 0;
      entries.push_back({{"name", entry.name},
                         {"batch", entry.batch},
                         {"parameters", ObjectOf(entry.parameters)},
                         {"why", known ? why->at(entry.entry_id) : entry.why}});
    }
  }
  MakeStringsSafe(entries);
  waiting_ = Json{{"total", total}, {"entries", std::move(entries)}}.dump();
  return absl::OkStatus();
}

nlohmann::ordered_json RunList::ParametersOf(const RunRow& row) {
  const bool of_batch = std::any_of(row.tags.begin(), row.tags.end(), [](const std::string& tag) {
    return absl::StartsWith(tag, "batch:");
  });
  if (!of_batch) return Json::object();
  auto known = parameters_.find(row.run_id);
  if (known == parameters_.end()) {
    BatchStore* const batches = Batches();
    absl::StatusOr<Parameters> read = batches != nullptr ? batches->ParametersOf(row.run_id)
                                                         : absl::StatusOr<Parameters>(Parameters());
    if (!read.ok()) return Json::object();
    known = parameters_.emplace(row.run_id, *std::move(read)).first;
  }
  return ObjectOf(known->second);
}

absl::Status RunList::Step() {
  RETURN_IF_ERROR(ReadList());
  RETURN_IF_ERROR(ReadBatches());
  int links = 0;
  for (const auto& run : live_) links += run->linked() ? 1 : 0;
  for (const auto& run : live_) {
    const bool was_linked = run->linked();
    run->Step(links < kLinksAtOnce);
    links += static_cast<int>(run->linked()) - static_cast<int>(was_linked);
    for (const std::string& notice : run->TakeNotices()) {
      notices_.push_back(absl::StrCat(run->row().name, ": ", notice));
    }
  }
  return absl::OkStatus();
}

std::vector<int> RunList::wake_fds() const {
  std::vector<int> fds;
  for (const auto& run : live_) {
    if (run->wake_fd() >= 0) fds.push_back(run->wake_fd());
  }
  return fds;
}

std::vector<std::string> RunList::TakeNotices() { return std::exchange(notices_, {}); }

bool RunList::Unlink() {
  for (const auto& run : live_) (void)run->Unlink(absl::ZeroDuration());
  const absl::Duration end = context_.clock.SinceBoot() + kPatience;
  bool all = true;
  for (const auto& run : live_) {
    all = run->Unlink(std::max(absl::ZeroDuration(), end - context_.clock.SinceBoot())) && all;
  }
  return all;
}

nlohmann::ordered_json RunList::JsonOf(const RunRow& row, const RunStatus& status) {
  Json json = RunToJson(row, status);
  json["end_text"] = status.over ? Json(DescribeEnd(status.end)) : Json();
  json["parameters"] = ParametersOf(row);
  json["queue_text"] = status.queue.has_value() ? Json(DescribeQueue(*status.queue)) : Json();
  const auto machines = machines_.find(row.run_id);
  if (machines != machines_.end()) {
    AddRunCost(machines->second, status.over ? -1 : status.started_ms, context_.NowMs(), json);
  }
  return json;
}

nlohmann::ordered_json RunList::LiveJson(TopRunFollower& run) {
  RunRow row = run.row();
  const RunStatus status = run.Status();
  const TrainingProgress& progress = run.mirror().progress();
  if (progress.step() >= 0) {
    row.step = progress.step();
    row.total_steps = progress.total_steps();
  }
  if (progress.loss().has_value()) row.loss = progress.loss();
  Json json = JsonOf(row, status);
  json["epoch"] = NumberToJson(progress.epoch());
  json["total_epochs"] = progress.total_epochs() > 0 ? Json(progress.total_epochs()) : Json();
  json["eval_loss"] = NumberToJson(progress.eval_loss());
  json["learning_rate"] = NumberToJson(progress.learning_rate());
  json["grad_norm"] = NumberToJson(progress.grad_norm());
  json["tokens_per_s"] = NumberToJson(progress.tokens_per_s());
  const std::optional<absl::Duration> left = progress.Eta();
  json["seconds_left"] =
      !status.over && left.has_value() ? Json(absl::ToInt64Seconds(*left)) : Json();
  json["checkpoint_step"] =
      progress.checkpoint_step() >= 0 ? Json(progress.checkpoint_step()) : Json();
  json["remark"] = run.Remark();
  const std::optional<TelemetrySample> telemetry =
      status.over ? std::nullopt : run.mirror().telemetry();
  json["gpus"] = GpusToJson(telemetry);
  json["cpu_percent"] = NumberToJson(telemetry.has_value() ? telemetry->cpu_percent : std::nullopt);
  return json;
}

RunList::Changes RunList::TakeChanges() {
  Changes changes;
  std::set<std::string> present;
  const auto take = [&](const RunRow& row, Json json) {
    MakeStringsSafe(json);
    present.insert(row.run_id);
    std::string text = json.dump();
    auto& told = told_[row.run_id];
    if (told.second == text) return;
    told = {row.created_ms, std::move(text)};
    changes.changed.push_back({row.run_id, told.second});
  };
  for (const auto& run : live_) take(run->row(), LiveJson(*run));
  for (const auto& [run_id, row] : ended_) take(row, JsonOf(row, StatusOfEnded(row)));
  for (auto it = told_.begin(); it != told_.end();) {
    if (present.count(it->first) > 0) {
      ++it;
      continue;
    }
    // It may only be older than those that are told.
    if (absl::IsNotFound(Row(it->first).status())) changes.gone.push_back(it->first);
    it = told_.erase(it);
  }
  return changes;
}

std::vector<std::string> RunList::Snapshot() const {
  std::vector<std::pair<int64_t, const std::string*>> order;
  for (const auto& [run_id, told] : told_) order.emplace_back(-told.first, &told.second);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> runs;
  runs.reserve(order.size());
  for (const auto& [created, json] : order) runs.push_back(*json);
  return runs;
}

absl::StatusOr<int64_t> RunList::Total() {
  const absl::Duration now = context_.clock.SinceBoot();
  if (now < total_at_) return total_;
  ASSIGN_OR_RETURN(total_, store_.Count());
  total_at_ = context_.clock.SinceBoot() + kTotalEvery;
  return total_;
}

nlohmann::ordered_json RunList::Totals() const {
  int live = 0;
  for (const auto& run : live_) live += run->ended() ? 0 : 1;
  double usd_per_hour = 0;
  std::set<std::string> counted;  // a machine may have several runs
  for (const auto& [run_id, machines] : machines_) {
    for (const auto& [lease, part] : machines) {
      if (!lease.open() || lease.BillsNothing() || !counted.insert(lease.lease_id).second) continue;
      usd_per_hour += lease.usd_per_hour();
    }
  }
  return {{"live", live},
          {"machines_billing", counted.size()},
          {"usd_per_hour", counted.empty() ? Json() : Json(usd_per_hour)}};
}

absl::StatusOr<nlohmann::ordered_json> RunList::Search(const std::string& filter, size_t offset,
                                                       size_t limit) {
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store_.List());
  total_ = static_cast<int64_t>(rows.size());
  const std::string wanted = absl::AsciiStrToLower(filter);
  Json runs = Json::array();
  size_t matching = 0;
  for (const RunRow& row : rows) {
    TopRunFollower* const live = Live(row.run_id);
    const RunStatus status = live != nullptr       ? live->Status()
                             : row.end.has_value() ? StatusOfEnded(row)
                                                   : DeriveStatus(row, Lifecycle());
    if (!Matches(row, WordOf(status.phase), wanted)) continue;
    if (matching++ < offset || runs.size() >= std::min(limit, kMostAtOnce)) continue;
    Json json = live != nullptr ? LiveJson(*live) : JsonOf(row, status);
    MakeStringsSafe(json);
    runs.push_back(std::move(json));
  }
  return Json{{"runs", std::move(runs)}, {"total", rows.size()}, {"matching", matching}};
}

absl::StatusOr<RunRow> RunList::Row(const std::string& run_id) {
  ASSIGN_OR_RETURN(RunRow row, store_.Get(run_id));
  // A name could be like another run's id.
  if (row.run_id != run_id) return absl::NotFoundError(absl::StrCat("no run has the id ", run_id));
  return row;
}

absl::StatusOr<nlohmann::ordered_json> RunList::Detail(const std::string& run_id) {
  ASSIGN_OR_RETURN(const RunRow row, Row(run_id));
  TopRunFollower* const live = Live(run_id);
  if (live == nullptr && machines_.count(run_id) == 0) {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings_.FindLedger());
    if (ledger != nullptr) RETURN_IF_ERROR(ReadMachines(*ledger, row));
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context_.Paths());
  Json json = live != nullptr       ? LiveJson(*live)
              : row.end.has_value() ? JsonOf(row, StatusOfEnded(row))
                                    : JsonOf(row, DeriveStatus(row, Lifecycle()));
  json["workdir"] = row.workdir;
  json["note"] = row.note;
  Json pulled = Json::array();
  // What is recorded there may be unreadable; the rest is shown all the same.
  const absl::StatusOr<std::vector<PulledItem>> items =
      PulledRecord(paths.MirrorDir(run_id)).Read();
  if (items.ok()) {
    for (const PulledItem& item : *items) {
      if (item.kind == PulledItem::Kind::kFiles) continue;
      int64_t bytes = 0;
      for (const PulledFile& file : item.files) bytes += file.size;
      pulled.push_back({{"step", item.step >= 0 ? Json(item.step) : Json()},
                        {"path", item.path},
                        {"pulled", FormatRfc3339(item.time_ms)},
                        {"bytes", bytes},
                        {"is_there", PathExists(item.path)}});
    }
  }
  json["checkpoints_here"] = std::move(pulled);
  MakeStringsSafe(json);
  return json;
}

}  // namespace gpuctl

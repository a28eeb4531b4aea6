#include "client/verbs/batch_text.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/bill/lease_view.h"
#include "client/dispatch/start_array.h"
#include "client/keep/keep_pass.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/rent/market_expiry.h"
#include "client/terminal/shown_name.h"
#include "client/verbs/ps_money.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr EntryPhase kPhases[] = {EntryPhase::kWaiting,  EntryPhase::kStarting, EntryPhase::kQueued,
                                  EntryPhase::kRunning,  EntryPhase::kDone,     EntryPhase::kFailed,
                                  EntryPhase::kCancelled};
// Beyond its patience a pass asks machines, settles what was cut short, and plans.
constexpr absl::Duration kPassSlack = absl::Minutes(10);

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

absl::StatusOr<std::unique_ptr<BatchStore>> OpenBatches(CommandContext& context) {
  RETURN_IF_ERROR(context.Store().status());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  return BatchStore::Open(paths.database());
}

absl::StatusOr<BatchMoney> MoneyOfBatch(CommandContext& context, Holdings& holdings,
                                        BatchStore& batches, const Batch& batch) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return BatchMoney();
  ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches.Attempts(batch.batch_id));
  std::vector<std::string> run_ids;
  for (const Attempt& attempt : attempts) run_ids.push_back(attempt.run_id);
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger->OpenOrOf(run_ids));
  return MoneyOf(attempts, leases, context.NowMs());
}

absl::StatusOr<std::vector<Lease>> OpenLeasesOf(Holdings& holdings, BatchStore& batches,
                                                const Batch& batch) {
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return std::vector<Lease>();
  ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches.Attempts(batch.batch_id));
  std::set<std::string> run_ids;
  for (const Attempt& attempt : attempts) run_ids.insert(attempt.run_id);
  ASSIGN_OR_RETURN(std::vector<Lease> leases, ledger->List(/*open_only=*/true));
  const auto foreign = [&run_ids](const Lease& lease) {
    return std::none_of(lease.uses.begin(), lease.uses.end(),
                        [&run_ids](const LeaseUse& use) { return run_ids.count(use.run_id) > 0; });
  };
  leases.erase(std::remove_if(leases.begin(), leases.end(), foreign), leases.end());
  return leases;
}

RentalNews::RentalNews(CommandContext& context, Holdings& holdings, BatchStore& batches,
                       const Batch& batch)
    : context_(context),
      holdings_(holdings),
      batches_(batches),
      batch_(batch),
      begun_ms_(context.NowMs()) {}

void RentalNews::Tell() {
  // What cannot be read is not told.
  for (const Lease& lease :
       OpenLeasesOf(holdings_, batches_, batch_).value_or(std::vector<Lease>())) {
    // One that was rented before bills anyway.
    if (lease.intended_ms < begun_ms_ || !told_.insert(lease.lease_id).second) continue;
    if (const std::string array = DescribeArray(lease); !array.empty()) {
      if (told_.insert(array).second) context_.Say(array);
      continue;
    }
    context_.Say(absl::StrCat("renting ", FormatGpus(lease.gpu_name, lease.gpu_count), " at ",
                              lease.provider, " for ",
                              lease.uses.empty() ? batch_.name : lease.uses.front().run_name, ", ",
                              FormatUsdPerHour(lease), "/h"));
  }
}

nlohmann::ordered_json TellWhatBatchBills(CommandContext& context, Holdings& holdings,
                                          RunStore& runs, BatchStore& batches, const Batch& batch) {
  Json json = Json::array();
  absl::StatusOr<std::vector<Lease>> leases = OpenLeasesOf(holdings, batches, batch);
  if (!leases.ok()) {
    context.Warn(absl::StrCat("it is not known what bills on: ", leases.status().message()));
    return json;
  }
  // A task ends with its run, and nobody has looked since.
  leases->erase(std::remove_if(leases->begin(), leases->end(),
                               [](const Lease& lease) {
                                 return EndsWithItsRun(lease.provider, lease.instance_id);
                               }),
                leases->end());
  const int64_t now_ms = context.NowMs();
  double usd_per_hour = 0;
  for (const Lease& lease : *leases) {
    const std::string machine =
        lease.instance_id.empty() ? lease.label : RentedNodeName(lease.provider, lease.instance_id);
    const int64_t idle_ms = IdleSinceMs(runs, lease).value_or(0);
    std::string end;
    if (const absl::StatusOr<std::vector<Market>> market = holdings.Open({lease.provider});
        market.ok() && !market->front().provider->traits().self_release()) {
      const std::string of_market = DescribeMarketEnd(lease, now_ms);
      end = absl::StrCat(", and cannot end its own bill", of_market.empty() ? "" : "; ", of_market);
    } else if (idle_ms > 0) {
      const std::string when = DescribeIdleEnd(lease, idle_ms, now_ms, ResultsTime::kWords);
      if (!when.empty()) end = absl::StrCat(", and ends itself ", when);
    }
    context.Say(absl::StrCat(machine, " bills on, ", FormatUsdPerHour(lease), "/h", end));
    usd_per_hour += lease.usd_per_hour();
    json.push_back({{"node", machine}, {"usd_per_hour", lease.usd_per_hour()}});
  }
  if (leases->empty()) return json;
  if (leases->size() > 1) {
    context.Say(absl::StrCat("together ", FormatUsdPerHour(usd_per_hour), "/h"));
  }
  context.Hint(absl::StrCat("gpuctl down --batch ", batch.name,
                            leases->size() == 1 ? " ends it now" : " ends them now"));
  return json;
}

void TellOfSchedules(CommandContext& context, const std::set<std::string>& run_ids) {
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  if (!batches.ok()) return;
  const auto schedules = (*batches)->Schedules();
  const absl::StatusOr<std::vector<Batch>> all = (*batches)->List(/*open_only=*/false);
  if (!schedules.ok() || !all.ok()) return;
  for (const Batch& batch : *all) {
    const auto schedule = schedules->find(batch.batch_id);
    if (schedule == schedules->end() || schedule->second.ended) continue;
    const absl::StatusOr<std::vector<Attempt>> attempts = (*batches)->Attempts(batch.batch_id);
    const bool is_one = attempts.ok() && std::any_of(attempts->begin(), attempts->end(),
                                                     [&run_ids](const Attempt& attempt) {
                                                       return run_ids.count(attempt.run_id) > 0;
                                                     });
    if (!is_one) continue;
    context.Say(absl::StrCat("the schedule ", batch.name, " goes on: its next run starts ",
                             LocalTimeText(schedule->second.next_ms)));
    context.Hint(absl::StrCat("gpuctl cancel ", batch.name, " ends the schedule"));
  }
}

int CountOf(const BatchView& view, EntryPhase phase) {
  int count = 0;
  for (const EntryView& entry : view.entries) count += entry.phase == phase ? 1 : 0;
  return count;
}

Json ParametersToJson(const Parameters& parameters) {
  Json json = Json::object();
  for (const auto& [name, value] : parameters) json[name] = value;
  return json;
}

Json BatchToJson(const BatchView& view, const BatchMoney& money) {
  const Batch& batch = view.batch;
  Json json;
  json["batch"] = batch.name;
  json["batch_id"] = batch.batch_id;
  json["digest"] = batch.digest;
  json["created"] = FormatRfc3339(batch.created_ms);
  json["max_parallel"] = batch.max_parallel;
  json["max_failures"] = batch.max_failures;
  json["gave_up"] = view.gives_up() ? Json(WhyItGivesUp(view)) : Json();
  json["max_cost_usd"] = batch.max_cost_usd.has_value() ? Json(*batch.max_cost_usd) : Json();
  json["rents"] = batch.rents;
  json["array"] = batch.array;
  json["nodes"] = Json::array();
  for (const BatchHost& host : batch.hosts) {
    if (!host.target_name.empty()) json["nodes"].push_back(host.target_name);
  }
  if (const std::optional<Schedule>& schedule = view.schedule; schedule.has_value()) {
    json["schedule"] = {
        {"every", schedule->cron},
        {"overlap", schedule->overlap},
        {"next", schedule->ended ? Json() : Json(FormatRfc3339(schedule->next_ms))},
        {"last", schedule->last_ms > 0 ? Json(FormatRfc3339(schedule->last_ms)) : Json()},
        {"skipped", TextOrNull(schedule->why)}};
  } else {
    json["schedule"] = nullptr;
  }
  json["spent_usd"] = money.spent;
  json["promised_usd"] = money.may_spend;
  for (const EntryPhase phase : kPhases) json[EntryPhaseWord(phase)] = CountOf(view, phase);
  json["over"] = view.over();
  return json;
}

std::string ContentOf(RunStore& runs, const EntryView& view) {
  if (!view.run.has_value() || view.entry.state != EntryState::kStarted) return "";
  const absl::StatusOr<RunRow> whole = runs.Get(view.run->run_id);
  if (!whole.ok()) return "";
  const absl::StatusOr<StoredSpec> job = ParseStoredSpec(whole->spec_json);
  return job.ok() ? job->spec.manifest_digest() : "";
}

void MarkOtherContent(RunStore& runs, std::vector<BatchView>& views) {
  struct Started {
    EntryView* view;
    std::string content;
  };
  for (BatchView& batch : views) {
    if (batch.schedule.has_value()) continue;
    std::vector<Started> started;
    for (EntryView& view : batch.entries) {
      std::string content = ContentOf(runs, view);
      if (!content.empty()) started.push_back({&view, std::move(content)});
    }
    std::stable_sort(started.begin(), started.end(), [](const Started& a, const Started& b) {
      return a.view->run->created_ms < b.view->run->created_ms;
    });
    std::map<std::string, std::string> first;  // content, by the work directory
    for (const Started& one : started) {
      const auto& [workdir, content] = *first.emplace(one.view->run->workdir, one.content).first;
      one.view->other_content = content != one.content;
    }
  }
}

void TellOfOtherContent(CommandContext& context, const BatchView& view) {
  std::vector<std::string> names;
  const EntryView* first = nullptr;
  const EntryView* other = nullptr;
  for (const EntryView& one : view.entries) {
    if (!one.other_content) continue;
    if (other == nullptr) other = &one;
    names.push_back(one.entry.name);
  }
  if (other == nullptr) return;
  for (const EntryView& one : view.entries) {
    const bool there = one.run.has_value() && one.entry.state == EntryState::kStarted &&
                       one.run->workdir == other->run->workdir && !one.other_content;
    if (there && (first == nullptr || one.run->created_ms < first->run->created_ms)) first = &one;
  }
  const bool one_only = names.size() == 1;
  context.Warn(absl::StrCat(FirstFew(names), " got other files of ", other->run->workdir,
                            " than the first run: ", one_only ? "it" : "they",
                            " may have run other code"));
  if (first == nullptr) return;
  context.Hint(absl::StrCat("gpuctl diff ", first->run->name, " ", other->run->name,
                            " shows how they differ"));
}

std::string MarkedName(const EntryView& view) {
  return absl::StrCat(view.entry.name, view.other_content ? " (other files)" : "");
}

Json EntryToJson(const EntryView& view) {
  const Entry& entry = view.entry;
  Json json;
  json["entry"] = entry.name;
  json["entry_id"] = entry.entry_id;
  json["number"] = entry.number;
  json["state"] = EntryPhaseWord(view.phase);
  json["why"] = TextOrNull(view.why);
  json["priority"] = entry.priority;
  json["after"] = entry.after;
  json["file"] = TextOrNull(entry.file);
  json["parameters"] = ParametersToJson(entry.parameters);
  const bool has_run = view.run.has_value() && entry.state == EntryState::kStarted;
  json["run"] = has_run ? Json(view.run->name) : Json();
  json["run_id"] = has_run ? Json(view.run->run_id) : Json();
  json["node"] = has_run ? Json(view.run->target.name) : TextOrNull(entry.machine);
  json["exit_code"] =
      has_run && view.run->end.has_value() ? Json(view.run->end->exit_code) : Json();
  json["step"] = has_run && view.run->step >= 0 ? Json(view.run->step) : Json();
  json["loss"] = has_run ? NumberToJson(view.run->loss) : Json();
  json["other_content"] = view.other_content;
  return json;
}

std::vector<TableRow> BatchTable(CommandContext& context, const std::vector<BatchView>& views,
                                 const std::vector<BatchMoney>& money) {
  const bool scheduled = std::any_of(
      views.begin(), views.end(), [](const BatchView& view) { return view.schedule.has_value(); });
  const bool queued = std::any_of(views.begin(), views.end(), [](const BatchView& view) {
    return CountOf(view, EntryPhase::kQueued) > 0;
  });
  std::vector<TableRow> table = {{"BATCH", "WAITING"}};
  if (queued) table[0].push_back("QUEUED");
  for (const char* column :
       {"RUNNING", "DONE", "FAILED", "CANCELLED", "AT ONCE", "SPENT", "CAP", "AGE"}) {
    table[0].push_back(column);
  }
  if (scheduled) table[0].push_back("NEXT");
  for (size_t i = 0; i < views.size(); ++i) {
    const BatchView& view = views[i];
    const auto count = [&view](EntryPhase phase) { return absl::StrCat(CountOf(view, phase)); };
    const int running = CountOf(view, EntryPhase::kStarting) + CountOf(view, EntryPhase::kRunning);
    Cell failed = count(EntryPhase::kFailed);
    failed.red = failed.text != "0";
    const std::optional<double>& cap = view.batch.max_cost_usd;
    TableRow& row = table.emplace_back(TableRow{view.batch.name, count(EntryPhase::kWaiting)});
    if (queued) row.push_back(count(EntryPhase::kQueued));
    const std::vector<Cell> rest = {absl::StrCat(running),
                                    count(EntryPhase::kDone),
                                    failed,
                                    count(EntryPhase::kCancelled),
                                    absl::StrCat(view.batch.max_parallel),
                                    view.batch.rents ? FormatUsd(money[i].spent) : "-",
                                    cap.has_value() ? FormatUsd(*cap) : "-",
                                    Ago(context, view.batch.created_ms)};
    row.insert(row.end(), rest.begin(), rest.end());
    if (!scheduled) continue;
    row.push_back(view.schedule.has_value() && !view.schedule->ended
                      ? LocalTimeText(view.schedule->next_ms)
                      : "-");
  }
  return table;
}

std::string LocalTimeText(int64_t ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixMillis(ms), absl::LocalTimeZone());
}

std::string DescribeSchedule(const Schedule& schedule) {
  std::string text = absl::StrCat("every ", schedule.cron);
  if (schedule.ended) return absl::StrCat(text, ": ended");
  absl::StrAppend(&text, ", next ", LocalTimeText(schedule.next_ms));
  if (schedule.last_ms > 0 && !schedule.why.empty()) {
    absl::StrAppend(&text, "; ", LocalTimeText(schedule.last_ms), " went by, because ",
                    schedule.why);
  }
  return text;
}

std::vector<TableRow> EntryTable(const BatchView& view) {
  std::vector<TableRow> table = {{"ENTRY", "STATE", "ON", "STEP", "LOSS", "PARAMETERS", "WHY"}};
  // One file for all says nothing.
  const bool files = std::any_of(
      view.entries.begin(), view.entries.end(),
      [&view](const auto& one) { return one.entry.file != view.entries.front().entry.file; });
  if (files) table[0].insert(table[0].begin() + 1, "FILE");
  std::map<std::string, std::string> told;  // why others wait, and who of them was first
  for (const EntryView& one : view.entries) {
    const bool has_run = one.run.has_value() && one.entry.state == EntryState::kStarted;
    std::string why = one.why.empty() ? "-" : one.why;
    if (one.phase == EntryPhase::kWaiting && !one.why.empty()) {
      const auto [first, is_new] = told.emplace(one.why, absl::StrCat("as ", one.entry.name));
      if (!is_new && first->second.size() < why.size()) why = first->second;
    }
    const bool renamed = has_run && one.run->name != one.entry.name;
    Cell state = EntryPhaseWord(one.phase);
    state.red = one.phase == EntryPhase::kFailed;
    Cell loss = has_run && one.run->loss.has_value() ? FormatNumber(*one.run->loss) : "-";
    loss.red = has_run && one.run->loss.has_value() && !std::isfinite(*one.run->loss);
    table.push_back(
        {renamed ? absl::StrCat(MarkedName(one), " (run ", one.run->name, ")") : MarkedName(one),
         state,
         has_run                     ? one.run->target.name
         : one.entry.machine.empty() ? "-"
                                     : one.entry.machine,
         has_run && one.run->step >= 0 ? absl::StrCat(one.run->step) : "-", loss,
         one.entry.parameters.empty() ? "-" : DescribeParameters(one.entry.parameters), why});
    if (!files) continue;
    table.back().insert(table.back().begin() + 1, one.entry.file.empty() ? "-" : one.entry.file);
  }
  return table;
}

std::string DescribeCounts(const BatchView& view) {
  std::vector<std::string> parts;
  for (const EntryPhase phase : kPhases) {
    const int count = CountOf(view, phase);
    if (count > 0) parts.push_back(absl::StrCat(count, " ", EntryPhaseWord(phase)));
  }
  return absl::StrJoin(parts, ", ");
}

void TellOfGivingUp(CommandContext& context, const BatchView& view) {
  if (!view.gives_up()) return;
  context.Warn(absl::StrCat(view.batch.name, ": no more of it start: ", WhyItGivesUp(view)));
}

void TellOfOpenEntries(CommandContext& context, const std::vector<BatchView>& views) {
  size_t all = 0, open = 0;
  for (const BatchView& view : views) {
    all += view.entries.size();
    open +=
        static_cast<size_t>(std::count_if(view.entries.begin(), view.entries.end(),
                                          [](const EntryView& entry) { return !entry.over(); }));
  }
  if (open == 0) return;
  context.Say(absl::StrCat(open, " of ", all, open == 1 ? " runs is" : " runs are",
                           " not over: the best one may yet be another"));
}

absl::StatusOr<nlohmann::json> MakePass(absl::Duration patience, int signal_fd) {
  ASSIGN_OR_RETURN(const ProgramEnd end,
                   RunsThisProgram(signal_fd)({"queue", "--pass", "--patience",
                                               absl::StrCat(absl::ToInt64Seconds(patience))},
                                              patience + kPassSlack));
  nlohmann::json json = ParseBoundedJson(end.output);
  if (end.exit_code == 0) return json;
  std::string message = absl::StrCat("gpuctl queue ended with ", end.exit_code);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    const auto& said = json["error"]["message"];
    if (said.is_string()) message = said.get<std::string>();
  }
  return WithExitCode(absl::UnknownError(message), static_cast<ExitCode>(end.exit_code));
}

absl::Status CheckNoBatch(CommandContext& context, const std::vector<std::string>& references,
                          absl::string_view how) {
  if (references.empty()) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  if (!batches.ok()) return absl::OkStatus();
  const auto schedules = (*batches)->Schedules();
  for (const std::string& name : references) {
    const absl::StatusOr<Batch> batch = (*batches)->Get(name);
    if (!batch.ok() || (schedules.ok() && schedules->count(batch->batch_id) > 0)) continue;
    const absl::StatusOr<std::vector<Entry>> entries = (*batches)->Entries(batch->batch_id);
    if (entries.ok() && entries->size() == 1) continue;
    return UsageError(absl::StrCat(name, " is a batch of several runs"),
                      absl::StrReplaceAll(how, {{"$", name}}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WithRunsOfBatches(
    CommandContext& context, const std::vector<std::string>& references) {
  if (references.empty()) return references;
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const auto schedules, batches->Schedules());
  std::vector<std::string> runs;
  for (const std::string& reference : references) {
    const absl::StatusOr<Batch> batch = batches->Get(reference);
    if (!batch.ok() || schedules.count(batch->batch_id) > 0) {
      runs.push_back(reference);
      continue;
    }
    ASSIGN_OR_RETURN(const std::vector<Entry> entries, batches->Entries(batch->batch_id));
    const size_t before = runs.size();
    for (const Entry& entry : entries) {
      if (!entry.run_id.empty() && store->Get(entry.run_id).ok()) runs.push_back(entry.run_id);
    }
    if (runs.size() == before) {
      return WithHint(absl::FailedPreconditionError(
                          absl::StrCat("no run of batch ", reference, " has started")),
                      absl::StrCat("gpuctl queue ", reference, " says why"));
    }
  }
  return runs;
}

std::string HintForBatch(CommandContext& context, absl::string_view reference) {
  const absl::StatusOr<std::unique_ptr<BatchStore>> batches = OpenBatches(context);
  if (!batches.ok()) return "";
  const absl::StatusOr<std::vector<Batch>> all = (*batches)->List(/*open_only=*/false);
  if (!all.ok()) return "";
  std::vector<std::string> names;
  for (const Batch& batch : *all) names.push_back(batch.name);
  const size_t dash = reference.rfind('-');
  std::string name = Nearest(reference, names);
  if (dash != reference.npos &&
      reference.find_first_not_of("0123456789", dash + 1) == reference.npos) {
    const std::string of_run = Nearest(reference.substr(0, dash), names);
    if (!of_run.empty()) name = of_run;
  }
  if (name.empty()) return "";
  return absl::StrCat("gpuctl queue ", name, " shows the runs of batch ", name);
}

absl::StatusOr<std::optional<Entry>> FindUnstarted(CommandContext& context,
                                                   const std::string& reference) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(std::optional<Entry> entry, batches->FindEntry(reference));
  if (entry.has_value() && entry->state == EntryState::kStarted) entry.reset();
  return entry;
}

std::string DescribeUnstarted(const Entry& entry) {
  const std::string& why = entry.why;
  switch (entry.state) {
    case EntryState::kWaiting:
      return absl::StrCat(entry.name, " waits in its batch, and has not started yet",
                          why.empty() ? "" : ": ", why);
    case EntryState::kStarting:
    case EntryState::kStarted:
      return absl::StrCat(entry.name, " is being started");
    case EntryState::kFailed:
    case EntryState::kCancelled:
      break;
  }
  return absl::StrCat(entry.name,
                      " did not start: ", why.empty() ? EntryStateWord(entry.state) : why);
}

absl::Status CheckStarted(CommandContext& context, const std::vector<std::string>& references) {
  for (const std::string& reference : references) {
    const absl::StatusOr<std::optional<Entry>> entry = FindUnstarted(context, reference);
    if (!entry.ok() || !entry->has_value()) continue;
    const Entry& found = **entry;
    ASSIGN_OR_RETURN(RunStore * store, context.Store());
    if (!found.run_id.empty() && store->Get(found.run_id).ok()) continue;
    const bool over = found.state == EntryState::kFailed || found.state == EntryState::kCancelled;
    return WithHint(
        absl::FailedPreconditionError(DescribeUnstarted(found)),
        over ? "gpuctl queue -a shows its batch"
             : absl::StrCat("gpuctl wait ", found.name, " waits for its end; gpuctl cancel ",
                            found.name, " keeps it from starting"));
  }
  return absl::OkStatus();
}

}  // namespace gpuctl

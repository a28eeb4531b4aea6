// gpuctl show: the record of a run.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/bill/lease_view.h"
#include "client/follow/output_hint.h"
#include "client/keep/keep_status.h"
#include "client/market/holdings.h"
#include "client/runs/context.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/shown_name.h"
#include "client/terminal/table.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/packages.h"
#include "client/verbs/ps_money.h"
#include "client/verbs/run_record.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/wishes/wish_text.h"
#include "client/workdir/named_results.h"
#include "common/base/status_macros.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

// The page, a row for each thing that is known.
class Page {
 public:
  void Add(const char* name, const std::string& text) {
    if (!text.empty()) rows_.push_back({name, text});
  }
  const std::vector<TableRow>& rows() const { return rows_; }

 private:
  std::vector<TableRow> rows_;
};

std::string WhenText(CommandContext& context, int64_t time_ms) {
  if (time_ms == 0) return "";
  return absl::StrCat(FormatRfc3339(time_ms), ", ", Ago(context, time_ms), " ago");
}

std::string StatusLine(const RunStatus& status) {
  if (status.queue.has_value()) {
    return absl::StrCat(WordOf(status.phase), ": ", DescribeQueue(*status.queue));
  }
  if (!status.over) return WordOf(status.phase);
  const std::string end = DescribeEnd(status.end);
  const std::string word = WordOf(status.phase);
  return absl::StartsWith(end, word) ? end : absl::StrCat(word, ": ", end);
}

// The command as typed; the lines of a script come below the table.
std::string CommandText(const RunRecord& record) {
  if (!record.launch.has_value()) return record.row.command;
  const RunSpec& spec = record.launch->spec;
  if (!spec.command.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : spec.command) words.push_back(ShellQuote(word));
    return absl::StrJoin(words, " ");
  }
  return spec.run.empty() ? record.row.command : "";
}

void AddSource(const RunRecord& record, Page& page) {
  const SourceRecord& source = record.source;
  page.Add("commit", DescribeSource(source));
  if (source.diff_bytes > 0) {
    page.Add("diff", absl::StrCat(FormatBytes(source.diff_bytes), source.diff_cut ? ", cut" : "",
                                  "; gpuctl show ", record.row.name, " --diff prints it"));
  }
  page.Add("no diff", source.diff_missing);
  if (source.left_out_count > 0) {
    page.Add("not in it",
             absl::StrCat(source.left_out_count,
                          " secret, large and new, or not sent: ", FirstFew(source.left_out)));
  }
  page.Add("workdir", record.row.workdir);
  page.Add("content", record.content.substr(0, 12));
}

void AddMachine(CommandContext& context, const RunRecord& record, Page& page) {
  const RunRow& row = record.row;
  page.Add("machine", absl::StrCat(row.target.name.empty() ? "none" : row.target.name, " (",
                                   row.target.provider, ")"));
  if (const absl::StatusOr<RunStore*> store = context.Store(); store.ok()) {
    const absl::StatusOr<std::vector<RunRow>> members = (*store)->Members(row.run_id);
    for (size_t i = 0; members.ok() && i < members->size(); ++i) {
      const RunRow& member = (*members)[i];
      page.Add("also on",
               absl::StrCat(member.target.name, ": node ", member.rank, ", ", member.name));
    }
  }
  std::string gpus = GpusOf(record);
  if (const std::string driver = DriverOf(record); !driver.empty()) {
    absl::StrAppend(&gpus, ", driver ", driver);
  }
  page.Add("gpu", gpus);
  if (record.launch.has_value() && record.launch->spec.gpus.has_value()) {
    const std::vector<std::string>& ids = record.status.gpu_ids;
    page.Add("its own", absl::StrCat(*record.launch->spec.gpus, ids.empty() ? "" : ": ",
                                     absl::StrJoin(ids, " ")));
  }
  if (record.launch.has_value()) page.Add("image", record.launch->spec.image);
  if (record.machines.empty()) return;
  const Lease& lease = record.machines.front().lease;
  const std::string ended = AnyOpen(record.machines)             ? ""
                            : lease.provider == kClusterProvider ? "; the allocation is over"
                            : record.machines.size() > 1
                                ? "; the machines are gone"
                                : absl::StrCat("; the machine is gone: ", lease.how_ended);
  page.Add("price", absl::StrCat(DescribeHighestPrice(record.machines), lease.spot ? ", spot" : "",
                                 lease.region.empty() ? "" : absl::StrCat(", ", lease.region)));
  page.Add("spent", absl::StrCat(FormatSpend(SpentByRun(record.machines, context.NowMs())), ended));
}

// Returns the limits that were agreed for the run; the cost is that of all its machines.
LeaseLimits OwnLimits(const RunMachines& machines) {
  LeaseLimits limits = LimitsFor(machines.front().lease, machines.front().run_id);
  if (machines.size() == 1) return limits;
  RunMachines agreed = machines;
  for (RunMachine& machine : agreed) {
    machine.lease.limits = LimitsFor(machine.lease, machine.run_id);
  }
  limits.cost_usd = CostLimit(agreed);
  return limits;
}

void AddLimits(const RunRecord& record, Page& page) {
  if (!record.launch.has_value()) return;
  const RunSpec& spec = record.launch->spec;
  std::vector<std::string> limits = {absl::StrCat("time ", HumanDuration(spec.time_limit)),
                                     absl::StrCat("grace ", HumanDuration(spec.grace))};
  LeaseLimits now;
  if (!record.machines.empty()) {
    LeaseLimits own = OwnLimits(record.machines);
    now = record.machines.front().lease.limits;
    if (record.machines.size() > 1) now.cost_usd = CostLimit(record.machines);
    // The limit on running time is the run's own, whatever the machine's others have.
    own.time_s = now.time_s = 0;
    if (own == now) now = LeaseLimits();
    if (std::string text = DescribeLeaseLimits(own); !text.empty()) {
      limits.push_back(std::move(text));
    }
  }
  page.Add("limits", absl::StrJoin(limits, ", "));
  // Runs that came to the machine later may have changed those.
  page.Add("machine's", DescribeLeaseLimits(now).empty()
                            ? ""
                            : absl::StrCat(AnyOpen(record.machines) ? "now " : "at last ",
                                           DescribeLeaseLimits(now), ": later runs changed them"));
  if (spec.max_retries > 0) {
    page.Add("retries", absl::StrCat(spec.max_retries, " on ", absl::StrJoin(spec.retry_on, ", ")));
  }
}

void AddSpec(const RunRecord& record, Page& page) {
  if (!record.launch.has_value()) return;
  const RunSpec& spec = record.launch->spec;
  std::vector<std::string> env, data;
  for (const auto& [name, value] : spec.env) {
    env.push_back(absl::StrCat(name, "=", ShellQuote(ShownValue(name, value))));
  }
  for (const auto& [from, to] : spec.data) data.push_back(absl::StrCat(from, " as ", to));
  page.Add("env", absl::StrJoin(env, " "));
  page.Add("secrets", absl::StrJoin(spec.secrets, " "));
  page.Add("data", absl::StrJoin(data, ", "));
  page.Add("saves", absl::StrJoin(spec.checkpoints, " "));
  page.Add("results", absl::StrJoin(spec.artifacts, " "));
}

void AddProgress(CommandContext& context, const RunRecord& record, Page& page) {
  const RunRow& row = record.row;
  if (row.step >= 0) {
    page.Add(
        "step",
        absl::StrCat(row.step, row.total_steps > 0 ? absl::StrCat("/", row.total_steps) : "",
                     row.loss.has_value() ? absl::StrCat(", loss ", FormatNumber(*row.loss)) : ""));
  }
  std::vector<std::string> checkpoints;
  if (record.checkpoint_step >= 0) {
    checkpoints.push_back(absl::StrCat("step ", record.checkpoint_step, " is the newest"));
  }
  if (!record.checkpoints.empty()) {
    checkpoints.push_back(absl::StrCat(record.checkpoints.size(), " at home, newest ",
                                       record.checkpoints.front().path));
  }
  page.Add("checkpoints", absl::StrJoin(checkpoints, "; "));
  if (record.home_ms > 0) {
    page.Add("at home", absl::StrCat("all its results, since ", WhenText(context, record.home_ms)));
  } else if (record.status.over && record.row.accepted_ms > 0) {
    const bool named =
        !record.launch.has_value() || NamesResults(record.launch->spec, record.row.workdir);
    page.Add("at home", absl::StrCat("not all, as far as known; gpuctl pull ", record.row.name,
                                     named ? "" : " '**', for it names no results"));
  }
}

// Returns the name of the run `run_id`; the id itself when it is not in the list any more.
std::string NameOf(RunStore& store, const std::string& run_id) {
  if (run_id.empty()) return "";
  const absl::StatusOr<RunRow> row = store.Get(run_id);
  return row.ok() ? row->name : run_id;
}

std::vector<std::string> PackagesOf(const RunRow& row) {
  return absl::StrSplit(row.packages, '\n', absl::SkipEmpty());
}

std::vector<KnownWish> WishesHere(CommandContext& context, const RunRow& row) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  return KnownWishesOf(context, row.run_id, paths.ok() && IsKept(paths->state_dir));
}

// Returns what the output of a job ends with that failed by itself; "" for others.
std::string LastLineOfFailed(CommandContext& context, const RunRecord& record) {
  const RunStatus& status = record.status;
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok() || status.phase != RunPhase::kFailed || status.end.source != EndSource::kJob) {
    return "";
  }
  MirrorReader mirror(paths->MirrorDir(record.row.run_id), record.row.output_segment_bytes);
  return LastLineOfOutput(mirror);
}

void PrintPage(CommandContext& context, RunStore& store, const RunRecord& record) {
  const RunRow& row = record.row;
  Page page;
  page.Add("run", absl::StrCat(row.name, " (", row.run_id, ")"));
  page.Add("status", StatusLine(record.status));
  page.Add("last line", LastLineOfFailed(context, record));
  if (const RunEnd& end = record.status.end; record.status.over) {
    page.Add("exit code",
             absl::StrCat(end.exit_code,
                          end.source == EndSource::kJob ? ", the job's own" : ", gpuctl's"));
  }
  page.Add("command", CommandText(record));
  if (const auto trainer = record.spec.find("trainer");
      trainer != record.spec.end() && trainer->is_object()) {
    page.Add("trainer", trainer->dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  page.Add("tags", absl::StrJoin(row.tags, " "));
  page.Add("note", row.note);
  if (record.launch.has_value()) page.Add("like", NameOf(store, record.launch->like));
  page.Add("resumed", NameOf(store, row.resumed_from));
  page.Add("created", WhenText(context, row.created_ms));
  page.Add("started", WhenText(context, record.status.started_ms));
  if (record.status.over) page.Add("ended", WhenText(context, record.status.end.ended_ms));
  if (const int64_t took_ms = TookMs(record, context.NowMs()); took_ms >= 0) {
    page.Add("took", HumanDuration(absl::Milliseconds(took_ms)));
  }
  if (record.status.setup.has_value()) {
    page.Add("setup", DescribeSetup(*record.status.setup, context.NowMs()));
  }
  if (record.launch.has_value() && record.launch->spec.processes != 0) {
    const std::string word = ProcessesWord(record.launch->spec.processes);
    page.Add("processes", word == "gpus" ? "one for each GPU" : word);
  }
  AddSource(record, page);
  AddMachine(context, record, page);
  AddLimits(record, page);
  AddSpec(record, page);
  AddProgress(context, record, page);
  for (const auto& [wish, doer] : WishesHere(context, row)) {
    page.Add(wish.down ? "at its end" : "meanwhile",
             absl::StrCat(DescribeWish(wish, row.name), "; ", DescribeDoer(doer, row.name)));
  }
  if (const auto packages = PackagesOf(row); !packages.empty()) {
    page.Add("packages", absl::StrCat(packages.size(), " of Python are recorded; gpuctl show ",
                                      row.name, " --packages prints them"));
  }
  page.Add("files here", record.mirror);
  if (row.accepted_ms > 0) page.Add("files there", record.on_node);
  PrintPageFor(context, page.rows());
  if (!record.launch.has_value()) {
    context.Say(absl::StrCat("an older gpuctl launched ", row.name, ", and recorded less"));
    return;
  }
  for (const auto& [title, script] :
       {std::pair("setup", record.launch->spec.setup), {"script", record.launch->spec.run}}) {
    if (script.empty()) continue;
    context.PrintLine(title);
    for (const absl::string_view line : absl::StrSplit(script, '\n')) {
      context.PrintLine(absl::StrCat("  ", line));
    }
  }
}

Json CheckpointsToJson(const RunRecord& record) {
  Json list = Json::array();
  for (const PulledItem& item : record.checkpoints) {
    list.push_back({{"step", item.step < 0 ? Json() : Json(item.step)}, {"path", item.path}});
  }
  return list;
}

Json GpusToJson(const RunRecord& record) {
  Json list = Json::array();
  for (const TelemetrySample::Gpu& gpu : record.gpus) {
    Json one = {{"name", gpu.name},
                {"memory_bytes", nullptr},
                {"driver_version", gpu.driver_version.empty() ? Json() : Json(gpu.driver_version)}};
    if (gpu.memory_total_bytes.has_value() && *gpu.memory_total_bytes < 9e15) {
      one["memory_bytes"] = static_cast<int64_t>(*gpu.memory_total_bytes);
    }
    one["utilization_percent"] = NumberToJson(gpu.utilization_percent);
    one["memory_used_bytes"] = nullptr;
    if (gpu.memory_used_bytes.has_value() && std::abs(*gpu.memory_used_bytes) < 9e15) {
      one["memory_used_bytes"] = static_cast<int64_t>(*gpu.memory_used_bytes);
    }
    one["power_w"] = NumberToJson(gpu.power_w);
    one["temperature_c"] = NumberToJson(gpu.temperature_c);
    list.push_back(std::move(one));
  }
  return list;
}

Json LimitsToJson(const LeaseLimits& limits) {
  const auto seconds = [](int64_t count) { return count > 0 ? Json(count) : Json(); };
  return {{"idle_s", seconds(limits.idle_s)},
          {"salvage_s", seconds(limits.salvage_s)},
          {"lease_s", seconds(limits.contact_s)},
          {"cost_usd", limits.cost_usd > 0 ? Json(limits.cost_usd) : Json()}};
}

Json SpecToJson(const RunRecord& record) {
  if (!record.launch.has_value()) return Json();
  Json spec = record.spec;
  if (!spec.contains("env") || !spec["env"].is_object()) return spec;
  for (const auto& [name, value] : spec["env"].items()) {
    if (value.is_string()) value = ShownValue(name, value.get<std::string>());
  }
  return spec;
}

// Returns the other machines of the run; null for a run on one.
Json MembersToJson(CommandContext& context, const std::string& run_id) {
  const absl::StatusOr<RunStore*> store = context.Store();
  if (!store.ok()) return {};
  const absl::StatusOr<std::vector<RunRow>> members = (*store)->Members(run_id);
  if (!members.ok() || members->empty()) return {};
  Json list = Json::array();
  for (const RunRow& member : *members) {
    list.push_back(
        {{"rank", member.rank},
         {"run_id", member.run_id},
         {"name", member.name},
         {"node", member.target.name},
         {"node_id", member.node_id.empty() ? Json() : Json(member.node_id)},
         {"job_id", member.job_id},
         {"exit_code", member.end.has_value() ? Json(member.end->exit_code) : Json()},
         {"reason", member.end.has_value() && !member.end->reason.empty() ? Json(member.end->reason)
                                                                          : Json()}});
  }
  return list;
}

Json RecordToJson(CommandContext& context, const RunRecord& record) {
  const RunRow& row = record.row;
  Json run = RunToJson(row, record.status);
  run = WithMoney(context, std::move(run), record.machines.empty() ? nullptr : &record.machines,
                  record.status);
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  run["note"] = text(row.note);
  run["like"] = text(record.launch.has_value() ? record.launch->like : "");
  run["workdir"] = text(row.workdir);
  run["content"] = text(record.content);
  run["git"] = SourceToJson(record.source);
  run["spec"] = SpecToJson(record);
  run["wishes"] = WishesToJson(WishesHere(context, row), row.name);
  run["results_home"] = record.home_ms == 0 ? Json() : Json(FormatRfc3339(record.home_ms));
  run["packages"] = row.packages.empty() ? Json() : Json(PackagesOf(row));
  run["gpus"] = GpusToJson(record);
  run["limits"] = run["machine_limits"] = nullptr;
  if (!record.machines.empty()) {
    run["limits"] = LimitsToJson(OwnLimits(record.machines));
    run["machine_limits"] = LimitsToJson(record.machines.front().lease.limits);
  }
  run["members"] = MembersToJson(context, row.run_id);
  run["checkpoint_step"] = record.checkpoint_step < 0 ? Json() : Json(record.checkpoint_step);
  run["checkpoints"] = CheckpointsToJson(record);
  const MirrorPaths mirror(record.mirror);
  run["files"] = {{"mirror", mirror.dir},
                  {"output", mirror.output},
                  {"metrics", mirror.metrics},
                  {"lifecycle", mirror.lifecycle},
                  {"on_node", row.accepted_ms > 0 ? Json(record.on_node) : Json()}};
  return run;
}

// Prints the packages of the job's Python. While the run lives they may change, so that its machine
// is asked again.
absl::Status PrintPackages(CommandContext& context, RunStore& store, const RunRow& row) {
  std::vector<std::string> packages = PackagesOf(row);
  if (packages.empty() || !row.end.has_value()) {
    const absl::StatusOr<std::vector<std::string>> asked = AskForPackages(context, row);
    if (!asked.ok() && packages.empty()) return asked.status();
    if (asked.ok()) {
      packages = *asked;
      RETURN_IF_ERROR(store.SetPackages(row.run_id, absl::StrJoin(packages, "\n")));
    } else {
      context.Warn(absl::StrCat(asked.status().message(), "; these were recorded before"));
    }
  }
  if (context.json()) {
    context.PrintJson({{"run_id", row.run_id}, {"name", row.name}, {"packages", packages}});
  } else {
    context.PrintLines(packages);
  }
  return absl::OkStatus();
}

// Prints the diff as git made it, for `git apply`; on a terminal made safe.
absl::Status PrintDiff(CommandContext& context, RunStore& store, const RunRow& row) {
  ASSIGN_OR_RETURN(const std::string diff, store.SourceDiff(row.run_id));
  if (context.json()) {
    context.PrintJson({{"run_id", row.run_id}, {"name", row.name}, {"diff", diff}});
    return absl::OkStatus();
  }
  const SourceRecord source = ParseSourceRecord(row.source_json);
  if (diff.empty()) {
    context.Say(
        absl::StrCat(row.name, " has no diff: ",
                     source.diff_missing.empty() ? DescribeSource(source) : source.diff_missing));
    return absl::OkStatus();
  }
  if (context.terminal.stdout_tty) {
    for (const absl::string_view line : absl::StrSplit(diff, '\n')) context.PrintLine(line);
  } else {
    const absl::StatusOr<size_t> written = context.PrintJobBytes(diff);
    if (!absl::IsUnavailable(written.status())) RETURN_IF_ERROR(written.status());
  }
  if (source.diff_cut) context.Say("the diff is longer; this is the part that was kept");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdShow(CommandContext& context, std::vector<std::string> args) {
  std::string reference;
  bool diff = false, packages = false;
  VerbParser parser(
      context, "show RUN [FLAGS]",
      "Shows what is recorded of a run on this laptop: command, git commit and changes,\n"
      "machine, GPU, price, limits, end, cost, checkpoints, and where its files are. Asks\n"
      "no machine without --packages. Values of secrets are not recorded; those of variables whose "
      "names look\n"
      "like a secret's are not shown.",
      "  gpuctl show amber-fox-3\n"
      "  gpuctl show amber-fox-3 --diff | git apply    the changes of that run");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  parser.Switch("--diff", diff, "Print how the work directory differed from its commit");
  parser.Switch("--packages", packages,
                "Print the packages of the job's Python; asks its machine, and records the answer");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  RETURN_IF_ERROR(CheckNoBatch(
      context, {reference},
      "gpuctl queue $ shows its runs, queue $ --results compares them, show $-1 shows one"));
  RETURN_IF_ERROR(CheckStarted(context, {reference}));
  ASSIGN_OR_RETURN(const RunRow row, store->Get(reference));
  if (diff && packages) return UsageError("--diff and --packages are two texts", "name one");
  if (packages) {
    RETURN_IF_ERROR(PrintPackages(context, *store, row));
    return kExitOk;
  }
  if (diff) {
    RETURN_IF_ERROR(PrintDiff(context, *store, row));
    return kExitOk;
  }
  Holdings holdings(context);
  ASSIGN_OR_RETURN(const RunRecord record, ReadRunRecord(context, holdings, *store, row));
  if (context.json()) {
    context.PrintJson(RecordToJson(context, record));
  } else {
    PrintPage(context, *store, record);
  }
  return kExitOk;
}

}  // namespace gpuctl

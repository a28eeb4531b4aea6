#include "client/keep/keep_pass.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/runs/run_end.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskNodesWithin = absl::Minutes(3);

std::string TextAt(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return "";
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Runs a command. An error has the message that the command printed.
absl::StatusOr<nlohmann::json> Ask(const GpuctlRunner& gpuctl, const std::vector<std::string>& args,
                                   absl::Duration limit) {
  ASSIGN_OR_RETURN(const ProgramEnd end, gpuctl(args, limit));
  nlohmann::json json = ParseBoundedJson(end.output);
  if (end.exit_code == 0) return json;
  const std::string said =
      json.is_object() && json.contains("error") ? TextAt(json["error"], "message") : "";
  return absl::UnknownError(
      said.empty() ? absl::StrCat("gpuctl ", args.front(), " ended with ", end.exit_code) : said);
}

// Returns what came of the deed, for the log; "" when nothing changed.
std::string ResultOf(const KeepDeed& deed, const nlohmann::json& json) {
  if (deed.verb == "pull") {
    const auto bytes = json.is_object() ? json.find("bytes") : json.end();
    const bool brought = bytes != json.end() && bytes->is_number_integer() && *bytes > 0;
    return brought ? absl::StrCat("brought ", FormatBytes(bytes->get<int64_t>()), " to ",
                                  TextAt(json, "to"))
                   : "";
  }
  if (deed.verb == "resume") {
    return absl::StrCat("goes on as ", TextAt(json, "name"), " on ", TextAt(json, "node"));
  }
  return "done";
}

// Returns how many runs the line of `row` has up to it.
int AttemptsOf(RunStore& store, const RunRow& row) {
  int attempts = 1;
  std::string before = row.resumed_from;
  std::set<std::string> seen = {row.run_id};
  while (!before.empty() && seen.insert(before).second) {
    ++attempts;
    const absl::StatusOr<RunRow> earlier = store.Get(before);
    if (!earlier.ok()) break;  // it was removed from the list
    before = earlier->resumed_from;
  }
  return attempts;
}

}  // namespace

GpuctlRunner RunsThisProgram() {
  return [](const std::vector<std::string>& args, absl::Duration limit) {
    std::vector<std::string> argv = {ExecutablePath()};
    argv.insert(argv.end(), args.begin(), args.end());
    argv.push_back("--json");
    return RunWithin(limit, argv);
  };
}

absl::StatusOr<std::vector<KeptRun>> FindKeptRuns(Holdings& holdings, RunStore& store,
                                                  const KeepLog& log) {
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store.List());
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  std::set<std::string> rising;  // lease ids
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<Ledger::StoredPriceRise> rises, ledger->PriceRises());
    for (const Ledger::StoredPriceRise& stored : rises) rising.insert(stored.lease.lease_id);
  }
  std::vector<KeptRun> kept;
  std::set<std::string> resumed;  // run ids
  for (const RunRow& listed : rows) {
    const absl::StatusOr<RunRow> row = store.Get(listed.run_id);
    if (!row.ok()) continue;  // removed meanwhile
    if (!row->resumed_from.empty()) resumed.insert(row->resumed_from);
    absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row->launch_json);
    if (!record.ok()) continue;  // an older gpuctl launched it
    KeptRun run{*row, *std::move(record)};
    run.goes_on = resumed.count(row->run_id) > 0;  // newer runs come first
    run.home = log.IsHome(row->run_id);
    if (ledger != nullptr) {
      ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger->OfRun(row->run_id));
      if (lease.has_value()) {
        run.machine_gone = !lease->open() || lease->uses.back().run_id != row->run_id;
        run.rise_waits = rising.count(lease->lease_id) > 0 && !run.machine_gone;
      }
    }
    if (row->end.has_value() && IsPreempted(*row->end)) run.attempts = AttemptsOf(store, *row);
    kept.push_back(std::move(run));
  }
  return kept;
}

absl::Status KeepRuns(CommandContext& context, Holdings& holdings, RunStore& store, KeepLog& log,
                      const GpuctlRunner& gpuctl, bool dry_run) {
  absl::Status first;
  const auto failed = [&](const std::string& verb, const std::string& subject,
                          const absl::Status& status) {
    context.Say(absl::StrCat(verb, " ", subject, ": ", status.message()));
    first.Update(log.Failure(context.NowMs(), verb, subject, status.message()));
    first.Update(Annotate(status, absl::StrCat(verb, " ", subject)));
  };
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store.List(/*live_only=*/true));
  if (!live.empty() && !dry_run) {
    const absl::Status asked = Ask(gpuctl, {"ps", "-u"}, kAskNodesWithin).status();
    if (!asked.ok()) failed("ps", "all runs", asked);
  }
  ASSIGN_OR_RETURN(const std::vector<KeptRun> runs, FindKeptRuns(holdings, store, log));
  for (const KeptRun& run : runs) {
    const std::string& name = run.row.name;
    if (run.home) log.NoteHome(run.row.run_id);
    for (const KeepDeed& deed : DeedsFor(run, context.NowMs())) {
      if (dry_run) {
        context.Say(
            absl::StrCat("would run: gpuctl ", absl::StrJoin(deed.args, " "), "  (", name, ")"));
        continue;
      }
      const absl::StatusOr<nlohmann::json> done = Ask(gpuctl, deed.args, deed.limit);
      if (!done.ok()) {
        failed(deed.verb, name, done.status());
        continue;
      }
      // What was brought before the end may not be all.
      if (deed.verb == "pull" && run.row.end.has_value()) log.NoteHome(run.row.run_id);
      const std::string result = ResultOf(deed, *done);
      if (result.empty()) continue;
      context.Say(absl::StrCat(deed.verb, " ", name, ": ", result));
      first.Update(log.Deed(context.NowMs(), deed.verb, name, result));
    }
  }
  return first;
}

}  // namespace gpuctl

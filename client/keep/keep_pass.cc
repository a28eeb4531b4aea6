#include "client/keep/keep_pass.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/market/instance_target.h"
#include "client/runs/given_up.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_end.h"
#include "client/runs/run_line.h"
#include "client/runs/run_status.h"
#include "client/wishes/held_wish.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "provisioning/market/label.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskNodesWithin = absl::Minutes(3);
// Nobody waits for a pass, and what it does not learn of a slow node it does not do.
constexpr char kNodeAnswersWithinS[] = "20";
// A job may have made a checkpoint since an older look, which found none: two passes of a schedule
// and some time to work.
// Runs that ended longer ago are left alone: their results came home, or their machines are gone.
constexpr absl::Duration kKeptFor = absl::Hours(24 * 60);
constexpr absl::Duration kLookIsRecent = absl::Minutes(15);

std::string TextAt(const nlohmann::json& json, const char* name) {
  if (!json.is_object()) return "";
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t BytesIn(const nlohmann::json& json) {
  if (!json.is_object()) return 0;
  const auto found = json.find("bytes");
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// Runs a command. An error has the message that the command printed, and its cause.
absl::StatusOr<nlohmann::json> Ask(const GpuctlRunner& gpuctl, const std::vector<std::string>& args,
                                   absl::Duration limit) {
  ASSIGN_OR_RETURN(const ProgramEnd end, gpuctl(args, limit));
  nlohmann::json json = ParseBoundedJson(end.output);
  if (end.exit_code == 0) return json;
  const nlohmann::json error =
      json.is_object() && json.contains("error") ? json["error"] : nlohmann::json();
  const std::string said = TextAt(error, "message");
  const absl::Status status = absl::UnknownError(
      said.empty() ? absl::StrCat("gpuctl ", args.front(), " ended with ", end.exit_code) : said);
  return WithCause(WithExitCode(status, static_cast<ExitCode>(end.exit_code)),
                   TextAt(error, "cause"));
}

// Returns what came of the deed, for the log; "" when nothing changed.
std::string ResultOf(const KeepDeed& deed, const nlohmann::json& json) {
  if (deed.verb == "wish") return TextAt(json, "done");
  if (deed.verb == "pull") {
    int64_t bytes = BytesIn(json);
    // Those of other machines came to directories beside it.
    if (const auto members = json.find("members"); members != json.end() && members->is_array()) {
      for (const nlohmann::json& member : *members) bytes += BytesIn(member);
    }
    return bytes > 0 ? absl::StrCat("brought ", FormatBytes(bytes), " to ", TextAt(json, "to"))
                     : "";
  }
  if (deed.verb == "resume") {
    return absl::StrCat("goes on as ", TextAt(json, "name"), " on ", TextAt(json, "node"));
  }
  return deed.verb == "ask-resume" ? "" : "done";
}

bool IsOfAnotherOwner(const Lease& lease, const std::string& owner) {
  const std::optional<LeaseLabel> label = ParseLabel(lease.label);
  return label.has_value() && label->owner != owner;
}

// Returns the wishes that no living gpuctl does, by run id.
absl::StatusOr<std::map<std::string, std::vector<Wish>>> FreeWishes(CommandContext& context) {
  std::map<std::string, std::vector<Wish>> free;
  ASSIGN_OR_RETURN(std::vector<Wish> wishes, WishesOf(context, ""));
  for (Wish& wish : wishes) {
    // Where that cannot be seen, whoever takes the wish says why.
    if (!IsHeld(context, wish).value_or(false)) free[wish.run_id].push_back(std::move(wish));
  }
  return free;
}

// True for a run for which there may be something to do, whatever is recorded of it besides.
bool MayNeedKeep(const RunRow& row, bool has_wishes, int64_t now_ms) {
  return !row.end.has_value() || has_wishes || IsPreempted(*row.end) ||
         now_ms - row.end->ended_ms < absl::ToInt64Milliseconds(kFetchWithin);
}

// Fills in what is known of the machine of a run, and what was agreed for it.
void DescribeMachine(const Lease& lease, int64_t now_ms, KeptRun& run) {
  run.machine_gone = !lease.open();
  run.machine_has_later = lease.uses.back().run_id != run.row.run_id;
  run.machine = RentedNodeName(lease.provider, lease.instance_id);
  run.usd_per_hour = std::min(
      lease.price_usd_per_hour,
      run.record.spec.max_price_usd_per_hour.value_or(std::numeric_limits<double>::infinity()));
  run.cost_left_usd = lease.limits.cost_usd - SpentOn(lease, now_ms).high_usd;
}

// True when all that the run had made was found at home shortly before its end. `looked_ms`: when
// that was; 0: never.
bool WasSavedAtItsEnd(const RunRow& row, int64_t looked_ms) {
  return looked_ms > 0 && row.end.has_value() &&
         row.end->ended_ms - looked_ms <= absl::ToInt64Milliseconds(kLookIsRecent);
}

}  // namespace

GpuctlRunner RunsThisProgram(int signal_fd) {
  return [signal_fd](const std::vector<std::string>& args, absl::Duration limit) {
    std::vector<std::string> argv = {ExecutablePath()};
    argv.insert(argv.end(), args.begin(), args.end());
    argv.push_back("--json");
    return RunWithin(limit, argv, {}, signal_fd);
  };
}

absl::StatusOr<std::vector<KeptRun>> FindKeptRuns(CommandContext& context, Holdings& holdings,
                                                  RunStore& store, const KeepLog& log) {
  RunFilter lately;
  lately.ended_since_ms = context.NowMs() - absl::ToInt64Milliseconds(kKeptFor);
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store.List(lately));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  std::set<std::string> rising;  // lease ids
  std::string owner;
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(owner, ledger->OwnerId());
    ASSIGN_OR_RETURN(const std::vector<Ledger::StoredPriceRise> rises, ledger->PriceRises());
    for (const Ledger::StoredPriceRise& stored : rises) rising.insert(stored.lease.lease_id);
  }
  std::vector<KeptRun> kept;
  ASSIGN_OR_RETURN(const auto resumptions, store.Resumptions());
  ASSIGN_OR_RETURN(auto wishes, FreeWishes(context));
  for (const RunRow& listed : rows) {
    if (!MayNeedKeep(listed, wishes.count(listed.run_id) > 0, context.NowMs())) continue;
    const absl::StatusOr<RunRow> row = store.Get(listed.run_id);
    if (!row.ok()) continue;  // removed meanwhile
    absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row->launch_json);
    if (!record.ok()) continue;  // an older gpuctl launched it
    KeptRun run;
    run.row = *row;
    run.record = *std::move(record);
    run.wishes = std::move(wishes[row->run_id]);
    run.goes_on = resumptions.count(row->run_id) > 0;
    run.home = log.IsHome(row->run_id);
    run.given_up = IsGivenUp(paths.MirrorDir(row->run_id));
    const std::vector<std::string> line = LineOf(store, *row);
    std::vector<std::string> mirrors;
    for (const std::string& run_id : line) mirrors.push_back(paths.MirrorDir(run_id));
    run.attempts = RetriesUsed(mirrors);
    run.saved = WasSavedAtItsEnd(*row, log.SavedAt(row->run_id)) ||
                std::any_of(line.begin(), line.end(), [&paths](const std::string& run_id) {
                  return PulledRecord(paths.MirrorDir(run_id)).HasCheckpoint();
                });
    if (ledger != nullptr) {
      ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger->OfRun(row->run_id));
      if (lease.has_value() && IsOfAnotherOwner(*lease, owner)) continue;
      if (lease.has_value()) {
        DescribeMachine(*lease, context.NowMs(), run);
        run.rise_waits =
            rising.count(lease->lease_id) > 0 && !run.machine_gone && !run.machine_has_later;
      }
    }
    kept.push_back(std::move(run));
  }
  return kept;
}

// Does what is due for runs, one after the other.
class Keeper {
 public:
  Keeper(CommandContext& context, KeepLog& log, const GpuctlRunner& gpuctl, bool dry_run)
      : context_(context), log_(log), gpuctl_(gpuctl), dry_run_(dry_run) {}

  void AskNodes() {
    const absl::Status asked =
        Ask(gpuctl_, {"ps", "-u", "--within-s", kNodeAnswersWithinS}, kAskNodesWithin).status();
    if (!asked.ok()) Fail("ps", "all runs", asked);
  }

  void Do(const KeptRun& run) {
    for (const KeepDeed& deed : DeedsFor(run, context_.NowMs())) {
      if (!DoOne(run, deed)) return;
    }
  }

  KeptDeeds Take() { return std::move(done_); }

 private:
  // Returns false when the deeds after it are not to be done.
  bool DoOne(const KeptRun& run, const KeepDeed& deed) {
    const std::string& name = run.row.name;
    if (!deed.why_not.empty()) {
      Fail(deed.verb, name, absl::FailedPreconditionError(deed.why_not));
      return false;
    }
    if (dry_run_) {
      context_.Say(absl::StrCat("would ",
                                deed.what.empty()
                                    ? absl::StrCat("run: gpuctl ", absl::StrJoin(deed.args, " "))
                                    : deed.what,
                                "  (", name, ")"));
      return true;
    }
    const absl::StatusOr<nlohmann::json> done = Ask(gpuctl_, deed.args, deed.limit);
    const bool nothing = !done.ok() && CauseOf(done.status()) == kNothingToBring;
    if (!done.ok() && !nothing) {
      Fail(deed.verb == "ask-resume" ? "resume" : deed.verb, name, done.status());
      return false;
    }
    if (deed.verb == "pull") {
      log_.NoteSaved(run.row.run_id, context_.NowMs());
      // What was brought before the end may not be all.
      if (run.row.end.has_value()) log_.NoteHome(run.row.run_id);
    }
    const std::string result = nothing ? "" : ResultOf(deed, *done);
    if (result.empty()) return true;
    context_.Say(absl::StrCat(deed.verb, " ", name, ": ", result));
    Note(log_.Deed(context_.NowMs(), deed.verb, name, result));
    done_.deeds.push_back({deed.verb, name, result});
    return true;
  }

  void Fail(const std::string& verb, const std::string& subject, const absl::Status& status) {
    const std::string text(status.message());
    context_.Warn(absl::StrCat(verb, " ", subject, ": ", text));
    // A message may name prices of the hour.
    Note(log_.Failure(context_.NowMs(), verb, subject, text,
                      absl::StrCat("exit code ", ExitCodeOf(status))));
    done_.failures.push_back({verb, subject, text});
  }

  void Note(const absl::Status& written) {
    if (!written.ok()) context_.Warn(absl::StrCat("keep.log: ", written.message()));
  }

  CommandContext& context_;
  KeepLog& log_;
  const GpuctlRunner& gpuctl_;
  const bool dry_run_;
  KeptDeeds done_;
};

absl::StatusOr<KeptDeeds> KeepRuns(CommandContext& context, Holdings& holdings, RunStore& store,
                                   KeepLog& log, const GpuctlRunner& gpuctl, bool dry_run,
                                   const std::function<bool()>& cancelled) {
  Keeper keeper(context, log, gpuctl, dry_run);
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store.List(/*live_only=*/true));
  RunFilter of_several;
  of_several.live_only = of_several.members = true;
  ASSIGN_OR_RETURN(const std::vector<RunRow> members, store.List(of_several));
  if ((!live.empty() || !members.empty()) && !dry_run) keeper.AskNodes();
  ASSIGN_OR_RETURN(const std::vector<KeptRun> runs, FindKeptRuns(context, holdings, store, log));
  std::set<std::string> run_ids;
  for (const KeptRun& run : runs) {
    if (cancelled && cancelled()) return keeper.Take();
    keeper.Do(run);
    run_ids.insert(run.row.run_id);
  }
  log.LookedAtAll(run_ids);
  return keeper.Take();
}

}  // namespace gpuctl

// gpuctl ps: list the runs. Asks the machines of live runs for a second, then lists what is stored
// on this laptop.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/suggest.h"
#include "client/bill/forecast.h"
#include "client/due/node_terms.h"
#include "client/follow/ask_again.h"
#include "client/follow/catch_up.h"
#include "client/follow/catch_up_all.h"
#include "client/keep/keep_status.h"
#include "client/market/holdings.h"
#include "client/market/price_rises.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_status.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/table.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/newest_numbers.h"
#include "client/verbs/ps_money.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/wishes/wish_text.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kFresh = absl::Minutes(1);
// Time for which the node of a run is asked that gpuctl took for lost.
constexpr absl::Duration kAskAgainFor = absl::Hours(7 * 24);
// Time for the machines of live runs to answer.
constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr absl::Duration kUpdatePatience = absl::Seconds(3);
constexpr int kCellsBeforeMoney = 6;     // NAME to ON
constexpr int kCellsBeforeForecast = 4;  // NAME to LOSS

std::string StatusText(CommandContext& context, const RunRow& row, const RunStatus& status) {
  std::string word = WordOf(status.phase);
  if (status.queue.has_value()) absl::StrAppend(&word, ": ", DescribeQueue(*status.queue));
  if (status.over) {
    return status.end.exit_code == 0 || status.phase != RunPhase::kFailed
               ? word
               : absl::StrCat(word, " (", status.end.exit_code, ")");
  }
  // A run that nobody has watched for a while may be over by now.
  const bool stale = absl::Milliseconds(context.NowMs() - row.heard_ms) > kFresh;
  if (row.heard_ms == 0 || !stale) return word;
  return absl::StrCat(word, " (as of ", Ago(context, row.heard_ms), " ago)");
}

// Adds the newest runs whose end only gpuctl concluded: their nodes may answer again.
absl::Status AddConcluded(CommandContext& context, RunStore& store, std::vector<RunRow>& runs) {
  RunFilter lately;
  lately.ended_since_ms = context.NowMs() - absl::ToInt64Milliseconds(kAskAgainFor);
  ASSIGN_OR_RETURN(std::vector<RunRow> every, store.List(lately));
  for (RunRow& row : every) {
    if (!row.end.has_value()) continue;
    const absl::StatusOr<bool> concluded = EndIsConcluded(context, row);
    if (!concluded.ok()) context.Warn(absl::StrCat(row.name, ": ", concluded.status().message()));
    if (concluded.ok() && *concluded) runs.push_back(std::move(row));
  }
  return absl::OkStatus();
}

// Asks the markets for announced prices, and the nodes of the runs whose end only gpuctl concluded.
// Says on stderr what could not be asked.
absl::Status AskFurther(CommandContext& context, Holdings& holdings, RunStore& store) {
  const absl::Status prices = RefreshPriceRises(holdings);
  if (!prices.ok()) context.Warn(prices.message());
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger->List(/*open_only=*/true));
    SettleTerms(context, *ledger, open);
  }
  std::vector<RunRow> ended;
  RETURN_IF_ERROR(AddConcluded(context, store, ended));
  std::set<std::string> silent;  // targets that were asked in vain
  for (RunRow& row : ended) {
    if (silent.count(row.target.name) > 0) continue;
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, store, row, kUpdatePatience, &error);
    if (!error.ok()) silent.insert(row.target.name);
    if (!caught.ok() || *caught == Caught::kNot) {
      context.Warn(absl::StrCat(row.name, ": ", (caught.ok() ? error : caught.status()).message()));
    }
  }
  return absl::OkStatus();
}

// The nodes of live runs, asked side by side.
class LiveNodes {
 public:
  LiveNodes(CommandContext& context, RunStore& store) : context_(context), store_(store) {}

  // Finds what there is to ask about the runs of `filter`; `all`: also for those that no node is
  // known to have.
  absl::Status Find(RunFilter filter, bool all) {
    filter.live_only = true;
    ASSIGN_OR_RETURN(rows_, store_.List(filter));
    RETURN_IF_ERROR(AddMembers(all));
    if (all) return absl::OkStatus();
    const auto nowhere = [](const RunRow& row) { return row.node_id.empty(); };
    rows_.erase(std::remove_if(rows_.begin(), rows_.end(), nowhere), rows_.end());
    return absl::OkStatus();
  }
  bool empty() const { return rows_.empty(); }

  absl::Status Ask(absl::Duration limit) {
    work_ = std::make_unique<CatchUpAll>(context_, store_, rows_);
    ASSIGN_OR_RETURN(results_, work_->Run(limit));
    return absl::OkStatus();
  }
  // Says what could not be asked, each reason of a machine once.
  void Tell() const { TellOfCaughtRuns(context_, rows_, results_); }
  bool stuck() const { return work_ != nullptr && work_->stuck(); }

 private:
  // Adds the other machines of runs on several: one of them may be silent, or over, before the run
  // is. `all`: also those whose run is over, by what is known here.
  absl::Status AddMembers(bool all) {
    std::set<std::string> listed;
    for (const RunRow& row : rows_) listed.insert(row.run_id);
    RunFilter live;
    live.live_only = live.members = true;
    ASSIGN_OR_RETURN(std::vector<RunRow> members, store_.List(live));
    for (RunRow& member : members) {
      if (all || listed.count(member.leader) > 0) rows_.push_back(std::move(member));
    }
    return absl::OkStatus();
  }

  CommandContext& context_;
  RunStore& store_;
  std::vector<RunRow> rows_;
  std::unique_ptr<CatchUpAll> work_;
  std::vector<CaughtRun> results_;
};

// Returns the status that is stored on this laptop. While the run lives, gives `row` its newest
// numbers, and `done_ms` the time of its last step where that can be told.
absl::StatusOr<RunStatus> StoredStatus(const ClientPaths& paths, RunRow& row, int64_t& done_ms) {
  if (row.end.has_value()) return StatusOfEnded(row);
  const MirrorPaths mirror(paths.MirrorDir(row.run_id));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(mirror.dir));
  RunStatus status = DeriveStatus(row, lifecycle);
  AddQueueState(mirror.dir, status);
  const std::optional<absl::Duration> left = ReadNewestNumbers(mirror, row);
  // What is stored is as old as the node's last sign of life.
  if (left.has_value() && status.phase == RunPhase::kRunning) {
    done_ms = row.heard_ms + absl::ToInt64Milliseconds(*left);
  }
  return status;
}

TableRow TableHead(bool forecast, bool rented, bool wide) {
  TableRow head = {"NAME", "STATUS", "STEP", "LOSS"};
  if (forecast) head.push_back("DONE");
  head.insert(head.end(), {"AGE", "ON"});
  if (rented) head.insert(head.end(), {"$/H", "SPENT", "CAP", "STOPS"});
  if (wide) head.insert(head.end(), {"RUN", "JOB", "HEARD", "TAGS"});
  head.push_back("COMMAND");
  return head;
}

Cell LossCell(const std::optional<double>& loss) {
  Cell cell = loss.has_value() ? FormatNumber(*loss) : "-";
  cell.red = loss.has_value() && !std::isfinite(*loss);
  return cell;
}

TableRow CellsOf(CommandContext& context, const RunRow& row, const RunStatus& status, bool wide) {
  std::string step = row.step < 0 ? "-" : absl::StrCat(row.step);
  if (row.step >= 0 && row.total_steps > 0) absl::StrAppend(&step, "/", row.total_steps);
  TableRow cells = {row.name,           StatusText(context, row, status), step,
                    LossCell(row.loss), Ago(context, row.created_ms),     row.target.name};
  if (wide) {
    cells.insert(cells.end(), {row.run_id, row.job_id, Ago(context, row.heard_ms),
                               row.tags.empty() ? "-" : absl::StrJoin(row.tags, " ")});
  }
  cells.push_back(row.command);
  return cells;
}

void AddForecast(const std::optional<Forecast>& forecast, bool rented,
                 nlohmann::ordered_json& run) {
  run["done"] = nullptr;
  run["done_usd"] = nullptr;
  run["limited_before_done"] = nullptr;
  if (!forecast.has_value()) return;
  run["done"] = FormatRfc3339(forecast->done_ms);
  if (rented) run["done_usd"] = forecast->usd;
  run["limited_before_done"] = forecast->limited_before;
}

// The list as it is stored on this laptop.
class StoredRuns {
 public:
  // `statuses`: words of those that are listed, at most `limit` (0: all) of them; empty: every one.
  StoredRuns(CommandContext& context, RunStore& store, ClientPaths paths, RunFilter filter,
             std::set<std::string> statuses, int limit)
      : context_(context),
        store_(store),
        paths_(std::move(paths)),
        filter_(std::move(filter)),
        chosen_(std::move(statuses)),
        limit_(static_cast<size_t>(limit)),
        wide_(context.format == OutputFormat::kWide) {}

  absl::Status Read(Holdings& holdings) {
    ASSIGN_OR_RETURN(std::vector<RunRow> rows, store_.List(filter_));
    std::vector<int64_t> done;
    rows_.clear();
    statuses_.clear();
    for (RunRow& row : rows) {
      if (!chosen_.empty() && limit_ > 0 && rows_.size() == limit_) break;
      int64_t done_ms = 0;
      const absl::StatusOr<RunStatus> stored = StoredStatus(paths_, row, done_ms);
      // One run must not hide the others.
      if (!stored.ok() && told_unreadable_.insert(row.run_id).second) {
        context_.Warn(
            absl::StrCat(row.name, ": its state here cannot be read: ", stored.status().message()));
      }
      RunStatus status = stored.ok() ? *stored : DeriveStatus(row, Lifecycle());
      if (!chosen_.empty() && chosen_.count(WordOf(status.phase)) == 0) continue;
      rows_.push_back(std::move(row));
      statuses_.push_back(std::move(status));
      done.push_back(done_ms);
    }
    return ReadMore(holdings, done);
  }
  // Prints the names alone, one on each line.
  void PrintNames() const {
    for (const RunRow& row : rows_) context_.PrintLine(row.name);
  }
  // `bills`: what bills without a live run.
  void PrintJson(const nlohmann::ordered_json& bills) const {
    std::vector<nlohmann::ordered_json> objects;
    for (size_t i = 0; i < rows_.size(); ++i) {
      nlohmann::ordered_json& run = objects.emplace_back(RunToJson(rows_[i], statuses_[i]));
      run["wishes"] = WishesToJson(WishesOfRow(i), rows_[i].name);
      const int64_t home_ms = PulledRecord(paths_.MirrorDir(rows_[i].run_id)).AllHomeMs();
      run["results_home"] =
          home_ms == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(FormatRfc3339(home_ms));
      AddForecast(forecasts_[i], money_.Of(rows_[i]) != nullptr, run);
      run = WithMoney(context_, std::move(run), money_.Of(rows_[i]), statuses_[i]);
    }
    if (context_.format == OutputFormat::kJsonLines) return context_.PrintJsonList("runs", objects);
    context_.PrintJson({{"runs", objects}, {"bills", bills}});
  }
  // Prints the table. In a narrow terminal the columns of cost and stop are the last to be left
  // out; -o wide shows everything.
  void PrintTable() const {
    const bool rented = std::any_of(rows_.begin(), rows_.end(), [this](const RunRow& row) {
      return money_.Of(row) != nullptr;
    });
    const bool forecast = std::any_of(forecasts_.begin(), forecasts_.end(),
                                      [](const auto& one) { return one.has_value(); });
    std::vector<TableRow> table = {TableHead(forecast, rented, wide_)};
    for (size_t i = 0; i < rows_.size(); ++i) {
      TableRow& cells = table.emplace_back(CellsOf(context_, rows_[i], statuses_[i], wide_));
      if (const std::string word = WishWord(WishesOfRow(i)); !word.empty()) {
        absl::StrAppend(&cells[1].text, ", ", word);
      }
      if (rented) {
        const std::vector<std::string> more =
            MoneyCells(context_, money_.Of(rows_[i]), statuses_[i]);
        cells.insert(cells.begin() + kCellsBeforeMoney, more.begin(), more.end());
      }
      if (forecast) cells.insert(cells.begin() + kCellsBeforeForecast, ForecastCell(i));
    }
    if (context_.terminal.stdout_tty && !wide_) {
      context_.PrintTableWithin(std::move(table), GetTerminalSize(1).columns,
                                {"COMMAND", "AGE", "ON", "LOSS", "DONE", "STEP"});
    } else {
      context_.PrintTable(table);
    }
  }
  // True when the table can be drawn again in its place.
  bool CanRedraw() const {
    return context_.terminal.animation && !wide_ && !context_.json() &&
           static_cast<int>(rows_.size()) + 2 < GetTerminalSize(STDOUT_FILENO).rows;
  }
  // Moves the cursor to where the table began, and clears what is below.
  void Rewind() const {
    (void)context_.DrawSafe(absl::StrCat("\x1b[", rows_.size() + 1, "A\x1b[J"), -1);
  }
  bool empty() const { return rows_.empty(); }
  const Money& money() const { return money_; }

 private:
  // Reads what is known of the listed runs besides their status. `done`: when each will be done; 0:
  // nobody knows.
  absl::Status ReadMore(Holdings& holdings, const std::vector<int64_t>& done) {
    ASSIGN_OR_RETURN(money_, ReadMoney(holdings, store_, rows_));
    wishes_.clear();
    for (KnownWish& known : KnownWishesOf(context_, "", IsKept(paths_.state_dir))) {
      wishes_[known.wish.run_id].push_back(std::move(known));
    }
    forecasts_.assign(rows_.size(), std::nullopt);
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (done[i] == 0) continue;
      const RunMachines* const machines = money_.Of(rows_[i]);
      forecasts_[i] = ForecastOf(machines == nullptr ? RunMachines() : *machines,
                                 statuses_[i].started_ms, done[i], context_.NowMs());
    }
    return absl::OkStatus();
  }
  std::vector<KnownWish> WishesOfRow(size_t i) const {
    const auto found = wishes_.find(rows_[i].run_id);
    return found == wishes_.end() ? std::vector<KnownWish>() : found->second;
  }
  // A run that a limit stops before its last step is in red.
  Cell ForecastCell(size_t i) const {
    const std::optional<Forecast>& forecast = forecasts_[i];
    Cell cell = forecast.has_value() ? DescribeForecast(*forecast, context_.NowMs()) : "-";
    cell.red = forecast.has_value() && forecast->limited_before;
    return cell;
  }

  CommandContext& context_;
  RunStore& store_;
  const ClientPaths paths_;
  const RunFilter filter_;
  const std::set<std::string> chosen_;
  const size_t limit_;
  const bool wide_;
  std::vector<RunRow> rows_;
  std::vector<RunStatus> statuses_;
  std::vector<std::optional<Forecast>> forecasts_;
  std::map<std::string, std::vector<KnownWish>> wishes_;  // by run id
  std::set<std::string> told_unreadable_;                 // their ids
  Money money_;
};

// The flags that say which runs are listed, as typed.
struct WhichRuns {
  bool all = false, live = false;
  std::optional<std::string> tag, since;
  std::optional<std::vector<std::string>> status;
  int limit = 0;

  // True when a flag picks among runs that ended, too.
  bool searches() const {
    return tag.has_value() || since.has_value() || status.has_value() || limit > 0;
  }
};

// Returns the words of --status as `status` has them. An error names those that there are.
absl::StatusOr<std::set<std::string>> StatusWords(const std::vector<std::string>& typed) {
  std::vector<std::string> known;
  for (int phase = 0; phase <= static_cast<int>(RunPhase::kLost); ++phase) {
    known.emplace_back(WordOf(static_cast<RunPhase>(phase)));
  }
  std::set<std::string> words;
  // A script may remove what is listed, and "" is not the same as no flag.
  if (typed.empty()) return UsageError("--status: no status is named", "--status failed,lost");
  for (const std::string& one : typed) {
    std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(one));
    if (word == "setting-up" || word == "setting_up") word = WordOf(RunPhase::kSettingUp);
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      return UsageError(
          absl::StrCat("--status: \"", one, "\" is no status of a run", DidYouMean(word, known)),
          absl::StrCat("they are ", absl::StrJoin(known, ", ")));
    }
    words.insert(std::move(word));
  }
  return words;
}

absl::StatusOr<RunFilter> FilterOf(const WhichRuns& which, int64_t now_ms) {
  if (which.all && which.live) {
    return UsageError("--all lists what --live leaves out", "leave out one");
  }
  RunFilter filter;
  filter.live_only = which.live || !(which.all || which.searches());
  // The status of a run is known here alone, so the newest are counted after it.
  if (!which.status.has_value()) filter.limit = which.limit;
  if (which.tag.has_value()) {
    const absl::Status tag = CheckTag(*which.tag);
    if (!tag.ok()) return UsageError(absl::StrCat("--tag: ", tag.message()), "gpuctl tag --help");
    filter.tag = *which.tag;
  }
  if (!which.since.has_value()) return filter;
  const absl::StatusOr<absl::Duration> age = ParseDuration(*which.since);
  if (!age.ok()) {
    return UsageError(absl::StrCat("--since: ", age.status().message()), "for example --since 1d");
  }
  filter.since_ms = std::max<int64_t>(1, now_ms - absl::ToInt64Milliseconds(*age));
  return filter;
}

// Prints the names of the runs, one on each line.
absl::Status PrintNames(CommandContext& context, RunStore& store, const RunFilter& filter) {
  ASSIGN_OR_RETURN(const std::vector<RunRow> rows, store.List(filter));
  for (const RunRow& row : rows) context.PrintLine(row.name);
  return absl::OkStatus();
}

// Says which batches have runs that wait. Returns whether there are any.
absl::StatusOr<bool> TellOfWaiting(CommandContext& context) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const auto waiting, batches->Waiting());
  for (const auto& [name, count] : waiting) {
    context.Say(absl::StrCat(count, count == 1 ? " run of " : " runs of ", name,
                             count == 1 ? " waits; gpuctl queue " : " wait; gpuctl queue ", name,
                             " says why, and starts what can start"));
  }
  return !waiting.empty();
}

// Says what helps when no run is listed.
void HintForNone(CommandContext& context, const WhichRuns& which) {
  if (which.searches()) {
    context.Hint("no run of the list fits; gpuctl ps -a lists all");
  } else {
    context.Hint(which.all ? "gpuctl launch -- COMMAND starts a run"
                           : "nothing is running; gpuctl ps -a lists what ended");
  }
}

struct PsFlags {
  WhichRuns which;
  bool update = false, offline = false, quiet = false;
  int within_s = static_cast<int>(kUpdatePatience / absl::Seconds(1));  // for -u
};

// Reads the command line. Returns false when only help was asked for.
absl::StatusOr<bool> ReadPsFlags(CommandContext& context, const std::vector<std::string>& args,
                                 PsFlags& flags) {
  WhichRuns& which = flags.which;
  VerbParser parser(
      context, "ps [-a] [FLAGS]",
      "Lists the runs that have not ended. Asks their machines first, for a second at "
      "most;\nwhat is stored on this laptop is shown for those that do not answer.",
      "  gpuctl ps\n"
      "  gpuctl ps --since 1d --tag baseline --status failed,lost\n"
      "  gpuctl ps -q | xargs gpuctl stop     all that live");
  parser.Switch("-a,--all", which.all, "Also those that ended");
  std::string tag, since;
  std::vector<std::string> status;
  const FlagSet::Flag in_status =
      parser
          .Option("--status", status,
                  "Only runs with one of these, e.g. failed,lost; ended ones too")
          .Commas()
          .OneValueEach();
  const FlagSet::Flag tagged =
      parser.Option("--tag", tag, "Only runs with this tag; ended ones too");
  const FlagSet::Flag young =
      parser.Option("--since", since, "Only runs launched in this time, e.g. 1d; ended ones too");
  parser.Option("--limit", which.limit, "Only the newest N; ended ones too")
      .Range(1, std::numeric_limits<int>::max());
  parser.Switch("--live", which.live, "Of these only those that have not ended");
  parser.Quiet(flags.quiet, "the names");
  parser.Switch("--offline", flags.offline, "Ask no machine");
  parser.Switch("-u,--update", flags.update,
                "Ask for 3 s, also about runs that were taken for lost, and for prices");
  parser.Option("--within-s", flags.within_s, "With -u: ask for so many seconds")
      .Range(1, 600)
      .Hidden();
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return false;
  if (flags.update && flags.offline) {
    return UsageError("-u asks, and --offline does not", "leave out one");
  }
  // "" is a mistake, and not the same as no flag: a script may remove what is listed.
  if (tagged.given()) which.tag = tag;
  if (young.given()) which.since = since;
  if (in_status.given()) which.status = status;
  return true;
}

}  // namespace

absl::StatusOr<int> CmdPs(CommandContext& context, std::vector<std::string> args) {
  PsFlags flags;
  ASSIGN_OR_RETURN(const bool go_on, ReadPsFlags(context, args, flags));
  if (!go_on) return kExitOk;
  const bool quiet = flags.quiet, update = flags.update;
  ASSIGN_OR_RETURN(const RunFilter filter, FilterOf(flags.which, context.NowMs()));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(ClientPaths paths, context.Paths());
  Holdings holdings(context);
  std::set<std::string> statuses;
  if (flags.which.status.has_value()) {
    ASSIGN_OR_RETURN(statuses, StatusWords(*flags.which.status));
  }
  LiveNodes nodes(context, *store);
  StoredRuns runs(context, *store, paths, filter, statuses, flags.which.limit);
  if (update) RETURN_IF_ERROR(AskFurther(context, holdings, *store));
  // Whether a run has ended matters to its name only where ended ones are left out.
  const bool asks = !flags.offline && (!quiet || filter.live_only || !statuses.empty() || update);
  if (asks) RETURN_IF_ERROR(nodes.Find(filter, /*all=*/update));
  bool drawn = false;
  if (!nodes.empty()) {
    if (context.terminal.animation && !quiet) {
      RETURN_IF_ERROR(runs.Read(holdings));
      drawn = runs.CanRedraw();
      if (drawn) runs.PrintTable();
    }
    const absl::Status asked = nodes.Ask(update ? absl::Seconds(flags.within_s) : kPatience);
    if (!asked.ok() && nodes.stuck()) ExitAtOnce(context, asked);
    RETURN_IF_ERROR(asked);
  }
  if (drawn) runs.Rewind();
  if (quiet) {
    if (statuses.empty()) {
      RETURN_IF_ERROR(PrintNames(context, *store, filter));
    } else {
      RETURN_IF_ERROR(runs.Read(holdings));
      runs.PrintNames();
    }
    nodes.Tell();
    if (nodes.stuck()) ExitAtOnce(context, kExitOk);
    return kExitOk;
  }
  RETURN_IF_ERROR(runs.Read(holdings));
  if (!context.json()) runs.PrintTable();
  nodes.Tell();
  ASSIGN_OR_RETURN(const ToldMoney told,
                   TellOfMoney(context, holdings, *store, paths, runs.money()));
  if (context.json()) {
    runs.PrintJson(told.bills);
  } else {
    if (flags.which.all) TellOfCalledOff(context, holdings, *store);
    bool waits = false;
    if (!flags.which.searches()) {
      ASSIGN_OR_RETURN(waits, TellOfWaiting(context));
    }
    if (runs.empty() && !waits && !told.launches) HintForNone(context, flags.which);
  }
  if (nodes.stuck()) ExitAtOnce(context, kExitOk);
  return kExitOk;
}

}  // namespace gpuctl

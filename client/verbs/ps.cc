// gpuctl ps: list the runs, from what is stored on this laptop. Connects to nothing unless --update
// asks for it.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/follow/ask_again.h"
#include "client/follow/catch_up.h"
#include "client/market/holdings.h"
#include "client/market/lease_view.h"
#include "client/market/price_rises.h"
#include "client/metrics/metric_lines.h"
#include "client/runs/run_status.h"
#include "client/streams/mirror.h"
#include "client/streams/mirror_reader.h"
#include "client/terminal/console.h"
#include "client/terminal/line_assembler.h"
#include "client/terminal/panel_terminal.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/ledger/ledger.h"
#include "provisioning/ledger/listing.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kFresh = absl::Minutes(1);
// Time for which the node of a run is asked that gpuctl took for lost.
constexpr absl::Duration kAskAgainFor = absl::Hours(7 * 24);
constexpr absl::Duration kUpdatePatience = absl::Seconds(3);
constexpr int64_t kMetricsTailBytes = 2 << 10;
constexpr int kCellsBeforeMoney = 6;  // NAME to ON

// Reads the newest numbers of a live run from the end of its metrics.
void ReadNewestMetrics(const std::string& path, RunRow& row) {
  StreamReader stream(path, PlainShape());
  const absl::StatusOr<Extent> extent = stream.GetExtent();
  if (!extent.ok() || extent->size == 0) return;
  std::string tail(static_cast<size_t>(kMetricsTailBytes), '\0');
  const int64_t begin = std::max<int64_t>(0, extent->size - kMetricsTailBytes);
  const absl::StatusOr<int64_t> count = stream.Read(begin, tail.data(), kMetricsTailBytes);
  if (!count.ok()) return;
  tail.resize(static_cast<size_t>(*count));
  LineAssembler lines;
  lines.Add(tail, [&row](absl::string_view line) {
    const std::optional<MetricSample> sample = ParseMetricsJson(line);
    if (!sample.has_value() || sample->checkpoint) return;
    if (sample->step.has_value()) row.step = *sample->step;
    if (sample->total_steps.has_value()) row.total_steps = *sample->total_steps;
    if (sample->loss.has_value()) row.loss = sample->loss;
  });
}

std::string Ago(CommandContext& context, int64_t time_ms) {
  if (time_ms == 0) return "-";
  return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, context.NowMs() - time_ms)));
}

std::string StatusText(CommandContext& context, const RunRow& row, const RunStatus& status) {
  const std::string word = WordOf(status.phase);
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

// The leases and leaks from the ledger and the last listings; no market is asked.
struct Money {
  std::map<std::string, Lease> of_run;  // by run id: the run's newest lease
  std::vector<MarketListing> listings;  // only their leaks

  bool IsLeak(const Lease& lease) const {
    for (const MarketListing& listing : listings) {
      for (const ListedInstance& leak : listing.instances) {
        if (leak.lease_id == lease.lease_id) return true;
      }
    }
    return false;
  }
  const Lease* Of(const RunRow& row) const {
    const auto found = of_run.find(row.run_id);
    return found == of_run.end() ? nullptr : &found->second;
  }
};

absl::StatusOr<Money> ReadMoney(Holdings& holdings) {
  Money money;
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return money;
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger->List(/*open_only=*/false));
  std::map<std::string, const Lease*> by_id;
  for (const Lease& lease : leases) {
    by_id[lease.lease_id] = &lease;
    for (const LeaseUse& use : lease.uses) money.of_run[use.run_id] = lease;
  }
  ASSIGN_OR_RETURN(money.listings, ledger->LastListings());
  for (MarketListing& listing : money.listings) {
    // A machine that has been ended since is no leak any more.
    const auto stale = [&](const ListedInstance& listed) {
      const auto lease = by_id.find(listed.lease_id);
      return listed.holder != Holder::kLeak ||
             (lease != by_id.end() && lease->second->state == LeaseState::kReleased &&
              lease->second->ended_ms >= listing.listed_ms);
    };
    listing.instances.erase(
        std::remove_if(listing.instances.begin(), listing.instances.end(), stale),
        listing.instances.end());
  }
  return money;
}

// Returns the cells $/H, SPENT, CAP and STOPS of a run; dashes when nothing is rented for it.
std::vector<std::string> MoneyCells(CommandContext& context, const Lease* lease, const RunRow& row,
                                    const RunStatus& status) {
  if (lease == nullptr) return {"-", "-", "-", "-"};
  const int64_t now_ms = context.NowMs();
  const int64_t stops_ms = status.over ? 0 : JobStopsMs(*lease, status.started_ms, now_ms);
  return {lease->open() ? FormatUsdPerHour(lease->usd_per_hour()) : "ended",
          FormatSpend(SpentByRun(*lease, row.run_id, now_ms)),
          lease->limits.cost_usd > 0 ? absl::StrFormat("$%.2f", lease->limits.cost_usd) : "-",
          stops_ms == 0 ? "-"
                        : absl::StrCat("in ", HumanDuration(absl::Milliseconds(
                                                  std::max<int64_t>(0, stops_ms - now_ms))))};
}

// Returns the run's JSON with its cost.
nlohmann::ordered_json WithMoney(CommandContext& context, nlohmann::ordered_json run,
                                 const Lease* lease, const RunRow& row, const RunStatus& status) {
  if (lease == nullptr) return run;
  // The cost is known no better than to a millionth of a dollar.
  const auto micro = [](double usd) { return std::round(usd * 1e6) / 1e6; };
  const int64_t now_ms = context.NowMs();
  const Spend spend = SpentByRun(*lease, row.run_id, now_ms);
  const int64_t stops_ms = status.over ? 0 : JobStopsMs(*lease, status.started_ms, now_ms);
  run["spent_low_usd"] = micro(spend.low_usd);
  run["spent_high_usd"] = micro(spend.high_usd);
  run["stops"] = nullptr;
  if (stops_ms != 0) run["stops"] = FormatRfc3339(stops_ms);
  run["lease"] = LeaseToJson(*lease, now_ms);
  return run;
}

void TellLeaks(CommandContext& context, const Money& money) {
  for (const MarketListing& listing : money.listings) {
    for (const ListedInstance& leak : listing.instances) {
      context.Say(
          absl::StrCat("leak: ", leak.instance.id, " at ", listing.provider, ", ",
                       FormatUsdPerHour(leak.instance.price_usd_per_hour), "/h: ", leak.why,
                       " (as of ", Ago(context, listing.listed_ms), " ago); gpuctl reap ends it"),
          Tone::kAlarm);
    }
  }
}

// Tells of machines whose last job is over. Such a machine bills until a limit or somebody ends it,
// and the list of live runs does not show it.
absl::Status TellWhatBillsOn(CommandContext& context, const ClientPaths& paths, const Money& money,
                             const std::vector<RunRow>& rows) {
  for (const RunRow& row : rows) {
    const Lease* const lease = money.Of(row);
    if (lease == nullptr || !row.end.has_value() || lease->uses.empty() ||
        lease->uses.back().run_id != row.run_id) {
      continue;
    }
    const std::string machine = absl::StrCat(lease->provider, "/", lease->instance_id);
    const std::string price = absl::StrCat(FormatUsdPerHour(lease->usd_per_hour()), "/h");
    if (lease->state == LeaseState::kReleasing) {
      ASSIGN_OR_RETURN(const bool at_work, LeaseLock::IsHeld(paths.state_dir, lease->lease_id));
      if (at_work || money.IsLeak(*lease)) continue;
      context.Say(absl::StrCat("the release of ", machine,
                               " was not finished, and it may still bill ", price, "; gpuctl down ",
                               row.name, " tries again"));
    }
    if (lease->state != LeaseState::kRented) continue;
    const int64_t quiet_ms = std::max(row.end->ended_ms, row.heard_ms);
    // After its idle limit the machine should be gone, but one that cannot end itself bills on.
    const bool overdue = context.NowMs() >= quiet_ms + lease->limits.idle_s * 1000;
    context.Say(overdue
                    ? absl::StrCat(row.name, " is over, and ", machine, " may still bill ", price,
                                   "; gpuctl reap asks, and ends it when its limits "
                                   "are over")
                    : absl::StrCat(row.name, " is over, and ", machine, " bills on, ", price,
                                   "; gpuctl down ", row.name, " ends it now"));
  }
  return absl::OkStatus();
}

// Says on stderr what the table does not show: leaks, announced prices, machines that bill on.
absl::Status TellOfMoney(CommandContext& context, Holdings& holdings, RunStore& store,
                         const ClientPaths& paths, const Money& money) {
  TellLeaks(context, money);
  TellStoredPriceRises(holdings, store, /*run_id=*/"", context.NowMs(),
                       [&context](absl::string_view line) { context.Say(line); });
  if (money.of_run.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<RunRow> every, store.List(/*live_only=*/false));
  return TellWhatBillsOn(context, paths, money, every);
}

// Adds the newest runs whose end only gpuctl concluded: their nodes may answer again.
absl::Status AddConcluded(CommandContext& context, RunStore& store, std::vector<RunRow>& runs) {
  ASSIGN_OR_RETURN(std::vector<RunRow> every, store.List(/*live_only=*/false));
  const int64_t since_ms = context.NowMs() - absl::ToInt64Milliseconds(kAskAgainFor);
  for (RunRow& row : every) {
    if (!row.end.has_value() || row.end->ended_ms < since_ms) continue;
    const absl::StatusOr<bool> concluded = EndIsConcluded(context, row);
    if (!concluded.ok()) context.Say(absl::StrCat(row.name, ": ", concluded.status().message()));
    if (concluded.ok() && *concluded) runs.push_back(std::move(row));
  }
  return absl::OkStatus();
}

// Asks the machines of all live runs, and the markets for announced prices. Says on stderr what
// could not be asked.
absl::Status UpdateLive(CommandContext& context, Holdings& holdings, RunStore& store) {
  ASSIGN_OR_RETURN(std::vector<RunRow> live, store.List(/*live_only=*/true));
  RETURN_IF_ERROR(AddConcluded(context, store, live));
  const absl::Status prices = RefreshPriceRises(holdings);
  if (!prices.ok()) context.Say(prices.message());
  std::set<std::string> silent;  // targets that were asked about an ended run in vain
  for (RunRow& row : live) {
    if (row.end.has_value() && silent.count(row.target.name) > 0) continue;
    absl::Status error;
    const absl::StatusOr<Caught> caught = CatchUp(context, store, row, kUpdatePatience, &error);
    if (row.end.has_value() && !error.ok()) silent.insert(row.target.name);
    if (!caught.ok() || *caught == Caught::kNot) {
      context.Say(absl::StrCat(row.name, ": ", (caught.ok() ? error : caught.status()).message()));
    }
  }
  return absl::OkStatus();
}

// Reads the newest numbers from the output of a live run that writes no metrics. Reads what came
// since the last look; an error leaves the row as it is.
void ReadNewestOutput(const std::string& mirror_dir, RunRow& row) {
  MirrorReader mirror(mirror_dir, row.output_segment_bytes);
  if (!mirror.Refresh().ok() || !mirror.RefreshOutputMetrics().ok()) return;
  const TrainingProgress& progress = mirror.progress();
  if (progress.empty()) return;
  row.step = progress.step();
  row.total_steps = progress.total_steps();
  row.loss = progress.loss();
}

// Returns the status that is stored on this laptop. Gives `row` its newest metrics while it lives.
absl::StatusOr<RunStatus> StoredStatus(const ClientPaths& paths, RunRow& row) {
  if (row.end.has_value()) return StatusOfEnded(row);
  const MirrorPaths mirror(paths.MirrorDir(row.run_id));
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(mirror.dir));
  RunStatus status = DeriveStatus(row, lifecycle);
  ReadNewestMetrics(mirror.metrics, row);
  if (row.step < 0 && !row.loss.has_value()) ReadNewestOutput(mirror.dir, row);
  return status;
}

TableRow TableHead(bool rented, bool wide) {
  TableRow head = {"NAME", "STATUS", "STEP", "LOSS", "AGE", "ON"};
  if (rented) head.insert(head.end(), {"$/H", "SPENT", "CAP", "STOPS"});
  if (wide) head.insert(head.end(), {"RUN", "JOB", "HEARD"});
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
    cells.insert(cells.end(), {row.run_id, row.job_id, Ago(context, row.heard_ms)});
  }
  cells.push_back(row.command);
  return cells;
}

}  // namespace

absl::StatusOr<int> CmdPs(CommandContext& context, std::vector<std::string> args) {
  bool all = false, update = false;
  VerbParser parser(context, "ps [-a] [FLAGS]",
                    "Lists the runs that have not ended, from what is stored on this laptop.");
  parser.Switch("-a,--all", all, "Also those that ended");
  parser.Switch("-u,--update", update,
                "Ask the machines first (3 s each at most), and for their prices");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  Holdings holdings(context);
  if (update) RETURN_IF_ERROR(UpdateLive(context, holdings, *store));
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, store->List(!all));
  const bool wide = context.format == OutputFormat::kWide;
  std::vector<nlohmann::ordered_json> objects;
  ASSIGN_OR_RETURN(const Money money, ReadMoney(holdings));
  const bool rented = std::any_of(rows.begin(), rows.end(),
                                  [&](const RunRow& row) { return money.Of(row) != nullptr; });
  std::vector<TableRow> table = {TableHead(rented, wide)};
  for (RunRow& row : rows) {
    const absl::StatusOr<RunStatus> stored = StoredStatus(paths, row);
    if (!stored.ok()) {
      // One run must not hide the others.
      context.Say(
          absl::StrCat(row.name, ": its state here cannot be read: ", stored.status().message()));
    }
    const RunStatus status = stored.ok() ? *stored : DeriveStatus(row, Lifecycle());
    if (context.json()) {
      objects.push_back(WithMoney(context, RunToJson(row, status), money.Of(row), row, status));
    } else {
      TableRow& cells = table.emplace_back(CellsOf(context, row, status, wide));
      if (rented) {
        const std::vector<std::string> more = MoneyCells(context, money.Of(row), row, status);
        cells.insert(cells.begin() + kCellsBeforeMoney, more.begin(), more.end());
      }
    }
  }
  if (context.json()) {
    context.PrintJsonList("runs", objects);
    return kExitOk;
  }
  // In a narrow terminal the columns of cost and stop are the last to be left out; -o wide shows
  // everything.
  if (context.terminal.stdout_tty && !wide) {
    context.PrintTableWithin(std::move(table), GetTerminalSize(1).columns,
                             {"COMMAND", "AGE", "ON", "LOSS", "STEP"});
  } else {
    context.PrintTable(table);
  }
  RETURN_IF_ERROR(TellOfMoney(context, holdings, *store, paths, money));
  if (rows.empty()) {
    context.Hint(all ? "gpuctl launch -- COMMAND starts a run"
                     : "nothing is running; gpuctl ps -a lists what ended");
  }
  return kExitOk;
}

}  // namespace gpuctl

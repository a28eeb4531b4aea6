// gpuctl reap: end our machines that bill and that no run needs.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/due/due_machines.h"
#include "client/due/findings.h"
#include "client/due/node_terms.h"
#include "client/keys/unused_logins.h"
#include "client/market/holdings.h"
#include "client/market/instance_target.h"
#include "client/rent/interruptible_hooks.h"
#include "client/terminal/console.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

// Longer than anybody rents a machine by the hour.
constexpr absl::Duration kOldestBill = absl::Hours(24 * 366);

// Returns the runs that used the machine of that name, newest first; none without a list of runs.
absl::StatusOr<std::vector<RunRow>> RunsOn(RunStore* store, const std::string& provider,
                                           const std::string& name) {
  if (store == nullptr) return std::vector<RunRow>();
  RunFilter there;
  there.target_name = name;
  ASSIGN_OR_RETURN(std::vector<RunRow> rows, store->List(there));
  // A run on several machines has a row for each of the others.
  there.members = true;
  ASSIGN_OR_RETURN(const std::vector<RunRow> parts, store->List(there));
  rows.insert(rows.end(), parts.begin(), parts.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const RunRow& a, const RunRow& b) { return a.created_ms > b.created_ms; });
  rows.erase(
      std::remove_if(rows.begin(), rows.end(),
                     [&provider](const RunRow& row) { return row.target.provider != provider; }),
      rows.end());
  return rows;
}

// Returns when a machine's bill may have begun, in Unix milliseconds, by the first of the `rows`
// that used it and by its node, of which the earlier one counts: the list of runs may be as old as
// the ledger is. 0: neither knows. A node that names a time before `kOldestBill` is not believed.
int64_t BillBegan(const std::vector<RunRow>& rows, const NodeVerdict& verdict, int64_t now_ms) {
  int64_t begun_ms = verdict.billing_started_ms;
  if (begun_ms < now_ms - absl::ToInt64Milliseconds(kOldestBill)) begun_ms = 0;
  if (rows.empty()) return begun_ms;
  const int64_t first_ms = rows.back().created_ms;
  return begun_ms == 0 ? first_ms : std::min(begun_ms, first_ms);
}

// Enters a lost machine, with the runs that used it.
absl::Status TakeBack(Holdings& holdings, RunStore* store, const SeenInstance& lost,
                      const NodeVerdict& verdict, int64_t now_ms) {
  ASSIGN_OR_RETURN(Provider * provider, holdings.Find(lost.provider));
  ASSIGN_OR_RETURN(
      const std::vector<RunRow> rows,
      RunsOn(store, lost.provider, RentedNodeName(lost.provider, lost.listed.instance.id)));
  ASSIGN_OR_RETURN(const Lease lease,
                   holdings.ledger().Adopt(lost.provider, lost.listed.instance,
                                           absl::ToInt64Seconds(provider->traits().billing_quantum),
                                           provider->key_print(), /*claimed=*/true,
                                           BillBegan(rows, verdict, now_ms)));
  if (lost.listed.instance.address.has_value()) {
    RETURN_IF_ERROR(holdings.ledger().SetAddress(lease.lease_id, *lost.listed.instance.address));
  }
  int64_t ends_ms = lost.listed.instance.ends_ms;
  if (!lost.listed.instance.tells_end) {
    const absl::StatusOr<Instance> seen = provider->Describe(lost.listed.instance.id);
    if (seen.ok()) ends_ms = seen->ends_ms;
  }
  RETURN_IF_ERROR(holdings.ledger().SetEnds(lease.lease_id, ends_ms));
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    RETURN_IF_ERROR(holdings.ledger().UsedBy(lease.lease_id, row->run_id, row->name, lease.limits,
                                             LeaseUse::kWhole, /*beside=*/true));
  }
  return absl::OkStatus();
}

void PrintJson(const CommandContext& context, const ReapReport& report, bool dry_run,
               int64_t now_ms) {
  std::vector<nlohmann::ordered_json> ended, left, lost, back, unsettled;
  for (const ReapedInstance& reaped : report.reaped) {
    SeenInstance seen;
    seen.provider = reaped.provider;
    seen.listed = {reaped.instance, Holder::kLeak, "", reaped.why};
    seen.lease = reaped.lease;
    (reaped.status.ok() ? ended : left).push_back(SeenToJson(seen, now_ms));
  }
  if (dry_run) {
    for (const SeenInstance* leak : report.last.Leaks()) left.push_back(SeenToJson(*leak, now_ms));
  }
  for (const Lease& lease : report.last.unsettled) unsettled.push_back(LeaseToJson(lease, now_ms));
  for (const SeenInstance* one : report.last.Lost()) lost.push_back(SeenToJson(*one, now_ms));
  for (const Lease& lease : report.last.back) back.push_back(LeaseToJson(lease, now_ms));
  context.PrintJson({{"dry_run", dry_run},
                     {"ended", ended},
                     {"leaks", left},
                     {"lost", lost},
                     {"back", back},
                     {"unsettled", unsettled},
                     {"unknown", UnknownToJson(report.last.unknown)}});
}

}  // namespace

void PrintNothingReaped(const CommandContext& context, bool dry_run) {
  PrintJson(context, ReapReport(), dry_run, /*now_ms=*/0);
}

namespace {

// Prints for each instance whether it was ended. Returns true when one was not.
bool TellReaped(CommandContext& context, const ReapReport& report, const ReapFlags& flags) {
  bool left = false;
  for (const ReapedInstance& reaped : report.reaped) {
    left |= !reaped.status.ok();
    std::string line = DescribeBill(reaped.provider, reaped.instance, reaped.why);
    if (!reaped.status.ok()) {
      absl::StrAppend(&line, ": NOT ended: ", reaped.status.message());
    } else if (reaped.lease.has_value()) {
      absl::StrAppend(&line, ": ended; it cost ",
                      FormatSpend(SpentOn(*reaped.lease, context.NowMs())));
    } else {
      absl::StrAppend(&line, ": ended");
    }
    context.Say(line, reaped.status.ok() ? Tone::kPlain : Tone::kWarning);
    if (!flags.reaped) continue;
    flags.reaped(
        absl::StrCat(reaped.provider, "/", reaped.instance.id), reaped.status,
        reaped.lease.has_value()
            ? absl::StrCat("ended; it cost ", FormatSpend(SpentOn(*reaped.lease, context.NowMs())),
                           "; ", reaped.why)
            : absl::StrCat("ended; ", reaped.why));
  }
  return left;
}

// True when the market's clock says that this computer's is wrong.
bool IsClockWrong(const Reconciliation& found, const std::string& provider) {
  return std::any_of(found.wrong_clock.begin(), found.wrong_clock.end(),
                     [&provider](const auto& market) { return market.first == provider; });
}

// Asks the nodes of the machines that this ledger lost. Those that answer come back into it: their
// nodes enforce their limits. Not under a wrong clock, by whose times they would cost too much or
// nothing. With `asks` the user decides about the others; returns the ids of
// those to end.
absl::StatusOr<std::set<InstanceId>> SettleLost(CommandContext& context, Holdings& holdings,
                                                RunStore* store, const Reconciliation& found,
                                                bool asks) {
  std::set<InstanceId> end;
  for (const SeenInstance* lost : found.Lost()) {
    const Instance& instance = lost->listed.instance;
    if (IsClockWrong(found, lost->provider)) continue;
    const absl::StatusOr<NodeVerdict> verdict =
        AskNode(context, lost->provider, instance, lost->listed.lease_id);
    if (verdict.ok()) {
      RETURN_IF_ERROR(TakeBack(holdings, store, *lost, *verdict, context.NowMs()));
      context.Say(absl::StrCat(instance.id, " at ", lost->provider,
                               " is in the ledger again: ", verdict->job_runs ? "its job runs" : "",
                               verdict->job_runs ? "" : "its node knows it, and no job runs"));
      continue;
    }
    if (!asks) continue;
    context.Note(absl::StrCat(DescribeBill(lost->provider, instance, lost->listed.why),
                              ", and its node does not tell: ", verdict.status().message()),
                 Tone::kAlarm);
    ASSIGN_OR_RETURN(
        const bool agreed,
        context.AskYesNo("It may have a job of yours, with results. End it?", "nothing was ended",
                         "reap asks before it ends an instance, and there is nobody to ask"));
    if (agreed) end.insert(instance.id);
  }
  return end;
}

// Says what bills although it is no leak: machines that are wanted.
absl::Status TellOfWanted(CommandContext& context, Holdings& holdings) {
  ASSIGN_OR_RETURN(const std::vector<Lease> open, holdings.ledger().List(/*open_only=*/true));
  double usd_per_hour = 0;
  size_t rented = 0;
  for (const Lease& lease : open) {
    if (lease.state != LeaseState::kRented) continue;
    ++rented;
    usd_per_hour += lease.usd_per_hour();
  }
  context.Say("no leaks");
  if (rented == 0) return absl::OkStatus();
  context.Hint(
      absl::StrCat(rented, rented == 1 ? " machine of yours bills, " : " machines of yours bill, ",
                   FormatUsd(usd_per_hour), "/h: gpuctl ps shows ", rented == 1 ? "it" : "them",
                   ", gpuctl down ends ", rented == 1 ? "it" : "one"));
  return absl::OkStatus();
}

// Returns the exit code for leaks that are left; unsettled intents count as a timeout.
int ExitCodeOfReport(const ReapReport& report, bool leaks_left) {
  const int code = ExitCodeOfFindings(report.last, leaks_left);
  return code == kExitOk && !report.last.unsettled.empty() ? kExitTimeout : code;
}

}  // namespace

absl::StatusOr<int> ReapLeaks(CommandContext& context, Holdings& holdings, RunStore* store,
                              const ReapFlags& flags) {
  ReapReport report;
  NodeLimitsWatch limits(context, store);
  ReapOptions options;
  options.wait = flags.wait;
  options.reconcile.also_owners = {flags.owners.begin(), flags.owners.end()};
  options.reconcile.why_due = [&limits](const std::vector<DueQuestion>& machines) {
    return limits.WhyDue(machines);
  };
  options.reconcile.serves = [&context](const std::vector<ServesQuestion>& machines) {
    return AreServed(context, machines);
  };
  options.reconcile.successor = [store](const std::string& run_id) {
    return SuccessorOf(store, run_id);
  };
  const bool asks = !flags.yes && !flags.dry_run;
  if (asks || flags.dry_run) {
    ASSIGN_OR_RETURN(report.last, Reconcile(holdings.ledger(), holdings.markets(), context.clock,
                                            options.reconcile));
    for (const SeenInstance* leak : report.last.Leaks()) {
      const std::string what =
          DescribeBill(leak->provider, leak->listed.instance, leak->listed.why);
      context.Note(absl::StrCat("leak: ", what), Tone::kAlarm);
    }
  }
  const size_t leaks = report.last.Leaks().size();
  if (flags.dry_run) {
    if (context.json()) PrintJson(context, report, true, context.NowMs());
    TellFindings(context, store, report.last);
    TellLost(context, report.last);
    const Reconciliation& found = report.last;
    const bool none =
        leaks == 0 && found.unknown.empty() && found.unsettled.empty() && found.Lost().empty();
    if (none && !flags.reaped) RETURN_IF_ERROR(TellOfWanted(context, holdings));
    return ExitCodeOfReport(report, leaks > 0);
  }
  if (asks && leaks > 0) {
    ASSIGN_OR_RETURN(
        const bool agreed,
        context.AskYesNo(absl::StrCat("End ", leaks == 1 ? "it" : "them", "?"), "nothing was ended",
                         "reap asks before it ends an instance, and there is nobody to ask"));
    if (!agreed) {
      context.Say("nothing was ended");
      return kExitLeak;
    }
  }
  const InterruptibleHooks interrupt(context);
  ASSIGN_OR_RETURN(report, Reap(holdings.ledger(), holdings.markets(), context.clock,
                                interrupt.hooks(), options));
  if (!report.last.Lost().empty()) {
    ASSIGN_OR_RETURN(options.lost, SettleLost(context, holdings, store, report.last, asks));
    options.wait = false;
    std::vector<ReapedInstance> before = std::move(report.reaped);
    ASSIGN_OR_RETURN(report, Reap(holdings.ledger(), holdings.markets(), context.clock,
                                  interrupt.hooks(), options));
    report.reaped.insert(report.reaped.begin(), before.begin(), before.end());
  }
  const bool left = TellReaped(context, report, flags);
  ASSIGN_OR_RETURN(const std::vector<Lease> open, holdings.ledger().List(/*open_only=*/true));
  SettleTerms(context, holdings.ledger(), open);
  for (const ReconcileMarket& market : holdings.markets()) {
    if (market.provider != nullptr) {
      RemoveUnusedLogins(context, holdings.ledger(), *market.provider);
    }
  }
  TellFindings(context, store, report.last);
  TellLost(context, report.last);
  for (const Lease& lease : report.last.unsettled) {
    context.Warn(
        absl::StrCat(DescribeUnsettled(lease, context.NowMs()), "; reap again in two minutes"));
  }
  // keep prints one document for the whole pass.
  if (context.json() && !flags.reaped) PrintJson(context, report, false, context.NowMs());
  if (report.reaped.empty() && report.last.unknown.empty() && report.last.unsettled.empty() &&
      report.last.Lost().empty()) {
    // keep speaks of deeds alone.
    if (!flags.reaped) RETURN_IF_ERROR(TellOfWanted(context, holdings));
  }
  return ExitCodeOfReport(report, left);
}

absl::StatusOr<int> CmdReap(CommandContext& context, std::vector<std::string> args) {
  ReapFlags flags;
  bool no_wait = false, install = false, uninstall = false;
  std::string every = "5m";
  VerbParser parser(
      context, "reap [FLAGS]",
      "Ends instances that this gpuctl rented and that nobody wants: those left by a killed\n"
      "launch, and those that were released and still bill. Never touches instances of\n"
      "others. Asks a machine that cannot end itself about its limits, and ends it when they\n"
      "are over. Exits with 117 when a leak is left, 124 when a requested instance that got\n"
      "no answer may still appear.",
      "  gpuctl reap --dry-run\n"
      "  gpuctl keep --install    do it, and more, every 5 minutes from now on");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would end");
  parser.Switch("-y,--yes", flags.yes, "Do not ask");
  parser.Switch("--no-wait", no_wait, "Do not wait for what may not be listed yet");
  parser.Switch("--install", install, "The old name of gpuctl keep --install");
  parser.Switch("--uninstall", uninstall, "Undo --install");
  parser.Option("--owner", flags.owners,
                "Also end the leaks of this owner id: of a ledger that was lost or copied");
  parser.Option("--every", every, "With --install: how often");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (install && uninstall) {
    return UsageError("reap takes either --install or --uninstall", "gpuctl reap --help");
  }
  if (install || uninstall) {
    context.Say("gpuctl keep took over from reap --install: it reaps, and does more");
    return ScheduleKeep(context, install, every);
  }
  flags.wait = !no_wait;
  Holdings holdings(context);
  holdings.OnlyEnds();
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  // End what bills even when the list of runs cannot be read.
  RunStore* const store = context.StoreOrCopy().value_or(nullptr);
  return ReapLeaks(context, holdings, store, flags);
}

}  // namespace gpuctl

// gpuctl reap: end our machines that bill and that no run needs.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/market/holdings.h"
#include "client/market/lease_view.h"
#include "client/rent/due_machines.h"
#include "client/rent/findings.h"
#include "client/rent/interruptible_hooks.h"
#include "client/terminal/console.h"
#include "client/verbs/money_verbs.h"
#include "client/verbs/reap_schedule.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

std::string Describe(const std::string& provider, const Instance& instance,
                     const std::string& why) {
  return absl::StrCat(instance.id, " at ", provider, ", ",
                      FormatUsdPerHour(instance.price_usd_per_hour), "/h: ", why);
}

void PrintJson(const CommandContext& context, const ReapReport& report, bool dry_run,
               int64_t now_ms) {
  std::vector<nlohmann::ordered_json> ended, left, unsettled;
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
  context.PrintJson({{"dry_run", dry_run},
                     {"ended", ended},
                     {"leaks", left},
                     {"unsettled", unsettled},
                     {"unknown", UnknownToJson(report.last.unknown)}});
}

// Prints for each instance whether it was ended. Returns true when one was not.
bool TellReaped(CommandContext& context, const ReapReport& report) {
  bool left = false;
  for (const ReapedInstance& reaped : report.reaped) {
    left |= !reaped.status.ok();
    std::string line = Describe(reaped.provider, reaped.instance, reaped.why);
    if (!reaped.status.ok()) {
      absl::StrAppend(&line, ": NOT ended: ", reaped.status.message());
    } else if (reaped.lease.has_value()) {
      absl::StrAppend(&line, ": ended; it cost ",
                      FormatSpend(SpentOn(*reaped.lease, context.NowMs())));
    } else {
      absl::StrAppend(&line, ": ended");
    }
    context.Say(line);
  }
  return left;
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
  const WhyDue why_due = [&limits](const std::vector<DueQuestion>& machines) {
    return limits.WhyDue(machines);
  };
  const bool asks = !flags.yes && !flags.dry_run;
  if (asks || flags.dry_run) {
    ASSIGN_OR_RETURN(report.last,
                     Reconcile(holdings.ledger(), holdings.markets(), context.clock, why_due));
    for (const SeenInstance* leak : report.last.Leaks()) {
      const std::string what = Describe(leak->provider, leak->listed.instance, leak->listed.why);
      context.Note(absl::StrCat("leak: ", what), Tone::kAlarm);
    }
  }
  const size_t leaks = report.last.Leaks().size();
  if (flags.dry_run) {
    if (context.json()) PrintJson(context, report, true, context.NowMs());
    TellFindings(context, store, report.last);
    return ExitCodeOfReport(report, leaks > 0);
  }
  if (asks && leaks > 0) {
    ASSIGN_OR_RETURN(
        const bool agreed,
        context.AskYesNo(absl::StrCat("End ", leaks == 1 ? "it" : "them", "?"),
                         "reap asks before it ends an instance, and there is nobody to ask"));
    if (!agreed) {
      context.Say("nothing was ended");
      return kExitLeak;
    }
  }
  {
    const InterruptibleHooks interrupt(context);
    ASSIGN_OR_RETURN(report, Reap(holdings.ledger(), holdings.markets(), context.clock,
                                  interrupt.hooks(), flags.wait, why_due));
  }
  const bool left = TellReaped(context, report);
  TellFindings(context, store, report.last);
  for (const Lease& lease : report.last.unsettled) {
    context.Say(absl::StrCat(lease.label, " at ", lease.provider,
                             " is not settled yet: reap again in two minutes"));
  }
  if (context.json()) PrintJson(context, report, false, context.NowMs());
  if (report.reaped.empty() && report.last.unknown.empty() && report.last.unsettled.empty()) {
    context.Say("no leaks");
  }
  return ExitCodeOfReport(report, left);
}

absl::StatusOr<int> CmdReap(CommandContext& context, std::vector<std::string> args) {
  ReapFlags flags;
  bool no_wait = false, install = false, uninstall = false;
  std::string every = "10m";
  VerbParser parser(
      context, "reap [FLAGS]",
      "Ends instances that this gpuctl rented and that nobody wants: those left by a killed\n"
      "launch, and those that were released and still bill. Never touches instances of\n"
      "others. Asks a machine that cannot end itself about its limits, and ends it when they\n"
      "are over. Exits with 117 when a leak is left, 124 when a requested instance that got\n"
      "no answer may still appear.",
      "gpuctl reap --install    do it every 10 minutes from now on");
  parser.Switch("--dry-run", flags.dry_run, "Only say what it would end");
  parser.Switch("-y,--yes", flags.yes, "Do not ask");
  parser.Switch("--no-wait", no_wait, "Do not wait for what may not be listed yet");
  parser.Switch("--install", install, "Let this computer do it by itself, regularly");
  parser.Switch("--uninstall", uninstall, "Undo --install");
  parser.Option("--every", every, "With --install: how often");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (install && uninstall) {
    return UsageError("reap takes either --install or --uninstall", "gpuctl reap --help");
  }
  if (install || uninstall) {
    ASSIGN_OR_RETURN(const absl::Duration period, ParseDuration(every));
    const absl::StatusOr<std::string> done = install ? InstallReap(period) : UninstallReap();
    RETURN_IF_ERROR(done.status());
    context.Say(*done);
    return kExitOk;
  }
  flags.wait = !no_wait;
  Holdings holdings(context);
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  // End what bills even when the list of runs cannot be read.
  RunStore* const store = context.Store().value_or(nullptr);
  return ReapLeaks(context, holdings, store, flags);
}

}  // namespace gpuctl

// gpuctl price: list the higher prices that owners of rented machines announce, and answer one.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/due/findings.h"
#include "client/market/holdings.h"
#include "client/market/price_rises.h"
#include "client/runs/context.h"
#include "client/terminal/console.h"
#include "client/terminal/table.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

struct PriceFlags {
  std::string reference;
  bool accept = false;
  bool refuse = false;
  bool yes = false;
  bool quiet = false;
  std::optional<double> max_usd_per_hour;
};

absl::StatusOr<int> ListRises(CommandContext& context, Holdings& holdings, RunStore* store,
                              bool quiet) {
  ASSIGN_OR_RETURN(const Reconciliation found,
                   Reconcile(holdings.ledger(), holdings.markets(), context.clock));
  const int64_t now_ms = context.NowMs();
  std::vector<nlohmann::ordered_json> objects;
  std::vector<std::string> names;
  std::vector<TableRow> table = {{"PROVIDER", "INSTANCE", "RUN", "NOW", "THEN", "MAX", "IN"}};
  for (const SeenInstance& seen : found.instances) {
    if (!seen.rise.has_value()) continue;
    const PriceRise& rise = *seen.rise;
    const std::optional<double> max = MaxPriceOf(store, *seen.lease);
    objects.push_back(PriceRiseToJson(*seen.lease, rise, max));
    names.push_back(rise.instance_id);
    table.push_back(
        {seen.provider, rise.instance_id, RunOf(seen.lease),
         FormatUsdPerHour(rise.before_usd_per_hour), FormatUsdPerHour(rise.after_usd_per_hour),
         max.has_value() ? FormatUsdPerHour(*max) : "-",
         rise.from_ms > 0
             ? HumanDuration(absl::Milliseconds(std::max<int64_t>(0, rise.from_ms - now_ms)))
             : "?"});
  }
  if (context.json()) {
    context.PrintJsonList("price_rises", objects);
  } else if (quiet) {
    context.PrintLines(names);
  } else if (objects.empty()) {
    const bool all_asked = found.unknown.empty() && found.rises_unknown.empty();
    context.Say(all_asked ? "no price rise waits for an answer"
                          : "no price rise waits at the providers that answered");
  } else {
    context.PrintTable(table);
  }
  TellFindings(context, store, found);
  return found.rises_unknown.empty() ? ExitCodeOfFindings(found, /*leaks=*/false) : kExitProvider;
}

// Finds an open lease by the provider's id, our label, or a run that uses it.
absl::StatusOr<Lease> FindLease(const absl::StatusOr<RunStore*>& store, Ledger& ledger,
                                const std::string& reference) {
  ASSIGN_OR_RETURN(const std::vector<Lease> open, ledger.List(/*open_only=*/true));
  for (const Lease& lease : open) {
    if (reference == lease.instance_id || reference == lease.label) return lease;
  }
  RETURN_IF_ERROR(store.status());
  ASSIGN_OR_RETURN(const RunRow row, (*store)->Get(reference));
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger.OfRun(row.run_id));
  if (!lease.has_value() || !lease->open() || lease->instance_id.empty()) {
    return absl::NotFoundError(
        absl::StrCat("look up the price of ", row.name, ": it is on no rented machine"));
  }
  return *lease;
}

absl::StatusOr<int> AnswerRise(CommandContext& context, Holdings& holdings,
                               const absl::StatusOr<RunStore*>& store, const PriceFlags& flags) {
  ASSIGN_OR_RETURN(const Lease lease, FindLease(store, holdings.ledger(), flags.reference));
  ASSIGN_OR_RETURN(Provider * provider, holdings.Find(lease.provider));
  const absl::StatusOr<std::vector<PriceRise>> rises = provider->ListPriceRises();
  if (!rises.ok()) return ExplainMarketError(rises.status(), lease.provider);
  const auto rise = std::find_if(rises->begin(), rises->end(), [&lease](const PriceRise& one) {
    return one.instance_id == lease.instance_id;
  });
  if (rise == rises->end()) {
    return absl::NotFoundError(absl::StrCat("answer a price rise of ", lease.instance_id,
                                            ": none waits for an answer at ", lease.provider));
  }
  const std::optional<double> max = flags.max_usd_per_hour.has_value()
                                        ? flags.max_usd_per_hour
                                        : MaxPriceOf(store.value_or(nullptr), lease);
  if (flags.accept && IsAbove(*rise, max)) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            "accept the price rise of ", lease.instance_id, ": ",
            rise->after_usd_per_hour > 0 ? FormatUsd(rise->after_usd_per_hour) : "what it will be",
            "/h is, or may be, more than ", FormatUsd(*max), "/h, the most that was agreed to")),
        "--max-price agrees to more; gpuctl price --refuse, or down, are the other answers");
  }
  if (!flags.yes) {
    context.Warn(DescribePriceRise(lease, *rise, max, context.NowMs()));
    ASSIGN_OR_RETURN(
        const bool agreed,
        context.AskYesNo(flags.accept ? "Accept it?" : "Refuse it?", "it was not answered",
                         "price asks before it answers, and there is nobody to ask"));
    if (!agreed) {
      context.Say("it was not answered");
      return kExitFailed;
    }
  }
  const absl::Status answered = provider->AnswerPriceRise(*rise, flags.accept);
  if (absl::IsNotFound(answered)) {
    return WithHint(absl::FailedPreconditionError(answered.message()),
                    "the rise changed meanwhile, and nothing was answered; gpuctl price shows what "
                    "waits now");
  }
  if (!answered.ok()) return ExplainMarketError(answered, lease.provider);
  std::vector<PriceRise> left;
  for (const PriceRise& one : *rises) {
    if (one.id != rise->id) left.push_back(one);
  }
  RETURN_IF_ERROR(holdings.ledger().StorePriceRises(lease.provider, left));
  context.Say(flags.accept ? absl::StrCat("accepted: ", lease.instance_id, " costs at most ",
                                          FormatUsdPerHour(rise->after_usd_per_hour), "/h from ",
                                          rise->from_ms > 0 ? FormatRfc3339(rise->from_ms)
                                                            : "its contract's end",
                                          " on, and the old price until then; its cost limit stays")
                           : absl::StrCat("refused: ", AfterRefusal(*rise)));
  if (context.json()) {
    context.PrintJson({{"answer", flags.accept ? "accepted" : "refused"},
                       {"price_rise", PriceRiseToJson(lease, *rise, max)}});
  }
  return kExitOk;
}

}  // namespace

absl::StatusOr<int> CmdPrice(CommandContext& context, std::vector<std::string> args) {
  PriceFlags flags;
  std::string max_price;
  VerbParser parser(
      context, "price [RUN|INSTANCE --accept|--refuse] [FLAGS]",
      "Lists higher prices that the owners of rented machines have announced, or answers\n"
      "one. The old price holds until the current contract ends, whatever the answer.\n"
      "gpuctl accepts none by itself.",
      "  gpuctl price\n"
      "  gpuctl price amber-fox-3 --refuse");
  parser.Option("RUN", flags.reference, "A run on the machine, or the provider's id");
  parser.Switch("--accept", flags.accept, "Agree to the new price");
  parser.Switch("--refuse", flags.refuse,
                "Refuse the new price; the contract is then not extended");
  parser.Switch("-y,--yes", flags.yes, "Do not ask");
  parser.Quiet(flags.quiet, "the instances");
  parser.Option("--max-price", max_price,
                "With --accept: the most to agree to an hour, instead of the run's own");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if ((flags.accept && flags.refuse) || (flags.accept || flags.refuse) == flags.reference.empty()) {
    return UsageError(
        "price takes a run or an instance with either --accept or --refuse, or "
        "neither",
        "gpuctl price lists what waits for an answer");
  }
  if (!max_price.empty()) {
    ASSIGN_OR_RETURN(flags.max_usd_per_hour, ParsePrice(max_price));
  }
  Holdings holdings(context);
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  // Show prices even when the list of runs cannot be read.
  const absl::StatusOr<RunStore*> store = context.Store();
  return flags.reference.empty()
             ? ListRises(context, holdings, store.value_or(nullptr), flags.quiet)
             : AnswerRise(context, holdings, store, flags);
}

}  // namespace gpuctl

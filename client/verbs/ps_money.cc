#include "client/verbs/ps_money.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/market/price_rises.h"
#include "client/rent/market_expiry.h"
#include "client/runs/pulled_record.h"
#include "common/base/status_macros.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

void TellLeaks(CommandContext& context, const Money& money) {
  for (const MarketListing& listing : money.listings) {
    for (const ListedInstance& leak : listing.instances) {
      const auto lease =
          std::find_if(money.open.begin(), money.open.end(),
                       [&leak](const Lease& one) { return one.instance_id == leak.instance.id; });
      const std::string price =
          lease != money.open.end() ? FormatUsdPerHour(*lease) : FormatUsdPerHour(leak.instance);
      context.Say(absl::StrCat("leak: ", leak.instance.id, " at ", listing.provider, ", ", price,
                               "/h: ", leak.why, " (as of ", Ago(context, listing.listed_ms),
                               " ago); gpuctl reap ends it"),
                  Tone::kAlarm);
    }
  }
}

// True when the market gives a machine a key for its own end; false when that cannot be known here.
bool EndsItself(Holdings& holdings, const Lease& lease) {
  const absl::StatusOr<std::vector<Market>> market = holdings.Open({lease.provider});
  return market.ok() && market->front().provider->traits().self_release();
}

// True when this laptop has noted of each run on the machine that all its results are at home.
bool AllIsHome(const ClientPaths& paths, const Lease& lease) {
  return std::all_of(lease.uses.begin(), lease.uses.end(), [&paths](const LeaseUse& use) {
    return PulledRecord(paths.MirrorDir(use.run_id)).AllHomeMs() > 0;
  });
}

// A machine that bills on after its run.
struct BillsOn {
  std::string run, machine, price;
  double usd_per_hour = 0;
  std::string own_end;  // "it ends itself in 9m 00s"; "" when that is not known
};

// Adds a machine whose last job is over to `bill_on`, or tells of it at once where its release or
// its own end is overdue. It bills until a limit or somebody ends it, and the list of live runs
// does not show it.
absl::Status TellIfBillsOn(CommandContext& context, Holdings& holdings, const ClientPaths& paths,
                           const Money& money, const Lease& lease, const RunRow& row,
                           int64_t idle_since_ms, std::vector<BillsOn>& bill_on) {
  const std::string machine = absl::StrCat(lease.provider, "/", lease.instance_id);
  const std::string price = absl::StrCat(FormatUsdPerHour(lease), "/h");
  if (lease.state == LeaseState::kReleasing) {
    ASSIGN_OR_RETURN(const bool at_work, LeaseLock::IsHeld(paths.state_dir, lease.lease_id));
    if (at_work || money.IsLeak(lease)) return absl::OkStatus();
    context.Warn(absl::StrCat("the release of ", machine,
                              " was not finished, and it may still bill ", price, "; gpuctl down ",
                              row.name, " tries again"));
  }
  if (lease.state != LeaseState::kRented) return absl::OkStatus();
  const int64_t quiet_ms = std::max(row.end->ended_ms, row.heard_ms);
  // It has ended by then, and nobody has looked.
  if (EndsWithItsRun(lease.provider, lease.instance_id)) return absl::OkStatus();
  // After its idle limit the machine should be gone, but one that cannot end itself bills on.
  const bool overdue = context.NowMs() >= quiet_ms + lease.limits.idle_s * 1000;
  const bool home = AllIsHome(paths, lease);
  std::string own_end = DescribeIdleEnd(lease, idle_since_ms, context.NowMs(),
                                        home ? ResultsTime::kNone : ResultsTime::kWords);
  if (!own_end.empty() && !overdue && EndsItself(holdings, lease)) {
    own_end = absl::StrCat(
        home ? "its results are at home, and it ends itself " : "it ends itself ", own_end);
  } else {
    own_end = DescribeMarketEnd(lease, context.NowMs());
  }
  if (!overdue) {
    bill_on.push_back({row.name, machine, price, lease.usd_per_hour(), own_end});
    return absl::OkStatus();
  }
  context.Warn(absl::StrCat(row.name, " is over, and ", machine, " may still bill ", price,
                            "; gpuctl reap asks, and ends it when its limits are over"));
  return absl::OkStatus();
}

// Says what all have in common once.
void TellThatTheyBillOn(CommandContext& context, const std::vector<BillsOn>& bill_on) {
  if (bill_on.empty()) return;
  if (bill_on.size() == 1) {
    const BillsOn& one = bill_on.front();
    context.Warn(absl::StrCat(one.run, " is over, and ", one.machine, " bills on, ", one.price,
                              "; ", one.own_end, one.own_end.empty() ? "" : "; ", "gpuctl down ",
                              one.run, " ends it now"));
    return;
  }
  double usd_per_hour = 0;
  for (const BillsOn& one : bill_on) usd_per_hour += one.usd_per_hour;
  context.Warn(absl::StrCat(bill_on.size(), " machines bill on, and their runs are over, ",
                            FormatUsdPerHour(usd_per_hour), "/h; gpuctl down RUN ends one now:"));
  for (const BillsOn& one : bill_on) {
    context.Note(absl::StrCat("  ", one.run, " on ", one.machine, ", ", one.price,
                              one.own_end.empty() ? "" : "; ", one.own_end),
                 Tone::kWarning);
  }
}

// Tells of a machine that a living gpuctl is renting: its run is not in the list yet.
bool TellIfLaunching(CommandContext& context, Holdings& holdings, const Lease& lease) {
  const std::string& state_dir = holdings.ledger().state_dir();
  if (!LeaseLock::IsHeld(state_dir, lease.lease_id).value_or(false)) return false;
  context.Say(absl::StrCat(lease.uses.back().run_name, " is being launched at ", lease.provider,
                           ", ", FormatUsdPerHour(lease), "/h"));
  return true;
}

// Tells of a machine that was rented for a launch which ended before its run was in the list.
void TellUnlisted(CommandContext& context, const Lease& lease) {
  if (lease.state != LeaseState::kRented || lease.BillsNothing()) return;
  const std::string machine = RentedNodeName(lease.provider, lease.instance_id);
  context.Warn(absl::StrCat(machine, " bills, ", FormatUsdPerHour(lease), "/h, and its run ",
                            lease.uses.back().run_name, " never came into the list; gpuctl down ",
                            machine, " ends it"));
}

absl::StatusOr<ToldMoney> TellWhatBillsOn(CommandContext& context, Holdings& holdings,
                                          RunStore& store, const ClientPaths& paths,
                                          const Money& money) {
  std::vector<BillsOn> bill_on;
  ToldMoney told;
  for (const Lease& lease : money.open) {
    if (lease.uses.empty()) continue;
    const std::string& part = lease.uses.back().run_id;
    const absl::StatusOr<RunRow> row = UserOf(store, part);
    if (absl::IsNotFound(row.status())) {
      const bool launching = TellIfLaunching(context, holdings, lease);
      told.launches = launching || told.launches;
      if (!launching && !money.IsLeak(lease)) TellUnlisted(context, lease);
      continue;
    }
    RETURN_IF_ERROR(row.status());
    if (!row->end.has_value()) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> others, LiveRunsOn(store, lease, {part}));
    if (!others.empty()) continue;
    ASSIGN_OR_RETURN(const std::optional<Lease> newest, holdings.LeaseOf(part));
    if (!newest.has_value() || newest->lease_id != lease.lease_id) continue;
    ASSIGN_OR_RETURN(const int64_t idle_since_ms, IdleSinceMs(store, lease));
    told.bills.push_back(
        {{"node", row->target.name}, {"run", row->name}, {"usd_per_hour", lease.usd_per_hour()}});
    RETURN_IF_ERROR(
        TellIfBillsOn(context, holdings, paths, money, lease, *row, idle_since_ms, bill_on));
  }
  TellThatTheyBillOn(context, bill_on);
  return told;
}

}  // namespace

void TellOfCalledOff(CommandContext& context, Holdings& holdings, RunStore& store) {
  constexpr absl::Duration kTold = absl::Hours(1);  // gpuctl cost has it for longer
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return;
  const absl::StatusOr<std::vector<Lease>> leases = (*ledger)->List(/*open_only=*/false);
  if (!leases.ok()) return;
  const int64_t now_ms = context.NowMs();
  for (const Lease& lease : *leases) {
    const bool lately = lease.ended_ms > now_ms - absl::ToInt64Milliseconds(kTold);
    if (!lately || lease.how_ended != kHowInterrupted || lease.uses.empty()) continue;
    const LeaseUse& use = lease.uses.back();
    if (!absl::IsNotFound(store.Get(use.run_id).status())) continue;
    context.Say(absl::StrCat(use.run_name, " was interrupted before it began, ",
                             Ago(context, lease.ended_ms), " ago; its machine ",
                             RentedNodeName(lease.provider, lease.instance_id),
                             " is gone and cost ", FormatSpend(SpentOn(lease, now_ms))));
  }
}

std::string Ago(CommandContext& context, int64_t time_ms) {
  if (time_ms == 0) return "-";
  return HumanDuration(absl::Milliseconds(std::max<int64_t>(0, context.NowMs() - time_ms)));
}

bool Money::IsLeak(const Lease& lease) const {
  for (const MarketListing& listing : listings) {
    for (const ListedInstance& leak : listing.instances) {
      if (leak.lease_id == lease.lease_id) return true;
    }
  }
  return false;
}

const RunMachines* Money::Of(const RunRow& row) const {
  const auto found = of_run.find(row.run_id);
  return found == of_run.end() ? nullptr : &found->second;
}

absl::StatusOr<Money> ReadMoney(Holdings& holdings, RunStore& store,
                                const std::vector<RunRow>& rows) {
  Money money;
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return money;
  std::vector<std::string> run_ids;
  ASSIGN_OR_RETURN(const auto members, store.AllMemberIds());
  std::map<std::string, std::vector<std::string>> parts_of;  // by the id of a listed run
  for (const RunRow& row : rows) {
    std::vector<std::string>& parts = parts_of[row.run_id];
    parts.push_back(row.run_id);
    const auto others = members.find(row.run_id);
    if (others != members.end()) {
      parts.insert(parts.end(), others->second.begin(), others->second.end());
    }
    run_ids.insert(run_ids.end(), parts.begin(), parts.end());
  }
  ASSIGN_OR_RETURN(const std::vector<Lease> leases, ledger->OpenOrOf(run_ids));
  std::map<std::string, const Lease*> of_part;
  for (const Lease& lease : leases) {
    for (const LeaseUse& use : lease.uses) of_part[use.run_id] = &lease;
    if (lease.open()) money.open.insert(money.open.begin(), lease);
  }
  for (const auto& [run_id, parts] : parts_of) {
    for (const std::string& part : parts) {
      const auto found = of_part.find(part);
      if (found != of_part.end()) money.of_run[run_id].push_back({*found->second, part});
    }
  }
  ASSIGN_OR_RETURN(money.listings, ledger->LastListings());
  for (MarketListing& listing : money.listings) {
    // A machine that has been ended since is no leak any more.
    const auto stale = [&](const ListedInstance& listed) {
      if (listed.holder != Holder::kLeak) return true;
      const absl::StatusOr<Lease> lease = ledger->Get(listed.lease_id);
      return lease.ok() && lease->state == LeaseState::kReleased &&
             lease->ended_ms >= listing.listed_ms;
    };
    listing.instances.erase(
        std::remove_if(listing.instances.begin(), listing.instances.end(), stale),
        listing.instances.end());
  }
  return money;
}

std::vector<std::string> MoneyCells(CommandContext& context, const RunMachines* machines,
                                    const RunStatus& status) {
  if (machines == nullptr) return {"-", "-", "-", "-"};
  const int64_t now_ms = context.NowMs();
  const int64_t stops_ms = status.over ? 0 : JobStopsMs(*machines, status.started_ms, now_ms);
  RunMachines agreed = *machines;
  for (RunMachine& machine : agreed) {
    // Later runs on the machine may have changed its limits.
    if (status.over) machine.lease.limits = LimitsFor(machine.lease, machine.run_id);
  }
  const std::string price = machines->size() == 1 ? FormatUsdPerHour(machines->front().lease)
                                                  : FormatUsdPerHour(UsdPerHour(*machines));
  const double limit_usd = CostLimit(agreed);
  return {AnyOpen(*machines) ? price : "ended", FormatSpend(SpentByRun(*machines, now_ms)),
          limit_usd > 0 ? absl::StrFormat("$%.2f", limit_usd) : "-",
          stops_ms == 0 ? "-"
                        : absl::StrCat("in ", HumanDuration(absl::Milliseconds(
                                                  std::max<int64_t>(0, stops_ms - now_ms))))};
}

nlohmann::ordered_json WithMoney(CommandContext& context, nlohmann::ordered_json run,
                                 const RunMachines* machines, const RunStatus& status) {
  if (machines == nullptr) return run;
  AddRunCost(*machines, status.over ? -1 : status.started_ms, context.NowMs(), run);
  return run;
}

absl::StatusOr<ToldMoney> TellOfMoney(CommandContext& context, Holdings& holdings, RunStore& store,
                                      const ClientPaths& paths, const Money& money) {
  TellLeaks(context, money);
  for (const Lease& lease : money.open) {
    const std::string early = DescribeEarlyEnd(lease, context.NowMs());
    if (!early.empty()) context.Warn(early);
  }
  TellStoredPriceRises(holdings, store, /*run_id=*/"", context.NowMs(),
                       [&context](absl::string_view line) { context.Warn(line); });
  return TellWhatBillsOn(context, holdings, store, paths, money);
}

}  // namespace gpuctl

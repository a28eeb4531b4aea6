#include "client/launch/after_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/due/node_terms.h"
#include "client/follow/live_now.h"
#include "client/keys/market_access.h"
#include "client/keys/unused_logins.h"
#include "client/launch/member_results.h"
#include "client/market/holdings.h"
#include "client/market/instance_target.h"
#include "client/market/machine_users.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/rent/interruptible_hooks.h"
#include "client/rent/market_expiry.h"
#include "client/results/pull_results.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_end.h"
#include "client/runs/run_line.h"
#include "client/runs/run_status.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/transfer/transfer_interrupt.h"
#include "common/base/status_macros.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/markets.h"

namespace gpuctl {
namespace {

absl::Status BringHome(CommandContext& context, const RunRow& row, const std::string& to) {
  if (row.end.has_value() && row.end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  PullRequest request;
  request.to = to;
  request.own_directory = true;
  request.undeclared = true;
  request.machine_ends_next = true;
  PullResults pulled;
  ASSIGN_OR_RETURN(
      const auto interrupt,
      TransferInterrupt::Install(
          context, absl::StrCat("bring the results of ", row.name, " home"),
          absl::StrCat("all stays on ", row.target.name,
                       ", which bills on if it is rented, and what "
                       "has come so far stays in ",
                       to),
          absl::StrCat("gpuctl attach ", row.name, " goes on with all of it, gpuctl down ",
                       row.name, " ends the bill")));
  const absl::Status status = BringResults(context, *links, row, request, pulled);
  if (absl::IsNotFound(status) && pulled.nothing) {
    context.Say(absl::StrCat(row.name, " left nothing to bring home"));
    return absl::OkStatus();
  }
  return status;
}

// Returns how long the machine waits for its results to be fetched, by the limits that it enforces.
std::string HowLong(const Lease& lease, const RunRow& row, bool self_release, int64_t now_ms) {
  if (!self_release) {
    const std::string end = DescribeMarketEnd(lease, now_ms);
    return absl::StrCat("until somebody ends it: it has no key to do so itself",
                        end.empty() ? "" : "; ", end);
  }
  const int64_t ended_ms = row.end.has_value() ? row.end->ended_ms : now_ms;
  absl::Duration left =
      absl::Seconds(lease.limits.salvage_s) - absl::Milliseconds(now_ms - ended_ms);
  if (lease.limits.cost_usd > 0 && lease.usd_per_hour() > 0) {
    const double usd_left = lease.limits.cost_usd - SpentOn(lease, now_ms).high_usd;
    left = std::min(left, absl::Hours(usd_left / lease.usd_per_hour()));
  }
  return absl::StrCat("for ", HumanDuration(std::max(left, absl::ZeroDuration())),
                      " at most, then it ends itself");
}

// Says that the machine is kept, and for how long. Returns `cause` with a hint.
absl::Status Kept(CommandContext& context, const absl::Status& cause, const Lease& lease,
                  const RunRow& row, Provider& provider) {
  const absl::Status annotated =
      Annotate(cause, absl::StrCat("bring the results of ", row.name, " home"));
  const std::string kept =
      absl::StrCat(lease.provider, "/", lease.instance_id, " is kept, ", FormatUsdPerHour(lease),
                   "/h, ", HowLong(lease, row, provider.traits().self_release(), context.NowMs()));
  context.Warn(kept);
  const std::string again = absl::IsNotFound(cause) ? " '**' brings all files" : " tries again";
  return WithHint(annotated, absl::StrCat("gpuctl pull ", row.name, again, ", gpuctl down ",
                                          row.name, " ends the bill"));
}

void TellGone(CommandContext& context, const Lease& ended) {
  context.Say(absl::StrCat(ended.instance_id, " at ", ended.provider, " is gone; it cost ",
                           FormatSpend(SpentOn(ended, context.NowMs()))));
}

// Ends the run's machine. Returns its lease after that; nothing when nothing billed any more.
absl::StatusOr<std::optional<Lease>> EndUnused(CommandContext& context, Holdings& holdings,
                                               const std::string& run_id,
                                               const RentalHooks& hooks) {
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, holdings.LeaseOf(run_id));
  if (!lease.has_value() || !lease->open()) return std::nullopt;
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  ASSIGN_OR_RETURN(Provider * provider, holdings.Find(lease->provider));
  ReleaseOptions options;
  options.how = "of no use";
  ASSIGN_OR_RETURN(Lease ended, Release(holdings.ledger(), *provider, lease->lease_id,
                                        context.clock, hooks, options));
  return std::make_optional(std::move(ended));
}

}  // namespace

void ReleaseUnused(CommandContext& context, Holdings& holdings, const std::string& run_id,
                   const std::function<bool()>& interrupted) {
  RentalHooks hooks;
  hooks.progress = [&context](absl::string_view line) { context.Say(line); };
  hooks.cancelled = interrupted;
  const absl::StatusOr<std::optional<Lease>> ended = EndUnused(context, holdings, run_id, hooks);
  if (!ended.ok()) {
    context.Warn(absl::StrCat("the machine may still bill: ", ended.status().message(),
                              "; gpuctl reap ends it"));
  } else if (ended->has_value()) {
    TellGone(context, **ended);
  }
}

// True also where that of a run is which it was resumed from, and where that cannot be known.
bool HasCheckpointAtHome(CommandContext& context, RunStore& store, const RunRow& row) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  if (!paths.ok()) return true;
  const std::vector<std::string> line = LineOf(store, row);
  return std::any_of(line.begin(), line.end(), [&paths](const std::string& run_id) {
    return PulledRecord(paths->MirrorDir(run_id)).HasCheckpoint();
  });
}

namespace {

// True when a machine of a run that ended so bills on and waits for what comes next.
bool IsLeft(CommandContext& context, RunStore& store, const RunMachine& machine,
            const RunEnd& end) {
  const Lease& lease = machine.lease;
  const absl::StatusOr<std::vector<std::string>> others = LiveRunsOn(store, lease, {});
  if (others.ok() && !others->empty()) return false;
  return lease.state == LeaseState::kRented && !lease.uses.empty() &&
         lease.uses.back().run_id == machine.run_id &&
         !EndsWithItsRun(lease.provider, lease.instance_id) &&
         context.NowMs() < end.ended_ms + lease.limits.idle_s * 1000;
}

}  // namespace

void TellWhatIsLeft(CommandContext& context, Holdings& holdings, RunStore& store,
                    const RunRow& row) {
  if (!row.end.has_value()) return;
  if (IsPreempted(*row.end)) {
    context.Hint(absl::StrCat("gpuctl resume ", row.name,
                              HasCheckpointAtHome(context, store, row)
                                  ? " starts it again from its newest checkpoint at home"
                                  : " --anew starts it again from the beginning: no checkpoint of "
                                    "it is at home"));
    // The other machines of a run on several are there.
    if (store.MemberIds(row.run_id).value_or(std::vector<std::string>()).empty()) return;
  }
  const absl::StatusOr<Ledger*> ledger = holdings.FindLedger();
  if (!ledger.ok() || *ledger == nullptr) return;
  const absl::StatusOr<RunMachines> machines = MachinesOfRun(**ledger, store, row);
  if (!machines.ok()) return;
  RunMachines left;
  for (const RunMachine& machine : *machines) {
    if (IsLeft(context, store, machine, *row.end)) left.push_back(machine);
  }
  if (left.empty()) return;
  const Lease& lease = left.front().lease;
  std::vector<std::string> names;
  for (const RunMachine& machine : left) {
    names.push_back(RentedNodeName(machine.lease.provider, machine.lease.instance_id));
  }
  const bool several = left.size() > 1;
  const char* const ends = several ? " ends them now" : " ends it now";
  Tone tone = Tone::kPlain;
  std::string text =
      absl::StrCat(absl::StrJoin(names, ", "), several ? " bill on, " : " bills on, ",
                   FormatUsdPerHour(UsdPerHour(left)), "/h");
  const absl::StatusOr<std::vector<Market>> market = holdings.Open({lease.provider});
  if (market.ok() && !market->front().provider->traits().self_release()) {
    const std::string end = DescribeMarketEnd(lease, context.NowMs());
    tone = Tone::kWarning;
    absl::StrAppend(&text, ", and cannot end ", several ? "their own bills" : "its own bill",
                    ": gpuctl down ", row.name, ends, ", gpuctl reap once ",
                    several ? "their" : "its", " limits are over", end.empty() ? "" : "; ", end);
  } else {
    absl::StrAppend(&text, ", for ", HumanDuration(absl::Seconds(lease.limits.idle_s)),
                    " once its results are home, else for ",
                    HumanDuration(absl::Seconds(lease.limits.salvage_s)), "; gpuctl down ",
                    row.name, ends);
  }
  context.Say(text, tone);
}

namespace {

// Asks the node. False when it does not answer.
bool AllResultsAreHome(CommandContext& context, const RunRow& row) {
  const absl::StatusOr<std::unique_ptr<LinkFactory>> links = MakeLinks(context, row.target);
  if (!links.ok()) return false;
  absl::StatusOr<NodeCalls> calls = NodeCalls::Connect(context, **links, row.target);
  if (!calls.ok()) return false;
  const absl::StatusOr<gpuctl::v1::HelloReply> hello = calls->Hello();
  return hello.ok() && hello->has_limits() && hello->limits().results_home();
}

// Returns the names of the runs that used the machine beside `run_id` and of which this laptop has
// not noted that all results are at home; when it has of each, the names of all. Only those in the
// list of runs, each once.
std::vector<std::string> EarlierRuns(CommandContext& context, RunStore& store, const Lease& lease,
                                     const std::string& run_id) {
  const absl::StatusOr<ClientPaths> paths = context.Paths();
  std::vector<std::string> all, names;
  std::set<std::string> seen = {run_id};
  for (const LeaseUse& use : lease.uses) {
    if (!seen.insert(use.run_id).second) continue;
    const absl::StatusOr<RunRow> row = store.Get(use.run_id);
    if (!row.ok()) continue;
    all.push_back(row->name);
    const bool home = paths.ok() && PulledRecord(paths->MirrorDir(row->run_id)).AllHomeMs() > 0;
    if (!home) names.push_back(row->name);
  }
  return names.empty() ? all : names;
}

// Returns "gpuctl pull a-1, gpuctl pull b-1".
std::string PullsOf(const std::vector<std::string>& names) {
  return absl::StrCat("gpuctl pull ", absl::StrJoin(names, ", gpuctl pull "));
}

}  // namespace

void TellOfOthersResults(CommandContext& context, RunStore& store, const Lease& lease,
                         const std::string& run_id) {
  const std::vector<std::string> earlier = EarlierRuns(context, store, lease, run_id);
  if (earlier.empty()) return;
  context.Warn(absl::StrCat("--down will leave ", lease.provider, "/", lease.instance_id,
                            ", and it bills on, while results of earlier runs on it are not at "
                            "home: ",
                            absl::StrJoin(earlier, ", ")));
  context.Hint(absl::StrCat(PullsOf(earlier), " meanwhile; --fresh rents another machine"));
}

namespace {

// A machine of a run, when the run is over.
struct Held {
  RunRow row;  // the run's part on it
  Lease lease;
  absl::Status brought;  // of the results on it
};

// Ends the bill of the machine, or says why it stays.
absl::Status ReleaseOrKeep(CommandContext& context, Holdings& holdings, RunStore& store,
                           const Held& held) {
  const auto& [row, found, brought] = held;
  RETURN_IF_ERROR(holdings.OpenAllMarkets());
  ASSIGN_OR_RETURN(Provider * provider, holdings.Find(found.provider));
  // A machine that is gone has no results to keep; Release closes its row in the ledger.
  const bool gone =
      !brought.ok() && absl::IsNotFound(provider->Describe(found.instance_id).status());
  if (!brought.ok() && !gone) return Kept(context, brought, found, row, *provider);

  // Another launch may have found the machine idle.
  ASSIGN_OR_RETURN(const LeaseLock lock,
                   LeaseLock::Take(holdings.ledger().state_dir(), found.lease_id, context.clock));
  ASSIGN_OR_RETURN(const Lease lease, holdings.ledger().Get(found.lease_id));
  ASSIGN_OR_RETURN(const std::vector<std::string> others,
                   LiveNowOn(context, store, lease, {row.run_id}));
  if (!others.empty()) {
    context.Warn(absl::StrCat(lease.provider, "/", lease.instance_id, " stays: ", FirstFew(others),
                              others.size() == 1 ? " uses it now" : " use it now"));
    return brought;
  }
  if (!lease.uses.empty() && lease.uses.back().run_id != row.run_id) {
    context.Warn(absl::StrCat(lease.instance_id, " at ", lease.provider, " stays: ", RunOf(lease),
                              " uses it now"));
    return brought;
  }
  // An earlier run on it was promised time for its results.
  if (lease.uses.size() > 1 && !AllResultsAreHome(context, row)) {
    const std::vector<std::string> earlier = EarlierRuns(context, store, lease, row.run_id);
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            lease.provider, "/", lease.instance_id, " stays, and bills on, ",
            FormatUsdPerHour(lease),
            "/h: earlier runs on it have results that are not at home, or it does not tell: ",
            absl::StrJoin(earlier, ", "))),
        earlier.empty() ? absl::StrCat("gpuctl down --force ", row.name, " ends it all the same")
                        : absl::StrCat(PullsOf(earlier), ", then gpuctl down ", row.name));
  }
  const InterruptibleHooks interrupt(context);
  ReleaseOptions options;
  options.lock = &lock;
  SettleTerms(context, holdings.ledger(), {lease});
  const absl::StatusOr<Lease> ended = Release(holdings.ledger(), *provider, lease.lease_id,
                                              context.clock, interrupt.hooks(), options);
  if (!ended.ok()) return ExplainMarketError(ended.status(), lease.provider);
  TellGone(context, *ended);
  RemoveUnusedLogins(context, holdings.ledger(), *provider);
  return brought;
}

// Keeps the first error in `first`, and says the others.
void Keep(CommandContext& context, const absl::Status& error, absl::Status& first) {
  if (error.ok()) return;
  if (first.ok()) {
    first = error;
  } else {
    context.Warn(error.message());
  }
}

}  // namespace

absl::Status BringHomeAndRelease(CommandContext& context, Holdings& holdings, RunStore& store,
                                 const RunRow& row, const std::string& to) {
  std::vector<RunRow> parts = {row};
  ASSIGN_OR_RETURN(const std::vector<RunRow> members, store.Members(row.run_id));
  parts.insert(parts.end(), members.begin(), members.end());
  std::vector<Held> held;
  absl::Status first;
  bool all_gone = false;
  for (RunRow& part : parts) {
    const bool is_run = part.leader.empty();
    ASSIGN_OR_RETURN(std::optional<Lease> lease, holdings.LeaseOf(part.run_id));
    // The further nodes of an allocation have no lease of their own, and go with the first.
    const bool with_first = !is_run && !lease.has_value();
    if (with_first && all_gone) continue;
    if (lease.has_value() && !lease->open()) {
      all_gone = all_gone || is_run;
      context.Warn(absl::StrCat(lease->provider, "/", lease->instance_id,
                                " is gone already, with all that had not come home"));
      continue;
    }
    const absl::Status brought =
        is_run ? BringHome(context, part, to)
               : BringMemberResult(context, store, part, to, MemberResults::kAll);
    if (absl::IsCancelled(brought)) return brought;
    if (lease.has_value()) {
      held.push_back({part, *std::move(lease), brought});
    } else {
      const absl::Status error =
          is_run ? brought
                 : Annotate(brought, absl::StrCat("bring the results of ", part.name, " home"));
      Keep(context, error, held.empty() ? first : held.front().brought);
    }
  }
  for (size_t i = 0; i < held.size(); ++i) {
    const absl::Status released = ReleaseOrKeep(context, holdings, store, held[i]);
    if (!absl::IsCancelled(released)) {
      Keep(context, released, first);
      continue;
    }
    for (size_t left = i + 1; left < held.size(); ++left) {
      context.Warn(absl::StrCat(held[left].lease.provider, "/", held[left].lease.instance_id,
                                " bills on; gpuctl down ", row.name, " ends it"));
    }
    return released;
  }
  return first;
}

}  // namespace gpuctl

// gpuctl extend: more time for a run that is not over, and the money that its machine then costs.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/batch/batch_budget.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/due/node_terms.h"
#include "client/follow/catch_up.h"
#include "client/market/holdings.h"
#include "client/node/explain_error.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/plan/start_point.h"
#include "client/rent/lease_limits.h"
#include "client/rent/market_expiry.h"
#include "client/runs/find_run.h"
#include "client/runs/run_store.h"
#include "client/spec/launch_record.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "client/verbs/batch_text.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kAskFor = absl::Seconds(20);

// A run with what it is to get.
struct Extension {
  RunRow row;
  LaunchRecord record;  // with the new time limit
  absl::Duration more, used;
  RunMachines machines;   // with the new limits; none: nothing is rented
  double before_usd = 0;  // the cost limit until now, of all of them

  absl::Duration limit() const { return record.spec.time_limit; }
  absl::Duration left() const { return std::max(absl::ZeroDuration(), limit() - used); }
  double cost_usd() const { return CostLimit(machines); }
  double added_usd() const { return cost_usd() - before_usd; }
};

// Raises the cost limit of the machine where it does not pay for the rest of the run, its end, and
// the time that was promised to its results.
void RaiseCost(int64_t now_ms, const Extension& extension, Lease& lease) {
  lease.limits.time_s =
      std::max(lease.limits.time_s, absl::ToInt64Seconds(extension.record.spec.time_limit));
  if (lease.limits.cost_usd <= 0) return;
  const absl::Duration to_pay =
      extension.left() + extension.record.spec.grace + absl::Seconds(lease.limits.salvage_s);
  lease.limits.cost_usd =
      std::max(lease.limits.cost_usd, SpentOn(lease, now_ms).high_usd +
                                          lease.usd_per_hour() * absl::ToDoubleHours(to_pay));
}

// Says what runs the work of an ended run again: a resume that would be refused is no help.
std::string HintForEnded(CommandContext& context, RunStore& store, const RunRow& row) {
  if (row.end->exit_code == kExitOk && row.end->cause == EndCause::kNone) {
    return absl::StrCat("gpuctl launch --like ", row.name, " runs it again");
  }
  absl::StatusOr<RunRow> of = row;
  while (of.ok()) {
    const absl::StatusOr<std::optional<StartPoint>> point = NewestAtHome(context, *of);
    if (point.ok() && point->has_value()) {
      return absl::StrCat("gpuctl resume ", row.name, " goes on from its newest checkpoint");
    }
    if (of->resumed_from.empty()) break;
    of = store.Get(of->resumed_from);
  }
  return absl::StrCat("no checkpoint of it is at home: gpuctl pull ", row.name,
                      " brings one, if it saved one, gpuctl resume ", row.name,
                      " --anew begins anew");
}

absl::StatusOr<Extension> PlanExtension(CommandContext& context, Holdings& holdings,
                                        RunStore& store, RunRow row, absl::Duration more) {
  if (row.accepted_ms == 0 && !row.end.has_value()) {
    return WithHint(absl::FailedPreconditionError(absl::StrCat(row.name, " has not started yet")),
                    absl::StrCat("gpuctl wait ", row.name, " --for running, and then extend it"));
  }
  absl::Status error;
  RETURN_IF_ERROR(CatchUp(context, store, row, kAskFor, &error).status());
  if (row.end.has_value()) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(row.name, " is over: ", DescribeEnd(*row.end))),
        HintForEnded(context, store, row));
  }
  if (!error.ok()) return ExplainLinkError(error, row.target);
  ASSIGN_OR_RETURN(const RunRow whole, store.Get(row.run_id));
  const absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(whole.launch_json);
  if (!record.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("an older gpuctl launched ", row.name, ", and did not record its limits"));
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  Extension extension{std::move(row), *record, more, {}, {}, 0};
  extension.record.spec.time_limit += more;
  extension.used = TimeUsed(lifecycle, extension.row.accepted_ms, context.NowMs());
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger == nullptr) return extension;
  ASSIGN_OR_RETURN(extension.machines, MachinesOfRun(*ledger, store, extension.row));
  extension.before_usd = extension.cost_usd();
  for (auto& [lease, part] : extension.machines) {
    if (!lease.open() || lease.state != LeaseState::kRented) {
      return absl::FailedPreconditionError(
          absl::StrCat(extension.machines.size() > 1 ? "a machine of " : "the machine of ",
                       extension.row.name, " is being ended"));
    }
    RaiseCost(context.NowMs(), extension, lease);
  }
  return extension;
}

// Refuses what a batch that the run belongs to may not cost.
absl::Status CheckBatchLimit(CommandContext& context, Holdings& holdings,
                             const Extension& extension) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BatchStore> batches, OpenBatches(context));
  ASSIGN_OR_RETURN(const std::vector<Batch> open, batches->List(/*open_only=*/true));
  for (const Batch& batch : open) {
    if (!batch.max_cost_usd.has_value()) continue;
    ASSIGN_OR_RETURN(const std::vector<Attempt> attempts, batches->Attempts(batch.batch_id));
    const bool of_it = std::any_of(attempts.begin(), attempts.end(), [&](const Attempt& attempt) {
      return attempt.run_id == extension.row.run_id;
    });
    if (!of_it) continue;
    ASSIGN_OR_RETURN(const BatchMoney money, MoneyOfBatch(context, holdings, *batches, batch));
    const absl::Status paid =
        CheckBudget(*batch.max_cost_usd, money.committed(), extension.added_usd());
    if (!paid.ok()) {
      return WithExitCode(WithHint(Annotate(paid, absl::StrCat("batch ", batch.name)),
                                   absl::StrCat("the same gpuctl submit --name ", batch.name,
                                                " with a higher --max-cost raises it")),
                          kExitCapacity);
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> Text(const Extension& extension) {
  std::vector<std::string> lines = {absl::StrCat(
      "time      ", HumanDuration(extension.more), " more: ", HumanDuration(extension.limit()),
      " in all, ", HumanDuration(extension.used), " of it used")};
  if (extension.machines.empty()) return lines;
  const Lease& first = extension.machines.front().lease;
  const size_t count = extension.machines.size();
  const double more = extension.added_usd();
  lines.push_back(absl::StrCat(
      "cost      ", FormatUsd(extension.cost_usd()), " at most for ",
      count > 1
          ? absl::StrCat(count, " machines at ", FormatUsdPerHour(UsdPerHour(extension.machines)))
          : absl::StrCat(RentedNodeName(first.provider, first.instance_id), " at ",
                         FormatUsdPerHour(first)),
      "/h, ", more > 0 ? absl::StrCat(FormatUsd(more), " more than before") : "as before"));
  return lines;
}

void PrintJson(CommandContext& context, const Extension& extension, bool dry_run) {
  nlohmann::ordered_json json = {{"name", extension.row.name},
                                 {"run_id", extension.row.run_id},
                                 {"dry_run", dry_run},
                                 {"added_s", absl::ToInt64Seconds(extension.more)},
                                 {"time_s", absl::ToInt64Seconds(extension.limit())},
                                 {"used_s", absl::ToInt64Seconds(extension.used)},
                                 {"added_usd", nullptr},
                                 {"cost_usd", nullptr}};
  if (!extension.machines.empty()) {
    json["added_usd"] = extension.added_usd();
    json["cost_usd"] = extension.cost_usd();
  }
  context.PrintJson({{"extended", json}});
}

// Tells the node of `row` the running time of its job.
absl::Status SetTime(CommandContext& context, const RunRow& row, absl::Duration limit) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, row.target));
  ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, row.target));
  const absl::Status set = calls.SetJobTime(row.job_id, limit, row.node_id).status();
  if (!absl::IsUnimplemented(set)) return set;
  return WithHint(absl::FailedPreconditionError(absl::StrCat(
                      "the agent on ", row.target.name, " is older, and cannot change a limit")),
                  "it is renewed when the next run starts there");
}

// The market's own end of the machine comes first: what cannot be moved must not cost more. Then
// the node, whose agent may be too old for it. What was done already does no harm, and the same
// command does the rest.
absl::Status Extend(CommandContext& context, Holdings& holdings, RunStore& store,
                    const Extension& extension) {
  const RunRow& row = extension.row;
  std::vector<Market> markets;
  RunSpec rest = extension.record.spec;
  rest.time_limit = extension.left();
  for (const RunMachine& machine : extension.machines) {
    const Lease& lease = machine.lease;
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
    const auto find_provider = [&]() -> absl::StatusOr<Provider*> {
      ASSIGN_OR_RETURN(markets, holdings.Open({lease.provider}));
      return markets.front().provider.get();
    };
    const absl::Status moved = Prolong(*ledger, lease, rest, context.clock.Now(), find_provider);
    if (!moved.ok()) {
      return WithExitCode(
          WithHint(Annotate(moved, absl::StrCat("extend ", row.name)),
                   absl::StrCat("it can go on on another machine: gpuctl stop ", row.name,
                                " lets it save, gpuctl resume ", row.name, " goes on from there")),
          kExitCapacity);
    }
  }
  // The first limit that is reached ends all machines' parts.
  ASSIGN_OR_RETURN(const std::vector<RunRow> members, store.Members(row.run_id));
  for (const RunRow& member : members) {
    RETURN_IF_ERROR(SetTime(context, member, extension.limit()));
  }
  RETURN_IF_ERROR(SetTime(context, row, extension.limit()));
  for (const auto& [raised, part] : extension.machines) {
    ASSIGN_OR_RETURN(Ledger* const ledger, holdings.OpenLedger());
    ASSIGN_OR_RETURN(const RunRow user, store.Get(part));
    RETURN_IF_ERROR(ledger->UsedBy(raised.lease_id, part, user.name, raised.limits,
                                   GpusOfUse(extension.record.spec),
                                   /*beside=*/true));
    ASSIGN_OR_RETURN(const Lease lease, ledger->Get(raised.lease_id));
    RETURN_IF_ERROR(Annotate(SendTerms(context, lease),
                             absl::StrCat("send the new cost limit to ", user.target.name)));
  }
  for (const RunRow& member : members) {
    RETURN_IF_ERROR(store.SetLaunch(member.run_id, FormatLaunchRecord(extension.record)));
  }
  return store.SetLaunch(row.run_id, FormatLaunchRecord(extension.record));
}

}  // namespace

absl::StatusOr<int> CmdExtend(CommandContext& context, std::vector<std::string> args) {
  std::string reference, time_text;
  bool dry_run = false, yes = false;
  VerbParser parser(
      context, "extend RUN TIME [FLAGS]",
      "Gives a run that is not over more running time, and says what its rented machine\n"
      "may cost then. It asks when that is more than was agreed to. Where the market itself\n"
      "ends a machine at a time, that is moved, too.",
      "  gpuctl extend amber-fox-3 2h\n"
      "  gpuctl extend amber-fox-3 30m -y");
  parser.Option("RUN", reference, "Name, id, or the beginning of one").Required();
  std::string time_flag;
  parser.Option("TIME", time_text, "How much more, e.g. 2h or 1h30m");
  parser.Option("--time", time_flag, "").Hidden();
  parser.Switch("--dry-run", dry_run, "Only say what it would change");
  parser.Switch("-y,--yes", yes, "Do not ask");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  if (time_text.empty() == time_flag.empty()) {
    return UsageError("extend takes a RUN, and the TIME that it gets", "gpuctl extend RUN 2h");
  }
  if (time_text.empty()) time_text = time_flag;
  const absl::StatusOr<absl::Duration> more = ParseDuration(time_text);
  if (!more.ok()) {
    return UsageError(absl::StrCat("extend: ", more.status().message()),
                      "for example gpuctl extend RUN 2h");
  }
  if (*more < absl::Seconds(1)) {
    return UsageError("extend: less than a second is no time", "gpuctl stop RUN ends a run");
  }
  RETURN_IF_ERROR(CheckNoBatch(context, {reference}, "gpuctl extend $-1 2h extends one run"));
  RETURN_IF_ERROR(CheckStarted(context, {reference}));
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  ASSIGN_OR_RETURN(RunRow row, store->Get(reference));
  // A part of a run on several machines has no time of its own.
  if (!row.leader.empty()) {
    ASSIGN_OR_RETURN(row, store->Get(row.leader));
  }
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string lock_path =
      JoinPath(paths.state_dir, absl::StrCat("locks/extend-", row.run_id));
  RETURN_IF_ERROR(MakeDirectories(DirName(lock_path)));
  // Two at once would read the same limit, and one of the two times would be lost.
  absl::StatusOr<UniqueFd> lock = TryRemovableLock(lock_path);
  if (absl::IsUnavailable(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("another gpuctl is extending ", row.name, " just now"));
  }
  RETURN_IF_ERROR(lock.status());
  const absl::Cleanup unlock = [&] { RemoveLock(*std::move(lock), lock_path); };
  Holdings holdings(context);
  ASSIGN_OR_RETURN(const Extension extension,
                   PlanExtension(context, holdings, *store, std::move(row), *more));
  const bool costs = extension.added_usd() > 0;
  if (costs) RETURN_IF_ERROR(CheckBatchLimit(context, holdings, extension));
  const bool asks = costs && !yes && !dry_run;
  for (const std::string& line : Text(extension)) {
    context.Note(line, asks || dry_run ? Tone::kWarning : Tone::kPlain);
  }
  if (asks) {
    ASSIGN_OR_RETURN(const bool agreed,
                     context.AskYesNo("Extend it?", "nothing was changed",
                                      "extend asks before it costs more, and nobody can answer"));
    if (!agreed) {
      context.Say("nothing was changed");
      return kExitFailed;
    }
  }
  if (!dry_run) RETURN_IF_ERROR(Extend(context, holdings, *store, extension));
  if (context.json()) {
    PrintJson(context, extension, dry_run);
  } else if (!dry_run) {
    context.Say(absl::StrCat(extension.row.name, " may run for ", HumanDuration(extension.left()),
                             " more"));
  }
  return kExitOk;
}

}  // namespace gpuctl

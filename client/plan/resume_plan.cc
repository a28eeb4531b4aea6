#include "client/plan/resume_plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/bill/lease_view.h"
#include "client/bill/run_machines.h"
#include "client/plan/like_run.h"
#include "client/plan/start_point.h"
#include "client/rent/lease_limits.h"
#include "client/rent/reuse_node.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_end.h"
#include "client/runs/run_line.h"
#include "client/runs/run_status.h"
#include "client/spec/launch_record.h"
#include "client/streams/mirror.h"
#include "client/terminal/console.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "provisioning/ledger/lease.h"

namespace gpuctl {
namespace {

// Unheard time, in milliseconds, from which on the user is told that it counts as used.
constexpr int64_t kUnheardMs = 600'000;

// Returns what is left of `limit`. A job that nobody heard before its machine was found gone may
// have run until then. That time counts as used, so that no more is used than was agreed to.
absl::StatusOr<absl::Duration> TimeLeft(CommandContext& context, const RunRow& row,
                                        const std::optional<Lease>& lease, absl::Duration limit) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
  int64_t until_ms = row.heard_ms;
  // It was over when it was found gone; a kept disk may have billed on for long after that.
  if (row.end.has_value()) {
    until_ms = std::max(until_ms, row.end->ended_ms);
  } else if (lease.has_value() && !lease->open()) {
    until_ms = std::max(until_ms, lease->ended_ms);
  }
  const absl::Duration used = TimeUsed(lifecycle, row.accepted_ms, until_ms);
  const absl::Duration heard = TimeUsed(lifecycle, row.accepted_ms, row.heard_ms);
  if (used - heard >= absl::Milliseconds(kUnheardMs)) {
    context.Say(absl::StrCat(row.name, " was heard for ", HumanDuration(heard),
                             "; it counts as having run for ", HumanDuration(std::min(used, limit)),
                             " of its ", HumanDuration(limit),
                             ", until its machine was found gone"));
  }
  return TimeLeftOver(limit, used);
}

// Sets the limits of `spec` to what earlier machines have left of the limits of `row`, whose
// machine was taken away. A flag overrides that. `by_itself`: nobody typed a resume, so the flags
// are those of the launch, and the caller sets the cost.
absl::Status GoOnWithin(CommandContext& context, const RunRow& row, const RunMachines& machines,
                        const LaunchFlags& flags, bool by_itself, RunSpec& spec) {
  const auto explain = [&row](const absl::Status& status, absl::string_view flag) {
    return WithHint(Annotate(status, absl::StrCat("resume ", row.name)),
                    absl::StrCat("gpuctl resume ", row.name, " ", flag, " gives it more"));
  };
  if (by_itself || flags.time.empty()) {
    const std::optional<Lease> lease =
        machines.empty() ? std::nullopt : std::make_optional(machines.front().lease);
    const absl::StatusOr<absl::Duration> left = TimeLeft(context, row, lease, spec.time_limit);
    if (!left.ok()) return explain(left.status(), "--time 6h");
    // The limit is in whole seconds.
    spec.time_limit = absl::Floor(*left, absl::Seconds(1));
  }
  if (by_itself || !flags.cost.empty() || !spec.cost_limit_usd.has_value()) return absl::OkStatus();
  if (machines.empty()) return absl::OkStatus();
  spec.cost_limit_usd = 0;
  for (const RunMachine& machine : machines) {
    const absl::StatusOr<double> left = CostLeftOver(machine.lease, context.NowMs());
    if (!left.ok()) return explain(left.status(), "--cost 20");
    *spec.cost_limit_usd += *left;
  }
  return absl::OkStatus();
}

// Returns a run and the runs of its line that are in the list, itself first.
std::vector<RunRow> ListedLineOf(RunStore& store, const RunRow& row) {
  std::vector<RunRow> line = {row};
  while (!line.back().resumed_from.empty()) {
    absl::StatusOr<RunRow> before = store.Get(line.back().resumed_from);
    if (!before.ok()) break;  // it was removed from the list
    line.push_back(*std::move(before));
  }
  return line;
}

// Claims the right to resume. Two runs that go on from one checkpoint would write the same things
// and bill twice. The returned lock keeps others out for as long as it lives.
absl::StatusOr<UniqueFd> ClaimResume(CommandContext& context, RunStore& store,
                                     const std::vector<RunRow>& line) {
  const RunRow& row = line.front();
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const std::string path =
      JoinPath(paths.state_dir, absl::StrCat("locks/resume-", line.back().run_id));
  RETURN_IF_ERROR(MakeDirectories(DirName(path)));
  absl::StatusOr<UniqueFd> claim = TryLock(path);
  if (absl::IsUnavailable(claim.status())) {
    return WithHint(absl::FailedPreconditionError(
                        absl::StrCat("resume ", row.name, ": another gpuctl is resuming it")),
                    "gpuctl ps shows what comes of it");
  }
  RETURN_IF_ERROR(claim.status());
  ASSIGN_OR_RETURN(const std::vector<RunRow> live, store.List(/*live_only=*/true));
  for (const RunRow& listed : live) {
    const absl::StatusOr<RunRow> other = store.Get(listed.run_id);
    if (!other.ok() || other->end.has_value() || other->run_id == row.run_id) continue;
    const bool goes_on = std::any_of(line.begin(), line.end(), [&other](const RunRow& of) {
      return other->resumed_from == of.run_id;
    });
    if (!goes_on) continue;
    return WithHint(absl::FailedPreconditionError(
                        absl::StrCat("resume ", row.name, ": ", other->name,
                                     " goes on from it already, on ", other->target.name)),
                    absl::StrCat("gpuctl attach ", other->name, " shows it, gpuctl stop ",
                                 other->name, " ends it"));
  }
  return claim;
}

// Takes the retries of the line so far from those that the new run's node makes, and the scheduler
// of a cluster.
absl::Status TakeUsedRetries(CommandContext& context, const std::vector<std::string>& line,
                             const std::optional<Agreed>& agreed, LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  std::vector<std::string> mirrors;
  for (const std::string& run_id : line) mirrors.push_back(paths.MirrorDir(run_id));
  const int used = agreed.has_value() ? agreed->retries_used : RetriesUsed(mirrors);
  gpuctl::v1::RetryPolicy& retry = *plan.job.mutable_retry();
  retry.set_max_retries(std::max(0, retry.max_retries() - used));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResumePlan> PlanResume(CommandContext& context, Holdings& holdings, RunStore& store,
                                      LaunchFlags& flags, const RunRow& row,
                                      const std::optional<Agreed>& agreed) {
  ASSIGN_OR_RETURN(LaunchRecord record, LaunchRecordOf(row, "resume"));
  const std::vector<RunRow> line = ListedLineOf(store, row);
  ASSIGN_OR_RETURN(UniqueFd claim, ClaimResume(context, store, line));
  std::vector<StartPoint> points;
  if (!flags.from.empty()) {
    ASSIGN_OR_RETURN(points.emplace_back(), NamedStart(flags.from));
    flags.from.clear();  // what goes on from the new run begins with what that saved
  }
  for (const RunRow& of : line) {
    if (!points.empty()) break;
    std::vector<RunRow> parts = {of};
    ASSIGN_OR_RETURN(const std::vector<RunRow> others, store.Members(of.run_id));
    parts.insert(parts.end(), others.begin(), others.end());
    ASSIGN_OR_RETURN(points, NewestOfAll(context, parts));
  }
  if (points.empty() && !agreed.has_value() && !flags.anew) {
    return WithHint(
        absl::NotFoundError(absl::StrCat("resume ", row.name, ": no checkpoint of it is at home")),
        absl::StrCat("gpuctl pull ", row.name,
                     " brings one, if it saved one and its machine is there; --from PATH begins "
                     "with any checkpoint here, --anew anew"));
  }
  RunSpec spec = std::move(record.spec);
  // The new run gets the next number behind this name.
  if (spec.name.empty()) spec.name = line.back().name;
  flags.include = record.include;
  flags.leave_out = record.leave_out;
  flags.no_workdir = record.no_workdir;
  if (flags.detach && flags.pull_dir.empty()) flags.pull_dir = record.pull_dir;
  RETURN_IF_ERROR(ApplyResourceFlags(flags.resources, "resume", spec));
  RunMachines had;
  ASSIGN_OR_RETURN(Ledger* const ledger, holdings.FindLedger());
  if (ledger != nullptr) {
    ASSIGN_OR_RETURN(had, MachinesOfRun(*ledger, store, row));
  }
  const std::optional<Lease> lease =
      had.empty() ? std::nullopt : std::make_optional(had.front().lease);
  const bool taken_away = row.end.has_value() && row.end->state == gpuctl::v1::JOB_STATE_LOST &&
                          lease.has_value() && WasTakenAway(*lease);
  if (taken_away || (row.end.has_value() && IsPreempted(*row.end))) {
    RETURN_IF_ERROR(GoOnWithin(context, row, had, flags, agreed.has_value(), spec));
  }
  // With `agreed` the flags are those of the launch, so the limits are in `spec` already.
  if (!agreed.has_value()) RETURN_IF_ERROR(ApplyLimitFlags(flags, spec));
  DropForeignCostLimit(flags, spec);
  if (agreed.has_value()) {
    spec.max_price_usd_per_hour =
        std::min(spec.max_price_usd_per_hour.value_or(agreed->usd_per_hour), agreed->usd_per_hour);
    spec.cost_limit_usd = agreed->cost_usd;
  }
  ASSIGN_OR_RETURN(const std::vector<RunRow> members, store.Members(row.run_id));
  const std::vector<NodeTarget> machines = OwnMachinesOf(row, members, flags);
  // It may go on on another number of machines than it was on.
  if (!flags.target.host.empty()) spec.nodes = 0;
  // What goes on by itself takes what is there: nobody could name others.
  if (machines.empty() && !agreed.has_value() && flags.target.host.empty()) {
    if (lease.has_value() && KeepGpus(*lease, spec)) {
      context.Say(absl::StrCat(row.name, " had ", FormatGpus(lease->gpu_name, lease->gpu_count),
                               ", and goes on with the same; --gpu names others"));
    }
  }
  context.Say(absl::StrCat(row.name, " goes on from ",
                           points.empty() ? "its beginning" : points.front().path));
  ASSIGN_OR_RETURN(LaunchPlan plan,
                   PlanLaunch(context, holdings, flags, std::move(spec), machines, points));
  if (agreed.has_value() || flags.as_before) {
    RETURN_IF_ERROR(TakeUsedRetries(context, LineOf(store, row), agreed, plan));
  }
  // Whatever checkpoint it begins with, also with none: nobody may resume this run beside it.
  plan.row.resumed_from = row.run_id;
  plan.row.tags = row.tags;
  plan.row.note = row.note;
  return ResumePlan{std::move(plan), std::move(claim)};
}

}  // namespace gpuctl

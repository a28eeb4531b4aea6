#include "client/resume_plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/launch_record.h"
#include "client/lease_limits.h"
#include "client/market_access.h"
#include "client/market_check.h"
#include "client/mirror.h"
#include "client/pulled_record.h"
#include "client/verify_run.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "provisioning/ledger.h"

namespace gpuctl {
namespace {

bool IsNewer(const PulledItem& a, const PulledItem& b) {
  if (a.kind == b.kind && a.kind == PulledItem::Kind::kTrainer && a.step != b.step) {
    return a.step > b.step;
  }
  return std::max(a.node_modified_ms, a.time_ms) > std::max(b.node_modified_ms, b.time_ms);
}

// The newest one of the run itself.
absl::StatusOr<std::optional<StartPoint>> NewestAtHome(CommandContext& context, const RunRow& row) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(std::vector<PulledItem> items, PulledRecord(paths.MirrorDir(row.run_id)).Read());
  std::erase_if(items,
                [](const PulledItem& item) { return item.kind == PulledItem::Kind::kFiles; });
  std::stable_sort(items.begin(), items.end(), IsNewer);
  VerifyOptions verify;
  verify.read_data = true;
  for (const PulledItem& item : items) {
    const std::vector<Problem> problems = CheckItem(item, verify);
    if (!problems.empty() || !PathExists(item.path)) {
      PrintProgress(context,
                    absl::StrCat("gpuctl: passed over ", item.path, ": ",
                                 problems.empty() ? "gone" : ProblemWord(problems[0].kind),
                                 problems.empty() ? "" : absl::StrCat(", ", problems[0].path)));
      continue;
    }
    StartPoint point;
    point.from_run_id = row.run_id;
    point.path = item.path;
    point.is_file = !IsDirectory(item.path);
    return std::make_optional(std::move(point));
  }
  return std::nullopt;
}

// What the machines before have left of the limits of the preempted run `row`, into `spec`, except
// where a flag says otherwise. `by_itself`: flags are those of the launch, and the cost is seen to.
absl::Status GoOnWithin(CommandContext& context, const RunRow& row, const LaunchFlags& flags,
                        bool by_itself, RunSpec& spec) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  const auto explain = [&row](const absl::Status& status, absl::string_view flag) {
    return WithHint(Annotate(status, absl::StrCat("resume ", row.name)),
                    absl::StrCat("gpuctl resume ", row.name, " ", flag, " gives it more"));
  };
  if (by_itself || flags.time.empty()) {
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
    const absl::StatusOr<absl::Duration> left =
        TimeLeftOver(spec.time_limit, TimeUsed(lifecycle, row.heard_ms));
    if (!left.ok()) return explain(left.status(), "--time 6h");
    // The limit is in whole seconds.
    spec.time_limit = absl::Floor(*left, absl::Seconds(1));
  }
  if (by_itself || !flags.cost.empty() || !spec.cost_limit_usd.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                   Ledger::OpenIfThere(paths.state_dir, context.clock));
  if (ledger == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger->OfRun(row.run_id));
  if (!lease.has_value()) return absl::OkStatus();
  const absl::StatusOr<double> left = CostLeftOver(*lease, context.NowMs());
  if (!left.ok()) return explain(left.status(), "--cost 20");
  spec.cost_limit_usd = *left;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchPlan> PlanResume(CommandContext& context, LaunchFlags& flags,
                                      const RunRow& row, const std::optional<Agreed>& agreed) {
  absl::StatusOr<LaunchRecord> record = ParseLaunchRecord(row.launch_json);
  if (!record.ok()) {
    return WithHint(
        absl::FailedPreconditionError(absl::StrCat(
            "resume ", row.name, ": ",
            row.launch_json.empty() ? "an older gpuctl launched it" : record.status().message())),
        "launch it again, with the same flags");
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  std::optional<StartPoint> point;
  RunRow first = row;
  for (;;) {
    if (!point.has_value()) {
      ASSIGN_OR_RETURN(point, NewestAtHome(context, first));
    }
    if (first.resumed_from.empty()) break;
    absl::StatusOr<RunRow> before = store->Get(first.resumed_from);
    if (!before.ok()) break;  // it was removed from the list
    first = *std::move(before);
  }
  if (!point.has_value() && !agreed.has_value()) {
    return WithHint(
        absl::NotFoundError(absl::StrCat("resume ", row.name, ": no checkpoint of it is at home")),
        absl::StrCat("gpuctl pull ", row.name,
                     " brings one, while its machine is there; gpuctl launch begins anew"));
  }
  RunSpec spec = std::move(record->spec);
  // The next of its names.
  spec.name = first.name;
  flags.include = record->include;
  flags.no_workdir = record->no_workdir;
  RETURN_IF_ERROR(ApplyResourceFlags(flags.resources, "resume", spec));
  if (row.end.has_value() && IsPreempted(*row.end)) {
    RETURN_IF_ERROR(GoOnWithin(context, row, flags, agreed.has_value(), spec));
  }
  // Otherwise they are in what it was launched with.
  if (!agreed.has_value()) RETURN_IF_ERROR(ApplyLimitFlags(flags, spec));
  if (agreed.has_value()) {
    spec.max_price_usd_per_hour =
        std::min(spec.max_price_usd_per_hour.value_or(agreed->usd_per_hour), agreed->usd_per_hour);
    spec.cost_limit_usd = agreed->cost_usd;
  }
  const bool rented = CheckMarketName(row.target.provider).ok();
  const bool elsewhere = !flags.target.host.empty() || !flags.resources.providers.empty();
  const NodeTarget* const machine = rented || elsewhere ? nullptr : &row.target;
  PrintProgress(context, absl::StrCat("gpuctl: ", row.name, " goes on from ",
                                      point.has_value() ? point->path : "its beginning"));
  return PlanLaunch(context, flags, std::move(spec), machine,
                    point.has_value() ? &*point : nullptr);
}

}  // namespace gpuctl

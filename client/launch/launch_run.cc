#include "client/launch/launch_run.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/base/exit_codes.h"
#include "client/base/paths.h"
#include "client/base/quantity.h"
#include "client/launch/after_run.h"
#include "client/launch/find_machine.h"
#include "client/launch/plan_text.h"
#include "client/launch/push_plan.h"
#include "client/launch/resume_plan.h"
#include "client/node/make_links.h"
#include "client/node/node_calls.h"
#include "client/rent/lease_limits.h"
#include "client/runs/run_end.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"
#include "client/show/show_run.h"
#include "client/spec/job_spec.h"
#include "client/streams/mirror.h"
#include "client/terminal/shown_name.h"
#include "client/workdir/trainer_kit.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"
#include "common/job/lifecycle.h"
#include "provisioning/ledger/lease_lock.h"
#include "provisioning/ledger/ledger.h"

namespace gpuctl {
namespace {

absl::StatusOr<bool> Agrees(CommandContext& context, const LaunchFlags& flags,
                            const LaunchPlan& plan) {
  if (flags.yes) return true;
  constexpr absl::string_view kNobody = "launch asks before it rents, and there is nobody to ask";
  constexpr absl::string_view kHint = "add -y to accept the price, or --dry-run to see it";
  if (!context.CanAsk()) return UsageError(kNobody, kHint);
  for (const std::string& line : PlanText(plan)) context.Note(line);
  return context.AskYesNo(plan.rental.idle.has_value() ? "Use it?" : "Rent it?", kNobody, kHint);
}

absl::StatusOr<int> Start(CommandContext& context, const LaunchFlags& flags, LaunchPlan& plan,
                          GiveBack* give_back) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, plan.target));
  const bool may_idle_gpus = plan.kit.has_value() && !plan.kit->has_cuda;
  if (!plan.rents && (!plan.spec.gpu.empty() || plan.spec.disk_bytes > 0 || may_idle_gpus)) {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, plan.target));
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
    RETURN_IF_ERROR(CheckNodeSatisfies(plan.spec, node, plan.target.name));
    if (may_idle_gpus && node.gpus_size() > 0) {
      RETURN_IF_ERROR(CheckTrainerUsesGpus(*plan.kit, plan.spec.trainer_json, plan.target.name));
    }
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  StoredSpec stored{SpecDigest(plan.job), plan.job};
  plan.row.spec_json = FormatStoredSpec(stored);
  // From here on the run exists, whatever becomes of this process.
  RETURN_IF_ERROR(store->Insert(plan.row));
  plan.resuming.reset();
  ShowRunOptions options;
  options.start.emplace();
  *options.start->mutable_spec() = plan.job;
  options.start->set_spec_digest(stored.spec_digest);
  for (const auto& [name, value] : plan.secrets) (*options.start->mutable_secrets())[name] = value;
  ASSIGN_OR_RETURN(options.node_id, store->LastNodeOf(plan.target.name));
  if (plan.workdir.has_value() || !plan.data.empty() || plan.kit_tree.has_value()) {
    options.push_content = [&context, &links, &plan, &flags] {
      return PushPlan(context, *links, plan, flags);
    };
  }
  if (give_back != nullptr) {
    options.on_failure = [give_back](const std::function<bool()>& interrupted) {
      give_back->OnFailure(interrupted);
    };
  }
  options.from_beginning = true;
  options.until_running = flags.detach;
  ASSIGN_OR_RETURN(options.pull, ParsePullFlag(flags.pull, plan.row.name));
  context.Say(absl::StrCat("launching ", plan.row.name, " on ", plan.target.name));
  ASSIGN_OR_RETURN(const int code, ShowRun(context, plan.row, links.get(), std::move(options)));
  if (!flags.detach) return code;
  ASSIGN_OR_RETURN(const RunRow row, store->Get(plan.row.run_id));
  if (row.end.has_value()) return code;
  if (context.json()) {
    ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
    context.PrintJson(RunToJson(row, DeriveStatus(row, lifecycle)));
  } else {
    context.PrintLine(row.name);
    context.Hint(absl::StrCat("gpuctl attach ", row.name, " shows it"));
  }
  return code;
}

// --down, once the run is no longer shown. The job's failure counts for more than a pull's.
absl::StatusOr<int> End(CommandContext& context, const RunRow& row, int code) {
  if (!row.end.has_value()) {
    context.Say(absl::StrCat("the machine stays rented; gpuctl down ", row.name, " ends it"));
    return code;
  }
  const absl::Status status = BringHomeAndRelease(context, row);
  if (status.ok() || code == kExitOk) {
    RETURN_IF_ERROR(status);
    return code;
  }
  context.Say(status.message());
  if (const std::string hint = HintOf(status); !hint.empty()) {
    context.Hint(hint);
  }
  return code;
}

absl::StatusOr<int> LaunchOnce(CommandContext& context, const LaunchFlags& flags,
                               LaunchPlan& plan) {
  if (plan.workdir.has_value() && !plan.workdir->skipped.empty()) {
    context.Say(absl::StrCat("not sent (neither file, directory nor link): ",
                             FirstFew(plan.workdir->skipped)));
  }
  if (plan.rents) {
    ASSIGN_OR_RETURN(const bool agreed, Agrees(context, flags, plan));
    if (!agreed) {
      context.Say("nothing was rented");
      return kExitFailed;
    }
    // Held until the run is no longer shown: then its job has begun, or never will.
    ASSIGN_OR_RETURN(const Machine machine, FindMachine(context, flags, plan));
    GiveBack give_back(context, plan, machine.fresh && !flags.keep);
    absl::StatusOr<int> code = Start(context, flags, plan, &give_back);
    if (!code.ok() || NothingStarted(context, plan)) give_back.OnFailure();
    return code;
  }
  return Start(context, flags, plan, nullptr);
}

// What another machine for the run that `row` was may cost.
absl::StatusOr<Agreed> StillAgreed(CommandContext& context, const RunRow& row,
                                   double usd_per_hour) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                   Ledger::Open(paths.state_dir, context.clock));
  ASSIGN_OR_RETURN(const std::optional<Lease> lease, ledger->OfRun(row.run_id));
  if (!lease.has_value()) return absl::NotFoundError("the ledger does not know its machine");
  Agreed agreed{usd_per_hour, 0};
  ASSIGN_OR_RETURN(agreed.cost_usd, CostLeftOver(*lease, context.NowMs()));
  return agreed;
}

}  // namespace

absl::StatusOr<int> LaunchRun(CommandContext& context, LaunchFlags flags, LaunchPlan plan) {
  const bool resumes = ResumesWhenPreempted(plan.spec) && !flags.detach;
  // What has not come home cannot be resumed from.
  if (resumes && flags.pull.empty()) flags.pull = "1";
  if (flags.detach && ResumesWhenPreempted(plan.spec)) {
    context.Say(
        "retry on preempted takes effect while the run is shown; after -d, "
        "gpuctl resume goes on by hand");
  }
  const int retries = plan.spec.max_retries;
  const double usd_per_hour = HighestPrice(plan);
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  for (int retry = 1;; ++retry) {
    ASSIGN_OR_RETURN(const int code, LaunchOnce(context, flags, plan));
    const absl::StatusOr<RunRow> row = store->Get(plan.row.run_id);
    if (!row.ok()) return code;  // nothing was launched
    if (!resumes || retry > retries || !row->end.has_value() || !IsPreempted(*row->end)) {
      if (NothingStarted(context, plan)) return code;
      if (!flags.down) {
        TellWhatIsLeft(context, *row);
        return code;
      }
      return End(context, *row, code);
    }
    plan.resuming.reset();
    const absl::StatusOr<Agreed> agreed = StillAgreed(context, *row, usd_per_hour);
    flags.yes = true;
    absl::StatusOr<LaunchPlan> next =
        agreed.ok() ? PlanResume(context, flags, *row, *agreed) : agreed.status();
    // Of the run's own limits too little is left.
    if (!agreed.ok() || absl::IsResourceExhausted(next.status())) {
      context.Say(absl::StrCat(row->name, " does not go on by itself: ", next.status().message()));
      context.Hint(absl::StrCat("gpuctl resume ", row->name,
                                " rents another machine at a price that you accept"));
      return flags.down ? End(context, *row, code) : code;
    }
    RETURN_IF_ERROR(next.status());
    context.Say(absl::StrCat(row->name, " goes on on another machine, ", retry, " of ", retries,
                             " times, for up to ", FormatUsd(usd_per_hour), " per hour, ",
                             FormatUsd(agreed->cost_usd), " in all"));
    plan = *std::move(next);
  }
}

}  // namespace gpuctl

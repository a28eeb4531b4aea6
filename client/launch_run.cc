#include "client/launch_run.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/job_plan.h"
#include "client/lease_limits.h"
#include "client/make_links.h"
#include "client/run_end.h"
#include "client/mirror.h"
#include "client/node_calls.h"
#include "client/quantity.h"
#include "client/release_after_run.h"
#include "client/rented.h"
#include "client/rented_node.h"
#include "client/resume_plan.h"
#include "client/run_status.h"
#include "client/show_run.h"
#include "client/shown_name.h"
#include "client/tree_transfer.h"
#include "common/job_layout.h"
#include "common/status_macros.h"
#include "provisioning/ledger.h"

namespace gpuctl {
namespace {

// All that the job needs; what the node has costs a round trip.
absl::Status PushPlan(CommandContext& context, LinkFactory& links, const LaunchPlan& plan,
                      const LaunchFlags& flags) {
  TransferStyle style;
  style.streams = flags.streams;
  PushTarget target;
  if (plan.kit_tree.has_value()) {
    style.what = "the trainer";
    style.announce = absl::StrCat("gpuctl: sending the trainer (", FormatBytes(plan.kit->bytes),
                                  "), once for this machine");
    target.likely_there = true;
    target.sources = plan.kit_tree->sources;
    RETURN_IF_ERROR(
        Annotate(Push(context, links, plan.kit_tree->source, plan.kit_tree->manifest, target, style)
                     .status(),
                 "send the trainer"));
    style.announce.clear();
    target.sources.clear();
  }
  for (const DataTree& tree : plan.data) {
    style.what = tree.path;
    target.likely_there = true;
    RETURN_IF_ERROR(
        Annotate(Push(context, links, tree.source, tree.manifest, target, style).status(),
                 absl::StrCat("send the data ", tree.source)));
  }
  if (!plan.workdir.has_value()) return absl::OkStatus();
  style.what = "sending";
  target.likely_there = !plan.data.empty();
  return Annotate(
      Push(context, links, plan.workdir->path, plan.workdir->manifest, target, style).status(),
      "send the work directory");
}

absl::StatusOr<bool> Agrees(CommandContext& context, const LaunchFlags& flags,
                            const LaunchPlan& plan) {
  if (flags.yes) return true;
  if (context.json() || isatty(STDIN_FILENO) == 0) {
    return UsageError("launch asks before it rents, and there is nobody to ask",
                      "add -y to accept the price, or --dry-run to see it");
  }
  PrintProgress(context, absl::StrCat(PlanText(plan), plan.rental.idle.has_value() ? "Use" : "Rent",
                                      " it? [y/N]"));
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

// The highest price per hour that the user was shown, and so agreed to.
double HighestPrice(const LaunchPlan& plan) {
  double highest = PriceOf(plan);
  for (const Offer& offer : plan.rental.in_order) {
    highest = std::max(highest, offer.price_usd_per_hour);
  }
  return highest;
}

// The machine of a launch.
struct Machine {
  bool fresh = false;  // it was rented for it
  LeaseLock use;
};

// Takes an idle machine of ours or rents one, and makes it the plan's target.
absl::StatusOr<Machine> FindMachine(CommandContext& context, const LaunchFlags& flags,
                                    LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                   Ledger::Open(paths.state_dir, context.clock));
  RentedNodeRequest request;
  request.spec = &plan.spec;
  request.run_id = plan.row.run_id;
  request.run_name = plan.row.name;
  request.offers = plan.rental.in_order;
  request.agreed_usd_per_hour = HighestPrice(plan);
  request.volume = plan.volume;
  std::optional<RentedNode> node;
  if (!flags.fresh) {
    ASSIGN_OR_RETURN(node, ReuseNode(context, *ledger, request));
  }
  Machine machine;
  machine.fresh = !node.has_value();
  if (machine.fresh) {
    // The only machine that the plan had is gone or busy by now.
    if (plan.rental.idle.has_value()) return plan.rental.nothing_offered;
    ASSIGN_OR_RETURN(node, RentNode(context, *ledger, plan.rental.markets, request));
  }
  plan.target = node->target;
  plan.row.target = node->target;
  machine.use = std::move(node->use);
  return machine;
}

// Whether it is certain that no node runs, or ever ran, the job of this launch.
bool NothingStarted(CommandContext& context, const LaunchPlan& plan) {
  const absl::StatusOr<RunStore*> store = context.Store();
  if (!store.ok()) return true;  // nor was it ever told to
  const absl::StatusOr<RunRow> row = (*store)->Get(plan.row.run_id);
  if (!row.ok()) return absl::IsNotFound(row.status());
  return row->end.has_value() && row->end->state == gpuctl::v1::JOB_STATE_UNSPECIFIED;
}

// What becomes of a rented machine whose launch may have failed. Used once.
class GiveBack {
 public:
  GiveBack(CommandContext& context, const LaunchPlan& plan, bool release)
      : context_(context), plan_(plan), release_(release) {}

  void OnFailure(const std::function<bool()>& interrupted) {
    if (done_) return;
    done_ = true;
    if (release_ && NothingStarted(context_, plan_)) {
      PrintProgress(context_, absl::StrCat("gpuctl: nothing was started on ", plan_.target.name,
                                           ", which was rented for this launch: ending it"));
      return ReleaseUnused(context_, plan_.row.run_id, interrupted);
    }
    PrintProgress(context_, absl::StrCat("gpuctl: ", plan_.target.name,
                                         " stays rented: the next launch may use it, gpuctl "
                                         "instances shows it, gpuctl down ends it"));
  }
  void OnFailure() {
    if (done_) return;
    const InterruptibleHooks interrupt(context_);
    OnFailure(interrupt.hooks().cancelled);
  }

 private:
  CommandContext& context_;
  const LaunchPlan& plan_;
  const bool release_;
  bool done_ = false;
};

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
  PrintProgress(context,
                absl::StrCat("gpuctl: launching ", plan.row.name, " on ", plan.target.name));
  ASSIGN_OR_RETURN(const int code, ShowRun(context, plan.row, links.get(), std::move(options)));
  if (!flags.detach) return code;
  ASSIGN_OR_RETURN(const RunRow row, store->Get(plan.row.run_id));
  if (row.end.has_value()) return code;
  if (context.json()) {
    ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
    ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadMirrorLifecycle(paths.MirrorDir(row.run_id)));
    PrintOut(absl::StrCat(WithSchemaVersion(RunToJson(row, DeriveStatus(row, lifecycle))), "\n"));
  } else {
    PrintOut(absl::StrCat(row.name, "\n"));
    PrintProgress(context, absl::StrCat("HINT: gpuctl attach ", row.name, " shows it"));
  }
  return code;
}

// --down, once the run is no longer shown. The job's failure counts for more than a pull's.
absl::StatusOr<int> End(CommandContext& context, const RunRow& row, int code) {
  if (!row.end.has_value()) {
    PrintProgress(context, absl::StrCat("gpuctl: the machine stays rented; gpuctl down ", row.name,
                                        " ends it"));
    return code;
  }
  const absl::Status status = BringHomeAndRelease(context, row);
  if (status.ok() || code == kExitOk) {
    RETURN_IF_ERROR(status);
    return code;
  }
  PrintProgress(context, absl::StrCat("gpuctl: ", status.message()));
  if (const std::string hint = HintOf(status); !hint.empty()) {
    PrintProgress(context, absl::StrCat("HINT: ", hint));
  }
  return code;
}

absl::StatusOr<int> LaunchOnce(CommandContext& context, const LaunchFlags& flags,
                               LaunchPlan& plan) {
  if (plan.workdir.has_value() && !plan.workdir->skipped.empty()) {
    PrintProgress(context, absl::StrCat("gpuctl: not sent (neither file, directory nor link): ",
                                        FirstFew(plan.workdir->skipped)));
  }
  if (plan.rents) {
    ASSIGN_OR_RETURN(const bool agreed, Agrees(context, flags, plan));
    if (!agreed) {
      PrintProgress(context, "gpuctl: nothing was rented");
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
    PrintProgress(context,
                  "gpuctl: retry on preempted takes effect while the run is shown; after -d, "
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
      PrintProgress(context, absl::StrCat("gpuctl: ", row->name,
                                          " does not go on by itself: ", next.status().message(),
                                          "\nHINT: gpuctl resume ", row->name,
                                          " rents another machine at a price that you "
                                          "accept"));
      return flags.down ? End(context, *row, code) : code;
    }
    RETURN_IF_ERROR(next.status());
    PrintProgress(
        context, absl::StrCat("gpuctl: ", row->name, " goes on on another machine, ", retry, " of ",
                              retries, " times, for up to ", FormatUsd(usd_per_hour), " per hour, ",
                              FormatUsd(agreed->cost_usd), " in all"));
    plan = *std::move(next);
  }
}

}  // namespace gpuctl

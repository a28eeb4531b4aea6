// gpuctl launch: plan, ask, find a machine, record, start, show.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cmd.h"
#include "client/job_plan.h"
#include "client/launch_flags.h"
#include "client/launch_plan.h"
#include "client/mirror.h"
#include "client/node_access.h"
#include "client/rented_node.h"
#include "client/run_status.h"
#include "client/show_run.h"
#include "client/shown_name.h"
#include "client/tree_transfer.h"
#include "client/verb_parser.h"
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
  PrintProgress(context, absl::StrCat(PlanText(plan), "Rent it? [y/N]"));
  std::string answer;
  std::getline(std::cin, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return answer == "y" || answer == "yes";
}

// Takes an idle machine of ours or rents one, and makes it the plan's target.
absl::Status FindMachine(CommandContext& context, const LaunchFlags& flags, LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::unique_ptr<Ledger> ledger,
                   Ledger::Open(paths.state_dir, context.clock));
  RentedNodeRequest request;
  request.spec = &plan.spec;
  request.run_id = plan.row.run_id;
  request.run_name = plan.row.name;
  request.offers = plan.rental.in_order;
  std::optional<RentedNode> node;
  if (!flags.fresh) {
    ASSIGN_OR_RETURN(node, ReuseNode(context, *ledger, request));
  }
  if (!node.has_value()) {
    ASSIGN_OR_RETURN(node, RentNode(context, *ledger, plan.rental.markets, request));
  }
  plan.target = node->target;
  plan.row.target = node->target;
  return absl::OkStatus();
}

// Brings the results of a run that has ended home and gives its machine back. A machine whose
// results are not home is kept. Returns the exit code; `code` is the run's.
absl::StatusOr<int> PullAndRelease(CommandContext& context, const RunRow& row, int code) {
  const absl::Status pulled = CmdPull(context, {row.run_id}).status();
  if (absl::IsNotFound(pulled)) {
    PrintProgress(context, absl::StrCat("gpuctl: ", row.name, " left nothing to bring home"));
  } else if (!pulled.ok()) {
    PrintProgress(context,
                  absl::StrCat("gpuctl: ", row.target.name,
                               " is kept, for its results are not home: ", pulled.message(),
                               "\nHINT: gpuctl pull ", row.name, ", then gpuctl down ", row.name));
    return code == kExitOk ? kExitFailed : code;
  }
  RETURN_IF_ERROR(CmdDown(context, {row.run_id, "--yes"}).status());
  return code;
}

absl::StatusOr<int> Start(CommandContext& context, const LaunchFlags& flags, LaunchPlan& plan) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, plan.target));
  if (!plan.rents && (!plan.spec.gpu.empty() || plan.spec.disk_bytes > 0)) {
    ASSIGN_OR_RETURN(NodeCalls calls, NodeCalls::Connect(context, *links, plan.target));
    ASSIGN_OR_RETURN(const gpuctl::v1::HelloReply node, calls.Hello());
    RETURN_IF_ERROR(CheckNodeSatisfies(plan.spec, node, plan.target.name));
  }
  ASSIGN_OR_RETURN(RunStore * store, context.Store());
  StoredSpec stored{SpecDigest(plan.job), plan.job};
  plan.row.spec_json = FormatStoredSpec(stored);
  // From here on the run exists, whatever becomes of this process.
  RETURN_IF_ERROR(store->Insert(plan.row));
  ShowRunOptions options;
  options.start.emplace();
  *options.start->mutable_spec() = plan.job;
  options.start->set_spec_digest(stored.spec_digest);
  for (const auto& [name, value] : plan.secrets) (*options.start->mutable_secrets())[name] = value;
  ASSIGN_OR_RETURN(options.node_id, store->LastNodeOf(plan.target.name));
  if (plan.workdir.has_value() || !plan.data.empty()) {
    options.push_content = [&context, &links, &plan, &flags] {
      return PushPlan(context, *links, plan, flags);
    };
  }
  options.from_beginning = true;
  options.until_running = flags.detach;
  ASSIGN_OR_RETURN(options.pull, ParsePullFlag(flags.pull, plan.row.name));
  PrintProgress(context,
                absl::StrCat("gpuctl: launching ", plan.row.name, " on ", plan.target.name));
  ASSIGN_OR_RETURN(const int code, ShowRun(context, plan.row, links.get(), std::move(options)));
  ASSIGN_OR_RETURN(const RunRow row, store->Get(plan.row.run_id));
  if (flags.down && row.end.has_value()) return PullAndRelease(context, row, code);
  if (!flags.detach) return code;
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

}  // namespace

absl::StatusOr<int> CmdLaunch(CommandContext& context, std::vector<std::string> args) {
  LaunchFlags flags;
  VerbParser parser(
      context, "launch [RUN.yaml] [FLAGS] [-- CMD...]",
      "Starts a run and shows it until it ends; its exit code becomes gpuctl's.",
      "The work directory is sent without .git, what .gitignore and .gpuctlignore leave\n"
      "out, and files that look like secrets (gpuctl sync --dry-run lists the rest); what\n"
      "the machine has already is not sent again. Ctrl-C leaves the run running.\n\n"
      "  gpuctl launch -- python train.py\n"
      "  gpuctl launch run.yaml --host ada@gpu.example -d\n"
      "  gpuctl launch --gpu H100 --secret HF_TOKEN --time 6h -- ./train.sh");
  AddLaunchFlags(parser.app(), flags);
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  if (flags.detach && !flags.pull.empty()) {
    return UsageError("--pull goes with a run that is shown, not with -d",
                      "gpuctl pull RUN --watch brings checkpoints later");
  }
  if (flags.detach && flags.down) {
    return UsageError("--down goes with a run that is shown, not with -d",
                      "gpuctl down RUN ends it later");
  }
  RETURN_IF_ERROR(ParsePullFlag(flags.pull, "").status());
  ASSIGN_OR_RETURN(LaunchPlan plan, MakeLaunchPlan(context, flags));
  if (flags.down && !plan.rents) {
    return UsageError("--down releases a rented machine, and this run rents none",
                      "gpuctl pull RUN brings its results home");
  }
  if (flags.dry_run) {
    PrintOut(context.json() ? absl::StrCat(WithSchemaVersion(PlanJson(plan)), "\n")
                            : PlanText(plan));
    return kExitOk;
  }
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
    RETURN_IF_ERROR(FindMachine(context, flags, plan));
  }
  return Start(context, flags, plan);
}

}  // namespace gpuctl

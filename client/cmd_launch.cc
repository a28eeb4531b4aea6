// gpuctl launch: plan, check, record, start, show.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cmd.h"
#include "client/data_trees.h"
#include "client/job_plan.h"
#include "client/mirror.h"
#include "client/node_access.h"
#include "client/quantity.h"
#include "client/run_spec.h"
#include "client/run_status.h"
#include "client/show_run.h"
#include "client/shown_name.h"
#include "client/target.h"
#include "client/tree_transfer.h"
#include "client/verb_parser.h"
#include "client/workdir.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/job_layout.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr int64_t kMaxRunFileBytes = 1 << 20;

// Flags as typed; each overrides the run file's field of the same name.
struct LaunchFlags {
  std::string pull;  // "true", or how many to keep
  std::string run_file;
  std::string name, run, workdir, disk, time, grace, output_limit, retry_backoff;
  std::vector<std::string> data, gpu, env, secrets, checkpoints, artifacts, retry_on, trainer,
      include;
  int retry_max = -1;
  int streams = 0;
  TargetFlags target;
  bool detach = false, dry_run = false, yes = false, no_workdir = false;
};

void AddFlags(CLI::App& app, LaunchFlags& flags) {
  app.add_option("RUN.yaml", flags.run_file, "Run file; flags override its fields");
  app.add_flag("-d,--detach", flags.detach, "Return once the job runs");
  app.add_flag("--pull", flags.pull,
               "Bring new checkpoints to ./NAME meanwhile; --pull=N keeps the newest N");
  app.add_flag("--dry-run", flags.dry_run, "Show the plan and stop");
  app.add_flag("-y,--yes", flags.yes, "Do not ask; also send large work directories");
  app.add_option("--name", flags.name, "Name of the run");
  app.add_option("--host", flags.target.host, "Machine to use: an ssh alias or USER@HOST[:PORT]")
      ->group("Machine");
  app.add_option("-p,--port", flags.target.port, "Its ssh port")
      ->check(CLI::Range(1, 65535).description(""))
      ->group("Machine");
  app.add_option("-i,--identity", flags.target.identity, "Private key for it")->group("Machine");
  app.add_option("--provider", flags.target.provider, "local (this machine) or ssh")
      ->group("Machine");
  app.add_option("--gpu", flags.gpu, "GPU the machine must have: H100, A100-80GB:2, 24GB..80GB")
      ->group("Machine");
  app.add_option("--disk", flags.disk, "Free disk it must have")->group("Machine");
  app.add_option("--workdir", flags.workdir, "Directory to send, less what is ignored (default .)")
      ->group("Job");
  app.add_option("--include", flags.include, "Path in it to send, whatever the ignore rules say")
      ->group("Job");
  app.add_flag("--no-workdir", flags.no_workdir, "Send nothing; the job starts empty")
      ->group("Job");
  app.add_option("--data", flags.data, "DIR=PATH: a tree that runs share, read-only at PATH")
      ->group("Job");
  app.add_option("--streams", flags.streams, "Connections to send over (default: as many as help)")
      ->check(CLI::Range(1, 16).description(""))
      ->group("Job");
  app.add_option("--run", flags.run, "Bash script to run, instead of -- CMD")->group("Job");
  app.add_option("--trainer", flags.trainer, "Setting of the built-in trainer, section.key=value")
      ->group("Job");
  app.add_option("-e,--env", flags.env, "NAME=VALUE for the job")->group("Job");
  app.add_option("--secret", flags.secrets, "Name of a variable to pass on, kept out of all files")
      ->group("Job");
  app.add_option("--checkpoints", flags.checkpoints, "Pattern of a script's checkpoints")
      ->group("Job");
  app.add_option("--artifacts", flags.artifacts, "Pattern of files to bring home")->group("Job");
  app.add_option("--time", flags.time, "Most running time, e.g. 6h (default 24h)")->group("Limits");
  app.add_option("--grace", flags.grace, "Time to save when stopped (default 60s)")
      ->group("Limits");
  app.add_option("--output-limit", flags.output_limit, "Most output kept, e.g. 4GiB")
      ->group("Limits");
  app.add_option("--retry-max", flags.retry_max, "Attempts after the first")
      ->check(CLI::Range(0, 1000).description(""))
      ->group("Limits");
  app.add_option("--retry-on", flags.retry_on, "What is retried: lost, failed, exit:CODE")
      ->group("Limits");
  app.add_option("--retry-backoff", flags.retry_backoff, "Wait before the first retry")
      ->group("Limits");
  for (CLI::Option* option : app.get_options()) {
    // One value each time a flag is given, so that an argument behind it stays an argument.
    if (option->get_items_expected_max() > 1 && !option->get_positional())
      option->allow_extra_args(false);
  }
}

absl::Status FlagError(const char* flag, const absl::Status& status) {
  return UsageError(absl::StrCat(flag, ": ", status.message()), "gpuctl launch --help");
}

absl::StatusOr<RunSpec> ReadRunFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFileToString(path, kMaxRunFileBytes);
  if (absl::IsNotFound(text.status())) {
    const bool file_like = absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
    return UsageError(absl::StrCat("read the run file ", path, ": no such file"),
                      file_like ? "name an existing file, or give a command: gpuctl launch -- CMD"
                                : absl::StrCat("to run a command write: gpuctl launch -- ", path));
  }
  if (!text.ok()) return WithExitCode(Annotate(text.status(), "read the run file"), kExitUsage);
  absl::StatusOr<RunSpec> spec = ParseRunSpec(*text, path);
  if (!spec.ok()) return WithHint(spec.status(), absl::StrCat("correct ", path, " there"));
  if (!absl::StartsWith(spec->workdir, "/")) spec->workdir = JoinPath(DirName(path), spec->workdir);
  return spec;
}

template <typename T, typename Parse>
absl::Status Override(const char* flag, const std::string& text, Parse parse, T& value) {
  if (text.empty()) return absl::OkStatus();
  auto parsed = parse(text);
  if (!parsed.ok()) return FlagError(flag, parsed.status());
  value = *std::move(parsed);
  return absl::OkStatus();
}

absl::Status ApplyFlags(const LaunchFlags& flags, RunSpec& spec) {
  if (!flags.name.empty()) spec.name = flags.name;
  if (!flags.workdir.empty()) spec.workdir = flags.workdir;
  if (!flags.checkpoints.empty()) spec.checkpoints = flags.checkpoints;
  if (!flags.artifacts.empty()) spec.artifacts = flags.artifacts;
  if (!flags.retry_on.empty()) spec.retry_on = flags.retry_on;
  if (flags.retry_max >= 0) spec.max_retries = flags.retry_max;
  spec.secrets.insert(spec.secrets.end(), flags.secrets.begin(), flags.secrets.end());
  if (!flags.gpu.empty()) spec.gpu.clear();
  for (const std::string& text : flags.gpu) {
    absl::StatusOr<GpuRequirement> gpu = ParseGpuRequirement(text);
    if (!gpu.ok()) return FlagError("--gpu", gpu.status());
    spec.gpu.push_back(*std::move(gpu));
  }
  for (const std::string& assignment : flags.data) {
    if (absl::Status status = AddData(assignment, spec); !status.ok()) {
      return FlagError("--data", status);
    }
  }
  for (const std::string& assignment : flags.env) {
    if (absl::Status status = AddEnvironment(assignment, spec); !status.ok()) {
      return FlagError("--env", status);
    }
  }
  for (const std::string& assignment : flags.trainer) {
    if (absl::Status status = SetTrainerOption(assignment, spec); !status.ok()) {
      return FlagError("--trainer", status);
    }
  }
  RETURN_IF_ERROR(Override("--disk", flags.disk, ParseSize, spec.disk_bytes));
  RETURN_IF_ERROR(
      Override("--output-limit", flags.output_limit, ParseSize, spec.output_limit_bytes));
  const auto duration = [](const std::string& text) { return ParseDuration(text); };
  RETURN_IF_ERROR(Override("--time", flags.time, duration, spec.time_limit));
  RETURN_IF_ERROR(Override("--grace", flags.grace, duration, spec.grace));
  return Override("--retry-backoff", flags.retry_backoff, duration, spec.retry_backoff);
}

// A command on the command line replaces whatever the file would run.
void ChooseCommand(CommandContext& context, const LaunchFlags& flags, RunSpec& spec) {
  const bool command = context.after_dashes.has_value() && !context.after_dashes->empty();
  if (!command && flags.run.empty()) return;
  if (flags.trainer.empty()) spec.trainer_json.clear();
  spec.run = flags.run;
  if (command) spec.command = *context.after_dashes;
}

absl::StatusOr<RunSpec> BuildSpec(CommandContext& context, const LaunchFlags& flags) {
  RunSpec spec;
  if (!flags.run_file.empty()) {
    ASSIGN_OR_RETURN(spec, ReadRunFile(flags.run_file));
  }
  RETURN_IF_ERROR(ApplyFlags(flags, spec));
  ChooseCommand(context, flags, spec);
  if (absl::Status status = CheckRunSpec(spec); !status.ok()) {
    const bool nothing = spec.run.empty() && spec.command.empty() && spec.trainer_json.empty();
    return WithHint(status, nothing ? "for example: gpuctl launch -- python train.py"
                                    : "gpuctl launch --help explains the flags");
  }
  return spec;
}

absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const RunSpec& spec) {
  std::map<std::string, std::string> values;
  for (const std::string& name : spec.secrets) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) {
      return WithExitCode(
          WithHint(absl::NotFoundError(absl::StrCat("secret ", name, " has no value here")),
                   absl::StrCat("export ", name, "=... and launch again")),
          kExitUsage);
    }
    values[name] = value;
  }
  return values;
}

struct Plan {
  RunSpec spec;
  NodeTarget target;
  std::optional<Workdir> workdir;
  std::vector<DataTree> data;
  gpuctl::v1::JobSpec job;
  RunRow row;
  std::map<std::string, std::string> secrets;
};

absl::StatusOr<Plan> MakePlan(CommandContext& context, const LaunchFlags& flags) {
  Plan plan;
  ASSIGN_OR_RETURN(plan.spec, BuildSpec(context, flags));
  RETURN_IF_ERROR(
      WithHint(CheckNothingRented(plan.spec), "gpuctl offers lists what could be rented"));
  TargetFlags target = flags.target;
  if (target.provider.empty() && target.host.empty() && !plan.spec.providers.empty()) {
    target.provider = plan.spec.providers.front();
  }
  ASSIGN_OR_RETURN(plan.target, ResolveTarget(target));
  ASSIGN_OR_RETURN(plan.job, MakeJobSpec(plan.spec, plan.target, BundlePaths::Find().trainer));
  ASSIGN_OR_RETURN(plan.secrets, ReadSecrets(plan.spec));
  ASSIGN_OR_RETURN(plan.data, ScanDataTrees(context, plan.spec));
  if (!flags.no_workdir) {
    WorkdirOptions options;
    options.allow_large = flags.yes;
    options.include = flags.include;
    ASSIGN_OR_RETURN(const std::string root, ResolveWorkdir(plan.spec.workdir));
    options.leave_out = PathsOfData(plan.data, root);
    ASSIGN_OR_RETURN(plan.workdir, ScanWorkdir(context, plan.spec.workdir, options));
    plan.job.set_manifest_digest(plan.workdir->digest);
  }
  AddDataTrees(plan.data, plan.workdir.has_value() ? plan.workdir->path : "", plan.job);
  RunRow& row = plan.row;
  row.run_id = NewRunId();
  row.job_id = NewJobId();
  row.name = plan.spec.name.empty() ? NewReadableName() : plan.spec.name;
  row.target = plan.target;
  row.command = CommandLine(plan.spec);
  row.workdir = plan.workdir.has_value() ? plan.workdir->path : "";
  row.checkpoint_patterns = plan.spec.checkpoints;
  row.artifact_patterns = plan.spec.artifacts;
  row.output_segment_bytes = OutputShape(plan.job).segment_bytes;
  row.created_ms = context.NowMs();
  plan.job.set_job_id(row.job_id);
  plan.job.set_run_id(row.run_id);
  return plan;
}

std::string PlanText(const Plan& plan) {
  const RunSpec& spec = plan.spec;
  std::string text = absl::StrCat("run       ", plan.row.name, "\ncommand   ", plan.row.command,
                                  "\nmachine   ", plan.target.name,
                                  plan.target.provider == "local" ? " (this machine)" : "", "\n");
  if (plan.workdir.has_value()) {
    absl::StrAppend(&text, "work      ", plan.workdir->path, ": ", plan.workdir->files, " files, ",
                    FormatBytes(plan.workdir->bytes), "\n");
  } else {
    absl::StrAppend(&text, "work      nothing is sent\n");
  }
  for (const DataTree& tree : plan.data) {
    absl::StrAppend(&text, "data      ", tree.source, " at ", tree.path, ": ",
                    FormatBytes(tree.manifest.content_bytes()), "\n");
  }
  std::vector<std::string> gpus;
  for (const GpuRequirement& gpu : spec.gpu) gpus.push_back(gpu.text);
  if (!gpus.empty()) absl::StrAppend(&text, "gpu       ", absl::StrJoin(gpus, " or "), "\n");
  absl::StrAppend(&text, "limits    ", HumanDuration(spec.time_limit), " running time, ",
                  HumanDuration(spec.grace), " to save when stopped\n");
  if (spec.max_retries > 0) {
    absl::StrAppend(&text, "retry     up to ", spec.max_retries, " times on ",
                    absl::StrJoin(spec.retry_on, ", "), "\n");
  }
  absl::StrAppend(&text, "price     nothing is rented, nothing bills\n");
  return text;
}

std::string PlanJson(const Plan& plan) {
  nlohmann::ordered_json json;
  json["name"] = plan.row.name;
  json["provider"] = plan.target.provider;
  json["node"] = plan.target.name;
  json["command"] = plan.row.command;
  json["workdir"] = plan.row.workdir.empty() ? nlohmann::ordered_json()
                                             : nlohmann::ordered_json(plan.row.workdir);
  json["files"] = plan.workdir.has_value() ? plan.workdir->files : 0;
  json["bytes"] = plan.workdir.has_value() ? plan.workdir->bytes : 0;
  json["limits"] = {{"time_s", absl::ToInt64Seconds(plan.spec.time_limit)}};
  json["price_usd_per_hour"] = 0;
  return absl::StrCat(
      "{\"plan\":", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "}");
}

// All that the job needs; what the node has costs a round trip.
absl::Status PushPlan(CommandContext& context, LinkFactory& links, const Plan& plan,
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

absl::StatusOr<int> Start(CommandContext& context, const LaunchFlags& flags, Plan& plan) {
  ASSIGN_OR_RETURN(const std::unique_ptr<LinkFactory> links, MakeLinks(context, plan.target));
  if (!plan.spec.gpu.empty() || plan.spec.disk_bytes > 0) {
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
  AddFlags(parser.app(), flags);
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(std::move(args)));
  if (!go_on) return kExitOk;
  if (flags.detach && !flags.pull.empty()) {
    return UsageError("--pull goes with a run that is shown, not with -d",
                      "gpuctl pull RUN --watch brings checkpoints later");
  }
  RETURN_IF_ERROR(ParsePullFlag(flags.pull, "").status());
  ASSIGN_OR_RETURN(Plan plan, MakePlan(context, flags));
  if (flags.dry_run) {
    PrintOut(context.json() ? absl::StrCat(WithSchemaVersion(PlanJson(plan)), "\n")
                            : PlanText(plan));
    return kExitOk;
  }
  if (plan.workdir.has_value() && !plan.workdir->skipped.empty()) {
    PrintProgress(context, absl::StrCat("gpuctl: not sent (neither file, directory nor link): ",
                                        FirstFew(plan.workdir->skipped)));
  }
  return Start(context, flags, plan);
}

}  // namespace gpuctl

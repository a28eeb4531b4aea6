#include "client/launch/launch_flags.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/terminal/shown_name.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr int64_t kMaxRunFileBytes = 1 << 20;

absl::Status FlagError(const char* flag, const absl::Status& status) {
  return UsageError(absl::StrCat(flag, ": ", status.message()), "gpuctl launch --help");
}

absl::StatusOr<RunSpec> ReadRunFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFileToString(path, kMaxRunFileBytes);
  if (absl::IsNotFound(text.status())) {
    const bool file_like = absl::EndsWith(path, ".yaml") || absl::EndsWith(path, ".yml");
    return UsageError(absl::StrCat("read the run file ", path, ": no such file"),
                      file_like ? "name an existing file, or give a command: gpuctl launch -- CMD"
                                : absl::StrCat("to run a command write: gpuctl launch -- ",
                                               TypedName(path, "CMD")));
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
  RETURN_IF_ERROR(ApplyResourceFlags(flags.resources, "launch", spec));
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
  RETURN_IF_ERROR(
      Override("--output-limit", flags.output_limit, ParseSize, spec.output_limit_bytes));
  RETURN_IF_ERROR(ApplyLimitFlags(flags, spec));
  const auto duration = [](const std::string& text) { return ParseDuration(text); };
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

void AddHowAndWhere(CLI::App& app, LaunchFlags& flags) {
  app.add_flag("-d,--detach", flags.detach, "Return once the job runs");
  app.add_flag("--pull", flags.pull,
               "Bring new checkpoints to ./NAME meanwhile; --pull=N keeps the newest N");
  app.add_flag("--dry-run", flags.dry_run, "Show the plan and stop");
  app.add_flag("-y,--yes", flags.yes, "Do not ask; also send large work directories");
  app.add_option("--host", flags.target.host, "Machine to use: an ssh alias or USER@HOST[:PORT]")
      ->group("Machine");
  app.add_option("-p,--port", flags.target.port, "Its ssh port")
      ->check(CLI::Range(1, 65535).description(""))
      ->group("Machine");
  app.add_option("-i,--identity", flags.target.identity, "Private key for it")->group("Machine");
  AddResourceFlags(app, "Machine", /*image=*/true, flags.resources);
  app.add_flag("--fresh", flags.fresh, "Rent a machine, also when an idle one of ours would do")
      ->group("Machine");
  app.add_flag("--keep", flags.keep,
               "Hold a rented machine after the job, and when the launch fails, for --lease")
      ->group("Machine");
}

void AddLimits(CLI::App& app, LaunchFlags& flags) {
  app.add_option("--time", flags.time, "Most running time, e.g. 6h (default 24h)")->group("Limits");
  app.add_option("--grace", flags.grace, "Time to save when stopped (default 60s)")
      ->group("Limits");
  app.add_option("--cost", flags.cost, "Most that the rented machine may cost, in USD")
      ->group("Limits");
  app.add_option("--idle", flags.idle, "Without a job this long it is released (default 10m)")
      ->group("Limits");
  app.add_option("--salvage", flags.salvage,
                 "Results that are not home are kept this long (default 24h)")
      ->group("Limits");
  app.add_option("--lease", flags.lease, "Without contact this long it is released (default 72h)")
      ->group("Limits");
}

// One value each time a flag is given, so that an argument behind it stays an argument.
void TakeSingleValues(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 1 && !option->get_positional())
      option->allow_extra_args(false);
  }
}

}  // namespace

void AddLaunchFlags(CLI::App& app, LaunchFlags& flags) {
  app.add_option("RUN.yaml", flags.run_file, "Run file; flags override its fields");
  AddHowAndWhere(app, flags);
  app.add_option("--name", flags.name, "Name of the run");
  app.add_flag("--down", flags.down, "At the end bring the results home and release the machine")
      ->group("Machine");
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
  AddLimits(app, flags);
  app.add_option("--output-limit", flags.output_limit, "Most output kept, e.g. 4GiB")
      ->group("Limits");
  app.add_option("--retry-max", flags.retry_max, "Attempts after the first")
      ->check(CLI::Range(0, 1000).description(""))
      ->group("Limits");
  app.add_option("--retry-on", flags.retry_on,
                 "What is retried: lost, failed, preempted, exit:CODE")
      ->group("Limits");
  app.add_option("--retry-backoff", flags.retry_backoff, "Wait before the first retry")
      ->group("Limits");
  TakeSingleValues(app);
}

void AddResumeFlags(CLI::App& app, LaunchFlags& flags) {
  AddHowAndWhere(app, flags);
  AddLimits(app, flags);
  TakeSingleValues(app);
}

absl::Status ApplyLimitFlags(const LaunchFlags& flags, RunSpec& spec) {
  const auto duration = [](const std::string& text) { return ParseDuration(text); };
  RETURN_IF_ERROR(Override("--cost", flags.cost, ParsePrice, spec.cost_limit_usd));
  RETURN_IF_ERROR(Override("--time", flags.time, duration, spec.time_limit));
  RETURN_IF_ERROR(Override("--idle", flags.idle, duration, spec.idle_limit));
  RETURN_IF_ERROR(Override("--salvage", flags.salvage, duration, spec.salvage));
  RETURN_IF_ERROR(Override("--lease", flags.lease, duration, spec.contact_limit));
  RETURN_IF_ERROR(Override("--grace", flags.grace, duration, spec.grace));
  if (flags.keep && flags.idle.empty()) spec.idle_limit = spec.contact_limit;
  return absl::OkStatus();
}

absl::StatusOr<RunSpec> BuildRunSpec(CommandContext& context, const LaunchFlags& flags) {
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

}  // namespace gpuctl

#include "client/plan/launch_flags.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "client/config/read_run_file.h"
#include "client/results/pull_files.h"
#include "client/terminal/shown_name.h"
#include "client/words/result_patterns.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

absl::Status FlagError(const LaunchFlags& flags, const char* flag, const absl::Status& status) {
  return UsageError(absl::StrCat(flag, ": ", status.message()),
                    absl::StrCat("gpuctl ", flags.verb, " --help"));
}

template <typename T, typename Parse>
absl::Status Override(const LaunchFlags& flags, const char* flag, const std::string& text,
                      Parse parse, T& value) {
  if (text.empty()) return absl::OkStatus();
  auto parsed = parse(text);
  if (!parsed.ok()) return FlagError(flags, flag, parsed.status());
  value = *std::move(parsed);
  return absl::OkStatus();
}

// Returns the NAME=VALUE of an --env. A NAME alone takes its value from this environment, as docker
// does; a job that lacks it without a word would only show it late.
absl::StatusOr<std::string> WithValue(const std::string& typed) {
  if (absl::StrContains(typed, '=')) return typed;
  if (const size_t end = typed.find_first_of(" :\t"); end != typed.npos) {
    const std::string value(absl::StripAsciiWhitespace(absl::string_view(typed).substr(end + 1)));
    return absl::InvalidArgumentError(
        absl::StrCat("\"", typed, "\" is not NAME=VALUE; an = goes between the two: ",
                     ShellQuote(absl::StrCat(typed.substr(0, end), "=", value))));
  }
  const char* value = std::getenv(typed.c_str());
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", typed, "\" has no value, and this environment has no variable of that name; write ",
        typed, "=VALUE"));
  }
  return absl::StrCat(typed, "=", value);
}

absl::Status ApplyFlags(const LaunchFlags& flags, RunSpec& spec) {
  if (!flags.name.empty()) spec.name = flags.name;
  if (!flags.setup.empty()) spec.setup = flags.setup;
  RETURN_IF_ERROR(Override(flags, "--processes", flags.processes, ParseProcesses, spec.processes));
  if (!flags.workdir.empty()) spec.workdir = flags.workdir;
  if (!flags.checkpoints.empty()) spec.checkpoints = flags.checkpoints;
  if (!flags.artifacts.empty()) spec.artifacts = flags.artifacts;
  if (!flags.forward.empty()) spec.ports = flags.forward;
  if (!flags.retry_on.empty()) spec.retry_on = flags.retry_on;
  if (flags.retry_max >= 0) spec.max_retries = flags.retry_max;
  for (const std::string& secret : flags.secrets) {
    if (std::find(spec.secrets.begin(), spec.secrets.end(), secret) == spec.secrets.end()) {
      spec.secrets.push_back(secret);
    }
  }
  RETURN_IF_ERROR(ApplyResourceFlags(flags.resources, "launch", spec));
  for (const std::string& assignment : flags.data) {
    if (absl::Status status = AddData(assignment, spec); !status.ok()) {
      return FlagError(flags, "--data", status);
    }
  }
  for (const std::string& assignment : flags.env) {
    const absl::StatusOr<std::string> whole = WithValue(assignment);
    if (!whole.ok()) return FlagError(flags, "--env", whole.status());
    if (absl::Status status = AddEnvironment(*whole, spec); !status.ok()) {
      return FlagError(flags, "--env", status);
    }
  }
  for (const std::string& assignment : flags.trainer) {
    if (absl::Status status = SetTrainerOption(assignment, spec); !status.ok()) {
      return FlagError(flags, "--trainer", status);
    }
  }
  RETURN_IF_ERROR(
      Override(flags, "--output-limit", flags.output_limit, ParseSize, spec.output_limit_bytes));
  RETURN_IF_ERROR(ApplyLimitFlags(flags, spec));
  const auto duration = [](const std::string& text) { return ParseDuration(text); };
  return Override(flags, "--retry-backoff", flags.retry_backoff, duration, spec.retry_backoff);
}

// Notes which fields the flags have.
void NoteFlags(const LaunchFlags& flags, RunSpec& spec) {
  NoteResourceFlags(flags.resources, spec);
  const std::pair<const char*, bool> fields[] = {{"resources.provider", !flags.target.host.empty()},
                                                 {"limits.time", !flags.time.empty()},
                                                 {"limits.cost", !flags.cost.empty()},
                                                 {"limits.idle", !flags.idle.empty() || flags.keep},
                                                 {"limits.salvage", !flags.salvage.empty()},
                                                 {"limits.lease", !flags.lease.empty()},
                                                 {"checkpoints", !flags.checkpoints.empty()},
                                                 {"artifacts", !flags.artifacts.empty()},
                                                 {"grace", !flags.grace.empty()},
                                                 {"output_limit", !flags.output_limit.empty()}};
  for (const auto& [field, given] : fields) {
    if (given) spec.flagged.insert(field);
  }
}

// A command on the command line replaces whatever the file would run.
void ChooseCommand(CommandContext& context, const LaunchFlags& flags, RunSpec& spec) {
  const bool command = context.after_dashes.has_value() && !context.after_dashes->empty();
  if (!command && flags.run.empty()) return;
  if (flags.trainer.empty()) spec.trainer_json.clear();
  spec.run = flags.run;
  spec.command.clear();
  if (command) spec.command = *context.after_dashes;
}

void AddHowAndWhere(FlagSet& set, LaunchFlags& flags) {
  set.Switch("-d,--detach", flags.detach, "Return once the job runs");
  set.Switch("--pull", flags.pull,
             "Bring new checkpoints to ./NAME meanwhile; --pull=N keeps the newest N.\n"
             "gpuctl keep goes on with it when this gpuctl is gone, and after -d");
  set.Switch("--dry-run", flags.dry_run, "Show the plan and stop");
  set.Switch("-y,--yes", flags.yes, "Do not ask; also send large work directories");
  set.Option("--host", flags.target.host,
             "Machine to use: an ssh alias or USER@HOST[:PORT], or\n"
             "local for this computer; several for one run: A,B,C")
      .Group("Machine");
  set.Option("-p,--port", flags.target.port, "Its ssh port").Range(1, 65535).Group("Machine");
  set.Option("-i,--identity", flags.target.identity, "Private key for it").Group("Machine");
  AddResourceFlags(set, "Machine", /*image=*/true, flags.resources);
  set.Switch("--fresh", flags.fresh, "Rent a machine, even if an idle one of yours would do")
      .Group("Machine");
  set.Switch("--keep", flags.keep,
             "Keep a rented machine for --lease after the job or a failed launch")
      .Group("Machine");
  set.Option("--ssh-within-s", flags.ssh_within_s,
             "Seconds after which a rented machine that lets nobody in is given back")
      .Range(1, 3600)
      .Hidden();
}

void AddLimits(FlagSet& set, LaunchFlags& flags) {
  set.Option("--time", flags.time, "Most running time, e.g. 6h (default 24h)").Group("Limits");
  set.Option("--grace", flags.grace, "Time to save when stopped (default 60s)").Group("Limits");
  set.Option("--cost", flags.cost, "Most that the rented machine may cost, in USD").Group("Limits");
  set.Option("--idle", flags.idle,
             "Release the machine after this long without a job (default 10m)")
      .Group("Limits");
  set.Option("--salvage", flags.salvage,
             "Keep the machine this long when results are not home (default 4 x --time, 2h to 24h)")
      .Group("Limits");
  set.Option("--lease", flags.lease,
             "Release the machine after this long without contact (default 72h)")
      .Group("Limits");
}

}  // namespace

void AddJobFlags(FlagSet& set, LaunchFlags& flags) {
  set.Option("--workdir", flags.workdir, "Directory to send, less what is ignored (default .)")
      .Group("Job");
  set.Option("--include", flags.include, "Path in it to send, whatever the ignore rules say")
      .Group("Job");
  set.Switch("--no-workdir", flags.no_workdir, "Send nothing; the job starts empty").Group("Job");
  set.Option("--data", flags.data, "DIR=PATH: a tree that runs share, read-only at PATH")
      .Group("Job");
  set.Option("--run", flags.run, "Bash script to run, instead of -- CMD").Group("Job");
  set.Option("--setup", flags.setup,
             "Bash script that makes the environment, once for each machine and its inputs")
      .Group("Job");
  set.Option("--processes", flags.processes,
             "Start the command so often, each with a RANK: a number, or gpus for one a GPU")
      .Group("Job");
  set.Option("--trainer,--set", flags.trainer, "Setting of the built-in trainer, section.key=value")
      .Group("Job");
  set.Option("-e,--env", flags.env, "NAME=VALUE for the job; NAME: with its value here")
      .Group("Job");
  set.Option("--secret", flags.secrets, "Name of a variable to pass on, kept out of all files")
      .Group("Job");
  set.Option("--checkpoints", flags.checkpoints, "Pattern of a script's checkpoints").Group("Job");
  set.Option("--artifacts", flags.artifacts, "Pattern of files to bring home").Group("Job");
  AddLimits(set, flags);
  set.Option("--output-limit", flags.output_limit, "Most output kept, e.g. 4GiB").Group("Limits");
  set.Option("--retry-max", flags.retry_max, "Attempts after the first")
      .Range(0, 1000)
      .Group("Limits");
  set.Option("--retry-on", flags.retry_on, "What is retried: lost, failed, preempted, exit:CODE")
      .Group("Limits");
  set.Option("--retry-backoff", flags.retry_backoff, "Wait before the first retry").Group("Limits");
}

void AddLaunchFlags(FlagSet& set, LaunchFlags& flags) {
  set.Option("RUN.yaml", flags.run_file, "Run file; flags override its fields");
  AddHowAndWhere(set, flags);
  set.Option("--on", flags.on, "Machine to use: that of this RUN, or of this name in gpuctl ps")
      .Group("Machine");
  set.Option("--like", flags.like, "Run to launch again; flags and -- CMD change what it had");
  set.Option("--name", flags.name, "Name of the run");
  set.Option("--tag", flags.tags, "Word to find the run by: gpuctl ps --tag WORD");
  set.Option("--note", flags.note, "Text that gpuctl show shows");
  set.Switch("--down", flags.down,
             "At the end bring the results home and release the machine;\ngpuctl keep does it "
             "when this gpuctl is gone, and after -d")
      .Group("Machine");
  AddJobFlags(set, flags);
  set.Option("--streams", flags.streams, "Connections to send over (default: as many as help)")
      .Range(1, 16)
      .Group("Job");
  set.Option("--forward", flags.forward, "PORT[:LOCALPORT] there; here meanwhile").Group("Job");
  set.OneValueEach();
}

absl::Status SetPullDirectory(LaunchFlags& flags) {
  if (!flags.detach || flags.pull.empty()) return absl::OkStatus();
  if (flags.pull != "true") {
    return UsageError(absl::StrCat("--pull=", flags.pull, " goes with a run that is shown"),
                      "with -d, --pull has no number: gpuctl keep brings the newest checkpoint");
  }
  ASSIGN_OR_RETURN(flags.pull_dir, AbsolutePath("."));
  return absl::OkStatus();
}

absl::Status CheckOnFlags(const LaunchFlags& flags) {
  if (flags.on.empty()) return absl::OkStatus();
  const char* other = !flags.target.host.empty()           ? "--host"
                      : !flags.resources.providers.empty() ? "--provider"
                      : flags.fresh                        ? "--fresh"
                      : flags.keep                         ? "--keep"
                      : flags.down                         ? "--down"
                      : !flags.cost.empty()                ? "--cost"
                                                           : nullptr;
  if (other == nullptr) return absl::OkStatus();
  return UsageError(
      absl::StrCat("--on takes a machine that is there, with its limits as they are; ", other,
                   " does not go with it"),
      "leave out one of the two");
}

absl::Status CheckHostFlags(const LaunchFlags& flags) {
  const std::string& host = flags.target.host;
  const std::vector<std::string>& providers = flags.resources.providers;
  if (host.empty() || providers.empty()) return absl::OkStatus();
  const std::string typed = absl::StrJoin(providers, ",");
  // With --host local, "ssh" means a machine of that name.
  if (typed == "ssh" || (typed == "local" && host == "local")) return absl::OkStatus();
  return UsageError(
      absl::StrCat("--host ", host, " and --provider ", typed, " name different machines"),
      "leave out one of the two");
}

void AddResumeFlags(FlagSet& set, LaunchFlags& flags) {
  set.Option("--from", flags.from, "Begin with this checkpoint here, not with the newest");
  set.Switch("--anew", flags.anew,
             "Begin anew when no checkpoint is at home; also\nrent for a run that succeeded");
  set.Switch("--as-before", flags.as_before, "Take over what was asked for the end of RUN")
      .Hidden();
  AddHowAndWhere(set, flags);
  AddLimits(set, flags);
  set.OneValueEach();
}

absl::Status ApplyLimitFlags(const LaunchFlags& flags, RunSpec& spec) {
  const auto duration = [](const std::string& text) { return ParseDuration(text); };
  RETURN_IF_ERROR(Override(flags, "--cost", flags.cost, ParsePrice, spec.cost_limit_usd));
  RETURN_IF_ERROR(Override(flags, "--time", flags.time, duration, spec.time_limit));
  RETURN_IF_ERROR(Override(flags, "--idle", flags.idle, duration, spec.idle_limit));
  RETURN_IF_ERROR(Override(flags, "--salvage", flags.salvage, duration, spec.salvage));
  RETURN_IF_ERROR(Override(flags, "--lease", flags.lease, duration, spec.contact_limit));
  RETURN_IF_ERROR(Override(flags, "--grace", flags.grace, duration, spec.grace));
  if (flags.keep && flags.idle.empty()) spec.idle_limit = spec.contact_limit;
  return absl::OkStatus();
}

absl::StatusOr<RunSpec> BuildRunSpec(CommandContext& context, const LaunchFlags& flags,
                                     const RunSpec* like, Settings* settings) {
  if (absl::Status status = CheckTags(flags.tags); !status.ok())
    return FlagError(flags, "--tag", status);
  if (absl::Status status = CheckNote(flags.note); !status.ok())
    return FlagError(flags, "--note", status);
  RunSpec spec;
  if (like != nullptr) spec = *like;
  if (!flags.run_file.empty()) {
    ASSIGN_OR_RETURN(spec, ReadRunFile(flags.run_file, flags.verb));
  }
  NoteFlags(flags, spec);
  if (settings != nullptr && like == nullptr) {
    const std::string& work = flags.workdir.empty() ? spec.workdir : flags.workdir;
    ASSIGN_OR_RETURN(*settings, ReadSettings(context, work));
    RETURN_IF_ERROR(settings->Apply(/*rented=*/false, spec));
  }
  RETURN_IF_ERROR(ApplyFlags(flags, spec));
  ChooseCommand(context, flags, spec);
  RETURN_IF_ERROR(NormalizePatterns("checkpoints", PatternsOf::kCheckpoints, spec.checkpoints));
  RETURN_IF_ERROR(NormalizePatterns("artifacts", PatternsOf::kFiles, spec.artifacts));
  RunSpec whole = spec;
  if (settings != nullptr) RETURN_IF_ERROR(Settings(*settings).Apply(/*rented=*/true, whole));
  if (absl::Status status = CheckRunSpec(whole); !status.ok()) {
    const bool nothing = spec.run.empty() && spec.command.empty() && spec.trainer_json.empty();
    return WithHint(
        status, nothing ? absl::StrCat("for example: gpuctl ", flags.verb, " -- python train.py")
                        : absl::StrCat("gpuctl ", flags.verb, " --help explains the flags"));
  }
  if (!spec.notify.command.empty() && !flags.dry_run) {
    context.Warn(absl::StrCat("at the run's end this computer runs: ", spec.notify.command));
  }
  return spec;
}

}  // namespace gpuctl

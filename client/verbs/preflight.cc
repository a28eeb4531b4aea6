// gpuctl preflight: tries a run of the built-in trainer on this computer. gpuctl train: runs it
// here, in this terminal.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/config/settings.h"
#include "client/plan/launch_flags.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "client/terminal/console.h"
#include "client/terminal/shown_name.h"
#include "client/trainer/trainer_inputs.h"
#include "client/trainer/trainer_program.h"
#include "client/verbs/verb_parser.h"
#include "client/verbs/verbs.h"
#include "client/workdir/workdir.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "trainer/config/gpus.h"

namespace gpuctl {
namespace {

// The flags that say what is trained: a run file as for launch, or gpuctl-trainer's own --config.
struct RunFlags {
  std::string file, config, init, workdir;
  std::vector<std::string> settings, data;
};

void DeclareRunFlags(FlagSet& set, RunFlags& flags) {
  set.Option("RUN.yaml", flags.file, "The run file that gpuctl launch takes");
  set.Option("--config", flags.config, "The settings alone as JSON, instead of a run file");
  set.Option("--set,--trainer", flags.settings, "Setting of the trainer, section.key=value")
      .OneValueEach();
  set.Option("--init", flags.init, "A model folder to start from: model.init");
  set.Option("--data", flags.data, "What to train on: data.paths").OneValueEach();
  set.Option("--workdir", flags.workdir,
             "Directory that the paths of the run file are relative to");
}

std::string PathsSetting(const std::vector<std::string>& data) {
  return absl::StrCat("data.paths=", nlohmann::json(data).dump());
}

// Returns the words of the trainer for --config, whose paths are relative to this directory.
absl::StatusOr<TrainerCall> CallOfConfig(const std::string& verb, const RunFlags& flags) {
  if (!flags.workdir.empty()) {
    return UsageError(absl::StrCat(verb, ": --workdir goes with a run file"), "leave it out");
  }
  TrainerCall call;
  call.words = {verb, absl::StrCat("--config=", flags.config)};
  for (const std::string& setting : flags.settings) {
    call.words.push_back(absl::StrCat("--set=", setting));
  }
  for (const std::string& path : flags.data) call.words.push_back(absl::StrCat("--data=", path));
  if (!flags.init.empty()) call.words.push_back(absl::StrCat("--init=", flags.init));
  return call;
}

// Reads the run file and prepares its rows, as a launch does, and returns the words of the trainer.
absl::StatusOr<TrainerCall> CallOfRunFile(CommandContext& context, const std::string& verb,
                                          const RunFlags& flags, RunSpec& spec) {
  LaunchFlags launch;
  launch.run_file = flags.file;
  launch.workdir = flags.workdir;
  launch.trainer = flags.settings;
  if (!flags.init.empty()) {
    launch.trainer.push_back(absl::StrCat("model.init=", nlohmann::json(flags.init).dump()));
  }
  if (!flags.data.empty()) launch.trainer.push_back(PathsSetting(flags.data));
  Settings settings;
  ASSIGN_OR_RETURN(spec, BuildRunSpec(context, launch, /*like=*/nullptr, &settings));
  for (const Setting& setting : settings.used()) {
    if (verb != "preflight" || absl::string_view(setting.key.key) != "resources.gpu") continue;
    context.Say(
        absl::StrCat(setting.key.key, " ", ShownSetting(setting), ", from ", setting.where));
  }
  if (spec.trainer_json.empty()) {
    return UsageError(absl::StrCat(verb, ": ", flags.file, " has no trainer:"),
                      "it is for runs of the built-in trainer; gpuctl launch runs others");
  }
  ASSIGN_OR_RETURN(const std::string root, ResolveWorkdir(spec.workdir));
  RETURN_IF_ERROR(PlanTrainerInputs(context, root, /*may_be_there=*/false, spec).status());
  TrainerCall call;
  call.words = {verb, "--config=/dev/stdin"};
  call.input = SettingsHere(spec, root).dump();
  return call;
}

absl::StatusOr<TrainerCall> CallOf(CommandContext& context, const std::string& verb,
                                   const RunFlags& flags, RunSpec& spec) {
  if (flags.file.empty() == flags.config.empty()) {
    return UsageError(absl::StrCat(verb, ": give a run file, or --config"),
                      absl::StrCat("gpuctl ", verb, " run.yaml"));
  }
  if (!flags.config.empty()) return CallOfConfig(verb, flags);
  return CallOfRunFile(context, verb, flags, spec);
}

// Returns the GPUs that preflight can plan for among those that a run file asks for, in its order;
// of a range of memory all that are in it.
std::vector<std::string> GpusOf(const std::vector<GpuRequirement>& asked) {
  std::vector<std::string> names;
  for (const GpuRequirement& one : asked) {
    for (const trainer::Gpu& gpu : trainer::KnownGpus()) {
      const auto bytes = static_cast<int64_t>(gpu.memory_gb * static_cast<double>(1 << 30));
      const std::optional<trainer::Gpu> same = trainer::FindKnownGpu(one.name);
      const bool wanted = one.name.empty() ? GpuSatisfies(one, gpu.name, bytes)
                                           : same.has_value() && same->name == gpu.name;
      if (wanted) names.push_back(gpu.name);
    }
  }
  return names;
}

// Returns how many processes the run has on all its machines; 0: it does not say so. What it does
// not say of GPUs counts as one GPU.
int64_t AllProcesses(const RunSpec& spec) {
  if (spec.processes == 0) return 0;
  const int64_t gpus = spec.gpus.value_or(spec.gpu.empty() ? 1 : spec.gpu[0].count);
  return (spec.processes == kOneForEachGpu ? gpus : spec.processes) *
         std::max<int64_t>(1, spec.nodes);
}

// Says which GPUs of the run file have no figures.
void TellOfUnknown(const CommandContext& context, const std::vector<GpuRequirement>& asked) {
  std::vector<std::string> unknown;
  for (const GpuRequirement& one : asked) {
    if (GpusOf({one}).empty()) unknown.push_back(one.text);
  }
  if (unknown.empty()) return;
  context.Say(absl::StrCat("preflight has no figures of ", absl::StrJoin(unknown, ", ")));
}

bool SaysWhereToSave(const std::string& settings) {
  const nlohmann::json json = nlohmann::json::parse(settings, nullptr, false);
  return json.contains(nlohmann::json::json_pointer("/checkpoint/dir"));
}

// Returns the object of the last line that is one of this type, or null.
nlohmann::ordered_json LastObject(const std::string& printed, const std::string& type) {
  nlohmann::ordered_json last;
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!absl::StartsWith(line, "{")) continue;
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("type") && json["type"] == type) last = std::move(json);
  }
  if (last.is_object()) last.erase("type");
  return last;
}

// Prints what the trainer printed as JSON.
absl::Status PrintResult(const CommandContext& context, const std::string& verb,
                         const std::string& printed, const std::string& type) {
  const nlohmann::ordered_json result = LastObject(printed, type);
  if (!result.is_object()) {
    return absl::InternalError(absl::StrCat(verb, ": the trainer printed no result"));
  }
  context.PrintJson(result);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> CmdPreflight(CommandContext& context, std::vector<std::string> args) {
  RunFlags flags;
  std::string gpu, processes;
  VerbParser parser(
      context, "preflight RUN.yaml [FLAGS]",
      "Tries a run of the built-in trainer on a small part of it, on this computer: the model\n"
      "loads, the batches are valid, the loss falls, a checkpoint saves and loads, tokens are\n"
      "generated. Then it tells the memory and time of the whole run, here and on the GPU of the\n"
      "run file, and whether to rent one. The same file is then launched.",
      "  gpuctl preflight run.yaml\n"
      "  gpuctl preflight run.yaml --gpu H100 --set train.batch=64");
  DeclareRunFlags(parser, flags);
  parser.Option("--gpu", gpu,
                "Plan for the first of these GPUs that fits, instead of the run file's; by\n"
                "default the smallest that fits");
  parser.Option(
      "--processes", processes,
      "Plan for so many processes, each on a GPU of its own, instead of those of the run\n"
      "file");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  RunSpec spec;
  ASSIGN_OR_RETURN(TrainerCall call, CallOf(context, "preflight", flags, spec));
  if (gpu.empty()) {
    gpu = absl::StrJoin(GpusOf(spec.gpu), ",");
    TellOfUnknown(context, spec.gpu);
  }
  if (!processes.empty()) {
    const absl::StatusOr<int> number = ParseProcesses(processes);
    if (!number.ok() || *number == kOneForEachGpu) {
      return UsageError(
          absl::StrCat("--processes: \"", processes, "\" is no number from 1 to ", kMostProcesses),
          "for example --processes 8");
    }
    spec.processes = *number;
    spec.nodes = 1;
  }
  if (const int64_t all = AllProcesses(spec); all > 0) {
    call.words.push_back(absl::StrCat("--processes=", all));
  }
  if (!gpu.empty()) call.words.push_back(absl::StrCat("--gpu=", gpu));
  std::string printed;
  if (context.json()) {
    call.words.push_back("--as=json");
    call.output = &printed;
  }
  ASSIGN_OR_RETURN(const int code, RunTrainer(context, call));
  if (code != kExitOk) return code;
  if (context.json()) {
    RETURN_IF_ERROR(PrintResult(context, "preflight", printed, "preflight"));
  } else if (!flags.file.empty()) {
    context.Hint(
        absl::StrCat("gpuctl launch ", TypedName(flags.file, "RUN.yaml"), " runs the whole"));
  }
  return code;
}

absl::StatusOr<int> CmdTrain(CommandContext& context, std::vector<std::string> args) {
  RunFlags flags;
  std::string directory, resume;
  VerbParser parser(
      context, "train RUN.yaml --checkpoint-dir DIR [FLAGS]",
      "Runs the built-in trainer on this computer, in this terminal, and no longer than it. The\n"
      "run is not listed and has no limits; gpuctl launch RUN.yaml has all that, here and on\n"
      "other machines. Ctrl-C saves a checkpoint. The exit code is the trainer's own.",
      "  gpuctl train run.yaml --checkpoint-dir checkpoints\n"
      "  gpuctl train run.yaml --checkpoint-dir checkpoints --resume auto");
  DeclareRunFlags(parser, flags);
  parser.Option("--checkpoint-dir", directory,
                "Where the checkpoints go; without it, checkpoint.dir of the settings");
  parser.Option("--resume", resume, "A checkpoint to go on from; auto: the newest whole one");
  ASSIGN_OR_RETURN(const bool go_on, parser.Parse(args));
  if (!go_on) return kExitOk;
  RunSpec spec;
  ASSIGN_OR_RETURN(TrainerCall call, CallOf(context, "train", flags, spec));
  call.own_codes = true;
  if (directory.empty() && flags.config.empty() && !SaysWhereToSave(call.input)) {
    return UsageError("train: no place for the checkpoints", "--checkpoint-dir DIR names one");
  }
  if (!directory.empty()) call.words.push_back(absl::StrCat("--checkpoint-dir=", directory));
  if (!resume.empty()) call.words.push_back(absl::StrCat("--resume=", resume));
  std::string printed;
  if (context.json()) {
    call.output = &printed;
    call.env = {"GPUCTL_METRICS=/dev/stdout"};
  }
  ASSIGN_OR_RETURN(const int code, RunTrainer(context, call));
  if (context.json() && code == kExitOk) {
    RETURN_IF_ERROR(PrintResult(context, "train", printed, "done"));
  }
  return code;
}

}  // namespace gpuctl

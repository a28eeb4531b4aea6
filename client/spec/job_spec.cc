#include "client/spec/job_spec.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/exit_codes.h"
#include "client/base/quantity.h"
#include "client/base/shell_quote.h"
#include "common/base/status_macros.h"
#include "common/job/job_layout.h"
#include "common/job/stream_file.h"

namespace gpuctl {
namespace {

// Size limit in bytes; the kernel accepts at most 128 KiB in one environment variable.
constexpr size_t kMaxTrainerConfigBytes = 100'000;
constexpr int64_t kSmallestSegmentBytes = 64 << 10;
// The configuration is part of the spec, so each attempt, also a retry, begins with the same one.
// The script writes it to a file in work/, because the trainer reads its configuration from a file.
// Each of several processes has a file of its own: none may read what another one is writing.
constexpr char kTrainerScript[] =
    "c=.gpuctl/trainer${LOCAL_RANK:+-$LOCAL_RANK}.json && mkdir -p .gpuctl && "
    "printf '%s\\n' \"$GPUCTL_TRAINER_CONFIG\" > \"$c\" && "
    "exec \"$0\" train --config \"$c\"";
// The same, by trainer/build.sh, which compiles the trainer first.
constexpr char kTrainerSourcesScript[] =
    "c=.gpuctl/trainer${LOCAL_RANK:+-$LOCAL_RANK}.json && mkdir -p .gpuctl && "
    "printf '%s\\n' \"$GPUCTL_TRAINER_CONFIG\" > \"$c\" && "
    "exec /bin/sh \"$0/build.sh\" train --config \"$c\"";
// Uses only the NVIDIA driver from the node. The loader searches for it after the kit's own
// libraries, in its usual places and where containers put it. LD_PRELOAD is unset: libraries that
// the node loads into every program were made for other libraries than the kit's.
constexpr char kTrainerKitScript[] =
    "c=.gpuctl/trainer${LOCAL_RANK:+-$LOCAL_RANK}.json && mkdir -p .gpuctl && "
    "printf '%s\\n' \"$GPUCTL_TRAINER_CONFIG\" > \"$c\" && "
    "kit=$PWD/$1 && unset LD_PRELOAD && export OPENSSL_CONF=/dev/null && "
    "exec \"$kit/$0\" --library-path \"$kit/lib:"
    "/usr/local/nvidia/lib64:/usr/lib64:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/"
    "lib/wsl/lib"
    "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" "
    "\"$kit/gpuctl-trainer\" train --config \"$c\"";

absl::Status SetTrainerCommand(const RunSpec& spec, const TrainerStart& trainer,
                               gpuctl::v1::JobSpec& job) {
  if (trainer.way != TrainerStart::Way::kSources && trainer.path.empty()) {
    return absl::FailedPreconditionError("run the built-in trainer: there is none");
  }
  if (spec.trainer_json.size() > kMaxTrainerConfigBytes) {
    return absl::InvalidArgumentError(
        "trainer: the settings are longer than 100 kB; put lists of data into files");
  }
  (*job.mutable_env())["GPUCTL_TRAINER_CONFIG"] = spec.trainer_json;
  SetTrainerStart(trainer, job);
  return absl::OkStatus();
}

// True for well-formed UTF-8: then nothing is left out and nothing replaced.
bool IsUtf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore) ==
         Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::Status CheckText(const std::string& what, const std::string& text, size_t bytes) {
  if (!IsUtf8(text)) {
    return UsageError(absl::StrCat(what, " is not UTF-8"),
                      "put such bytes into a file of the work directory");
  }
  if (text.find('\0') != std::string::npos) {
    return UsageError(absl::StrCat(what, " contains a NUL byte"),
                      "put such bytes into a file of the work directory");
  }
  if (bytes > kLongestArgument) {
    return UsageError(absl::StrCat(what, " has ", bytes, " bytes; a program gets at most ",
                                   kLongestArgument, " in one"),
                      "put it into a file of the work directory");
  }
  return absl::OkStatus();
}

// Refuses what could not be sent to a node, or could not be started there.
absl::Status CheckCommand(const RunSpec& spec, const gpuctl::v1::JobSpec& job) {
  for (int i = 0; i < job.argv_size(); ++i) {
    const bool script = spec.command.empty() && job.argv(i) == spec.run;
    const std::string what = script ? "run:" : absl::StrCat("command: argument ", i + 1);
    RETURN_IF_ERROR(CheckText(what, job.argv(i), job.argv(i).size()));
  }
  RETURN_IF_ERROR(CheckText("setup:", job.setup(), job.setup().size()));
  for (const auto& [name, value] : job.env()) {
    if (!IsUtf8(name)) return UsageError("env: a name is not UTF-8", "use letters and digits");
    RETURN_IF_ERROR(CheckText(absl::StrCat("env: ", name), value, name.size() + value.size() + 1));
  }
  return absl::OkStatus();
}

std::string GpusOf(const gpuctl::v1::HelloReply& node) {
  std::map<std::string, int> counts;
  for (const gpuctl::v1::Gpu& gpu : node.gpus()) {
    ++counts[CanonicalGpuName(gpu.name(), gpu.memory_bytes())];
  }
  if (counts.empty()) return "no GPU";
  std::vector<std::string> parts;
  for (const auto& [name, count] : counts) parts.push_back(absl::StrCat(name, ":", count));
  return absl::StrJoin(parts, ", ");
}

}  // namespace

absl::StatusOr<gpuctl::v1::JobSpec> MakeJobSpec(const RunSpec& spec, const NodeTarget& target,
                                                const TrainerStart& trainer) {
  gpuctl::v1::JobSpec job;
  // On this machine a job finds the same programs as its user's shell.
  if (const char* path = std::getenv("PATH"); target.provider == "local" && path != nullptr) {
    (*job.mutable_env())["PATH"] = path;
  }
  for (const auto& [key, value] : spec.env) (*job.mutable_env())[key] = value;
  for (const std::string& secret : spec.secrets) job.add_secret_names(secret);
  if (!spec.trainer_json.empty()) {
    RETURN_IF_ERROR(SetTrainerCommand(spec, trainer, job));
  } else if (!spec.command.empty()) {
    for (const std::string& word : spec.command) job.add_argv(word);
  } else {
    for (const char* word : {"bash", "-eo", "pipefail", "-c"}) job.add_argv(word);
    job.add_argv(spec.run);
  }
  if (!absl::StripAsciiWhitespace(spec.setup).empty()) job.set_setup(spec.setup);
  gpuctl::v1::RetryPolicy& retry = *job.mutable_retry();
  // When a machine is taken away the laptop does the retry. Only an allocation that its cluster
  // starts again does it itself.
  for (const std::string& condition : spec.retry_on) retry.add_on(condition);
  if (retry.on_size() > 0) retry.set_max_retries(spec.max_retries);
  retry.set_backoff_ms(absl::ToInt64Milliseconds(spec.retry_backoff));
  job.mutable_limits()->set_time_s(
      absl::ToInt64Seconds(absl::Ceil(spec.time_limit, absl::Seconds(1))));
  for (const std::string& condition : spec.stop_if) job.mutable_alerts()->add_stop_if(condition);
  for (const Plateau& plateau : spec.plateaus) {
    gpuctl::v1::PlateauAlert& alert = *job.mutable_alerts()->add_plateau();
    alert.set_metric(plateau.metric);
    alert.set_steps(plateau.steps);
    alert.set_min_delta(plateau.min_delta);
  }
  // 0 means the default.
  job.set_grace_ms(std::max<int64_t>(1, absl::ToInt64Milliseconds(spec.grace)));
  if (spec.gpus.has_value()) job.set_gpus(*spec.gpus);
  const bool known = spec.processes == kOneForEachGpu && spec.gpus.has_value();
  job.set_processes(known ? *spec.gpus : spec.processes);
  job.set_output_limit_bytes(spec.output_limit_bytes);
  if (spec.output_limit_bytes > 0) {
    // Output is dropped by whole segments; small segments can keep a small limit.
    job.set_output_segment_bytes(
        std::clamp(spec.output_limit_bytes / 8, kSmallestSegmentBytes, kDefaultSegmentBytes));
  }
  RETURN_IF_ERROR(CheckCommand(spec, job));
  return job;
}

void SetTrainerStart(const TrainerStart& trainer, gpuctl::v1::JobSpec& job) {
  using Way = TrainerStart::Way;
  job.clear_argv();
  const char* const script = trainer.way == Way::kProgram   ? kTrainerScript
                             : trainer.way == Way::kSources ? kTrainerSourcesScript
                                                            : kTrainerKitScript;
  for (const char* word : {"/bin/sh", "-c", script}) job.add_argv(word);
  job.add_argv(trainer.way == Way::kSources ? kTrainerKitPath : trainer.path);
  if (trainer.way == Way::kKit) job.add_argv(kTrainerKitPath);
}

std::string CommandLine(const RunSpec& spec) {
  constexpr size_t kLongest = 200;
  std::string line;
  if (!spec.trainer_json.empty()) {
    line = "trainer";
  } else if (!spec.command.empty()) {
    std::vector<std::string> words;
    for (const std::string& word : spec.command) words.push_back(ShellQuote(word));
    line = absl::StrJoin(words, " ");
  } else {
    const absl::string_view script = absl::StripAsciiWhitespace(spec.run);
    line = std::string(script.substr(0, script.find('\n')));
  }
  std::replace(line.begin(), line.end(), '\n', ' ');
  if (line.size() > kLongest) line = absl::StrCat(line.substr(0, kLongest), "...");
  return line;
}

absl::Status CheckNodeSatisfies(const RunSpec& spec, const gpuctl::v1::HelloReply& node,
                                const std::string& node_name) {
  if (spec.disk_bytes > node.disk_free_bytes()) {
    return WithExitCode(
        WithHint(absl::NotFoundError(absl::StrCat(
                     node_name, " has ", FormatBytes(node.disk_free_bytes()),
                     " of disk free; the run asks for ", FormatBytes(spec.disk_bytes))),
                 "make room there, or lower resources.disk"),
        kExitCapacity);
  }
  if (spec.gpu.empty()) return absl::OkStatus();
  std::vector<std::string> wanted;
  for (const GpuRequirement& requirement : spec.gpu) {
    wanted.push_back(requirement.text);
    const auto fits = [&requirement](const gpuctl::v1::Gpu& gpu) {
      return GpuSatisfies(requirement, CanonicalGpuName(gpu.name(), gpu.memory_bytes()),
                          gpu.memory_bytes());
    };
    if (std::count_if(node.gpus().begin(), node.gpus().end(), fits) >= requirement.count) {
      return absl::OkStatus();
    }
  }
  return WithExitCode(
      WithHint(
          absl::NotFoundError(absl::StrCat(node_name, " has ", GpusOf(node), "; the run asks for ",
                                           absl::StrJoin(wanted, " or "))),
          spec.providers == std::vector<std::string>{"local"}
              ? "provider local is this computer: without it one is rented; or change --gpu"
              : "gpuctl login PROVIDER once, to rent one; or name a machine with --host, or "
                "change --gpu"),
      kExitCapacity);
}

}  // namespace gpuctl

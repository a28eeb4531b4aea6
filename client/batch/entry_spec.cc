#include "client/batch/entry_spec.h"

#include <algorithm>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/spec/result_patterns.h"
#include "common/base/status_macros.h"
#include "common/files/sha256.h"

namespace gpuctl {

std::string FillIn(absl::string_view text, const Parameters& parameters) {
  std::string filled;
  while (!text.empty()) {
    const size_t open = text.find('{');
    absl::StrAppend(&filled, text.substr(0, open));
    if (open == text.npos) break;
    text.remove_prefix(open);
    const std::pair<std::string, std::string>* found = nullptr;
    for (const auto& parameter : parameters) {
      if (absl::StartsWith(text, absl::StrCat("{", parameter.first, "}"))) found = &parameter;
    }
    absl::StrAppend(&filled, found == nullptr ? "{" : found->second);
    text.remove_prefix(found == nullptr ? 1 : found->first.size() + 2);
  }
  return filled;
}

absl::StatusOr<LaunchRecord> WithParameters(LaunchRecord record, const std::string& name,
                                            const Parameters& parameters) {
  RETURN_IF_ERROR(CheckParameterNames(parameters));
  RunSpec& spec = record.spec;
  spec.name = name;
  spec.run = FillIn(spec.run, parameters);
  spec.setup = FillIn(spec.setup, parameters);
  for (std::string& word : spec.command) word = FillIn(word, parameters);
  for (auto& [variable, value] : spec.env) value = FillIn(value, parameters);
  for (std::string& pattern : spec.checkpoints) pattern = FillIn(pattern, parameters);
  for (std::string& pattern : spec.artifacts) pattern = FillIn(pattern, parameters);
  for (const auto& [parameter, value] : parameters) {
    spec.env[VariableOf(parameter)] = value;
    if (!absl::StartsWith(parameter, kTrainerParameter)) continue;
    if (spec.trainer_json.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(parameter, " is a setting of the built-in trainer, which this run is not"));
    }
    const std::string setting = parameter.substr(sizeof(kTrainerParameter) - 1);
    RETURN_IF_ERROR(SetTrainerOption(absl::StrCat(setting, "=", value), spec));
  }
  RETURN_IF_ERROR(NormalizePatterns("checkpoints", PatternsOf::kCheckpoints, spec.checkpoints));
  RETURN_IF_ERROR(NormalizePatterns("artifacts", PatternsOf::kFiles, spec.artifacts));
  RETURN_IF_ERROR(CheckRunSpec(spec));
  return record;
}

int RentedGpus(const RunSpec& spec) {
  int least = 0;
  for (const GpuRequirement& gpu : spec.gpu) {
    least = least == 0 ? gpu.count : std::min(least, gpu.count);
  }
  return least;
}

int ShareOfMachine(int gpus) { return std::max(1, gpus); }

std::string BatchDigest(const std::vector<std::string>& launches) {
  std::string all;
  for (const std::string& launch : launches) absl::StrAppend(&all, launch.size(), ":", launch);
  return Sha256HexOf(all);
}

}  // namespace gpuctl

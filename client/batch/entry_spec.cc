#include "client/batch/entry_spec.h"

#include <algorithm>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/words/result_patterns.h"
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

std::vector<std::string> NamesWithoutValue(const RunSpec& spec, const Parameters& parameters) {
  std::vector<std::string> names;
  const auto look = [&](absl::string_view text) {
    for (size_t at = text.find('{'); at != text.npos; at = text.find('{', at + 1)) {
      const absl::string_view rest = text.substr(at + 1);
      const absl::string_view name = rest.substr(0, rest.find('}'));
      const bool closed = name.size() < rest.size();
      const bool is_name = !name.empty() &&
                           absl::ascii_isalpha(static_cast<unsigned char>(name[0])) &&
                           std::all_of(name.begin(), name.end(), [](unsigned char c) {
                             return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
                           });
      if (!closed || !is_name || (at > 0 && text[at - 1] == '$')) continue;
      const bool known = std::any_of(parameters.begin(), parameters.end(),
                                     [name](const auto& one) { return one.first == name; });
      if (!known && std::find(names.begin(), names.end(), name) == names.end()) {
        names.emplace_back(name);
      }
    }
  };
  for (const std::string& word : spec.command) look(word);
  look(spec.run);
  return names;
}

std::vector<std::string> NamesWithoutUse(const RunSpec& spec, const Parameters& parameters) {
  const std::string scripts =
      absl::StrCat(absl::StrJoin(spec.command, "\n"), "\n", spec.run, "\n", spec.setup);
  std::string all = absl::StrCat(scripts, "\n", absl::StrJoin(spec.checkpoints, "\n"), "\n",
                                 absl::StrJoin(spec.artifacts, "\n"));
  for (const auto& [variable, value] : spec.env) absl::StrAppend(&all, "\n", value);
  std::vector<std::string> names;
  for (const auto& [name, value] : parameters) {
    const std::string variable = VariableOf(name);
    if (name == variable || absl::StartsWith(name, kTrainerParameter)) continue;
    if (absl::StrContains(all, absl::StrCat("{", name, "}"))) continue;
    if (!absl::StrContains(scripts, variable)) names.push_back(name);
  }
  return names;
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

// What flags say of the built-in trainer. The declarations are in run_spec.h.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/spec/run_spec.h"
#include "client/spec/yaml_reader.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::string_view TrainerBuildName(TrainerBuild build) {
  switch (build) {
    case TrainerBuild::kNode:
      return "node";
    case TrainerBuild::kKit:
      return "kit";
    case TrainerBuild::kAuto:
      break;
  }
  return "auto";
}

absl::StatusOr<TrainerBuild> ParseTrainerBuild(absl::string_view word) {
  for (const TrainerBuild build : {TrainerBuild::kAuto, TrainerBuild::kNode, TrainerBuild::kKit}) {
    if (word == TrainerBuildName(build)) return build;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("trainer: build: \"", word, "\" is none of auto, node, kit"));
}

absl::Status SetTrainerOption(absl::string_view assignment, RunSpec& spec) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  const std::vector<std::string> keys = absl::StrSplit(parts.first, '.');
  bool good = assignment.find('=') != absl::string_view::npos && keys.size() <= 8;
  for (const std::string& key : keys) good = good && !key.empty();
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: \"", assignment, "\" is no setting; write section.key=value"));
  }
  if (parts.first == "build") {
    ASSIGN_OR_RETURN(spec.trainer_build, ParseTrainerBuild(parts.second));
    return absl::OkStatus();
  }
  nlohmann::json json = nlohmann::json::object();
  if (!spec.trainer_json.empty()) json = nlohmann::json::parse(spec.trainer_json, nullptr, false);
  nlohmann::json* slot = &json;
  for (const std::string& key : keys) {
    if (!slot->is_object()) *slot = nlohmann::json::object();
    slot = &(*slot)[key];
  }
  const YamlPlace place{"--trainer", std::string(parts.first)};
  try {
    ASSIGN_OR_RETURN(*slot, YamlToJson(place, YAML::Load(std::string(parts.second))));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: cannot read the value of ", assignment, ": ", error.msg));
  }
  spec.trainer_json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return absl::OkStatus();
}

}  // namespace gpuctl

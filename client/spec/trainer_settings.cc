#include "client/spec/trainer_settings.h"

#include <algorithm>
#include <exception>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/base/suggest.h"
#include "common/base/status_macros.h"
#include "trainer/config/config.h"

namespace gpuctl {
namespace {

// Converts the trainer's exceptions into statuses.
template <typename Check>
absl::Status Try(Check check) {
  try {
    check();
  } catch (const std::exception& error) {
    absl::string_view cause = error.what();
    absl::ConsumePrefix(&cause, "read configuration: ");
    return absl::InvalidArgumentError(absl::StrCat("trainer: ", cause));
  }
  return absl::OkStatus();
}

const std::vector<std::string>& RowMasks() {
  static const auto* const masks = new std::vector<std::string>{"assistant", "last", "all"};
  return *masks;
}

nlohmann::ordered_json SchemaOf(const trainer::Field& field) {
  nlohmann::ordered_json schema;
  if (std::holds_alternative<bool*>(field.slot)) {
    schema["type"] = "boolean";
  } else if (std::holds_alternative<std::string*>(field.slot)) {
    schema["type"] = "string";
    if (!field.choices.empty()) schema["enum"] = field.choices;
  } else if (std::holds_alternative<std::vector<std::string>*>(field.slot)) {
    schema["type"] = {"array", "string"};
    schema["items"]["type"] = "string";
  } else {
    schema["type"] = std::holds_alternative<int64_t*>(field.slot) ? "integer" : "number";
    schema["minimum"] = field.low;
    schema["maximum"] = field.high;
  }
  schema["description"] = field.help;
  return schema;
}

absl::Status TakeText(const char* key, nlohmann::json& section, std::string& text) {
  const auto found = section.find(key);
  if (found == section.end()) return absl::OkStatus();
  if (!found->is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer: data.", key, ": must be text, not ",
                     found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }
  text = found->get<std::string>();
  section.erase(found);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RowSettings> TakeRowSettings(nlohmann::json& settings) {
  RowSettings rows;
  if (!settings.is_object() || !settings.contains("data") || !settings["data"].is_object()) {
    return rows;
  }
  nlohmann::json& section = settings["data"];
  RETURN_IF_ERROR(TakeText("template", section, rows.template_file));
  RETURN_IF_ERROR(TakeText("mask", section, rows.mask));
  const std::vector<std::string>& masks = RowMasks();
  if (rows.mask.empty() || std::find(masks.begin(), masks.end(), rows.mask) != masks.end()) {
    return rows;
  }
  return absl::InvalidArgumentError(absl::StrCat("trainer: data.mask: \"", rows.mask,
                                                 "\" is none of ", absl::StrJoin(masks, ", "),
                                                 DidYouMean(rows.mask, masks)));
}

absl::Status CheckTrainerKeys(const nlohmann::json& settings) {
  nlohmann::json rest = settings;
  RETURN_IF_ERROR(TakeRowSettings(rest).status());
  return Try([&rest] { trainer::ReadConfig(rest); });
}

absl::Status CheckTrainerSettings(absl::string_view trainer_json) {
  nlohmann::json settings = nlohmann::json::parse(trainer_json, nullptr, false);
  RETURN_IF_ERROR(TakeRowSettings(settings).status());
  bool data = false;
  const absl::Status status =
      Try([&] { data = !trainer::ParseConfig(settings).data.paths.empty(); });
  if (!status.ok() || data) return status;
  return absl::InvalidArgumentError(
      "trainer: data.paths is empty; name what to train on, relative to the work directory");
}

nlohmann::ordered_json TrainerSettingsSchema() {
  trainer::Config config;
  nlohmann::ordered_json sections = nlohmann::ordered_json::object();
  for (const trainer::Section& section : trainer::Sections(config)) {
    nlohmann::ordered_json fields = nlohmann::ordered_json::object();
    for (const trainer::Field& field : section.fields) fields[field.key] = SchemaOf(field);
    if (section.key == "data") {
      fields["template"] = {{"type", "string"},
                            {"description", "file with a chat template in place of the model's"}};
      fields["mask"] = {{"enum", RowMasks()}, {"description", "what of a row is learned"}};
    }
    sections[section.key] = {
        {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(fields)}};
  }
  return sections;
}

}  // namespace gpuctl

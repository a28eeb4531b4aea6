#include "client/spec/trainer_settings.h"

#include <algorithm>
#include <exception>
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
  const std::vector<std::string> masks = {"assistant", "last", "all"};
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

}  // namespace gpuctl

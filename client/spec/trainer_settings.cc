#include "client/spec/trainer_settings.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

}  // namespace

absl::Status CheckTrainerKeys(const nlohmann::json& settings) {
  return Try([&settings] { trainer::ReadConfig(settings); });
}

absl::Status CheckTrainerSettings(absl::string_view trainer_json) {
  const nlohmann::json settings = nlohmann::json::parse(trainer_json, nullptr, false);
  bool data = false;
  const absl::Status status =
      Try([&] { data = !trainer::ParseConfig(settings).data.paths.empty(); });
  if (!status.ok() || data) return status;
  return absl::InvalidArgumentError(
      "trainer: data.paths is empty; name what to train on, relative to the work directory");
}

}  // namespace gpuctl

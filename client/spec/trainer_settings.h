// Checks a run's settings for the built-in trainer before a machine is rented.
#ifndef GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_
#define GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// The settings of the section data that gpuctl uses itself, where it prepares rows for the trainer.
struct RowSettings {
  std::string template_file;  // "": the model's chat template
  std::string mask;           // "assistant", "last", "all", or "" for the first of them

  bool empty() const { return template_file.empty() && mask.empty(); }
};
// Takes them out of `settings`. INVALID_ARGUMENT for a wrong type or value.
absl::StatusOr<RowSettings> TakeRowSettings(nlohmann::json& settings);

// Checks each key in the sections of `settings` alone. INVALID_ARGUMENT, in the trainer's own
// words, for an unknown key, a wrong type or a value out of range.
absl::Status CheckTrainerKeys(const nlohmann::json& settings);

// Does the same for the complete settings of a run. Checks also that they fit together and name
// data. Opens no file.
absl::Status CheckTrainerSettings(absl::string_view trainer_json);

// Returns the JSON Schema of the settings' sections, from the trainer's own table.
nlohmann::ordered_json TrainerSettingsSchema();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_

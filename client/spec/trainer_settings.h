// Whether the built-in trainer takes the settings of a run, found out before a machine is rented.
#ifndef GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_
#define GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// `settings` as sections of keys, each by itself: an unknown key, a wrong type, a value out of
// range is INVALID_ARGUMENT, in the trainer's own words.
absl::Status CheckTrainerKeys(const nlohmann::json& settings);

// The same for all that a run is to be trained with: whether they fit together as well, and name
// data. Looks at no file.
absl::Status CheckTrainerSettings(absl::string_view trainer_json);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_TRAINER_SETTINGS_H_

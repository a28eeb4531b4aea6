// PEFT's adapter_config.json: what an adapter of low-rank matrices is, beside its tensors.
//
// The keys and their default values are those that the peft library writes, versions 0.5 to 0.18.

#ifndef TRAINER_CONFIG_ADAPTER_CONFIG_H_
#define TRAINER_CONFIG_ADAPTER_CONFIG_H_

#include <nlohmann/json.hpp>
#include <string>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Returns rank, alpha, dropout, rank_scaled and dora of an adapter_config.json. Targets and modules
// to save are left empty: PEFT may give them as a regular expression, and the names of the tensors
// say the same. Throws Error(kBadData) that names the key or value: missing, out of range, or
// something that this program does not compute (another kind of adapter, ranks that differ, …).
// `path` names the file in messages.
LoraConfig LoraFromPeft(const nlohmann::json& config, const std::string& path);

// Returns the adapter_config.json of an adapter for the model in the folder `base`. `lora.targets`
// and `lora.modules_to_save` are names in PEFT's sense, without patterns.
nlohmann::json LoraToPeft(const LoraConfig& lora, const std::string& base);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_ADAPTER_CONFIG_H_

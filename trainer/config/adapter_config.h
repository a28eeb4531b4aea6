// PEFT's adapter_config.json: what an adapter of low-rank matrices is, beside its tensors.
//
// The keys and their default values are those that the peft library writes, versions 0.5 to 0.18.

#ifndef TRAINER_CONFIG_ADAPTER_CONFIG_H_
#define TRAINER_CONFIG_ADAPTER_CONFIG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/name_pattern.h"

namespace gpuctl::trainer {

// What adapter_config.json says.
struct AdapterConfig {
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::pair<NamePattern, int64_t>> ranks;  // of some modules
  std::vector<std::pair<NamePattern, double>> alphas;
  double dropout = 0;
  bool rank_stabilised = false;
  bool dora = false;
  std::vector<std::string> targets;  // empty: given by a regular expression
  std::vector<std::string> saved;    // modules that are stored whole
  std::string base;                  // base_model_name_or_path, or ""
};

// Throws Error(kBadData) that names the key: missing, of another type, or something that changes
// the result and is not computed here. A key that is not known here is refused unless its value is
// false, null, 0 or empty. `path` names the file in messages.
AdapterConfig ParseAdapterConfig(const nlohmann::json& config, const std::string& path);

// Whether one of PEFT's `names` names the module: it is that, or the end of it behind a dot.
bool NamesModule(const std::vector<std::string>& names, const std::string& module);

// Throws Error(kBadData) when modules_to_save names one that decoders have and of which nothing is
// stored. Of an embedding that is also the head, one name may be missing. `modules` are those
// that are stored whole. `path` is the adapter, for messages.
void CheckSaved(const AdapterConfig& adapter, const std::vector<std::string>& modules,
                const std::string& path);

// Returns rank, alpha, dropout, rank_scaled and dora of an adapter that is trained on or runs
// beside the model. Targets and modules to save are left empty: PEFT may give them as a regular
// expression, and the names of the tensors say the same. Throws Error(kBadData) as
// ParseAdapterConfig does, and for what only merging and exporting can: ranks or alphas that
// differ, other tasks.
LoraConfig LoraFromPeft(const nlohmann::json& config, const std::string& path);

// Returns the adapter_config.json of an adapter for the model in the folder `base`. `lora.targets`
// and `lora.modules_to_save` are names in PEFT's sense, without patterns.
nlohmann::json LoraToPeft(const LoraConfig& lora, const std::string& base);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_ADAPTER_CONFIG_H_

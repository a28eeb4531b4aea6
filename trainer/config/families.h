// Reads a Hugging Face config.json: a table of model families says what its model_type means.
//
// Sources of the formulas: Llama (Touvron et al., arXiv 2302.13971), Llama 3.1's rotary scaling
// (arXiv 2407.21783), Mistral's windows (arXiv 2310.06825), Qwen2's biases (arXiv 2407.10671),
// Qwen3's norms of heads (arXiv 2505.09388), Gemma 3 (arXiv 2503.19786); the keys and their default
// values are those that transformers writes, version 4 (rope_theta, rope_scaling, torch_dtype) and
// version 5 (rope_parameters, dtype).

#ifndef TRAINER_CONFIG_FAMILIES_H_
#define TRAINER_CONFIG_FAMILIES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Returns the model of a config.json; `context` is its largest number of positions. Throws
// Error(kBadData) that names the key or value: missing, out of range, or something that this
// program does not compute (another model_type, rope type, activation, quantized weights, …).
// `path` names the file in messages.
ModelConfig ModelFromHuggingFace(const nlohmann::json& config, const std::string& path);

// Returns a model that began here as the config.json of a Hugging Face Llama.
nlohmann::json ModelToHuggingFace(const ModelConfig& model);

// Returns the tokens that end a text: eos_token_id of generation_config.json if it is there, else
// of config.json; a number, a list or null. Throws Error(kBadData) for anything else.
std::vector<int64_t> StopTokens(const nlohmann::json& config,
                                const nlohmann::json& generation_config, const std::string& path);

// Sets the dtype of the weights ("float32", "bfloat16", "float16") under the keys that `config`
// already has, torch_dtype of version 4 or dtype of version 5; torch_dtype if it has none.
void SetHuggingFaceDtype(const std::string& dtype, nlohmann::json* config);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CONFIG_FAMILIES_H_

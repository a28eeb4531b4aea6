// The weights of a model under their names in model folders and in GGUF files.
//
// Sources: the modules of transformers' models (modeling_llama.py and those of the other families);
// gguf-py's tensor_mapping.py.

#ifndef TRAINER_INTERCHANGE_WEIGHT_NAMES_H_
#define TRAINER_INTERCHANGE_WEIGHT_NAMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/stored_file.h"
#include "trainer/config/config.h"

namespace gpuctl::trainer {

struct WeightName {
  std::string stored;          // model.layers.0.self_attn.q_proj.weight
  std::string gguf;            // blk.0.attn_q.weight
  std::vector<int64_t> shape;  // outermost first
  int64_t rotated_heads = 0;   // heads in the rows of q and k, which turn with the position; or 0
};

// Returns all weights of a model, in the order of their use. A tied head is not there.
std::vector<WeightName> WeightNames(const ModelConfig& model);

// Refuses weights that are not those of the model: missing, of another shape, unknown. The head of
// a tied model, and what older files have of the rotation, are not looked at. Throws
// Error(kBadData).
void CheckWeights(const std::vector<WeightName>& names,
                  const std::map<std::string, StoredPlace>& places, bool tied_head,
                  const std::string& folder);

}  // namespace gpuctl::trainer

#endif  // TRAINER_INTERCHANGE_WEIGHT_NAMES_H_

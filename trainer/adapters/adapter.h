// Reads an adapter as PEFT writes it: adapter_config.json and adapter_model.safetensors.
//
// Sources: LoRA (Hu et al., arXiv 2106.09685), rank-stabilised (Kalajdzievski, arXiv 2312.03732),
// DoRA (Liu et al., arXiv 2402.09353); the keys and names are those of PEFT's LoraConfig and
// get_peft_model_state_dict.

#ifndef TRAINER_ADAPTERS_ADAPTER_H_
#define TRAINER_ADAPTERS_ADAPTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/stored_file.h"
#include "trainer/config/adapter_config.h"

namespace gpuctl::trainer {

// One matrix that the adapter changes: W + scale B A; with DoRA, each row of that gets the length
// `magnitude`.
struct AdapterModule {
  std::string name;  // model.layers.0.self_attn.q_proj
  StoredPlace a;     // [rank, columns]
  StoredPlace b;     // [rows, rank]
  std::optional<StoredPlace> magnitude;
  int64_t rank = 0;
  double scale = 0;

  int64_t rows() const { return b.tensor.shape[0]; }
  int64_t columns() const { return a.tensor.shape[1]; }
};

struct Adapter {
  std::string path;
  AdapterConfig config;
  std::vector<AdapterModule> modules;           // by name
  std::map<std::string, StoredPlace> replaced;  // weights that are stored whole, by name
};

// Sorts the tensors of an adapter into modules, and checks their shapes. Throws Error(kBadData)
// that names the tensor.
Adapter ArrangeAdapter(const std::string& path, AdapterConfig config,
                       const std::map<std::string, StoredPlace>& places);

// Reads the folder of an adapter. That of a checkpoint of the trainer's is verified in the same
// pass, which takes all its tensors into memory; the moments are not read. Throws Error(kBadData),
// Error(kIo).
Adapter ReadAdapter(const std::string& folder);

// Returns all numbers of a tensor. Throws Error(kBadData) when one is not finite, Error(kIo).
std::vector<float> ReadNumbers(const StoredPlace& place);

}  // namespace gpuctl::trainer

#endif  // TRAINER_ADAPTERS_ADAPTER_H_

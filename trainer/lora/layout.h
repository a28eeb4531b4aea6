// Which matrices of a model have adapters, and which weights are trained: what a configuration
// `lora` means for a model.

#ifndef TRAINER_LORA_LAYOUT_H_
#define TRAINER_LORA_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// One matrix of a block that has adapters, or that is packed into 4 bits.
struct AdaptedMatrix {
  size_t spec;  // its index in the specs
  size_t block;
  size_t place;    // in the block: 0 q, k, v; 1 o; 2 gate, up; 3 down
  int64_t inputs;  // D
  std::vector<LoraPart> parts;
  std::vector<std::string> modules;  // one for each part
  std::vector<int64_t> packed_rows;  // of the modules of a packed matrix; else empty
  int64_t rows() const;              // of all parts
};

// The weights of a run, in order: those of the model, then for each matrix with adapters A, B and,
// with DoRA, the magnitudes. Each adapter's slices have the names of PEFT, without its prefix.
struct AdapterLayout {
  LoraConfig lora;
  bool tied_head = false;
  size_t model_specs = 0;  // how many of the specs are the model's
  std::vector<ParameterSpec> specs;
  std::vector<bool> frozen;  // for each spec
  std::vector<AdaptedMatrix> matrices;

  bool adapted() const { return specs.size() > model_specs; }
  int64_t TrainedElements() const;
  // The embedding is trained and is also the head. An adapter stores it under both names, because
  // PEFT has a copy of each.
  bool SavesTiedHead() const { return adapted() && tied_head && !frozen[0]; }
};

// Without adapters (lora.rank 0) all weights but those of train.freeze are trained. With them only
// the adapters and the modules that lora.modules_to_save names. A name means the modules that have
// it or end with it behind a dot; * stands for any text; all-linear in lora.targets means all
// linears of the blocks. With lora.base_dtype nf4 all frozen matrices of the blocks are packed; the
// run's weights have QuantizeNf4's bytes in their place. Throws Error(kBadConfig) for a name that
// means no module, a module that both lists name, modules_to_save that are a part of one matrix
// here; or like FrozenParameters.
AdapterLayout MakeAdapterLayout(const Config& config);

// Returns lora with targets and modules_to_save as names in the sense of PEFT, without patterns:
// the last part of the names where it means just these modules, else whole names.
LoraConfig PeftNames(const AdapterLayout& layout);

// Returns the operations to train on one token, like FlopsPerToken; 6 for each weight of an
// adapter.
double TrainingFlopsPerToken(const Config& config);
// Returns the operations to train on so many tokens, of which `scored` have a target: the head
// works for these alone.
double TrainingFlops(const Config& config, double tokens, double scored);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LORA_LAYOUT_H_

// Reads and writes adapters as the peft library does: adapter_config.json beside
// adapter_model.safetensors, whose tensors are base_model.model.<module>.lora_A.weight [r, inputs],
// .lora_B.weight [outputs, r], .lora_magnitude_vector [outputs], and base_model.model.<weight> for
// modules that were trained in full.

#ifndef TRAINER_LORA_ADAPTER_FILES_H_
#define TRAINER_LORA_ADAPTER_FILES_H_

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"
#include "trainer/lora/layout.h"

namespace gpuctl::trainer {

// Returns what the adapter in `folder` is; targets and modules_to_save are those of its tensors, as
// PeftNames writes them. Reads adapter_config.json and the header of the tensors, and allocates
// nothing before both fit `model`. Throws Error(kBadData) that names the key or the tensors that
// cannot be used; Error(kIo).
LoraConfig ReadAdapterConfig(const std::string& folder, const ModelConfig& model);

// Copies the adapter of `folder` into the tensors of `flat` that are trained, in the order of the
// layout's specs, and converts dtype and device. Throws Error(kBadData) when names or shapes are
// not those of the layout, or when the model's head is tied and the adapter has two different ones;
// Error(kIo). `sha256` (may be null) gets the digest of the file of tensors, from the same bytes.
void ReadAdapterInto(const std::string& folder, const AdapterLayout& layout,
                     const std::vector<at::Tensor>& flat, std::string* sha256 = nullptr);

// Returns the trained tensors of `flat` under their names in the file. Views, not copies.
NamedTensors NameAdapter(const AdapterLayout& layout, const std::vector<at::Tensor>& flat);

// Copies tensors under those names into the trained ones of `flat`. Throws like ReadAdapterInto;
// `what` names the source.
void LoadAdapter(const AdapterLayout& layout, std::map<std::string, at::Tensor> stored,
                 const std::string& what, const std::vector<at::Tensor>& flat);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LORA_ADAPTER_FILES_H_

// Reads the weights of a model folder.

#ifndef TRAINER_MODEL_PRETRAINED_H_
#define TRAINER_MODEL_PRETRAINED_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "trainer/checkpoint/model_folder.h"
#include "trainer/config/config.h"

namespace gpuctl::trainer {

// Returns the weights of `model`, in the order of ParameterSpecs, with dtype and device of
// `options`. First compares names and shapes of all stored tensors with the model's, and allocates
// nothing before they fit. Throws Error(kBadData) that names the tensors that are missing, too many
// or of another shape. Old rotary tables (rotary_emb.inv_freq), and lm_head.weight where the head
// is tied, may be there and are not read.
std::vector<at::Tensor> ReadPretrained(const std::string& folder, const ModelConfig& model,
                                       const at::TensorOptions& options);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_PRETRAINED_H_

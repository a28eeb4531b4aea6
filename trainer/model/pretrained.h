// Reads the weights of a model folder.

#ifndef TRAINER_MODEL_PRETRAINED_H_
#define TRAINER_MODEL_PRETRAINED_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trainer/checkpoint/model_folder.h"
#include "trainer/config/config.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// Returns the shape of each tensor on disk.
std::map<std::string, std::vector<int64_t>> StoredShapes(const std::vector<ParameterSpec>& specs);
// Throws Error(kBadData) "doing: why" that names the tensors of `stored` that are missing, too many
// or of another shape. The names in `unused` may be there.
void CheckStoredShapes(const std::map<std::string, std::vector<int64_t>>& shapes,
                       const std::map<std::string, StoredTensor>& stored,
                       const std::function<bool(const std::string&)>& unused,
                       const std::string& doing);

// Reads the headers of the files alone, and throws what ReadPretrained would.
void CheckPretrained(const std::string& folder, const ModelConfig& model);

// Returns the weights of `model`, in the order of ParameterSpecs, with dtype and device of
// `options`, or as `keep` returns them: it gets each weight in fp32 on the CPU, with the index of
// its spec, when the last row of it is read. They are read in the order of the files; with `sha256`
// it also computes the SHA-256 of each of them, by its path, from the same bytes. First compares
// names and shapes of all stored tensors with the model's, and allocates nothing before they fit.
// Throws Error(kBadData) that names the tensors that are missing, too many or of another shape. Old
// rotary tables (rotary_emb.inv_freq), and lm_head.weight where the head is tied, may be there and
// are not read.
std::vector<at::Tensor> ReadPretrained(const std::string& folder, const ModelConfig& model,
                                       const std::function<at::Tensor(size_t, at::Tensor)>& keep,
                                       FileDigests* sha256 = nullptr);
std::vector<at::Tensor> ReadPretrained(const std::string& folder, const ModelConfig& model,
                                       const at::TensorOptions& options,
                                       FileDigests* sha256 = nullptr);

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_PRETRAINED_H_

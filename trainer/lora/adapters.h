// The tensors of adapters: initial values, their place in the network, merging into its weights.

#ifndef TRAINER_LORA_ADAPTERS_H_
#define TRAINER_LORA_ADAPTERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/lora/layout.h"
#include "trainer/model/parameters.h"

namespace gpuctl::trainer {

// Appends the initial adapters to the model's weights, in fp32 on the CPU, as PEFT makes them: A
// uniform in +-1 / sqrt(inputs) (kaiming_uniform with a = sqrt(5)), B zeros, magnitudes the lengths
// of the rows of W. A pure function of layout, seed and weights, on every machine; an adapter's A
// does not depend on which others there are.
void AppendInitialAdapters(const AdapterLayout& layout, uint64_t seed,
                           std::vector<at::Tensor>* flat);

// Returns a matrix of the layout.
FrozenMatrix MatrixOf(const AdaptedMatrix& matrix, const at::Tensor& stored);

// Returns for each matrix with adapters the lengths of its adapted rows, fp32; without DoRA none.
// `flat` is in the order of the specs.
std::vector<at::Tensor> BaseLengths(const AdapterLayout& layout,
                                    const std::vector<at::Tensor>& flat);

// Puts the adapters of `flat` beside their matrices. `lengths` are those of BaseLengths. All passes
// leave out what `draw` says at that time.
void AttachAdapters(const AdapterLayout& layout, const std::vector<at::Tensor>& flat,
                    const std::vector<at::Tensor>& lengths,
                    const std::shared_ptr<const DropoutDraw>& draw, GptWeights* weights);

// Adds the adapters to their matrices, which they overwrite, and removes them from `flat`. The sums
// are in fp32 and rounded to the dtype of the matrices, which must be dense.
void MergeAdapters(const AdapterLayout& layout, std::vector<at::Tensor>* flat);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LORA_ADAPTERS_H_

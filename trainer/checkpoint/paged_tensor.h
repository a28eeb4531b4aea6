// Tensors whose memory comes page by page, and goes at once.

#ifndef TRAINER_CHECKPOINT_PAGED_TENSOR_H_
#define TRAINER_CHECKPOINT_PAGED_TENSOR_H_

#include <ATen/core/Tensor.h>

namespace gpuctl::trainer {

// Returns zeros. On the CPU a tensor of 1 MiB and more takes memory only where it is written, and
// is the system's again as soon as it is freed. So tensors that are copied one by one into others
// need no memory for both. Throws as at::zeros does.
at::Tensor PagedZeros(at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace gpuctl::trainer

#endif  // TRAINER_CHECKPOINT_PAGED_TENSOR_H_

// Copies between the CPU and an accelerator.

#ifndef TRAINER_MODEL_TRANSFER_H_
#define TRAINER_MODEL_TRANSFER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpuctl::trainer {

// Returns a tensor of the CPU on `device`; the tensor itself if it is there. For CUDA it goes by
// way of pinned memory, so that neither waits for the other. An undefined tensor stays undefined.
at::Tensor ToDevice(const at::Tensor& host, const at::Device& device);

// Returns the tensor on the CPU. Waits until an accelerator has done all work so far: an optimizer
// step calls it once.
at::Tensor ToHost(const at::Tensor& there);
// Returns how many calls of ToHost there were in this process. Thread-safe. For tests.
int64_t HostReads();

}  // namespace gpuctl::trainer

#endif  // TRAINER_MODEL_TRANSFER_H_

// Dropout of an adapter's inputs, as a pure function of (seed, module, window of the run, element).
//
// So neither micro-batches nor the number of workers change what is left out, and backward makes
// the same choice again instead of keeping it.

#ifndef TRAINER_LINEAR_DROPOUT_H_
#define TRAINER_LINEAR_DROPOUT_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpuctl::trainer {

// What a forward pass leaves out.
struct DropoutDraw {
  double share = 0;  // of the inputs; 0: nothing is left out. Counts in steps of 2^-16
  uint64_t seed = 0;
  int64_t first_window = 0;  // number of the batch's first window since the run began
  int64_t tokens = 1;        // rows of a window
};

// Returns the factors of the elements [rows of whole windows, columns]: 0 with the probability
// share, else 1 / (1 - share), in fp32 on `device`. `module` tells adapters apart. All CPUs give
// the same; an accelerator has a generator of its own, which gets the same key for each window.
at::Tensor DropoutFactors(const DropoutDraw& draw, uint32_t module, int64_t rows, int64_t columns,
                          const at::Device& device);
// Does it as an accelerator does, on any device. Seeds LibTorch's generator of the device.
at::Tensor DropoutFactorsByGenerator(const DropoutDraw& draw, uint32_t module, int64_t rows,
                                     int64_t columns, const at::Device& device);

// Returns x [rows, columns] times the factors, in the dtype of x.
at::Tensor DropInputs(const DropoutDraw& draw, uint32_t module, const at::Tensor& x_nd);

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_DROPOUT_H_

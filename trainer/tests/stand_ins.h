// Operators of LibTorch 2 for an older one: they have its schemas, check the arguments and compute
// the same plainly. A program that links stand_ins.cc has them.

#ifndef TRAINER_TESTS_STAND_INS_H_
#define TRAINER_TESTS_STAND_INS_H_

#include <torch/version.h>

#include <string>
#include <vector>

namespace gpuctl::trainer {

#if TORCH_VERSION_MAJOR < 2
// How often each was called in this process.
struct StandInCalls {
  int attention = 0;
  int flash = 0;
  int flash_backward = 0;
  int adamw = 0;
  int in_fixed_order = 0;  // backward passes of flash attention in a DeterministicScope
  int rms_norm = 0;
  int rms_norm_backward = 0;
  int wide_products = 0;
  int pins = 0;  // tensors that were copied to pinned memory
};
StandInCalls& Calls();
// Flash attention has no backward pass in a fixed order while this is true.
extern bool has_no_fixed_order;

// What was asked of CUDA's streams, such as "record 0" (on stream 0) and "block 1".
std::vector<std::string>& StreamCalls();
#endif

}  // namespace gpuctl::trainer

#endif  // TRAINER_TESTS_STAND_INS_H_

// Trades time for memory: computes a part of the network again in the backward pass, instead of
// keeping what it needs.

#ifndef TRAINER_LINEAR_RECOMPUTE_H_
#define TRAINER_LINEAR_RECOMPUTE_H_

#include <ATen/core/Tensor.h>

#include <functional>

namespace gpuctl::trainer {

// Where the result of a part is to lie. What a part frees leaves a hole in the heap; a result that
// lay in it would divide it.
struct RecomputeRoom {
  at::Tensor result;  // undefined: anywhere
};

// Returns part(x), differentiable, and keeps only x until the backward pass. `part` must give the
// same bits each time; all that it refers to must live until then. The gradients of its weights,
// which must be leaves that nothing else uses, are added to their grad() at once.
at::Tensor Recomputed(const std::function<at::Tensor(const at::Tensor&)>& part, const at::Tensor& x,
                      const RecomputeRoom& room = {});

}  // namespace gpuctl::trainer

#endif  // TRAINER_LINEAR_RECOMPUTE_H_

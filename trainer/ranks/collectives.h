// Operations in which all processes of a run take part, in the same order in each of them.

#ifndef TRAINER_RANKS_COLLECTIVES_H_
#define TRAINER_RANKS_COLLECTIVES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/ranks/store.h"

namespace gpuctl::trainer {

class Collectives {
 public:
  // An operation that goes on beside the caller's work.
  class Pending {
   public:
    virtual ~Pending() = default;
    // Waits until the tensor has the result. Throws Error(kTryAgain) when another rank is gone.
    virtual void Wait() = 0;
  };

  virtual ~Collectives() = default;

  // Begins to add the tensors of all ranks, in place. Contiguous, fp32 or fp64, of one size in all
  // ranks. All of them get the same bits. The tensor belongs to the operation until Wait returns.
  virtual std::unique_ptr<Pending> BeginSum(const at::Tensor& tensor) = 0;
  // Overwrites the tensors of all ranks by that of one. Contiguous, of one size, any dtype.
  virtual void Broadcast(const at::Tensor& tensor, int64_t from) = 0;
  // "gloo"
  virtual std::string name() const = 0;
};

// What an operation asks while it waits, and when it failed.
struct Peers {
  std::function<std::string()> trouble;       // "" while all are alive
  std::function<std::string()> find_trouble;  // waits for the answer
  std::function<void()> notice;               // the caller throws now
};

// Return null where LibTorch, or the machine, does not have it. Throw Error.
std::unique_ptr<Collectives> JoinGloo(const Ranks& ranks, const Store& store, Peers peers);

// Throws Error(kTryAgain) about the trouble, or about `what` when there is none.
[[noreturn]] void ThrowLost(const Peers& peers, const std::string& trouble,
                            const std::string& what);

}  // namespace gpuctl::trainer

#endif  // TRAINER_RANKS_COLLECTIVES_H_

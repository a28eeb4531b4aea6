// The gradients of a process that is one of several, and their sum over all of them. What is ready
// is added while the backward passes still work on the rest.

#ifndef TRAINER_STEP_GRADIENT_BUCKETS_H_
#define TRAINER_STEP_GRADIENT_BUCKETS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "trainer/model/parameters.h"
#include "trainer/ranks/group.h"

namespace gpuctl::trainer {

class GradientBuckets {
 public:
  // Makes room for the gradients of the `trained` ones of the specs, in fp32. The last ones, which
  // the backward pass reaches first, are in the first bucket; the same in all ranks. `merge` adds
  // the gradients of a process's other workers to its first one's, for one parameter.
  GradientBuckets(Collectives& collectives, const std::vector<ParameterSpec>& specs,
                  const std::vector<size_t>& trained, c10::Device device, int workers,
                  std::function<void(size_t parameter)> merge);

  // Returns the place of a parameter's gradient, in its shape. Its sum comes there, too.
  const at::Tensor& Place(size_t parameter) const { return places_[parameter]; }

  // Begins a step: nothing is ready, all places are 0.
  void Begin();
  // A worker's gradient of this parameter is complete. A bucket goes on its way when all of it is,
  // behind those before it. Thread-safe.
  void Ready(int worker, size_t parameter);
  // The worker is through; what it had no gradient of counts as complete, too.
  void ReadyAll(int worker);
  // Sends what is left, whatever is in it, and waits for all sums. All ranks must come here in each
  // step, also when a worker failed. Throws Error(kTryAgain) when a rank is gone.
  void Finish();
  // Buckets of the last step that were on their way during a backward pass.
  int64_t sent_early() const { return sent_early_; }
  int64_t count() const { return static_cast<int64_t>(buckets_.size()); }

 private:
  struct Bucket {
    at::Tensor sum;
    std::vector<size_t> parameters;
    int64_t missing = 0;  // gradients of workers
    std::unique_ptr<Collectives::Pending> pending;
  };
  void Count(int worker, size_t parameter);
  void SendReady();
  void Send(Bucket& bucket);

  Collectives& collectives_;
  const int workers_;
  const std::function<void(size_t)> merge_;
  std::vector<at::Tensor> places_;  // of each spec; undefined where it is frozen
  std::vector<size_t> bucket_of_;   // of each spec
  std::mutex mutex_;
  std::vector<Bucket> buckets_;           // guarded by mutex_
  std::vector<std::vector<bool>> ready_;  // guarded by mutex_; of worker and spec
  size_t next_ = 0;                       // guarded by mutex_; the first one not sent
  int64_t sent_early_ = 0;
};

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_GRADIENT_BUCKETS_H_

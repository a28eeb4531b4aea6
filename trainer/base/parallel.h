// Work on all cores before training begins, when the workers of a run are not there yet.

#ifndef TRAINER_BASE_PARALLEL_H_
#define TRAINER_BASE_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace gpuctl::trainer {

// Returns the number of cores that this process may use; in a container it is smaller than the
// machine's.
int UsableCores();

// Calls `work` for ranges [begin, end) that cover [0, count), of `grain` or more each but for the
// last, on as many threads as there are usable cores, or as the system gives. Returns when all have
// returned; if some threw, rethrows the exception of the lowest range.
void ForRangesOnCores(int64_t count, int64_t grain,
                      const std::function<void(int64_t begin, int64_t end)>& work);

}  // namespace gpuctl::trainer

#endif  // TRAINER_BASE_PARALLEL_H_

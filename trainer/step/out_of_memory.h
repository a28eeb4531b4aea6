// Tells a failed allocation from other failures.

#ifndef TRAINER_STEP_OUT_OF_MEMORY_H_
#define TRAINER_STEP_OUT_OF_MEMORY_H_

#include <exception>

namespace gpuctl::trainer {

// True for std::bad_alloc, for a thread that could not be started, and for what LibTorch throws
// when a device or the CPU has no memory left.
bool IsOutOfMemory(const std::exception& error);

}  // namespace gpuctl::trainer

#endif  // TRAINER_STEP_OUT_OF_MEMORY_H_

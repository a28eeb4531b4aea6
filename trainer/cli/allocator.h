// The memory of tensors on the CPU.

#ifndef TRAINER_CLI_ALLOCATOR_H_
#define TRAINER_CLI_ALLOCATOR_H_

namespace gpuctl::trainer {

// Keeps freed tensors in the process, instead of returning every page to the kernel and faulting it
// in again a moment later, and fills their places with the next ones. Call it first in main.
void TuneAllocator();

}  // namespace gpuctl::trainer

#endif  // TRAINER_CLI_ALLOCATOR_H_

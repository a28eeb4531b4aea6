// Copies of memory that is larger than the processor's caches.

#ifndef TRAINER_CPU_COPY_H_
#define TRAINER_CPU_COPY_H_

#include <cstddef>

namespace gpuctl::trainer::cpu {

// Does what memcpy does. What it writes goes past the caches: they need not read it first, which
// saves a third of the traffic, and keep what they have. memcpy does so only for what is larger
// than the caches of all cores. Other threads see the copy as usual, behind a lock.
void CopyPastCaches(void* to, const void* from, size_t bytes);

}  // namespace gpuctl::trainer::cpu

#endif  // TRAINER_CPU_COPY_H_

// Tests that try every place of a long row: ./test takes each n-th place, --label soak all.
#ifndef GPUCTL_TESTS_SUPPORT_EVERY_NTH_H_
#define GPUCTL_TESTS_SUPPORT_EVERY_NTH_H_

#include <stdlib.h>

namespace gpuctl {

// Returns the n that GPUCTL_EVERY_NTH names, at least 1. Without it the result is 1: every place.
inline int EveryNth() {
  const char* value = getenv("GPUCTL_EVERY_NTH");
  const int n = value == nullptr ? 1 : atoi(value);
  return n < 1 ? 1 : n;
}

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_EVERY_NTH_H_

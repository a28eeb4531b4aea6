#include "trainer/base/parallel.h"

#include <algorithm>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace gpuctl::trainer {

int UsableCores() {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void ForRangesOnCores(int64_t count, int64_t grain,
                      const std::function<void(int64_t begin, int64_t end)>& work) {
  const int64_t ranges = std::clamp<int64_t>(count / std::max<int64_t>(1, grain), 1, UsableCores());
  std::vector<std::thread> threads;
  for (int64_t range = 1; range < ranges; ++range) {
    threads.emplace_back(work, count * range / ranges, count * (range + 1) / ranges);
  }
  work(0, count / ranges);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpuctl::trainer

#include "trainer/base/parallel.h"

#include <algorithm>
#include <exception>
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
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranges));
  const auto run = [&](int64_t range) {
    try {
      work(count * range / ranges, count * (range + 1) / ranges);
    } catch (...) {
      failures[static_cast<size_t>(range)] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranges));
  int64_t begun = 1;
  try {
    for (; begun < ranges; ++begun) threads.emplace_back(run, begun);
  } catch (const std::exception&) {
    // The system gives no more threads: this one does the rest.
  }
  run(0);
  for (; begun < ranges; ++begun) run(begun);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace gpuctl::trainer

// A loop whose steps run several at a time.
#ifndef GPUCTL_COMMON_BASE_AT_ONCE_H_
#define GPUCTL_COMMON_BASE_AT_ONCE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace gpuctl {

// Calls work(0) to work(count - 1) once each, on its own threads, at most `at_once` at the same
// time. Returns when all have returned. Meant for work that waits, not for work that computes.
inline void ForEachAtOnce(size_t count, size_t at_once, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::min(count, at_once); ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_AT_ONCE_H_

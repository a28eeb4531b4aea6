#include "client/base/left_thread.h"

#include <atomic>
#include <thread>
#include <utility>

namespace gpuctl {
namespace {

std::atomic<int> g_running = 0;

}  // namespace

void StartLeavableThread(std::function<void()> work) {
  ++g_running;
  std::thread([work = std::move(work)]() mutable {
    work();
    work = nullptr;  // what it owns is destroyed before it counts as ended
    --g_running;
  }).detach();
}

bool LeavableThreadsRun() { return g_running > 0; }

}  // namespace gpuctl

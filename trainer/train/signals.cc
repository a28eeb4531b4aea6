#include "trainer/train/signals.h"

#include <signal.h>

#include <atomic>

namespace gpuctl::trainer {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take locks");

void Remember(int signal) { g_signal.store(signal); }

}  // namespace

void WatchSignals() {
  struct sigaction action = {};
  action.sa_handler = Remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

int StopSignal() { return g_signal.load(std::memory_order_relaxed); }

}  // namespace gpuctl::trainer

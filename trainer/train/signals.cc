#include "trainer/train/signals.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>

namespace gpuctl::trainer {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not take locks");

void Remember(int signal) { g_signal.store(signal); }

}  // namespace

void WatchSignals() {
  sigset_t both;
  sigemptyset(&both);
  sigaddset(&both, SIGTERM);
  sigaddset(&both, SIGINT);
  pthread_sigmask(SIG_BLOCK, &both, nullptr);
  // For a thread of a library that was there before.
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

int StopSignal() {
  if (const int signal = g_signal.load(std::memory_order_relaxed); signal != 0) return signal;
  sigset_t pending;
  if (sigpending(&pending) != 0) return 0;
  if (sigismember(&pending, SIGTERM) == 1) return SIGTERM;
  return sigismember(&pending, SIGINT) == 1 ? SIGINT : 0;
}

}  // namespace gpuctl::trainer

// Threads that nobody waits for: what they wait for themselves may never come.
#ifndef GPUCTL_CLIENT_BASE_LEFT_THREAD_H_
#define GPUCTL_CLIENT_BASE_LEFT_THREAD_H_

#include <functional>

namespace gpuctl {

// Runs `work` on a thread of its own. `work` owns all that it uses, but for what lives as long as
// RunCommandLine runs.
void StartLeavableThread(std::function<void()> work);

// True while such a thread runs. Then the process must end with _exit, without destroying anything.
bool LeavableThreadsRun();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_LEFT_THREAD_H_

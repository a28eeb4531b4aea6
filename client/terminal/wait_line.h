// Tells how long something takes of which nothing else is heard.
#ifndef GPUCTL_CLIENT_TERMINAL_WAIT_LINE_H_
#define GPUCTL_CLIENT_TERMINAL_WAIT_LINE_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "client/terminal/console.h"
#include "common/base/clock.h"

namespace gpuctl {

// While it lives, after the first seconds, the last line of a terminal is "WHAT: 1m 05s", and what
// the console says comes above it. Where nothing can be drawn, it says so once a minute.
class WaitLine {
 public:
  // Both outlive it.
  WaitLine(const Console& console, Clock& clock, std::string what);
  ~WaitLine();
  WaitLine(const WaitLine&) = delete;
  WaitLine& operator=(const WaitLine&) = delete;

 private:
  void Work();
  const Console& console_;
  Clock& clock_;
  const std::string what_;
  const absl::Duration begin_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TERMINAL_WAIT_LINE_H_

// Breaks a link that is silent, or during which the machine slept.
#ifndef GPUCTL_CLIENT_STREAMS_WATCHDOG_H_
#define GPUCTL_CLIENT_STREAMS_WATCHDOG_H_

#include <thread>

#include "absl/time/time.h"
#include "client/link/link.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace gpuctl {

// Checks `link` on its own thread while it exists. The server sends heartbeats to a reader, so
// `dead_after` without a byte means a dead network. A check that comes much too late means that
// this machine slept; then the connection is broken too.
class Watchdog {
 public:
  static constexpr absl::Duration kSlept = absl::Seconds(5);

  // Both must outlive the Watchdog.
  Watchdog(Link& link, absl::Duration dead_after, Clock& clock);
  ~Watchdog();

 private:
  void Run();
  Link& link_;
  const absl::Duration dead_after_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_WATCHDOG_H_

// Breaks a link that has gone silent, or that the machine slept through.
#ifndef GPUCTL_CLIENT_STREAMS_WATCHDOG_H_
#define GPUCTL_CLIENT_STREAMS_WATCHDOG_H_

#include <thread>

#include "absl/time/time.h"
#include "client/link/link.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace gpuctl {

// For as long as it exists, looks at `link` from a thread of its own. The server sends heartbeats
// to a reader, so `dead_after` without a byte is a dead network; a look that comes much later than
// it was due means that this machine slept, and then the connection is not worth waiting for
// either.
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

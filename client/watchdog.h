// Breaks a link that has gone silent, or that the machine slept through.
#ifndef GPUCTL_CLIENT_WATCHDOG_H_
#define GPUCTL_CLIENT_WATCHDOG_H_

#include <thread>

#include "absl/time/time.h"
#include "client/link.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace gpuctl {

// For as long as it exists, looks at `link` twice a second from a thread of its own. The server
// sends a heartbeat every 5 s to a reader, so kDeadAfter without a byte is a dead network; a look that
// comes much later than it was due means that this machine slept, and then the connection is not
// worth waiting for either.
class Watchdog {
 public:
  static constexpr absl::Duration kLookEvery = absl::Milliseconds(500);
  static constexpr absl::Duration kDeadAfter = absl::Seconds(15);
  static constexpr absl::Duration kSlept = absl::Seconds(5);

  // Both must outlive the Watchdog.
  Watchdog(Link& link, Clock& clock);
  ~Watchdog();

 private:
  void Run();
  Link& link_;
  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WATCHDOG_H_

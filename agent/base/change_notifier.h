// Waiting for files to change.
#ifndef GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_
#define GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Shortens a wait; never replaces looking at sizes: instances are few and network file systems have
// none, and then Wait just takes its time. One thread.
class ChangeNotifier {
 public:
  ChangeNotifier();
  // Also wakes for changes of and in `directory` from now on. A missing one is ignored; calling
  // again for the same directory is cheap.
  void Add(const std::string& directory);
  // Returns when something changed since the last Wait, or after `timeout` at the latest.
  void Wait(absl::Duration timeout);

 private:
  UniqueFd inotify_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_

// Waiting for files to change.
#ifndef GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_
#define GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_

#include <string>

#include "absl/time/time.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// Shortens a wait for file changes. Callers must still look at sizes: inotify instances are few and
// network file systems have none, and then Wait takes the whole time. Used by one thread.
class ChangeNotifier {
 public:
  ChangeNotifier();
  // Makes Wait also return for changes of and in `directory`. Ignores a missing directory. A second
  // call for the same directory is cheap.
  void Add(const std::string& directory);
  // Waits until something has changed since the last Wait, at most `timeout`.
  void Wait(absl::Duration timeout);

 private:
  UniqueFd inotify_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_CHANGE_NOTIFIER_H_

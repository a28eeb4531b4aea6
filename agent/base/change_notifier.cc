#include "agent/base/change_notifier.h"

#include <poll.h>
#if defined(__linux__)
#include <sys/inotify.h>
#endif

namespace gpuctl {

#if defined(__linux__)
ChangeNotifier::ChangeNotifier() : inotify_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

void ChangeNotifier::Add(const std::string& directory) {
  if (!inotify_.valid()) return;
  inotify_add_watch(inotify_.get(), directory.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO);
}

void ChangeNotifier::Wait(absl::Duration timeout) {
  pollfd waited{inotify_.get(), POLLIN, 0};
  const int timeout_ms =
      static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
  if (poll(&waited, inotify_.valid() ? 1 : 0, timeout_ms) <= 0) return;
  char events[4096];
  while (read(inotify_.get(), events, sizeof(events)) > 0) {
  }
}
#else
ChangeNotifier::ChangeNotifier() = default;
void ChangeNotifier::Add(const std::string&) {}

void ChangeNotifier::Wait(absl::Duration timeout) {
  const absl::Duration capped = timeout < absl::Milliseconds(10) ? timeout : absl::Milliseconds(10);
  poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(capped)) + 1);
}
#endif

}  // namespace gpuctl

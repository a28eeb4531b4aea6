// Counting the files that are read.
#ifndef GPUCTL_TESTS_SUPPORT_READINGS_H_
#define GPUCTL_TESTS_SUPPORT_READINGS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#ifdef __linux__
#include <sys/inotify.h>
#include <unistd.h>

#include <set>

#include "common/base/unique_fd.h"
#endif

namespace gpuctl {

#ifdef __linux__

// Counts which of these files are read, by whatever name, from here on.
class Readings {
 public:
  explicit Readings(const std::vector<std::string>& paths)
      : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    for (const std::string& path : paths) {
      EXPECT_GE(inotify_add_watch(fd_.get(), path.c_str(), IN_ACCESS), 0) << path;
    }
  }
  // True when so many files were read since the last call.
  testing::AssertionResult Were(int count) const {
    std::set<int> watches;
    alignas(inotify_event) char buffer[4096];
    ssize_t got = 0;
    // An event of a watched file has no name behind it.
    while ((got = read(fd_.get(), buffer, sizeof(buffer))) > 0) {
      for (ssize_t at = 0; at < got; at += static_cast<ssize_t>(sizeof(inotify_event))) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
        if ((event->mask & IN_ACCESS) != 0) watches.insert(event->wd);
      }
    }
    if (static_cast<int>(watches.size()) == count) return testing::AssertionSuccess();
    return testing::AssertionFailure() << watches.size() << " files were read instead of " << count;
  }

 private:
  const UniqueFd fd_;
};

#else

// macOS tells nobody which files are read.
class Readings {
 public:
  explicit Readings(const std::vector<std::string>&) {}
  testing::AssertionResult Were(int) const { return testing::AssertionSuccess(); }
};

#endif

}  // namespace gpuctl

#endif  // GPUCTL_TESTS_SUPPORT_READINGS_H_

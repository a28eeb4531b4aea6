// A sanitized process that is at fault leaves a report where ./test looks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

// Runs `fault` in a process of its own. Returns what the reports of that process say, and removes
// them.
std::string ReportOf(const std::function<void()>& fault) {
  const pid_t pid = fork();
  if (pid == 0) {
    fault();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  std::string said;
  for (const char* kind : {"asan", "ubsan", "tsan"}) {
    const std::string path = absl::StrCat(GPUCTL_SANITIZER_REPORTS, "/", kind, ".", pid);
    said += ReadFileToString(path).value_or("");
    unlink(path.c_str());
  }
  return said;
}

#if defined(GPUCTL_ASAN)
TEST(SanitizerReports, OfMemoryThatIsUsedAfterItsEnd) {
  EXPECT_THAT(ReportOf([] {
                char* volatile memory = new char[1];
                delete[] memory;
                *memory = 'x';
              }),
              testing::HasSubstr("heap-use-after-free"));
}

TEST(SanitizerReports, OfUndefinedBehaviour) {
  EXPECT_THAT(ReportOf([] {
                volatile int largest = INT_MAX;
                largest = largest + 1;
              }),
              testing::HasSubstr("signed integer overflow"));
}
#else
TEST(SanitizerReports, OfARace) {
  EXPECT_THAT(ReportOf([] {
                volatile int shared = 0;
                std::thread other([&shared] { shared = shared + 1; });
                shared = shared + 1;
                other.join();
              }),
              testing::HasSubstr("data race"));
}
#endif

}  // namespace
}  // namespace gpuctl

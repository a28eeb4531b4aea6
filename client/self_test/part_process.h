// A part of the self-test in a process of its own, which can be killed with all that it started.
#ifndef GPUCTL_CLIENT_SELF_TEST_PART_PROCESS_H_
#define GPUCTL_CLIENT_SELF_TEST_PART_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/self_test/check.h"

namespace gpuctl {

struct PartEnd {
  // OK when it ended by itself with exit code 0. DEADLINE_EXCEEDED and CANCELLED (`signal_fd`
  // became readable): it and its children were killed. Else INTERNAL.
  absl::Status status;
  std::string last_words;  // the last line of its stderr
};

// Runs `gpuctl doctor --self-test-part PART` and passes on each line of its stdout.
PartEnd RunPart(const std::string& part, const TestPlace& place, absl::Duration limit,
                int signal_fd, const std::function<void(absl::string_view line)>& on_line);

// Returns the processes, except this one, that have `mark` in their arguments or, where that can be
// seen (Linux), in their environment. At most a second.
struct FoundProcess {
  int pid = 0;
  std::string command;
};
std::vector<FoundProcess> FindProcesses(const std::string& mark);

// Kills them until there are none. DEADLINE_EXCEEDED names one that lives on after `limit`.
absl::Status KillProcesses(const std::string& mark, absl::Duration limit, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SELF_TEST_PART_PROCESS_H_

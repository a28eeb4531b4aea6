// The parts of the self-test. Each runs in a process of its own, which may be killed at any moment:
// what it leaves elsewhere than in its place has a name that follows from the place, and its Clean
// function removes that. None touches what an installed gpuctl has.
#ifndef GPUCTL_CLIENT_SELF_TEST_PARTS_H_
#define GPUCTL_CLIENT_SELF_TEST_PARTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/self_test/check.h"
#include "client/terminal/console.h"

namespace gpuctl {

// Stores a secret as `gpuctl login` does, reads it back and removes it.
void TestKeyStore(const TestPlace& place, Reporter& report);
absl::Status CleanKeyStore(const TestPlace& place);

// Gives the scheduler of `keep --install` a job of another name, and takes it away.
void TestScheduler(const TestPlace& place, Reporter& report);
absl::Status CleanScheduler(const TestPlace& place);

// Starts the sshd of provider `local`, and moves bytes both ways.
void TestSshd(const TestPlace& place, Reporter& report);

// Uses sockets, FIFOs, locks, durable files and copies in the user's state directory.
void TestFiles(const TestPlace& place, Reporter& report);
// A program that holds the lock "held" in place.dir, says so on stdout, and ends with its stdin.
int HoldLock(const TestPlace& place);

// Compares the clocks.
void TestClocks(Reporter& report);

// Runs jobs on this machine with a state directory and a node root in the place: detach, attach,
// pull, stop, and three kinds of kill -9. Changes this process's environment.
void TestJobs(const TestPlace& place, Reporter& report);
// The programs of these jobs; place.dir is the job's. Return the exit code.
int RunTestJob(const TestPlace& place, Clock& clock);
int MakeOrphans(const TestPlace& place);
int RunOrphan(const TestPlace& place, Clock& clock);

// Draws the panel once, and asks the terminal how wide it became. In the process of the user's
// terminal.
void TestTerminal(const Console& console, Reporter& report);

// The judgements of the parts. Pure.

struct KeyStoreFindings {
  std::string system_store;   // its name; "" when there is none
  bool always_there = false;  // true on systems that always have one
  absl::Status system;        // of storing there
  absl::Status stored;        // of storing as login does
  bool same = false;          // it was read back
  absl::Status removed;
  bool gone = false;   // it was not found afterwards
  std::string secret;  // its name
};
Judgement JudgeKeyStore(const KeyStoreFindings& findings);

struct ClockFindings {
  absl::Time wall;             // at the end
  absl::Duration slept;        // how long it was to sleep
  absl::Duration wall_passed;  // meanwhile
  absl::Duration boot_passed;  // meanwhile, by the clock that counts suspension
  absl::Duration since_boot;   // by that clock
  absl::Duration awake;        // since boot, without suspension; negative: not known
};
Judgement JudgeClocks(const ClockFindings& findings);

struct DrawnLine {
  std::string line;
  int width = 0;              // in columns, as gpuctl measures it
  std::optional<int> column;  // of the cursor behind it, from 1; absent: the terminal does not tell
};
Judgement JudgeDrawing(const std::vector<DrawnLine>& lines, int columns, int rows, bool utf8,
                       bool colour);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SELF_TEST_PARTS_H_

// The clock of the commands.
#ifndef GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_
#define GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_

#include "common/base/clock.h"

namespace gpuctl {

// Returns the machine's clock. For tests of waits that take minutes,
// GPUCTL_TEST_CLOCK=SPEED@UNIX_MS@BOOT_MS replaces it by a clock that shows UNIX_MS when the
// machine has been up for BOOT_MS, and that runs SPEED times as fast. Processes with the same value
// agree on the time. The clock is never destroyed and is safe from any thread.
Clock& CommandClock();
// Returns SPEED; 1 without the variable.
double CommandClockSpeed();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_

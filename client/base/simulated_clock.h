// The clock of the commands.
#ifndef GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_
#define GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_

#include "common/base/clock.h"

namespace gpuctl {

// The machine's clock. For tests of waits that take minutes,
// GPUCTL_TEST_CLOCK=SPEED@UNIX_MS@BOOT_MS makes one of it that shows UNIX_MS when the machine has
// been up for BOOT_MS, and runs SPEED times as fast; processes with the same value agree on the
// time. Lives for ever, safe from any thread.
Clock& CommandClock();
// SPEED; 1 without it.
double CommandClockSpeed();

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_SIMULATED_CLOCK_H_

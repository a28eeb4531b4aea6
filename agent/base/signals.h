// The dispositions of signals.
#ifndef GPUCTL_AGENT_BASE_SIGNALS_H_
#define GPUCTL_AGENT_BASE_SIGNALS_H_

namespace gpuctl {

// Restores the default dispositions of all signals, and blocks none.
void ResetSignals();

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_BASE_SIGNALS_H_

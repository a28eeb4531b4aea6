// Several GPUs of a machine in a few columns. Pure.
#ifndef GPUCTL_CLIENT_METRICS_GPU_SUMMARY_H_
#define GPUCTL_CLIENT_METRICS_GPU_SUMMARY_H_

#include <string>
#include <vector>

#include "client/metrics/progress.h"

namespace gpuctl {

// Returns how busy the GPUs are: "94%" when all are, by whole percents, else the least and the most
// busy one, "12-97%". "" when nothing is known. `dash` stands between two numbers.
std::string UtilizationText(const std::vector<TelemetrySample::Gpu>& gpus, const std::string& dash);

// Returns a bar for each GPU, in their order, from nothing to busy; '?' where nothing is known.
// `ascii` uses ASCII characters only.
std::string UtilizationBars(const std::vector<TelemetrySample::Gpu>& gpus, bool ascii);

// Returns all that is known of several GPUs, what matters most first: "8 GPUs ▇▇▁▇▇▇▇▇ 3-97%", the
// ranges of memory, power and temperature.
std::vector<std::string> GpuSummary(const std::vector<TelemetrySample::Gpu>& gpus, bool ascii);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_METRICS_GPU_SUMMARY_H_

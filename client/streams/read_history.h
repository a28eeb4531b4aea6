// Reads a run's whole history out of its mirror: every step, and the GPUs meanwhile.
#ifndef GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_
#define GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_

#include "absl/status/status.h"
#include "client/history/gpu_history.h"
#include "client/history/metric_history.h"
#include "client/streams/mirror_reader.h"

namespace gpuctl {

// Adds every step that the job wrote as metrics, or, when it wrote none, that its output tells. The
// lines of an output have no stamps: their times are estimates, from the times at which the
// attempts began and ended, and the output's length then. `heard_ms` is the time of the node's last
// sign of life, for an attempt that has no end.
absl::Status ReadHistory(MirrorReader& mirror, int64_t heard_ms, MetricHistory& history);

// Adds all telemetry that is stored here: of a long run only the newest part.
absl::Status ReadGpuHistory(MirrorReader& mirror, GpuHistory& gpus);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_STREAMS_READ_HISTORY_H_

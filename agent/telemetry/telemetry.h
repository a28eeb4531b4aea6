// The node's own stream: one JSON line a second about GPUs, CPU, memory, disk and network.
#ifndef GPUCTL_AGENT_TELEMETRY_TELEMETRY_H_
#define GPUCTL_AGENT_TELEMETRY_TELEMETRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/telemetry/gpu_probe.h"
#include "agent/telemetry/host_probe.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "common/job/stream_file.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns the line for one second:
// {"time_ms":…,"cpu_percent":…,"memory_used_bytes":…,"memory_total_bytes":…,
// "disk_free_bytes":…,"disk_read_bytes_per_s":…,"disk_written_bytes_per_s":…,
// "network_received_bytes_per_s":…,"network_sent_bytes_per_s":…,"gpus":[{"index","name",
// "driver_version","utilization_percent","memory_used_bytes","memory_total_bytes","temperature_c","power_w",
// "sm_clock_mhz","memory_clock_mhz","throttle_reasons"}…]}. Unknown values are left out. It ends
// with a newline.
std::string FormatTelemetry(absl::Time time, const HostCounters& before, const HostCounters& now,
                            absl::Duration elapsed, int64_t disk_free_bytes,
                            const std::vector<GpuSample>& gpus);

// The node's telemetry. Call Tick from one thread, ListedGpus from any.
class Telemetry {
 public:
  Telemetry(const RootPaths& paths, std::unique_ptr<GpuProbe> gpus, Clock& clock);

  // Samples and appends a line. Call it once a second. An error (disk full) loses only that second.
  absl::Status Tick();

  // The GPUs that the machine was last known to have.
  struct Listed {
    std::vector<gpuctl::v1::Gpu> gpus;
    bool complete = false;  // false: the driver may name more
  };
  Listed ListedGpus();

 private:
  const RootPaths& paths_;
  const std::unique_ptr<GpuProbe> probe_;
  Clock& clock_;
  absl::StatusOr<StreamWriter> writer_;
  HostCounters before_;
  absl::Duration before_at_;
  Mutex mutex_;
  Listed listed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TELEMETRY_TELEMETRY_H_

// Samples of the GPUs.
#ifndef GPUCTL_AGENT_TELEMETRY_GPU_PROBE_H_
#define GPUCTL_AGENT_TELEMETRY_GPU_PROBE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"

namespace gpuctl {

// One GPU at one moment. Values that the driver does not report are absent.
struct GpuSample {
  int index = 0;
  std::string name;
  std::string uuid;            // "": not told
  std::string driver_version;  // "": not told
  std::optional<double> utilization_percent;
  std::optional<int64_t> memory_used_bytes;
  std::optional<int64_t> memory_total_bytes;
  std::optional<double> temperature_c;
  std::optional<double> power_w;
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  // A bit mask of nvmlClocksThrottleReasons or nvmlClocksEventReasons.
  std::optional<uint64_t> throttle_reasons;
};

class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // Returns the newest sample of each GPU, by index; empty when there are no GPUs, or no samples
  // for a while. Never blocks. Used by one thread.
  virtual std::vector<GpuSample> Sample() = 0;
  // False when the machine has no driver, so that samples will never come.
  virtual bool HasDriver() const { return true; }
  // True when every GPU has been sampled. The first samples may come one by one.
  virtual bool HasAll() const { return true; }
};

// Parses lines of `nvidia-smi --query-gpu=… --format=csv,nounits`. It finds columns by the header's
// names, so their order and additional columns do not matter.
class NvidiaSmiParser {
 public:
  // Takes a line. Returns false for a line that it cannot read, and keeps its state.
  bool AddLine(absl::string_view line);
  const std::map<int, GpuSample>& samples() const { return samples_; }
  // True when a GPU came for the second time: before that, all others came.
  bool HasAll() const { return has_all_; }
  void Clear() { samples_.clear(), columns_.clear(), has_all_ = false; }

 private:
  std::vector<std::string> columns_;
  std::map<int, GpuSample> samples_;
  bool has_all_ = false;
};

// A probe with one long-lived nvidia-smi child, which prints a line per GPU and second. It restarts
// a dead child after a pause that grows to a minute, and kills one that hangs (no line for 10 s). A
// missing program means no GPUs.
class NvidiaSmiProbe : public GpuProbe {
 public:
  // `program` is a path; empty means to look for nvidia-smi in the usual places.
  NvidiaSmiProbe(std::string program, Clock& clock);
  ~NvidiaSmiProbe() override;
  std::vector<GpuSample> Sample() override;
  bool HasDriver() const override { return !program_.empty(); }
  bool HasAll() const override { return parser_.HasAll(); }

 private:
  void StartChild();
  void StopChild();
  void ReadLines();

  const std::string program_;
  Clock& clock_;
  NvidiaSmiParser parser_;
  UniqueFd output_;
  pid_t child_ = -1;
  std::vector<pid_t> dying_;  // killed, not reaped yet
  std::string partial_line_;
  absl::Duration last_line_;
  absl::Duration next_start_ = -absl::InfiniteDuration();
  absl::Duration pause_ = absl::Seconds(1);
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TELEMETRY_GPU_PROBE_H_

#include "agent/telemetry/telemetry.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"

namespace gpuctl {
namespace {

constexpr int64_t kKeepBytes = 64 << 20;

double Round1(double value) { return std::round(value * 10) / 10; }

template <typename T>
void SetIf(nlohmann::ordered_json& object, const char* key, const std::optional<T>& value) {
  if (value.has_value()) object[key] = *value;
}

nlohmann::ordered_json GpuJson(const GpuSample& gpu) {
  nlohmann::ordered_json object;
  object["index"] = gpu.index;
  object["name"] = gpu.name;
  if (!gpu.driver_version.empty()) object["driver_version"] = gpu.driver_version;
  SetIf(object, "utilization_percent", gpu.utilization_percent);
  SetIf(object, "memory_used_bytes", gpu.memory_used_bytes);
  SetIf(object, "memory_total_bytes", gpu.memory_total_bytes);
  SetIf(object, "temperature_c", gpu.temperature_c);
  SetIf(object, "power_w", gpu.power_w);
  SetIf(object, "sm_clock_mhz", gpu.sm_clock_mhz);
  SetIf(object, "memory_clock_mhz", gpu.memory_clock_mhz);
  SetIf(object, "throttle_reasons", gpu.throttle_reasons);
  return object;
}

}  // namespace

std::string FormatTelemetry(absl::Time time, const HostCounters& before, const HostCounters& now,
                            absl::Duration elapsed, int64_t disk_free_bytes,
                            const std::vector<GpuSample>& gpus) {
  nlohmann::ordered_json line;
  line["time_ms"] = absl::ToUnixMillis(time);
  const int64_t ticks = now.cpu_total_ticks - before.cpu_total_ticks;
  if (ticks > 0) {
    line["cpu_percent"] =
        Round1(100.0 * static_cast<double>(now.cpu_busy_ticks - before.cpu_busy_ticks) /
               static_cast<double>(ticks));
  }
  if (now.memory_total_bytes > 0) {
    line["memory_used_bytes"] = now.memory_total_bytes - now.memory_available_bytes;
    line["memory_total_bytes"] = now.memory_total_bytes;
  }
  line["disk_free_bytes"] = disk_free_bytes;
  const double seconds = absl::ToDoubleSeconds(elapsed);
  auto rate = [&](const char* key, int64_t from, int64_t to) {
    if (seconds > 0 && to >= from) {
      line[key] = static_cast<int64_t>(static_cast<double>(to - from) / seconds);
    }
  };
  rate("disk_read_bytes_per_s", before.disk_read_bytes, now.disk_read_bytes);
  rate("disk_written_bytes_per_s", before.disk_written_bytes, now.disk_written_bytes);
  rate("network_received_bytes_per_s", before.network_received_bytes, now.network_received_bytes);
  rate("network_sent_bytes_per_s", before.network_sent_bytes, now.network_sent_bytes);
  line["gpus"] = nlohmann::ordered_json::array();
  for (const GpuSample& gpu : gpus) line["gpus"].push_back(GpuJson(gpu));
  // Names come from a driver. Bytes that are not UTF-8 are replaced.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Telemetry::Telemetry(const RootPaths& paths, std::unique_ptr<GpuProbe> gpus, Clock& clock)
    : paths_(paths),
      probe_(std::move(gpus)),
      clock_(clock),
      writer_(StreamWriter::Open(paths.telemetry, TelemetryShape())),
      before_(ReadHostCounters()),
      before_at_(clock.SinceBoot()) {
  if (writer_.ok()) (void)writer_->TerminateLine();
  listed_.complete = !probe_->HasDriver();
}

absl::Status Telemetry::Tick() {
  const std::vector<GpuSample> gpus = probe_->Sample();
  {
    MutexLock lock(mutex_);
    std::vector<gpuctl::v1::Gpu> seen;
    for (const GpuSample& sample : gpus) {
      gpuctl::v1::Gpu& gpu = seen.emplace_back();
      gpu.set_index(sample.index);
      gpu.set_name(sample.name);
      gpu.set_uuid(sample.uuid);
      gpu.set_memory_bytes(sample.memory_total_bytes.value_or(0));
    }
    // The list of a driver that is silent for a moment stays, and so does a complete one while
    // another begins.
    const bool complete = !seen.empty() && probe_->HasAll();
    if (complete || (!listed_.complete && !seen.empty())) listed_ = {std::move(seen), complete};
  }
  const HostCounters now = ReadHostCounters();
  const absl::Duration now_at = clock_.SinceBoot();
  struct statvfs disk {};
  int64_t disk_free_bytes = 0;
  if (statvfs(paths_.root.c_str(), &disk) == 0) {
    disk_free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  }
  const std::string line =
      FormatTelemetry(clock_.Now(), before_, now, now_at - before_at_, disk_free_bytes, gpus);
  before_ = now;
  before_at_ = now_at;
  if (!writer_.ok()) writer_ = StreamWriter::Open(paths_.telemetry, TelemetryShape());
  if (!writer_.ok()) return writer_.status();
  RETURN_IF_ERROR(writer_->Append(line));
  return writer_->CutTo(kKeepBytes, [](int64_t) { return absl::OkStatus(); }).status();
}

Telemetry::Listed Telemetry::ListedGpus() {
  MutexLock lock(mutex_);
  return listed_;
}

}  // namespace gpuctl

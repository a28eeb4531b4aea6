// CPU, memory, disk and network of the machine.
#ifndef GPUCTL_AGENT_TELEMETRY_HOST_PROBE_H_
#define GPUCTL_AGENT_TELEMETRY_HOST_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gpuctl {

// The kernel's counters since boot.
struct HostCounters {
  int64_t cpu_busy_ticks = 0;
  int64_t cpu_total_ticks = 0;
  int64_t disk_read_bytes = 0;
  int64_t disk_written_bytes = 0;
  int64_t network_received_bytes = 0;
  int64_t network_sent_bytes = 0;
  int64_t memory_total_bytes = 0;
  int64_t memory_available_bytes = 0;
};

// Parse the texts of the four files. Missing or malformed parts leave their fields unchanged.
void ParseProcStat(absl::string_view text, HostCounters& counters);
void ParseMeminfo(absl::string_view text, HostCounters& counters);
// Counts whole disks only, because partitions and loop devices would count twice. Sectors have 512
// bytes.
void ParseDiskstats(absl::string_view text, HostCounters& counters);
// Counts all interfaces except lo.
void ParseNetDev(absl::string_view text, HostCounters& counters);

// Reads the counters now. Zeros where there is no /proc.
HostCounters ReadHostCounters();

// Bytes of all interfaces except lo.
struct NetworkCounters {
  int64_t received_bytes = 0;
  int64_t sent_bytes = 0;
};
// Reads them now; nothing where they cannot be read. $GPUCTL_NET_DEV replaces /proc/net/dev where
// several nodes share a machine, as in tests.
std::optional<NetworkCounters> ReadNetworkCounters();

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TELEMETRY_HOST_PROBE_H_

#include "agent/telemetry/host_probe.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"

#include "agent/telemetry/telemetry.h"

namespace gpuctl {
namespace {

TEST(HostProbeTest, CpuTicksLeaveIdleAndWaitOut) {
  HostCounters counters;
  ParseProcStat("cpu  100 5 50 800 30 1 2 3 40 0\ncpu0 1 1 1 1\nintr 5\n", counters);
  EXPECT_EQ(counters.cpu_total_ticks, 100 + 5 + 50 + 800 + 30 + 1 + 2 + 3);
  EXPECT_EQ(counters.cpu_busy_ticks, 100 + 5 + 50 + 1 + 2 + 3);
}

TEST(HostProbeTest, MemoryInBytes) {
  HostCounters counters;
  ParseMeminfo("MemTotal:       24000 kB\nMemFree: 1 kB\nMemAvailable:   20000 kB\n", counters);
  EXPECT_EQ(counters.memory_total_bytes, 24000 * 1024);
  EXPECT_EQ(counters.memory_available_bytes, 20000 * 1024);
}

TEST(HostProbeTest, DisksOnceWithoutTheirPartitions) {
  HostCounters counters;
  ParseDiskstats(
      "   7       0 loop0 9 0 999 0 9 0 999 0 0 0 0\n"
      " 259       0 nvme0n1 10 0 200 0 5 0 100 0 0 0 0\n"
      " 259       1 nvme0n1p1 10 0 200 0 5 0 100 0 0 0 0\n"
      "   8       0 sda 1 0 2 0 1 0 4 0 0 0 0\n"
      " 253       0 dm-0 1 0 50 0 1 0 50 0 0 0 0\n",
      counters);
  EXPECT_EQ(counters.disk_read_bytes, (200 + 2) * 512);
  EXPECT_EQ(counters.disk_written_bytes, (100 + 4) * 512);
}

TEST(HostProbeTest, NetworkWithoutLoopback) {
  HostCounters counters;
  ParseNetDev(
      "Inter-|   Receive                    |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n"
      "    lo: 5000 1 0 0 0 0 0 0 5000 1 0 0 0 0 0 0\n"
      "  eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n"
      "  eth1:10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n",
      counters);
  EXPECT_EQ(counters.network_received_bytes, 1010);
  EXPECT_EQ(counters.network_sent_bytes, 2020);
}

TEST(HostProbeTest, MalformedTextChangesNothing) {
  HostCounters counters;
  for (const char* text : {"", "cpu", "cpu \n", "MemTotal:", "a b c", ":::", "\n\n", "eth0:"}) {
    ParseProcStat(text, counters);
    ParseMeminfo(text, counters);
    ParseDiskstats(text, counters);
    ParseNetDev(text, counters);
  }
  EXPECT_EQ(counters.cpu_busy_ticks, 0);
  EXPECT_EQ(counters.memory_total_bytes, 0);
  EXPECT_EQ(counters.network_sent_bytes, 0);
}

TEST(HostProbeTest, CountsPastSixtyFourBitsAreBounded) {
  HostCounters counters;
  ParseDiskstats(
      "8 0 sda 1 2 9223372036854775807 4 5 6 9223372036854775807 8 9 10\n"
      "8 1 sdb 1 2 9223372036854775807 4 5 6 9223372036854775807 8 9 10\n",
      counters);
  EXPECT_EQ(counters.disk_read_bytes, int64_t{1} << 61);
  EXPECT_EQ(counters.disk_written_bytes, int64_t{1} << 61);
  ParseMeminfo("MemTotal: 9223372036854775807 kB\nMemAvailable: -5 kB\n", counters);
  EXPECT_EQ(counters.memory_total_bytes, int64_t{1} << 62);
  EXPECT_EQ(counters.memory_available_bytes, 0);
}

TEST(TelemetryTest, LineHasRatesAndGpus) {
  HostCounters before;
  HostCounters now;
  before.cpu_total_ticks = 1000;
  now.cpu_total_ticks = 1200;
  now.cpu_busy_ticks = 50;
  now.memory_total_bytes = 100;
  now.memory_available_bytes = 30;
  now.disk_written_bytes = 4000;
  now.network_sent_bytes = 10;
  before.network_sent_bytes = 20;  // a counter that decreased gives no rate
  GpuSample gpu;
  gpu.index = 1;
  gpu.name = "bad \xff utf-8";
  gpu.power_w = 300.5;
  const std::string line = FormatTelemetry(absl::FromUnixMillis(1'700'000'000'123), before, now,
                                           absl::Seconds(2), 777, {gpu});
  ASSERT_EQ(line.back(), '\n');
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["time_ms"], 1'700'000'000'123);
  EXPECT_EQ(json["cpu_percent"], 25.0);
  EXPECT_EQ(json["memory_used_bytes"], 70);
  EXPECT_EQ(json["disk_written_bytes_per_s"], 2000);
  EXPECT_FALSE(json.contains("network_sent_bytes_per_s"));
  EXPECT_EQ(json["disk_free_bytes"], 777);
  EXPECT_EQ(json["gpus"][0]["power_w"], 300.5);
  EXPECT_FALSE(json["gpus"][0].contains("temperature_c"));
}

}  // namespace
}  // namespace gpuctl

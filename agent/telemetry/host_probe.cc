#include "agent/telemetry/host_probe.h"

#include <stdlib.h>

#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

std::vector<absl::string_view> Words(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The largest count that is believed; 1024 times as much fits into 64 bits.
constexpr int64_t kMostCounted = int64_t{1} << 52;

int64_t ToNumber(absl::string_view text) {
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value) ? std::clamp<int64_t>(value, 0, kMostCounted) : 0;
}

void Add(absl::string_view text, int64_t& sum) {
  sum = std::min(sum + ToNumber(text), kMostCounted);
}

}  // namespace

void ParseProcStat(absl::string_view text, HostCounters& counters) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "cpu ")) continue;
    const std::vector<absl::string_view> words = Words(line);
    // The fields are: cpu user nice system idle iowait irq softirq steal. Guest time is part of
    // user.
    int64_t total = 0;
    for (size_t i = 1; i < words.size() && i <= 8; ++i) Add(words[i], total);
    int64_t idle = 0;
    for (size_t i = 4; i < words.size() && i <= 5; ++i) Add(words[i], idle);
    counters.cpu_total_ticks = total;
    counters.cpu_busy_ticks = total - idle;
    return;
  }
}

void ParseMeminfo(absl::string_view text, HostCounters& counters) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = Words(line);
    if (words.size() < 2) continue;
    if (words[0] == "MemTotal:") counters.memory_total_bytes = ToNumber(words[1]) * 1024;
    if (words[0] == "MemAvailable:") counters.memory_available_bytes = ToNumber(words[1]) * 1024;
  }
}

void ParseDiskstats(absl::string_view text, HostCounters& counters) {
  int64_t read_sectors = 0;
  int64_t written_sectors = 0;
  std::string disk;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> words = Words(line);
    if (words.size() < 10) continue;
    const absl::string_view name = words[2];
    if (absl::StartsWith(name, "loop") || absl::StartsWith(name, "ram") ||
        absl::StartsWith(name, "dm-")) {
      continue;
    }
    // The kernel lists a disk before its partitions, which are named after it.
    if (!disk.empty() && absl::StartsWith(name, disk)) continue;
    disk = std::string(name);
    Add(words[5], read_sectors);
    Add(words[9], written_sectors);
  }
  counters.disk_read_bytes = read_sectors * 512;
  counters.disk_written_bytes = written_sectors * 512;
}

void ParseNetDev(absl::string_view text, HostCounters& counters) {
  int64_t received = 0;
  int64_t sent = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    const absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, colon));
    const std::vector<absl::string_view> words = Words(line.substr(colon + 1));
    if (name == "lo" || words.size() < 9) continue;
    Add(words[0], received);
    Add(words[8], sent);
  }
  counters.network_received_bytes = received;
  counters.network_sent_bytes = sent;
}

std::optional<NetworkCounters> ReadNetworkCounters() {
  const char* replaced = getenv("GPUCTL_NET_DEV");
  const bool shared = replaced != nullptr && *replaced != '\0';
  const absl::StatusOr<std::string> text =
      ReadFileToString(shared ? replaced : "/proc/net/dev", 1 << 20);
  if (!text.ok()) return std::nullopt;
  HostCounters counters;
  ParseNetDev(*text, counters);
  return NetworkCounters{counters.network_received_bytes, counters.network_sent_bytes};
}

HostCounters ReadHostCounters() {
  HostCounters counters;
  auto read = [&counters](const char* path, void (*parse)(absl::string_view, HostCounters&)) {
    if (absl::StatusOr<std::string> text = ReadFileToString(path, 1 << 20); text.ok()) {
      parse(*text, counters);
    }
  };
  read("/proc/stat", ParseProcStat);
  read("/proc/meminfo", ParseMeminfo);
  read("/proc/diskstats", ParseDiskstats);
  read("/proc/net/dev", ParseNetDev);
  return counters;
}

}  // namespace gpuctl

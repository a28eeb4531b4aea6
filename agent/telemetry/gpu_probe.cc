#include "agent/telemetry/gpu_probe.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "agent/base/nvidia_smi.h"
#include "common/base/log.h"
#include "common/process/pipe.h"
#include "common/process/process.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kSilentTooLong = absl::Seconds(10);
constexpr absl::Duration kLongestPause = absl::Minutes(1);
constexpr size_t kLongestLine = 64 << 10;
constexpr char kQuery[] =
    "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,"
    "clocks.sm,clocks.mem,clocks_throttle_reasons.active,driver_version,uuid";

std::optional<double> Number(absl::string_view text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) ? std::optional<double>(value) : std::nullopt;
}

std::optional<int64_t> Mebibytes(absl::string_view text) {
  int64_t value = 0;
  return absl::SimpleAtoi(text, &value) && value >= 0 && value < (int64_t{1} << 40)
             ? std::optional<int64_t>(value << 20)
             : std::nullopt;
}

std::optional<uint64_t> Mask(absl::string_view text) {
  uint64_t value = 0;
  return absl::ConsumePrefix(&text, "0x") && absl::SimpleHexAtoi(text, &value)
             ? std::optional<uint64_t>(value)
             : std::nullopt;
}

void SetColumn(absl::string_view column, absl::string_view text, GpuSample& sample) {
  if (column == "name") {
    sample.name = std::string(text);
  } else if (column == "uuid") {
    if (!absl::StartsWith(text, "[")) sample.uuid = std::string(text);  // "[N/A]"
  } else if (column == "driver_version") {
    if (!absl::StartsWith(text, "[")) sample.driver_version = std::string(text);  // "[N/A]"
  } else if (absl::StartsWith(column, "utilization.gpu")) {
    sample.utilization_percent = Number(text);
  } else if (absl::StartsWith(column, "memory.used")) {
    sample.memory_used_bytes = Mebibytes(text);
  } else if (absl::StartsWith(column, "memory.total")) {
    sample.memory_total_bytes = Mebibytes(text);
  } else if (column == "temperature.gpu") {
    sample.temperature_c = Number(text);
  } else if (absl::StartsWith(column, "power.draw")) {
    sample.power_w = Number(text);
  } else if (absl::StartsWith(column, "clocks.current.sm") ||
             absl::StartsWith(column, "clocks.sm")) {
    sample.sm_clock_mhz = Number(text);
  } else if (absl::StartsWith(column, "clocks.current.memory") ||
             absl::StartsWith(column, "clocks.mem")) {
    sample.memory_clock_mhz = Number(text);
  } else if (absl::StrContains(column, "_reasons.active")) {
    sample.throttle_reasons = Mask(text);
  }
}

}  // namespace

bool NvidiaSmiParser::AddLine(absl::string_view line) {
  std::vector<std::string> fields;
  for (absl::string_view field : absl::StrSplit(line, ',')) {
    fields.emplace_back(absl::StripAsciiWhitespace(field));
  }
  if (std::find(fields.begin(), fields.end(), "index") != fields.end()) {
    columns_ = std::move(fields);
    return true;
  }
  const auto index_column = std::find(columns_.begin(), columns_.end(), "index");
  if (index_column == columns_.end() || fields.size() != columns_.size()) return false;
  GpuSample sample;
  const size_t at = static_cast<size_t>(index_column - columns_.begin());
  if (!absl::SimpleAtoi(fields[at], &sample.index) || sample.index < 0 || sample.index > 1023) {
    return false;
  }
  for (size_t i = 0; i < fields.size(); ++i) SetColumn(columns_[i], fields[i], sample);
  has_all_ = has_all_ || samples_.count(sample.index) != 0;
  samples_[sample.index] = std::move(sample);
  return true;
}

NvidiaSmiProbe::NvidiaSmiProbe(std::string program, Clock& clock)
    : program_(program.empty() ? FindNvidiaSmi() : std::move(program)), clock_(clock) {}

NvidiaSmiProbe::~NvidiaSmiProbe() { StopChild(); }

std::vector<GpuSample> NvidiaSmiProbe::Sample() {
  if (program_.empty()) return {};
  dying_.erase(std::remove_if(dying_.begin(), dying_.end(),
                              [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; }),
               dying_.end());
  if (child_ < 0 && clock_.SinceBoot() >= next_start_) StartChild();
  if (child_ >= 0) ReadLines();
  if (child_ >= 0 && clock_.SinceBoot() - last_line_ > kSilentTooLong) {
    Log(LogLevel::kWarning, absl::StrCat("telemetry: ", program_, " is silent, starting it again"));
    StopChild();
  }
  std::vector<GpuSample> samples;
  for (const auto& [index, sample] : parser_.samples()) samples.push_back(sample);
  return samples;
}

void NvidiaSmiProbe::StartChild() {
  next_start_ = clock_.SinceBoot() + pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
  absl::StatusOr<FdPair> output = MakePipe("telemetry");
  if (!output.ok()) return;
  fcntl(output->first.get(), F_SETFL, O_NONBLOCK);
  SpawnOptions options;
  options.argv = {program_, kQuery, "--format=csv,nounits", "-lms", "1000"};
  options.stdout_fd = output->second.get();
  absl::StatusOr<pid_t> pid = Spawn(options);
  if (!pid.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("telemetry: ", pid.status().message()));
    return;
  }
  child_ = *pid;
  output_ = std::move(output->first);
  partial_line_.clear();
  last_line_ = clock_.SinceBoot();
}

void NvidiaSmiProbe::StopChild() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  // A child stuck in the driver may not die for a while, so it is reaped later.
  dying_.push_back(child_);
  child_ = -1;
  output_.reset();
  parser_.Clear();
}

void NvidiaSmiProbe::ReadLines() {
  char buffer[16 << 10];
  for (;;) {
    const ssize_t got = read(output_.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    if (got == 0) return StopChild();
    for (const char c : absl::string_view(buffer, static_cast<size_t>(got))) {
      if (c != '\n') {
        if (partial_line_.size() < kLongestLine) partial_line_ += c;
        continue;
      }
      if (parser_.AddLine(partial_line_)) {
        last_line_ = clock_.SinceBoot();
        pause_ = absl::Seconds(1);
      }
      partial_line_.clear();
    }
  }
}

}  // namespace gpuctl

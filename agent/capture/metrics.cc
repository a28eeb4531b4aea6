#include "agent/capture/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxMetricLineBytes = 64 << 10;
constexpr size_t kMaxHeldBytes = 1 << 20;
constexpr size_t kReadBytes = 64 << 10;
constexpr int kReadsAPump = 16;

}  // namespace

std::string FormatMetricLine(absl::string_view line, int attempt, int64_t output_offset,
                             int64_t time_ms) {
  const std::string ours =
      absl::StrCat("{\"gpuctl\":{\"attempt\":", attempt, ",\"output_offset\":", output_offset,
                   ",\"time_ms\":", time_ms, "}");
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (text.size() >= 2 && text.front() == '{' && text.back() == '}' &&
      nlohmann::json::accept(text.begin(), text.end())) {
    const absl::string_view members = absl::StripAsciiWhitespace(text.substr(1, text.size() - 2));
    return absl::StrCat(ours, members.empty() ? "" : ",", members, "}\n");
  }
  const nlohmann::json quoted = std::string(text);
  return absl::StrCat(ours, ",\"text\":",
                      quoted.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "}\n");
}

MetricsDrain::MetricsDrain(UniqueFd fifo, StreamWriter stream, int attempt, Clock& clock)
    : fifo_(std::move(fifo)), stream_(std::move(stream)), attempt_(attempt), clock_(clock) {}

bool MetricsDrain::Pump(int64_t output_offset) {
  char buffer[kReadBytes];
  bool more = true;
  for (int i = 0; i < kReadsAPump && more; ++i) {
    const ssize_t got = read(fifo_.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    more = got > 0;
    if (more) Consume({buffer, static_cast<size_t>(got)}, output_offset);
  }
  Flush().IgnoreError();  // unstored lines are held back: see pending()
  return more;
}

void MetricsDrain::PumpAll(int64_t output_offset) {
  while (Pump(output_offset)) {
  }
  EndLine(output_offset);
  Flush().IgnoreError();
}

void MetricsDrain::Consume(absl::string_view data, int64_t output_offset) {
  while (!data.empty()) {
    const size_t newline = data.find('\n');
    const absl::string_view part = data.substr(0, newline);
    if (line_.size() + part.size() > kMaxMetricLineBytes) {
      too_long_ = true;
      line_.clear();
    }
    if (!too_long_) absl::StrAppend(&line_, part);
    if (newline == absl::string_view::npos) return;
    EndLine(output_offset);
    data.remove_prefix(newline + 1);
  }
}

void MetricsDrain::EndLine(int64_t output_offset) {
  if (too_long_) {
    ++dropped_lines_;
  } else if (!absl::StripAsciiWhitespace(line_).empty()) {
    if (batch_.size() > kMaxHeldBytes) Flush().IgnoreError();
    if (batch_.size() > kMaxHeldBytes) {
      ++dropped_lines_;
    } else {
      absl::StrAppend(&batch_, FormatMetricLine(line_, attempt_, output_offset,
                                                absl::ToUnixMillis(clock_.Now())));
    }
  }
  too_long_ = false;
  line_.clear();
}

absl::Status MetricsDrain::Flush() {
  if (batch_.empty()) return absl::OkStatus();
  if (batch_start_ < 0) batch_start_ = stream_.size();
  absl::Status status = stream_.WriteAt(batch_start_, batch_);  // skips what is stored already
  if (!status.ok()) return status;
  batch_.clear();
  batch_start_ = -1;
  return absl::OkStatus();
}

void MetricsDrain::DropPending() {
  const size_t stored = batch_start_ < 0 ? 0 : static_cast<size_t>(stream_.size() - batch_start_);
  dropped_lines_ +=
      std::count(batch_.begin() + static_cast<std::ptrdiff_t>(stored), batch_.end(), '\n');
  batch_.clear();
  batch_start_ = -1;
}

int64_t MetricsDrain::TakeDroppedLines() { return std::exchange(dropped_lines_, 0); }

}  // namespace gpuctl

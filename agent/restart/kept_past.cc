#include "agent/restart/kept_past.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/stream_file.h"

namespace gpuctl {
namespace {

using Type = LifecycleEvent::Type;

// No line of metrics is longer, see agent/capture/metrics.cc.
constexpr int64_t kMetricsTail = 256 << 10;

// True for a line, or a part of one, that may have been the start of an attempt.
bool MayBeStart(absl::string_view line) {
  constexpr absl::string_view kQueued = "{\"event\":\"queued";
  if (line.empty() || absl::StartsWith(line, kQueued)) return false;
  // A whole one is of a newer version.
  return !absl::StartsWith(line, "{") || !absl::EndsWith(line, "}");
}

// True when a line behind the last state event cannot be read, and may have been a start.
bool IsStartTorn(absl::string_view text) {
  absl::string_view tail = text;
  for (bool last = true; !tail.empty(); last = false) {
    const size_t newline = tail.rfind('\n');
    const absl::string_view line =
        newline == absl::string_view::npos ? tail : tail.substr(newline + 1);
    tail = newline == absl::string_view::npos ? absl::string_view() : tail.substr(0, newline);
    const absl::StatusOr<LifecycleEvent> event = ParseLifecycleEvent(line);
    // What has no newline yet does not count.
    if (event.ok() && !last) {
      if (event->type == Type::kStarted || event->type == Type::kExited ||
          event->type == Type::kLost || event->type == Type::kRetry) {
        return false;
      }
      continue;
    }
    if (MayBeStart(line) || (event.ok() && event->type == Type::kStarted)) return true;
  }
  return false;
}

absl::StatusOr<int64_t> SizeOfStream(const std::string& path, StreamShape shape) {
  ASSIGN_OR_RETURN(const Extent extent, StreamReader(path, shape).GetExtent());
  return extent.size;
}

// Returns the attempt of the last whole line of metrics; 0 when there is none.
absl::StatusOr<int> AttemptOfMetrics(const JobPaths& job) {
  StreamReader reader(job.metrics, PlainShape());
  ASSIGN_OR_RETURN(const Extent extent, reader.GetExtent());
  std::string tail(static_cast<size_t>(std::min(extent.size, kMetricsTail)), '\0');
  size_t filled = 0;
  while (filled < tail.size()) {
    const int64_t room = static_cast<int64_t>(tail.size() - filled);
    ASSIGN_OR_RETURN(const int64_t got,
                     reader.Read(extent.size - room, tail.data() + filled, room));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  absl::string_view text(tail.data(), filled);
  const size_t end = text.rfind('\n');
  if (end == absl::string_view::npos) return 0;
  text = text.substr(0, end);
  absl::string_view line = text.substr(text.rfind('\n') + 1);
  int attempt = 0;
  if (!absl::ConsumePrefix(&line, "{\"gpuctl\":{\"attempt\":") ||
      !absl::SimpleAtoi(line.substr(0, line.find(',')), &attempt)) {
    return 0;
  }
  return std::max(attempt, 0);
}

bool HasFiles(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  return names.ok() && !names->empty();
}

}  // namespace

absl::StatusOr<KeptPast> ReadKeptPast(const JobPaths& job, const gpuctl::v1::JobSpec& spec) {
  const absl::StatusOr<std::string> text = ReadFileToString(job.lifecycle);
  if (!text.ok() && !absl::IsNotFound(text.status())) return text.status();
  KeptPast past;
  if (text.ok()) past.lifecycle = ParseLifecycle(*text);
  const LifecycleEvent* last = LastStateEvent(past.lifecycle);
  ASSIGN_OR_RETURN(const int64_t output, SizeOfStream(job.output, OutputShape(spec)));
  ASSIGN_OR_RETURN(const int measured, AttemptOfMetrics(job));
  const bool torn = text.ok() && IsStartTorn(*text);
  if (last == nullptr) {
    // Its file is made with its first line.
    const bool emptied = text.ok() && past.lifecycle.events.empty();
    if (emptied || torn || output > 0 || measured > 0 || HasFiles(job.checkpoints)) {
      return absl::DataLossError(
          "lifecycle.jsonl is damaged, so nobody knows which attempts there were");
    }
    return past;
  }
  if (last->type == Type::kStarted) past.running = std::max(last->attempt, measured);
  if (last->type == Type::kRetry &&
      (torn || output > last->output_size || measured >= last->attempt)) {
    past.running = std::max(last->attempt, measured);
  }
  return past;
}

gpuctl::v1::JobSpec SpecInPlace(const JobPaths& job, const std::string& job_id) {
  gpuctl::v1::JobSpec spec;
  spec.set_job_id(job_id);
  // Each segment begins at a multiple of their size.
  int64_t size = 0;
  const absl::StatusOr<std::vector<int64_t>> segments = ListSegments(job.output);
  for (const int64_t start : segments.value_or(std::vector<int64_t>())) {
    size = std::gcd(size, start);
  }
  spec.set_output_segment_bytes(size);
  return spec;
}

}  // namespace gpuctl

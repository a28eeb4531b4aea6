#include "client/streams/mirror_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "client/metrics/saved_numbers.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

constexpr int64_t kReadBytes = 256 << 10;
constexpr int64_t kMetricsAtOnceBytes = 4 << 20;
constexpr int64_t kTelemetryTailBytes = 16 << 10;
constexpr int64_t kSaveEveryBytes = 256 << 10;
constexpr int64_t kBytesBefore = 64;
constexpr int64_t kNewestBytes = 1 << 20;

StreamShape OutputShapeOf(int64_t segment_bytes) {
  return StreamShape{segment_bytes > 0 ? segment_bytes : kDefaultSegmentBytes};
}

// Reads from `offset` on, skipping dropped bytes.
absl::StatusOr<std::string> ReadOn(StreamReader& stream, int64_t& offset) {
  std::string bytes(static_cast<size_t>(kReadBytes), '\0');
  absl::StatusOr<int64_t> count = stream.Read(offset, bytes.data(), kReadBytes);
  if (count.status().code() == absl::StatusCode::kOutOfRange) {
    ASSIGN_OR_RETURN(offset, stream.NextStored(offset));
    count = stream.Read(offset, bytes.data(), kReadBytes);
  }
  RETURN_IF_ERROR(count.status());
  bytes.resize(static_cast<size_t>(*count));
  return bytes;
}

}  // namespace

MirrorReader::MirrorReader(const std::string& mirror_dir, int64_t output_segment_bytes)
    : paths_(mirror_dir),
      numbers_path_(JoinPath(mirror_dir, "numbers")),
      output_(paths_.output, OutputShapeOf(output_segment_bytes)),
      metrics_(paths_.metrics, PlainShape()),
      telemetry_stream_(paths_.telemetry, TelemetryShape()) {}

absl::Status MirrorReader::Refresh() { return RefreshUpTo(kMaxStreamOffset).status(); }

absl::StatusOr<bool> MirrorReader::RefreshSome() { return RefreshUpTo(kMetricsAtOnceBytes); }

absl::StatusOr<bool> MirrorReader::RefreshUpTo(int64_t bytes_at_most) {
  int64_t lifecycle_size = 0;
  for (const std::string& path : {paths_.lifecycle, paths_.beside}) {
    ASSIGN_OR_RETURN(const Extent extent, StreamReader(path, PlainShape()).GetExtent());
    lifecycle_size += extent.size;
  }
  if (lifecycle_size != lifecycle_size_) {
    lifecycle_size_ = lifecycle_size;
    ASSIGN_OR_RETURN(lifecycle_, ReadMirrorLifecycle(paths_.dir));
  }
  // What is stored meanwhile waits for the next call, so that this one ends.
  ASSIGN_OR_RETURN(const Extent metrics, metrics_.GetExtent());
  const int64_t end = std::min(metrics.size, metrics_offset_ + bytes_at_most);
  while (metrics_offset_ < end) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(metrics_, metrics_offset_));
    if (bytes.empty()) break;
    metrics_offset_ += static_cast<int64_t>(bytes.size());
    metrics_lines_.Add(bytes, [this](absl::string_view line) {
      std::optional<MetricSample> sample = ParseMetricsJson(line);
      own_.Add(line);
      if (!sample.has_value()) return;
      // The job's own metrics are better than numbers guessed from its output. A line about a
      // checkpoint says nothing of the training's numbers.
      if (sample->checkpoint) printed_.Add(*sample);
      if (!sample->checkpoint) has_metrics_ = true;
      if (sample->loss.has_value()) reported_steps_.Unfold(StepScope::kUnknown, *sample);
      reported_.Add(*sample);
    });
  }
  RETURN_IF_ERROR(RefreshTelemetry());
  return metrics_offset_ < metrics.size;
}

absl::Status MirrorReader::RefreshTelemetry() {
  ASSIGN_OR_RETURN(const Extent extent, telemetry_stream_.GetExtent());
  if (extent.size == telemetry_size_) return absl::OkStatus();
  telemetry_size_ = extent.size;
  int64_t offset = std::max(extent.first_offset, extent.size - kTelemetryTailBytes);
  std::string tail;
  while (offset < extent.size) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(telemetry_stream_, offset));
    if (bytes.empty()) break;
    offset += static_cast<int64_t>(bytes.size());
    tail += bytes;
  }
  LineAssembler lines;
  lines.Add(tail, [this](absl::string_view line) {
    // The first line may be incomplete: the tail began in it.
    std::optional<TelemetrySample> sample = ParseTelemetry(line);
    if (sample.has_value()) telemetry_ = std::move(sample);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::string> MirrorReader::ReadOutput(int64_t& offset) {
  return ReadOn(output_, offset);
}

absl::StatusOr<std::string> MirrorReader::ReadMetrics(int64_t& offset) {
  return ReadOn(metrics_, offset);
}

absl::StatusOr<std::string> MirrorReader::ReadTelemetry(int64_t& offset) {
  return ReadOn(telemetry_stream_, offset);
}

absl::StatusOr<std::string> MirrorReader::BytesBefore(int64_t offset) {
  const int64_t begin = std::max<int64_t>(0, offset - kBytesBefore);
  int64_t from = begin;
  ASSIGN_OR_RETURN(std::string bytes, ReadOn(output_, from));
  // Another offset: the node dropped these bytes since.
  if (from != begin) return std::string();
  bytes.resize(std::min(bytes.size(), static_cast<size_t>(offset - begin)));
  return bytes;
}

// Loads what an earlier reader found, when it was found in this output.
absl::Status MirrorReader::LoadNumbers() {
  scanned_output_ = 0;
  const absl::StatusOr<std::string> bytes = ReadFileToString(numbers_path_);
  if (!bytes.ok()) return absl::OkStatus();
  std::optional<SavedNumbers> saved = ParseSavedNumbers(*bytes);
  ASSIGN_OR_RETURN(const Extent extent, output_.GetExtent());
  if (!saved.has_value() || saved->offset > extent.size) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string before, BytesBefore(saved->offset));
  // Bytes that are not stored any more prove nothing.
  if (!before.empty() && before != saved->before) return absl::OkStatus();
  scanned_output_ = saved_output_ = saved->offset;
  output_metrics_ = std::move(saved->metrics);
  printed_ = std::move(saved->progress);
  if (reported_.checkpoint_step() < 0) return absl::OkStatus();
  MetricSample checkpoint;
  checkpoint.step = reported_.checkpoint_step();
  checkpoint.checkpoint = true;
  printed_.Add(checkpoint);
  return absl::OkStatus();
}

// Stores what was found. Several gpuctl may do so at once: each stores a whole file, and the last
// one stays. A failure costs the next reader some time, no more.
void MirrorReader::SaveNumbers() {
  const int64_t offset = scanned_output_ - output_metrics_.unread_bytes();
  absl::StatusOr<std::string> before = BytesBefore(offset);
  if (!before.ok()) return;
  saved_output_ = offset;
  (void)WriteFileAtomic(
      numbers_path_, FormatSavedNumbers({offset, *std::move(before), output_metrics_, printed_}));
}

absl::Status MirrorReader::RefreshOutputMetrics(int64_t at_most) {
  if (has_metrics_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Extent extent, output_.GetExtent());
  if (extent.size == 0) return absl::OkStatus();
  if (scanned_output_ < 0) RETURN_IF_ERROR(LoadNumbers());
  if (scanned_output_ > extent.size) {  // the node never had these bytes: they were set aside
    output_metrics_ = OutputMetrics();
    printed_ = TrainingProgress();
    scanned_output_ = saved_output_ = 0;
  }
  const auto take = [this](const MetricSample& sample) { printed_.Add(sample); };
  const int64_t begin = scanned_output_;
  while (scanned_output_ < extent.size &&
         (scanned_output_ - begin < at_most || extent.size - scanned_output_ <= kNewestBytes)) {
    int64_t offset = scanned_output_;
    ASSIGN_OR_RETURN(std::string bytes, ReadOn(output_, offset));
    if (bytes.empty()) break;
    // Bytes may be of two attempts: the second one's steps are not the next epoch's.
    bool setup = false;
    for (const OutputPart& part : OutputPartsOf(lifecycle_)) {
      if (part.begin <= offset) {
        output_metrics_.BeginAttempt(part.attempt, take, part.ranks);
        setup = part.setup;
      } else if (part.begin < offset + static_cast<int64_t>(bytes.size())) {
        bytes.resize(static_cast<size_t>(part.begin - offset));
      }
    }
    scanned_output_ = offset + static_cast<int64_t>(bytes.size());
    if (!setup) output_metrics_.Read(bytes, take);
  }
  if (scanned_output_ - saved_output_ >= kSaveEveryBytes) SaveNumbers();
  // A progress bar is drawn for hours in one line, and its newest drawing has no end yet.
  output_metrics_.Look(take);
  newest_ = TrainingProgress();
  return scanned_output_ < extent.size ? ReadNewest(extent.size) : absl::OkStatus();
}

// Reads the numbers in the last bytes of an output of `size` bytes, into newest_ alone.
absl::Status MirrorReader::ReadNewest(int64_t size) {
  int64_t offset = size - kNewestBytes;
  bool torn = true;  // the first line may have begun before
  OutputMetrics metrics;
  const auto take = [this](const MetricSample& sample) { newest_.Add(sample); };
  bool setup = false;
  for (const OutputPart& part : OutputPartsOf(lifecycle_)) {
    if (part.begin > size) continue;
    metrics.BeginAttempt(part.attempt, take, part.ranks);
    setup = part.setup;
    if (part.begin < offset) continue;
    offset = part.begin;
    torn = false;
  }
  while (offset < size && !setup) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(output_, offset));
    if (bytes.empty()) break;
    offset += static_cast<int64_t>(bytes.size());
    absl::string_view lines = bytes;
    if (torn) {
      const size_t end = lines.find_first_of("\r\n");
      if (end == absl::string_view::npos) continue;
      lines.remove_prefix(end + 1);
      torn = false;
    }
    metrics.Read(lines, take);
  }
  metrics.Look(take);
  return absl::OkStatus();
}

absl::Status MirrorReader::RefreshAll() {
  RETURN_IF_ERROR(Refresh());
  return RefreshOutputMetrics(std::numeric_limits<int64_t>::max());
}

absl::Status MirrorReader::ForEachMetricsLine(const std::function<void(absl::string_view)>& line) {
  return ForEachLine(metrics_, line);
}

absl::Status MirrorReader::ForEachTelemetryLine(
    const std::function<void(absl::string_view)>& line) {
  return ForEachLine(telemetry_stream_, line);
}

absl::Status MirrorReader::ForEachLine(StreamReader& stream,
                                       const std::function<void(absl::string_view)>& line) {
  int64_t offset = 0;
  LineAssembler lines;
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadOn(stream, offset));
    if (bytes.empty()) return absl::OkStatus();
    offset += static_cast<int64_t>(bytes.size());
    lines.Add(bytes, line);
  }
}

}  // namespace gpuctl

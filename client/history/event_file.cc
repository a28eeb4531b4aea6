#include "client/history/event_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpuctl/v1/event_file.pb.h"

namespace gpuctl {
namespace {

constexpr char kFileVersion[] = "brain.Event:2";
constexpr uint32_t kCastagnoli = 0x82f63b78;  // its bits from the lowest to the highest power
constexpr uint32_t kMask = 0xa282ead8;

std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[byte] = crc;
  }
  return table;
}

void AppendLittleEndian(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

class EventWriter {
 public:
  explicit EventWriter(int64_t begun_ms) : time_ms_(begun_ms) {
    v1::TensorBoardEvent event;
    event.set_wall_time(Seconds());
    event.set_file_version(kFileVersion);
    Append(event);
  }

  // Begins an event. Wall times do not go back; an unknown one is that of the event before.
  void Begin(int64_t step, int64_t time_ms) {
    time_ms_ = std::max(time_ms_, time_ms);
    event_.Clear();
    event_.set_wall_time(Seconds());
    event_.set_step(step);
  }
  void Scalar(absl::string_view tag, double value) {
    auto* const scalar = event_.mutable_summary()->add_value();
    scalar->set_tag(std::string(tag));
    scalar->set_simple_value(static_cast<float>(value));
  }
  void Scalar(absl::string_view tag, const std::optional<double>& value) {
    if (value.has_value()) Scalar(tag, *value);
  }
  void End() {
    if (event_.has_summary()) Append(event_);
  }

  std::string Take() { return std::move(file_); }

 private:
  double Seconds() const { return static_cast<double>(time_ms_) / 1000; }
  void Append(const v1::TensorBoardEvent& event) {
    absl::StrAppend(&file_, FormatRecord(event.SerializeAsString()));
  }

  int64_t time_ms_;
  v1::TensorBoardEvent event_;
  std::string file_;
};

void WriteGroup(const GpuHistory::Group& group, EventWriter& writer) {
  constexpr std::pair<GpuHistory::Number, absl::string_view> kNames[] = {
      {GpuHistory::kUtilization, "utilization_percent"},
      {GpuHistory::kMemoryUsed, "memory_used_gb"},
      {GpuHistory::kPower, "power_w"},
      {GpuHistory::kTemperature, "temperature_c"}};
  for (size_t i = 0; i < group.gpus.size(); ++i) {
    for (const auto& [number, name] : kNames) {
      const double value = static_cast<double>(group.gpus[i][number]);
      if (std::isnan(value)) continue;
      writer.Scalar(absl::StrCat("gpu", i, "/", name),
                    number == GpuHistory::kMemoryUsed ? value / 1e9 : value);
    }
  }
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = MakeTable();
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + kMask;
}

std::string FormatRecord(absl::string_view data) {
  std::string record;
  record.reserve(data.size() + 16);
  AppendLittleEndian(data.size(), 8, record);
  AppendLittleEndian(MaskedCrc32c(record), 4, record);
  record.append(data.data(), data.size());
  AppendLittleEndian(MaskedCrc32c(data), 4, record);
  return record;
}

std::string FormatEventFile(const MetricHistory& history, const GpuHistory& gpus,
                            int64_t begun_ms) {
  EventWriter writer(begun_ms);
  auto group = gpus.groups().begin();
  for (const HistoryPoint& point : history.points()) {
    writer.Begin(point.step, point.time_ms);
    writer.Scalar("train/loss", point.loss);
    writer.Scalar("train/learning_rate", point.learning_rate);
    writer.Scalar("train/grad_norm", point.grad_norm);
    writer.Scalar("train/tokens_per_s", point.tokens_per_s);
    writer.Scalar("train/epoch", point.epoch);
    writer.Scalar("eval/loss", point.eval_loss);
    for (; group != gpus.groups().end() && group->step <= point.step; ++group) {
      if (group->step == point.step) WriteGroup(*group, writer);
    }
    writer.End();
  }
  return writer.Take();
}

}  // namespace gpuctl

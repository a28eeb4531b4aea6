// What the page draws of one run: its numbers step by step, its GPUs over time, its newest output.
#ifndef GPUCTL_CLIENT_DASHBOARD_RUN_SERIES_H_
#define GPUCTL_CLIENT_DASHBOARD_RUN_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/dashboard/gpu_series.h"
#include "client/history/metric_history.h"
#include "client/streams/mirror_reader.h"
#include "client/streams/read_history.h"
#include "client/terminal/line_assembler.h"

namespace gpuctl {

// Makes text from jobs, nodes and markets safe to show on one line, in every string of `json`.
void MakeStringsSafe(nlohmann::ordered_json& json);

class RunSeries {
 public:
  static constexpr size_t kMostSteps = 8000;
  static constexpr size_t kMostLines = 500;

  RunSeries(const std::string& mirror_dir, int64_t output_segment_bytes);
  RunSeries(const RunSeries&) = delete;
  RunSeries& operator=(const RunSeries&) = delete;

  // Reads some of what is stored and was not read. Returns true when there is more. `heard_ms`: the
  // node's last sign of life. `over`: nothing will be stored any more.
  absl::StatusOr<bool> Read(int64_t heard_ms, bool over);
  // True when all that was stored at the last Read is read.
  bool caught_up() const { return caught_up_; }

  // Returns what the page needs to draw all of it.
  nlohmann::ordered_json Whole() const;
  // Returns what changed since the last call of TakeNews; null when nothing did.
  nlohmann::ordered_json TakeNews();

 private:
  void ReadGpus();
  absl::Status ReadLog();
  void AddLine(absl::string_view line);
  nlohmann::ordered_json Json(int64_t from_step, size_t from_gpu, size_t lines,
                              bool log_is_whole) const;

  MirrorReader mirror_;
  MetricHistory history_;
  HistoryReader reader_;
  GpuSeries gpus_;
  LineAssembler telemetry_lines_;
  int64_t telemetry_offset_ = -1;  // -1: nothing was read yet
  LineAssembler log_lines_;
  int64_t log_offset_ = -1;
  bool log_is_torn_ = false;     // its first line began before
  std::deque<std::string> log_;  // the newest lines, safe
  size_t new_lines_ = 0;
  bool log_restarted_ = false;
  std::string partial_, told_partial_;  // the line that has no end yet
  size_t told_checkpoints_ = 0;
  int64_t told_own_ = 0;  // NewestOwn::lines
  bool caught_up_ = false, told_caught_up_ = false, finished_ = false;
};

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_DASHBOARD_RUN_SERIES_H_

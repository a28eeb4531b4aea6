// The fixed panel below a run's output. Pure: turns state and size into lines.
#ifndef GPUCTL_CLIENT_SHOW_PANEL_H_
#define GPUCTL_CLIENT_SHOW_PANEL_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/metrics/progress.h"
#include "client/runs/run_status.h"

namespace gpuctl {

struct PanelState {
  std::string run_name;
  std::string node_name;
  RunPhase phase = RunPhase::kLaunching;
  std::optional<absl::Duration> running_for;
  TrainingProgress progress;
  std::optional<TelemetrySample> telemetry;
  bool linked = false;
  bool ever_linked = false;
  bool by_other = false;                  // another gpuctl here has the link
  std::optional<absl::Duration> silence;  // since the node's last sign of life
  std::string link_error;                 // the reason why there is no link
  std::string hint;                       // text at the right of the title: "Ctrl-C detaches"
  std::string queue;                      // what it waits for; "" when it does not wait
  std::string money;                      // what the machine costs; "" when it is not rented
  std::string partial_line;               // the job's unfinished line, sanitized
  // Numbers under names of the job's own, the newest first; shown where there is room.
  std::vector<std::pair<std::string, double>> own;
};

struct PanelStyle {
  bool colour = true;
  bool utf8 = true;
};

// Returns at most seven lines (and one for the unfinished line), each at most `columns` - 1 wide;
// none when the terminal has fewer than 4 rows or 20 columns.
std::vector<std::string> RenderPanel(const PanelState& state, int columns, int rows,
                                     const PanelStyle& style);

// Returns the last line for a silent node, such as "last heard 12 s ago: the job runs on without
// us; retrying"; "" when the node is not silent.
std::string SilenceText(const PanelState& state);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SHOW_PANEL_H_

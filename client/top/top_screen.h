// The screen of gpuctl top: runs in a table, and their losses below. Pure.
#ifndef GPUCTL_CLIENT_TOP_TOP_SCREEN_H_
#define GPUCTL_CLIENT_TOP_TOP_SCREEN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/metrics/progress.h"
#include "client/runs/run_status.h"

namespace gpuctl {

struct TopRun {
  std::string name;
  std::string node;
  RunPhase phase = RunPhase::kLaunching;
  const TrainingProgress* progress = nullptr;  // outlives the call of RenderTop; null: nothing yet
  std::optional<TelemetrySample> telemetry;    // only of a run that has not ended
  std::optional<absl::Duration> running_for;
  std::string spent;   // "$1.20"; "" when its machine is not rented
  std::string remark;  // why its numbers may be old; "" when they are not
  std::string own;     // "accuracy 0.75": its newest number under a name of its own; "" for none
};

struct TopScreen {
  std::vector<TopRun> runs;
  std::string title;                 // what the whole is, for the first line
  std::vector<std::string> notices;  // the newest last
  bool help = false;                 // what the keys do, in the place of the rest
};

// Returns the lines for a terminal of this size, each at most `columns` - 1 wide and safe. Runs
// that do not fit are counted in a line. The losses of the first runs share a plot where there is
// room; `colour` and `utf8` are what the terminal can show.
std::vector<std::string> RenderTop(const TopScreen& screen, int columns, int rows, bool colour,
                                   bool utf8);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_TOP_TOP_SCREEN_H_

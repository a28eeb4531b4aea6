// What came of the runs of a batch: parameters, a metric, cost, and the best run.
#ifndef GPUCTL_CLIENT_VERBS_QUEUE_RESULTS_H_
#define GPUCTL_CLIENT_VERBS_QUEUE_RESULTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/batch/batch_plan.h"
#include "client/market/holdings.h"
#include "client/metrics/plot.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// As typed.
struct ResultFlags {
  std::string metric;  // "": loss
  std::string goal;    // "min", "max"; "": as the metric's name says
  bool csv = false;
};

// Returns the run of the batches with the best value. NOT_FOUND when none has one; usage errors for
// wrong flags.
absl::StatusOr<RunRow> FindBestRun(CommandContext& context, const ResultFlags& flags,
                                   const std::vector<BatchView>& views);

// Returns the names of the numbers that the runs' copies here have: those that gpuctl knows, then
// the jobs' own.
std::vector<std::string> NumbersOfRuns(const ClientPaths& paths, const std::vector<RunRow>& runs);

// Returns a metric of a run by step, as its copy here has it: one of those that gpuctl knows, or
// any other by the name that the job gave it. Values without a step are left out.
std::vector<PlotPoint> PointsOfMetric(const ClientPaths& paths, const RunRow& run,
                                      const std::string& metric);

// Returns the metric of a run by step, as its copy here has it, so that the lowest value is the
// best: with other signs where the highest one is. Usage errors for wrong flags.
absl::StatusOr<std::vector<PlotPoint>> PointsToChooseBy(CommandContext& context,
                                                        const ResultFlags& flags,
                                                        const RunRow& run);

// Prints one row for each entry, as a table, JSON or CSV. Usage errors for wrong flags.
absl::Status PrintResults(CommandContext& context, Holdings& holdings, BatchStore& batches,
                          const ResultFlags& flags, const std::vector<BatchView>& views);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_QUEUE_RESULTS_H_

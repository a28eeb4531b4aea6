// What is told of a run's end: facts, and the texts and JSON that are made of them. Pure.
#ifndef GPUCTL_CLIENT_NOTIFY_NOTICE_H_
#define GPUCTL_CLIENT_NOTIFY_NOTICE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/metrics/progress.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"

namespace gpuctl {

// The lowest held-out loss, or where there is none, the lowest loss.
struct BestMetric {
  std::string name;  // "eval_loss", "loss"
  double value = 0;
  int64_t step = -1;
};
std::optional<BestMetric> BestOf(const TrainingProgress& progress);

struct Notice {
  RunRow row;  // its end is recorded
  RunStatus status;
  std::optional<BestMetric> best;
  std::optional<double> cost_usd;  // at most; absent: nothing was rented
};

// Returns the word of the outcome: "succeeded", "failed", "stopped", "limit", "lost".
std::string OutcomeOf(const Notice& notice);
// Returns "math-3 succeeded", and what goes below it: "exited with code 0 after 1h 05m, $2.10, best
// eval_loss 1.234 at step 500". One line each, with readable escapes for anything odd.
std::string TitleOf(const Notice& notice);
std::string BodyOf(const Notice& notice);
// Returns the JSON of the run (docs/json.md) with `outcome`, `best` and `cost_usd`.
nlohmann::ordered_json NoticeJson(const Notice& notice);
// Returns the same facts as variables, "GPUCTL_OUTCOME=failed".
std::vector<std::string> NoticeVariables(const Notice& notice);
// Returns the body of a message to a Slack webhook, which Mattermost and others take as well.
nlohmann::ordered_json SlackMessage(const Notice& notice);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NOTIFY_NOTICE_H_

// Downloads a run's results: its newest checkpoint and its artifacts, or those that the user named.
#ifndef GPUCTL_CLIENT_RESULTS_PULL_RESULTS_H_
#define GPUCTL_CLIENT_RESULTS_PULL_RESULTS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/link/link.h"
#include "client/metrics/plot.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"

namespace gpuctl {

struct PullRequest {
  std::string to, checkpoint;
  // By what `checkpoint` "best" chooses: values by step, the lowest is best. Absent: the evaluation
  // losses.
  std::optional<std::vector<PlotPoint>> best_by;
  std::vector<std::string> patterns;
  bool own_directory = false;  // `to` is the default, ./RUN
  int streams = 0;
  bool overwrite = false;  // replaces files that pull did not bring
  // When there are no such results: brings all that the ended job made, up to 1 GiB.
  bool undeclared = false;
  bool machine_ends_next = false;  // so nobody has to be told how long it bills
};

// The results, with objects as in docs/json.md.
struct PullResults {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::array();
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  int64_t bytes = 0;
  bool nothing = false;  // the run has ended, and its job made nothing
};

// Downloads and verifies the results; uses SFTP when the agent cannot run. Tells a node with limits
// which results are home. Sets `pulled` also on errors. NOT_FOUND with pulled.nothing: there was
// nothing.
absl::Status BringResults(CommandContext& context, LinkFactory& links, const RunRow& row,
                          const PullRequest& request, PullResults& pulled);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_PULL_RESULTS_H_

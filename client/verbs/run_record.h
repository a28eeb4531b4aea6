// Everything that this laptop has recorded of one run, for show and diff.
#ifndef GPUCTL_CLIENT_VERBS_RUN_RECORD_H_
#define GPUCTL_CLIENT_VERBS_RUN_RECORD_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/bill/run_machines.h"
#include "client/history/own_metrics.h"
#include "client/market/holdings.h"
#include "client/metrics/progress.h"
#include "client/runs/context.h"
#include "client/runs/pulled_record.h"
#include "client/runs/run_status.h"
#include "client/runs/run_store.h"
#include "client/runs/source_record.h"
#include "client/spec/launch_record.h"

namespace gpuctl {

struct RunRecord {
  RunRow row;
  RunStatus status;
  std::optional<LaunchRecord> launch;  // absent: an older gpuctl launched it
  nlohmann::ordered_json spec;         // the same as JSON
  SourceRecord source;
  std::string content;   // digest of the work directory's files; "" when none were sent
  RunMachines machines;  // those that it used last; none: nothing was rented for it
  std::vector<TelemetrySample::Gpu> gpus;  // as the node told last
  int64_t checkpoint_step = -1;            // of the newest one in its metrics; -1: none
  std::vector<PulledItem> checkpoints;     // at home, newest first
  std::string mirror;                      // the directory of its copy here
  std::string on_node;                     // its directory on the machine
  int64_t home_ms = 0;                     // when all its results were found at home; 0: never
  std::vector<OwnNumber> own;              // the last values under names of the job's own
};

// Reads it, and asks nobody.
absl::StatusOr<RunRecord> ReadRunRecord(CommandContext& context, Holdings& holdings,
                                        RunStore& store, const RunRow& row);

// True when a variable of this name holds a secret.
bool NamesSecret(absl::string_view name);
// Returns the value of a variable for people and scripts: "(hidden)" for a secret.
std::string ShownValue(absl::string_view name, const std::string& value);

// Returns "2x NVIDIA H100", or what the offer promised before the node told; "" for none.
std::string GpusOf(const RunRecord& record);
// Returns the version of the GPUs' driver; "" when it is not known.
std::string DriverOf(const RunRecord& record);
// Returns the time that it ran, in milliseconds; -1 when that is not known.
int64_t TookMs(const RunRecord& record, int64_t now_ms);

// One thing that is known of a run. `shown` stands for it where `value` is a secret or long.
struct RecordField {
  std::string name;  // "env.LR", "limits", "commit"
  std::string value;
  std::string shown;
};
// Returns all fields in which runs can differ, what was asked for first.
std::vector<RecordField> FieldsOf(const RunRecord& record, const std::string& diff, int64_t now_ms);
// Returns a field for each package of the run's Python; none when they are not recorded.
std::vector<RecordField> PackageFieldsOf(const RunRow& row);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_RUN_RECORD_H_

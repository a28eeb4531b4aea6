// What the user asks for: the run file (YAML), which the command line's flags then change. Pure:
// nothing is looked up, opened or asked here.
#ifndef GPUCTL_CLIENT_SPEC_RUN_SPEC_H_
#define GPUCTL_CLIENT_SPEC_RUN_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/spec/gpu_names.h"

namespace gpuctl {

// The retry condition that the laptop sees to, not the node.
constexpr char kOnPreempted[] = "preempted";

// Storage of the user's that a rented machine mounts.
struct VolumeRequest {
  std::string name;  // or id; empty: none
  std::string path;  // absolute; empty: the provider's own
};

struct RunSpec {
  std::string name;  // empty: a readable one is made
  // Alternatives, first choice first. Empty: no GPU is asked for.
  std::vector<GpuRequirement> gpu;
  // "local" or "ssh" alone, or rental markets. Empty: ssh when a host is named, else local.
  std::vector<std::string> providers;
  // Of the whole instance. This and the next four are for what is rented.
  std::optional<double> max_price_usd_per_hour;
  bool spot = false;
  std::vector<std::string> regions;
  std::string image;
  VolumeRequest volume;
  int64_t disk_bytes = 0;                   // free space the node must have
  std::string workdir = ".";                // relative to the run file's directory
  std::map<std::string, std::string> data;  // trees on the laptop -> paths below the work directory
  std::map<std::string, std::string> env;
  std::vector<std::string> secrets;  // names; values come from the environment
  // Exactly one of the three is set in a complete spec.
  std::string run;                       // bash script
  std::vector<std::string> command;      // argv, from after "--"
  std::string trainer_json;              // configuration of the built-in trainer, one JSON object
  std::vector<std::string> checkpoints;  // shell patterns below the work directory
  std::vector<std::string> artifacts;
  absl::Duration time_limit = absl::Hours(24);
  absl::Duration grace = absl::Seconds(60);
  // Of a rented machine. Absent cost: what time and salvage cost at its price.
  std::optional<double> cost_limit_usd;
  absl::Duration idle_limit = absl::Minutes(10);
  absl::Duration salvage = absl::Hours(24);        // results that are not home are kept this long
  absl::Duration contact_limit = absl::Hours(72);  // `lease`: without contact, while no job runs
  int64_t output_limit_bytes = 0;                  // 0: the node's default
  int max_retries = 0;
  std::vector<std::string> retry_on = {"lost"};
  absl::Duration retry_backoff = absl::Seconds(10);
};

// Reads a run file. INVALID_ARGUMENT names `file`, line and column, what is wrong there and, for a
// misspelled field, the nearest right one. Fields that this version cannot honour are errors, never
// ignored.
absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, absl::string_view file);

// What no single field can tell: exactly one of run, command, trainer; settings that the trainer
// takes; a usable name; known retry conditions. INVALID_ARGUMENT.
absl::Status CheckRunSpec(const RunSpec& spec);

// "local", "ssh" or a rental market; INVALID_ARGUMENT for another, naming the nearest right one.
absl::Status CheckProviderName(absl::string_view provider);
// The same for a list: local and ssh stand alone, and nothing is named twice.
absl::Status CheckProviders(const std::vector<std::string>& providers);
// True when one of `spec`'s providers rents machines out.
bool NamesMarket(const RunSpec& spec);
// INVALID_ARGUMENT when `spec` sets what only a rented machine has: a price or cost, a region, an
// image.
absl::Status CheckNothingRented(const RunSpec& spec);

// True when a run whose machine is taken away is to go on on another one.
bool ResumesWhenPreempted(const RunSpec& spec);

// "NAME" or "NAME:PATH"; INVALID_ARGUMENT for a path that is not absolute or has odd characters.
absl::StatusOr<VolumeRequest> ParseVolumeRequest(absl::string_view text);

// "KEY=VALUE"; INVALID_ARGUMENT when it is none or KEY cannot name a variable.
absl::Status AddEnvironment(absl::string_view assignment, RunSpec& spec);
// "DIR=PATH" of a tree to bring beside the work directory; INVALID_ARGUMENT for a path that leads
// out.
absl::Status AddData(absl::string_view assignment, RunSpec& spec);
// "section.key=value" for the built-in trainer; the value is read as YAML.
absl::Status SetTrainerOption(absl::string_view assignment, RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_RUN_SPEC_H_

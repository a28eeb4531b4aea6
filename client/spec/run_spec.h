// The user's request: the run file (YAML), which the command line's flags then change. Pure: opens
// nothing and asks nobody.
#ifndef GPUCTL_CLIENT_SPEC_RUN_SPEC_H_
#define GPUCTL_CLIENT_SPEC_RUN_SPEC_H_

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/spec/gpu_names.h"
#include "client/spec/notify_request.h"
#include "client/spec/registry_request.h"
#include "common/metrics/alert_watch.h"
#include "provisioning/market/types.h"

namespace gpuctl {

// The retry condition that the laptop handles, not the node.
constexpr char kOnPreempted[] = "preempted";

// Most GPUs that one run can ask for.
constexpr int kMostGpus = 1024;
constexpr int kMostNodes = 64;

// RunSpec::processes: one for each GPU that the job sees.
constexpr int kOneForEachGpu = -1;
// Most processes of one run on one machine.
constexpr int kMostProcesses = 512;
// Parses "gpus" or a number from 1 to kMostProcesses; INVALID_ARGUMENT for another word.
absl::StatusOr<int> ParseProcesses(absl::string_view word);
// Returns the word; "" for 0.
std::string ProcessesWord(int processes);

// Answers to a price rise while nobody watches: say it only; accept it up to max_price; refuse it,
// which keeps the old price until the contract ends; stop the job.
constexpr std::array<const char*, 4> kPriceRules = {"tell", "accept", "refuse", "stop"};
// Accepts one of them; INVALID_ARGUMENT for another.
absl::Status CheckPriceRule(absl::string_view rule);

// A volume of the user's that a rented machine mounts.
struct VolumeRequest {
  std::string name;  // name or id; empty: none
  std::string path;  // mount path, absolute; empty: the provider's default
};

// Where the built-in trainer for another machine comes from: compiled there, or sent as a kit.
enum class TrainerBuild { kAuto, kNode, kKit };
// Parses "auto", "node" or "kit"; INVALID_ARGUMENT for another word.
absl::StatusOr<TrainerBuild> ParseTrainerBuild(absl::string_view word);
absl::string_view TrainerBuildName(TrainerBuild build);

struct RunSpec {
  std::string name;  // empty: gpuctl makes a readable one
  // Alternatives, first choice first. Empty: no GPU requested.
  std::vector<GpuRequirement> gpu;
  // GPUs that the run gets for itself out of its machine's; it waits there until they are free.
  // Absent: it sees all and waits for none.
  std::optional<int> gpus;
  // Machines that the run has at once, each with a part of it; 0 and 1: one.
  int nodes = 0;
  // "local" or "ssh" alone, or rental markets. Empty: ssh when a host is named, else local.
  std::vector<std::string> providers;
  // Price limit of the whole instance. This field and the next six concern rented machines.
  std::optional<double> max_price_usd_per_hour;
  // The answer of gpuctl keep when the host raises the price of the machine: kPriceRules.
  std::string on_price_rise = "tell";
  bool spot = false;
  std::vector<std::string> regions;
  std::string image;
  RegistryRequest registry;  // the login for the image; empty: anybody may pull it
  VolumeRequest volume;
  int64_t disk_bytes = 0;                   // free space the node must have
  std::string workdir = ".";                // relative to the run file's directory
  std::map<std::string, std::string> data;  // trees on the laptop -> paths below the work directory
  std::map<std::string, std::string> env;
  std::vector<std::string> secrets;  // names; KeyStore::FindSecret has the values
  std::string setup;                 // bash script that makes the environment; empty: none
  // Exactly one of the three is set in a complete spec.
  std::string run;                   // bash script
  std::vector<std::string> command;  // argv, from after "--"
  std::string trainer_json;          // configuration of the built-in trainer, one JSON object
  TrainerBuild trainer_build = TrainerBuild::kAuto;
  std::vector<std::string> checkpoints;  // shell patterns below the work directory
  std::vector<std::string> artifacts;
  // "6006" or "6006:8080": ports of the machine that are ports here while somebody looks at the
  // run.
  std::vector<std::string> ports;
  absl::Duration time_limit = absl::Hours(24);
  absl::Duration grace = absl::Seconds(60);
  // Limits of a rented machine. Absent cost limit: the price of time_limit and salvage.
  std::optional<double> cost_limit_usd;
  absl::Duration idle_limit = absl::Minutes(10);
  // How long results that are not home are kept; absent: SalvageOf in lease_limits.h decides.
  std::optional<absl::Duration> salvage;
  absl::Duration contact_limit = absl::Hours(72);  // `lease`: without contact, while no job runs
  int64_t output_limit_bytes = 0;                  // 0: the node's default
  int max_retries = 0;
  std::vector<std::string> retry_on = {"lost"};
  absl::Duration retry_backoff = absl::Seconds(10);
  // Runs, and entries of batches, that must have succeeded first; only submit takes them.
  std::vector<std::string> after;
  std::string every;  // times of a schedule (ParseCron); only submit takes it
  NotifyRequest notify;
  // Conditions under which the node stops the job.
  std::vector<std::string> stop_if;
  std::vector<Plateau> plateaus;
  // The fields that the run file has, like "limits.time" and "notify", and those that flags have:
  // no default counts for them. They are not part of what is launched.
  std::set<std::string> given, flagged;
  // How often the command is started, as processes with ranks; kOneForEachGpu. 0: once, without
  // ranks.
  int processes = 0;
  SchedulerWishes slurm;  // for an allocation of a cluster
};

// Reads a run file. INVALID_ARGUMENT names `file`, line, column, the cause and, for a misspelled
// field, the nearest valid one; for another tool's field ours. It has the line as its excerpt.
// Fields that this version does not support are errors, never ignored.
absl::StatusOr<RunSpec> ParseRunSpec(absl::string_view yaml, absl::string_view file);

// Sets one field, like "limits.time", as a run file with that value would. `where` begins the
// message of the error. NOT_FOUND when there is no such field.
absl::Status SetRunField(absl::string_view field, const nlohmann::json& value,
                         absl::string_view where, RunSpec& spec);

// Returns the JSON Schema of run files, made of the table that reads them. What needs several
// fields, or knowledge of GPUs and paths, it leaves to ParseRunSpec and CheckRunSpec.
nlohmann::ordered_json RunFileSchema();

// Checks what needs several fields: exactly one of run, command, trainer; settings that the trainer
// accepts; a usable name; known retry conditions. Returns INVALID_ARGUMENT.
absl::Status CheckRunSpec(const RunSpec& spec);

// Accepts "local", "ssh" or a rental market; INVALID_ARGUMENT for another, naming the nearest valid
// one.
absl::Status CheckProviderName(absl::string_view provider);
// Does the same for a list: local and ssh stand alone, and no provider is named twice.
absl::Status CheckProviders(const std::vector<std::string>& providers);
// True when one of `spec`'s providers rents machines out.
bool NamesMarket(const RunSpec& spec);
// Returns INVALID_ARGUMENT when `spec` sets a field that only rented machines have: a price or
// cost, a region, an image.
absl::Status CheckNothingRented(const RunSpec& spec);
// Returns INVALID_ARGUMENT when `spec` asks something of a scheduler, and its providers have none.
absl::Status CheckScheduler(const RunSpec& spec);

// Returns INVALID_ARGUMENT when `spec` says how many GPUs of a rented machine the run gets, and not
// which machine that is: too small a one would be found out after it was rented.
absl::Status CheckShareOfRented(const RunSpec& spec);

// Returns INVALID_ARGUMENT when the run gets more GPUs than its machine has, or when somebody else
// says which these are.
absl::Status CheckGpus(const RunSpec& spec);
// Returns INVALID_ARGUMENT for one process a GPU, and no GPU.
absl::Status CheckProcesses(const RunSpec& spec);

// True when the run continues on another machine after the market takes its machine away.
bool ResumesWhenPreempted(const RunSpec& spec);

// Parses "NAME" or "NAME:PATH"; INVALID_ARGUMENT for a path that is not absolute or has odd
// characters.
absl::StatusOr<VolumeRequest> ParseVolumeRequest(absl::string_view text);

// Adds "KEY=VALUE"; INVALID_ARGUMENT for another form or when KEY cannot name a variable.
absl::Status AddEnvironment(absl::string_view assignment, RunSpec& spec);
// Adds "DIR=PATH", a tree to send beside the work directory; INVALID_ARGUMENT for a path that leads
// out.
absl::Status AddData(absl::string_view assignment, RunSpec& spec);
// Sets "section.key=value" for the built-in trainer; the value is read as YAML.
absl::Status SetTrainerOption(absl::string_view assignment, RunSpec& spec);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_RUN_SPEC_H_

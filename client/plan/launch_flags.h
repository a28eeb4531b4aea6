// The command line of gpuctl launch, applied to the run file.
#ifndef GPUCTL_CLIENT_PLAN_LAUNCH_FLAGS_H_
#define GPUCTL_CLIENT_PLAN_LAUNCH_FLAGS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/flag_set.h"
#include "client/config/resource_flags.h"
#include "client/config/settings.h"
#include "client/hosts/resolve_target.h"
#include "client/runs/context.h"
#include "client/spec/run_spec.h"
#include "provisioning/rental/rental.h"

namespace gpuctl {

// Flags as typed; each overrides the run file's field of the same name.
struct LaunchFlags {
  std::string verb = "launch";  // which the hints name
  std::string pull;             // "true", or the number to keep
  std::string run_file;
  std::string name, run, setup, workdir, time, grace, output_limit, retry_backoff;
  std::string cost, idle, salvage, lease;
  std::vector<std::string> data, env, secrets, checkpoints, artifacts, forward, retry_on, trainer,
      include;
  std::vector<std::string> leave_out;  // of a run that is resumed: LaunchRecord's
  std::vector<std::string> tags;
  std::string note;
  std::string on;                 // a run or machine, as typed
  std::string like, like_run_id;  // as typed, and its id once it was found
  int retry_max = -1;
  int streams = 0;
  int ssh_within_s = 0;  // 0: RentedNodeRequest's own
  // The provider is in `resources`.
  TargetFlags target;
  ResourceFlags resources;
  std::string pull_dir;  // with detach: where gpuctl keep brings results home, absolute; "" nowhere
  std::string from;      // resume with this checkpoint here, as typed
  bool anew = false;     // resume without a checkpoint at home: begin anew
  std::string processes;
  bool detach = false, dry_run = false, yes = false, no_workdir = false;
  bool fresh = false;  // rent, although an idle machine of ours would do
  bool keep = false;   // hold the machine until the lease is over
  bool down = false;   // pull and release at the end
  bool kept = false;   // this computer calls gpuctl keep, which does what a dead gpuctl was told
  bool as_before =
      false;           // resume: what was asked for the end of the former run holds for this one
  bool later = false;  // a plan will do while nothing is on offer; it has no machine then
  // The machine that was rented for the run already; null: none was. No market is asked then.
  std::shared_ptr<Rental> rented;
};

// Adds the flags of resume. They say how and where the run goes on, not what it runs.
void AddResumeFlags(FlagSet& set, LaunchFlags& flags);
void AddLaunchFlags(FlagSet& set, LaunchFlags& flags);
// Adds those that say what is sent, what runs, and within which limits.
void AddJobFlags(FlagSet& set, LaunchFlags& flags);

// With -d and --pull: notes the current directory for gpuctl keep. Returns usage errors.
absl::Status SetPullDirectory(LaunchFlags& flags);

// Returns a usage error for flags that do not go with --on, which names the machine by itself.
absl::Status CheckOnFlags(const LaunchFlags& flags);
// Returns a usage error where --host and --provider, both typed, name different places.
absl::Status CheckHostFlags(const LaunchFlags& flags);

// Overrides the limits of `spec` with those among the flags. Returns usage errors.
absl::Status ApplyLimitFlags(const LaunchFlags& flags, RunSpec& spec);

// Returns the complete run file, or `like` in its place when that is not null, changed by the flags
// and the command behind "--". Returns usage errors. `settings` (null: none) become those that
// count below the run file; what only rented machines have of them is still to be applied. They do
// not count below `like`.
absl::StatusOr<RunSpec> BuildRunSpec(CommandContext& context, const LaunchFlags& flags,
                                     const RunSpec* like = nullptr, Settings* settings = nullptr);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PLAN_LAUNCH_FLAGS_H_

// The environments of a node: envs/<name>/, each with its lock, its marker and what a setup made.
#ifndef GPUCTL_AGENT_ENVS_ENV_STORE_H_
#define GPUCTL_AGENT_ENVS_ENV_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/base/environment.h"
#include "common/base/clock.h"
#include "common/job/job_layout.h"

namespace gpuctl {

// The value of this variable is the prefix of the environment that a process of a setup makes.
constexpr char kBuildsVariable[] = "GPUCTL_SETUP_OF";

// One environment's files.
struct EnvPaths {
  EnvPaths(const RootPaths& root, const std::string& name);
  std::string dir;
  std::string prefix;    // env/: $GPUCTL_ENV_DIR
  std::string lock;      // held by the one that makes it
  std::string used;      // locked shared by each attempt that uses it; its time is the last use
  std::string complete;  // the marker; written last
};

// Returns the name of the environment with this digest; with `job_id` that of the job's own.
std::string EnvName(const std::string& digest, const std::string& job_id = "");

// The marker's content.
struct EnvMarker {
  std::string digest;
  int64_t took_ms = 0;
  // The directory of the only job that it is for, and why; empty: for all jobs.
  std::string bound_to;
  std::string bound_why;
  std::vector<std::string> packages;  // "NAME==VERSION"
};
absl::Status WriteEnvMarker(const EnvPaths& env, const EnvMarker& marker);
// Returns the marker of an environment that is whole and has this digest; nothing else. One whose
// directory or Python is gone is not whole.
std::optional<EnvMarker> ReadEnvMarker(const EnvPaths& env, const std::string& digest);

// Takes the lock without waiting; UNAVAILABLE when somebody makes or removes the environment.
absl::StatusOr<UniqueFd> LockEnv(const EnvPaths& env);
// Marks it as used, now and as long as the descriptor is open.
absl::StatusOr<UniqueFd> UseEnv(const EnvPaths& env);

// Returns `environment` for a process that makes the environment at `prefix` (`making`) or uses it:
// GPUCTL_ENV_DIR, its bin/ first in PATH, and where Python and uv look. What the user set (`given`)
// stays, but for GPUCTL_ENV_DIR and PATH.
Environment WithEnv(Environment environment, const std::string& prefix, bool making);

// Returns why the environment is for one job only: it refers to files below the job's directory, or
// its setup left `new_paths` in work/. "" when others can use it.
std::string WhyBound(const std::string& prefix, const std::string& job_dir,
                     const std::vector<std::string>& new_paths);

// Returns the paths below `dir`, sorted, without those that tools leave anywhere (__pycache__,
// *.egg-info, uv.lock …). Nothing when there are more than 20,000.
std::optional<std::vector<std::string>> ListPaths(const std::string& dir);

// Removes environments that nobody uses: unfinished ones, those of jobs that are over after a day,
// and all that were not used for 14 days. With less than `want_free_bytes` on the disk also others,
// the longest unused first, but none that was used in the last hour. Returns their names.
absl::StatusOr<std::vector<std::string>> SweepEnvs(const RootPaths& root, int64_t want_free_bytes,
                                                   Clock& clock);

// Returns the free bytes of the disk of `path`; -1 when they are not known.
int64_t FreeBytesAt(const std::string& path);

// Returns how much of the disk should be free: 5 GiB, or a twentieth of a small disk.
int64_t WantFreeBytes(const RootPaths& root);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_ENVS_ENV_STORE_H_

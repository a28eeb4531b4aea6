#include "agent/base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/base/gang_note.h"
#include "agent/base/held_root.h"
#include "agent/base/platform.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"

// POSIX lets the program declare it. glibc's headers declare it, those of macOS do not.
extern char** environ;

namespace gpuctl {
namespace {

constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Returns the user's home from /etc/passwd. It reads the file itself, because the name service must
// stay out of static binaries.
std::string HomeDirectory() {
  if (const char* home = getenv("HOME"); home != nullptr && *home != '\0') return home;
  const auto passwd = ReadFileToString("/etc/passwd");
  if (passwd.ok()) {
    for (const absl::string_view line : absl::StrSplit(*passwd, '\n')) {
      const std::vector<absl::string_view> fields = absl::StrSplit(line, ':');
      uid_t uid = 0;
      if (fields.size() >= 6 && absl::SimpleAtoi(fields[2], &uid) && uid == getuid() &&
          !fields[5].empty()) {
        return std::string(fields[5]);
      }
    }
  }
  return getuid() == 0 ? "/root" : "/";
}

// Gives the caches of package managers a place that jobs share. A cache that the user has on the
// machine, at its usual place, stays in use.
void ShareCaches(const JobPaths& paths, Environment& environment) {
  const RootPaths root(DirName(DirName(paths.dir)));
  const auto own = environment.find("XDG_CACHE_HOME");
  const std::string home = own != environment.end() && !own->second.empty()
                               ? own->second
                               : JoinPath(environment["HOME"], ".cache");
  for (const auto& [variable, name] : {std::pair("UV_CACHE_DIR", "uv"), {"PIP_CACHE_DIR", "pip"}}) {
    if (IsDirectory(JoinPath(home, name))) continue;
    environment.emplace(variable, JoinPath(root.caches, name));
  }
  // An installed conda has one beside its own packages.
  if (environment.contains("CONDA_EXE") || environment.contains("MAMBA_ROOT_PREFIX")) return;
  environment.emplace("CONDA_PKGS_DIRS", JoinPath(root.caches, "conda"));
}

// Adds what the members of a gang have agreed on for the attempt.
// `brought` is the checkpoint with which the run began, if any.
void AddGangVariables(const gpuctl::v1::Gang& gang, int attempt, const JobPaths& paths,
                      const std::string& brought, Environment& environment) {
  environment["GPUCTL_NODES"] = absl::StrCat(gang.size());
  environment["GPUCTL_NODE_RANK"] = absl::StrCat(gang.rank());
  environment.emplace("RANK", absl::StrCat(gang.rank()));
  environment.emplace("WORLD_SIZE", absl::StrCat(gang.size()));
  environment.emplace("LOCAL_RANK", "0");
  const absl::StatusOr<GangNote> note = ReadGangNote(paths);
  if (!note.ok() || note->attempt != attempt) return;
  environment["MASTER_ADDR"] = note->address;
  environment["MASTER_PORT"] = absl::StrCat(note->port);
  environment.emplace("GLOO_SOCKET_IFNAME", note->interface);
  environment.emplace("NCCL_SOCKET_IFNAME", note->interface);
  if (attempt == 1) return;
  // All go on from the same step, or none does.
  environment.erase("GPUCTL_RESUME_FROM");
  if (note->resume_step < 0) {
    if (!brought.empty()) environment["GPUCTL_RESUME_FROM"] = brought;
    return;
  }
  const absl::StatusOr<std::vector<CheckpointDir>> all = ListCheckpoints(paths.checkpoints);
  if (!all.ok()) return;
  for (const CheckpointDir& one : *all) {
    if (one.manifest.step == note->resume_step) environment["GPUCTL_RESUME_FROM"] = one.path;
  }
}

}  // namespace

Environment ParseEnvironmentBlock(absl::string_view block) {
  Environment environment;
  for (const absl::string_view entry : absl::StrSplit(block, '\0')) {
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos || equals == 0) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

Environment OwnEnvironment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    environment.emplace(pair.first, pair.second);
  }
  return environment;
}

Environment BaseEnvironment(const RootPaths& paths) {
  const std::string block = IsHeldRoot(paths) ? "" : InitEnvironment();
  return block.empty() ? OwnEnvironment() : ParseEnvironmentBlock(block);
}

bool IsProviderKey(absl::string_view name) {
  if (!absl::EndsWith(name, "_API_KEY")) return false;
  for (const absl::string_view provider : {"RUNPOD_", "CONTAINER_", "LAMBDA_", "VAST_", "VASTAI_",
                                           "DIGITALOCEAN_", "SHADEFORM_", "HUGGINGFACE_"}) {
    if (absl::StartsWith(name, provider)) return true;
  }
  return false;
}

Environment JobEnvironment(Environment base, const gpuctl::v1::JobSpec& spec, int attempt,
                           const JobPaths& paths, const std::string& resume_from,
                           const std::optional<std::vector<std::string>>& gpus) {
  Environment environment = std::move(base);
  std::erase_if(environment, [](const auto& entry) {
    return IsProviderKey(entry.first) || absl::StartsWith(entry.first, "GPUCTL_");
  });
  for (const auto& [name, value] : spec.env()) environment[name] = value;
  environment.erase("GPUCTL_EXEC");  // it marks the commands of `gpuctl exec`
  environment.emplace("PATH", kDefaultPath);
  environment.emplace("PYTHONUNBUFFERED", "1");
  if (!environment.contains("HOME")) environment["HOME"] = HomeDirectory();
  ShareCaches(paths, environment);
  environment["GPUCTL_RUN_ID"] = spec.run_id();
  environment["GPUCTL_JOB_ID"] = spec.job_id();
  environment["GPUCTL_ATTEMPT"] = absl::StrCat(attempt);
  environment["GPUCTL_CHECKPOINT_DIR"] = paths.checkpoints;
  environment["GPUCTL_METRICS"] = paths.metrics_fifo;
  environment.emplace("GPUCTL_NODE_RANK", "0");
  environment.emplace("GPUCTL_NODES", "1");
  if (gpus.has_value()) environment["CUDA_VISIBLE_DEVICES"] = absl::StrJoin(*gpus, ",");
  // The checkpoint that a resumed run brought along is named relative to its work directory.
  std::string brought;
  if (const auto found = environment.find("GPUCTL_RESUME_FROM"); found != environment.end()) {
    if (!absl::StartsWith(found->second, "/")) found->second = JoinPath(paths.work, found->second);
    brought = found->second;
  }
  if (!resume_from.empty()) environment["GPUCTL_RESUME_FROM"] = resume_from;
  if (spec.has_gang()) AddGangVariables(spec.gang(), attempt, paths, brought, environment);
  const auto volume = environment.find("GPUCTL_VOLUME");
  if (const char* root = getenv("GPUCTL_MOUNT_ROOT");
      root != nullptr && volume != environment.end()) {
    volume->second = absl::StrCat(root, volume->second);
  }
  return environment;
}

}  // namespace gpuctl

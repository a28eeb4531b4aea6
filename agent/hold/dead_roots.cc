#include "agent/hold/dead_roots.h"

#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "agent/base/held_root.h"
#include "common/base/log.h"
#include "common/files/files.h"
#include "common/process/process.h"
#include "common/release/slurm_job.h"

namespace gpuctl {
namespace {

constexpr absl::Duration kLookForDeadEvery = absl::Seconds(5);
// A job may have made directories that nobody may write to.
constexpr char kRemoveScript[] =
    "rm -rf \"$1\" \"$1.root\" 2>/dev/null || { chmod -R u+rwx \"$1\"; rm -rf \"$1\" \"$1.root\"; "
    "}";

// JOB-RESTART, as the batch script names its root.
bool IsRootName(absl::string_view name) {
  const size_t dash = name.find('-');
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  return dash != absl::string_view::npos && dash + 1 < name.size() &&
         ParseSlurmJob(name.substr(0, dash)).has_value() &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(dash) + 1, name.end(), is_digit);
}

// A symlink is nothing that a batch script makes.
bool IsRealDirectory(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

DeadRoots::DeadRoots(const RootPaths& own, Clock& clock)
    : parent_(DirName(own.root)), own_(BaseName(own.root)), clock_(clock) {}

std::string DeadRoots::Next() {
  const absl::Duration now = clock_.SinceBoot();
  if (!IsRootName(own_) || now < next_look_) return "";
  next_look_ = now + kLookForDeadEvery;
  for (const std::string& name : ListDirectory(parent_).value_or(std::vector<std::string>())) {
    if (name == own_ || !IsRootName(name)) continue;
    const RootPaths root(JoinPath(parent_, name));
    if (!IsRealDirectory(root.root) || !IsHeldRoot(root) || LivesBatchScript(root)) {
      dead_since_.erase(name);
      continue;
    }
    const auto since = dead_since_.emplace(name, now).first;
    if (now - since->second < kDeadFor) continue;
    since->second = absl::InfiniteDuration();
    return root.root;
  }
  return "";
}

bool StartRemoval(const std::string& root) {
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", kRemoveScript, "sh", root};
  const absl::StatusOr<pid_t> pid = Spawn(spawn);
  if (!pid.ok()) Log(LogLevel::kWarning, absl::StrCat("hold: ", pid.status().message()));
  return pid.ok();
}

}  // namespace gpuctl

#include "agent/envs/env_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agent/envs/packages.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/file_lock.h"
#include "common/files/files.h"
#include "common/files/sync_fs.h"

namespace gpuctl {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostMarkerBytes = 4 << 20;
constexpr size_t kNameDigits = 24;  // short, because a script's first line has the path
constexpr size_t kMostPaths = 20'000;
constexpr int64_t kMostPathFileBytes = 1 << 20;
constexpr absl::Duration kUnused = absl::Hours(14 * 24);
constexpr absl::Duration kUnusedAfterJob = absl::Hours(24);
constexpr absl::Duration kUnusedOnFullDisk = absl::Hours(1);

std::string StringOf(const nlohmann::json& json, const char* name) {
  const auto field = json.find(name);
  return field != json.end() && field->is_string() ? field->get<std::string>() : "";
}

bool IsLeftAnywhere(absl::string_view name) {
  return name == "__pycache__" || name == ".git" || name == "uv.lock" || name == ".gpuctl" ||
         name == ".pytest_cache" || absl::EndsWith(name, ".egg-info");
}

bool ListInto(const std::string& dir, const std::string& prefix, std::vector<std::string>& paths) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(dir);
  if (!names.ok()) return true;
  for (const std::string& name : *names) {
    if (IsLeftAnywhere(name)) continue;
    if (paths.size() >= kMostPaths) return false;
    const std::string full = JoinPath(dir, name);
    paths.push_back(prefix.empty() ? name : JoinPath(prefix, name));
    struct stat info {};
    if (lstat(full.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        !ListInto(full, std::string(paths.back()), paths)) {
      return false;
    }
  }
  return true;
}

// Returns the time of the last use; the epoch when it is not known.
absl::Time LastUse(const EnvPaths& env) {
  struct stat info {};
  if (stat(env.used.c_str(), &info) != 0 && stat(env.dir.c_str(), &info) != 0) {
    return absl::UnixEpoch();
  }
  return absl::FromUnixMillis(ModifiedMs(info));
}

// True when the job at `dir` will never run again.
bool IsJobOver(const std::string& dir) {
  const JobPaths job(dir);
  if (!PathExists(job.spec)) return true;
  const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(job);
  return lifecycle.ok() && IsOver(*lifecycle);
}

// Removes it when nobody uses it. False when somebody does.
absl::StatusOr<bool> RemoveEnv(const EnvPaths& env) {
  // In this order: who has the first one asks for the second one, and must not find us there.
  const absl::StatusOr<UniqueFd> lock = TryLock(env.lock);
  if (absl::IsUnavailable(lock.status())) return false;
  RETURN_IF_ERROR(lock.status());
  const absl::StatusOr<UniqueFd> used = TryLock(env.used);
  if (absl::IsUnavailable(used.status())) return false;
  RETURN_IF_ERROR(used.status());
  if (file_ops::Unlink(env.complete) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", env.complete));
  }
  // The locks go last; who waits for them notices that they are gone.
  RETURN_IF_ERROR(RemoveTree(env.prefix));
  RETURN_IF_ERROR(RemoveTree(env.dir));
  return true;
}

}  // namespace

EnvPaths::EnvPaths(const RootPaths& root, const std::string& name)
    : dir(JoinPath(root.envs, name)),
      prefix(JoinPath(dir, "env")),
      lock(JoinPath(dir, "lock")),
      used(JoinPath(dir, "used")),
      complete(JoinPath(dir, "complete")) {}

std::string EnvName(const std::string& digest, const std::string& job_id) {
  const std::string name = digest.substr(0, kNameDigits);
  return job_id.empty() ? name : absl::StrCat(name, "-", job_id);
}

absl::Status WriteEnvMarker(const EnvPaths& env, const EnvMarker& marker) {
  // After a power loss the marker must not be there without what it stands for.
  const UniqueFd dir(file_ops::Open(env.dir, O_RDONLY | O_DIRECTORY));
  if (!dir.valid()) return ErrnoStatus(errno, absl::StrCat("open ", env.dir));
  if (SyncFileSystem(dir.get()) != 0 && errno != ENOSYS) {
    return ErrnoStatus(errno, absl::StrCat("sync ", env.dir));
  }
  Json json = {{"format", 1}, {"digest", marker.digest}, {"took_ms", marker.took_ms}};
  if (!marker.bound_to.empty()) {
    json["bound_to"] = marker.bound_to;
    json["bound_why"] = marker.bound_why;
  }
  json["packages"] = marker.packages;
  return WriteFileAtomic(env.complete,
                         json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
}

std::optional<EnvMarker> ReadEnvMarker(const EnvPaths& env, const std::string& digest) {
  const absl::StatusOr<std::string> text = ReadFileToString(env.complete, kMostMarkerBytes);
  if (!text.ok() || !IsDirectory(env.prefix)) return std::nullopt;
  const nlohmann::json json = ParseBoundedJson(*text, {.bytes = kMostMarkerBytes, .depth = 4});
  if (!json.is_object() || StringOf(json, "digest") != digest) return std::nullopt;
  // An environment whose Python was removed or replaced is of no use.
  if (PathExists(JoinPath(env.prefix, "pyvenv.cfg")) &&
      access(JoinPath(env.prefix, "bin/python").c_str(), X_OK) != 0) {
    return std::nullopt;
  }
  EnvMarker marker;
  marker.digest = digest;
  marker.bound_to = StringOf(json, "bound_to");
  marker.bound_why = StringOf(json, "bound_why");
  if (const auto took = json.find("took_ms"); took != json.end() && took->is_number_integer()) {
    marker.took_ms = took->get<int64_t>();
  }
  if (const auto packages = json.find("packages"); packages != json.end() && packages->is_array()) {
    for (const nlohmann::json& one : *packages) {
      if (one.is_string()) marker.packages.push_back(one.get<std::string>());
    }
  }
  return marker;
}

absl::StatusOr<UniqueFd> LockEnv(const EnvPaths& env) {
  for (;;) {
    RETURN_IF_ERROR(MakeDirectories(env.dir));
    absl::StatusOr<UniqueFd> lock = TryLock(env.lock);
    if (absl::IsNotFound(lock.status())) continue;  // it was removed in between
    if (!lock.ok()) return lock;
    struct stat held {};
    struct stat there {};
    if (fstat(lock->get(), &held) == 0 && held.st_nlink > 0 &&
        stat(env.lock.c_str(), &there) == 0) {
      return lock;
    }
  }
}

absl::StatusOr<UniqueFd> UseEnv(const EnvPaths& env) {
  absl::StatusOr<UniqueFd> used = WaitForSharedLock(env.used);
  if (used.ok()) (void)futimens(used->get(), nullptr);
  return used;
}

Environment WithEnv(Environment environment, const std::string& prefix, bool making) {
  environment["GPUCTL_ENV_DIR"] = prefix;
  std::string& path = environment["PATH"];
  const bool venv = PathExists(JoinPath(prefix, "pyvenv.cfg"));
  const bool conda = IsDirectory(JoinPath(prefix, "conda-meta"));
  if (making || IsDirectory(JoinPath(prefix, "bin"))) {
    path = absl::StrCat(JoinPath(prefix, "bin"), path.empty() ? "" : ":", path);
  }
  if (making || venv) {
    environment["VIRTUAL_ENV"] = prefix;
    environment.emplace("UV_PROJECT_ENVIRONMENT", prefix);
  }
  if (making) {
    environment[kBuildsVariable] = prefix;
    return environment;
  }
  // Other jobs use the environment at the same time, so `uv run` must take it as it is.
  if (venv) environment.emplace("UV_NO_SYNC", "1");
  if (conda) environment["CONDA_PREFIX"] = prefix;
  return environment;
}

std::string WhyBound(const std::string& prefix, const std::string& job_dir,
                     const std::vector<std::string>& new_paths) {
  if (!new_paths.empty()) {
    return absl::StrCat("the setup made ", new_paths.front(), " in the work directory");
  }
  const std::string below = absl::StrCat(job_dir, "/");
  for (const std::string& site : SitePackagesOf(prefix)) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(site);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      if (!absl::EndsWith(name, ".pth") && !absl::EndsWith(name, ".egg-link") &&
          !absl::StartsWith(name, "__editable__")) {
        continue;
      }
      const absl::StatusOr<std::string> text =
          ReadFileToString(JoinPath(site, name), kMostPathFileBytes);
      if (text.ok() && absl::StrContains(*text, below)) {
        return "a package is installed from the work directory, to be edited there";
      }
    }
  }
  return "";
}

std::optional<std::vector<std::string>> ListPaths(const std::string& dir) {
  std::vector<std::string> paths;
  if (!ListInto(dir, "", paths)) return std::nullopt;
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::vector<std::string>> SweepEnvs(const RootPaths& root, int64_t want_free_bytes,
                                                   Clock& clock) {
  std::vector<std::string> removed;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(root.envs);
  if (absl::IsNotFound(names.status())) return removed;
  RETURN_IF_ERROR(names.status());
  std::vector<std::pair<absl::Time, std::string>> kept;
  const auto remove = [&](const std::string& name) -> absl::Status {
    ASSIGN_OR_RETURN(const bool gone, RemoveEnv(EnvPaths(root, name)));
    if (gone) removed.push_back(name);
    return absl::OkStatus();
  };
  const absl::Time now = clock.Now();
  absl::Status status;
  for (const std::string& name : *names) {
    const EnvPaths env(root, name);
    const absl::Time last = LastUse(env);
    const absl::StatusOr<std::string> text = ReadFileToString(env.complete, kMostMarkerBytes);
    const nlohmann::json json =
        ParseBoundedJson(text.ok() ? *text : "", {.bytes = kMostMarkerBytes, .depth = 4});
    const bool whole = json.is_object();
    const std::string job = whole ? StringOf(json, "bound_to") : "";
    const bool done = !job.empty() && now - last > kUnusedAfterJob && IsJobOver(job);
    // Nobody makes an unfinished one that is not locked; RemoveEnv looks.
    if (!whole || done || now - last > kUnused) {
      status.Update(remove(name));
    } else {
      kept.emplace_back(last, name);
    }
  }
  std::sort(kept.begin(), kept.end());
  for (const auto& [last, name] : kept) {
    const int64_t free = FreeBytesAt(root.envs);
    if (free < 0 || free >= want_free_bytes || now - last < kUnusedOnFullDisk) break;
    status.Update(remove(name));
  }
  if (!status.ok() && removed.empty()) return status;
  return removed;
}

int64_t FreeBytesAt(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return -1;
  return static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
}

int64_t WantFreeBytes(const RootPaths& root) {
  struct statvfs disk {};
  if (statvfs(root.root.c_str(), &disk) != 0) return 0;
  return std::min(int64_t{5} << 30, static_cast<int64_t>(disk.f_blocks * disk.f_frsize) / 20);
}

}  // namespace gpuctl

#include "agent/hold/kept_layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "agent/base/platform.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/release/release_route.h"
#include "common/release/slurm_job.h"

namespace gpuctl {
namespace {

constexpr char kStopped[] = "stopped";
constexpr char kFailed[] = "failed";
constexpr char kRefused[] = "refused";
constexpr char kStays[] = "stays";
constexpr int64_t kMaxReason = 4096;

std::string StoppedFolder(const std::string& directory) {
  return JoinPath(JoinPath(directory, kKeptAgain), kStopped);
}

std::string FailedFolder(const std::string& directory) {
  return JoinPath(JoinPath(directory, kKeptAgain), kFailed);
}

// Reads one line.
std::optional<std::string> ReadReason(const std::string& path) {
  const absl::StatusOr<std::string> reason = ReadFileToString(path, kMaxReason);
  if (!reason.ok()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(*reason));
}

absl::Status WriteReason(const std::string& path, absl::string_view reason) {
  const std::string line = absl::StrReplaceAll(reason, {{"\n", " "}});
  return WriteFileAtomic(path, absl::StrCat(line.substr(0, kMaxReason - 1), "\n"));
}

}  // namespace

absl::Status CheckOwnDirectory(const std::string& directory) {
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at ", directory));
  }
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
      (info.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(directory, " is not a directory to which this user alone may write"));
}

absl::Status NoteStopped(const std::string& directory, const std::string& job_id,
                         absl::string_view reason) {
  const std::string folder = StoppedFolder(directory);
  RETURN_IF_ERROR(MakeDirectories(folder));
  return WriteReason(JoinPath(folder, job_id), reason);
}

std::optional<std::string> StoppedReason(const std::string& directory, const std::string& job_id) {
  return ReadReason(JoinPath(StoppedFolder(directory), job_id));
}

absl::Status NoteRefused(const JobPaths& copied, absl::string_view why) {
  return WriteReason(JoinPath(copied.dir, kRefused), why);
}

void ForgetRefused(const JobPaths& copied) { unlink(JoinPath(copied.dir, kRefused).c_str()); }

std::optional<std::string> RefusedReason(const JobPaths& copied) {
  return ReadReason(JoinPath(copied.dir, kRefused));
}

absl::Status NoteStays(const JobPaths& copied, absl::string_view why) {
  return WriteReason(JoinPath(copied.dir, kStays), why);
}

bool Stays(const JobPaths& copied) {
  return PathExists(JoinPath(copied.dir, kStays)) || PathExists(JoinPath(copied.dir, kRefused));
}

absl::Status NoteFailedStart(const std::string& directory, const AllocationStart& start,
                             absl::string_view why) {
  const std::string folder = FailedFolder(directory);
  RETURN_IF_ERROR(MakeDirectories(folder));
  return WriteReason(JoinPath(folder, absl::StrCat(start.job, "-", start.restart)), why);
}

std::optional<std::string> FailedStartAfter(const RootPaths& copy) {
  const std::optional<AllocationStart> own = ParseAllocationStart(BaseName(copy.root));
  const std::string folder = FailedFolder(std::string(DirName(copy.root)));
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(folder);
  if (!own.has_value()) return std::nullopt;
  int64_t newest = own->restart;
  std::optional<std::string> found;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> start = ParseAllocationStart(name);
    if (!start.has_value() || start->job != own->job || start->restart <= newest) continue;
    newest = start->restart;
    found = ReadReason(JoinPath(folder, name));
  }
  return found;
}

std::optional<AllocationStart> ParseAllocationStart(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  AllocationStart start;
  if (parts.size() != 2 || !ParseSlurmJob(parts[0]).has_value()) return std::nullopt;
  start.job = std::string(parts[0]);
  if (parts[1] == kStagedWord) {
    start.restart = kStaged;
    return start;
  }
  if (!absl::SimpleAtoi(parts[1], &start.restart) || start.restart < 0) return std::nullopt;
  return start;
}

void NoteSeenByNode(const std::string& directory) {
  const std::string path = JoinPath(DirName(directory), kSeenByNodesFile);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0) close(fd);
}

bool IsSeenByNodes(const std::string& directory) {
  return PathExists(JoinPath(DirName(directory), kSeenByNodesFile)) ||
         !NetworkFileSystem(directory).empty();
}

absl::StatusOr<std::string> NewestCopy(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  std::pair<SlurmJob, int64_t> newest = {SlurmJob{}, kStaged};
  std::string found;
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    const std::optional<AllocationStart> parsed = ParseAllocationStart(name);
    if (!parsed.has_value()) continue;
    const std::pair<SlurmJob, int64_t> start = {*ParseSlurmJob(parsed->job), parsed->restart};
    if (start <= newest) continue;
    // A start that came no further than to its directory has nothing.
    if (!PathExists(RootPaths(JoinPath(directory, name)).node_id)) continue;
    newest = start;
    found = JoinPath(directory, name);
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(
      absl::StrCat("nothing of the allocation was kept in ", directory, " on the login node"));
}

absl::StatusOr<std::string> EarlierCopy(const std::string& directory, const AllocationStart& own) {
  std::string found;
  int64_t newest = kStaged - 1;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  for (const std::string& name : names) {
    const std::optional<AllocationStart> start = ParseAllocationStart(name);
    if (!start.has_value() || start->job != own.job || start->restart >= own.restart ||
        start->restart <= newest || !PathExists(RootPaths(JoinPath(directory, name)).node_id)) {
      continue;
    }
    newest = start->restart;
    found = JoinPath(directory, name);
  }
  if (!found.empty()) return found;
  return absl::NotFoundError(absl::StrCat("no earlier start has kept anything in ", directory));
}

}  // namespace gpuctl

#include "agent/artifacts.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr int kMaxFiles = 100'000;

int64_t ModifiedMs(const struct stat& info) {
#if defined(__APPLE__)
  return info.st_mtimespec.tv_sec * int64_t{1000} + info.st_mtimespec.tv_nsec / 1'000'000;
#else
  return info.st_mtim.tv_sec * int64_t{1000} + info.st_mtim.tv_nsec / 1'000'000;
#endif
}

absl::Status Walk(const std::string& job_dir, const std::string& relative,
                  const std::string& pattern, gpuctl::v1::ListArtifactsReply& reply) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(job_dir, relative));
  if (!names.ok()) return absl::OkStatus();  // it went away while the job works: nothing to list
  for (const std::string& name : *names) {
    const std::string path = JoinPath(relative, name);
    struct stat info {};
    if (lstat(JoinPath(job_dir, path).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      RETURN_IF_ERROR(Walk(job_dir, path, pattern, reply));
    } else if (S_ISREG(info.st_mode) && MatchesPattern(pattern, path.substr(sizeof("work/") - 1))) {
      if (reply.files_size() >= kMaxFiles) {
        return absl::ResourceExhaustedError(
            absl::StrCat("list artifacts: more than ", kMaxFiles, " files match ", pattern));
      }
      gpuctl::v1::Artifact& artifact = *reply.add_files();
      artifact.set_path(path);
      artifact.set_size(info.st_size);
      artifact.set_modified_ms(ModifiedMs(info));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool MatchesPattern(const std::string& pattern, const std::string& path) {
  if (fnmatch(pattern.c_str(), path.c_str(), FNM_PATHNAME) == 0) return true;
  const size_t stars = pattern.find("**/");
  if (stars == std::string::npos) return false;
  const std::string before = pattern.substr(0, stars);
  const std::string after = pattern.substr(stars + 3);
  // "**/" stands for nothing, or for any number of whole directories.
  if (MatchesPattern(before + after, path)) return true;
  for (size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string head = path.substr(0, slash + 1);
    if (head.size() > before.size() && absl::StartsWith(head, before) &&
        MatchesPattern(after, path.substr(slash + 1))) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
    const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request) {
  if (!IsValidId(request.job_id())) return absl::InvalidArgumentError("list artifacts: bad job id");
  if (!PathExists(job.spec)) {
    return absl::NotFoundError(
        absl::StrCat("list artifacts of job ", request.job_id(), ": the node has no such job"));
  }
  gpuctl::v1::ListArtifactsReply reply;
  ASSIGN_OR_RETURN(const std::vector<CheckpointDir> checkpoints, ListCheckpoints(job.checkpoints));
  for (const CheckpointDir& checkpoint : checkpoints) {
    gpuctl::v1::CheckpointInfo& info = *reply.add_checkpoints();
    info.set_path(JoinPath("ckpt", BaseName(checkpoint.path)));
    info.set_step(checkpoint.manifest.step);
    int64_t size = 0;
    for (const CheckpointFile& file : checkpoint.manifest.files) {
      gpuctl::v1::Artifact& artifact = *info.add_files();
      artifact.set_path(JoinPath(info.path(), file.path));
      artifact.set_size(file.size);
      size += file.size;
    }
    info.set_size(size);
  }
  if (!request.pattern().empty()) {
    RETURN_IF_ERROR(Walk(job.dir, "work", request.pattern(), reply));
  }
  return reply;
}

}  // namespace gpuctl

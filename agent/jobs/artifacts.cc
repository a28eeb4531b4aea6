#include "agent/jobs/artifacts.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/jobs/foreign_checkpoints.h"
#include "agent/jobs/job_table.h"
#include "common/base/ids.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/job/checkpoint.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr int kMaxFiles = 100'000;

absl::Status Walk(const std::string& job_dir, const std::string& relative,
                  const std::string& pattern, gpuctl::v1::ListArtifactsReply& reply) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(JoinPath(job_dir, relative));
  if (!names.ok()) return absl::OkStatus();  // it went away while the job works: nothing to list
  for (const std::string& name : *names) {
    const std::string path = JoinPath(relative, name);
    struct stat info {};
    if (lstat(JoinPath(job_dir, path).c_str(), &info) != 0) continue;
    if (S_ISDIR(info.st_mode)) {
      if (path.substr(sizeof("work/") - 1) == kTrainerKitPath) continue;
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

// Returns the publication time of a checkpoint that was renamed into place. Its files are older.
int64_t PublishedMs(const std::string& dir) {
  struct stat info {};
  return lstat(dir.c_str(), &info) == 0 ? ModifiedMs(info) : 0;
}

absl::StatusOr<std::vector<CheckpointInfo>> TrainerCheckpoints(const JobPaths& job) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointDir> checkpoints, ListCheckpoints(job.checkpoints));
  std::vector<CheckpointInfo> infos;
  for (const CheckpointDir& checkpoint : checkpoints) {
    CheckpointInfo& info = infos.emplace_back();
    info.set_name(BaseName(checkpoint.path));
    info.set_path(JoinPath("ckpt", info.name()));
    info.set_step(checkpoint.manifest.step);
    info.set_modified_ms(PublishedMs(checkpoint.path));
    int64_t size = 0;
    for (const CheckpointFile& file : checkpoint.manifest.files) {
      gpuctl::v1::Artifact& artifact = *info.add_files();
      artifact.set_path(JoinPath(info.path(), file.path));
      artifact.set_size(file.size);
      size += file.size;
    }
    info.set_size(size);
  }
  return infos;
}

// Returns the end of the job's processes, for a job that is over; see ForeignSearch.
absl::StatusOr<std::optional<absl::Time>> WritersEnded(const JobPaths& paths) {
  ASSIGN_OR_RETURN(const gpuctl::v1::Job job, DeriveJob(paths));
  if (job.state() != gpuctl::v1::JOB_STATE_FINISHED && job.state() != gpuctl::v1::JOB_STATE_LOST) {
    return std::optional<absl::Time>();
  }
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(paths));
  const LifecycleEvent* last = LastStateEvent(lifecycle);
  if (last == nullptr) return std::optional<absl::Time>();
  const bool ended_well = last->type == LifecycleEvent::Type::kExited && ShellExitCode(*last) == 0;
  return std::make_optional(ended_well ? absl::InfiniteFuture()
                                       : absl::FromUnixMillis(last->time_ms));
}

}  // namespace

absl::StatusOr<gpuctl::v1::ListArtifactsReply> ListArtifacts(
    const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request, Clock& clock) {
  if (!IsValidId(request.job_id())) return absl::InvalidArgumentError("list artifacts: bad job id");
  if (!PathExists(job.spec)) {
    return absl::NotFoundError(
        absl::StrCat("list artifacts of job ", request.job_id(), ": the node has no such job"));
  }
  gpuctl::v1::ListArtifactsReply reply;
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> trainer, TrainerCheckpoints(job));
  std::vector<CheckpointInfo> foreign;
  if (!request.checkpoint_patterns().empty()) {
    ForeignSearch search;
    search.patterns.assign(request.checkpoint_patterns().begin(),
                           request.checkpoint_patterns().end());
    ASSIGN_OR_RETURN(search.writers_ended, WritersEnded(job));
    search.now = clock.Now();
    ASSIGN_OR_RETURN(foreign, FindForeignCheckpoints(job.dir, search));
  }
  // Each kind of checkpoint keeps its own order.
  std::vector<CheckpointInfo> all;
  std::merge(trainer.begin(), trainer.end(), foreign.begin(), foreign.end(),
             std::back_inserter(all), [](const CheckpointInfo& a, const CheckpointInfo& b) {
               return a.modified_ms() < b.modified_ms();
             });
  for (CheckpointInfo& checkpoint : all) *reply.add_checkpoints() = std::move(checkpoint);
  if (!request.pattern().empty()) {
    RETURN_IF_ERROR(Walk(job.dir, "work", request.pattern(), reply));
  }
  return reply;
}

}  // namespace gpuctl

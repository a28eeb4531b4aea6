#include "agent/jobs/artifacts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "agent/jobs/job_table.h"
#include "agent/results/beside_checkpoints.h"
#include "agent/results/foreign_checkpoints.h"
#include "agent/results/result_links.h"
#include "common/base/ids.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/job/checkpoint.h"
#include "common/job/job_layout.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr int kMaxFiles = 100'000;
constexpr int kMaxUnreached = 1000;

bool IsSymlink(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

void AddUnreached(const std::string& path, gpuctl::v1::ListArtifactsReply& reply) {
  if (reply.unreached_size() < kMaxUnreached) reply.add_unreached(path);
}

// Adds files to a reply until the page is full.
class FilePage {
 public:
  FilePage(const gpuctl::v1::ListArtifactsRequest& request, gpuctl::v1::ListArtifactsReply& reply)
      : page_bytes_(request.page_bytes()), what_(request.pattern()), reply_(reply) {}

  // `path` and `behind` are relative to the job's directory.
  absl::Status Add(const std::string& path, const struct stat& info, const std::string& behind) {
    constexpr int64_t kNumbersBytes = 32;
    if (page_bytes_ > 0 && listed_bytes_ >= page_bytes_) {
      reply_.set_more(true);
      return absl::OkStatus();
    }
    listed_bytes_ += static_cast<int64_t>(path.size()) + kNumbersBytes;
    if (page_bytes_ == 0 && reply_.files_size() >= kMaxFiles) {
      return absl::ResourceExhaustedError(
          absl::StrCat("list artifacts: more than ", kMaxFiles, " files match ", what_));
    }
    gpuctl::v1::Artifact& artifact = *reply_.add_files();
    artifact.set_path(path);
    artifact.set_size(info.st_size);
    artifact.set_modified_ms(ModifiedMs(info));
    if (!behind.empty()) artifact.set_behind(behind);
    return absl::OkStatus();
  }

 private:
  const int64_t page_bytes_;
  const std::string what_;
  int64_t listed_bytes_ = 0;
  gpuctl::v1::ListArtifactsReply& reply_;
};

// The files of a work directory that match a pattern.
class FileSearch {
 public:
  // `links` is null when symlinks are not followed.
  FileSearch(const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request,
             ResultLinks* links, gpuctl::v1::ListArtifactsReply& reply)
      : work_(job.work),
        pattern_(request.pattern()),
        after_(absl::StripPrefix(request.after(), "work/")),
        links_(links),
        page_(request, reply),
        reply_(reply) {}

  // Adds what is below the directory at `relative`, a path below work/ or "".
  absl::Status Walk(const std::string& relative) {
    absl::StatusOr<std::vector<std::string>> names =
        ListDirectory(relative.empty() ? work_ : JoinPath(work_, relative));
    if (!names.ok()) {
      if (!absl::IsNotFound(names.status())) Miss(relative);
      return absl::OkStatus();  // it went away while the job works
    }
    for (const std::string& name : *names) {
      if (reply_.more()) break;
      const std::string path = relative.empty() ? name : JoinPath(relative, name);
      // A directory before the page may hold files of the page.
      const bool before = !after_.empty() && !PathLess(after_, path);
      if (before && !absl::StartsWith(after_, absl::StrCat(path, "/"))) continue;
      struct stat info {};
      if (lstat(JoinPath(work_, path).c_str(), &info) != 0) {
        if (errno != ENOENT) Miss(path);
        continue;
      }
      if (S_ISDIR(info.st_mode)) {
        if (path != kTrainerKitPath) RETURN_IF_ERROR(Walk(path));
      } else if (S_ISLNK(info.st_mode) && links_ != nullptr) {
        RETURN_IF_ERROR(Follow(path));
      } else if (S_ISREG(info.st_mode) && MatchesPattern(pattern_, path)) {
        RETURN_IF_ERROR(Add(path, info));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Notes a directory, or something else, that cannot be read.
  void Miss(const std::string& path) {
    if (MatchesPattern(pattern_, path) || MayMatchBelow(pattern_, path)) {
      AddUnreached(JoinPath("work", path), reply_);
    }
  }

  absl::Status Follow(const std::string& path) {
    const ResultLinks::Link link = links_->Look(path);
    if (link.kind == ResultLinks::Kind::kUnreached) AddUnreached(JoinPath("work", path), reply_);
    if (link.kind != ResultLinks::Kind::kFollow) return absl::OkStatus();
    links_->Enter(path, link);
    const absl::Status walked = Walk(path);
    links_->Leave();
    return walked;
  }

  absl::Status Add(const std::string& path, const struct stat& info) {
    return page_.Add(JoinPath("work", path), info, links_ != nullptr ? links_->behind() : "");
  }

  const std::string work_;
  const std::string pattern_;
  const std::string after_;  // relative to work/
  ResultLinks* const links_;
  FilePage page_;
  gpuctl::v1::ListArtifactsReply& reply_;
};

absl::Status ListBeside(const JobPaths& job, const gpuctl::v1::ListArtifactsRequest& request,
                        gpuctl::v1::ListArtifactsReply& reply) {
  FilePage page(request, reply);
  const std::string behind = IsSymlink(job.checkpoints) ? "ckpt" : "";
  absl::Status added;
  RETURN_IF_ERROR(
      ForEachBesideCheckpoints(job, [&](const std::string& path, const struct stat& info) {
        if (!request.after().empty() && !PathLess(request.after(), path)) return true;
        if (!S_ISREG(info.st_mode)) {
          AddUnreached(path, reply);
          return true;
        }
        added = page.Add(path, info, behind);
        return added.ok() && !reply.more();
      }));
  return added;
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
    if (IsSymlink(job.checkpoints)) info.set_behind("ckpt");
    if (IsSymlink(checkpoint.path)) info.set_behind(info.path());
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

// Returns nothing for a job that is not over.
absl::StatusOr<std::optional<WritersEnd>> FindWritersEnd(const JobPaths& paths) {
  // What is in a copy was judged when it was copied.
  if (PathExists(paths.kept)) return std::make_optional(WritersEnd());
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(paths));
  ASSIGN_OR_RETURN(const gpuctl::v1::Job job, DeriveJob(paths, stored));
  if (job.state() != gpuctl::v1::JOB_STATE_FINISHED && job.state() != gpuctl::v1::JOB_STATE_LOST) {
    return std::optional<WritersEnd>();
  }
  ASSIGN_OR_RETURN(const Lifecycle lifecycle, ReadLifecycle(paths));
  if (LastStateEvent(lifecycle) == nullptr) return std::optional<WritersEnd>();
  return std::make_optional(WritersEndOf(lifecycle, GraceOf(stored.spec)));
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
  const bool first_page = request.after().empty();
  std::vector<CheckpointInfo> trainer;
  if (first_page) {
    ASSIGN_OR_RETURN(trainer, TrainerCheckpoints(job));
  }
  std::vector<CheckpointInfo> foreign;
  std::vector<std::string> unreached;
  if (first_page && !request.checkpoint_patterns().empty()) {
    std::vector<std::string> checkpoint_patterns(request.checkpoint_patterns().begin(),
                                                 request.checkpoint_patterns().end());
    ResultLinks checkpoint_links(job, checkpoint_patterns);
    ForeignSearch search;
    if (request.behind_links()) search.links = &checkpoint_links;
    search.patterns = std::move(checkpoint_patterns);
    ASSIGN_OR_RETURN(search.writers_end, FindWritersEnd(job));
    search.now = clock.Now();
    search.unreached = &unreached;
    ASSIGN_OR_RETURN(foreign, FindForeignCheckpoints(job.dir, search));
  }
  for (const std::string& path : unreached) {
    AddUnreached(JoinPath("work", path), reply);
  }
  // Each kind of checkpoint keeps its own order.
  std::vector<CheckpointInfo> all;
  std::merge(trainer.begin(), trainer.end(), foreign.begin(), foreign.end(),
             std::back_inserter(all), [](const CheckpointInfo& a, const CheckpointInfo& b) {
               return a.modified_ms() < b.modified_ms();
             });
  for (CheckpointInfo& checkpoint : all) *reply.add_checkpoints() = std::move(checkpoint);
  if (request.pattern().empty() && request.beside_checkpoints()) {
    RETURN_IF_ERROR(ListBeside(job, request, reply));
  }
  if (!request.pattern().empty()) {
    ResultLinks links(job, {request.pattern()});
    RETURN_IF_ERROR(
        FileSearch(job, request, request.behind_links() ? &links : nullptr, reply).Walk(""));
  }
  return reply;
}

}  // namespace gpuctl

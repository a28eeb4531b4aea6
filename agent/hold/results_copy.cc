#include "agent/hold/results_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "agent/hold/kept_layout.h"
#include "agent/hold/whole_copy.h"
#include "agent/jobs/artifacts.h"
#include "agent/jobs/job_state.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/copy_file.h"
#include "common/files/exchange_paths.h"
#include "common/files/files.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;
using gpuctl::v1::ListArtifactsReply;
using gpuctl::v1::ListArtifactsRequest;

constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
constexpr size_t kCopyBytes = 1 << 20;
constexpr int64_t kPageBytes = 1 << 20;

std::vector<std::string> JobsIn(const RootPaths& paths) {
  std::vector<std::string> jobs = ListDirectory(paths.jobs).value_or(std::vector<std::string>());
  jobs.erase(std::remove_if(jobs.begin(), jobs.end(),
                            [&paths](const std::string& id) {
                              return !IsValidId(id) || !PathExists(paths.Job(id).spec);
                            }),
             jobs.end());
  return jobs;
}

bool IsJobOver(const RootPaths& paths, const std::string& job_id) {
  const absl::StatusOr<gpuctl::v1::Job> job = DeriveJob(paths.Job(job_id));
  if (!job.ok()) return false;
  if (job->state() == gpuctl::v1::JOB_STATE_FINISHED) return true;
  if (job->state() != gpuctl::v1::JOB_STATE_LOST) return false;
  const absl::StatusOr<Lifecycle> lifecycle = ReadLifecycle(paths.Job(job_id));
  return lifecycle.ok() && IsOver(*lifecycle);
}

bool IsSameCheckpoint(const CheckpointInfo& a, const CheckpointInfo& b) {
  return a.path() == b.path() && a.size() == b.size() && a.modified_ms() == b.modified_ms() &&
         a.files_size() == b.files_size();
}

// Gives `path` the times of the file that `info` is of.
void TakeTimes(const std::string& path, const struct stat& info) {
#if defined(__APPLE__)
  const timespec times[2] = {info.st_atimespec, info.st_mtimespec};
#else
  const timespec times[2] = {info.st_atim, info.st_mtim};
#endif
  (void)utimensat(AT_FDCWD, path.c_str(), times, 0);
}

}  // namespace

absl::Status CopyOneFile(const std::string& from, const std::string& to) {
  const UniqueFd source(file_ops::Open(from, O_RDONLY));
  struct stat info {};
  if (!source.valid() || fstat(source.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", from));
  }
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(absl::StrCat(from, " is no file"));
  RETURN_IF_ERROR(MakeDirectories(DirName(to)));
  const UniqueFd target(file_ops::Open(to, O_WRONLY | O_CREAT | O_EXCL, 0600));
  if (!target.valid()) return ErrnoStatus(errno, absl::StrCat("make ", to));
  RETURN_IF_ERROR(CopyFileContent(source.get(), target.get(), from).status());
  (void)SetMode(target.get(), (info.st_mode & 0777) | 0600);
  TakeTimes(to, info);
  if (fsync(target.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", to));
  return absl::OkStatus();
}

absl::Status CopyDirectory(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(MakeDirectories(to));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(from));
  for (const std::string& name : names) {
    const std::string source = JoinPath(from, name);
    const std::string target = JoinPath(to, name);
    struct stat info {};
    if (lstat(source.c_str(), &info) != 0)
      return ErrnoStatus(errno, absl::StrCat("look at ", name));
    struct stat there {};
    const bool exists = lstat(target.c_str(), &there) == 0;
    if (S_ISDIR(info.st_mode)) {
      if (exists && !S_ISDIR(there.st_mode)) RETURN_IF_ERROR(RemoveTree(target));
      RETURN_IF_ERROR(CopyDirectory(source, target));
    } else if (S_ISREG(info.st_mode)) {
      if (exists) RETURN_IF_ERROR(RemoveTree(target));
      RETURN_IF_ERROR(CopyOneFile(source, target));
    }
  }
  return absl::OkStatus();
}

namespace {

// Gives a directory of the copy of a later start what `from` has.
absl::Status TakeDirectory(const std::string& from, const std::string& to) {
  if (!IsDirectory(from)) return absl::OkStatus();
  std::error_code linked;
  std::filesystem::copy(from, to,
                        std::filesystem::copy_options::recursive |
                            std::filesystem::copy_options::copy_symlinks |
                            std::filesystem::copy_options::create_hard_links,
                        linked);
  if (!linked) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveTree(to));
  return CopyDirectory(from, to);
}

}  // namespace

absl::Status TakeFilesOf(const RootPaths& earlier, const RootPaths& to) {
  for (const std::string& job_id : JobsIn(earlier)) {
    const JobPaths from = earlier.Job(job_id);
    const JobPaths job = to.Job(job_id);
    RETURN_IF_ERROR(MakeDirectories(job.dir));
    absl::Status taken = TakeDirectory(from.work, job.work);
    taken.Update(TakeDirectory(from.checkpoints, job.checkpoints));
    // What is damaged there keeps no other job from being kept. It stays where it is.
    if (!taken.ok()) RETURN_IF_ERROR(NoteStays(from, taken.message()));
  }
  return absl::OkStatus();
}

absl::Status StreamsCopy::Pass(bool sync) {
  // The telemetry is the machine's, and no job's end waits for it.
  absl::Status status =
      CopyStream(from_.telemetry, to_.telemetry, TelemetryShape(), kToTheEnd, sync);
  for (const std::string& job_id : JobsIn(from_)) {
    if (settled_.count(job_id) == 0) status.Update(CopyJob(job_id, sync));
  }
  return status;
}

absl::Status StreamsCopy::CopyJob(const std::string& job_id, bool sync) {
  const JobPaths from = from_.Job(job_id);
  const JobPaths to = to_.Job(job_id);
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(from));
  if (!PathExists(to.spec)) {
    RETURN_IF_ERROR(MakeDirectories(to.dir));
    RETURN_IF_ERROR(NotePartOfCopy(to));
    ASSIGN_OR_RETURN(const std::string spec, ReadFileToString(from.spec));
    RETURN_IF_ERROR(WriteFileAtomic(to.spec, spec));
  }
  // It names the last bytes of the others, so its own bytes come after theirs.
  const bool over = IsJobOver(from_, job_id);
  ASSIGN_OR_RETURN(const Extent said, StreamReader(from.lifecycle, PlainShape()).GetExtent());
  RETURN_IF_ERROR(CopyStream(from.output, to.output, OutputShape(stored.spec), kToTheEnd, sync));
  RETURN_IF_ERROR(CopyStream(from.metrics, to.metrics, PlainShape(), kToTheEnd, sync));
  RETURN_IF_ERROR(CopyStream(from.lifecycle, to.lifecycle, PlainShape(), said.size, sync));
  if (over && sync) {
    settled_.insert(job_id);
    for (const std::string& path : {to.output, to.metrics, to.lifecycle}) writers_.erase(path);
  }
  return absl::OkStatus();
}

absl::Status StreamsCopy::CopyStream(const std::string& from, const std::string& to,
                                     StreamShape shape, int64_t end, bool sync) {
  StreamReader reader(from, shape);
  ASSIGN_OR_RETURN(const Extent extent, reader.GetExtent());
  auto found = writers_.find(to);
  if (found == writers_.end()) {
    if (extent.size == 0) return absl::OkStatus();
    RETURN_IF_ERROR(MakeDirectories(DirName(to)));
    ASSIGN_OR_RETURN(StreamWriter opened, StreamWriter::Open(to, shape));
    found = writers_.emplace(to, std::move(opened)).first;
  }
  StreamWriter& writer = found->second;
  std::string buffer(kCopyBytes, '\0');
  end = std::min(end, extent.size);
  while (writer.size() < end) {
    const int64_t room = std::min<int64_t>(kCopyBytes, end - writer.size());
    const absl::StatusOr<int64_t> got = reader.Read(writer.size(), buffer.data(), room);
    if (absl::IsOutOfRange(got.status())) {
      // The node has cut it meanwhile.
      ASSIGN_OR_RETURN(const int64_t next, reader.NextStored(writer.size()));
      RETURN_IF_ERROR(writer.SkipTo(next));
      continue;
    }
    RETURN_IF_ERROR(got.status());
    if (*got == 0) break;
    RETURN_IF_ERROR(writer.Append(absl::string_view(buffer.data(), static_cast<size_t>(*got))));
  }
  if (extent.first_offset > writer.first_offset()) {
    RETURN_IF_ERROR(
        writer.CutTo(writer.size() - extent.first_offset, [](int64_t) { return absl::OkStatus(); })
            .status());
  }
  return sync ? writer.Sync() : absl::OkStatus();
}

bool FilesCopy::IsDue() {
  for (const std::string& job_id : JobsIn(from_)) {
    if (done_.count(job_id) == 0 && IsJobOver(from_, job_id)) return true;
  }
  return false;
}

bool FilesCopy::HasAll() {
  const std::vector<std::string> jobs = JobsIn(from_);
  return !jobs.empty() && std::all_of(jobs.begin(), jobs.end(), [this](const std::string& job_id) {
    return done_.count(job_id) > 0;
  });
}

absl::Status FilesCopy::Pass(bool last) {
  absl::Status status;
  for (const std::string& job_id : JobsIn(from_)) {
    if (done_.count(job_id) == 0) status.Update(CopyJob(job_id, last));
  }
  whole_ = status.ok();
  return status;
}

absl::Status FilesCopy::CopyJob(const std::string& job_id, bool last) {
  const JobPaths to = to_.Job(job_id);
  // The streams' copy makes it.
  if (!PathExists(to.spec)) return absl::UnavailableError("the copy of the job has not begun");
  ASSIGN_OR_RETURN(const StoredSpec stored, ReadStoredSpec(from_.Job(job_id)));
  const bool over = last || IsJobOver(from_, job_id);
  RETURN_IF_ERROR(CopyCheckpoints(job_id, stored.spec.kept()));
  if (!over) return absl::OkStatus();
  RETURN_IF_ERROR(CopyFiles(job_id, stored.spec.kept()));
  RETURN_IF_ERROR(NoteWholeCopy(to, stored.spec.kept(), clock_));
  done_.insert(job_id);
  return absl::OkStatus();
}

absl::Status FilesCopy::CopyCheckpoints(const std::string& job_id,
                                        const gpuctl::v1::KeptResults& wanted) {
  const JobPaths from = from_.Job(job_id);
  const JobPaths to = to_.Job(job_id);
  ListArtifactsRequest request;
  request.set_job_id(job_id);
  request.set_behind_links(true);
  *request.mutable_checkpoint_patterns() = wanted.checkpoints();
  ASSIGN_OR_RETURN(const ListArtifactsReply here, ListArtifacts(from, request, clock_));
  ASSIGN_OR_RETURN(const ListArtifactsReply there, ListArtifacts(to, request, clock_));
  // The newest first: the time may not be enough for all.
  for (int i = here.checkpoints_size() - 1; i >= 0; --i) {
    const CheckpointInfo& checkpoint = here.checkpoints(i);
    const bool kept =
        std::any_of(there.checkpoints().begin(), there.checkpoints().end(),
                    [&](const CheckpointInfo& one) { return IsSameCheckpoint(one, checkpoint); });
    if (kept) continue;
    const std::string source = JoinPath(from.dir, checkpoint.path());
    const std::string target = JoinPath(to.dir, checkpoint.path());
    if (checkpoint.is_file()) {
      RETURN_IF_ERROR(CopyFile(source, target));
      continue;
    }
    const std::string partial = JoinPath(JoinPath(to_.root, kKeptTmp), RandomHex(8));
    absl::Status copied = MakeDirectories(partial);
    for (const gpuctl::v1::Artifact& file : checkpoint.files()) {
      if (!copied.ok()) break;
      const std::string relative = file.path().substr(checkpoint.path().size() + 1);
      copied = CopyOneFile(JoinPath(source, relative), JoinPath(partial, relative));
    }
    // The trainer's have their list, which says which files they have.
    if (copied.ok() && checkpoint.kind() == CheckpointInfo::KIND_TRAINER) {
      copied = CopyOneFile(JoinPath(source, "manifest.json"), JoinPath(partial, "manifest.json"));
    }
    struct stat info {};
    if (copied.ok() && stat(source.c_str(), &info) != 0) {
      copied = ErrnoStatus(errno, absl::StrCat("look at ", source));
    }
    if (copied.ok()) {
      TakeTimes(partial, info);
      copied = MakeDirectories(DirName(target));
    }
    if (copied.ok() && IsDirectory(target)) {
      copied = ReplaceDirectory(partial, target);
    } else if (copied.ok() && rename(partial.c_str(), target.c_str()) != 0) {
      copied = ErrnoStatus(errno, absl::StrCat("rename ", partial));
    } else if (copied.ok()) {
      copied = SyncDirectory(DirName(target));
    }
    if (!copied.ok()) {
      (void)RemoveTree(partial);
      return copied;
    }
  }
  // The job has removed these itself, in favour of newer ones.
  for (const CheckpointInfo& old : there.checkpoints()) {
    const bool gone = here.checkpoints_size() > 0 &&
                      std::none_of(here.checkpoints().begin(), here.checkpoints().end(),
                                   [&](const auto& one) { return one.path() == old.path(); });
    if (gone) RETURN_IF_ERROR(RemoveTree(JoinPath(to.dir, old.path())));
  }
  return absl::OkStatus();
}

absl::Status FilesCopy::CopyFiles(const std::string& job_id,
                                  const gpuctl::v1::KeptResults& wanted) {
  absl::Status copied;
  // Without a pattern: what lies beside checkpoints.
  RETURN_IF_ERROR(CopyMatches(job_id, "", copied));
  for (const std::string& pattern : wanted.artifacts()) {
    RETURN_IF_ERROR(CopyMatches(job_id, pattern, copied));
  }
  return copied;
}

absl::Status FilesCopy::CopyMatches(const std::string& job_id, const std::string& pattern,
                                    absl::Status& first_error) {
  const JobPaths from = from_.Job(job_id);
  const JobPaths to = to_.Job(job_id);
  ListArtifactsRequest request;
  request.set_job_id(job_id);
  request.set_pattern(pattern);
  request.set_beside_checkpoints(pattern.empty());
  request.set_behind_links(true);
  request.set_page_bytes(kPageBytes);
  for (;;) {
    ASSIGN_OR_RETURN(const ListArtifactsReply page, ListArtifacts(from, request, clock_));
    for (const gpuctl::v1::Artifact& file : page.files()) {
      const std::string target = JoinPath(to.dir, file.path());
      struct stat info {};
      const bool kept = stat(target.c_str(), &info) == 0 && info.st_size == file.size() &&
                        ModifiedMs(info) == file.modified_ms();
      // The others are worth having.
      if (!kept) first_error.Update(CopyFile(JoinPath(from.dir, file.path()), target));
    }
    if (!page.more() || page.files_size() == 0) return absl::OkStatus();
    request.set_after(page.files(page.files_size() - 1).path());
  }
}

absl::Status FilesCopy::CopyFile(const std::string& from, const std::string& to) const {
  const std::string partial = JoinPath(JoinPath(to_.root, kKeptTmp), RandomHex(8));
  absl::Status copied = CopyOneFile(from, partial);
  if (copied.ok()) copied = MakeDirectories(DirName(to));
  if (copied.ok() && rename(partial.c_str(), to.c_str()) != 0) {
    copied = ErrnoStatus(errno, absl::StrCat("rename ", partial));
  }
  if (!copied.ok()) unlink(partial.c_str());
  return copied.ok() ? SyncDirectory(DirName(to)) : copied;
}

}  // namespace gpuctl

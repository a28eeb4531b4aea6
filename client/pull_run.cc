#include "client/pull_run.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint.h"
#include "common/files.h"
#include "common/ids.h"
#include "common/manifest.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

// What was pulled and is not published yet; removed unless it was renamed.
class Staging {
 public:
  Staging(const std::string& to, absl::string_view what)
      : path_(JoinPath(to, absl::StrCat(".gpuctl-", what, "-", RandomHex(4)))) {}
  ~Staging() { (void)RemoveTree(path_); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status PullInto(LinkFactory& links, const std::string& job_id, const std::string& path,
                      const std::string& into, const TransferProgress& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RemoteCommand> send, links.RunAgent("send"));
  FrameChannel channel(send->fd(), send->fd());
  return Annotate(PullTree(channel, job_id, path, into, progress).status(),
                  absl::StrCat("pull ", path));
}

// The directory's checkpoint manifest; errors name the directory.
absl::StatusOr<CheckpointDir> ReadCheckpoint(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::string json, ReadFileToString(JoinPath(dir, "manifest.json")));
  CheckpointDir checkpoint;
  checkpoint.path = dir;
  absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(json);
  if (!manifest.ok()) {
    return absl::DataLossError(absl::StrCat(dir, "/manifest.json: ", manifest.status().message()));
  }
  checkpoint.manifest = *std::move(manifest);
  return checkpoint;
}

absl::Status Verify(const std::string& dir) {
  ASSIGN_OR_RETURN(const CheckpointDir checkpoint, ReadCheckpoint(dir));
  return VerifyCheckpoint(checkpoint);
}

absl::Status Publish(const std::string& from, const std::string& to) {
  if (file_ops::Rename(from, to) != 0) return ErrnoStatus(errno, absl::StrCat("publish ", to));
  return SyncDirectory(DirName(to));
}

}  // namespace

absl::StatusOr<bool> PullCheckpoint(LinkFactory& links, const std::string& job_id,
                                    const gpuctl::v1::CheckpointInfo& checkpoint,
                                    const std::string& to, const TransferProgress& progress) {
  const std::string name = BaseName(checkpoint.path());
  if (!IsSafeRelativePath(checkpoint.path()) || !IsSafeRelativePath(name)) {
    return absl::DataLossError(absl::StrCat("the node named a checkpoint ", checkpoint.path()));
  }
  const std::string target = JoinPath(to, name);
  if (PathExists(target)) {
    RETURN_IF_ERROR(Annotate(Verify(target), "the copy that is here already"));
    return false;
  }
  RETURN_IF_ERROR(MakeDirectories(to, 0777));
  const Staging staging(to, name);
  RETURN_IF_ERROR(PullInto(links, job_id, checkpoint.path(), staging.path(), progress));
  RETURN_IF_ERROR(Verify(staging.path()));
  RETURN_IF_ERROR(Publish(staging.path(), target));
  return true;
}

absl::Status PullFile(LinkFactory& links, const std::string& job_id,
                      const gpuctl::v1::Artifact& artifact, const std::string& to,
                      const TransferProgress& progress) {
  absl::string_view relative = artifact.path();
  if (absl::StartsWith(relative, "work/")) relative.remove_prefix(5);
  if (!IsSafeRelativePath(relative)) {
    return absl::DataLossError(absl::StrCat("the node named a file ", artifact.path()));
  }
  const std::string target = JoinPath(to, relative);
  RETURN_IF_ERROR(MakeDirectories(DirName(target), 0777));
  const Staging staging(to, "pull");
  RETURN_IF_ERROR(PullInto(links, job_id, artifact.path(), staging.path(), progress));
  return Publish(JoinPath(staging.path(), BaseName(relative)), target);
}

}  // namespace gpuctl

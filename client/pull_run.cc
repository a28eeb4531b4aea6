#include "client/pull_run.h"

#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/checkpoint.h"
#include "common/files.h"
#include "common/manifest.h"
#include "common/status_macros.h"

namespace gpuctl {
namespace {

constexpr absl::string_view kWork = "work/";
// Names in one request; a frame holds a mebibyte.
constexpr size_t kNamesAtOnceBytes = 512 << 10;

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

// A pull that a file changed under is tried again from the beginning once; what has come stays.
absl::StatusOr<Pulled> PullSteadily(CommandContext& context, LinkFactory& links,
                                    const PullSubject& subject, const std::string& parent,
                                    const TransferStyle& style) {
  absl::StatusOr<Pulled> pulled = Pull(context, links, subject, parent, style);
  if (absl::IsAborted(pulled.status()) || absl::IsDataLoss(pulled.status())) {
    pulled = Pull(context, links, subject, parent, style);
  }
  if (pulled.ok()) return pulled;
  return Annotate(pulled.status(), absl::StrCat("pull ", subject.path));
}

}  // namespace

absl::StatusOr<bool> PullCheckpoint(CommandContext& context, LinkFactory& links,
                                    const std::string& job_id,
                                    const gpuctl::v1::CheckpointInfo& checkpoint,
                                    const std::string& to, const TransferStyle& style) {
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
  PullSubject subject;
  subject.job_id = job_id;
  subject.path = checkpoint.path();
  ASSIGN_OR_RETURN(const Pulled pulled, PullSteadily(context, links, subject, to, style));
  RETURN_IF_ERROR(Verify(pulled.tree->tree_path()));
  RETURN_IF_ERROR(PublishPulled(*pulled.tree, target));
  return true;
}

absl::StatusOr<TransferCount> PullFiles(CommandContext& context, LinkFactory& links,
                                        const std::string& job_id,
                                        const std::vector<gpuctl::v1::Artifact>& artifacts,
                                        const std::string& to, const TransferStyle& style) {
  RETURN_IF_ERROR(MakeDirectories(to, 0777));
  TransferCount total;
  for (size_t next = 0; next < artifacts.size();) {
    PullSubject subject;
    subject.job_id = job_id;
    subject.path = "work";
    subject.have = to;
    for (size_t names = 0; next < artifacts.size() && names < kNamesAtOnceBytes; ++next) {
      const std::string& path = artifacts[next].path();
      const absl::string_view relative = absl::StripPrefix(path, kWork);
      if (!absl::StartsWith(path, kWork) || !IsSafeRelativePath(relative)) {
        return absl::DataLossError(absl::StrCat("the node named a file ", path));
      }
      subject.files.emplace_back(relative);
      names += relative.size() + 8;
    }
    ASSIGN_OR_RETURN(const Pulled pulled, PullSteadily(context, links, subject, to, style));
    RETURN_IF_ERROR(MergePulled(*pulled.tree, to));
    total.bytes += pulled.received.bytes;
    total.files += pulled.received.files;
  }
  return total;
}

}  // namespace gpuctl

#include "client/results/sftp_pull.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/results/checkpoint_choice.h"
#include "client/results/pull_files.h"
#include "common/base/link_fault.h"
#include "common/base/path_pattern.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"
#include "common/files/regular_file.h"
#include "common/job/checkpoint.h"
#include "common/job/checkpoint_layout.h"
#include "common/transfer/pull.h"
#include "common/tree/manifest.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Artifact;
using gpuctl::v1::CheckpointInfo;
using gpuctl::v1::ListArtifactsReply;

constexpr int64_t kMaxManifestSize = 16 << 20;
constexpr int64_t kQuietMs = 10'000;

Artifact ToArtifact(const std::string& path, const SftpEntry& entry) {
  Artifact artifact;
  artifact.set_path(path);
  artifact.set_size(entry.size);
  artifact.set_modified_ms(entry.modified_s * 1000);
  return artifact;
}

void AddFile(CheckpointInfo& checkpoint, const Artifact& file) {
  checkpoint.set_size(checkpoint.size() + file.size());
  checkpoint.set_modified_ms(std::max(checkpoint.modified_ms(), file.modified_ms()));
  *checkpoint.add_files() = file;
}

bool LiesBelow(const std::string& path, const std::string& dir) {
  return absl::StartsWith(path, absl::StrCat(dir, "/"));
}

bool HasTemporaryPart(const std::string& path) {
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (IsTemporaryName(path.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

absl::Status CheckBrought(const CheckpointInfo& checkpoint, const std::string& path) {
  if (checkpoint.kind() == CheckpointInfo::KIND_TRAINER) {
    ASSIGN_OR_RETURN(const std::string json,
                     ReadRegularFile(path, "manifest.json", kMaxManifestSize));
    CheckpointDir dir;
    dir.path = path;
    ASSIGN_OR_RETURN(dir.manifest, ParseCheckpointManifest(json));
    return VerifyCheckpoint(dir);
  }
  LayoutVerdict verdict;
  if (checkpoint.is_file()) {
    verdict = JudgeCheckpointFile(path, checkpoint.size());
  } else {
    std::vector<LayoutFile> files;
    for (const Artifact& file : checkpoint.files()) {
      files.push_back({file.path().substr(checkpoint.path().size() + 1), file.size()});
    }
    verdict = JudgeCheckpointDirectory(path, files);
  }
  if (verdict.wholeness != Wholeness::kTorn) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("pull ", checkpoint.path(), ": it is not whole: ", verdict.why));
}

}  // namespace

bool AgentCannotRun(const absl::Status& status) {
  const LinkFault fault = FaultOf(status);
  return fault == LinkFault::kAgentCannotRun || fault == LinkFault::kNoRoomForAgent;
}

SftpPull::SftpPull(CommandContext& context, const RunRow& row, std::unique_ptr<SftpFiles> files)
    : context_(context),
      row_(row),
      files_(std::move(files)),
      // SFTP's relative paths begin in the user's home.
      job_dir_(JoinPath(JoinPath(row.target.root.empty() ? ".gpuctl" : row.target.root, "jobs"),
                        row.job_id)),
      tree_(context, *files_, job_dir_, row.job_id) {}

absl::StatusOr<std::unique_ptr<SftpPull>> SftpPull::Open(CommandContext& context,
                                                         LinkFactory& links, const RunRow& row) {
  ASSIGN_OR_RETURN(std::unique_ptr<SshSession> session, links.OpenSshSession());
  ASSIGN_OR_RETURN(std::unique_ptr<SftpFiles> files, SftpFiles::Open(std::move(session)));
  std::unique_ptr<SftpPull> pull(new SftpPull(context, row, std::move(files)));
  RETURN_IF_ERROR(pull->files_->Stat(pull->job_dir_).status());
  return pull;
}

absl::Status SftpPull::ListTrainers(ListArtifactsReply& reply) {
  const std::string dir = JoinPath(job_dir_, "ckpt");
  ASSIGN_OR_RETURN(const std::vector<SftpEntry> entries, files_->List(dir));
  std::vector<CheckpointInfo> found;
  for (const SftpEntry& entry : entries) {
    const std::string name = DirName(entry.path);
    if (BaseName(entry.path) != "manifest.json" || !entry.is_file || IsTemporaryName(name) ||
        entry.size > kMaxManifestSize || absl::StrContains(name, "/")) {
      continue;
    }
    std::string json;
    RETURN_IF_ERROR(
        files_->Read(JoinPath(dir, entry.path), 0, entry.size, [&](absl::string_view bytes) {
          absl::StrAppend(&json, bytes);
          return absl::OkStatus();
        }));
    const absl::StatusOr<CheckpointManifest> manifest = ParseCheckpointManifest(json);
    if (!manifest.ok()) continue;
    CheckpointInfo checkpoint;
    checkpoint.set_path(JoinPath("ckpt", name));
    checkpoint.set_name(name);
    checkpoint.set_step(manifest->step);
    size_t whole = 0;
    for (const SftpEntry& file : entries) {
      if (!file.is_file || !LiesBelow(file.path, name)) continue;
      const std::string relative = file.path.substr(name.size() + 1);
      whole += static_cast<size_t>(std::count_if(
          manifest->files.begin(), manifest->files.end(), [&](const CheckpointFile& each) {
            return each.path == relative && each.size == file.size;
          }));
      AddFile(checkpoint, ToArtifact(JoinPath("ckpt", file.path), file));
    }
    if (whole == manifest->files.size()) found.push_back(std::move(checkpoint));
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const CheckpointInfo& a, const CheckpointInfo& b) { return a.step() < b.step(); });
  for (CheckpointInfo& each : found) *reply.add_checkpoints() = std::move(each);
  return absl::OkStatus();
}

void SftpPull::ListForeign(const std::vector<SftpEntry>& work, ListArtifactsReply& reply) {
  const int64_t now_ms = context_.NowMs();
  std::vector<CheckpointInfo> found;
  std::string inside;  // a match; no other is searched below it
  for (const SftpEntry& entry : work) {
    if (!inside.empty() && LiesBelow(entry.path, inside)) {
      if (entry.is_file) AddFile(found.back(), ToArtifact(JoinPath("work", entry.path), entry));
      continue;
    }
    inside.clear();
    if ((!entry.is_file && !entry.is_directory) || HasTemporaryPart(entry.path)) continue;
    for (const std::string& each : row_.checkpoint_patterns) {
      const std::string pattern(absl::StripSuffix(each, "/"));
      if (!MatchesPattern(pattern, entry.path)) continue;
      CheckpointInfo& checkpoint = found.emplace_back();
      checkpoint.set_kind(CheckpointInfo::KIND_FOREIGN);
      checkpoint.set_path(JoinPath("work", entry.path));
      const std::string fixed = FixedDirectory(pattern);
      checkpoint.set_name(fixed.empty() ? entry.path : entry.path.substr(fixed.size() + 1));
      checkpoint.set_step(StepOfCheckpointName(BaseName(entry.path), entry.is_file));
      checkpoint.set_is_file(entry.is_file);
      if (entry.is_file) {
        AddFile(checkpoint, ToArtifact(checkpoint.path(), entry));
      } else {
        inside = entry.path;
      }
      break;
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const CheckpointInfo& a, const CheckpointInfo& b) {
                     return std::make_pair(a.modified_ms(), a.step()) <
                            std::make_pair(b.modified_ms(), b.step());
                   });
  for (CheckpointInfo& each : found) {
    const bool quiet = std::abs(now_ms - each.modified_ms()) >= kQuietMs;
    if (quiet && each.files_size() > 0) *reply.add_checkpoints() = std::move(each);
  }
}

absl::StatusOr<ListArtifactsReply> SftpPull::List(const std::string& pattern) {
  ListArtifactsReply reply;
  RETURN_IF_ERROR(ListTrainers(reply));
  if (pattern.empty() && row_.checkpoint_patterns.empty()) return reply;
  ASSIGN_OR_RETURN(const std::vector<SftpEntry> work, files_->List(JoinPath(job_dir_, "work")));
  ListForeign(work, reply);
  for (const SftpEntry& entry : work) {
    if (pattern.empty() || !entry.is_file || !MatchesPattern(pattern, entry.path)) continue;
    *reply.add_files() = ToArtifact(JoinPath("work", entry.path), entry);
  }
  return reply;
}

namespace {

// Checks that the downloaded files are the listed ones, because the list decided about them.
absl::Status CheckAsListed(const CheckpointInfo& checkpoint, const SftpSubject& subject) {
  std::map<std::string, std::pair<int64_t, int64_t>> listed;
  for (const Artifact& file : checkpoint.files()) {
    listed[file.path()] = {file.size(), file.modified_ms()};
  }
  size_t files = 0;
  for (const SftpEntry& entry : subject.entries) {
    if (!entry.is_file) continue;
    const auto found = listed.find(JoinPath(subject.base, entry.path));
    files +=
        found != listed.end() && found->second == std::pair(entry.size, entry.modified_s * 1000);
  }
  const auto there = std::count_if(subject.entries.begin(), subject.entries.end(),
                                   [](const SftpEntry& entry) { return entry.is_file; });
  if (files == listed.size() && static_cast<size_t>(there) == files) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("pull ", checkpoint.path(), ": it is being written again"));
}

}  // namespace

absl::Status SftpPull::BringCheckpoint(const CheckpointInfo& checkpoint, const std::string& to) {
  ASSIGN_OR_RETURN(const std::string name, HomeName(checkpoint));
  const std::string target = JoinPath(to, name);
  if (PathExists(target)) {
    return absl::AlreadyExistsError(
        absl::StrCat("pull ", checkpoint.path(), ": ", target, " is there already"));
  }
  RETURN_IF_ERROR(MakeDirectories(DirName(target), 0777));
  ASSIGN_OR_RETURN(const SftpSubject subject, tree_.Look(checkpoint.path()));
  RETURN_IF_ERROR(CheckAsListed(checkpoint, subject));
  ASSIGN_OR_RETURN(const Pulled pulled, tree_.Fetch(subject, DirName(target)));
  const std::string brought =
      pulled.is_file ? JoinPath(pulled.tree->tree_path(), pulled.tree->manifest()[0].path())
                     : pulled.tree->tree_path();
  RETURN_IF_ERROR(CheckBrought(checkpoint, brought));
  RETURN_IF_ERROR(PublishNew(pulled, target));
  return RecordPulled(context_, row_, checkpoint, target);
}

absl::Status SftpPull::BringFiles(const std::vector<Artifact>& files, const std::string& to) {
  RETURN_IF_ERROR(MakeDirectories(to, 0777));
  std::vector<std::string> paths;
  for (const Artifact& file : files) {
    paths.emplace_back(absl::StripPrefix(file.path(), "work/"));
  }
  ASSIGN_OR_RETURN(const SftpSubject subject, tree_.LookAtFiles("work", paths));
  ASSIGN_OR_RETURN(const Pulled pulled, tree_.Fetch(subject, to));
  RETURN_IF_ERROR(MergePulled(*pulled.tree, to));
  return RecordPulledFiles(context_, row_, pulled.tree->manifest(), to);
}

absl::StatusOr<Pulled> SftpPull::BringPath(const std::string& path, const std::string& parent) {
  ASSIGN_OR_RETURN(const SftpSubject subject,
                   tree_.Look(path.empty() ? "work" : JoinPath("work", path)));
  return tree_.Fetch(subject, parent);
}

}  // namespace gpuctl

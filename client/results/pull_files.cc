#include "client/results/pull_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/exit_codes.h"
#include "client/results/checkpoint_choice.h"
#include "client/runs/pulled_record.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/exchange_paths.h"
#include "common/files/files.h"
#include "common/files/regular_file.h"
#include "common/job/checkpoint.h"
#include "common/tree/manifest.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::CheckpointInfo;

constexpr absl::string_view kTrainersManifest = "manifest.json";
constexpr int64_t kMaxTrainersManifestBytes = 16 << 20;

// Reads the directory's checkpoint manifest; errors name the directory.
absl::StatusOr<CheckpointDir> ReadCheckpoint(const std::string& dir) {
  ASSIGN_OR_RETURN(const std::string json,
                   ReadRegularFile(dir, "manifest.json", kMaxTrainersManifestBytes));
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

// The data that all pulls of one run share.
struct Pulling {
  CommandContext& context;
  LinkFactory& links;
  const RunRow& row;
  const TransferStyle& style;
  PulledRecord record;
};

absl::StatusOr<Pulling> BeginPulling(CommandContext& context, LinkFactory& links, const RunRow& row,
                                     const TransferStyle& style) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  return Pulling{context, links, row, style, PulledRecord(paths.MirrorDir(row.run_id))};
}

absl::Status Record(PulledRecord& record, int64_t now_ms, const CheckpointInfo& checkpoint,
                    const std::string& target, const Manifest& manifest, bool ours) {
  ASSIGN_OR_RETURN(const std::string path, AbsolutePath(target));
  PulledItem item = DescribePulled(path, manifest, checkpoint.is_file());
  item.kind = checkpoint.kind() == CheckpointInfo::KIND_FOREIGN ? PulledItem::Kind::kForeign
                                                                : PulledItem::Kind::kTrainer;
  item.from = checkpoint.path();
  item.step = checkpoint.step();
  item.time_ms = now_ms;
  item.node_modified_ms = checkpoint.modified_ms();
  item.ours = ours;
  return record.Append(item);
}

// Returns the record's item for `target`, if that came from this checkpoint.
absl::StatusOr<std::optional<PulledItem>> Recorded(const Pulling& pulling,
                                                   const CheckpointInfo& checkpoint,
                                                   const std::string& target) {
  ASSIGN_OR_RETURN(const std::string path, AbsolutePath(target));
  ASSIGN_OR_RETURN(std::vector<PulledItem> items, pulling.record.Read());
  for (PulledItem& item : items) {
    if (item.path == path && item.from == checkpoint.path()) {
      return std::optional<PulledItem>(std::move(item));
    }
  }
  return std::optional<PulledItem>();
}

// Replaces older content of the same checkpoint.
absl::Status ReplaceOlder(const Pulled& pulled, const std::string& target) {
  if (pulled.is_file) return PublishNew(pulled, target);
  return ReplaceDirectory(pulled.tree->tree_path(), target);
}

// True when the copy at `target`, which matches its own manifest, is the node's checkpoint: another
// run's checkpoint of the same step has the same name.
absl::StatusOr<bool> IsNodesCheckpoint(Pulling& pulling, PullSubject subject,
                                       const std::string& target) {
  subject.files = {std::string(kTrainersManifest)};
  TransferStyle style = pulling.style;
  style.quiet = true;
  ASSIGN_OR_RETURN(const Pulled pulled,
                   PullSteadily(pulling.context, pulling.links, subject, DirName(target), style));
  ASSIGN_OR_RETURN(const std::string theirs,
                   ReadRegularFile(pulled.tree->tree_path(), std::string(kTrainersManifest),
                                   kMaxTrainersManifestBytes));
  ASSIGN_OR_RETURN(const std::string ours, ReadRegularFile(target, std::string(kTrainersManifest),
                                                           kMaxTrainersManifestBytes));
  return theirs == ours;
}

absl::Status SomethingElse(const CheckpointInfo& checkpoint, const std::string& target) {
  return WithHint(absl::FailedPreconditionError(
                      absl::StrCat("pull ", checkpoint.path(), ": ", target, " is something else")),
                  "bring it to another place with --to, or move that away");
}

// Returns the listed files by their paths in the checkpoint, with their sizes.
std::map<std::string, int64_t> ListedFiles(const CheckpointInfo& checkpoint) {
  std::map<std::string, int64_t> listed;
  for (const gpuctl::v1::Artifact& file : checkpoint.files()) {
    const size_t skip =
        checkpoint.is_file() ? DirName(file.path()).size() : checkpoint.path().size();
    if (file.path().size() > skip) listed[file.path().substr(skip + 1)] = file.size();
  }
  return listed;
}

// True when the recorded copy is the listed checkpoint and nobody has touched it here: neither the
// node nor the disk has to be read again.
bool IsWholeAtHome(const PulledItem& known, const CheckpointInfo& checkpoint) {
  if (checkpoint.modified_ms() == 0 || checkpoint.files().empty() ||
      known.node_modified_ms != checkpoint.modified_ms() || !IsUntouchedAndAlone(known)) {
    return false;
  }
  std::map<std::string, int64_t> here;
  for (const PulledFile& file : known.files) {
    here[file.path.empty() ? BaseName(checkpoint.path()) : file.path] = file.size;
  }
  std::map<std::string, int64_t> listed = ListedFiles(checkpoint);
  const auto manifest = here.find(std::string(kTrainersManifest));
  if (checkpoint.kind() == CheckpointInfo::KIND_TRAINER && manifest != here.end()) {
    listed.emplace(*manifest);
  }
  return here == listed;
}

// Chooses the listed files of the trainer's checkpoint and its manifest, and nothing else.
absl::StatusOr<std::vector<bool>> ChooseTrainers(const CheckpointInfo& checkpoint,
                                                 const Manifest& offered) {
  std::vector<bool> chosen;
  if (checkpoint.files().empty()) return chosen;
  const std::map<std::string, int64_t> listed = ListedFiles(checkpoint);
  size_t found = 0;
  for (const gpuctl::v1::FileEntry& entry : offered) {
    const auto file = listed.find(entry.path());
    const bool of_it =
        entry.kind() == gpuctl::v1::FileEntry::KIND_FILE &&
        (file != listed.end() ? file->second == entry.size() : entry.path() == kTrainersManifest);
    found += of_it && file != listed.end();
    chosen.push_back(of_it);
  }
  if (found == listed.size()) return chosen;
  return absl::AbortedError(
      absl::StrCat("pull ", checkpoint.path(), ": files of it are being removed"));
}

absl::StatusOr<bool> PullTrainers(Pulling& pulling, PullSubject subject,
                                  const CheckpointInfo& checkpoint, const std::string& target) {
  const bool present = PathExists(target);
  if (present) {
    ASSIGN_OR_RETURN(const std::optional<PulledItem> known, Recorded(pulling, checkpoint, target));
    if (known.has_value() && IsWholeAtHome(*known, checkpoint)) return false;
    RETURN_IF_ERROR(Annotate(Verify(target), "the copy that is here already"));
    if (known.has_value() && known->node_modified_ms == checkpoint.modified_ms()) return false;
    ASSIGN_OR_RETURN(const bool same, IsNodesCheckpoint(pulling, subject, target));
    if (same) {
      ASSIGN_OR_RETURN(const Manifest manifest, ScanTree(target));
      RETURN_IF_ERROR(Record(pulling.record, pulling.context.NowMs(), checkpoint, target, manifest,
                             known.has_value() && known->ours));
      return false;
    }
    if (!known.has_value() || !known->ours || !IsUntouchedAndAlone(*known)) {
      return SomethingElse(checkpoint, target);
    }
  }
  subject.choose = [&](const Manifest& offered) { return ChooseTrainers(checkpoint, offered); };
  ASSIGN_OR_RETURN(const Pulled pulled, PullSteadily(pulling.context, pulling.links, subject,
                                                     DirName(target), pulling.style));
  RETURN_IF_ERROR(Verify(pulled.tree->tree_path()));
  RETURN_IF_ERROR(present ? ReplaceOlder(pulled, target) : PublishPulled(*pulled.tree, target));
  RETURN_IF_ERROR(Record(pulling.record, pulling.context.NowMs(), checkpoint, target,
                         pulled.tree->manifest(), /*ours=*/true));
  return true;
}

// Checks that the downloaded files are those of the complete checkpoint that the node listed.
absl::Status CheckAsListed(const Manifest& manifest, const CheckpointInfo& checkpoint) {
  const std::map<std::string, int64_t> listed = ListedFiles(checkpoint);
  size_t files = 0;
  for (const gpuctl::v1::FileEntry& entry : manifest) {
    if (entry.kind() != gpuctl::v1::FileEntry::KIND_FILE) continue;
    ++files;
    const auto found = listed.find(entry.path());
    if (found == listed.end() || found->second != entry.size()) {
      return absl::AbortedError(absl::StrCat("pull ", checkpoint.path(), "/", entry.path(),
                                             ": it is being written again"));
    }
  }
  if (files == listed.size()) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("pull ", checkpoint.path(), ": files of it are being removed"));
}

// True when exactly the pulled content is at `target`.
absl::StatusOr<bool> IsHere(const Pulled& pulled, const std::string& target) {
  if (pulled.received.bytes > 0 || pulled.is_file == IsDirectory(target)) return false;
  Manifest here;
  if (pulled.is_file) {
    const UniqueFd dir(file_ops::Open(DirName(target), O_RDONLY | O_DIRECTORY));
    if (!dir.valid()) return false;
    ASSIGN_OR_RETURN(here, ScanFileAt(dir.get(), BaseName(target)));
  } else {
    ASSIGN_OR_RETURN(here, ScanTree(target));
  }
  return here.bytes() == pulled.tree->manifest().bytes();
}

absl::StatusOr<bool> PullForeign(Pulling& pulling, PullSubject subject,
                                 const CheckpointInfo& checkpoint, const std::string& target) {
  const std::string parent = DirName(target);
  std::optional<PulledItem> known;
  const bool present = PathExists(target);
  if (present) {
    subject.have = IsDirectory(target) ? target : parent;
    ASSIGN_OR_RETURN(known, Recorded(pulling, checkpoint, target));
    if (known.has_value() && IsWholeAtHome(*known, checkpoint)) return false;
  }
  subject.choose = [&](const Manifest& offered) -> absl::StatusOr<std::vector<bool>> {
    RETURN_IF_ERROR(CheckAsListed(offered, checkpoint));
    return std::vector<bool>();
  };
  ASSIGN_OR_RETURN(const Pulled pulled,
                   PullSteadily(pulling.context, pulling.links, subject, parent, pulling.style));
  const Manifest& manifest = pulled.tree->manifest();
  if (!present) {
    RETURN_IF_ERROR(PublishNew(pulled, target));
    RETURN_IF_ERROR(Record(pulling.record, pulling.context.NowMs(), checkpoint, target, manifest,
                           /*ours=*/true));
    return true;
  }
  ASSIGN_OR_RETURN(const bool here, IsHere(pulled, target));
  if (here) {
    if (known.has_value()) return false;
    RETURN_IF_ERROR(Record(pulling.record, pulling.context.NowMs(), checkpoint, target, manifest,
                           /*ours=*/false));
    return false;
  }
  if (!known.has_value() || !known->ours || !IsUntouchedAndAlone(*known) ||
      pulled.is_file == IsDirectory(target)) {
    return SomethingElse(checkpoint, target);
  }
  RETURN_IF_ERROR(ReplaceOlder(pulled, target));
  RETURN_IF_ERROR(
      Record(pulling.record, pulling.context.NowMs(), checkpoint, target, manifest, /*ours=*/true));
  return true;
}

}  // namespace

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

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("find ", path));
  }
  return std::string(resolved);
}

absl::Status MakeOwnDestination(const std::string& to) {
  if (PathExists(to)) return absl::OkStatus();
  RETURN_IF_ERROR(MakeDirectories(to, 0777));
  return KeepAtHome(to);
}

absl::Status KeepAtHome(const std::string& directory) {
  return WriteFileAtomic(JoinPath(directory, ".gpuctlignore"), "*\n", 0644);
}

absl::StatusOr<bool> PullCheckpoint(CommandContext& context, LinkFactory& links, const RunRow& row,
                                    const CheckpointInfo& checkpoint, const std::string& to,
                                    const TransferStyle& style) {
  ASSIGN_OR_RETURN(const std::string name, HomeName(checkpoint));
  const std::string target = JoinPath(to, name);
  RETURN_IF_ERROR(MakeDirectories(DirName(target), 0777));
  RETURN_IF_ERROR(SettleReplaced(target));
  ASSIGN_OR_RETURN(Pulling pulling, BeginPulling(context, links, row, style));
  PullSubject subject;
  subject.job_id = row.job_id;
  subject.path = checkpoint.path();
  subject.follow = checkpoint.behind();
  const auto pull = [&] {
    return checkpoint.kind() == CheckpointInfo::KIND_FOREIGN
               ? PullForeign(pulling, subject, checkpoint, target)
               : PullTrainers(pulling, subject, checkpoint, target);
  };
  absl::StatusOr<bool> brought = pull();
  // Another gpuctl was first; its copy is checked like any other.
  if (absl::IsAlreadyExists(brought.status())) brought = pull();
  return brought;
}

absl::Status PublishNew(const Pulled& pulled, const std::string& target) {
  if (!pulled.is_file) return PublishPulled(*pulled.tree, target);
  const std::string from = JoinPath(pulled.tree->tree_path(), pulled.tree->manifest()[0].path());
  if (file_ops::Rename(from, target) != 0) {
    return ErrnoStatus(errno, absl::StrCat("publish ", target));
  }
  return SyncDirectory(DirName(target));
}

absl::Status RecordPulled(CommandContext& context, const RunRow& row,
                          const CheckpointInfo& checkpoint, const std::string& target) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  Manifest manifest;
  if (checkpoint.is_file()) {
    const UniqueFd dir(file_ops::Open(DirName(target), O_RDONLY | O_DIRECTORY));
    if (!dir.valid()) return ErrnoStatus(errno, absl::StrCat("open ", DirName(target)));
    ASSIGN_OR_RETURN(manifest, ScanFileAt(dir.get(), BaseName(target)));
  } else {
    ASSIGN_OR_RETURN(manifest, ScanTree(target));
  }
  PulledRecord record(paths.MirrorDir(row.run_id));
  return Record(record, context.NowMs(), checkpoint, target, manifest, /*ours=*/true);
}

}  // namespace gpuctl

// Downloads of named files of the work directory, or of those beside the checkpoints.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/base/exit_codes.h"
#include "client/results/pull_files.h"
#include "client/runs/pulled_record.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/files/files.h"
#include "common/files/relative_path.h"
#include "common/tree/tree.h"

namespace gpuctl {
namespace {

using gpuctl::v1::Artifact;
using gpuctl::v1::FileEntry;

constexpr char kWork[] = "work";
// Size of the names in one request; a frame holds a mebibyte.
constexpr size_t kNamesAtOnceBytes = 512 << 10;

// A file that pull recorded.
struct KnownFile {
  PulledFile file;
  bool ours = false;
};

// A file at home in the place of one that is to come.
struct FileAtHome {
  bool present = false;
  struct stat info {};
  const KnownFile* known = nullptr;  // set while nobody has touched it since it was recorded
};

// The files at home below a directory, and what pull knows of them.
class HomeFiles {
 public:
  // `from` is the directory of the job's that the files come from.
  static absl::StatusOr<HomeFiles> Open(CommandContext& context, const RunRow& row,
                                        const std::string& from, const std::string& to,
                                        bool overwrite) {
    HomeFiles files;
    files.from_ = from;
    files.overwrite_ = overwrite;
    ASSIGN_OR_RETURN(files.dir_, AbsolutePath(to));
    ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
    ASSIGN_OR_RETURN(const std::vector<PulledItem> items,
                     PulledRecord(paths.MirrorDir(row.run_id)).Read());
    for (const PulledItem& item : items) {
      if (item.kind == PulledItem::Kind::kFiles && item.from != from) continue;
      for (const PulledFile& file : item.files) {
        files.known_[PulledPath(item, file)] = KnownFile{file, item.ours};
      }
    }
    return files;
  }

  // Returns what is at home in the place of `path`.
  FileAtHome Look(const std::string& path) const {
    FileAtHome home;
    const std::string absolute = JoinPath(dir_, path);
    home.present = lstat(absolute.c_str(), &home.info) == 0;
    const auto found = known_.find(absolute);
    if (home.present && found != known_.end() && S_ISREG(home.info.st_mode) &&
        int64_t{home.info.st_size} == found->second.file.size &&
        PulledTime(home.info) == found->second.file.modified_ns) {
      home.known = &found->second;
    }
    return home;
  }

  // True when the file that the node listed came home before and nobody has changed it here.
  bool IsThere(const Artifact& listed, const std::string& path) const {
    const KnownFile* known = Look(path).known;
    return known != nullptr && listed.modified_ms() != 0 &&
           known->file.node_modified_ms == listed.modified_ms() &&
           known->file.size == listed.size();
  }

  // True when the file at home has the entry's content.
  absl::StatusOr<bool> HasContent(const FileAtHome& home, const FileEntry& entry) const {
    if (!S_ISREG(home.info.st_mode) || int64_t{home.info.st_size} != entry.size()) return false;
    if (home.known != nullptr) {
      return home.known->file.sha256 == absl::BytesToHexString(entry.sha256());
    }
    const UniqueFd dir(file_ops::Open(dir_, O_RDONLY | O_DIRECTORY));
    if (!dir.valid()) return ErrnoStatus(errno, absl::StrCat("open ", dir_));
    ASSIGN_OR_RETURN(const Manifest here, ScanFilesAt(dir.get(), dir_, {entry.path()}));
    return here.size() == 1 && here[0].kind() == FileEntry::KIND_FILE &&
           here[0].sha256() == entry.sha256();
  }

  // FAILED_PRECONDITION unless a file of other content may replace what is there.
  absl::Status CheckMayReplace(const FileAtHome& home, const FileEntry& entry) const {
    if (!home.present) return absl::OkStatus();
    if (absl::Status status = CheckReplaceable(home.info, entry); !status.ok()) {
      return WithHint(status, "bring it to another place with --to, or move that away");
    }
    if (overwrite_ || (home.known != nullptr && home.known->ours)) return absl::OkStatus();
    return WithHint(absl::FailedPreconditionError(absl::StrCat(
                        "pull ", absl::CHexEscape(entry.path()), ": ", JoinPath(dir_, ""),
                        " has another file of this name, which pull did not bring")),
                    "bring it to another place with --to, or replace that with --overwrite");
  }

  const std::string& from() const { return from_; }
  const std::string& dir() const { return dir_; }

 private:
  std::string from_;
  std::string dir_;
  bool overwrite_ = false;
  std::map<std::string, KnownFile> known_;  // by absolute path
};

// One request for files.
class NamedPull {
 public:
  explicit NamedPull(const HomeFiles& home) : home_(home) {}

  void Add(const std::string& path, int64_t modified_ms) { listed_[path] = modified_ms; }
  bool empty() const { return listed_.empty(); }

  // Decides about each entry of the node's manifest.
  absl::StatusOr<std::vector<bool>> Choose(const Manifest& manifest) {
    brought_ = Manifest();
    there_.clear();
    std::vector<bool> chosen;
    for (const FileEntry& entry : manifest) {
      const FileAtHome home = home_.Look(entry.path());
      bool same = false;
      if (home.present) {
        ASSIGN_OR_RETURN(same, home_.HasContent(home, entry));
      }
      if (same) {
        there_.emplace_back(entry, home.known != nullptr && home.known->ours);
      } else {
        RETURN_IF_ERROR(home_.CheckMayReplace(home, entry));
        brought_.Append(entry);
      }
      chosen.push_back(!same);
    }
    return chosen;
  }

  absl::Status Record(PulledRecord& record, int64_t now_ms) const {
    RETURN_IF_ERROR(RecordAs(record, now_ms, brought_, /*ours=*/true));
    for (const bool ours : {true, false}) {
      Manifest manifest;
      for (const auto& [entry, of_ours] : there_) {
        if (of_ours == ours) manifest.Append(entry);
      }
      RETURN_IF_ERROR(RecordAs(record, now_ms, manifest, ours));
    }
    return absl::OkStatus();
  }

  // Adds the names that did not come as they are, and those that the node did not have any more.
  void Remark(const gpuctl::v1::PullNotes& notes, PulledNames& names) const {
    std::map<std::string, int64_t> here;
    for (const FileEntry& entry : brought_) here[entry.path()] = entry.size();
    for (const auto& there : there_) here[there.first.path()] = there.first.size();
    for (const std::string& path : notes.grown()) {
      if (here.count(path) > 0) names.grown.insert(path);
    }
    for (const std::string& path : notes.set_id()) {
      if (here.count(path) > 0) names.set_id.insert(path);
    }
    const std::set<std::string> changed(notes.changed().begin(), notes.changed().end());
    for (const auto& listed : listed_) {
      if (here.count(listed.first) > 0) continue;
      (changed.count(listed.first) > 0 ? names.changed : names.gone).insert(listed.first);
    }
    names.sizes.merge(here);
  }
  void There(std::set<std::string>& there) const {
    for (const auto& each : there_) there.insert(each.first.path());
  }
  bool brings_any() const { return !brought_.empty(); }

 private:
  absl::Status RecordAs(PulledRecord& record, int64_t now_ms, const Manifest& manifest,
                        bool ours) const {
    if (manifest.empty()) return absl::OkStatus();
    PulledItem item = DescribePulled(home_.dir(), manifest, /*is_file=*/false);
    for (PulledFile& file : item.files) {
      const auto listed = listed_.find(file.path);
      if (listed != listed_.end()) file.node_modified_ms = listed->second;
    }
    item.from = home_.from();
    item.time_ms = now_ms;
    item.ours = ours;
    return record.Append(item);
  }

  const HomeFiles& home_;
  std::map<std::string, int64_t> listed_;  // the node's times, by path
  Manifest brought_;
  std::vector<std::pair<FileEntry, bool>> there_;  // and whether pull brought it
};

// Returns the directory of the job's that the files lie in.
std::string DirectoryOf(const std::vector<Artifact>& artifacts) {
  const bool beside = !artifacts.empty() && absl::StartsWith(artifacts.front().path(),
                                                             absl::StrCat(kBesideCheckpoints, "/"));
  return beside ? kBesideCheckpoints : kWork;
}

// Returns the file's path below the directory `from` of the job's.
absl::StatusOr<std::string> PathBelow(const std::string& from, const Artifact& artifact) {
  absl::string_view path = artifact.path();
  if (!absl::ConsumePrefix(&path, absl::StrCat(from, "/")) || !IsSafeRelativePath(path)) {
    return absl::DataLossError(absl::StrCat("the node named a file ", artifact.path()));
  }
  return std::string(path);
}

}  // namespace

absl::Status CheckMayPull(CommandContext& context, const RunRow& row,
                          const std::vector<Artifact>& artifacts, const std::string& to,
                          bool overwrite) {
  const std::string from = DirectoryOf(artifacts);
  ASSIGN_OR_RETURN(const HomeFiles home, HomeFiles::Open(context, row, from, to, overwrite));
  for (const Artifact& artifact : artifacts) {
    ASSIGN_OR_RETURN(const std::string path, PathBelow(from, artifact));
    FileEntry entry;
    entry.set_path(path);
    entry.set_kind(FileEntry::KIND_FILE);
    RETURN_IF_ERROR(home.CheckMayReplace(home.Look(path), entry));
  }
  return absl::OkStatus();
}

namespace {

constexpr int kMostFailures = 16;  // files that may fail before the pull does

using Batch = std::vector<const Artifact*>;  // asked for together

class FilePuller {
 public:
  FilePuller(CommandContext& context, LinkFactory& links, const RunRow& row, const HomeFiles& home,
             const std::string& to, const TransferStyle& style, PulledRecord record)
      : context_(context),
        links_(links),
        row_(row),
        home_(home),
        to_(to),
        style_(style),
        record_(std::move(record)) {}

  // Brings the files. One that keeps changing is named and holds up no other.
  absl::Status Bring(const std::vector<Artifact>& artifacts, PulledNames& total) {
    ASSIGN_OR_RETURN(std::deque<Batch> batches, MakeBatches(artifacts, total));
    while (!batches.empty()) {
      const Batch batch = std::move(batches.front());
      batches.pop_front();
      const absl::Status brought = BringBatch(batch, total);
      if (brought.ok()) continue;
      if (!absl::IsAborted(brought) && !absl::IsDataLoss(brought)) return brought;
      if (failed_ >= kMostFailures) return brought;
      if (batch.size() > 1) {
        // Content that has come is not sent again.
        const auto middle = batch.begin() + static_cast<ptrdiff_t>(batch.size() / 2);
        batches.emplace_front(middle, batch.end());
        batches.emplace_front(batch.begin(), middle);
        continue;
      }
      ++failed_;
      total.changed.insert(PathBelow(home_.from(), *batch.front()).value_or(""));
      if (total.why_changed.ok()) total.why_changed = brought;
    }
    return absl::OkStatus();
  }

 private:
  // Leaves out files that are there already. All files of a batch are behind the same symlink.
  absl::StatusOr<std::deque<Batch>> MakeBatches(const std::vector<Artifact>& artifacts,
                                                PulledNames& total) const {
    std::deque<Batch> batches;
    size_t names = 0;
    for (const Artifact& artifact : artifacts) {
      ASSIGN_OR_RETURN(std::string path, PathBelow(home_.from(), artifact));
      if (home_.IsThere(artifact, path)) {
        total.there.insert(std::move(path));
        continue;
      }
      if (batches.empty() || names >= kNamesAtOnceBytes ||
          batches.back().front()->behind() != artifact.behind()) {
        batches.emplace_back();
        names = 0;
      }
      batches.back().push_back(&artifact);
      names += path.size() + 8;
    }
    return batches;
  }

  absl::Status BringBatch(const Batch& batch, PulledNames& total) {
    PullSubject subject;
    subject.job_id = row_.job_id;
    subject.path = home_.from();
    subject.have = to_;
    subject.snapshots = true;
    subject.follow = batch.front()->behind();
    NamedPull pull(home_);
    for (const Artifact* artifact : batch) {
      ASSIGN_OR_RETURN(const std::string path, PathBelow(home_.from(), *artifact));
      pull.Add(path, artifact->modified_ms());
      subject.files.push_back(path);
    }
    subject.choose = [&](const Manifest& manifest) { return pull.Choose(manifest); };
    // A batch that is split tries its files again anyway.
    ASSIGN_OR_RETURN(const Pulled pulled,
                     batch.size() > 1 ? Pull(context_, links_, subject, to_, style_)
                                      : PullSteadily(context_, links_, subject, to_, style_));
    if (pull.brings_any()) RETURN_IF_ERROR(MergePulled(*pulled.tree, to_));
    RETURN_IF_ERROR(pull.Record(record_, context_.NowMs()));
    pull.Remark(pulled.notes, total);
    pull.There(total.there);
    total.bytes += pulled.received.bytes;
    total.files += pulled.received.files;
    return absl::OkStatus();
  }

  CommandContext& context_;
  LinkFactory& links_;
  const RunRow& row_;
  const HomeFiles& home_;
  const std::string& to_;
  const TransferStyle& style_;
  PulledRecord record_;
  int failed_ = 0;  // files
};

}  // namespace

absl::StatusOr<PulledNames> PullFiles(CommandContext& context, LinkFactory& links,
                                      const RunRow& row, const std::vector<Artifact>& artifacts,
                                      const std::string& to, const TransferStyle& style) {
  RETURN_IF_ERROR(MakeDirectories(to, 0777));
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const HomeFiles home,
                   HomeFiles::Open(context, row, DirectoryOf(artifacts), to, style.overwrite));
  FilePuller puller(context, links, row, home, to, style,
                    PulledRecord(paths.MirrorDir(row.run_id)));
  PulledNames total;
  RETURN_IF_ERROR(puller.Bring(artifacts, total));
  // When nothing else came, the failure is all that there is to tell.
  if (total.sizes.empty() && total.there.empty()) RETURN_IF_ERROR(total.why_changed);
  return total;
}

absl::Status RecordPulledFiles(CommandContext& context, const RunRow& row, const Manifest& manifest,
                               const std::string& to) {
  ASSIGN_OR_RETURN(const ClientPaths paths, context.Paths());
  ASSIGN_OR_RETURN(const std::string home, AbsolutePath(to));
  PulledItem item = DescribePulled(home, manifest, /*is_file=*/false);
  item.from = kWork;
  item.time_ms = context.NowMs();
  return PulledRecord(paths.MirrorDir(row.run_id)).Append(item);
}

}  // namespace gpuctl

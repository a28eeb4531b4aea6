// A push into a job's live work directory. It is a three-way merge, so that the job's changes are
// kept.
#ifndef GPUCTL_AGENT_TREES_WORK_MERGE_H_
#define GPUCTL_AGENT_TREES_WORK_MERGE_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/trees/work_base.h"
#include "common/base/unique_fd.h"
#include "common/files/dir_walk.h"
#include "common/job/job_layout.h"
#include "common/tree/hash_cache.h"
#include "common/tree/manifest.h"
#include "common/tree/tree_builder.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// A merge. Each job has one at a time.
class WorkMerge {
 public:
  // Plans the merge of `theirs` into the job's work directory, below `into` ("": all of it). It
  // compares `theirs` with the last push and with the present files. Paths of `theirs` are relative
  // to `into`. With `overwrite` it compares nothing and removes nothing, but keeps
  // what MayOverwrite says. FAILED_PRECONDITION while
  // another merge runs; NOT_FOUND when the job has no work directory.
  static absl::StatusOr<std::unique_ptr<WorkMerge>> Plan(const JobPaths& job,
                                                         const std::string& into, Manifest theirs,
                                                         bool overwrite);

  // Returns the builder for the content to write.
  TreeBuilder& builder() { return *builder_; }

  // Returns the paths that Apply would remove, because the laptop has them no more; a directory's
  // ends in '/'.
  const std::vector<std::string>& taken() const { return taken_; }
  // Keeps what taken()[index] names. It stays part of the base, as if it had been pushed again.
  void Spare(size_t index);

  // Moves the finished builder's files into place, each by rename, and removes files that were
  // removed on the laptop and not changed here. It also keeps the job's changes since Plan. If it
  // is interrupted, by an error or the process's death, the next Plan knows which files came from
  // here.
  absl::StatusOr<gpuctl::v1::MergeReport> Apply();

  // Returns descriptors of large files that Apply replaced. The kernel takes long to free their
  // room after they are closed, so close them when nobody waits any more.
  std::vector<UniqueFd> TakeReplaced() { return std::move(replaced_files_); }

 private:
  // A file of the work directory to be replaced, as it was at the decision.
  struct Seen {
    FileIdentity identity;
    std::string part_hashes;
  };

  WorkMerge(const JobPaths& job, bool overwrite)
      : job_(job), overwrite_(overwrite), work_base_(job) {}
  absl::Status Decide(const Manifest& theirs);
  void NoteTaken(const gpuctl::v1::FileEntry& entry);
  absl::StatusOr<bool> MayWrite(DirWalk& live, const gpuctl::v1::FileEntry& entry,
                                const std::optional<gpuctl::v1::FileEntry>& base);
  absl::Status TakeFromLive();
  absl::StatusOr<gpuctl::v1::MergeReport> ApplyFresh();
  absl::StatusOr<bool> Place(DirWalk& staged, DirWalk& live, const gpuctl::v1::FileEntry& entry);
  absl::Status RemoveTaken();
  void NoteTouched(absl::string_view path);
  absl::Status SyncTouched();
  absl::Status PlaceLate();
  bool IsAsSeen(const std::string& path, const struct stat& info) const;
  bool IsKnown(DirWalk& live, const gpuctl::v1::FileEntry& base);
  void NotePlaced();
  void NoteRenamed(DirWalk& live, const std::string& path);
  void SaveKnown();
  void NoteKept(const std::string& path, bool in_base);
  PathTest IsKept() const {
    return [this](const std::string& path) {
      return kept_.count(path) > 0 || spared_.count(path) > 0;
    };
  }

  const JobPaths job_;
  const bool overwrite_;
  const WorkBase work_base_;
  bool saves_base_ = false;
  UniqueFd lock_;
  std::string fresh_into_;  // the directory merged into, below work/, when it does not exist yet
  UniqueFd live_fd_;        // otherwise: that directory
  Manifest base_;           // the last push, relative to live_fd_
  // Hashes of large files of the work directory. If their times have not changed since an earlier
  // push, they need not be read.
  std::unique_ptr<HashCache> known_;
  std::map<std::string, FileIdentity> still_known_;
  std::map<std::string, FileIdentity> placed_;
  std::vector<bool> wanted_;
  std::unique_ptr<TreeBuilder> builder_;
  std::map<std::string, Seen> seen_;
  std::string absent_;                // "path/" of a directory that is not there
  std::string replaced_;              // "path/" of a file that a directory will replace
  std::set<std::string> late_;        // files that replace directories when these are empty
  std::set<std::string> touched_;     // directories in which something was renamed or removed
  std::map<std::string, bool> kept_;  // paths; true when the base knows them
  std::vector<std::string> taken_;
  std::set<std::string> spared_;
  std::vector<UniqueFd> replaced_files_;
  gpuctl::v1::MergeReport report_;
};

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_WORK_MERGE_H_

// Downloads files of a job to the laptop.
#ifndef GPUCTL_CLIENT_RESULTS_PULL_FILES_H_
#define GPUCTL_CLIENT_RESULTS_PULL_FILES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "client/runs/context.h"
#include "client/runs/run_store.h"
#include "client/transfer/tree_transfer.h"
#include "common/transfer/transfer.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// The directory of the job's, and below the destination at home, for files that the job wrote into
// $GPUCTL_CHECKPOINT_DIR and that belong to no checkpoint.
inline constexpr char kBesideCheckpoints[] = "ckpt";

// Returns `path`, which exists, without symlinks and relative components.
absl::StatusOr<std::string> AbsolutePath(const std::string& path);

// Makes the directory for results when the user names none. It gets a .gpuctlignore, so that the
// next launch does not send the results back. An existing directory belongs to the user and stays
// as it is.
absl::Status MakeOwnDestination(const std::string& to);
// Gives a directory of results that .gpuctlignore.
absl::Status KeepAtHome(const std::string& directory);

// Downloads a checkpoint into `to`/<its name>, and verifies it: the trainer's against its own
// manifest, those of scripts against the hashes of the node's files at the time of the request. It
// appears complete, by rename, and is recorded for `row`. Returns true when it was downloaded,
// false when a verified one was there already. DATA_LOSS when content does not match; existing
// files then stay as they are. ABORTED when the node's files differ from those that `checkpoint`
// names, because somebody writes there again. FAILED_PRECONDITION when something else is in its
// place, such as another run's checkpoint: a checkpoint replaces only its own older, unchanged
// content.
absl::StatusOr<bool> PullCheckpoint(CommandContext& context, LinkFactory& links, const RunRow& row,
                                    const gpuctl::v1::CheckpointInfo& checkpoint,
                                    const std::string& to, const TransferStyle& style);

// Pulls, and tries again once when a file changed meanwhile; received parts stay.
absl::StatusOr<Pulled> PullSteadily(CommandContext& context, LinkFactory& links,
                                    const PullSubject& subject, const std::string& parent,
                                    const TransferStyle& style);

// Publishes a pulled file or directory as the new `target`.
absl::Status PublishNew(const Pulled& pulled, const std::string& target);

// Records files of the work directory that were downloaded to the same paths below `to`.
absl::Status RecordPulledFiles(CommandContext& context, const RunRow& row, const Manifest& manifest,
                               const std::string& to);

// Records a checkpoint that was downloaded to `target` in another way, by its content there.
absl::Status RecordPulled(CommandContext& context, const RunRow& row,
                          const gpuctl::v1::CheckpointInfo& checkpoint, const std::string& target);

// The result of PullFiles: what was received, and names below the files' directory.
struct PulledNames : TransferCount {
  std::set<std::string> there;           // had come home before, or had the same content
  std::set<std::string> gone;            // the node did not have them any more
  std::map<std::string, int64_t> sizes;  // of the files that are here now, in bytes
  std::set<std::string> grown;    // the job appended meanwhile, so that their beginnings came
  std::set<std::string> changed;  // changed in another way meanwhile, so they did not come
  absl::Status why_changed;       // the error that showed it, if one did
  std::set<std::string> set_id;   // came without their setuid or setgid
};

// Downloads the files that `artifacts` names to the same paths below `to`. All are in the work
// directory, or all beside the checkpoints in ckpt/.
// Each replaces an older copy by rename. A file that is home and unchanged on both sides, by the
// node's list and the record, is not asked for and not written. FAILED_PRECONDITION, before
// anything is received, when something that pull did not bring has other content in a file's place;
// style.overwrite replaces such files, but never what is no file.
absl::StatusOr<PulledNames> PullFiles(CommandContext& context, LinkFactory& links,
                                      const RunRow& row,
                                      const std::vector<gpuctl::v1::Artifact>& artifacts,
                                      const std::string& to, const TransferStyle& style);

// FAILED_PRECONDITION when pull did not bring what is in a file's place, whatever its content; for
// downloads that do not know the content before.
absl::Status CheckMayPull(CommandContext& context, const RunRow& row,
                          const std::vector<gpuctl::v1::Artifact>& artifacts, const std::string& to,
                          bool overwrite);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RESULTS_PULL_FILES_H_

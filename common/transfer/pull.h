// The receiving end of a pull: it brings files of a job home from `gpuctl-agent send` on the node.
//
//   first stream:    PullBegin ->   <- manifest
//                    FindParts ->   <- Anchors         if large files have older versions at home
//                    Want… ->       <- FileData…       Done ->   <- Done
//   further streams: PullBegin {joins}, then the same without the manifest
//
// Either side may send a Done with an error instead of what it would send next.
#ifndef GPUCTL_COMMON_TRANSFER_PULL_H_
#define GPUCTL_COMMON_TRANSFER_PULL_H_

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/transfer/transfer.h"
#include "common/tree/tree_builder.h"

namespace gpuctl {

struct PullSubject {
  std::string job_id;
  std::string path;                // a file or directory relative to the job directory
  std::vector<std::string> files;  // only these below the directory; empty: all
  // See PullBegin; as the node listed it.
  std::string follow;
  // A directory at home that may have some of the content already, at the same paths; "" for none.
  std::string have;
  // Decides what comes home, with the node's manifest and before anything is written: returns a
  // flag for each entry, or nothing for all of them. An error ends the pull. May be empty.
  std::function<absl::StatusOr<std::vector<bool>>(const Manifest&)> choose;
  // Takes the beginning of a file that grows, and leaves out one of `files` that changes in another
  // way; Pulled::notes names them. False: such a file is an error.
  bool snapshots = false;
};

struct Pulled {
  std::unique_ptr<TreeBuilder> tree;  // finished: verified and synced
  TransferCount received;
  bool is_file = false;         // the subject is one file; the tree holds only it, under its name
  gpuctl::v1::PullNotes notes;  // names of files that did not come as they are
};

// Brings the subject into a staging directory in `parent`, from where the caller publishes it by
// rename. Content that an earlier try left there, or that `have` has, is read and checked, not sent
// again. After an error the received content stays for the next try. ABORTED when a file changed
// meanwhile. Files get the node's modification times. INVALID_ARGUMENT when the node names what the
// subject does not: another file, or something that is no file. IsDiskFull before anything is
// received when the disk has no room.
absl::StatusOr<Pulled> PullTree(const TransferStream& stream, const PullSubject& subject,
                                const std::string& parent, Clock& clock,
                                const TransferOptions& options);

// FAILED_PRECONDITION unless `entry` may take the place of what is at home, which lstat gave as
// `present`: a file that of a file, a symlink that of a file or symlink, a directory that of one.
absl::Status CheckReplaceable(const struct stat& present, const gpuctl::v1::FileEntry& entry);

// Publishes a pulled directory as the new directory `to`. ALREADY_EXISTS when `to` exists.
absl::Status PublishPulled(TreeBuilder& tree, const std::string& to);
// Moves everything that was chosen into the directory `to`, which may have some of it, file by file
// with rename. FAILED_PRECONDITION when something else than a file is in the place of a file, such
// as a directory, a device or a symlink, or something else than a directory in that of one.
absl::Status MergePulled(TreeBuilder& tree, const std::string& to);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_PULL_H_

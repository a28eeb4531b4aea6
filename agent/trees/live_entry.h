// The present entries of a job's work directory, as manifest entries.
#ifndef GPUCTL_AGENT_TREES_LIVE_ENTRY_H_
#define GPUCTL_AGENT_TREES_LIVE_ENTRY_H_

#include <sys/stat.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

// True when both have the same kind and content; modes may differ.
bool SameContent(const gpuctl::v1::FileEntry& a, const gpuctl::v1::FileEntry& b);

// Returns the stat of `name`; nothing when it does not exist. Does not follow symlinks.
std::optional<struct stat> StatAt(int dir, const std::string& name);

// Returns an entry without a path for `name`, whose stat is `info`. Reads a file; `hashes` gets the
// hashes of its parts. Anything but a file, directory or symlink gives an entry without a kind, and
// so does a file that changed in another way than by growing while it was read.
absl::StatusOr<gpuctl::v1::FileEntry> LookAt(int dir, const std::string& name,
                                             const struct stat& info, std::string& hashes);

// True when a push that overwrites may put `entry`, which is no directory, in the place of what has
// this stat: a file, or a symlink for another symlink. Devices, FIFOs and directories stay.
bool MayOverwrite(const struct stat& info, const gpuctl::v1::FileEntry& entry);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_LIVE_ENTRY_H_

// What lies at a place of a job's work directory now, as an entry of a manifest.
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

// Whether both are of the same kind and hold the same; modes aside.
bool SameContent(const gpuctl::v1::FileEntry& a, const gpuctl::v1::FileEntry& b);

// Nothing when there is nothing to be seen; symlinks are not followed.
std::optional<struct stat> StatAt(int dir, const std::string& name);

// What is at `name`, of which `info` is known, as an entry without a path; a file is read. `hashes`
// gets those of its parts. What is none of file, directory and symlink is an entry without a kind.
absl::StatusOr<gpuctl::v1::FileEntry> LookAt(int dir, const std::string& name,
                                             const struct stat& info, std::string& hashes);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_TREES_LIVE_ENTRY_H_

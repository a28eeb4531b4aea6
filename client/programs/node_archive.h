// The release archives of the programs for nodes: tar files of one platform.
#ifndef GPUCTL_CLIENT_PROGRAMS_NODE_ARCHIVE_H_
#define GPUCTL_CLIENT_PROGRAMS_NODE_ARCHIVE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/programs/node_platform.h"

namespace gpuctl {

struct ArchiveFile {
  std::string content;
  int64_t modified_s = 0;  // Unix seconds
};

// Returns the files of a tar archive that belong to the programs for `platform`, by name: the
// programs and roots.pem, at its top or below folders named like the platform, "node" or the
// archive itself. Whatever else is in it is neither read nor written: no path of the archive is
// ever used as a path. DATA_LOSS when it is no tar archive or a cut one, when a name of these is no
// plain file or is there twice, and when agent or shim is missing or for another platform.
absl::StatusOr<std::map<std::string, ArchiveFile>> ReadNodeArchive(absl::string_view tar,
                                                                   NodePlatform platform);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_PROGRAMS_NODE_ARCHIVE_H_

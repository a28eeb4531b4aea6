// The work directory that goes with a run.
#ifndef GPUCTL_CLIENT_WORKDIR_H_
#define GPUCTL_CLIENT_WORKDIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/command.h"
#include "gpuctl/v1/transfer.pb.h"

namespace gpuctl {

constexpr int64_t kMaxUnaskedFiles = 10'000;
constexpr int64_t kMaxUnaskedBytes = 1'000'000'000;

struct Workdir {
  std::string path;  // absolute
  gpuctl::v1::Manifest manifest;
  std::string digest;
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<std::string> skipped;  // sockets, devices and the like
};

// Scans everything but .git. Unchanged files are not read again. FAILED_PRECONDITION, with the
// largest files named, for more than the limits above unless `allow_large`.
absl::StatusOr<Workdir> ScanWorkdir(CommandContext& context, const std::string& path,
                                    bool allow_large);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_WORKDIR_H_

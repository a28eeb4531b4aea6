// The arguments of a run's launch, as the list of runs stores them, so that it can be launched
// again.
#ifndef GPUCTL_CLIENT_SPEC_LAUNCH_RECORD_H_
#define GPUCTL_CLIENT_SPEC_LAUNCH_RECORD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/spec/run_spec.h"

namespace gpuctl {

struct LaunchRecord {
  RunSpec spec;  // workdir and the sources of data are absolute
  std::vector<std::string> include;
  std::vector<std::string> leave_out;  // rows of text below workdir, whose tokens are sent
  bool no_workdir = false;
  // The directory, absolute, in whose ./NAME gpuctl keep brings the results home; empty: nobody
  // asked for it.
  std::string pull_dir;
  std::string like;  // id of the run whose launch it does again, with changes; empty: none
};

// Returns one JSON object. It holds no values of secrets, because a spec has none.
std::string FormatLaunchRecord(const LaunchRecord& record);
// Parses that object. INVALID_ARGUMENT for anything else.
absl::StatusOr<LaunchRecord> ParseLaunchRecord(absl::string_view json);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_SPEC_LAUNCH_RECORD_H_

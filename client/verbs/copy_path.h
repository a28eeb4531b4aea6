// The two arguments SRC and DST of `gpuctl cp`.
#ifndef GPUCTL_CLIENT_VERBS_COPY_PATH_H_
#define GPUCTL_CLIENT_VERBS_COPY_PATH_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// SRC or DST as typed: "RUN:PATH" in a run's work directory, or a path on the laptop.
struct CopyPath {
  std::string run;   // "" on the laptop
  std::string path;  // of a run: relative to its work directory, normalized, "" for all of it
  bool is_directory = false;  // ends in a slash, or is "." or empty: copies go into it
};

// Parses SRC or DST. As in scp, a colon before the first slash separates a run's name; ./a:b is a
// file. Returns a usage error for a path that leads out of the work directory.
absl::StatusOr<CopyPath> ParseCopyPath(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_COPY_PATH_H_

// Which files of the work directories of two runs differ, as far as their records tell. Pure.
#ifndef GPUCTL_CLIENT_VERBS_CHANGED_FILES_H_
#define GPUCTL_CLIENT_VERBS_CHANGED_FILES_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/runs/source_record.h"

namespace gpuctl {

// Returns the parts of a kept diff by their file, with its path below the repository's root. A path
// that git puts in quotes keeps them.
std::map<std::string, std::string> PartsOfDiff(absl::string_view diff);

// What is kept of a run's work directory.
struct KeptSource {
  const SourceRecord& source;
  const std::string& diff;
};

struct ChangedFiles {
  std::vector<std::string> files;  // sorted
  std::string why_not_all;         // why there may be others; "" when these are all
};

// Compares two work directories that got different contents.
ChangedFiles FilesThatDiffer(const KeptSource& first, const KeptSource& second);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_VERBS_CHANGED_FILES_H_

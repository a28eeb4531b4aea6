// What git says of the work directory at a launch, as the list of runs stores it. Pure.
#ifndef GPUCTL_CLIENT_RUNS_SOURCE_RECORD_H_
#define GPUCTL_CLIENT_RUNS_SOURCE_RECORD_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gpuctl {

// The commit of a work directory, and how far the directory differed from it.
struct SourceRecord {
  // Why nothing else is known: "not in a git repository", "git is not installed"; "" when it is.
  std::string unknown;
  std::string commit;      // its full name; "" before the first commit
  std::string branch;      // "" when none is checked out
  int64_t changed = 0;     // files that differ, of all below the work directory; new ones count
  int64_t diff_bytes = 0;  // of the stored diff
  bool diff_cut = false;   // it would be longer, and ends within a change
  // Changed files that are not in the diff: they stay on this laptop, or look like secrets. At most
  // 100 are named.
  std::vector<std::string> left_out;
  int64_t left_out_count = 0;
  std::string diff_missing;  // why there is no diff, though something changed; "" otherwise

  bool clean() const { return unknown.empty() && changed == 0; }
};

// Returns one JSON object.
std::string FormatSourceRecord(const SourceRecord& record);
// Parses that object. What cannot be read, and "", becomes a record that says that it is unknown.
SourceRecord ParseSourceRecord(absl::string_view json);

// Returns "1a2b3c4d5e6f on main, clean", "1a2b3c4d5e6f on main, 3 files changed".
std::string DescribeSource(const SourceRecord& record);
// Returns the JSON of docs/json.md.
nlohmann::ordered_json SourceToJson(const SourceRecord& record);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RUNS_SOURCE_RECORD_H_

// The parameters of a batch's runs: from --sweep, from a CSV file, or both. Pure.
#ifndef GPUCTL_CLIENT_BATCH_PARAMETERS_H_
#define GPUCTL_CLIENT_BATCH_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

// Most runs of one batch.
inline constexpr int kMostEntries = 10'000;

// Name and value of each parameter of one run, in the user's order.
using Parameters = std::vector<std::pair<std::string, std::string>>;

// A parameter of a grid with all its values.
struct ParameterAxis {
  std::string name;
  std::vector<std::string> values;
};

// Reads "lr=1e-4,2e-4". A value "0..5" stands for 0,1,2,3,4,5. INVALID_ARGUMENT for "0-5" alone or
// beside whole numbers, which other tools take for a range, and for "log(1e-5,1e-3)", which is a
// distribution there. INVALID_ARGUMENT also without a name,
// without values, for a value that is empty or there twice, and for a name that is no word of
// letters, digits, '_', '-' and '.'.
absl::StatusOr<ParameterAxis> ParseAxis(absl::string_view text);

// Reads CSV as RFC 4180 has it: names in the first line, then one run a line; quotes, CRLF and a
// byte order mark are allowed, empty lines are skipped. INVALID_ARGUMENT names the line.
absl::StatusOr<std::vector<Parameters>> ParseParameterCsv(absl::string_view text);

// How many of a grid's points are drawn, without repetition; 0: all of them, in order.
struct Sampling {
  int64_t count = 0;
  uint64_t seed = 0;
};

// Returns each of `rows` (none: one row without parameters) with each point of the grid of `axes`;
// the last axis changes first. The same seed draws the same points on every computer, in an order
// of their own. INVALID_ARGUMENT for a name that is there twice, for more than kMostEntries, and
// for more draws than there are points.
absl::StatusOr<std::vector<Parameters>> ExpandGrid(const std::vector<Parameters>& rows,
                                                   const std::vector<ParameterAxis>& axes,
                                                   const Sampling& sampling);

// Returns the environment variable of a parameter: "optimizer.lr" is OPTIMIZER_LR.
std::string VariableOf(absl::string_view parameter);

// Accepts names whose variables differ, and that take the place of no variable that programs need
// (PATH, HOME, GPUCTL_…). INVALID_ARGUMENT names the parameter.
absl::Status CheckParameterNames(const Parameters& parameters);

// Returns "lr=1e-4 rank=8".
std::string DescribeParameters(const Parameters& parameters);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BATCH_PARAMETERS_H_

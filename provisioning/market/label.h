// The name of a rented instance: "gpuctl-<owner>-<lease>". It shows that an instance is ours when
// the answer to its create was lost.
#ifndef GPUCTL_PROVISIONING_MARKET_LABEL_H_
#define GPUCTL_PROVISIONING_MARKET_LABEL_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace gpuctl {

struct LeaseLabel {
  std::string owner;  // one state directory of gpuctl; 8 hex digits
  std::string lease;  // 12 hex digits
};

// Returns a name that all providers accept: at most 40 characters of [a-z0-9-].
std::string FormatLabel(const LeaseLabel& label);

// Returns the parts of one of our labels; absent for any other text.
std::optional<LeaseLabel> ParseLabel(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_LABEL_H_

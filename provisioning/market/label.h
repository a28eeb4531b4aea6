// The name under which something is rented: "gpuctl-<owner>-<lease>". It is how an instance is
// known as ours when the answer to its creation was lost.
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

// At most 40 characters of [a-z0-9-]: what all providers take as a name.
std::string FormatLabel(const LeaseLabel& label);

// Absent for labels of anybody else.
std::optional<LeaseLabel> ParseLabel(absl::string_view text);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_LABEL_H_

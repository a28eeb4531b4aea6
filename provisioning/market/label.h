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

// Instances that are rented together, under one name, are leases whose ids differ in their last
// digits. The name is the label of the first.
inline constexpr int kMostTasks = 4096;
// Returns the lease id of number `task`, from 0 on, among those whose first lease, or any other, is
// `lease`; and the label of it.
std::string TaskLease(absl::string_view lease, int task);
LeaseLabel TaskLabel(const LeaseLabel& label, int task);

}  // namespace gpuctl

#endif  // GPUCTL_PROVISIONING_MARKET_LABEL_H_

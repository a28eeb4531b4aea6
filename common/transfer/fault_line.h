// The line with which a bridge that finds no server tells the kind of the failure. It goes to
// stdout in place of the bridge's magic line; text for people goes to stderr.
#ifndef GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_
#define GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns "
// GPUCTL-FAULT 1 <hex>
// ". A reader that does not know the line takes it for output of the shell.
std::string FormatFaultLine(const gpuctl::v1::ErrorDetail& detail);

// Returns the detail in the last such line of `output`; empty when no line can be read. `output`
// may hold anything, because it comes from the other machine.
gpuctl::v1::ErrorDetail FindFaultLine(absl::string_view output);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_

// The line by which a bridge that finds no server says what kind of failure that is. It goes to
// stdout in the place of the bridge's magic line; what a person should read goes to stderr.
#ifndef GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_
#define GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns "\nGPUCTL-FAULT 1 <hex>\n". A reader that does not know the line takes it for something
// that the shell printed.
std::string FormatFaultLine(const gpuctl::v1::ErrorDetail& detail);

// Returns what the last such line in `output` says; empty when there is none, or none that can be
// read. `output` may hold anything: it comes from the other machine.
gpuctl::v1::ErrorDetail FindFaultLine(absl::string_view output);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_FAULT_LINE_H_

// A question to the person at the terminal.
#ifndef GPUCTL_CLIENT_RENTED_H_
#define GPUCTL_CLIENT_RENTED_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/command.h"

namespace gpuctl {

// Asks on the terminal; INVALID_ARGUMENT (usage) with `nobody` where there is nobody to ask.
absl::StatusOr<bool> AskYesNo(const CommandContext& context, const std::string& question,
                              const std::string& nobody);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENTED_H_

// A port of a run's machine, and the port here that leads to it.
#ifndef GPUCTL_CLIENT_BASE_PORT_PAIR_H_
#define GPUCTL_CLIENT_BASE_PORT_PAIR_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gpuctl {

struct PortPair {
  int port = 0;   // there
  int local = 0;  // here; 0: the same number, or a free one near it
};

// Reads "6006" or "6006:8080", the port there first. INVALID_ARGUMENT for anything else.
absl::StatusOr<PortPair> ParsePortPair(absl::string_view text);

// Reads several. INVALID_ARGUMENT also when two have the same port here.
absl::StatusOr<std::vector<PortPair>> ParsePortPairs(const std::vector<std::string>& texts);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_BASE_PORT_PAIR_H_

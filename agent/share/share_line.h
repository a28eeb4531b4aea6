// The lines of agent/share/share.h.
#ifndef GPUCTL_AGENT_SHARE_SHARE_LINE_H_
#define GPUCTL_AGENT_SHARE_SHARE_LINE_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuctl {

inline constexpr size_t kMostShareLine = 64 << 10;

// Reads up to the end of the line, and nothing behind it. UNAVAILABLE when it ends before that.
absl::StatusOr<std::string> ReadShareLine(int fd);
absl::Status WriteShareLine(int fd, const nlohmann::json& line);

// What both are told. INVALID_ARGUMENT for anything else.
struct ShareOrder {
  std::string key;
  std::vector<std::string> addresses;
  int port = 0;
  std::vector<std::string> trees;
};
absl::StatusOr<ShareOrder> ParseShareOrder(const std::string& line, bool fetches);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SHARE_SHARE_LINE_H_

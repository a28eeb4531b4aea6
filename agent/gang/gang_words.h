// What the members of a gang tell each other.
#ifndef GPUCTL_AGENT_GANG_GANG_WORDS_H_
#define GPUCTL_AGENT_GANG_GANG_WORDS_H_

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/lifecycle.h"
#include "gpuctl/v1/run.pb.h"

namespace gpuctl {

struct GangTimes {
  absl::Duration join = absl::Seconds(60);     // in which all must come
  absl::Duration beat = absl::Seconds(2);      // between signs of life
  absl::Duration silence = absl::Seconds(10);  // after which a member is lost
  absl::Duration stranger = absl::Seconds(5);  // to prove the key
  absl::Duration settle = absl::Seconds(1);    // for slower addresses, once one was reached
};

// All may begin.
struct GangGo {
  std::string address;  // MASTER_ADDR
  int port = 0;
  int64_t resume_step = -1;
};

// How a member's attempt ended.
struct GangEnd {
  int code = 0;
  std::string reason;  // of the lifecycle's last line
  bool lost = false;
  bool retry = false;  // the member's own policy wants another attempt
  int64_t delay_ms = 0;
};

// How the attempts of all ended.
struct GangOutcome {
  int rank = -1;  // of the member whose end was the first that was no success; -1: there was none
  int code = 0;
  std::string reason;  // that the other members record
  bool retry = false;
  int64_t delay_ms = 0;  // until the next attempts
};

// What others say is believed only so far: the pause before another attempt, and exit codes.
inline constexpr int64_t kLongestGangPauseMs = 24 * 60 * 60 * 1000;
inline int64_t BoundedPauseMs(int64_t delay_ms) {
  return std::clamp<int64_t>(delay_ms, 0, kLongestGangPauseMs);
}
inline bool IsExitCode(const nlohmann::json& code) {
  if (!code.is_number_integer()) return false;
  const int64_t value = code.get<int64_t>();
  return value >= 0 && value <= 255;
}

inline std::string GangNodeName(const gpuctl::v1::Gang& gang, int rank) {
  const std::string node = absl::StrCat("node ", rank);
  return rank < gang.names_size() ? absl::StrCat(node, " (", gang.names(rank), ")") : node;
}

// Returns what the others record when this was the first end that was no success. Stops by the user
// or by a limit are theirs, too.
inline std::string ReasonForOthers(const gpuctl::v1::Gang& gang, int rank, const GangEnd& end) {
  const std::string node = absl::StrCat(kGangPrefix, GangNodeName(gang, rank));
  if (end.lost) return absl::StrCat(node, " lost its job");
  if (end.reason.empty()) return absl::StrCat(node, " ended with exit code ", end.code);
  if (end.reason == kShutdownReason) return absl::StrCat(node, " was shut down");
  if (absl::StartsWith(end.reason, kGangPrefix)) {
    return absl::StrCat(node, ": ", end.reason.substr(sizeof(kGangPrefix) - 1));
  }
  return end.reason;
}

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_GANG_GANG_WORDS_H_

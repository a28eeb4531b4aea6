// The keys with which the machines of one run join it.
#ifndef GPUCTL_COMMON_JOB_GANG_KEY_H_
#define GPUCTL_COMMON_JOB_GANG_KEY_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/files/sha256.h"

namespace gpuctl {

// Returns the key of the member with rank `rank`, 32 bytes: HMAC-SHA256 of the rank with the run's
// own key, which only rank 0 has. So no member can join in another's place.
inline std::string GangKeyOfRank(absl::string_view run_key, int rank) {
  return rank == 0 ? std::string(run_key) : HmacSha256(run_key, absl::StrCat("rank|", rank));
}

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_JOB_GANG_KEY_H_

// Kinds of failure between this machine and another one. They are what code decides by; a status's
// message is for people.
#ifndef GPUCTL_COMMON_BASE_LINK_FAULT_H_
#define GPUCTL_COMMON_BASE_LINK_FAULT_H_

#include "absl/status/status.h"

namespace gpuctl {

enum class LinkFault {
  kNone,            // nothing that anybody decides by
  kAgentTooOld,     // the agent there knows less than this program relies on
  kServerStuck,     // an older server hangs there and makes no way for a newer one
  kAgentCannotRun,  // ssh works, but the agent can be neither delivered nor run there
  kNoRoomForAgent,  // the same, because the disk there is full
  kHostKeyChanged,  // the node shows another host key than the one that is pinned
  kPeerDiskFull,    // a disk of the other machine is full; for one of this machine see IsDiskFull
  kPreempted,       // the market took the machine away
};

// Returns `status` with `fault` as its payload. OK stays OK.
absl::Status WithFault(absl::Status status, LinkFault fault);
// Returns kNone for a status without one, whatever its message says.
LinkFault FaultOf(const absl::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_LINK_FAULT_H_

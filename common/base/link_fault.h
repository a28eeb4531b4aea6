// Kinds of failure between this machine and another one. Code decides by them; a status's message
// is for people.
#ifndef GPUCTL_COMMON_BASE_LINK_FAULT_H_
#define GPUCTL_COMMON_BASE_LINK_FAULT_H_

#include "absl/status/status.h"

namespace gpuctl {

enum class LinkFault {
  kNone,            // no kind that code decides by
  kAgentTooOld,     // the agent there lacks something that this program needs
  kServerStuck,     // an older server hangs there and does not give way to a newer one
  kAgentCannotRun,  // ssh works, but the agent cannot be delivered or run there
  kNoRoomForAgent,  // the same, because the disk there is full
  kHostKeyChanged,  // the node's host key is not the pinned one
  kPeerDiskFull,    // a disk of the other machine is full; see IsDiskFull for this machine
  kPreempted,       // the market took the machine away
  kReleased,        // gpuctl gave the machine back
  kForeignHostKey,  // a rented machine's host key is not the one that it got from us
  kFileChanged,     // a file of this machine was not what its hash said when it was sent
  kNotHeld,         // the holder of an allocation has not begun there, or is over
  kNothingKept,     // an allocation is over, and nothing of it was kept that can be read
  kSuspended,       // an allocation was suspended, and nothing there answers until it is resumed
};

// Returns `status` with `fault` as its payload. OK stays OK.
absl::Status WithFault(absl::Status status, LinkFault fault);
// Returns kNone for a status without one, whatever its message says.
LinkFault FaultOf(const absl::Status& status);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_BASE_LINK_FAULT_H_

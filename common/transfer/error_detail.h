// What kind of failure it is, told from one machine to the other beside a message for people.
#ifndef GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_
#define GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_

#include "absl/status/status.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns `status` with `detail` as its payload: for the one who gets it as the answer to a call.
absl::Status WithDetail(absl::Status status, const gpuctl::v1::ErrorDetail& detail);
// Returns an empty one for a status without it.
gpuctl::v1::ErrorDetail DetailOf(const absl::Status& status);

// Returns what this machine tells the other one about `status`: its detail, and KIND_DISK_FULL for
// a full disk. Empty when there is nothing to tell.
gpuctl::v1::ErrorDetail DetailToSend(const absl::Status& status);
// Returns `status` as an error of the other machine, which sent `detail` with it: with the detail
// and the fault that it means.
absl::Status FromPeer(absl::Status status, const gpuctl::v1::ErrorDetail& detail);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_

// The kind of a failure, sent from one machine to the other beside a message for people.
#ifndef GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_
#define GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_

#include <string>

#include "absl/status/status.h"
#include "gpuctl/v1/agent.pb.h"

namespace gpuctl {

// Returns `status` with `detail` as its payload, to be the answer to a call.
absl::Status WithDetail(absl::Status status, const gpuctl::v1::ErrorDetail& detail);
// Returns the status of a failed call for the client, with an ErrorDetail as payload.
absl::Status DetailedError(absl::StatusCode code, const std::string& message,
                           gpuctl::v1::ErrorDetail::Kind kind, const std::string& node_id);
// Returns the detail of `status`; empty for a status without one.
gpuctl::v1::ErrorDetail DetailOf(const absl::Status& status);

// Returns the detail to send to the other machine with `status`: its own, or KIND_DISK_FULL for a
// full disk. Empty when there is nothing to tell.
gpuctl::v1::ErrorDetail DetailToSend(const absl::Status& status);
// Returns `status` as an error of the other machine, which sent `detail` with it: with that detail,
// and with the fault that the detail means. INTERNAL, which here means a bug of this program,
// becomes UNKNOWN.
absl::Status FromPeer(absl::Status status, const gpuctl::v1::ErrorDetail& detail);

}  // namespace gpuctl

#endif  // GPUCTL_COMMON_TRANSFER_ERROR_DETAIL_H_

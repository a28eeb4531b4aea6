// Whether a rented machine is what was promised, found out before work starts.
#ifndef GPUCTL_CLIENT_RENT_NODE_CHECK_H_
#define GPUCTL_CLIENT_RENT_NODE_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/link/link.h"
#include "common/base/clock.h"
#include "gpuctl/v1/agent.pb.h"
#include "provisioning/market/types.h"

namespace gpuctl {

struct PromisedNode {
  std::string gpu_name;  // canonical; empty: not said
  int gpu_count = 0;
  int64_t disk_bytes = 0;   // free space the run asks for
  std::string volume_path;  // where a volume is mounted; empty: none
};

struct NodeFitness {
  std::string cuda;    // "works on 8 devices", or why it is not known
  std::string volume;  // "the volume at /workspace has 40 GB free"; empty: there is none
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
};

// How the machine is reached while it is checked. `cancelled` is asked every tenth of a second; it
// may be empty.
struct CheckedNode {
  LinkFactory& links;
  Clock& clock;
  std::function<bool()> cancelled;
};

// GPU name and count as the node's driver says. ABORTED names what was promised and what is there.
absl::Status CheckHardware(const PromisedNode& promised, const gpuctl::v1::HelloReply& node);

// Hardware, then an allocation on each GPU by `cuda_check` (the program for the node; empty: not
// tried), the volume, which must be a mount of its own, then the rate of the connection in both
// directions. ABORTED when the machine is of no use: give it back, exclude it. FAILED_PRECONDITION:
// the volume cannot be written to, on whatever machine. UNAVAILABLE: the connection broke.
// CANCELLED: on.cancelled said so. A command that hangs is given up after two minutes.
// $GPUCTL_MOUNT_ROOT of the node stands for / where the volume is looked for.
absl::StatusOr<NodeFitness> CheckNode(const PromisedNode& promised,
                                      const gpuctl::v1::HelloReply& node, const CheckedNode& on,
                                      const std::string& cuda_check);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_RENT_NODE_CHECK_H_

// Checks before work starts that a rented machine is what was promised.
#ifndef GPUCTL_CLIENT_NODE_NODE_CHECK_H_
#define GPUCTL_CLIENT_NODE_NODE_CHECK_H_

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
  std::string gpu_name;  // canonical; empty: not promised
  int gpu_count = 0;
  int64_t gpu_memory_bytes = 0;  // of one GPU; 0: not promised
  int64_t disk_bytes = 0;        // free space that the run asks for
  std::string volume_path;       // where a volume is mounted; empty: none
  // False: the line to it is that of another machine, which was measured.
  bool own_line = true;
};

struct NodeFitness {
  std::string cuda;    // "works on 8 devices", or why it is not known
  std::string volume;  // "the volume at /workspace has 40 GB free"; empty: there is none
  double up_bytes_per_s = 0;
  double down_bytes_per_s = 0;
};

// The connection to the machine while it is checked. `cancelled` is called every tenth of a second;
// it may be empty.
struct CheckedNode {
  LinkFactory& links;
  Clock& clock;
  std::function<bool()> cancelled;
};

// Checks the GPU name and count that the node's driver reports, and the free disk. ABORTED names
// what was promised and what is there.
absl::Status CheckHardware(const PromisedNode& promised, const gpuctl::v1::HelloReply& node);

// Checks the hardware, then allocates on each GPU with `cuda_check` (the program for the node;
// empty: not tried), then checks the volume, which must be a mount of its own, then measures the
// rate of the connection in both directions, if that is its own. ABORTED: the machine is of no use;
// give it back and exclude it. FAILED_PRECONDITION: the volume cannot be written to, on any
// machine. UNAVAILABLE: the connection broke. CANCELLED: on.cancelled returned true. Gives up a
// command that hangs after two minutes. The node's $GPUCTL_MOUNT_ROOT replaces / when the volume is
// looked for.
absl::StatusOr<NodeFitness> CheckNode(const PromisedNode& promised,
                                      const gpuctl::v1::HelloReply& node, const CheckedNode& on,
                                      const std::string& cuda_check);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_NODE_NODE_CHECK_H_

// Which ports of this computer are free.
#ifndef GPUCTL_CLIENT_REACH_LOCAL_PORT_H_
#define GPUCTL_CLIENT_REACH_LOCAL_PORT_H_

#include <vector>

#include "absl/status/status.h"
#include "client/base/node_target.h"
#include "client/base/port_pair.h"

namespace gpuctl {

// True when a server could listen on 127.0.0.1 at the port now.
bool IsFreeLocalPort(int port);

// True when the node is this computer, or may be: then a port must not lead to itself.
bool IsThisComputer(const NodeTarget& target);

// Sets the ports here that are 0: to the same number as there or, where that is taken, to the next
// free one. FAILED_PRECONDITION when a port that the user chose is taken, or none is free.
absl::Status ChooseLocalPorts(const NodeTarget& target, std::vector<PortPair>& pairs);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_REACH_LOCAL_PORT_H_

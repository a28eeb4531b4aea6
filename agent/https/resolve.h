// Resolving a host's addresses without the system's name service.
#ifndef GPUCTL_AGENT_HTTPS_RESOLVE_H_
#define GPUCTL_AGENT_HTTPS_RESOLVE_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace gpuctl {

struct HostAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string text;  // for messages
};

// Returns all addresses of `host`, an address or a name, best first, with `port`. Uses /etc/hosts
// and the servers of /etc/resolv.conf, or only `name_server` ("address:port"). UNAVAILABLE when
// there are no addresses.
absl::StatusOr<std::vector<HostAddress>> Resolve(const std::string& host, int port,
                                                 const std::string& name_server,
                                                 absl::Duration timeout, Clock& clock);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_HTTPS_RESOLVE_H_

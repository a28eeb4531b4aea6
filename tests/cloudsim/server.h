// The HTTP server: wire faults, held requests, the log.
#ifndef GPUCTL_TESTS_CLOUDSIM_SERVER_H_
#define GPUCTL_TESTS_CLOUDSIM_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/cloudsim/world.h"

namespace gpuctl::cloudsim {

class Server {
 public:
  // Listens on 127.0.0.1 and answers until it is destroyed. The kernel chooses the port when `port`
  // is 0.
  static absl::StatusOr<std::unique_ptr<Server>> Start(World& world, int port);
  virtual ~Server() = default;
  virtual int port() const = 0;
};

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_SERVER_H_

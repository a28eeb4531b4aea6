// `gpuctl-agent server`: the gRPC server on the node's Unix socket.
#ifndef GPUCTL_AGENT_SERVER_H_
#define GPUCTL_AGENT_SERVER_H_

#include <string>

namespace gpuctl {

struct ServerOptions {
  std::string root;
  std::string bundle_dir;  // the directory of this program and gpuctl-shim
};

// Serves until SIGTERM, or until bin/current names another bundle (the guard then starts that one).
// Its end does not affect jobs. Returns the exit code: 0; 100 when another server holds the lock; 1
// after printing why.
int RunServer(const ServerOptions& options);

}  // namespace gpuctl

#endif  // GPUCTL_AGENT_SERVER_H_

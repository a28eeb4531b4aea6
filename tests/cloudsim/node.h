// A rented machine: it has its own sshd on a loopback port, home and root. Its start script runs
// with the environment that the service would give to the first process.
#ifndef GPUCTL_TESTS_CLOUDSIM_NODE_H_
#define GPUCTL_TESTS_CLOUDSIM_NODE_H_

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace gpuctl::cloudsim {

struct NodeSpec {
  std::string id;    // of the instance; with the simulator's pid it is the tag of its processes
  std::string dir;   // it is made; the whole node is below it
  std::string user;  // root, ubuntu or a name of its own: the user who may log in
  std::string host = "127.0.0.1";  // where its sshd listens
  bool port_22 = false;            // also on port 22 of that address, where the system allows it
  std::vector<std::string> authorized_keys;
  std::string host_key;  // the private part, from the user data; empty: it makes its own
  // The environment of the first process, without HOME and PATH.
  std::map<std::string, std::string> environment;
  // The script that bash runs at boot; empty: none.
  std::string script;
  // True when the script is a container's command: it runs again when it ends, and there is ssh
  // only after it starts the image's /start.sh, sshd, or `service ssh start`. Otherwise sshd runs
  // from the boot on.
  bool container_command = false;
  // True when the start script's root of the agent is the one of whoever logs in, as on real
  // machines.
  bool root_in_home = false;
  // The GPUs that nvidia-smi shows.
  std::string gpu_name;
  int gpu_count = 0;
  int64_t gpu_memory_mib = 0;
  std::string driver = "570.86.15";
  int cuda_error = 0;                         // the result of every driver call; 0: it works
  std::map<std::string, std::string> mounts;  // path in the machine -> directory of a volume
  bool mounts_missing = false;                // the paths exist as the machine's own directories
};

// A node. Used under the world's lock.
class Node {
 public:
  static absl::StatusOr<std::unique_ptr<Node>> Make(const NodeSpec& spec);
  ~Node();  // Stop()

  // Runs the start script.
  absl::Status Boot();
  // True when something in the node has asked for sshd.
  bool WantsSsh() const;
  absl::Status OpenSsh();
  bool ssh_open() const { return acceptor_.joinable(); }
  // Ends every process and closes the ports. A later boot gets new ports, as a stopped container
  // does.
  void Stop();
  // Halts every process but sshd, and lets nobody log in any more: open connections get no answer
  // but those of ssh itself.
  void Mute();
  // Allows a further key to log in, at once.
  absl::Status Authorize(const std::string& public_key);
  absl::Status SetAuthorized(const std::vector<std::string>& public_keys);
  // Starts `command` by bash in the node; its output is at `output_path` when it has ended.
  absl::Status Run(const std::string& command, const std::string& output_path);
  // Sets the GPUs that nvidia-smi shows from now on.
  absl::Status SetGpu(const std::string& name, int count, int64_t memory_mib);

  // Sets what its network interface has counted since it booted.
  absl::Status SetTraffic(int64_t sent_bytes, int64_t received_bytes);

  int port() const { return port_; }
  const std::string& host() const { return spec_.host; }
  bool on_port_22() const { return listener_22_.valid(); }
  std::string root() const;
  std::string log_path() const;  // output of the start script
  std::string tag() const;
  int processes() const;

 private:
  explicit Node(const NodeSpec& spec) : spec_(spec) {}
  absl::Status Write();
  absl::Status WriteMounts();
  absl::Status Bind();
  void Accept();
  void Serve(const UniqueFd& connection);
  std::string Home() const;
  NodeSpec spec_;
  UniqueFd listener_;
  UniqueFd listener_22_;
  UniqueFd stop_read_;
  UniqueFd stop_write_;
  std::thread acceptor_;
  int port_ = 0;
};

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_NODE_H_

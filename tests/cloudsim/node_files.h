// The files that make a directory look like a rented machine to its processes.
#ifndef GPUCTL_TESTS_CLOUDSIM_NODE_FILES_H_
#define GPUCTL_TESTS_CLOUDSIM_NODE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gpuctl::cloudsim {

// The environment of every process of the node.
struct SessionNames {
  std::string path;
  std::string root;          // GPUCTL_NODE_ROOT
  std::string environ_file;  // GPUCTL_PID1_ENVIRON, in the format of /proc/1/environ
  std::string tag;           // GPUCTL_SIM_NODE
  std::string mount_root;    // GPUCTL_MOUNT_ROOT, below which volumes are
  std::string net_dev;       // GPUCTL_NET_DEV, in /proc/net/dev's format
  std::string libraries;     // the folder of libcuda.so.1
  int cuda_devices = 0;
  int cuda_error = 0;
};

// Writes sshd_config, passwd and group for libnss_wrapper, the boot script, profiles, and
// replacements of sudo, sshd, service and the image's start.sh in dir/bin.
absl::Status WriteNodeFiles(const std::string& dir, const std::string& home,
                            const std::string& user, const SessionNames& names);

// Returns the file with the exit code of the node's start script; it is there when that has ended.
std::string ScriptEndFile(const std::string& dir);

// Makes a host key for several nodes in `dir`, and returns its private part; "" when that fails.
std::string MakeHostKeyFile(const std::string& dir);

// Returns the environment in which sshd knows the node's users, who all are our own user.
std::vector<std::string> NameServiceEnvironment(const std::string& dir);

// Returns a script that supports -L, --query-gpu=… --format=csv[,noheader][,nounits],
// -lms/-l/--loop-ms, -i, and no arguments.
std::string NvidiaSmiScript(const std::string& gpu_name, int gpu_count, int64_t memory_mib,
                            const std::string& driver);

// Returns the address "127.1.2.3" in network order; the loopback address for anything else.
uint32_t Ipv4(const std::string& host);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_NODE_FILES_H_

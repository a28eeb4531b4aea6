// What cloud-init makes of an instance's user data.
#ifndef GPUCTL_TESTS_CLOUDSIM_CLOUD_INIT_H_
#define GPUCTL_TESTS_CLOUDSIM_CLOUD_INIT_H_

#include <string>

namespace gpuctl::cloudsim {

// Returns the private ed25519 host key that cloud-init would give to sshd; "" for none.
std::string CloudInitHostKey(const std::string& user_data);
// Returns the script that cloud-init would run. From #cloud-config it takes only those entries of
// runcmd and bootcmd that are plain strings.
std::string CloudInitScript(const std::string& user_data);

}  // namespace gpuctl::cloudsim

#endif  // GPUCTL_TESTS_CLOUDSIM_CLOUD_INIT_H_

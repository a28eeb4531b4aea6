// The user's cluster.
#ifndef GPUCTL_CLIENT_CONFIG_CLUSTER_SETTINGS_H_
#define GPUCTL_CLIENT_CONFIG_CLUSTER_SETTINGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "client/config/cluster_fields.h"

namespace gpuctl {

// Reads the settings of the user's file in `config_dir` and of the environment.
absl::StatusOr<ClusterSettings> ReadClusterSettings(const std::string& config_dir);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_CLUSTER_SETTINGS_H_

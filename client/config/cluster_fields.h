// The fields of a cluster's settings: the table [slurm] of config.toml, and variables. Pure.
#ifndef GPUCTL_CLIENT_CONFIG_CLUSTER_FIELDS_H_
#define GPUCTL_CLIENT_CONFIG_CLUSTER_FIELDS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "provisioning/slurm/slurm_provider.h"

namespace gpuctl {

struct ClusterSettings {
  std::string host;  // the login node, as for ssh; empty: no cluster is set
  SlurmOptions options;
};

// True for the keys of the table: "slurm.host", …
bool IsClusterKey(absl::string_view key);

// Sets one of them. INVALID_ARGUMENT: it cannot have the value.
absl::Status SetClusterField(absl::string_view key, const nlohmann::json& value,
                             ClusterSettings& settings);

}  // namespace gpuctl

#endif  // GPUCTL_CLIENT_CONFIG_CLUSTER_FIELDS_H_

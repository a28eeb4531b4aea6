#include "client/config/cluster_settings.h"

#include "client/config/settings.h"
#include "common/base/status_macros.h"

namespace gpuctl {

absl::StatusOr<ClusterSettings> ReadClusterSettings(const std::string& config_dir) {
  ASSIGN_OR_RETURN(const Settings users, Settings::ReadUsers(config_dir));
  ClusterSettings settings;
  for (const Setting& setting : users.effective()) {
    if (!IsClusterKey(setting.key.key)) continue;
    RETURN_IF_ERROR(SetClusterField(setting.key.key, setting.value, settings));
  }
  return settings;
}

}  // namespace gpuctl

#include "common/base/machine_id.h"

#ifdef __APPLE__
#include <unistd.h>

#include "absl/strings/escaping.h"
#else
#include <fstream>
#include <initializer_list>
#endif

namespace gpuctl {

std::string MachineId() {
#ifdef __APPLE__
  uuid_t id = {};
  const timespec patience = {1, 0};
  if (gethostuuid(id, &patience) != 0) return "";
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(id), sizeof(id)));
#else
  for (const char* path : {"/etc/machine-id", "/var/lib/dbus/machine-id"}) {
    std::ifstream file(path);
    std::string id;
    if (file >> id) return id;
  }
  return "";
#endif
}

}  // namespace gpuctl

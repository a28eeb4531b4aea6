#include "common/release/release_route.h"

#include "absl/strings/str_replace.h"

namespace gpuctl {
namespace {

constexpr ReleaseRoute kRoutes[] = {
    {"runpod", EndsItself::kByKey, "RUNPOD_POD_ID", "RUNPOD_API_KEY", "POST",
     "/v2/pods/{id}/action", R"({"action":"terminate"})", ""},
    {"vast", EndsItself::kByKey, "CONTAINER_ID", "CONTAINER_API_KEY", "DELETE",
     "/api/v0/instances/{id}/", "", ""},
    {"huggingface", EndsItself::kByExit, "", "", "", "", "", ""},
    {"slurm", EndsItself::kByExit, "", "", "", "", "", ""},
    {"test-exit", EndsItself::kByExit, "", "", "", "", "", ""},
    {"test-shutdown", EndsItself::kByShutdown, "", "", "", "", "", "gpuctl-test-shutdown"},
};
constexpr ReleaseRoute kNone;

}  // namespace

const ReleaseRoute& ReleaseRouteOf(absl::string_view market) {
  for (const ReleaseRoute& route : kRoutes) {
    if (route.market == market) return route;
  }
  return kNone;
}

std::string ReleasePath(const ReleaseRoute& route, absl::string_view id) {
  return absl::StrReplaceAll(route.path, {{"{id}", id}});
}

absl::string_view ShutdownCommand(const ReleaseRoute& route) {
  if (!route.command.empty()) return route.command;
  return "shutdown -h now || systemctl poweroff || poweroff";
}

}  // namespace gpuctl

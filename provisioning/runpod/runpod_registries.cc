#include "provisioning/runpod/runpod_registries.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/rest/list_rows.h"
#include "provisioning/runpod/runpod_api.h"

namespace gpuctl {
namespace {

constexpr char kPath[] = "/v2/registries";

constexpr ListShape kRegistries = {
    .what = "the list of registries", .part = "registry", .rows = "registries", .id = "id"};

absl::StatusOr<std::vector<RunpodRegistry>> ListRegistries(const RestApi& api) {
  return ListOf(api, "list Runpod's registry logins", kPath, kRegistries, ReadRunpodRegistry);
}

// Returns the entry's id; empty when there is none.
absl::StatusOr<std::string> FindRegistry(const RestApi& api, const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<RunpodRegistry> registries, ListRegistries(api));
  for (const RunpodRegistry& registry : registries) {
    if (registry.name == name) return registry.id;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::string> EnsureRunpodRegistry(const RestApi& api, const std::string& name,
                                                 const RegistryLogin& login) {
  ASSIGN_OR_RETURN(std::string id, FindRegistry(api, name));
  if (!id.empty()) return id;
  const absl::StatusOr<RunpodRegistry> made = api.Ask(
      {.doing = "give Runpod the registry login",
       .kind = CallKind::kOnce,
       .method = "POST",
       .path = kPath,
       .body = {{"name", name}, {"username", login.username}, {"password", login.password}}},
      ParseRunpodRegistry);
  if (made.ok()) return made->id;
  // Another launch may have made it first, or the answer was lost.
  ASSIGN_OR_RETURN(id, FindRegistry(api, name));
  if (!id.empty()) return id;
  return WithoutPassword(made.status(), login);
}

absl::StatusOr<int> RemoveRunpodRegistries(const RestApi& api, absl::string_view owner,
                                           const std::set<std::string>& used) {
  ASSIGN_OR_RETURN(const std::vector<RunpodRegistry> registries, ListRegistries(api));
  int removed = 0;
  for (const RunpodRegistry& registry : registries) {
    if (!IsStoredLoginOf(owner, registry.name) || used.count(registry.id) > 0) continue;
    const absl::Status status =
        api.Ask({.doing = absl::StrCat("remove Runpod's registry login ", registry.name),
                 .kind = CallKind::kRepeat,
                 .method = "DELETE",
                 .path = absl::StrCat(kPath, "/", UrlEncode(registry.id))})
            .status();
    // 400: a pod uses it. 404: somebody else removed it.
    if (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) continue;
    RETURN_IF_ERROR(status);
    ++removed;
  }
  return removed;
}

}  // namespace gpuctl

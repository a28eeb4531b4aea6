#include "tests/cloudsim/registries.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl::cloudsim {
namespace {

std::string ServerOf(const std::string& image) {
  const size_t slash = image.find('/');
  const std::string first = image.substr(0, slash);
  const bool server =
      slash != std::string::npos &&
      (first == "localhost" || absl::StrContains(first, '.') || absl::StrContains(first, ':'));
  return server ? first : "docker.io";
}

bool IsPrivate(const std::string& image) {
  for (const absl::string_view part : absl::StrSplit(image, '/')) {
    if (absl::StartsWith(part, "private")) return true;
  }
  return false;
}

}  // namespace

std::string AddRegistryUser(World& world, const Json& request) {
  const std::string server = StringAt(request, "server");
  const std::string user = StringAt(request, "username");
  const std::string password = StringAt(request, "password");
  if (server.empty() || user.empty() || password.empty()) return "server, username, password";
  world.registries[server][user] = password;
  return "";
}

void PullImage(World& world, Instance* instance, const std::string& image,
               const std::optional<ImageLogin>& login) {
  const bool fault = world.faults.Take(instance->service, "create", "image_private").has_value();
  if (!fault && !IsPrivate(image)) return;
  const std::string server = ServerOf(image);
  const Json users = world.registries.value(server, Json::object());
  const bool here = login.has_value() && (login->server.empty() || login->server == server);
  if (here && StringAt(users, login->username.c_str()) == login->password &&
      !login->password.empty()) {
    return;
  }
  instance->trouble.boot_never = true;
  instance->trouble.image_error =
      here ? absl::StrCat("Error response from daemon: Get \"https://", server,
                          "/v2/\": unauthorized: incorrect username or password")
           : absl::StrCat("Error response from daemon: pull access denied for ", image,
                          ", repository does not exist or may require 'docker login'");
}

}  // namespace gpuctl::cloudsim

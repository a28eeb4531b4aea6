#include "client/spec/registry_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "provisioning/market/registry_login.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {
namespace {

constexpr size_t kMaxUserBytes = 256;

bool IsUser(absl::string_view user) {
  return !user.empty() && user.size() <= kMaxUserBytes &&
         std::all_of(user.begin(), user.end(), [](char c) {
           return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != ':';
         });
}

}  // namespace

absl::StatusOr<RegistryRequest> ParseRegistryRequest(absl::string_view text) {
  // A user's name may have an '@', the name of a secret has none.
  const size_t colon = text.find(':');
  if (colon == text.npos) {
    return absl::InvalidArgumentError("it is not USER:SECRET or USER:SECRET@SERVER");
  }
  RegistryRequest request;
  request.username = std::string(text.substr(0, colon));
  absl::string_view rest = text.substr(colon + 1);
  const size_t at = rest.find('@');
  request.password = std::string(rest.substr(0, at));
  if (at != rest.npos) {
    request.server = std::string(rest.substr(at + 1));
    if (request.server.empty()) return absl::InvalidArgumentError("there is no server after the @");
  }
  RETURN_IF_ERROR(CheckRegistryRequest(request));
  return request;
}

absl::Status CheckRegistryRequest(RegistryRequest& request) {
  if (!IsUser(request.username)) {
    return absl::InvalidArgumentError(
        request.username.empty() ? "there is no username"
                                 : "the username has characters that no registry's user has");
  }
  if (!IsEnvName(request.password)) {
    return absl::InvalidArgumentError(
        "password is the name of a secret, like GHCR_TOKEN, never its value");
  }
  if (request.server.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(request.server, CheckedRegistry(request.server));
  return absl::OkStatus();
}

absl::Status CheckRegistryFits(const RegistryRequest& request, absl::string_view image) {
  if (request.empty()) return absl::OkStatus();
  if (image.empty()) {
    return absl::InvalidArgumentError(
        "resources.registry is the login for resources.image, and there is no image");
  }
  const std::string registry = RegistryOfImage(image);
  if (request.server.empty() || request.server == registry) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("resources.registry is for ", request.server,
                                                 ", and the image ", image, " comes from ",
                                                 registry));
}

}  // namespace gpuctl

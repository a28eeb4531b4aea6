#include "provisioning/market/registry_login.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/files/sha256.h"
#include "provisioning/http/redact.h"
#include "provisioning/market/rent_options.h"

namespace gpuctl {
namespace {

constexpr size_t kDigestDigits = 16;

std::string PrefixOf(absl::string_view owner) {
  return absl::StrCat("gpuctl-", owner.empty() ? "none" : owner, "-registry-");
}

bool IsLowerHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
  });
}

}  // namespace

std::string RegistryOfImage(absl::string_view image) {
  const size_t slash = image.find('/');
  const absl::string_view first = image.substr(0, slash);
  const bool server =
      slash != image.npos && (first == "localhost" || first.find_first_of(".:") != first.npos);
  if (!server) return kDockerHub;
  const absl::StatusOr<std::string> registry = CheckedRegistry(first);
  return registry.ok() ? *registry : absl::AsciiStrToLower(first);
}

absl::StatusOr<std::string> CheckedRegistry(absl::string_view text) {
  std::string server = absl::AsciiStrToLower(absl::StripAsciiWhitespace(text));
  server = std::string(absl::StripPrefix(server, "https://"));
  for (const char* hub : {"index.docker.io/v1/", "index.docker.io/v1", "index.docker.io",
                          "registry-1.docker.io", "hub.docker.com", "docker.com"}) {
    if (server == hub) return std::string(kDockerHub);
  }
  const size_t colon = server.find(':');
  int port = 443;
  const bool good = IsSafeHost(server.substr(0, colon)) &&
                    (colon == server.npos || (absl::SimpleAtoi(server.substr(colon + 1), &port) &&
                                              port >= 1 && port <= 65535));
  if (good) return server;
  return absl::InvalidArgumentError(
      "what stands behind @ is no registry; write its host, like ghcr.io");
}

std::string DescribeLogin(const RegistryLogin& login) {
  return absl::StrCat(login.username, " at ", login.server);
}

std::string StoredLoginName(absl::string_view owner, const RegistryLogin& login,
                            absl::string_view secret) {
  const absl::string_view end("\0", 1);
  const std::string digest = Sha256HexOf(
      absl::StrCat(Sha256HexOf(secret), login.server, end, login.username, end, login.password));
  return absl::StrCat(PrefixOf(owner), digest.substr(0, kDigestDigits));
}

bool IsStoredLoginOf(absl::string_view owner, absl::string_view name) {
  return absl::ConsumePrefix(&name, PrefixOf(owner)) && name.size() == kDigestDigits &&
         IsLowerHex(name);
}

bool SaysImageFails(absl::string_view words) {
  const std::string said = absl::AsciiStrToLower(words);
  for (const char* part :
       {"manifest unknown", "manifest for ", "pull access denied", "repository does not exist",
        "unauthorized", "denied: requested", "denied: denied", "access forbidden",
        "no basic auth credentials", "incorrect username or password"}) {
    if (absl::StrContains(said, part)) return true;
  }
  return absl::StrContains(said, "image") && absl::StrContains(said, "not found");
}

std::string WithoutPassword(absl::string_view text, const RegistryLogin& login) {
  if (login.password.empty()) return std::string(text);
  // It may come in a piece of JSON.
  const std::string hidden = absl::StrReplaceAll(text, {{JsonEscaped(login.password), "[hidden]"}});
  return absl::StrReplaceAll(hidden, {{login.password, "[hidden]"}});
}

absl::Status WithoutPassword(const absl::Status& status, const RegistryLogin& login) {
  const std::string text = WithoutPassword(status.message(), login);
  if (text == status.message()) return status;
  absl::Status shown(status.code(), text);
  status.ForEachPayload([&shown](absl::string_view url, const absl::Cord& payload) {
    shown.SetPayload(url, payload);
  });
  return shown;
}

}  // namespace gpuctl

#include "provisioning/http/request_keys.h"

#include <nlohmann/json.hpp>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_json.h"

namespace gpuctl {
namespace {

constexpr size_t kShortestKey = 7;  // "Bearer" is none
// Of a body that exchanges a key for a token.
constexpr char kSecretField[] = "client_secret";
constexpr size_t kMostBytes = 64 << 10;
constexpr int kMostDepth = 8;
constexpr absl::string_view kHarmless[] = {"accept", "content-type", "user-agent"};

}  // namespace

std::vector<std::string> KeysOf(const HttpRequest& request) {
  std::vector<std::string> keys;
  for (const auto& [name, value] : request.headers) {
    if (absl::c_linear_search(kHarmless, absl::AsciiStrToLower(name))) continue;
    for (const absl::string_view word : absl::StrSplit(value, ' ', absl::SkipEmpty())) {
      if (word.size() >= kShortestKey) keys.emplace_back(word);
    }
  }
  const nlohmann::json body =
      absl::StrContains(request.body, kSecretField)
          ? ParseBoundedJson(request.body, {.bytes = kMostBytes, .depth = kMostDepth})
          : nlohmann::json();
  if (body.is_object() && body.contains(kSecretField) && body[kSecretField].is_string()) {
    keys.push_back(body[kSecretField].get<std::string>());
  }
  return keys;
}

}  // namespace gpuctl

#include "provisioning/http/redact.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/bounded_json.h"

namespace gpuctl {
namespace {

constexpr char kHidden[] = "[hidden]";
constexpr int kMaxDepth = 64;
constexpr size_t kMaxShownBytes = 32 << 20;

// Returns the letters and digits in lower case: "PUBLIC_KEY", "public-key" and "publicKey" are one
// name.
std::string Squeeze(absl::string_view name) {
  std::string squeezed;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte)) squeezed += absl::ascii_tolower(byte);
  }
  return squeezed;
}

bool NamesSecret(absl::string_view name) {
  const std::string squeezed = Squeeze(name);
  // Names of keys are not keys, and a page's token only tells where a list goes on.
  for (const char* harmless : {"sshkeynames", "keyid", "sshkeyid", "nexttoken", "aftertoken"}) {
    if (squeezed == harmless) return false;
  }
  for (const char* part :
       {"key", "token", "secret", "password", "passwd", "authorization", "credential", "cookie"}) {
    if (absl::StrContains(squeezed, part)) return true;
  }
  // A machine's commands and variables may contain secrets.
  for (const char* whole :
       {"env", "envs", "extraenv", "environment", "command", "arguments", "base64script", "onstart",
        "onstartcmd", "args", "imageargs", "dockerargs", "dockerstartcmd", "userdata", "imagelogin",
        "startscript"}) {
    if (squeezed == whole) return true;
  }
  return false;
}

// Adds every text in `json`, or its words.
void AddTexts(const nlohmann::ordered_json& json, bool words, std::vector<std::string>& texts) {
  if (json.is_structured()) {
    for (const auto& element : json) AddTexts(element, words, texts);
    return;
  }
  if (!json.is_string()) return;
  const auto& text = json.get_ref<const std::string&>();
  if (!words) {
    texts.push_back(text);
    return;
  }
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    texts.emplace_back(word);
  }
}

// Replaces the secrets in `json`. Adds their texts to `hidden` unless it is null.
void Hide(nlohmann::ordered_json& json, int depth, std::vector<std::string>* hidden) {
  if (depth > kMaxDepth) {
    json = kHidden;
    return;
  }
  if (json.is_array()) {
    for (auto& element : json) Hide(element, depth + 1, hidden);
    return;
  }
  if (!json.is_object()) return;
  // In a list of variables, {"key": "TOKEN", "value": "…"} or with "name" for "key", the value is
  // hidden, whatever the list's name.
  const bool pair =
      json.size() == 2 && json.contains("value") && (json.contains("key") || json.contains("name"));
  for (auto& [name, value] : json.items()) {
    const bool empty = value.is_null() || (value.is_string() && value.empty()) ||
                       (value.is_structured() && value.empty());
    if (pair ? name == "value" : NamesSecret(name)) {
      if (empty) continue;
      // A password is one word of a login.
      if (hidden != nullptr) AddTexts(value, Squeeze(name) == "imagelogin", *hidden);
      value = kHidden;
    } else {
      Hide(value, depth + 1, hidden);
    }
  }
}

}  // namespace

std::string RedactUrl(absl::string_view url) {
  url = url.substr(0, url.find('#'));
  const size_t question = url.find('?');
  std::string shown(url.substr(0, question));
  const size_t scheme = shown.find("://");
  const size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t path = std::min(shown.find('/', host), shown.size());
  const size_t at = shown.rfind('@', path);
  if (at != std::string::npos && at >= host && at < path) shown.erase(host, at + 1 - host);
  if (question == url.npos) return shown;
  std::vector<std::string> parameters;
  for (const absl::string_view parameter : absl::StrSplit(url.substr(question + 1), '&')) {
    const absl::string_view name = parameter.substr(0, parameter.find('='));
    parameters.push_back(name.size() < parameter.size() && NamesSecret(name)
                             ? absl::StrCat(name, "=", kHidden)
                             : std::string(parameter));
  }
  return absl::StrCat(shown, "?", absl::StrJoin(parameters, "&"));
}

std::string JsonEscaped(absl::string_view text) {
  const std::string quoted = nlohmann::json(std::string(text))
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

std::vector<std::string> SecretTexts(absl::string_view body) {
  constexpr size_t kShortest = 6;
  std::vector<std::string> texts;
  nlohmann::ordered_json json =
      ParseBoundedOrderedJson(body, {.bytes = kMaxShownBytes, .depth = kMaxDepth});
  if (json.is_discarded() || !json.is_structured()) return texts;
  Hide(json, 0, &texts);
  texts.erase(std::remove_if(texts.begin(), texts.end(),
                             [](const std::string& text) { return text.size() < kShortest; }),
              texts.end());
  for (size_t i = texts.size(); i-- > 0;) {
    std::string escaped = JsonEscaped(texts[i]);
    if (escaped != texts[i]) texts.push_back(std::move(escaped));
  }
  return texts;
}

std::string RedactBody(absl::string_view body) {
  nlohmann::ordered_json json =
      ParseBoundedOrderedJson(body, {.bytes = kMaxShownBytes, .depth = kMaxDepth});
  if (json.is_discarded() || !json.is_structured()) {
    return body.empty() ? "" : absl::StrCat("(", body.size(), " bytes)");
  }
  Hide(json, 0, nullptr);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gpuctl

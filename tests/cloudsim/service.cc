#include "tests/cloudsim/service.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/ids.h"

namespace gpuctl::cloudsim {

std::string Call::Query(const std::string& name, const std::string& otherwise) const {
  const auto found = query.find(name);
  return found != query.end() ? found->second : otherwise;
}

std::string Call::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found != headers.end() ? found->second : "";
}

std::string Call::Key() const {
  const std::string header = Header("authorization");
  absl::string_view text = header;
  return absl::ConsumePrefix(&text, "Bearer ") ? std::string(text) : "";
}

std::string Call::KeyOrUser() const {
  const std::string header = Header("authorization");
  absl::string_view text = header;
  if (!absl::ConsumePrefix(&text, "Basic ")) return Key();
  std::string plain;
  if (!absl::Base64Unescape(text, &plain) || !absl::StrContains(plain, ":")) {
    return std::string(text);
  }
  return plain.substr(0, plain.find(':'));
}

bool Call::Is(const char* wanted_method, const char* pattern) const {
  if (method != wanted_method) return false;
  const std::vector<std::string> wanted = absl::StrSplit(pattern, '/', absl::SkipEmpty());
  if (wanted.size() != parts.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] != "{}" && wanted[i] != parts[i]) return false;
  }
  return true;
}

std::string Service::NewKey() const { return RandomHex(32); }

Reply JsonReply(int status, const Json& json) {
  Reply reply;
  reply.status = status;
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

}  // namespace gpuctl::cloudsim

#include "provisioning/http/request_keys.h"

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

constexpr size_t kShortestKey = 7;  // "Bearer" is none
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
  return keys;
}

}  // namespace gpuctl

#include "client/base/port_pair.h"

#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuctl {
namespace {

// Reads a number without sign, blanks or zeros in front.
bool ReadPort(absl::string_view text, int& port) {
  return !text.empty() && text.size() <= 5 && text[0] != '0' &&
         text.find_first_not_of("0123456789") == absl::string_view::npos &&
         absl::SimpleAtoi(text, &port) && port <= 65535;
}

}  // namespace

absl::StatusOr<PortPair> ParsePortPair(absl::string_view text) {
  PortPair pair;
  const size_t colon = text.find(':');
  if (!ReadPort(text.substr(0, colon), pair.port) ||
      (colon != absl::string_view::npos && !ReadPort(text.substr(colon + 1), pair.local))) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no port; write PORT or PORT:LOCALPORT, each 1 to 65535"));
  }
  return pair;
}

absl::StatusOr<std::vector<PortPair>> ParsePortPairs(const std::vector<std::string>& texts) {
  std::vector<PortPair> pairs;
  std::set<int> here;
  for (const std::string& text : texts) {
    const absl::StatusOr<PortPair> pair = ParsePortPair(text);
    if (!pair.ok()) return pair.status();
    if (pair->local != 0 && !here.insert(pair->local).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("port ", pair->local, " here cannot lead to two ports"));
    }
    pairs.push_back(*pair);
  }
  return pairs;
}

}  // namespace gpuctl

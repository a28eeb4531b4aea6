#include "agent/share/share_line.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "agent/store/tree_store.h"
#include "common/base/bounded_json.h"
#include "common/base/status_macros.h"
#include "common/files/files.h"

namespace gpuctl {
namespace {

constexpr size_t kMostNamed = 1000;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("share: bad ", what));
}

bool IsHex(absl::string_view text) {
  return text.size() % 2 == 0 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
         });
}

absl::Status ReadTexts(const nlohmann::json& json, const char* name,
                       std::vector<std::string>& texts) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array() || found->size() > kMostNamed) return Bad(name);
  for (const nlohmann::json& text : *found) {
    if (!text.is_string()) return Bad(name);
    texts.push_back(text.get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadShareLine(int fd) {
  std::string line;
  while (line.size() < kMostShareLine) {
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::UnavailableError("it ended before its line");
    if (byte == '\n') return line;
    line.push_back(byte);
  }
  return absl::InvalidArgumentError("a line is too long");
}

absl::Status WriteShareLine(int fd, const nlohmann::json& line) {
  using Handler = nlohmann::json::error_handler_t;
  return WriteAll(fd, absl::StrCat(line.dump(-1, ' ', true, Handler::replace), "\n"), "its line");
}

absl::StatusOr<ShareOrder> ParseShareOrder(const std::string& line, bool fetches) {
  const nlohmann::json json = ParseBoundedJson(line);
  if (!json.is_object()) return Bad("line");
  ShareOrder order;
  const auto key = json.find("key");
  if (key == json.end() || !key->is_string() || !IsHex(key->get<std::string>())) return Bad("key");
  order.key = absl::HexStringToBytes(key->get<std::string>());
  if (!fetches) return order;
  RETURN_IF_ERROR(ReadTexts(json, "addresses", order.addresses));
  RETURN_IF_ERROR(ReadTexts(json, "trees", order.trees));
  for (const std::string& tree : order.trees) {
    if (!IsManifestDigest(tree)) return Bad("tree");
  }
  const auto port = json.find("port");
  if (port == json.end() || !port->is_number_integer()) return Bad("port");
  const int64_t number = port->get<int64_t>();
  if (number < 1 || number > 65535) return Bad("port");
  order.port = static_cast<int>(number);
  return order;
}

}  // namespace gpuctl

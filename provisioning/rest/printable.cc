#include "provisioning/rest/printable.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "provisioning/http/redact.h"

namespace gpuctl {

std::string PrintableText(absl::string_view text, size_t limit) {
  std::string printable;
  for (const char c : text) {
    if (printable.size() == limit) {
      // The cut is not in the middle of a character.
      while (!printable.empty() && (printable.back() & 0xc0) == 0x80) printable.pop_back();
      if (!printable.empty() && (printable.back() & 0x80) != 0) printable.pop_back();
      return printable + "...";
    }
    const auto byte = static_cast<unsigned char>(c);
    const bool blank = byte < 0x20 || byte == 0x7f;
    if (blank && (printable.empty() || printable.back() == ' ')) continue;
    printable += blank ? ' ' : c;
  }
  // Bytes that are not UTF-8 become the replacement character.
  const std::string quoted =
      nlohmann::json(printable).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const nlohmann::json clean = nlohmann::json::parse(quoted, nullptr, false);
  return clean.is_string() ? clean.get<std::string>() : "";
}

std::string BodyInWords(absl::string_view body, size_t limit) {
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(body);
  const bool json = absl::StartsWith(text, "{") || absl::StartsWith(text, "[");
  return json ? PrintableText(RedactBody(text), limit) : PrintableText(body, limit);
}

}  // namespace gpuctl

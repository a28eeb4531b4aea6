#include "client/dashboard/http_message.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuctl {
namespace {

constexpr size_t kMostHeaders = 100;

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Returns nothing for a '%' without two digits.
std::optional<std::string> DecodePercents(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

bool IsToken(absl::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("!#$%&'*+-.^_`|~", absl::string_view(&c, 1))) {
      return false;
    }
  }
  return true;
}

bool ParseTarget(absl::string_view target, PageRequest& request) {
  if (target.empty() || target[0] != '/') return false;
  for (const char c : target) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) return false;
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(target, absl::MaxSplits('?', 1));
  request.path = std::string(parts.first);
  for (const absl::string_view pair : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> named =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    const auto name = DecodePercents(named.first), value = DecodePercents(named.second);
    if (!name.has_value() || !value.has_value()) return false;
    request.query.emplace(*name, *value);
  }
  return true;
}

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 202:
      return "Accepted";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

}  // namespace

std::string PageRequest::Query(const std::string& name) const {
  const auto found = query.find(name);
  return found == query.end() ? "" : found->second;
}

std::string PageRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Parsed ParseRequest(absl::string_view bytes, PageRequest& request, int& refusal) {
  refusal = 400;
  const size_t end = bytes.find("\r\n\r\n");
  if (end == absl::string_view::npos || end > kMostHeadBytes) {
    if (bytes.size() <= kMostHeadBytes) return Parsed::kIncomplete;
    refusal = 431;
    return Parsed::kBad;
  }
  request = PageRequest();
  const std::vector<absl::string_view> lines = absl::StrSplit(bytes.substr(0, end), "\r\n");
  const std::vector<absl::string_view> first = absl::StrSplit(lines[0], ' ');
  if (first.size() != 3 || !IsToken(first[0]) || !absl::StartsWith(first[2], "HTTP/1.") ||
      !ParseTarget(first[1], request)) {
    return Parsed::kBad;
  }
  request.method = std::string(first[0]);
  if (lines.size() > kMostHeaders) {
    refusal = 431;
    return Parsed::kBad;
  }
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    if (!IsToken(header.first) || header.first.size() == lines[i].size()) return Parsed::kBad;
    // Of what may stand there once a second one is no choice of ours.
    if (!request.headers
             .emplace(absl::AsciiStrToLower(header.first),
                      std::string(absl::StripAsciiWhitespace(header.second)))
             .second &&
        (absl::EqualsIgnoreCase(header.first, "host") ||
         absl::EqualsIgnoreCase(header.first, "content-length") ||
         absl::EqualsIgnoreCase(header.first, "authorization") ||
         absl::EqualsIgnoreCase(header.first, "origin"))) {
      return Parsed::kBad;
    }
  }
  if (request.headers.count("transfer-encoding") > 0) return Parsed::kBad;
  uint64_t length = 0;
  const std::string told = request.Header("content-length");
  if (!told.empty() && (!absl::ascii_isdigit(static_cast<unsigned char>(told[0])) ||
                        !absl::SimpleAtoi(told, &length))) {
    return Parsed::kBad;
  }
  if (length > kMostBodyBytes) {
    refusal = 413;
    return Parsed::kBad;
  }
  const absl::string_view rest = bytes.substr(end + 4);
  if (rest.size() < length) return Parsed::kIncomplete;
  request.body = std::string(rest.substr(0, length));
  return Parsed::kWhole;
}

std::string FormatReply(const PageReply& reply, bool head_only) {
  std::string text = absl::StrCat("HTTP/1.1 ", reply.status, " ", ReasonOf(reply.status),
                                  "\r\nContent-Type: ", reply.type, "\r\nConnection: close\r\n");
  if (!reply.is_stream) absl::StrAppend(&text, "Content-Length: ", reply.body.size(), "\r\n");
  for (const auto& [name, value] : reply.headers) {
    absl::StrAppend(&text, name, ": ", value, "\r\n");
  }
  text += "\r\n";
  if (!head_only) text += reply.body;
  return text;
}

std::string FormatEvent(absl::string_view name, absl::string_view data, int64_t id) {
  std::string text = absl::StrCat("id: ", id, "\nevent: ", name, "\n");
  for (const absl::string_view line : absl::StrSplit(data, '\n')) {
    absl::StrAppend(&text, "data: ", line, "\n");
  }
  text += "\n";
  return text;
}

bool EqualInConstantTime(absl::string_view secret, absl::string_view given) {
  unsigned difference = secret.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char of_secret = secret.empty() ? '\0' : secret[i % secret.size()];
    difference |= static_cast<unsigned char>(of_secret) ^ static_cast<unsigned char>(given[i]);
  }
  // The compiler must not find a way out of the loop.
  volatile unsigned result = difference;
  return result == 0 && !secret.empty();
}

}  // namespace gpuctl

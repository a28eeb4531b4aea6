#include "client/terminal/line_assembler.h"

#include <utility>

#include "absl/strings/ascii.h"

namespace gpuctl {
namespace {

// A line that never ends is shown in pieces of this size.
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr char kEscape = '\x1b';
constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// The length of the escape sequence that begins `text`, as far as it is there.
size_t EscapeLength(absl::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') {
    size_t end = 2;
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    return std::min(end + 1, text.size());
  }
  // OSC, DCS, SOS, PM, APC: up to BEL or ESC '\'.
  if (text[1] == ']' || text[1] == 'P' || text[1] == 'X' || text[1] == '^' || text[1] == '_') {
    for (size_t end = 2; end < text.size(); ++end) {
      if (text[end] == '\a') return end + 1;
      if (text[end] == kEscape && end + 1 < text.size()) return end + 2;
    }
    return text.size();
  }
  return 2;
}

bool IsSgr(absl::string_view escape) {
  if (escape.size() < 3 || escape[1] != '[' || escape.back() != 'm') return false;
  for (const char c : escape.substr(2, escape.size() - 3)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c)) && c != ';' && c != ':') return false;
  }
  return true;
}

// The length of the well-formed UTF-8 character that begins `text` and its code point; 0 when it is
// not well formed.
size_t Utf8Length(absl::string_view text, unsigned& code_point) {
  const auto byte = [&text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || first > 0xF4 || text.size() < length) return 0;
  code_point = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code_point = (code_point << 6) | (byte(i) & 0x3F);
  }
  constexpr unsigned kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  if (code_point < kSmallest[length] || code_point > 0x10FFFF || surrogate) return 0;
  return length;
}

int CodePointWidth(unsigned c) {
  if ((c >= 0x300 && c <= 0x36F) || c == 0x200B || c == 0x200D || (c >= 0xFE00 && c <= 0xFE0F)) {
    return 0;
  }
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                    (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                    (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1FAFF) ||
                    (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

}  // namespace

std::string SanitizeLine(absl::string_view line) {
  std::string clean;
  bool coloured = false;
  int column = 0;
  while (!line.empty()) {
    if (line[0] == kEscape) {
      const absl::string_view escape = line.substr(0, EscapeLength(line));
      if (IsSgr(escape)) {
        clean.append(escape.data(), escape.size());
        coloured = true;
      }
      line.remove_prefix(escape.size());
      continue;
    }
    if (line[0] == '\t') {
      const int spaces = 8 - column % 8;
      clean.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      line.remove_prefix(1);
      continue;
    }
    unsigned code_point = 0;
    const size_t length = Utf8Length(line, code_point);
    if (length == 0) {
      clean.append(kReplacement.data(), kReplacement.size());
      ++column;
      line.remove_prefix(1);
      continue;
    }
    // C0, DEL and C1 controls vanish.
    if (code_point >= 0x20 && !(code_point >= 0x7F && code_point <= 0x9F)) {
      clean.append(line.data(), length);
      column += CodePointWidth(code_point);
    }
    line.remove_prefix(length);
  }
  if (coloured) clean += "\x1b[0m";
  return clean;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    if (text[0] == kEscape) {
      text.remove_prefix(EscapeLength(text));
      continue;
    }
    unsigned code_point = 0;
    const size_t length = Utf8Length(text, code_point);
    width += length == 0 ? 1 : CodePointWidth(code_point);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return width;
}

std::string TruncateToWidth(absl::string_view text, int width) {
  std::string kept;
  int used = 0;
  bool coloured = false;
  while (!text.empty()) {
    size_t length = 1;
    int columns = 0;
    if (text[0] == kEscape) {
      length = EscapeLength(text);
      coloured = true;
    } else {
      unsigned code_point = 0;
      length = Utf8Length(text, code_point);
      columns = length == 0 ? 1 : CodePointWidth(code_point);
      if (length == 0) length = 1;
    }
    if (used + columns > width) {
      if (coloured) kept += "\x1b[0m";
      break;
    }
    used += columns;
    kept.append(text.data(), length);
    text.remove_prefix(length);
  }
  return kept;
}

void LineAssembler::Add(absl::string_view bytes,
                        const std::function<void(absl::string_view)>& line) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    if (newline == absl::string_view::npos) {
      partial_.append(bytes.data(), bytes.size());
      if (partial_.size() > kMaxLineBytes) line(TakePartial());
      return;
    }
    if (partial_.empty()) {
      line(bytes.substr(0, newline));
    } else {
      partial_.append(bytes.data(), newline);
      line(TakePartial());
    }
    bytes.remove_prefix(newline + 1);
  }
}

std::string LineAssembler::TakePartial() { return std::exchange(partial_, std::string()); }

absl::string_view AfterCarriageReturns(absl::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t last = line.rfind('\r');
  return last == absl::string_view::npos ? line : line.substr(last + 1);
}

}  // namespace gpuctl

#include "client/terminal/line_assembler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/terminal/safe_text.h"

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

int CodePointWidth(char32_t c) {
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
  std::string run;  // of characters that are neither controls nor malformed
  bool coloured = false;
  int column = 0;
  const auto end_run = [&clean, &run, &column] {
    const std::string safe = MakeSafe(run);
    column += DisplayWidth(safe);
    clean += safe;
    run.clear();
  };
  while (!line.empty()) {
    const TextCharacter character = FirstCharacter(line);
    if (character.well_formed && !IsControl(character.code_point)) {
      absl::StrAppend(&run, line.substr(0, character.bytes));
      line.remove_prefix(character.bytes);
      continue;
    }
    end_run();
    size_t bytes = character.bytes;
    if (!character.well_formed) {
      absl::StrAppend(&clean, kReplacement);
      ++column;
    } else if (line[0] == kEscape) {
      bytes = EscapeLength(line);
      const absl::string_view escape = line.substr(0, bytes);
      if (IsSgr(escape)) {
        absl::StrAppend(&clean, escape);
        coloured = true;
      }
    } else if (line[0] == '\t') {
      const int spaces = 8 - column % 8;
      clean.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    }
    line.remove_prefix(bytes);
  }
  end_run();
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
    const TextCharacter character = FirstCharacter(text);
    width += character.well_formed ? CodePointWidth(character.code_point) : 1;
    text.remove_prefix(character.bytes);
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
      const TextCharacter character = FirstCharacter(text);
      length = character.bytes;
      columns = character.well_formed ? CodePointWidth(character.code_point) : 1;
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

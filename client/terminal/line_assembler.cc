#include "client/terminal/line_assembler.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/terminal/safe_text.h"

namespace gpuctl {
namespace {

// Size of the pieces in which a line without an end is shown.
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr char kEscape = '\x1b';
constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

// Returns the length of the escape sequence that begins `text`; of its existing part if it is
// incomplete.
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

int WidthOf(const CodePoint& code_point) {
  if (!code_point.well_formed) return 1;  // a terminal shows U+FFFD
  const auto value = static_cast<utf8proc_int32_t>(code_point.value);
  const int width = utf8proc_charwidth(value);
  // utf8proc gives width 0 to marks that stand beside their letter; terminals give them a column.
  const bool beside = width == 0 && utf8proc_category(value) == UTF8PROC_CATEGORY_MC;
  return beside ? 1 : width;
}

// One character as a reader sees it: a letter with its marks, an emoji of several code points, a
// byte that is not UTF-8.
struct Character {
  size_t bytes = 0;
  int width = 0;
};

// Returns the first character of `text`, which is not empty. It ends before an escape sequence.
Character FirstCharacter(absl::string_view text) {
  Character character;
  CodePoint previous;
  utf8proc_int32_t state = 0;
  while (character.bytes < text.size()) {
    const CodePoint next = FirstCodePoint(text.substr(character.bytes));
    if (character.bytes > 0 &&
        (!previous.well_formed || !next.well_formed ||
         utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.value),
                                          static_cast<utf8proc_int32_t>(next.value), &state))) {
      break;
    }
    character.bytes += next.bytes;
    character.width += WidthOf(next);
    previous = next;
  }
  return character;
}

}  // namespace

std::string SanitizeLine(absl::string_view line) {
  std::string clean;
  std::string run;  // consecutive characters that are neither controls nor malformed
  bool coloured = false;
  int column = 0;
  const auto end_run = [&clean, &run, &column] {
    const std::string safe = MakeSafe(run);
    column += DisplayWidth(safe);
    clean += safe;
    run.clear();
  };
  while (!line.empty()) {
    if (const size_t plain = PlainLength(line); plain > 0) {
      absl::StrAppend(&run, line.substr(0, plain));
      line.remove_prefix(plain);
      continue;
    }
    const CodePoint character = FirstCodePoint(line);
    if (character.well_formed && !IsControl(character.value)) {
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
    if (const size_t plain = PlainLength(text); plain > 0) {
      width += static_cast<int>(plain);
      text.remove_prefix(plain);
      continue;
    }
    if (text[0] == kEscape) {
      text.remove_prefix(EscapeLength(text));
      continue;
    }
    const CodePoint next = FirstCodePoint(text);
    width += WidthOf(next);
    text.remove_prefix(next.bytes);
  }
  return width;
}

std::string TruncateToWidth(absl::string_view text, int width) {
  std::string kept;
  int used = 0;
  bool coloured = false;
  while (!text.empty()) {
    // The last one of plain text may join what follows it.
    if (const size_t plain = PlainLength(text); plain > 1 && used < width) {
      const size_t taken = std::min(plain - 1, static_cast<size_t>(width - used));
      kept.append(text.data(), taken);
      used += static_cast<int>(taken);
      text.remove_prefix(taken);
      continue;
    }
    Character next;
    if (text[0] == kEscape) {
      next.bytes = EscapeLength(text);
      coloured = true;
    } else {
      next = FirstCharacter(text);
    }
    if (used + next.width > width) {
      if (coloured) kept += "\x1b[0m";
      break;
    }
    used += next.width;
    kept.append(text.data(), next.bytes);
    text.remove_prefix(next.bytes);
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

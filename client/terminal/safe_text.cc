#include "client/terminal/safe_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gpuctl {
namespace {

constexpr char32_t kNonJoiner = 0x200C;
constexpr char32_t kJoiner = 0x200D;

struct Range {
  char32_t first, last;
};

// Hidden ranges, in ascending order.
constexpr Range kHidden[] = {
    {0x00AD, 0x00AD},  // soft hyphen
    {0x034F, 0x034F},  // combining grapheme joiner
    {0x061C, 0x061C},  // Arabic letter mark
    {0x115F, 0x1160},  // Hangul fillers
    {0x17B4, 0x17B5},  // Khmer inherent vowels
    {0x180B, 0x180F},  // Mongolian selectors and vowel separator
    {0x200B, 0x200F},  // no width: space, joiners; marks of direction
    {0x2028, 0x202E},  // separators of lines and paragraphs; embeddings and overrides of direction
    {0x2060, 0x206F},  // word joiner, invisible operators, isolates, old format characters
    {0x3164, 0x3164},  // Hangul filler
    {0xFDD0, 0xFDEF},  // noncharacters
    {0xFEFF, 0xFEFF},  // byte order mark
    {0xFFA0, 0xFFA0},  // Hangul filler of half width
    {0xFFF0, 0xFFFB},  // unassigned and invisible; annotation
    {0x13430, 0x1345F},  // Egyptian format controls
    {0x1BCA0, 0x1BCA3},  // shorthand format controls
    {0x1D173, 0x1D17A},  // musical format controls
    {0xE0000, 0xE0FFF},  // tags, selectors of rare variants, unassigned and invisible
};

void AppendEscape(const CodePoint& character, std::string& text) {
  const auto value = static_cast<uint32_t>(character.value);
  if (!character.well_formed || value < 0x80) {
    switch (value) {
      case '\n':
        text += "\\n";
        return;
      case '\r':
        text += "\\r";
        return;
      case '\t':
        text += "\\t";
        return;
      default:
        absl::StrAppendFormat(&text, "\\x%02x", value);
        return;
    }
  }
  if (value > 0xFFFF) {
    absl::StrAppendFormat(&text, "\\U%08x", value);
  } else {
    absl::StrAppendFormat(&text, "\\u%04x", value);
  }
}

void AppendJsonEscape(char32_t code_point, std::string& json) {
  const auto value = static_cast<uint32_t>(code_point);
  if (value <= 0xFFFF) {
    absl::StrAppendFormat(&json, "\\u%04x", value);
    return;
  }
  const uint32_t above = value - 0x10000;
  absl::StrAppendFormat(&json, "\\u%04x\\u%04x", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
}

bool IsVisible(const CodePoint& character) {
  return character.well_formed && !IsControl(character.value) && !IsHidden(character.value);
}

bool IsJoinable(const CodePoint& character) {
  return IsVisible(character) && character.value >= 0x80;
}

}  // namespace

CodePoint FirstCodePoint(absl::string_view text) {
  const unsigned char first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true, first};  // the most frequent case
  utf8proc_int32_t value = -1;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &value);
  if (bytes <= 0) return {1, false, first};
  return {static_cast<size_t>(bytes), true, static_cast<char32_t>(value)};
}

size_t PlainLength(absl::string_view text) {
  size_t length = 0;
  while (length < text.size() && text[length] >= 0x20 && text[length] < 0x7F) ++length;
  return length;
}

bool IsControl(char32_t code_point) {
  return code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
}

bool IsHidden(char32_t code_point) {
  if ((code_point & 0xFFFE) == 0xFFFE) return true;  // noncharacters, two of each plane
  const Range* const range =
      std::lower_bound(std::begin(kHidden), std::end(kHidden), code_point,
                       [](const Range& one, char32_t value) { return one.last < value; });
  return range != std::end(kHidden) && code_point >= range->first;
}

std::string MakeSafe(absl::string_view text) {
  std::string safe;
  bool joinable = false;  // a joiner may follow the previous character
  while (!text.empty()) {
    if (const size_t plain = PlainLength(text); plain > 0) {
      absl::StrAppend(&safe, text.substr(0, plain));
      text.remove_prefix(plain);
      joinable = false;
      continue;
    }
    const CodePoint character = FirstCodePoint(text);
    const absl::string_view bytes = text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
    const bool joiner =
        character.well_formed && (character.value == kNonJoiner || character.value == kJoiner);
    const bool joins = joiner && joinable && !text.empty() && IsJoinable(FirstCodePoint(text));
    joinable = IsJoinable(character);
    if (IsVisible(character) || joins) {
      absl::StrAppend(&safe, bytes);
    } else {
      AppendEscape(character, safe);
    }
  }
  return safe;
}

std::string MakeJsonSafe(absl::string_view json) {
  std::string safe;
  while (!json.empty()) {
    if (const size_t plain = PlainLength(json); plain > 0) {
      absl::StrAppend(&safe, json.substr(0, plain));
      json.remove_prefix(plain);
      continue;
    }
    const CodePoint character = FirstCodePoint(json);
    if (IsControl(character.value) || IsHidden(character.value)) {
      AppendJsonEscape(character.value, safe);
    } else {
      absl::StrAppend(&safe, json.substr(0, character.bytes));
    }
    json.remove_prefix(character.bytes);
  }
  return safe;
}

}  // namespace gpuctl

#include "trainer/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace gpuctl::trainer::jinja {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

// Reads the code point at the beginning of `text`, which is not empty. Returns its bytes.
size_t ReadCodePoint(std::string_view text, uint32_t* code_point) {
  const auto first = static_cast<unsigned char>(text[0]);
  *code_point = first;
  if (first < 0x80) return 1;
  utf8proc_int32_t read = 0;
  const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &read);
  *code_point = bytes > 0 ? static_cast<uint32_t>(read) : kReplacement;
  return bytes > 0 ? static_cast<size_t>(bytes) : 1;
}

utf8proc_category_t CategoryOf(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// Returns whether the sigma at `i` ends a word, after the rule Final_Sigma of Unicode's chapter 3.13.
bool IsFinalSigma(const std::vector<uint32_t>& text, size_t i) {
  const auto ignorable = [](uint32_t c) {
    const utf8proc_category_t category = CategoryOf(c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
           c == 0x2019;
  };
  const auto cased = [](uint32_t c) { return IsUpper(c) || IsLower(c); };
  size_t before = i;
  while (before > 0 && ignorable(text[before - 1])) --before;
  if (before == 0 || !cased(text[before - 1])) return false;
  size_t after = i + 1;
  while (after < text.size() && ignorable(text[after])) ++after;
  return after == text.size() || !cased(text[after]);
}

void AppendLower(const std::vector<uint32_t>& text, size_t i, std::string* out) {
  if (text[i] == 0x130) {  // the only one whose lower case has two
    out->append("i\xCC\x87");
  } else if (text[i] == 0x3A3) {
    AppendUtf8(IsFinalSigma(text, i) ? 0x3C2 : 0x3C3, out);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i]))),
               out);
  }
}

void AppendUpper(uint32_t code_point, std::string* out) {
  if (code_point == 0xDF) {
    out->append("SS");
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point))),
               out);
  }
}

void AppendTitle(uint32_t code_point, std::string* out) {
  if (code_point == 0xDF) {
    out->append("Ss");
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point))),
               out);
  }
}

}  // namespace

std::vector<uint32_t> CodePoints(std::string_view text) {
  std::vector<uint32_t> code_points;
  code_points.reserve(text.size());
  while (!text.empty()) {
    uint32_t code_point = 0;
    text.remove_prefix(ReadCodePoint(text, &code_point));
    code_points.push_back(code_point);
  }
  return code_points;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

std::string Utf8(const std::vector<uint32_t>& code_points) {
  std::string text;
  for (const uint32_t code_point : code_points) AppendUtf8(code_point, &text);
  return text;
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    uint32_t code_point = 0;
    text.remove_prefix(ReadCodePoint(text, &code_point));
    ++count;
  }
  return count;
}

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(uint32_t c) {
  const utf8proc_category_t category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsUpper(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LU; }

bool IsLower(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LL; }

std::string Lower(std::string_view text) {
  const std::vector<uint32_t> code_points = CodePoints(text);
  std::string out;
  for (size_t i = 0; i < code_points.size(); ++i) AppendLower(code_points, i, &out);
  return out;
}

std::string Upper(std::string_view text) {
  std::string out;
  for (const uint32_t code_point : CodePoints(text)) AppendUpper(code_point, &out);
  return out;
}

std::string Title(std::string_view text) {
  const std::vector<uint32_t> code_points = CodePoints(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (in_word) {
      AppendLower(code_points, i, &out);
    } else {
      AppendTitle(code_points[i], &out);
    }
    in_word = IsUpper(code_points[i]) || IsLower(code_points[i]) ||
              CategoryOf(code_points[i]) == UTF8PROC_CATEGORY_LT;
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  const std::vector<uint32_t> code_points = CodePoints(text);
  std::string out;
  for (size_t i = 0; i < code_points.size(); ++i) {
    if (i == 0) {
      AppendTitle(code_points[i], &out);
    } else {
      AppendLower(code_points, i, &out);
    }
  }
  return out;
}

std::string_view Strip(std::string_view text, const std::string* characters, Ends ends) {
  std::vector<uint32_t> set;
  if (characters != nullptr) set = CodePoints(*characters);
  const auto removed = [&](uint32_t c) {
    return characters == nullptr ? IsSpace(c) : std::find(set.begin(), set.end(), c) != set.end();
  };
  while (ends != Ends::kRight && !text.empty()) {
    uint32_t code_point = 0;
    const size_t bytes = ReadCodePoint(text, &code_point);
    if (!removed(code_point)) break;
    text.remove_prefix(bytes);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 &&
           (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    uint32_t code_point = 0;
    if (ReadCodePoint(text.substr(begin), &code_point) != text.size() - begin) {
      begin = text.size() - 1;
      code_point = kReplacement;
    }
    if (!removed(code_point)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace gpuctl::trainer::jinja

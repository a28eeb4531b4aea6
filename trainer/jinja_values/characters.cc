#include "trainer/jinja_values/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace gpuctl::trainer::jinja {
namespace {

utf8proc_category_t CategoryOf(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// Returns whether the sigma at `i` ends a word, after the rule Final_Sigma of Unicode's
// chapter 3.13.
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
    AppendCodePoint(IsFinalSigma(text, i) ? 0x3C2 : 0x3C3, out);
  } else {
    AppendCodePoint(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i]))),
                    out);
  }
}

void AppendUpper(uint32_t code_point, std::string* out) {
  if (code_point == 0xDF) {
    out->append("SS");
  } else {
    AppendCodePoint(
        static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code_point))), out);
  }
}

void AppendTitle(uint32_t code_point, std::string* out) {
  if (code_point == 0xDF) {
    out->append("Ss");
  } else {
    AppendCodePoint(
        static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point))), out);
  }
}

}  // namespace

std::vector<uint32_t> CodePoints(std::string_view text) {
  std::vector<uint32_t> code_points;
  code_points.reserve(text.size());
  for (size_t at = 0; at < text.size();) code_points.push_back(ReadCodePoint(text, &at));
  return code_points;
}

std::string Utf8(const std::vector<uint32_t>& code_points) {
  std::string text;
  for (const uint32_t code_point : code_points) AppendCodePoint(code_point, &text);
  return text;
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
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

// Unicode's XID_Start and XID_Continue: by category, but for what is listed.
bool BeginsName(uint32_t c) {
  if (c < 0x80) return (c | 32) - 'a' < 26 || c == '_';
  // Marks between the letters, and what is other characters when it is normalized.
  for (const auto& [first, last] :
       std::initializer_list<std::pair<uint32_t, uint32_t>>{{0x37A, 0x37A},
                                                            {0xE33, 0xE33},
                                                            {0xEB3, 0xEB3},
                                                            {0x2E2F, 0x2E2F},
                                                            {0xFC5E, 0xFC63},
                                                            {0xFDFA, 0xFDFB},
                                                            {0xFE70, 0xFE70},
                                                            {0xFE72, 0xFE72},
                                                            {0xFE74, 0xFE74},
                                                            {0xFE76, 0xFE76},
                                                            {0xFE78, 0xFE78},
                                                            {0xFE7A, 0xFE7A},
                                                            {0xFE7C, 0xFE7C},
                                                            {0xFE7E, 0xFE7E},
                                                            {0xFF9E, 0xFF9F}}) {
    if (c >= first && c <= last) return false;
  }
  return IsAlpha(c) || CategoryOf(c) == UTF8PROC_CATEGORY_NL || c == 0x2118 || c == 0x212E;
}

bool BelongsToName(uint32_t c) {
  if (BeginsName(c) || (c >= '0' && c <= '9')) return true;
  if (c < 0x80) return false;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0xB7 || c == 0x387 || c == 0xE33 || c == 0xEB3 || (c >= 0x1369 && c <= 0x1371) ||
             c == 0x19DA || (c >= 0xFF9E && c <= 0xFF9F);
  }
}

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
    size_t bytes = 0;
    if (!removed(ReadCodePoint(text, &bytes))) break;
    text.remove_prefix(bytes);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t at = begin;
    if (!removed(ReadCodePoint(text, &at))) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace gpuctl::trainer::jinja

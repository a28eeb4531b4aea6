#include "trainer/unicode/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/base/error.h"
#include "trainer/unicode/utf8.h"
#include "trainer/unicode/versions.h"

namespace gpuctl::trainer {
namespace {

// Nothing above changes in any form.
constexpr uint32_t kFormsEnd = 0x30000;
constexpr int kMaxParts = 32;  // of one code point; Unicode has up to 18

using Boundaries = std::bitset<kFormsEnd>;

bool Composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

int Options(NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return UTF8PROC_STABLE | (compatible ? UTF8PROC_COMPAT : 0) |
         (Composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
}

int ClassOf(utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; }

// utf8proc's own function sorts marks in quadratic time, which a text of marks would make endless.
void SortMarks(std::vector<utf8proc_int32_t>* points) {
  for (auto begin = points->begin(); begin != points->end();) {
    const auto is_mark = [](utf8proc_int32_t point) { return ClassOf(point) != 0; };
    begin = std::find_if(begin, points->end(), is_mark);
    const auto end = std::find_if_not(begin, points->end(), is_mark);
    std::stable_sort(
        begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) { return ClassOf(a) < ClassOf(b); });
    begin = end;
  }
}

void AppendForm(std::string_view text, NormalForm form, std::string* out) {
  const auto decompose =
      static_cast<utf8proc_option_t>((Options(form) & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
  std::vector<utf8proc_int32_t> points;
  for (size_t at = 0; at < text.size();) {
    const auto point = static_cast<utf8proc_int32_t>(ReadCodePoint(text, &at));
    utf8proc_int32_t parts[kMaxParts];
    int last_class = 0;
    const auto count = utf8proc_decompose_char(point, parts, kMaxParts, decompose, &last_class);
    if (count < 0 || count > kMaxParts) throw DataError("encode: a character has no normal form");
    points.insert(points.end(), parts, parts + count);
  }
  SortMarks(&points);
  if (Composes(form)) {
    const auto left = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (left < 0) throw DataError(std::string("encode: normalize: ") + utf8proc_errmsg(left));
    points.resize(static_cast<size_t>(left));
  }
  for (const utf8proc_int32_t point : points) AppendCodePoint(static_cast<uint32_t>(point), out);
}

// Returns the code points that stay what they are, that never join one before them, and that none
// passes when marks are sorted: what stands before and behind such a one is independent.
Boundaries MakeBoundaries(NormalForm form) {
  Boundaries boundaries;
  boundaries.set();
  for (uint32_t point = 0x80; point < kFormsEnd; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    utf8proc_int32_t parts[kMaxParts];
    int last_class = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(point), parts, kMaxParts,
        static_cast<utf8proc_option_t>((Options(form) & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE),
        &last_class);
    const bool same = count == 1 && parts[0] == static_cast<utf8proc_int32_t>(point);
    if (utf8proc_get_property(static_cast<utf8proc_int32_t>(point))->combining_class != 0) {
      boundaries.reset(point);
    }
    if (same) continue;
    std::string text;
    std::string formed;
    AppendCodePoint(point, &text);
    AppendForm(text, form, &formed);
    if (text != formed) boundaries.reset(point);
    for (int i = 1; Composes(form) && i < count && i < kMaxParts; ++i) {
      boundaries.reset(static_cast<uint32_t>(parts[i]));
    }
  }
  for (uint32_t point = 0x80; point < kFormsEnd; ++point) {
    if (IsNewToNormalization(point)) boundaries.set(point);
  }
  return boundaries;
}

const Boundaries& BoundariesOf(NormalForm form) {
  static const Boundaries nfc = MakeBoundaries(NormalForm::kNfc);
  if (form == NormalForm::kNfc) return nfc;
  static const std::vector<Boundaries> others = {MakeBoundaries(NormalForm::kNfd),
                                                 MakeBoundaries(NormalForm::kNfkc),
                                                 MakeBoundaries(NormalForm::kNfkd)};
  return others[static_cast<size_t>(form) - 1];
}

}  // namespace

std::string Normalize(const std::string& text, NormalForm form) {
  const Boundaries& boundaries = BoundariesOf(form);
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;
  size_t previous = 0;  // where the code point before `at` begins
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      previous = at++;
      continue;
    }
    const uint32_t point = ReadCodePoint(text, &at);
    if (point >= kFormsEnd || boundaries[point]) {
      previous = begin;
      continue;
    }
    // The code point before it may take part, too; a new one does not.
    size_t first = begin == 0 ? 0 : previous;
    if (size_t peek = first; first < begin && IsNewToNormalization(ReadCodePoint(text, &peek))) {
      first = begin;
    }
    size_t end = at;
    while (end < text.size()) {
      size_t next = end;
      const uint32_t other = ReadCodePoint(text, &next);
      if (other >= kFormsEnd || boundaries[other]) break;
      end = next;
    }
    out.append(text, copied, first - copied);
    AppendForm(std::string_view(text).substr(first, end - first), form, &out);
    copied = at = end;
    previous = end;
  }
  out.append(text, copied, std::string::npos);
  return out;
}

std::string Lowercase(const std::string& text) {
  std::string lower;
  lower.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const uint32_t point = ReadCodePoint(text, &at);
    if (point == 0x130) {  // the only one that becomes two
      lower += "i\xcc\x87";
    } else {
      AppendCodePoint(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))),
                      &lower);
    }
  }
  return lower;
}

}  // namespace gpuctl::trainer
